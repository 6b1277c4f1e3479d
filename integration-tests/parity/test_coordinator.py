"""What stores report to the coordinator and to progress, and stores that close after commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.processes import wait_until
from harness.spark import CAIRN_CONF, CONTROL, STATE_STORE, SUBJECT, driver_jvm

pytestmark = pytest.mark.usefixtures("driver")

FILES = 6
PARTITIONS = 2


def run_of(name: str, tmp_path: Path, provider: str, conf: dict[str, str]) -> Run:
    """Return a run over some files with its own checkpoint."""
    events = Events(tmp_path / "input")
    if not (tmp_path / "input").exists():
        events.add_files(0, FILES)
    checkpoint = str(tmp_path / provider.rpartition(".")[2])
    return Run(BY_NAME[name], events, checkpoint, provider, 2, conf)


def uploaded(run: Run, query: StreamingQuery, partition: int) -> int:
    """Return the newest snapshot of a store that the coordinator has been told of, or 0."""
    jvm: Any = driver_jvm()
    state = jvm.org.apache.spark.sql.execution.streaming.state
    store = state.StateStoreId(f"file:{run.checkpoint}/state", 0, partition, "default")
    run_id = jvm.java.util.UUID.fromString(str(query.runId))
    coordinator = query._jsq.sparkSession().streams().stateStoreCoordinator()  # noqa: SLF001
    version = coordinator.getLatestSnapshotVersionForTesting(
        state.StateStoreProviderId(store, run_id)
    )
    return int(version.get()) if version.isDefined() else 0


@pytest.mark.parametrize("provider", [SUBJECT, CONTROL])
def test_the_coordinator_hears_of_each_snapshot(tmp_path: Path, provider: str) -> None:
    """A store that reports no snapshot counts as lagging: each commit would upload one."""
    run = run_of("windows_update", tmp_path, provider, {})
    queries: list[StreamingQuery] = []

    def check() -> None:
        wait_until(lambda: bool(queries), 10, "the query")
        wait_until(
            lambda: all(uploaded(run, queries[0], number) > 1 for number in range(PARTITIONS)),
            20,
            "a report of each partition",
        )

    run.before_batch[FILES - 1] = check
    queries.append(run.start())
    run.finish(queries[0])

    for partition in range(PARTITIONS):
        assert run.snapshot_versions(StateView(), partition)


def test_progress_has_the_same_instance_metrics(tmp_path: Path) -> None:
    """Dashboards watch SnapshotLastUploaded of each partition, by its name.

    The last batch has no input and commits a version, too. Its snapshot may be uploaded while
    the task ends.
    """
    found: dict[str, dict[str, int]] = {}
    for provider in (SUBJECT, CONTROL):
        run = run_of("windows_update", tmp_path, provider, {})
        query = run.start()
        run.finish(query)
        last = query.recentProgress[-1]
        assert last["batchId"] == FILES
        metrics = last["stateOperators"][0]["customMetrics"]
        found[provider] = {name: n for name, n in metrics.items() if name.startswith("Snapshot")}

    assert set(found[SUBJECT]) == set(found[CONTROL])
    assert len(found[SUBJECT]) == PARTITIONS
    assert all(-1 <= version <= FILES + 1 for version in found[SUBJECT].values())


def test_stores_that_close_after_each_commit_keep_their_state(tmp_path: Path) -> None:
    """`unloadOnCommit` frees the executor's memory after each task; snapshots go on."""
    conf = {STATE_STORE + "unloadOnCommit": "true"}
    subject = run_of("windows_update", tmp_path, SUBJECT, conf)
    run = run_of("windows_update", tmp_path, CONTROL, conf)
    control = Control("coordinator/unload-on-commit", run)
    subject.advance()
    control.advance()

    assert subject.record.rows == control.record.rows
    assert subject.record.counts == control.record.counts
    assert subject.snapshot_versions(StateView())


def test_lineages_are_bounded_without_maintenance(tmp_path: Path) -> None:
    """If maintenance takes no snapshot, commits do: no load replays thousands of versions.

    Progress counts long lineages: a dashboard shows that snapshots fail long before commits wait.
    """
    conf = {STATE_STORE + "minDeltasForSnapshot": "1000", CAIRN_CONF + "maxLineage": "2"}
    subject = run_of("windows_update", tmp_path, SUBJECT, conf)
    control = Control("coordinator/lineages", run_of("windows_update", tmp_path, CONTROL, {}))
    query = subject.start()
    subject.finish(query)
    control.advance()

    assert subject.record.rows == control.record.rows
    assert subject.record.counts == control.record.counts
    for partition in range(PARTITIONS):
        versions = subject.snapshot_versions(StateView(), partition)
        assert versions
        assert max(versions) >= FILES - 2
    metrics = query.recentProgress[-1]["stateOperators"][0]["customMetrics"]
    assert metrics["cairnLongLineages"] == PARTITIONS
    assert metrics["cairnSnapshotBytesLeft"] == 0
