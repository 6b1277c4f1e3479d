"""A Spark driver in its own process, for tests that kill it: `python job.py <job.json>`.

Runs the queries of the specification one after the other, each to the end of its input. The rows of
batch `b` of query `n` go to `<out>/<n>/<b>.json`, an error that ends the query to
`<out>/<n>/error.txt`. `JobProcess` starts this program and reads these files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.events import Events
from harness.operators import BY_NAME
from harness.processes import Process, descendants, engines_of, wait_until, wait_until_ended
from harness.spark import CAIRN_CONF, driver_conf, new_session, provider_conf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

KILL_AFTER_BATCH = 1
END_OF_ENGINES_S = 15
FIRST_BATCH_TIMEOUT_S = 120
END_TIMEOUT_S = 240
SLOW_S = 60
HURRY = "hurry"


@dataclass(frozen=True)
class Query:
    """One query of a job: the fields of `harness.differential.Run` that fit into a file.

    Attributes:
        slow_batch: in this batch the first attempt of partition 0 takes a minute after its commit.
    """

    operator: str
    events: Events
    checkpoint: str
    provider: str
    checkpoint_format: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)
    slow_batch: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form of the specification file."""
        return {**vars(self), "events": str(self.events.folder), "conf": dict(self.conf)}

    def batch_rows(self) -> list[str]:
        """Compute the query's rows in the shared driver JVM, without a state store."""
        frame = BY_NAME[self.operator].batch(new_session({}), self.events)
        return sorted(map(repr, frame.collect()))


