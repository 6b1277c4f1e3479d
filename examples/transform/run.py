"""transformWithState in PySpark on Cairn: a value, a timer and a time to live.

    python examples/transform/run.py --seconds 20

A stream of clicks, 20 per second from seven users. The processor counts the clicks of a visit in a
value. A timer ends the visit when the user has been idle for three seconds, and gives one row. A
value that no timer removes lives for an hour. The rows are printed; checkpoint and process end with
the program, unless --checkpoint names a folder or an s3a:// URL: then the next run goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

import cairn

IDLE_MS = 3_000
TIME_TO_LIVE_MS = 3_600_000
CLICKS_PER_S = 20
USERS = 7


class Visits(StatefulProcessor):
    """Counts the clicks of each user's visit."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.handle = handle
        self.clicks = handle.getValueState("clicks", "clicks bigint", TIME_TO_LIVE_MS)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],  # noqa: ARG002
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Count the clicks, and set the end of the visit anew."""
        (before,) = self.clicks.get() or (0,)
        self.clicks.update((before + sum(1 for _ in rows),))
        for expiry_ms in self.handle.listTimers():
            self.handle.deleteTimer(expiry_ms)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + IDLE_MS)
        yield from ()

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: ARG002, N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """End the visit."""
        (clicks,) = self.clicks.get() or (0,)
        self.clicks.clear()
        yield Row(user=key[0], clicks=clicks)

    def close(self) -> None:
        """Free nothing: the handle is Spark's."""


def visits(spark: SparkSession) -> DataFrame:
    """Return the visits that have ended. Each second one user clicks; a visit lasts a second."""
    seconds = f.unix_timestamp("timestamp")
    clicks = spark.readStream.format("rate").option("rowsPerSecond", CLICKS_PER_S).load()
    return (
        clicks.select((seconds % USERS).alias("user"))
        .groupBy("user")
        .transformWithState(Visits(), "user bigint, clicks bigint", "Update", "ProcessingTime")
    )


def start(spark: SparkSession, checkpoint: str) -> StreamingQuery:
    """Start the query; its rows go to the console."""
    sink = visits(spark).writeStream.outputMode("update").format("console")
    return sink.option("checkpointLocation", checkpoint).trigger(processingTime="1 second").start()


def main() -> None:
    """Run the query for some seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=20, help="how long it runs (default 20)")
    parser.add_argument("--checkpoint", help="folder or URL (default: a temporary folder)")
    options = parser.parse_args()
    # Spark's Python workers are this Python, which has the packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("visits").master("local[2]")
    settings = cairn.spark_conf({"spark.master": "local[2]"})
    for name, value in {"spark.sql.shuffle.partitions": "2", **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory(prefix="cairn-visits-") as folder:
        query = start(spark, options.checkpoint or str(Path(folder) / "checkpoint"))
        query.awaitTermination(options.seconds)
        query.stop()
        spark.stop()
    if query.exception():
        raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main()
