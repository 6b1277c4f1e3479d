"""The Spark application of the demo: runs the five queries to the end of their input.

run.py starts it by spark-submit, may kill it at any moment, and starts it again on the same
checkpoints. It writes its progress to a file as JSON lines:

    {"event": "started", "query": name, "at": seconds}
    {"event": "progress", "query": name, "at": seconds, "progress": {Spark's progress}}
    {"event": "failed", "query": name, "message": "..."}
    {"event": "compared", "query": name, "sink_rows": n, "batch_rows": n,
     "missing": n, "unexpected": n}
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

from inputs import FlightInputs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from queries import QUERIES, FlightQuery, without_sentinel

POLL_S = 0.2
MESSAGE_CHARS = 3000


class Events:
    """The JSON lines that run.py reads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def write(self, event: str, query: str, **values: Any) -> None:  # noqa: ANN401 - JSON
        """Write one line at once: this process may be killed before it closes the file."""
        line = {"event": event, "query": query, "at": time.time(), **values}
        self._file.write(json.dumps(line) + "\n")


def write_batch(folder: str, rows: DataFrame, batch_id: int) -> None:
    """Write one batch to its own folder: a batch that runs again after a crash replaces it.

    Spark's file sink is not used: with checkpoint format 2, Spark cannot resume a query that died
    between that sink's commit and its own (docs/semantics.md#what-is-not-promised).
    """
    rows.write.mode("overwrite").parquet(f"{folder}/batch={batch_id}")


def start(spark: SparkSession, query: FlightQuery, args: argparse.Namespace) -> StreamingQuery:
    """Start a query, or resume it from its checkpoint."""
    return (
        query.stream(spark, FlightInputs.under(args.inputs))
        .writeStream.queryName(query.name)
        .foreachBatch(partial(write_batch, str(args.sinks / query.name)))
        .outputMode("append")
        .option("checkpointLocation", f"{args.checkpoints}/{query.name}")
        .trigger(availableNow=True)
        .start()
    )


def run(spark: SparkSession, args: argparse.Namespace, events: Events) -> None:
    """Run all queries concurrently until each has read its last file."""
    running = {}
    for query in QUERIES:
        running[query.name] = start(spark, query, args)
        events.write("started", query.name)
    last_batch = dict.fromkeys(running, -1)
    while running:
        time.sleep(POLL_S)
        for name, handle in list(running.items()):
            active = handle.isActive
            for progress in handle.recentProgress:
                # An idle trigger repeats the id of the previous batch.
                if progress.batchId > last_batch[name] and progress.durationMs.get("addBatch"):
                    last_batch[name] = progress.batchId
                    events.write("progress", name, progress=json.loads(progress.json))
            if not active:
                del running[name]
                failure = handle.exception()
                if failure is not None:
                    events.write("failed", name, message=str(failure)[:MESSAGE_CHARS])
                    raise failure


def compare(spark: SparkSession, args: argparse.Namespace, events: Events) -> None:
    """Compare each sink with the batch computation of the same rows, in both directions."""
    for query in QUERIES:
        batch = query.batch(spark, FlightInputs.under(args.inputs)).cache()
        sink = without_sentinel(spark.read.parquet(str(args.sinks / query.name)))
        sink = sink.select(*batch.columns).cache()
        events.write(
            "compared",
            query.name,
            sink_rows=sink.count(),
            batch_rows=batch.count(),
            missing=batch.exceptAll(sink).count(),
            unexpected=sink.exceptAll(batch).count(),
        )
        batch.unpersist()
        sink.unpersist()


def main() -> None:
    """Run, then compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=Path, required=True)
    parser.add_argument("--sinks", type=Path, required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--events", type=Path, required=True)
    args = parser.parse_args()
    spark = SparkSession.builder.appName("cairn-demo").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    events = Events(args.events)
    run(spark, args, events)
    compare(spark, args, events)
    spark.stop()


if __name__ == "__main__":
    main()
