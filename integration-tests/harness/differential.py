"""Runs one operator under a provider and records everything that a user can see of it.

The records of two providers on the same input are compared field by field: the sink's rows per
batch, the progress of each batch, and the rows of the `statestore` source. Rows are compared as
sorted text, because neither Spark nor a provider guarantees an order.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from harness.events import Events
from harness.operators import Operator, StateView
from harness.spark import new_session, provider_conf

QUERY_TIMEOUT_S = 120
Rows = list[str]
_NULLS = re.compile(r"Row\((\w+=None(, )?)+\)")
COUNTS = ("numRowsTotal", "numRowsUpdated", "numRowsRemoved", "numRowsDroppedByWatermark")
# Columns of a state row that may have fields besides the value, such as a time.
VALUE_COLUMNS = {"value", "list_element", "user_map_value"}
KEY_COLUMNS = ("partition_id", "key", "user_map_key")


@dataclass
class Record:
    """The visible results of a query by batch: rows, and one tuple of counts per operator.

    `metrics` has the sums of the provider's own metrics, over all batches and operators.
    """

    rows: dict[int, Rows] = field(default_factory=dict)
    counts: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    metrics: dict[str, int] = field(default_factory=dict)

    def add_progress(self, query: StreamingQuery) -> None:
        """Add the counts and metrics of the batches that a query ran."""
        for progress in query.recentProgress:
            operators = progress["stateOperators"]
            if operators:
                self.counts[int(progress["batchId"])] = [
                    tuple(int(operator[name]) for name in COUNTS) for operator in operators
                ]
            for operator in operators:
                for name, value in operator["customMetrics"].items():
                    self.metrics[name] = self.metrics.get(name, 0) + int(value)

    @property
    def last_batch(self) -> int:
        """The latest batch that reached the sink."""
        return max(self.rows)


def as_text(frame: DataFrame) -> Rows:
    """Collect rows as sorted text."""
    return sorted(map(repr, frame.collect()))


@dataclass
class Run:
    """One operator under one provider, with its own checkpoint.

    Attributes:
        operator: the query.
        events: its input.
        checkpoint: its checkpoint location, a folder or a URL.
        provider: class name of the state store provider.
        checkpoint_format: Spark's, 1 or 2.
        conf: further settings of its session.
        record: its visible results.
        before_batch: called when a batch begins, before its state is read.
        at_end: called when the query has ended.
    """

    operator: Operator
    events: Events
    checkpoint: str
    provider: str
    checkpoint_format: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)
    record: Record = field(default_factory=Record)
    before_batch: dict[int, Callable[[], None]] = field(default_factory=dict)
    at_end: list[Callable[[], None]] = field(default_factory=list)

    def session(self) -> SparkSession:
        """Return a new session with this run's settings."""
        settings = provider_conf(self.provider, self.checkpoint_format)
        return new_session({**settings, **self.operator.conf, **self.conf})

    def start(self) -> StreamingQuery:
        """Start or resume the query; it ends when it has read all present input files."""
        rows, before = self.record.rows, self.before_batch

        def keep(frame: DataFrame, batch: int) -> None:
            if batch in before:
                before[batch]()
            rows[batch] = self.read(frame)

        stream = self.operator.stream(self.session(), self.events)
        writer = stream.writeStream.outputMode(self.operator.output_mode).foreachBatch(keep)
        return (
            writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        )

    def read(self, frame: DataFrame) -> Rows:
        """Return the rows of a batch; the sink."""
        return as_text(frame)

    def finish(self, query: StreamingQuery) -> None:
        """Wait for the end and record the progress.

        Raises:
            StreamingQueryException: the query failed.
            TimeoutError: it did not end in time; it is stopped.
        """
        try:
            if not query.awaitTermination(QUERY_TIMEOUT_S):
                query.stop()
                raise TimeoutError(f"{self.operator.name} under {self.provider} did not end")
        finally:
            for call in self.at_end:
                call()
        self.record.add_progress(query)
        rows = [row for batch in self.record.rows.values() for row in batch]
        assert not rows or not all(map(_NULLS.fullmatch, rows)), "the query has only nulls"

    def advance(self) -> None:
        """Process all present input files."""
        self.finish(self.start())

    def state(self, view: StateView, **options: object) -> Rows:
        """Read the state through Spark's `statestore` source."""
        return as_text(self._read(view, options))

    def changes(self, view: StateView, last: int, first: int = 0) -> Rows:
        """Apply the change feed of some batches; return what each leaves at each changed key.

        Spark's changelog has every write of a batch, in order. Cairn's has one write per key, and
        none if the batch both added and removed the key. A value is a list of one.
        """
        options = {"readChangeFeed": True, "changeStartBatchId": first, "changeEndBatchId": last}
        frame = self._read(view, options)
        by_batch: dict[int, list[tuple[str, str, str]]] = {}
        (value_column,) = VALUE_COLUMNS & set(frame.columns)
        names = [name for name in KEY_COLUMNS if name in frame.columns]
        for row in frame.collect():
            key = repr([row[name] for name in names])
            change = (key, row["change_type"], repr(row[value_column]))
            by_batch.setdefault(row["batch_id"], []).append(change)
        lists: dict[str, list[str]] = {}
        if first:
            for row in self._read(view, {"batchId": first - 1}).collect():
                key = repr([row[name] for name in names])
                lists.setdefault(key, []).append(repr(row[value_column]))
        changed = []
        for batch, changes in sorted(by_batch.items()):
            before = {key: lists.get(key, []) for key, _, _ in changes}
            for key, kind, value in changes:
                if kind == "delete":
                    lists[key] = []
                else:
                    lists[key] = [*(lists.get(key, []) if kind == "append" else []), value]
            changed += [f"{batch} {key} {lists[key]}" for key in before if before[key] + lists[key]]
        return sorted(changed)

    def _read(self, view: StateView, options: Mapping[str, Any]) -> DataFrame:
        reader = self.session().read.format("statestore").options(**dict(view.options))
        frame = reader.options(**options).load(self.checkpoint)
        volatile = set(view.volatile_fields)
        for column in frame.schema.fields:
            kind = column.dataType
            dropped = volatile.intersection(kind.names) if isinstance(kind, StructType) else ()
            if dropped:
                frame = frame.withColumn(column.name, f.col(column.name).dropFields(*dropped))
        return frame.drop(*volatile)

    def snapshot_versions(self, view: StateView, partition: int = 0) -> list[int]:
        """List the versions with a snapshot in a view's store; `file://` only."""
        options = dict(view.options)
        folder = Path(self.checkpoint, "state", options.get("operatorId", "0"), str(partition))
        folder /= options.get("storeName", "")
        ours = [path.name.partition("_")[0] for path in folder.glob("snapshot/*.json")]
        names = (*folder.glob("*.zip"), *folder.glob("*.snapshot"))
        sparks = [path.stem.partition("_")[0] for path in names]
        return sorted(map(int, ours + sparks))


