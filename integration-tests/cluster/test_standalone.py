"""Queries on a standalone cluster of a master and two workers, of which parts are killed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.cluster import StandaloneCluster
from harness.differential import Run
from harness.event_log import event_log_conf, speculative_successes
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.processes import ENGINE, engines_of, marked, wait_until_ended
from harness.spark import CAIRN, CONTROL, SUBJECT, driver_pid

pytestmark = pytest.mark.usefixtures("driver")

FILES = 6
WORKERS = 2
KILL_AFTER_BATCH = 2
SLOW_BATCH = 1
# Speculation without patience: one of two tasks is enough to call the other one slow.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.locality.wait": "200ms",
}


@pytest.mark.slow  # the short run of chaos kills workers of a cluster, too
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
    with StandaloneCluster(tmp_path / "cluster", WORKERS) as cluster:
        job = JobProcess(tmp_path / "job", queries, cluster.executor_conf(), pause_s=0.5)
        try:
            job.wait_for_batch(KILL_AFTER_BATCH)
            # An executor that registers late may get no partition.
            lost = max(
                range(WORKERS), key=lambda number: len(engines_of(cluster.worker(number).pid))
            )
            engines = engines_of(cluster.worker(lost).pid)
            executors = cluster.executors(lost)
            for process in (cluster.worker(lost), *executors):
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


@pytest.mark.slow
def test_a_slow_task_that_has_a_twin_and_a_killed_executor_change_no_row(
    nothing_survives: str,  # noqa: ARG001 - ends after the cluster
    tmp_path: Path,
) -> None:
    """Two attempts commit one version, and the driver takes one: the other must have no effect."""
    events = Events(tmp_path / "input")
    events.add_files(0, KILL_AFTER_BATCH + 2)
    names = ("totals_complete", "join_left_outer_v4", "transform_event_time")
    queries = [
        Query(name, events, str(tmp_path / name), SUBJECT, 2, slow_batch=SLOW_BATCH)
        for name in names
    ]
    controls = [
        Run(BY_NAME[name], events, str(tmp_path / f"{name}-control"), CONTROL) for name in names
    ]
    logs = tmp_path / "event-log"
    logs.mkdir()
    killed = []
    with StandaloneCluster(tmp_path / "cluster") as cluster, ThreadPoolExecutor(1) as pool:
        conf = {**cluster.executor_conf(), **SPECULATION, **event_log_conf(logs)}
        job = JobProcess(tmp_path / "job", queries, conf, pause_s=0.5)
        try:
            advances = [pool.submit(control.advance) for control in controls]
            for number in range(len(queries)):
                job.wait_for_batch(KILL_AFTER_BATCH, number)
                executors = cluster.executors(number % 2)
                killed.append(len(executors))
                for executor in executors:
                    executor.kill()
            code = job.wait()
        finally:
            job.end()
        for advance in advances:
            advance.result()

    assert code == 0, job.tail()
    assert all(killed), f"executors killed per query: {killed}"
    for number, control in enumerate(controls):
        assert not job.error(number), job.error(number)
        assert job.rows(number) == control.record.rows, names[number]
    twins = speculative_successes(logs)
    assert len(twins) == len(queries), f"batches in which a speculative task succeeded: {twins}"
    assert all(SLOW_BATCH in batches for batches in twins.values())
    for name in names if SUBJECT == CAIRN else ():
        attempts = (tmp_path / name).glob(f"state/0/0/changelog/{SLOW_BATCH + 1}_*.arrow")
        assert len(list(attempts)) > 1, f"the slow task of {name} had not committed"
