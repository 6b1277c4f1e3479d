"""Moves in tasks of a Spark cluster, whose executors are killed: Spark repeats their tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cairn
from harness.cluster import StandaloneCluster
from harness.moves import ended_query
from harness.spark import CAIRN, REPOSITORY, ROCKSDB

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("driver")]

PARTITIONS = 12
TIMEOUT_S = 600
# The driver of a move. It kills the executors when some tasks of the stage have ended, others not.
DRIVER = """
import json, sys, threading, time
import cairn
from harness.processes import descendants
from pyspark.sql import SparkSession

verb, stage, conf, workers, source, target = json.loads(sys.argv[1])
killed = []

def is_half_done(tracker):
    one = tracker.getStageInfo(stage)
    return one is not None and 2 <= one.numCompletedTasks < one.numTasks

def kill_executors(tracker):
    while not is_half_done(tracker):
        time.sleep(0.01)
    below = [one for worker in workers for one in descendants(worker)]
    killed.extend(one for one in below if "CoarseGrainedExecutorBackend" in one.command)
    for executor in killed:
        executor.kill()

builder = SparkSession.builder
for name, value in conf.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
tracker = session.sparkContext.statusTracker()
threading.Thread(target=kill_executors, args=(tracker,), daemon=True).start()
with (
    cairn.migrate(source, to=target, provider="cairn")
    if verb == "migrate" else cairn.repartition(source, partitions=5)
) as plan:
    moved = plan.apply(session=session)
print(json.dumps({"killed": len(killed), "moved": [[one.keys, one.digest] for one in moved]}))
session.stop()
"""


def moved_on_a_cluster(
    folder: Path, verb: str, source: str, target: str = "", stage: int = 0
) -> dict[str, Any]:
    """Return what the driver of a move printed, and how many executors it killed in a stage."""
    with StandaloneCluster(folder / "cluster", 2, retries_executors=True) as cluster:
        conf = {
            **cluster.executor_conf(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            # The rows that a dead executor had shuffled do not come by waiting.
            "spark.shuffle.io.maxRetries": "1",
            "spark.shuffle.io.retryWait": "200ms",
        }
        workers = [cluster.worker(number).pid for number in range(2)]
        arguments = [verb, stage, conf, workers, source, target]
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, json.dumps(arguments)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "integration-tests")},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows_of(checkpoint: str) -> list[str]:
    """Return the rows of a state, without their partitions."""
    with cairn.open_checkpoint(checkpoint) as opened:
        rows = opened.state().to_table().drop_columns("partition").to_pylist()
    return sorted(map(repr, rows))


def test_a_migration_goes_on_without_its_executors(tmp_path: Path) -> None:
    """A cluster takes machines away: hours of work must neither be lost nor be done by hand."""
    source = ended_query(tmp_path, ROCKSDB, PARTITIONS).checkpoint
    with cairn.migrate(source, to=str(tmp_path / "here"), provider="cairn") as plan:
        expected = plan.apply(processes=1)
    target = str(tmp_path / "target")

    found = moved_on_a_cluster(tmp_path, "migrate", source, target)

    assert found["killed"] > 0
    assert found["moved"] == [[one.keys, one.digest] for one in expected]
    assert rows_of(target) == rows_of(source)
    with cairn.open_checkpoint(target) as opened:
        assert list(opened.verify()) == []


@pytest.mark.parametrize("stage", [pytest.param(0, id="read"), pytest.param(1, id="write")])
def test_a_repartition_goes_on_without_its_executors(tmp_path: Path, stage: int) -> None:
    """The rows that Spark had shuffled are lost with the executors: it reads stores once more."""
    run = ended_query(tmp_path, CAIRN, PARTITIONS)
    before = rows_of(run.checkpoint)

    found = moved_on_a_cluster(tmp_path, "repartition", run.checkpoint, stage=stage)

    assert found["killed"] > 0
    assert rows_of(run.checkpoint) == before
    with cairn.open_checkpoint(run.checkpoint) as opened:
        assert list(opened.verify()) == []
        assert opened.operators[0].partitions == 5
