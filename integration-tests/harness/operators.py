"""Every stateful operator that all providers may serve, as a query over `harness.events`.

Each is a plan over two streams with its output mode, its settings, and the ways in which the
`statestore` source shows its state. Scala's flatMapGroupsWithState has no Python form, but the same
operator as applyInPandasWithState.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from harness.events import SCHEMA, Events
from harness.spark import CONTROL, HDFS

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Plan = Callable[[DataFrame, DataFrame], DataFrame]

ROW_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum."
_CHECKSUMS = {ROW_CHECKSUM + "enabled": "true", ROW_CHECKSUM + "readVerificationRatio": "1"}
_AVRO = {"spark.sql.streaming.stateStore.encodingFormat": "avro"}
ENCODINGS = {"checksums": _CHECKSUMS, "avro": _AVRO, "avro_checksums": {**_AVRO, **_CHECKSUMS}}

JOIN_STATE_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
JOINS = ("inner", "left_outer", "right_outer", "full_outer", "left_semi")
JOIN_STORES = ("right-keyToNumValues", "right-keyWithIndexToValue")


@dataclass(frozen=True)
class StateView:
    """One way to read a query's state: options of the `statestore` source."""

    options: tuple[tuple[str, str], ...] = ()
    has_changes: bool = True
    volatile_fields: tuple[str, ...] = ()

    @property
    def is_store_of_join(self) -> bool:
        """Whether it shows one store of a join, and not the rows of a side of the join."""
        return any(name == "storeName" for name, _ in self.options)

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.options) or "state"


@dataclass(frozen=True)
class Operator:
    """A stateful query.

    Attributes:
        name: names folders and tests.
        plan: the plan over the left and the right stream; most use the left one only.
        output_mode: output mode of the sink.
        conf: settings of the session, in addition to the provider's.
        views: the ways to read its state.
        control: the provider whose results are expected.
    """

    name: str
    plan: Plan
    output_mode: str = "append"
    conf: dict[str, str] = field(default_factory=dict)
    views: tuple[StateView, ...] = (StateView(),)
    control: str = CONTROL

    def stream(self, spark: SparkSession, events: Events) -> DataFrame:
        """Return the streaming form: one input file of each side per micro-batch."""
        return self.plan(*(_stream(spark, events, side) for side in ("left", "right")))

    def batch(self, spark: SparkSession, events: Events) -> DataFrame:
        """Return the same plan over the same files, without a state store."""
        return self.plan(*(_batch(spark, events, side) for side in ("left", "right")))


def _stream(spark: SparkSession, events: Events, side: str) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.json(events.side(side))


def _batch(spark: SparkSession, events: Events, side: str) -> DataFrame:
    return spark.read.schema(SCHEMA).json(events.side(side))


def _windows(left: DataFrame, _: DataFrame) -> DataFrame:
    return (
        left.withWatermark("ts", "10 minutes")
        .groupBy(f.window("ts", "5 minutes"), "k")
        .agg(f.sum("v").alias("total"), f.count("*").alias("events"), f.max("name").alias("last"))
    )


def _totals(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.groupBy("k").agg(f.sum("v").alias("total"), f.max("name").alias("last"))


def _distinct(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.select("k", "name").dropDuplicates(["k", "name"])


def _distinct_by_time(left: DataFrame, _: DataFrame) -> DataFrame:
    by_minute = left.withColumn("ts", f.date_trunc("minute", "ts")).select("k", "ts")
    return by_minute.withWatermark("ts", "10 minutes").dropDuplicates(["k", "ts"])


def _distinct_within(left: DataFrame, _: DataFrame) -> DataFrame:
    return (
        left.withWatermark("ts", "10 minutes")
        .select("k", "ts")
        .dropDuplicatesWithinWatermark(["k"])
    )


def _sessions(left: DataFrame, _: DataFrame) -> DataFrame:
    return (
        left.withWatermark("ts", "10 minutes")
        .groupBy(f.session_window("ts", "2 minutes"), "k")
        .agg(f.count("*").alias("events"), f.sum("v").alias("total"))
    )


def _join(how: str) -> Plan:
    def plan(left: DataFrame, right: DataFrame) -> DataFrame:
        mine = left.withWatermark("ts", "10 minutes").alias("l")
        other = right.withWatermark("ts", "10 minutes").alias("r")
        near = (f.col("l.k") == f.col("r.k")) & f.col("r.ts").between(
            f.col("l.ts") - f.expr("interval 3 minutes"),
            f.col("l.ts") + f.expr("interval 3 minutes"),
        )
        kept = ["l.k", "l.ts", "l.v"]
        if how != "left_semi":
            kept += ["r.ts", "r.v"]
        return mine.join(other, near, how).select(*kept)

    return plan


def _all_joins(left: DataFrame, right: DataFrame) -> DataFrame:
    """Every kind of join in one query: five operators share its batches."""
    kinds = []
    for how in JOINS:
        joined = _join(how)(left, right)
        names = ("k", "ts", "v", "other_ts", "other_v")[: len(joined.columns)]
        kinds.append(joined.toDF(*names).withColumn("how", f.lit(how)))
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), kinds)