class JobProcess:
    """A running driver: a Python process, its child the JVM, whose children are the engines.

    Args:
        folder: for specification, sink rows and log; a later run may use the same one.
        queries: the queries in their order.
        conf: settings of the driver JVM in addition to `driver_conf`.
        environment: environment variables in addition to those of this process.
        pause_s: the sink waits this long in each batch, so that a kill hits a running batch.
        python: the Python of the driver, whose pyspark decides on the version of Spark.
    """

    def __init__(
        self,
        folder: Path,
        queries: Sequence[Query],
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        pause_s: float = 0.0,
        python: str = sys.executable,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "job.log"
        specification = {
            "conf": {**driver_conf(folder), **(conf or {})},
            "out": str(folder / "sink"),
            "pause_s": pause_s,
            "queries": [query.to_json() for query in queries],
        }
        path = folder / "job.json"
        path.write_text(json.dumps(specification))
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                [python, str(HERE / "job.py"), str(path)],
                env=_environment(python, environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """The Python process's id."""
        return self._child.pid

    @property
    def has_ended(self) -> bool:
        """Whether the Python process has ended."""
        return self._child.poll() is not None

    def jvm(self) -> Process:
        """Return the driver JVM."""
        return next(
            p for p in descendants(self.pid) if "org.apache.spark.deploy.SparkSubmit" in p.command
        )

    def engines(self) -> list[Process]:
        """Return the live engine workers."""
        return engines_of(self.pid)

    def rows(self, query: int = 0) -> dict[int, list[str]]:
        """Return the rows in the sink of a query, by batch."""
        files = (self.folder / "sink" / str(query)).glob("*.json")
        return {int(path.stem): json.loads(path.read_text()) for path in files}

    def all_rows(self, query: int = 0) -> list[str]:
        """Return the rows in the sink of a query in append mode, sorted."""
        return sorted(row for rows in self.rows(query).values() for row in rows)

    def error(self, query: int = 0) -> str:
        """Return the error that ended a query; empty if there is none."""
        path = self.folder / "sink" / str(query) / "error.txt"
        return path.read_text() if path.exists() else ""

    def hurry(self) -> None:
        """Let the sink wait no more."""
        (self.folder / "sink" / HURRY).touch()

    def wait_for_batch(self, batch: int, query: int = 0) -> None:
        """Wait until the sink of a query has a batch.

        Raises:
            TimeoutError: it did not arrive; the message has the end of the log.
        """
        self._wait_for(lambda: batch in self.rows(query), f"batch {batch}")

    def wait_for_pause(self, batch: int, query: int = 0) -> None:
        """Wait until the tasks of a batch have ended and its sink pauses.

        Raises:
            TimeoutError: it did not begin to; the message has the end of the log.
        """
        pauses = self.folder / "sink" / str(query) / f"{batch}.pauses"
        self._wait_for(pauses.exists, f"the pause in batch {batch}")

    def _wait_for(self, has_come: Callable[[], bool], what: str) -> None:
        wait_until(lambda: has_come() or self.has_ended, FIRST_BATCH_TIMEOUT_S, what, self.tail)
        assert has_come(), f"the job ended before {what}:\n{self.tail()}"

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self._child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the job did not end\n{self.tail()}") from None

    def end(self) -> None:
        """Kill its processes that still run, descendants first."""
        for process in reversed(descendants(self.pid)):
            process.kill()
        self._child.kill()
        self._child.wait()

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-6000:]


def continue_after_a_kill(
    query: Query,
    folder: Path,
    before_kill: Callable[[], None] = lambda: None,
    conf: Mapping[str, str] | None = None,
) -> JobProcess:
    """Run a query, kill its driver JVM in the middle, and continue to the end in another one.

    The second driver has another local directory, and that of the first one is removed, as if each
    partition had moved.

    Args:
        query: its input has more batches than are run before the kill.
        folder: for the job and both local directories.
        before_kill: called when the batch that is killed is running.
        conf: settings of both driver JVMs.
    """
    local = {**(conf or {}), **_local_dir_conf(folder / "first")}
    first = JobProcess(folder / "job", [query], local, pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH)
        before_kill()
        engines = first.engines()
        first.jvm().kill()
        left = wait_until_ended(engines, END_OF_ENGINES_S)
        first.wait()
        reached = set(first.rows())
    finally:
        first.end()
    shutil.rmtree(folder / "first", ignore_errors=True)
    local = {**(conf or {}), **_local_dir_conf(folder / "second")}
    second = JobProcess(folder / "job", [query], local)
    try:
        code = second.wait()
    finally:
        second.end()
    assert not left, f"engines outlived their JVM: {left}"
    assert code == 0, second.tail()
    assert not second.error(), second.error()
    assert len(reached) < len(second.rows()), "the job had ended before it was killed"
    return second


def _local_dir_conf(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {CAIRN_CONF + "localDir": str(folder)}


def _environment(python: str, more: Mapping[str, str]) -> dict[str, str]:
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "PYTHONUNBUFFERED": "1"}
    return {**os.environ, **own, **more}


def main(path: str) -> None:
    """Run the queries of a specification file."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - JobProcess needs no Spark

    specification = json.loads(Path(path).read_text())
    builder = SparkSession.builder
    for name, value in specification["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for number, query in enumerate(specification["queries"]):
        out = Path(specification["out"], str(number))
        out.mkdir(parents=True, exist_ok=True)
        # Left by an earlier run.
        (out / "error.txt").unlink(missing_ok=True)
        try:
            _run(spark, query, out, specification["pause_s"])
        except Exception as failure:  # noqa: BLE001 - the test checks it
            (out / "error.txt").write_text(str(failure))
    spark.stop()


def _run(spark: SparkSession, query: dict[str, Any], out: Path, pause_s: float) -> None:
    operator = BY_NAME[query["operator"]]
    session = spark.newSession()
    settings = provider_conf(query["provider"], query["checkpoint_format"])
    for name, value in {**settings, **operator.conf, **query["conf"]}.items():
        session.conf.set(name, value)

    def keep(frame: DataFrame, batch: int) -> None:
        rows = sorted(map(repr, frame.collect()))
        (out / f"{batch}.pauses").touch()
        with suppress(TimeoutError):
            wait_until((out.parent / HURRY).exists, pause_s, "the end of the pause")
        hidden = out / f".{batch}.new"
        hidden.write_text(json.dumps(rows))
        hidden.rename(out / f"{batch}.json")

    stream = operator.stream(session, Events(Path(query["events"])))
    if query["slow_batch"] is not None:
        stream = _slow_in_batch(stream, query["slow_batch"])
    writer = stream.writeStream.outputMode(operator.output_mode).foreachBatch(keep)
    writer.option("checkpointLocation", query["checkpoint"]).trigger(
        availableNow=True
    ).start().awaitTermination()


def _slow_in_batch(stream: DataFrame, batch: int) -> DataFrame:
    def slow(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # The operator below commits its state when it has given its last row.
        all_rows = list(rows)
        task = TaskContext.get()
        assert task is not None
        is_in_batch = task.getLocalProperty("streaming.sql.batchId") == str(batch)
        if is_in_batch and task.partitionId() == 0 and task.attemptNumber() == 0:
            time.sleep(SLOW_S)
        yield from all_rows

    # The rows of a join have two columns of one name.
    unique = stream.toDF(*(f"c{number}" for number in range(len(stream.columns))))
    return unique.mapInArrow(slow, unique.schema).toDF(*stream.columns)


if __name__ == "__main__":
    main(sys.argv[1])