@dataclass
class PlannedRun(Run):
    """A run that also records the physical plan of its last batch, and how many tasks failed."""

    plan: str = ""
    failed_tasks: int = 0

    def finish(self, query: StreamingQuery) -> None:
        """Wait for the end and record progress, plan and failed tasks."""
        super().finish(query)
        tracker = self.session().sparkContext.statusTracker()
        for job in map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(query.runId))):
            stages = map(tracker.getStageInfo, job.stageIds if job else ())
            self.failed_tasks += sum(stage.numFailedTasks for stage in stages if stage)
        self.plan = str(query._jsq.explainInternal(False))  # noqa: FBT003, SLF001 - as `explain()`


def forget_batches(checkpoint: Path, log: str, first: int) -> None:
    """Delete the entries of a log of Spark's from batch ``first`` on; `file://` only."""
    for entry in (checkpoint / log).iterdir():
        name = entry.name.removeprefix(".").removesuffix(".crc")
        if name.isdigit() and int(name) >= first:
            entry.unlink()


def copy_checkpoint(run: Run, destination: Path) -> Run:
    """Return a run on a copy of the checkpoint; `file://` only."""
    # A provider's maintenance may be renaming its temporary files.
    unfinished = shutil.ignore_patterns("*.tmp", "*.tmp.crc")
    shutil.copytree(run.checkpoint, destination, ignore=unfinished)
    return Run(
        run.operator, run.events, str(destination), run.provider, run.checkpoint_format, run.conf
    )
