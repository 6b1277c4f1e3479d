"""A query whose state is moved to another kind of storage goes on as if it had never been moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import cairn
from cairn.offline.move.totals import MovedFamily
from harness.differential import Run
from harness.events import Events
from harness.moved_checks import (
    require_same_changes,
    require_same_in_reader,
    require_same_sink,
    require_same_state,
)
from harness.moves import FILES, PROVIDERS, MovedQuery, Stage, run_unmoved
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.state_cases import FORMS
from harness.storages import Storage, on_hdfs, on_s3

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.hdfs]


@pytest.fixture
def storages(tmp_path: Path, hdfs_url: str, s3_bucket: S3Bucket) -> Mapping[str, Storage]:
    """Each kind by its name."""
    return {"files": Storage(str(tmp_path)), "hdfs": on_hdfs(hdfs_url), "s3": on_s3(s3_bucket)}


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("sessions", "rocksdb-1:files cairn-1:hdfs cairn-1:s3"),
        ("transform_ttl", "cairn-2:s3 rocksdb-2:files cairn-2:hdfs"),
        pytest.param("windows_append", "hdfs:hdfs cairn-1:s3 hdfs:files", marks=pytest.mark.slow),
        pytest.param(
            "join_left_outer_v4", "rocksdb-2:s3 cairn-2:files cairn-2:s3", marks=pytest.mark.slow
        ),
    ],
)
def test_a_query_goes_on_on_another_storage(
    name: str,
    way: str,
    storages: Mapping[str, Storage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source is on one, the target on the other; then its objects are all that is there."""
    # The age of an object is that of its PUT: a person waits.
    monkeypatch.setattr("cairn.offline.hold.QUIET_S", 0)
    unmoved = run_unmoved(BY_NAME[name], tmp_path / "unmoved")
    events = Events(tmp_path / "input")
    stages: list[Stage] = []
    for number, step in enumerate(way.split()):
        form, storage = FORMS[step.split(":")[0]], storages[step.split(":")[1]]
        place = f"{storage.folder}/stage-{number}"
        first, moved = 0, tuple[MovedFamily, ...]()
        if stages:
            before = stages[-1]
            first = before.last + 1
            with cairn.migrate(
                before.run.checkpoint,
                to=place,
                provider=PROVIDERS[form.provider],
                storage_options=before.options,
                target_options=storage.options,
            ) as plan:
                moved = plan.apply(processes=1)
        conf = {**storage.conf, **form.conf}
        run = Run(BY_NAME[name], events, place, form.provider, form.checkpoint_format, conf)
        events.add_files(sum(FILES[:number]), FILES[number])
        run.advance()
        last = unmoved.last[number]
        stages.append(Stage(run, form, first, last, 0, moved, storage.options))
        with cairn.open_checkpoint(place, storage_options=storage.options) as checkpoint:
            assert [one for one in checkpoint.verify() if one.severity == "error"] == []

    query = MovedQuery(tuple(stages), unmoved.control)
    require_same_sink(query)
    require_same_state(query)
    require_same_in_reader(query)
    require_same_changes(query)
