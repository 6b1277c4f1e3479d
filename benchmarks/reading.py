"""Reads one state with Cairn's reader and with Spark's `statestore` source, beside each other.

    python benchmarks/reading.py                  a million keys, three runs
    python benchmarks/reading.py --rows 10000000 --runs 1 --shapes long

The state is that of an aggregation (count and sum) in two partitions, under Cairn and under Spark's
HDFS-backed and RocksDB providers, with a key of one long or of a text. Each reading is a process of
its own: its time is measured from its start, and without the start of Python or of the JVM.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import machine
import result_file
from driver import BUILD, SHIM_JAR, interrupt_at_sigterm, require_shim
from process_memory import PeakMemory
from report import reading_table

PROVIDERS = {
    "cairn": "io.cairn.spark.CairnStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
SHAPES = {"long": "id", "text": "concat('user-', id)"}
_TIMEOUT_S = 1800

_MAKE = """
import pathlib, sys, time
from pyspark.sql import SparkSession
folder, provider, key, rows, jar = sys.argv[1:]
spark = (SparkSession.builder.master("local[2]").config("spark.jars", jar)
    .config("spark.driver.memory", "4g").config("spark.ui.enabled", "false")
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
spark.stop()
"""

_READ_WITH_CAIRN = """
import sys, time
began = time.monotonic()
import cairn
state = cairn.open_checkpoint(sys.argv[1] + "/checkpoint").state()
count = sum(batch.num_rows for batch in state.reader())
print(count, time.monotonic() - began)
"""

_READ_WITH_SPARK = """
import sys, time
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.jars", sys.argv[2])
    .config("spark.driver.memory", "4g").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.streaming.stateStore.cairn.python", sys.executable).getOrCreate())
began = time.monotonic()
rows = spark.read.format("statestore").load(sys.argv[1] + "/checkpoint")
seen = rows.selectExpr("count(*)", "count(key)", "count(value)").collect()[0][0]
print(seen, time.monotonic() - began)
spark.stop()
"""


def main() -> int:
    """Measure, print the table and write the results; return 1 if a row is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=sorted(SHAPES))
    parser.add_argument("--result", type=Path, default=BUILD / "reading.json")
    options = parser.parse_args()
    require_shim(SHIM_JAR)
    interrupt_at_sigterm()
    runs: list[dict[str, Any]] = []
    for shape in options.shapes:
        for provider, class_name in PROVIDERS.items():
            folder = BUILD / "reading" / f"{provider}-{shape}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            made = (class_name, SHAPES[shape], str(options.rows), str(SHIM_JAR))
            _run(_MAKE, str(folder), *made)
            for _ in range(options.runs):
                runs.append(_measured("cairn", _READ_WITH_CAIRN, folder, provider, shape))
                runs.append(_measured("spark", _READ_WITH_SPARK, folder, provider, shape))
            shutil.rmtree(folder)
    content = {"rows": options.rows, "runs": runs, "machine": machine.describe(BUILD)}
    result_file.write(options.result, content)
    print(reading_table(content))
    wrong = [run for run in runs if run["rows"] != options.rows]
    for run in wrong:
        print(f"another number of rows: {run}", file=sys.stderr)
    return 1 if wrong else 0


def _run(code: str, *arguments: str) -> tuple[str, int]:
    """Run a program; return its output, and the peak of its memory in MiB."""
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
    return output, memory.peak_bytes >> 20


def _measured(reader: str, code: str, folder: Path, provider: str, shape: str) -> dict[str, Any]:
    before, began = os.times(), time.monotonic()
    output, peak_mib = _run(code, str(folder), str(SHIM_JAR))
    whole_s, after = time.monotonic() - began, os.times()
    rows, read_s = output.split()[-2:]
    used_s = after.children_user + after.children_system
    run = {
        "reader": reader,
        "provider": provider,
        "key": shape,
        "rows": int(rows),
        "whole_s": round(whole_s, 3),
        "read_s": round(float(read_s), 3),
        "cpu_s": round(used_s - before.children_user - before.children_system, 3),
        "peak_mib": peak_mib,
    }
    print(json.dumps(run), flush=True)
    return run


if __name__ == "__main__":
    raise SystemExit(main())
