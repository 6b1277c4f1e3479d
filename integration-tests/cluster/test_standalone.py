"""Queries on a standalone cluster of a master and two workers, one of which is killed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.cluster import StandaloneCluster
from harness.events import Events
from harness.job import JobProcess, Query
from harness.processes import ENGINE, engines_of, marked, wait_until_ended
from harness.spark import CAIRN, JVM_OPTIONS, SUBJECT, class_path, driver_pid

pytestmark = pytest.mark.usefixtures("driver")

FILES = 6
KILL_AFTER_BATCH = 2


def executor_conf(cluster: StandaloneCluster) -> dict[str, str]:
    """Return the settings of executors on this cluster."""
    return {
        "spark.master": cluster.url,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraClassPath": class_path(),
        "spark.executor.extraJavaOptions": JVM_OPTIONS,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }


def test_a_killed_spark_worker_changes_no_row_and_leaves_no_engine(
    nothing_survives: str, tmp_path: Path
) -> None:
    """If machines are lost, the others load the partitions from the checkpoint, with all rows."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    queries = [
        Query(name, events, str(tmp_path / name), SUBJECT, checkpoint_format=2)
        for name in ("distinct", "totals_complete")
    ]
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        job = JobProcess(tmp_path / "job", queries, executor_conf(cluster), pause_s=0.5)
        try:
            job.wait_for_batch(KILL_AFTER_BATCH)
            engines = engines_of(cluster.worker(0).pid)
            executors = cluster.executors(0)
            for process in (cluster.worker(0), *executors):
                process.kill()
            orphans = wait_until_ended(engines, timeout_s=15)
            code = job.wait()
        finally:
            job.end()
        own = engines_of(driver_pid())
        engines_left = [p for p in marked(nothing_survives) if ENGINE in p.command and p not in own]
        survivors = wait_until_ended(engines_left, timeout_s=15)

    assert executors, "the worker had no executor"
    assert SUBJECT != CAIRN or engines, "the executor had no engine"
    assert not orphans, f"engines outlived their executor: {orphans}"
    assert not survivors, f"engines outlived the job: {survivors}"
    assert code == 0, job.tail()
    for number in range(len(queries)):
        assert not job.error(number), job.error(number)
    assert job.all_rows(0) == queries[0].batch_rows()
    totals = job.rows(1)
    assert totals[max(totals)] == queries[1].batch_rows()
