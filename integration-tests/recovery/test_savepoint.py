"""A savepoint of a running query keeps its batch while the query goes on far beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest

import cairn
from cairn.checkpoint.stored_versions import StoredVersions
from cairn.format.savepoint import Savepoint
from cairn.reader.stores.cairn import CairnRows
from cairn.storage.open import open_store
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CAIRN_CONF, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

OPERATOR = BY_NAME["totals_complete"]
FILES = 24
BEGINS = 6
"""The savepoint is created while this batch runs."""
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "maintenanceInterval": "100ms",
    STATE_STORE + "minDeltasForSnapshot": "2",
    CAIRN_CONF + "orphanGraceMs": "1000",
}


def rows_of(checkpoint: str, kept: Savepoint) -> list[dict[bytes, bytes]]:
    """Return the rows of each partition, from the objects that the savepoint names."""
    found = []
    for one in kept.stores:
        root = open_store(f"{checkpoint}/{one.store.folder}", {})
        versions = StoredVersions(root, one.store, kept.checkpoint_format)
        with CairnRows(versions, one.ref.version, one.ref.checkpoint_id) as rows:
            assert rows.gone_around == ()
            found.append(
                {
                    key.as_py(): value.as_py()
                    for some in rows.rows("default")
                    for key, value in zip(some.keys, some.values, strict=True)
                }
            )
    return found


@pytest.mark.parametrize("checkpoint_format", [1, 2], ids=["format1", "format2"])
def test_a_savepoint_of_a_running_query_outlives_its_retention(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """The query must not notice it, and its purges must keep what it names."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(OPERATOR, events, str(tmp_path / "ck"), SUBJECT, checkpoint_format, CONF)
    kept: list[Savepoint] = []
    whole: list[list[dict[bytes, bytes]]] = []

    def keep() -> None:
        kept.append(cairn.create_savepoint(run.checkpoint, name="running"))
        whole.append(rows_of(run.checkpoint, kept[0]))

    run.before_batch[BEGINS] = keep
    run.advance()

    (made,) = kept
    assert made.batch == BEGINS - 1
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        assert made.batch not in checkpoint.batches
        assert [one for one in checkpoint.verify() if one.severity != "note"] == []
    purged = [
        version
        for version in (BEGINS + 2, BEGINS + 3)
        if not list(Path(run.checkpoint).glob(f"state/0/*/changelog/{version}[._]*"))
    ]
    assert purged, "retention did not pass the savepoint"
    assert sum(map(len, whole[0])) == len(run.record.rows[BEGINS - 1])
    assert rows_of(run.checkpoint, made) == whole[0]
    (info,) = cairn.list_savepoints(run.checkpoint)
    assert (info.name, info.status) == ("running", "whole")