def _count_with_event_time(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    events, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame([(key[0], events, total, True)])
        return
    for frame in frames:
        events, total = events + len(frame), total + int(frame["v"].sum())
    state.update((events, total))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 600_000)
    yield pd.DataFrame([(key[0], events, total, False)])


def _count_with_processing_time(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    events, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield pd.DataFrame([(key[0], events, total, True)])
        return
    for frame in frames:
        events, total = events + len(frame), total + int(frame["v"].sum())
    state.update((events, total))
    # In every run even keys time out in the next batch without their rows, odd keys never.
    state.setTimeoutDuration(3_600_000 if key[0] % 2 else 1)
    yield pd.DataFrame([(key[0], events, total, False)])


def _grouped(function: Callable[..., Any], timeout: str, *, watermark: bool) -> Plan:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        present = left.where("k is not null and v is not null")
        # A batch has few of the keys, so that the others time out.
        some = present.where("(v + k) % 4 = 0").select("k", "v", "ts")
        timed = some.withWatermark("ts", "10 minutes") if watermark else some
        return timed.groupBy("k").applyInPandasWithState(
            function,
            "k int, events bigint, total bigint, timed_out boolean",
            "events bigint, total bigint",
            "append",
            timeout,
        )

    return plan


class _Visits(StatefulProcessor):
    """Keeps values, a list and a map per key; a timer ends the key, or the time to live does."""

    ttl_ms: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "events bigint, total bigint", self.ttl_ms)
        self.values = handle.getListState("values", "v bigint", self.ttl_ms)
        self.names = handle.getMapState("names", "name string", "events bigint", self.ttl_ms)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        present = sorted(rows, key=lambda row: (row.v, row.name or ""))
        events, total = self.total.get() or (0, 0)
        self.total.update((events + len(present), total + sum(row.v for row in present)))
        kept = sorted(value for (value,) in self.values.get())[-3:] if key[0] % 3 else []
        self.values.put([(value,) for value in kept]) if kept else self.values.clear()
        self.values.appendList([(row.v,) for row in present])
        self.values.appendValue((-1,))
        for row in present:
            name = (row.name or "",)
            if self.names.containsKey(name) and row.v % 5 == 0:
                self.names.removeKey(name)
            else:
                (count,) = self.names.getValue(name) or (0,)
                self.names.updateValue(name, (count + 1,))
        self.later(timerValues)
        yield self.row(key, is_ended=False)

    def later(self, timers: TimerValues) -> None:
        for expiry_ms in self.handle.listTimers():
            self.handle.deleteTimer(expiry_ms)
        self.handle.registerTimer(timers.getCurrentWatermarkInMs() + 600_000)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: ARG002, N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield self.row(key, is_ended=True)
        for state in (self.total, self.values, self.names):
            state.clear()

    def row(self, key: tuple[int], *, is_ended: bool) -> Row:
        events, total = self.total.get() or (0, 0)
        return Row(
            k=key[0],
            events=events,
            total=total,
            last=max(value for (value,) in self.values.get()),
            names=sum(count for (count,) in self.names.values()),
            is_ended=is_ended,
        )

    def close(self) -> None:
        pass


class _VisitsWithTtl(_Visits):
    """Nothing expires in an hour, but every write goes to the index of times as well."""

    ttl_ms = 3_600_000

    def later(self, timers: TimerValues) -> None:
        pass


def _visits(processor: type[_Visits], time_mode: str) -> Plan:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        # A batch has few of the keys, so that timers of the others expire.
        some = left.where("k is not null and v is not null and (v + k) % 4 = 0")
        timed = some.withWatermark("ts", "10 minutes")
        rows = timed.groupBy("k").transformWithState(
            processor(),
            "k int, events bigint, total bigint, last bigint, names bigint, is_ended boolean",
            "append",
            time_mode,
        )
        # The operator is not the root of the plan.
        return rows.withColumn("mean", f.col("total") / f.col("events"))

    return plan


