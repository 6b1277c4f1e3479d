"""Counts the S3 requests of a streaming aggregation on MinIO: state, and Spark's own files.

    make bench-requests                               Cairn and two forms of Spark's RocksDB
    make bench-requests ARGS='--providers rocksdb'
    make bench-idle                                   Cairn with 200 partitions, 190 of them idle

``rocksdb`` is the provider as shipped; ``rocksdb_abortable`` has the checkpoint file manager of
spark-hadoop-cloud, which does not rename. Spark's own files are offsets, commits, and the log of
the file source.

The query runs 10 batches, then 100 more (20 under Spark's own providers), with 4 shuffle
partitions; maintenance runs every 5 s. The first 10 do not count, but the requests of the start
with batch 0, and those of a restart with one more batch, are counted apart. Rows have only keys of
the first ``--busy-partitions`` partitions. No engine worker may start after batch 0. MinIO's audit
webhook reports each request with its API, key, client and query; a listing counts under its prefix.
The files `<result>-<provider>-<phase>.txt` have one line per request.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import result_file
from driver import (
    BUILD,
    REPOSITORY,
    SHIM_JAR,
    cairn_conf,
    interrupt_at_sigterm,
    load_provider,
    load_settings,
)
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from s3_storage import minio_binary, s3a_conf, s3a_jars

from harness.minio import MinioProcess
from harness.processes import end_child
from harness.s3 import endpoint_of
from harness.s3_audit import CAIRN_USER_AGENT, AuditedS3, AuditEntry, AuditServer

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

WARM_UP_BATCHES = 10
COUNTED_BATCHES = 100
SPARK_BATCHES = 20
PARTITIONS = 4
KEYS = 20_000
ROWS_PER_BATCH = 1_000
BUCKET = "bench"
CHILD_END_S = 60
_GROUPS = {
    "commit": "state/ by the provider, without snapshots",
    "snapshot": "snapshots and retention",
    "spark_state": "state/ by Spark itself",
    "elsewhere": "Spark's own files",
}


def main() -> int:
    """Count for each provider and print a table; return 1 if a query failed."""
    options = _parser().parse_args()
    interrupt_at_sigterm()
    if options.only:
        _one(options)
        return 0
    counts: dict[str, Any] = {}
    for provider in options.providers:
        # One Python process per provider: a driver JVM keeps its class path and its providers.
        command = [sys.executable, str(Path(__file__).resolve()), "--only", provider]
        command += _passed_on(options, provider)
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            printed, _ = child.communicate()
        finally:
            end_child(child, CHILD_END_S)  # it ends its server
        if child.returncode:
            print(f"{provider}: the query failed", file=sys.stderr)
            return 1
        counts[provider] = json.loads(printed.splitlines()[-1])
    _print_table(counts, options.partitions)
    content = {
        "partitions": options.partitions,
        "busy_partitions": options.busy_partitions or options.partitions,
        "format": options.format,
        "counts": counts,
        "machine": machine.describe(BUILD),
    }
    result_file.write(options.result, content)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--providers",
        nargs="+",
        choices=("cairn", "rocksdb", "rocksdb_abortable", "hdfs"),
        default=["cairn", "rocksdb", "rocksdb_abortable"],
    )
    parser.add_argument(
        "--batches", type=int, default=COUNTED_BATCHES, help="counted batches (default %(default)s)"
    )
    parser.add_argument(
        "--spark-batches",
        type=int,
        default=SPARK_BATCHES,
        help="counted batches of Spark's own providers, which are slower (default %(default)s)",
    )
    parser.add_argument(
        "--format", type=int, default=1, choices=(1, 2), help="checkpoint format (default 1)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        default=PARTITIONS,
        help="shuffle partitions (default %(default)s)",
    )
    parser.add_argument(
        "--busy-partitions", type=int, default=0, help="partitions with rows (default: all)"
    )
    parser.add_argument("--cairn-conf", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--shim-jar", type=Path, default=SHIM_JAR)
    parser.add_argument("--result", type=Path, default=BUILD / "s3-requests.json")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser


def _passed_on(options: argparse.Namespace, provider: str) -> list[str]:
    confs = [part for pair in options.cairn_conf for part in ("--cairn-conf", pair)]
    jar = ["--shim-jar", str(options.shim_jar)]
    result = ["--result", str(options.result)]
    batches = options.batches if provider == "cairn" else options.spark_batches
    sizes = ["--batches", str(batches), "--format", str(options.format)]
    sizes += ["--partitions", str(options.partitions)]
    sizes += ["--busy-partitions", str(options.busy_partitions)]
    return [*sizes, *jar, *result, *confs]


def _one(options: argparse.Namespace) -> None:
    """Run the query under one provider and print its counts as one line of JSON."""
    with AuditServer() as audit, MinioProcess(minio_binary(), audit.minio_environment) as server:
        endpoint = endpoint_of(server)
        client = endpoint.client()
        client.create_bucket(Bucket=BUCKET)
        log = AuditedS3(audit, client, BUCKET, endpoint.settings)
        with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
            starts_ms, requests = _run_query(options, server, log, Path(folder))
        client.close()
    for phase, sent in requests.items():
        trace = options.result.with_name(f"{options.result.stem}-{options.only}-{phase}.txt")
        trace.parent.mkdir(parents=True, exist_ok=True)
        trace.write_text("".join(f"{one.api} {one.status} {one.key}\n" for one in sent))
    found = {
        "batches": options.batches,
        "worker_starts_ms": starts_ms,
        **_counts(requests["batches"], options.only),
        **{phase: _counts(requests[phase], options.only) for phase in ("start", "restart")},
    }
    print(json.dumps(found))


def _run_query(
    options: argparse.Namespace, server: MinioProcess, log: AuditedS3, folder: Path
) -> tuple[dict[int, int], dict[str, list[AuditEntry]]]:
    """Run the batches; return the workers' start times by batch, and the requests by phase."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(REPOSITORY / "python" / "src"), os.environ.get("PYTHONPATH")])
    )
    builder = SparkSession.builder.master("local[2]")
    for key, value in _conf(options, server, folder).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source = folder / "input"
    source.mkdir()
    keys = _keys(spark, options.partitions, options.busy_partitions or options.partitions)
    requests = {}
    _write_input(source, keys, 0, 1)
    log.restart_count()
    query = _start(spark, source)
    requests["start"] = log.settled()
    _write_input(source, keys, 1, WARM_UP_BATCHES - 1)
    query.processAllAvailable()
    log.restart_count()
    _write_input(source, keys, WARM_UP_BATCHES, options.batches)
    query.processAllAvailable()
    requests["batches"] = log.settled()
    last, progress = query.lastProgress, query.recentProgress
    query.stop()
    expected = WARM_UP_BATCHES + options.batches
    _write_input(source, keys, expected, 1)
    log.restart_count()
    query = _start(spark, source)
    requests["restart"] = log.settled()
    query.stop()
    spark.stop()
    if last is None or last["batchId"] < expected - 1:
        message = f"the query ran {last and last['batchId']} batches, not {expected}"
        raise SystemExit(message)
    return _worker_starts(progress, expected, options.only), requests


