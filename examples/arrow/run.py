"""Visits per user by cairn.apply_in_arrow_with_state: whole batches of keys as Arrow tables.

    python examples/arrow/run.py --seconds 20

A stream of clicks, 20 per second from seven users. One call of the function sees the clicks of all
users of a batch, and the state of each: the clicks of the visit so far. A visit ends when the user
has been idle for three seconds; the users whose timeout has passed come in calls of their own. The
rows are printed; checkpoint and process end with the program, unless --checkpoint names a folder or
an s3a:// URL: then the next run goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

import cairn

IDLE_MS = 3_000
CLICKS_PER_S = 20
USERS = 7


def visits(
    rows: pa.Table,  # noqa: ARG001 - their number per user is all that counts
    state: pa.Table,
    chunk: cairn.Chunk,
) -> tuple[pa.Table | None, pa.Table]:
    """Count the clicks of each user's visit; give the visits that have ended."""
    if chunk.has_timed_out:
        ended = state.select(["user", "clicks"])
        count = state.num_rows
        gone = pa.table(
            {
                "user": state["user"],
                "clicks": pa.nulls(count, pa.int64()),
                "exists": np.zeros(count, dtype=bool),
                "timeout_ms": pa.nulls(count, pa.int64()),
            }
        )
        return ended, gone
    before = pc.coalesce(state["clicks"], pa.scalar(0))
    clicks = np.asarray(before) + np.bincount(chunk.key_of_row, minlength=state.num_rows)
    ends_ms = np.full(state.num_rows, chunk.processing_time_ms + IDLE_MS)
    return None, pa.table({"user": state["user"], "clicks": clicks, "timeout_ms": ends_ms})


def ended_visits(spark: SparkSession) -> DataFrame:
    """Return the visits that have ended. Each second one user clicks; a visit lasts a second."""
    seconds = f.unix_timestamp("timestamp")
    clicks = spark.readStream.format("rate").option("rowsPerSecond", CLICKS_PER_S).load()
    return cairn.apply_in_arrow_with_state(
        clicks.select((seconds % USERS).alias("user")).groupBy("user"),
        visits,
        output_schema="user bigint, clicks bigint",
        state_schema="clicks bigint",
        mode="append",
        timeout=GroupStateTimeout.ProcessingTimeTimeout,
    )


def start(spark: SparkSession, checkpoint: str) -> StreamingQuery:
    """Start the query; its rows go to the console."""
    sink = ended_visits(spark).writeStream.outputMode("append").format("console")
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
