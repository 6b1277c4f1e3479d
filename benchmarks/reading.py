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
import shutil
import sys
from pathlib import Path
from typing import Any

import machine
import result_file
from driver import BUILD, SHIM_JAR, interrupt_at_sigterm, require_shim
from made_state import PROVIDERS, make_state, run_measured
from report import reading_table

SHAPES = {"long": "id", "text": "concat('user-', id)"}

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
        for provider in PROVIDERS:
            folder = BUILD / "reading" / f"{provider}-{shape}"
            make_state(folder, provider, SHAPES[shape], options.rows)
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


def _measured(reader: str, code: str, folder: Path, provider: str, shape: str) -> dict[str, Any]:
    done = run_measured(code, str(folder), str(SHIM_JAR))
    rows, read_s = done.output.split()[-2:]
    run = {
        "reader": reader,
        "provider": provider,
        "key": shape,
        "rows": int(rows),
        "whole_s": done.whole_s,
        "read_s": round(float(read_s), 3),
        "cpu_s": done.cpu_s,
        "peak_mib": done.peak_mib,
    }
    print(json.dumps(run), flush=True)
    return run


if __name__ == "__main__":
    raise SystemExit(main())
