"""Runs transformWithState of PySpark under Cairn, under Spark's RocksDB, and over a dictionary.

    python benchmarks/transform.py                        all workloads and forms, five runs
    python benchmarks/transform.py --workloads value --forms rows --runs 1
    python benchmarks/transform.py --workloads value --forms rows --profile .build/profile
    python benchmarks/transform.py --workloads value --forms rows --engines groups chunks

50,000 keys, batches of 100,000 rows from files, two partitions. The workloads are those of
transform_processors.py. The floor runs the same processor in Spark's own Python worker over a
dictionary: what is left when state costs nothing. The second floor, `loop`, also replaces Spark's
loop in the worker, which makes an Arrow batch of each key. On request two other operators count the
same rows on Cairn: `groups` is applyInPandasWithState, `chunks` cairn.apply_in_arrow_with_state.
Each query has processes of its own, and its figure is the median of its batches without the first
ones; CPU time is that of all its processes. Ratios are to Spark's RocksDB of the same run. With
--profile each Python worker leaves a profile of cProfile, and the JVM one of its flight recorder,
in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import machine
import result_file
from driver import (
    BUILD,
    CONF_PREFIX,
    HERE,
    SHIM_JAR,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
    require_shim,
)
from process_memory import cpu_seconds
from report import transform_table
from transform_processors import FORMS, WORKLOADS, counted, own_loop, processor

# The providers of bench.toml.
ENGINES = {
    "cairn": "cairn_prefetch",
    "bulk": "cairn_prefetch",
    "rocksdb": "rocksdb",
    "floor": "rocksdb",
    "loop": "rocksdb",  # no state store at all
}
# Other operators, which only count.
COUNTS = {"groups": "cairn_prefetch", "chunks": "cairn_prefetch"}
BATCH_SPAN_MS = 60_000
_TIMEOUT_S = 1800


def main() -> int:
    """Measure, print the table and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--engines", nargs="+", choices=[*ENGINES, *COUNTS], default=[*ENGINES])
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--batches", type=int, default=3, help="batches that are measured")
    parser.add_argument("--warm-up", type=int, default=2, help="batches before them")
    parser.add_argument("--profile", type=Path, help="folder for the profiles")
    parser.add_argument("--result", type=Path, default=BUILD / "transform.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        _query(options.one, options)
        return 0
    require_shim(SHIM_JAR)
    interrupt_at_sigterm()
    runs = [
        _run(workload, form, engine, options)
        for _ in range(options.runs)
        for workload in options.workloads
        for form in options.forms
        for engine in options.engines
        if (workload, engine) != ("timers", "loop")
        and (engine not in COUNTS or workload == "value")
    ]
    sizes = {name: getattr(options, name) for name in ("keys", "rows", "batches", "warm_up")}
    content = {**sizes, "runs": runs, "machine": machine.describe(BUILD)}
    result_file.write(options.result, content)
    print(transform_table(content))
    return 0


def _run(workload: str, form: str, engine: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one query in a process of its own; return its rows/s."""
    command = [sys.executable, __file__, *sys.argv[1:], "--one", f"{workload}-{form}-{engine}"]
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths),
    }
    if options.profile:
        options.profile.mkdir(parents=True, exist_ok=True)
        environment["TRANSFORM_PROFILE"] = str(options.profile.resolve())
    ran = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        start_new_session=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{workload} in {form} under {engine} failed:\n{ran.stderr[-4000:]}")
    made = json.loads(ran.stdout.splitlines()[-1])
    rows_per_s = statistics.median(
        batch["rows"] / batch["ms"] * 1000 for batch in made["batches"][options.warm_up :]
    )
    run = {
        "workload": workload,
        "form": form,
        "engine": engine,
        "rows_per_s": round(rows_per_s),
        **made,
    }
    print(json.dumps(run), flush=True)
    return run


def _query(name: str, options: argparse.Namespace) -> None:
    """Run the query in this process; print the rows and the time of each batch as JSON."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this process needs a JVM

    workload, form, engine = name.split("-")
    folder = BUILD / "transform" / name
    shutil.rmtree(folder, ignore_errors=True)
    provider = load_provider(load_settings(), {**ENGINES, **COUNTS}[engine])
    conf = {
        "spark.jars": str(SHIM_JAR),
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": provider.class_name,
        **provider.conf,
    }
    if provider.family == "cairn":
        conf[CONF_PREFIX + "python"] = sys.executable
        conf[CONF_PREFIX + "bulkState"] = str(engine == "bulk").lower()
    if options.profile:
        # The module of a worker counts only if its name begins with `pyspark`.
        conf["spark.python.worker.module"] = "pyspark_profiled_worker"
        recording = options.profile.resolve() / f"{name}.jfr"
        conf["spark.driver.extraJavaOptions"] = (
            f"-XX:StartFlightRecording=filename={recording},settings=profile,dumponexit=true"
        )
    builder = SparkSession.builder.master("local[2]")
    for setting, value in conf.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    batch_count = options.warm_up + options.batches
    for batch in range(batch_count):
        spark.range(options.rows).selectExpr(
            f"pmod(xxhash64(id, {batch}), {options.keys}) as key",
            "id as value",
            f"{batch * BATCH_SPAN_MS} + id % 1000 as time_ms",
            f"timestamp_millis({batch * BATCH_SPAN_MS} + id % 1000) as time",
        ).coalesce(1).write.mode("append").parquet(str(folder / "input"))
    schema = "key bigint, value bigint, time_ms bigint, time timestamp"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    rows = stream.parquet(str(folder / "input"))
    has_timers = workload == "timers"
    if has_timers:
        rows = rows.withWatermark("time", "10 seconds")
    schema = "key bigint, count bigint"
    if engine == "loop":
        result = rows.repartition("key").mapInArrow(own_loop(workload, form), schema)
    elif engine in COUNTS:
        result = counted(engine, rows.groupBy("key"), schema)
    else:
        grouped = rows.groupBy("key")
        of_form = {
            "rows": grouped.transformWithState,
            "pandas": grouped.transformWithStateInPandas,
        }[form]
        time_mode = "EventTime" if has_timers else "None"
        result = of_form(processor(workload, form, engine), schema, "Update", time_mode)
    query = (
        result.writeStream.format("noop")
        .outputMode("append" if engine == "loop" else "update")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    cpu_s = {0: cpu_seconds(os.getsid(0))}  # by the batches that have ended
    while not query.awaitTermination(cast("int", 0.2)):  # Spark takes fractions, too
        cpu_s.setdefault(len(_data_batches(query)), cpu_seconds(os.getsid(0)))
    cpu_s[batch_count] = cpu_seconds(os.getsid(0))
    batches = _data_batches(query)
    if len(batches) != batch_count:
        raise SystemExit(f"{len(batches)} batches instead of {batch_count}")
    spark.stop()
    shutil.rmtree(folder)
    used_s = (cpu_s[batch_count] - cpu_s[options.warm_up]) / options.batches
    print(json.dumps({"batches": batches, "cpu_s_per_batch": round(used_s, 2)}))


def _data_batches(query: Any) -> list[dict[str, int]]:  # noqa: ANN401 - no import without a JVM
    return [
        {"rows": made["numInputRows"], "ms": made["durationMs"]["triggerExecution"]}
        for made in query.recentProgress
        if made["numInputRows"]
    ]


if __name__ == "__main__":
    raise SystemExit(main())
