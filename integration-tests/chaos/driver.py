"""The Spark driver of a chaos run: `python driver.py <job.json>`. `ChaosDriver` starts it.

All queries run at the same time, each to the end of its input. The rows of batch `b` of query `n`
go to `<out>/<n>/<b>.json`, with the number of files that the query has read by then (`SinkBatch`).
The first query that fails ends the program: its error goes to `<out>/<n>/error.txt`. The sink holds
a batch back until its time has come, so that the input lasts as long as the faults.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import STATE_STORE, SUBJECT, provider_conf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.1
# A load needs changelogs, too.
SNAPSHOTS = {STATE_STORE + "minDeltasForSnapshot": "5"}
FAILED = 3
# These run in Spark's checkpoint format 1, in which all attempts at a version share a name.
IN_FORMAT_1 = frozenset({"windows_append"})
# In the text of Spark's StreamProgress: the side of the input, and its last file that was read.
_SOURCE = re.compile(r'FileStreamSource\[[^\]]*/(\w+)\]: \{"logOffset":(\d+)\}')


def checkpoint_format(name: str) -> int:
    """Return Spark's checkpoint format of a query."""
    return 1 if name in IN_FORMAT_1 else 2


@dataclass(frozen=True)
class SinkBatch:
    """What a sink has of one batch.

    Attributes:
        rows: as text, sorted.
        files: how many files of each side of the input the query has read, this batch included. It
            is one file more than before, or two: a driver that was killed between two of Spark's
            logs had planned the first one.
    """

    rows: list[str]
    files: dict[str, int]


@dataclass(frozen=True)
class Job:
    """What a driver runs.

    Attributes:
        conf: settings of the driver JVM.
        operators: names of the queries.
        events: folder of the input.
        checkpoints: URL of the folder of all checkpoints.
        out: folder of all sinks.
        begin_s: the time, in seconds since 1970, at which the first batch may end.
        interval_s: how much later each next batch may end.
    """

    conf: Mapping[str, str]
    operators: list[str]
    events: str
    checkpoints: str
    out: str
    begin_s: float
    interval_s: float

    def sink(self, name: str) -> Path:
        """Return the folder of one query's rows."""
        return Path(self.out, name)

    def checkpoint(self, name: str) -> str:
        """Return the checkpoint location of one query."""
        return f"{self.checkpoints}/{name}"

    def start(self, spark: SparkSession, name: str) -> StreamingQuery:
        """Start or resume a query."""
        operator = BY_NAME[name]
        session = spark.newSession()
        provider = provider_conf(SUBJECT, checkpoint_format(name))
        for key, value in {**provider, **operator.conf, **SNAPSHOTS}.items():
            session.conf.set(key, value)
        stream = operator.stream(session, Events(Path(self.events)))
        writer = stream.writeStream.queryName(name).outputMode(operator.output_mode)
        writer = writer.option("checkpointLocation", self.checkpoint(name))
        keep = self._keep_in(name, session)
        return writer.foreachBatch(keep).trigger(availableNow=True).start()

    def _keep_in(self, name: str, session: SparkSession) -> Callable[[DataFrame, int], None]:
        folder = self.sink(name)
        folder.mkdir(parents=True, exist_ok=True)

        def keep(frame: DataFrame, batch: int) -> None:
            rows = sorted(map(repr, frame.collect()))
            time.sleep(max(0.0, self.begin_s + batch * self.interval_s - time.time()))
            hidden = folder / f".{batch}.new"
            hidden.write_text(json.dumps(asdict(SinkBatch(rows, _files_read(session, name)))))
            hidden.rename(folder / f"{batch}.json")

        return keep


def _files_read(session: SparkSession, query: str) -> dict[str, int]:
    """Return the files of each side up to the end of a query's running batch."""
    (running,) = (one for one in session.streams.active if one.name == query)
    offsets = running._jsq.streamingQuery().availableOffsets()  # noqa: SLF001 - there is no public way
    return {side: int(offset) + 1 for side, offset in _SOURCE.findall(str(offsets))}


def run(spark: SparkSession, job: Job) -> int:
    """Run all queries to the end of their input; return the exit code."""
    running = {name: job.start(spark, name) for name in job.operators}
    while running:
        time.sleep(POLL_S)
        for name, query in list(running.items()):
            if query.isActive:
                continue
            failure = query.exception()
            if failure is not None:
                (job.sink(name) / "error.txt").write_text(str(failure))
                return FAILED
            del running[name]
    return 0


def main(path: str) -> int:
    """Run the job of a specification file."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - `ChaosDriver` needs no Spark

    specification: dict[str, Any] = json.loads(Path(path).read_text())
    job = Job(**specification)
    builder = SparkSession.builder
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    code = run(spark, job)
    spark.stop()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
