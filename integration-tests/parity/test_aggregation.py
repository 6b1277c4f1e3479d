"""Aggregations that merge old and new rows as they come have the rows of Spark's hash aggregations.

Spark's provider is the control: its plans stay as Spark makes them, and its results are recorded
(`harness.control`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from harness.control import Control
from harness.differential import PlannedRun, Rows, as_text
from harness.events import Events
from harness.killed_workers import kill_at_work
from harness.operators import Operator, StateView
from harness.spark import CAIRN, CAIRN_CONF, CONTROL

# Spark's Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = pytest.mark.usefixtures("driver")

FILES = 3
NODE = "CairnAggregate"
OFF = {CAIRN_CONF + "optimizePlans": "false"}
# The state is far larger: keys are prefetched, and writes are spilled.
SMALL_CACHE = {CAIRN_CONF + "cacheMemory": "1m"}
FIRST_OPERATOR = StateView((("operatorId", "0"),))
SECOND_OPERATOR = StateView((("operatorId", "1"),))


def _all_functions() -> list[Column]:
    """Return aggregates whose buffers have fixed widths: Spark uses hash aggregation for them."""
    exact = (f.col("v") / 7).cast("decimal(30,10)")
    return [
        f.count("*").alias("rows"),
        f.count("v").alias("values"),
        f.sum("v").alias("total"),
        f.avg("v").alias("mean"),
        f.min("v").alias("least"),
        f.max("ts").alias("latest"),
        f.first("v", ignorenulls=True).isNotNull().alias("has_value"),
        f.stddev("v").alias("deviation"),
        f.sum(exact).alias("exact_total"),
        f.avg(exact).alias("exact_mean"),
        f.approx_count_distinct("v").alias("distinct"),  # imperative, unlike the others
        f.bool_or(f.col("v") % 2 == 0).alias("has_even"),
    ]


def _by_name(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.groupBy("k", "name").agg(*_all_functions())


def _without_functions(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.groupBy("k", "name").agg(f.lit(1).alias("one")).where("k % 5 <> 1")


def _totals(left: DataFrame, _: DataFrame) -> DataFrame:
    # Spark generates code for these two alone.
    return left.groupBy("k", "name").agg(f.sum("v").alias("total"), f.count("*").alias("rows"))


def _wide(left: DataFrame, _: DataFrame) -> DataFrame:
    wide = f.repeat(f.col("name"), 2000).alias("wide")
    return _totals(left, left).select("k", "name", "total", wide)


def _global(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.agg(*_all_functions())


def _strings(left: DataFrame, _: DataFrame) -> DataFrame:
    # Spark sorts for these: their buffers have no fixed width.
    least, last = f.min("name").alias("least"), f.max("name").alias("last")
    return left.groupBy("k", "v").agg(least, last, *_all_functions())


def _lists(left: DataFrame, _: DataFrame) -> DataFrame:
    # Spark keeps objects for these.
    names = f.array_sort(f.collect_list("name")).alias("names")
    return left.groupBy("k").agg(names, f.percentile("v", 0.5).alias("middle"))


def _by_window(left: DataFrame, _: DataFrame) -> DataFrame:
    timed = left.withWatermark("ts", "10 minutes")
    return timed.groupBy(f.window("ts", "5 minutes"), "k").agg(*_all_functions())


def _by_window_twice(left: DataFrame, _: DataFrame) -> DataFrame:
    timed = left.withWatermark("ts", "10 minutes")
    first = timed.groupBy(f.window("ts", "5 minutes"), "k").agg(f.sum("v").alias("v"))
    return first.groupBy(f.window(f.window_time("window"), "10 minutes")).agg(
        f.sum("v").alias("total"), f.count("*").alias("keys")
    )


BY_NAME = Operator("by_name", _by_name, "update")
# Of each: how many aggregations are replaced, if the sink reads all rows, and if it may not.
AGGREGATIONS = (
    (BY_NAME, 2, 1),
    (Operator("by_name_complete", _by_name, "complete"), 2, 1),
    (Operator("by_window_append", _by_window), 2, 1),
    (Operator("by_window_update", _by_window, "update"), 2, 1),
    (
        Operator("by_window_twice", _by_window_twice, views=(FIRST_OPERATOR, SECOND_OPERATOR)),
        4,
        3,
    ),
    (Operator("without_functions", _without_functions, "update"), 2, 1),
    (Operator("global", _global, "update"), 0, 0),
)
STRINGS = Operator("strings", _strings, "update")
# Spark merges with more than 128 keys in no defined order, which the lists in the state show.
LISTS = Operator("lists", _lists, "update", views=())


class TableRun(PlannedRun):
    """A run whose sink is a table in memory, which reads all rows; they count as of one batch."""

    def start(self) -> StreamingQuery:
        """Start the query; it ends when it has read all present input files."""
        self._stream = self.operator.stream(self.session(), self.events)
        writer = self._stream.writeStream.outputMode(self.operator.output_mode).format("memory")
        writer = writer.queryName(self.operator.name).trigger(availableNow=True)
        return writer.option("checkpointLocation", self.checkpoint).start()

    def finish(self, query: StreamingQuery) -> None:
        """Wait for the end and record what the table has."""
        super().finish(query)
        self.record.rows[0] = as_text(self._stream.sparkSession.table(self.operator.name))


class FirstRowWriter(DataSourceStreamWriter):
    """Returns before it has read all rows."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Read one row."""
        next(iterator, None)
        return WriterCommitMessage()


