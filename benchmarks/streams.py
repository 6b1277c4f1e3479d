"""Runs a streaming query of PySpark in a process of its own, and measures it.

run.py calls `run_stream` for the workloads of bench.toml that have a `stream`: the name of one of
`STREAMS`, and its arguments, such as "nexmark 18". The process has a task as JSON as its argument,
and prints a line per step; other lines are those of Spark. The source has the same rows in each
batch in each run, and the sink drops its rows.

The measured part begins when the last batch of the warm-up has ended and ends with the last batch.
CPU time is that of all processes. A batch's commit is the mean over the tasks of what they wait for
the commits of their stores. With `recovery` all processes are killed in a batch after the measured
ones, and the number is what another process needs from the query's start to the end of its first
batch; three batches later both have the same state, or the run fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driver import (
    BUILD,
    CONF_PREFIX,
    HERE,
    REPOSITORY,
    RUN_LIMIT_S,
    Jvm,
    Provider,
    RunFailedError,
)
from process_memory import PeakMemory, cpu_seconds, session_processes

import cairn
from cairn.reader.prices import Requests, default_prices

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from s3_storage import DistantS3

BATCHES_AFTER_KILL = 3
FLINK = REPOSITORY / ".build" / "flink"  # the environment of `make flink`
_ENDS = ("first", "last")
_MARK = "@@ "
_POLL_S = 0.02
# Other requests cost what a GET costs.
_KINDS = {
    **dict.fromkeys(("PutObject", "PutObjectPart", "NewMultipartUpload"), "put"),
    **dict.fromkeys(("CompleteMultipartUpload",), "put"),
    **dict.fromkeys(("ListObjectsV1", "ListObjectsV2"), "list"),
    **dict.fromkeys(("CopyObject", "CopyObjectPart"), "copy"),
    **dict.fromkeys(("DeleteObject", "DeleteMultipleObjects", "AbortMultipartUpload"), "delete"),
    "HeadObject": "head",
}


def run_stream(
    entry: dict[str, Any],
    provider: Provider,
    sizes: dict[str, int],
    jvm: Jvm,
    storage: DistantS3 | None = None,
) -> dict[str, float]:
    """Run a workload once in a new folder; return its numbers.

    The folder is kept if the run fails: it has the output.

    Args:
        entry: the workload of bench.toml, with a `stream`.
        provider: the provider, with the workload's settings.
        sizes: those of the workload.
        jvm: what the JVM has.
        storage: the S3 server of the checkpoint, whose requests are counted.

    Raises:
        RunFailedError: the query failed, or its state is wrong after the kill.
    """
    run = BUILD / f"stream-{os.getpid()}"
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    task = {
        "stream": entry["stream"],
        "sizes": sizes,
        "checkpoint": jvm.checkpoint or (run / "checkpoint").as_uri(),
        "conf": {
            **_conf(sizes, jvm, run),
            "spark.sql.streaming.stateStore.providerClass": provider.class_name,
            **({CONF_PREFIX + "python": sys.executable} if provider.family == "cairn" else {}),
            **provider.conf,
        },
        "folder": str(run),
        "heap": jvm.heap,
        "rows_per_s": entry.get("rows_per_s", 0),
        "kill": bool(entry.get("recovery")),
        "is_by_clock": bool(entry.get("is_by_clock")),
    }
    if provider.family == "flink":
        task["conf"] = provider.conf
    numbers = _Process(task, run, storage, _program(provider)).run()
    if task["kill"]:
        again = {**task, "kill": False, "is_recovery": True}
        numbers |= _Process(again, run, storage, _program(provider)).run()
    elif jvm.checkpoint is None and provider.family == "cairn":
        numbers["state_bytes"] = state_bytes(run / "checkpoint")
    shutil.rmtree(run)
    return numbers


def _program(provider: Provider) -> list[str]:
    """Return the program that runs a task: this one, or that of Flink in its own environment."""
    if provider.family == "flink":
        return [str(FLINK / "bin" / "python"), str(HERE / "engines" / "flink_job.py")]
    return [sys.executable, __file__]


def _conf(sizes: dict[str, int], jvm: Jvm, run: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": jvm.heap,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [jvm.shim_jar, *jvm.jars])),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={run / 'local'}",
        "spark.local.dir": str(run / "local"),
        "spark.sql.warehouse.dir": str(run / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(sizes["partition_count"]),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


def state_bytes(checkpoint: Path) -> int:
    """Return the bytes of all keys and values that the stores of a checkpoint have."""
    with cairn.open_checkpoint(str(checkpoint)) as opened:
        view = opened.view()
        return sum(
            stored.keys.nbytes + stored.values.nbytes
            for operator in view.operators
            for family in view.families(operator)
            for partition in range(operator.partitions)
            for stored in opened.state_of(family, view.batch).stored_rows(partition)
        )


class _Process:
    """The process of a query, with a session of its own."""

    def __init__(
        self, task: dict[str, Any], run: Path, storage: DistantS3 | None, program: list[str]
    ) -> None:
        self._task, self._run, self._storage, self._program = task, run, storage, program

    def run(self) -> dict[str, float]:
        """Start it and return what it has measured; all its processes end.

        Raises:
            RunFailedError: it ended without numbers.
        """
        (self._run / "local").mkdir(exist_ok=True)
        python_path = [REPOSITORY / "python" / "src", os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "FLINK_ENV_JAVA_OPTS": f"-Xmx{self._task['heap']}",
            "PYTHONPATH": os.pathsep.join(str(one) for one in python_path if str(one)),
        }
        with (self._run / "stderr.txt").open("ab") as err:
            process = subprocess.Popen(
                [*self._program, json.dumps(self._task)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        try:
            with PeakMemory(process.pid) as memory:
                numbers = self._follow(process)
        finally:
            _kill_session(process)
        return numbers | {"peak_rss_bytes": memory.peak_bytes}

    def _follow(self, process: subprocess.Popen[str]) -> dict[str, float]:
        before: Counter[str] = Counter()
        for line in process.stdout or ():
            if not line.startswith(_MARK):
                continue
            step, _, text = line.removeprefix(_MARK).partition(" ")
            if step == "warm":
                before = self._requests()
            if step == "numbers":
                numbers: dict[str, float] = json.loads(text)
                return numbers | self._cost(self._requests() - before, numbers)
        printed = (self._run / "stderr.txt").read_text(errors="replace").splitlines()
        reason = [line for line in printed if "Exception" in line or "Error" in line][-1:]
        message = f"{self._task['stream']} gave no result: {reason}; read {self._run}/stderr.txt"
        raise RunFailedError(message)

    def _requests(self) -> Counter[str]:
        if self._storage is None or self._storage.audit is None:
            return Counter()
        return Counter(entry.api for entry in self._storage.audit.entries())

    def _cost(self, requests: Counter[str], numbers: dict[str, float]) -> dict[str, float]:
        if self._storage is None:
            return {}
        kinds: Counter[str] = Counter()
        for api, count in requests.items():
            kinds[_KINDS.get(api, "get")] += count
        millions = numbers["event_count"] / 1e6
        price = default_prices().of_requests(Requests(**kinds))
        return {
            "requests_per_million": sum(kinds.values()) / millions,
            "usd_per_million": price / millions,
            **{f"{kind}_requests": count for kind, count in kinds.items()},
        }


def _kill_session(process: subprocess.Popen[str]) -> None:
    """End the process and all that it started."""
    for pid in (process.pid, *session_processes(process.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


# -- in the process --------------------------------------------------------------------------------


def _nexmark(spark: SparkSession, source: DataFrame, number: str) -> tuple[DataFrame, str]:
    from nexmark import events, queries  # noqa: PLC0415 - not in the process of run.py

    query = next(one for one in queries.QUERIES if one.number == int(number))
    events.create_views(source, has_watermark=query.closes)
    return query.streamed(spark), query.mode


def _engines(_spark: SparkSession, source: DataFrame, name: str) -> tuple[DataFrame, str]:
    from engines import queries  # noqa: PLC0415 - as above

    query = queries.QUERIES[name]
    time = f"timestamp_millis(value div {queries.ROWS_PER_MS}) AS ts"
    return query.spark(source.selectExpr("value AS n", time)), query.mode


STREAMS = {"nexmark": _nexmark, "engines": _engines}


def _main() -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    task = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[2]")
    for name, value in task["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    name, *arguments = task["stream"].split()
    frame, mode = STREAMS[name](spark, _source(spark, task), *arguments)
    start = time.monotonic()
    query = (
        frame.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", task["checkpoint"])
        .start()
    )
    first = task["sizes"]["warm_up_batches"]
    end = first + task["sizes"]["batch_count"]
    if task.get("is_recovery"):
        _await(query, 0)
        numbers = {"recovery_ms": (time.monotonic() - start) * 1000}
        _await(query, end + BATCHES_AFTER_KILL)
        numbers |= _state(_progress(query, end + BATCHES_AFTER_KILL))
    elif task["rows_per_s"]:
        numbers = _latency(query, first, end)
    else:
        numbers = _measured(query, first, end, task)
    if task["kill"]:
        _await(query, end)  # the next batch is under way
        time.sleep(0.2)
    else:
        query.stop()
    _print("numbers", json.dumps(numbers))
    time.sleep(RUN_LIMIT_S if task["kill"] else 0)


def _source(spark: SparkSession, task: dict[str, Any]) -> DataFrame:
    """Return numbers in a column `value`: a fixed count per batch, or a rate per second."""
    if task["rows_per_s"]:
        from pyspark.sql import functions as sf  # noqa: PLC0415 - as above

        rate = spark.readStream.format("rate").option("rowsPerSecond", task["rows_per_s"])
        # As numbers: the text of a time in the progress has no zone.
        first, last = (
            sf.unix_millis(of("timestamp")).alias(name)
            for of, name in zip((sf.min, sf.max), _ENDS, strict=True)
        )
        return rate.option("numPartitions", 2).load().observe("made", first, last).select("value")
    counted = spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
    counted = counted.option("rowsPerBatch", task["sizes"]["batch_rows"])
    return counted.option("startTimestamp", 0).load().select("value")


def _latency(query: Any, first: int, end: int) -> dict[str, float]:  # noqa: ANN401 - no import without a JVM
    """Return how much later than its rows, which are made evenly, a batch has ended."""
    _await(query, end - 1)
    times = []
    for batch in (_progress(query, number) for number in range(first, end)):
        begun = datetime.fromisoformat(batch["timestamp"])
        ended_ms = begun.timestamp() * 1000 + batch["durationMs"]["triggerExecution"]
        made = [batch["observedMetrics"]["made"][at] for at in _ENDS]
        newest, oldest = (ended_ms - one for one in reversed(made))
        times += [newest + (oldest - newest) * place / 99 for place in range(100)]
    return {
        "latency_p50_ms": statistics.median(times),
        "latency_p99_ms": _p99(times),
        "sampled_count": len(times),
    }


def _measured(query: Any, first: int, end: int, task: dict[str, Any]) -> dict[str, float]:  # noqa: ANN401 - no import without a JVM
    _await(query, first - 1)
    begun_s, begun_cpu_s = time.monotonic(), cpu_seconds(os.getsid(0))
    _print("warm")
    _await(query, end - 1)
    took_s, used_s = time.monotonic() - begun_s, cpu_seconds(os.getsid(0)) - begun_cpu_s
    batches = [_progress(query, number) for number in range(first, end)]
    event_count = len(batches) * task["sizes"]["batch_rows"]
    batch_ms = [batch["durationMs"]["triggerExecution"] for batch in batches]
    commit_ms = [
        sum(operator["commitTimeMs"] / operator["numShufflePartitions"] for operator in operators)
        for operators in (batch["stateOperators"] for batch in batches)
    ]
    numbers = {
        "event_count": event_count,
        "rows_per_s": event_count / sum(batch_ms) * 1000,
        "wall_s": took_s,
        "cpu_seconds": used_s,
        "cpu_s_per_million": used_s / event_count * 1e6,
        "batch_p50_ms": statistics.median(batch_ms),
        "batch_p99_ms": _p99(batch_ms),
        "commit_p50_ms": statistics.median(commit_ms),
        "commit_p99_ms": _p99(commit_ms),
    }
    for phase in ("addBatch", "commitOffsets", "walCommit"):
        times = [batch["durationMs"].get(phase, 0) for batch in batches]
        numbers[f"spark_{phase}_ms"] = statistics.median(times)
    if not task["is_by_clock"]:
        operators = [operator for batch in batches for operator in batch["stateOperators"]]
        numbers["written_rows"] = sum(operator["numRowsUpdated"] for operator in operators)
        numbers |= _state(batches[-1])
    return numbers


def _state(progress: dict[str, Any]) -> dict[str, float]:
    return {"state_rows": sum(one["numRowsTotal"] for one in progress["stateOperators"])}


def _p99(times: list[float]) -> float:
    return sorted(times)[-(-len(times) * 99 // 100) - 1]


def _await(query: Any, batch: int) -> None:  # noqa: ANN401 - as above
    """Wait until a batch, or one after it, has ended.

    Raises:
        SystemExit: the query has ended.
    """
    while True:
        last = query._jsq.lastProgress()  # noqa: SLF001 - without JSON
        if last is not None and last.batchId() >= batch:
            return
        if not query.isActive:
            raise SystemExit(str(query.exception()))
        time.sleep(_POLL_S)


def _progress(query: Any, batch: int) -> dict[str, Any]:  # noqa: ANN401 - as above
    found: Iterator[dict[str, Any]] = (
        json.loads(one.json) for one in query.recentProgress if one.batchId == batch
    )
    return next(found)


def _print(step: str, text: str = "") -> None:
    print(f"{_MARK}{step} {text}", flush=True)


if __name__ == "__main__":
    _main()
