"""A query whose state is moved to another kind of storage goes on as if it had never been moved."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import cairn
from harness.differential import Run
from harness.events import Events
from harness.moves import FILES, PROVIDERS, run_unmoved
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.spark import s3a_conf
from harness.state_cases import FORMS

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.hdfs]


@dataclass(frozen=True)
class Storage:
    """A folder of a storage.

    Attributes:
        folder: its path or URL.
        options: those by which Cairn's commands reach it.
        conf: settings by which Spark does.
    """

    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


@pytest.fixture
def storages(tmp_path: Path, hdfs_url: str, s3_bucket: S3Bucket) -> Mapping[str, Storage]:
    """Each kind by its name."""
    one_copy = {"dfs.replication": "1"}  # there is one DataNode
    options = s3_bucket.settings
    return {
        "files": Storage(str(tmp_path)),
        "hdfs": Storage(f"{hdfs_url}/{uuid.uuid4().hex}", {"hadoop_conf": one_copy}, one_copy),
        "s3": Storage(s3_bucket.url, options, s3a_conf(options)),
    }


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
    expected = run_unmoved(BY_NAME[name], tmp_path / "unmoved")
    events = Events(tmp_path / "input")
    before: tuple[Storage, Run] | None = None
    for number, step in enumerate(way.split()):
        form, storage = FORMS[step.split(":")[0]], storages[step.split(":")[1]]
        place = f"{storage.folder}/stage-{number}"
        conf = {**storage.conf, **form.conf}
        run = Run(BY_NAME[name], events, place, form.provider, form.checkpoint_format, conf)
        first = 0
        if before is not None:
            first = before[1].record.last_batch + 1
            with cairn.migrate(
                before[1].checkpoint,
                to=place,
                provider=PROVIDERS[form.provider],
                storage_options=before[0].options,
                target_options=storage.options,
            ) as plan:
                plan.apply(processes=1)
        events.add_files(sum(FILES[:number]), FILES[number])

        run.advance()

        rows, batches = expected.control.record.rows, range(first, expected.last[number] + 1)
        assert run.record.rows == {batch: rows[batch] for batch in batches if batch in rows}
        assert run.record.rows
        with cairn.open_checkpoint(place, storage_options=storage.options) as checkpoint:
            assert [one for one in checkpoint.verify() if one.severity == "error"] == []
        before = storage, run