class FirstRowSink(DataSource):
    """A sink in Python whose writer reads one row per task."""

    @classmethod
    def name(cls) -> str:
        """Return the format of the sink."""
        return "first_row"

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,  # noqa: ARG002 - Spark's parameter
        overwrite: bool,  # noqa: ARG002, FBT001 - as above
    ) -> DataSourceStreamWriter:
        """Return the writer of all tasks."""
        return FirstRowWriter()


class PythonSinkRun(PlannedRun):
    """A run with such a sink."""

    def start(self) -> StreamingQuery:
        """Start the query; it ends when it has read all present input files."""
        session = self.session()
        # Spark looks it up in the active session of the thread.
        for one in (session, SparkSession.active()):
            one.dataSource.register(FirstRowSink)
        stream = self.operator.stream(session, self.events)
        writer = stream.writeStream.outputMode(self.operator.output_mode).format("first_row")
        writer = writer.option("checkpointLocation", self.checkpoint)
        return writer.trigger(availableNow=True).start()


class LimitedRun(PlannedRun):
    """A run whose sink reads one row of each batch."""

    def read(self, frame: DataFrame) -> Rows:
        """Return the row."""
        return list(map(repr, frame.take(1)))


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Return input whose keys come back in later files."""
    events = Events(tmp_path_factory.mktemp("input"), rows_per_file=1500, keys=600)
    events.add_files(0, FILES)
    return events


@pytest.fixture(scope="module")
def large_events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Return input whose keys do not fit into a small cache."""
    events = Events(tmp_path_factory.mktemp("input"), rows_per_file=4000, keys=6000)
    events.add_files(0, FILES)
    return events


def _compare(ours: PlannedRun, theirs: PlannedRun | Control) -> None:
    assert ours.record.rows == theirs.record.rows
    assert any(ours.record.rows.values())
    assert ours.record.counts == theirs.record.counts
    for view in ours.operator.views:
        assert ours.state(view) == theirs.state(view)


@pytest.mark.parametrize(
    ("operator", "in_table", "in_function"),
    [pytest.param(*one, id=one[0].name) for one in AGGREGATIONS],
)
def test_rows_counts_and_state_are_those_of_sparks_provider(
    operator: Operator, in_table: int, in_function: int, events: Events, tmp_path: Path
) -> None:
    """Each mode and function, where the sink reads all rows and where it may read some."""
    runs: list[tuple[type[PlannedRun], int]] = [(TableRun, in_table), (PlannedRun, in_function)]
    for kind, replaced in runs:
        ours = kind(operator, events, str(tmp_path / f"ours-{kind.__name__}"), CAIRN, 2)
        theirs = Control(
            f"aggregation/{operator.name}-{kind.__name__}",
            kind(operator, events, str(tmp_path / f"theirs-{kind.__name__}"), CONTROL),
        )

        ours.advance()
        theirs.advance()

        assert ours.plan.count(NODE) == replaced
        _compare(ours, theirs)


