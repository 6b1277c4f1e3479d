"""Stores without writes in a batch cost no request, and load after retention has passed them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from harness.clear_errors import assert_clear
from harness.control import Control
from harness.differential import Run, copy_checkpoint, forget_batches
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME, StateView
from harness.s3_audit import AuditedS3
from harness.spark import CAIRN_CONF, CONTROL, STATE_STORE, SUBJECT, s3a_conf

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = 10
FILES = 6
FIRST_COUNTED_BATCH = 2
FEW_RETAINED = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "minVersionsToDelete": "1",
    CAIRN_CONF + "orphanGraceMs": "0",
}
# One PUT per commit; these belong to snapshots, which idle stores do not need.
SNAPSHOTS = ("/snapshot/", "/sst/", "/.cairn-probe-")


def few_keys(folder: Path) -> Events:
    """Return an input with two keys, null and -2, in every file."""
    return Events(folder, rows_per_file=300, keys=1)


def test_only_stores_with_writes_send_a_put(s3_audited: AuditedS3, tmp_path: Path) -> None:
    """200 partitions of which 190 are idle must cost ten PUTs per batch, not 200."""
    events = few_keys(tmp_path / "input")
    events.add_files(0, FILES)
    conf = s3a_conf(s3_audited.settings) | {
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        STATE_STORE + "minDeltasForSnapshot": "1000",
    }
    run = Run(BY_NAME["totals_complete"], events, f"{s3_audited.url}/query", SUBJECT, 2, conf)
    run.before_batch[FIRST_COUNTED_BATCH] = s3_audited.restart_count

    run.advance()

    requests = s3_audited.counted("query/state/", leave_out=SNAPSHOTS)
    rows = run.session().read.format("statestore").load(run.checkpoint).collect()
    with_keys = {row["partition_id"] for row in rows}
    assert 1 <= len(with_keys) <= 2
    assert requests == {"PutObject": len(with_keys) * (FILES - FIRST_COUNTED_BATCH)}


def test_a_query_killed_while_idle_for_longer_than_retention_continues(tmp_path: Path) -> None:
    """Its last writes are far below the versions that retention keeps."""
    events = few_keys(tmp_path / "input")
    events.add_files(0, 8)
    query = Query("distinct", events, str(tmp_path / "checkpoint"), SUBJECT, 2, FEW_RETAINED)
    first = JobProcess(tmp_path / "job", [query], local_dir(tmp_path / "first"), pause_s=0.5)
    try:
        first.wait_for_batch(6)
        first.jvm().kill()
        first.wait()
    finally:
        first.end()
    changelogs = list((tmp_path / "checkpoint" / "state").rglob("changelog/*.arrow"))
    replace(events, keys=12).add_files(8, 2)
    second = JobProcess(tmp_path / "job", [query], local_dir(tmp_path / "second"))
    try:
        code = second.wait()
    finally:
        second.end()

    assert code == 0, second.tail()
    assert not second.error(), second.error()
    # All rows are in the first batches: later ones wrote nothing.
    assert max(int(path.stem.split("_")[0]) for path in changelogs) <= 4
    assert second.all_rows() == query.batch_rows()


def test_state_of_idle_batches_is_that_of_spark_s_provider(tmp_path: Path) -> None:
    """The state reader finds it by batch, from a snapshot, and as a change feed."""
    events = few_keys(tmp_path / "input")
    events.add_files(0, 6)
    replace(events, keys=12).add_files(6, 1)
    replace(events, keys=1).add_files(7, 2)
    subject = Run(BY_NAME["distinct"], events, str(tmp_path / "subject"), SUBJECT, 2)
    run = Run(BY_NAME["distinct"], events, str(tmp_path / "control"), CONTROL, 2)
    control = Control("idle-stores", run)
    view = StateView()

    subject.advance()
    control.advance()

    assert subject.record.rows == control.record.rows
    for batch in range(9):
        assert subject.state(view, batchId=batch) == control.state(view, batchId=batch), batch
    assert subject.changes(view, 8) == control.changes(view, 8)


@pytest.mark.parametrize(
    ("provider", "checkpoint_format"), [(SUBJECT, 2), (CONTROL, 2), (SUBJECT, 1)]
)
@pytest.mark.parametrize("cure", ["the entries come back", "the batches run again"])
def test_a_commit_log_that_ends_at_an_idle_batch_is_not_believed(
    tmp_path: Path, provider: str, checkpoint_format: int, cure: str
) -> None:
    """The checkpoint was copied while it ran, or somebody deleted the last entries of `commits/`.

    Batch 1 leaves all stores idle. Spark runs batch 3 with its ids: state without batch 2. In
    checkpoint format 1 there are no ids, and the version that batch 3 needs is whole.
    """
    events = few_keys(tmp_path / "input")
    events.add_files(0, 1)
    replace(events, rows_per_file=0).add_files(1, 1)
    events.add_files(2, 2)
    whole = Run(
        BY_NAME["totals_complete"], events, str(tmp_path / "whole"), provider, checkpoint_format
    )
    whole.advance()
    assert whole.record.rows[0] == whole.record.rows[1] != whole.record.rows[2]
    copy = tmp_path / "copy"
    again = copy_checkpoint(whole, copy)
    forget_batches(copy, "commits", 2)
    kept = sorted(path.name for path in copy.rglob("*.arrow"))
    if (provider, checkpoint_format) == (SUBJECT, 2):
        assert {name.partition("_")[0] for name in kept} == {"1", "3", "4"}

    if checkpoint_format == 1:
        again.advance()
    else:
        with pytest.raises(StreamingQueryException) as failure:
            again.advance()
        assert not again.record.rows
        assert sorted(path.name for path in copy.rglob("*.arrow")) == kept
        if provider == SUBJECT:
            assert_clear(str(failure.value), "CAIRN_MISSING", "version=3", "commits", "offsets")
        if cure == "the entries come back":
            shutil.copytree(tmp_path / "whole" / "commits", copy / "commits", dirs_exist_ok=True)
            events.add_files(4, 1)
        else:
            forget_batches(copy, "offsets", 3)
        for run in (again, whole):
            run.advance()

    assert again.record.rows
    for batch, rows in again.record.rows.items():
        assert rows == whole.record.rows[batch], batch
    view, last = StateView(), whole.record.last_batch
    assert again.state(view, batchId=last) == whole.state(view, batchId=last)


def local_dir(folder: Path) -> dict[str, str]:
    """Return the setting of the engine's local directory."""
    folder.mkdir()
    return {CAIRN_CONF + "localDir": str(folder)}