def _visit_views(*volatile_fields: str) -> tuple[StateView, ...]:
    return tuple(
        StateView((("stateVarName", name),), name == "total", volatile_fields)
        for name in ("values", "names", "total")
    )


def _first_rows(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.select("k", "v").limit(150)


def _windows_once(left: DataFrame, _: DataFrame) -> DataFrame:
    # Both operators have the same keys, so that Spark runs them in one stage.
    counted = (
        left.withWatermark("ts", "10 minutes")
        .groupBy(f.window("ts", "5 minutes"), "k")
        .agg(f.count("*").alias("events"))
    )
    return counted.dropDuplicates(["window", "k"])


def _join_views(version: int, sides: tuple[str, ...] = ("left", "right")) -> tuple[StateView, ...]:
    by_side = tuple(StateView((("joinSide", side),), has_changes=False) for side in sides)
    if version > 2:
        return by_side
    return (*by_side, *(StateView((("storeName", name),)) for name in JOIN_STORES))


def _join_operator(how: str, version: int = 2) -> Operator:
    return Operator(
        f"join_{how}_v{version}",
        _join(how),
        conf={JOIN_STATE_FORMAT: str(version)},
        views=_join_views(version),
    )


def _all_joins_operator(version: int) -> Operator:
    views = tuple(
        StateView((("operatorId", str(number)), *view.options), has_changes=view.has_changes)
        for number in range(len(JOINS))
        # All kinds have the same stores: those of one are enough.
        for view in _join_views(version)
        if number == len(JOINS) - 1 or not view.is_store_of_join
    )
    conf = {JOIN_STATE_FORMAT: str(version)}
    return Operator(f"joins_v{version}", _all_joins, conf=conf, views=views)


OPERATORS: tuple[Operator, ...] = (
    Operator("windows_append", _windows),
    Operator("windows_update", _windows, "update"),
    Operator("totals_complete", _totals, "complete"),
    Operator("distinct", _distinct),
    Operator("distinct_by_time", _distinct_by_time),
    Operator("distinct_within_watermark", _distinct_within),
    Operator("sessions", _sessions),
    _join_operator("left_outer"),
    _all_joins_operator(2),
    _all_joins_operator(3),
    _all_joins_operator(4),
    Operator(
        "groups_event_time",
        _grouped(_count_with_event_time, GroupStateTimeout.EventTimeTimeout, watermark=True),
        conf={"spark.sql.shuffle.partitions": "1"},
    ),
    Operator(
        "groups_processing_time",
        _grouped(
            _count_with_processing_time, GroupStateTimeout.ProcessingTimeTimeout, watermark=False
        ),
        # Without this, Spark runs empty batches endlessly, to check for timeouts.
        conf={
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
        },
        views=(StateView(volatile_fields=("timeoutTimestamp",)),),
    ),
    Operator(
        "transform_event_time",
        _visits(_Visits, "EventTime"),
        views=(
            StateView((("readRegisteredTimers", "true"),), has_changes=False),
            *_visit_views(),
        ),
    ),
    Operator(
        "transform_ttl",
        _visits(_VisitsWithTtl, "ProcessingTime"),
        # Without this, Spark runs empty batches endlessly, to look for expired state.
        conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
        views=_visit_views("ttlExpirationMs"),
    ),
    Operator("limit", _first_rows),
    Operator(
        "windows_then_distinct",
        _windows_once,
        views=(StateView((("operatorId", "0"),)), StateView((("operatorId", "1"),))),
        # Spark's RocksDB provider fails: it upgrades the read store of the other operator.
        control=HDFS,
    ),
)

# Joins alone: the operators above have them as parts of one query.
SINGLE_JOINS = (
    _join_operator("inner"),
    _join_operator("left_outer", 3),
    _join_operator("left_outer", 4),
)


def _stored(encoding: str, *names: str) -> tuple[Operator, ...]:
    """Return operators of the table above whose rows are stored in another encoding."""
    return tuple(
        replace(one, name=f"{one.name}_{encoding}", conf={**one.conf, **ENCODINGS[encoding]})
        for one in (*OPERATORS, *SINGLE_JOINS)
        if one.name in names
    )


ENCODED = (
    *_stored(
        "checksums", "distinct_within_watermark", "sessions", "join_left_outer_v4", "transform_ttl"
    ),
    # Spark supports Avro with transformWithState alone.
    *_stored("avro", "transform_event_time", "transform_ttl"),
    *_stored("avro_checksums", "transform_event_time"),
)

BY_NAME = {operator.name: operator for operator in (*OPERATORS, *SINGLE_JOINS, *ENCODED)}