@pytest.mark.parametrize(
    ("operator", "sorts"), [(STRINGS, 3), (LISTS, 0)], ids=["strings", "lists"]
)
def test_other_aggregates_are_merged_without_a_sort(
    operator: Operator, sorts: int, events: Events, tmp_path: Path
) -> None:
    """Spark sorts the rows, or keeps objects per key and sorts if there are more than 128 keys."""
    ours = PlannedRun(operator, events, str(tmp_path / "ours"), CAIRN, 2)
    theirs = PlannedRun(operator, events, str(tmp_path / "theirs"), CONTROL)

    ours.advance()
    theirs.advance()

    merged = re.search(r"SortAggregate\(.*merge_.*\n *\+- StateStoreRestore", ours.plan)
    assert merged
    assert ours.plan.count("Sort [") == sorts
    assert NODE not in theirs.plan
    assert theirs.plan.count("Sort [") == (sorts + 1 if sorts else 0)
    _compare(ours, theirs)


def test_old_rows_are_merged_from_a_small_cache(large_events: Events, tmp_path: Path) -> None:
    """Rows are prefetched, written and spilled in turns, between stages of generated code."""
    totals = Operator("totals", _totals, "update")
    conf = {**SMALL_CACHE, "spark.sql.codegen.wholeStage": "true"}
    ours = TableRun(totals, large_events, str(tmp_path / "ours"), CAIRN, 2, conf=conf)
    run = TableRun(totals, large_events, str(tmp_path / "theirs"), CONTROL)
    theirs = Control("aggregation/small-cache", run)

    ours.advance()
    theirs.advance()

    assert "*(1)" in ours.plan
    assert ours.record.metrics["cairnPrefetchHits"] > 0
    assert ours.record.metrics["cairnSpills"] > 0
    _compare(ours, theirs)


def test_workers_killed_while_rows_are_merged_change_no_row(
    large_events: Events, tmp_path: Path
) -> None:
    """Reads and writes alternate: those before the kill are sent again."""
    run = PlannedRun(BY_NAME, large_events, str(tmp_path / "theirs"), CONTROL)
    theirs = Control("aggregation/workers-killed", run)
    ours = PlannedRun(BY_NAME, large_events, str(tmp_path / "ours"), CAIRN, 2, conf=SMALL_CACHE)
    killed = kill_at_work(ours, 1)

    ours.advance()
    theirs.advance()

    assert killed, "there was no engine to kill"
    assert NODE in ours.plan
    _compare(ours, theirs)


def test_a_function_that_reads_few_rows_saves_the_whole_batch(
    events: Events, tmp_path: Path
) -> None:
    """Spark saves the state of all rows of a batch, whatever the sink reads of its result."""
    one_task = {"spark.sql.shuffle.partitions": "1"}
    totals = {}
    for provider in (CAIRN, CONTROL):
        run = LimitedRun(BY_NAME, events, str(tmp_path / provider), provider, 2, conf=one_task)
        run.advance()
        totals[provider] = run.record.counts
        assert (NODE in run.plan) == (provider == CAIRN)

    assert totals[CAIRN] == totals[CONTROL]


def test_a_sink_in_python_that_reads_few_rows_saves_the_whole_batch(
    large_events: Events, tmp_path: Path
) -> None:
    """More rows are left than fit between the JVM and the function when it returns."""
    wide = Operator("wide", _wide, "complete")
    few = {"spark.sql.shuffle.partitions": "1", "spark.sql.execution.arrow.maxRecordsPerBatch": "8"}
    ours = PythonSinkRun(wide, large_events, str(tmp_path / "ours"), CAIRN, 2, conf=few)
    narrow = Operator("totals", _totals, "complete")
    theirs = Control(
        "aggregation/narrow",
        PlannedRun(narrow, large_events, str(tmp_path / "theirs"), CONTROL, conf=few),
    )

    ours.advance()
    theirs.advance()

    assert ours.plan.count(NODE) == 1
    assert ours.record.counts == theirs.record.counts


def test_it_can_be_turned_off(events: Events, tmp_path: Path) -> None:
    """A user who suspects the operator compares."""
    on = TableRun(BY_NAME, events, str(tmp_path / "on"), CAIRN, 2)
    off = TableRun(BY_NAME, events, str(tmp_path / "off"), CAIRN, 2, conf=OFF)

    on.advance()
    off.advance()

    assert NODE in on.plan
    assert NODE not in off.plan
    _compare(on, off)