def _start(spark: SparkSession, source: Path) -> StreamingQuery:
    """Start the query on its checkpoint, and let it run the batches of the present files."""
    rows = (
        spark.readStream.schema("key long, value long")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
    )
    query = (
        rows.groupBy("key")
        .agg(sf.sum("value").alias("total"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", f"s3a://{BUCKET}/query")
        .start()
    )
    query.processAllAvailable()
    return query


def _keys(spark: SparkSession, partitions: int, busy_partitions: int) -> list[int]:
    """Return keys whose rows Spark shuffles to the first ``busy_partitions`` partitions."""
    partition = sf.pmod(sf.hash("id"), sf.lit(partitions))
    found = spark.range(KEYS).where(partition < busy_partitions).collect()
    return sorted(row["id"] for row in found)


def _worker_starts(progress: list[Any], expected: int, provider: str) -> dict[int, int]:
    starts_ms = {
        one["batchId"]: operator["customMetrics"].get("cairnWorkerStartMs", 0)
        for one in progress
        for operator in one["stateOperators"]
    }
    if len(starts_ms) < expected:
        message = f"the progress of {len(starts_ms)} batches was reported, not of {expected}"
        raise SystemExit(message)
    started = {batch: time_ms for batch, time_ms in starts_ms.items() if time_ms}
    if list(started) != ([0] if provider == "cairn" else []):
        message = f"workers started in the batches {sorted(started)}, expected in batch 0 only"
        raise SystemExit(message)
    return started


def _conf(options: argparse.Namespace, server: MinioProcess, folder: Path) -> dict[str, str]:
    provider = load_provider(load_settings(), options.only)
    jars = [options.shim_jar.resolve(), *s3a_jars()]
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(options.partitions),
        # Twice the batches: a query also reports progress when it waits for rows.
        "spark.sql.streaming.numRecentProgressUpdates": str(
            2 * (WARM_UP_BATCHES + options.batches)
        ),
        **s3a_conf(server, server.endpoint_url),
        # So short that the counted batches have snapshots and clean-up under every provider.
        "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
        "spark.sql.streaming.stateStore.providerClass": provider.class_name,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": str(options.format),
        **provider.conf,
        **(cairn_conf(options.cairn_conf) if provider.family == "cairn" else {}),
    }


def _write_input(folder: Path, keys: list[int], first: int, count: int) -> None:
    """Write one file per batch, with ascending modification times: the source orders by them."""
    for number in range(first, first + count):
        places = (number * 7919 + i * 31 for i in range(ROWS_PER_BATCH))
        lines = [json.dumps({"key": keys[place % len(keys)], "value": number}) for place in places]
        hidden = folder / f".{number:05}.json"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(folder / f"{number:05}.json")


def _counts(requests: list[AuditEntry], provider: str) -> dict[str, dict[str, int]]:
    """Count requests by the groups of ``_GROUPS`` and by API."""
    groups: dict[str, Counter[str]] = {name: Counter() for name in _GROUPS}
    for request in requests:
        is_own = provider != "cairn" or CAIRN_USER_AGENT in request.user_agent
        if not request.key.startswith("query/state/"):
            groups["elsewhere"][request.api] += 1
        elif not is_own:
            groups["spark_state"][request.api] += 1
        elif _is_maintenance(request):
            groups["snapshot"][request.api] += 1
        else:
            groups["commit"][request.api] += 1
    return {name: dict(sorted(counter.items())) for name, counter in groups.items()}


def _is_maintenance(request: AuditEntry) -> bool:
    """Return whether a request's key is one of a snapshot or of retention."""
    if request.api.startswith("Delete") and ".changelog" not in request.key:
        return True
    return any(
        part in request.key for part in ("/snapshot/", "/sst/", ".zip", "/SSTs/", "/.cairn-probe-")
    )


def _print_table(counts: dict[str, Any], partitions: int) -> None:
    for provider, groups in counts.items():
        batches = groups["batches"]
        print(f"\n{provider}: requests with {partitions} partitions, {batches} batches counted")
        for name, title in _GROUPS.items():
            print(f"  {title:42} per batch {_kinds(groups[name], batches):40}")
            print(f"  {'':42} start     {_kinds(groups['start'][name])}")
            print(f"  {'':42} restart   {_kinds(groups['restart'][name])}")


def _kinds(counts: dict[str, int], batches: int = 1) -> str:
    kinds = ", ".join(f"{count / batches:g} {api}" for api, count in counts.items())
    return f"{sum(counts.values()) / batches:g}" + (f" ({kinds})" if kinds else "")


if __name__ == "__main__":
    raise SystemExit(main())
