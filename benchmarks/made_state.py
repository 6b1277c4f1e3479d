"""The state of an aggregation (count and sum) in two partitions, made by Spark under a provider."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from driver import SHIM_JAR
from process_memory import PeakMemory

PROVIDERS = {
    "cairn": "io.cairn.spark.CairnStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_TIMEOUT_S = 3600

_MAKE = """
import pathlib, sys, time
from pyspark.sql import SparkSession
folder, provider, key, rows, jar = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jar)
    .config("spark.driver.memory", "4g").config("spark.ui.enabled", "false")
    .config("spark.local.dir", folder + "/local")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.streaming.stateStore.providerClass", provider)
    .config("spark.sql.streaming.stateStore.cairn.python", sys.executable)
    .config("spark.sql.streaming.stateStore.maintenanceInterval", "1s")
    .config("spark.sql.streaming.stateStore.minDeltasForSnapshot", "1").getOrCreate())
row = f"{key} as key", "id * 3 as value"
for number, count in enumerate((int(rows), 1, 1)):
    part = spark.range(count).selectExpr(*row).coalesce(1)
    part.write.mode("append").parquet(folder + "/input")
stream = spark.readStream.schema(part.schema).option("maxFilesPerTrigger", 1)
query = (stream.parquet(folder + "/input").groupBy("key").agg({"*": "count", "value": "sum"})
    .writeStream.format("noop").outputMode("update").trigger(processingTime="5 seconds")
    .option("checkpointLocation", folder + "/checkpoint").start())
while not query.lastProgress or query.lastProgress["batchId"] < 2:
    if query.exception():
        raise query.exception()
    time.sleep(0.5)
state = pathlib.Path(folder, "checkpoint", "state", "0")
until = time.monotonic() + 60
for part in ("0", "1"):
    while not any(next(state.glob(f"{part}/{name}"), None) for name in
                  ("*.snapshot", "*.zip", "snapshot/*.json")):
        if time.monotonic() > until:
            raise SystemExit("maintenance took no snapshot of partition " + part)
        time.sleep(0.2)
query.stop()
# Not stop(): the end of a JVM with Spark's RocksDB provider stood still for minutes.
spark.sparkContext._gateway.proc.kill()
"""


def make_state(folder: Path, provider: str, key: str, rows: int) -> None:
    """Make a checkpoint, in ``folder/checkpoint``.

    Args:
        folder: an empty one; what is there is removed.
        provider: of ``PROVIDERS``.
        key: expression of SQL over ``id``, from 0 to ``rows - 1``.
        rows: how many keys the state has.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_measured(_MAKE, str(folder), PROVIDERS[provider], key, str(rows), str(SHIM_JAR))
    shutil.rmtree(folder / "local")


@dataclass(frozen=True)
class Measured:
    """A program that has ended.

    Attributes:
        output: what it printed.
        whole_s: from its start to its end.
        cpu_s: processor time of all its processes.
        peak_mib: the largest sum of their resident memory.
    """

    output: str
    whole_s: float
    cpu_s: float
    peak_mib: int


def run_measured(code: str, *arguments: str) -> Measured:
    """Run a program of Python to its end."""
    before, began = os.times(), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with PeakMemory(process.pid) as memory:
        output, errors = process.communicate(timeout=_TIMEOUT_S)
    if process.returncode:
        raise SystemExit(f"a program failed:\n{errors[-4000:]}")
    after = os.times()
    used_s = after.children_user + after.children_system
    return Measured(
        output,
        round(time.monotonic() - began, 3),
        round(used_s - before.children_user - before.children_system, 3),
        memory.peak_bytes >> 20,
    )
