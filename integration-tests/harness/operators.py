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
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from harness import processors, steps
from harness.events import SCHEMA, Events
from harness.spark import CONTROL, HDFS, STATE_STORE

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
    """One way to read a query's state: options of the `statestore` source.

    Attributes:
        options: options of the source.
        has_changes: whether the source can read the change feed of it.
        volatile_fields: fields of the rows, or of their structs, that differ between two runs.
    """

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


def _counted(k: int, events: int, total: int, *, timed_out: bool = False) -> pd.DataFrame:
    # Spark takes the columns by name: without names, all of them would be null.
    row = {"k": k, "events": events, "total": total, "timed_out": timed_out}
    return pd.DataFrame([row])


def _count_with_event_time(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    events, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield _counted(key[0], events, total, timed_out=True)
        return
    for frame in frames:
        events, total = events + len(frame), total + int(frame["v"].sum())
    state.update((events, total))
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 600_000)
    yield _counted(key[0], events, total)


def _count_with_processing_time(
    key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    events, total = state.getOption or (0, 0)
    if state.hasTimedOut:
        state.remove()
        yield _counted(key[0], events, total, timed_out=True)
        return
    for frame in frames:
        events, total = events + len(frame), total + int(frame["v"].sum())
    state.update((events, total))
    # In every run even keys time out in the next batch without their rows, odd keys never.
    state.setTimeoutDuration(3_600_000 if key[0] % 2 else 1)
    yield _counted(key[0], events, total)


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


def _state_views(*names: str, volatile: tuple[str, ...] = ()) -> tuple[StateView, ...]:
    return tuple(StateView((("stateVarName", name),), volatile_fields=volatile) for name in names)


TIMERS = (("readRegisteredTimers", "true"),)
# The last view is that of the test of snapshots.
VISIT_VIEWS = (
    *(
        StateView((("stateVarName", name), ("flattenCollectionTypes", "false")), has_changes=False)
        for name in ("values", "names")
    ),
    *_state_views("values", "names", "total"),
)
EVENT_TIME_VIEWS = (StateView(TIMERS, has_changes=False), *VISIT_VIEWS)
CLOCK_VIEWS = (
    StateView(TIMERS, has_changes=False, volatile_fields=("expiration_timestamp_ms",)),
    *_state_views("values", "names", "total", volatile=("ttlExpirationMs",)),
)
# Without this, Spark runs empty batches endlessly, to look for timers and expired state.
BY_CLOCK = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
ENCODING = STATE_STORE + "encodingFormat"


def _by_event_time(name: str, processor: type[processors.Visits], **more: Any) -> Operator:  # noqa: ANN401
    plan = processors.visits(processor, "EventTime")
    return Operator(name, plan, **{"views": EVENT_TIME_VIEWS, **more})


def _by_clock(name: str, processor: type[processors.Visits]) -> Operator:
    plan = processors.visits(processor, "ProcessingTime")
    has_timers = issubclass(processor, processors.VisitsByClock)
    views = CLOCK_VIEWS if has_timers else CLOCK_VIEWS[1:]
    return Operator(name, plan, conf=BY_CLOCK, views=views)


def _two_operators(name: str, plan: Plan, *second: StateView) -> Operator:
    both = (StateView((("operatorId", "1"), ("stateVarName", "events"))), *second)
    return Operator(name, plan, views=both)


OF_FIRST_OPERATOR = StateView((("operatorId", "0"),))
TRANSFORM_OPERATORS: tuple[Operator, ...] = (
    _by_event_time("transform_event_time", processors.Visits),
    _by_event_time("transform_event_time_pandas", processors.VisitsInPandas),
    _by_clock("transform_ttl", processors.VisitsWithTtl),
    _by_clock("transform_ttl_pandas", processors.VisitsWithTtlInPandas),
    _by_clock("transform_clock", processors.VisitsByClock),
    _by_clock("transform_clock_pandas", processors.VisitsByClockInPandas),
    Operator(
        "transform_initial",
        processors.visits(processors.Visits, "EventTime", initial=processors.initial_rows),
        views=EVENT_TIME_VIEWS,
    ),
    Operator(
        "transform_initial_pandas",
        processors.visits(processors.VisitsInPandas, "EventTime", initial=processors.initial_rows),
        views=EVENT_TIME_VIEWS,
    ),
    Operator(
        "transform_scala",
        processors.visits_in_scala("visits"),
        views=EVENT_TIME_VIEWS,
    ),
    Operator(
        "transform_scala_initial",
        processors.visits_in_scala("visitsFrom", has_initial_state=True),
        views=EVENT_TIME_VIEWS,
    ),
    Operator(
        "transform_scala_clock",
        processors.visits_in_scala("visitsByClock"),
        conf=BY_CLOCK,
        views=CLOCK_VIEWS,
    ),
    Operator(
        "transform_scala_ahead",
        processors.visits_in_scala("writesAhead"),
        views=(StateView(TIMERS, has_changes=False), *_state_views("numbers")),
    ),
    _two_operators("transform_then_windows", processors.counts_then_windows, OF_FIRST_OPERATOR),
    _two_operators(
        "transform_then_transform",
        processors.counts_then_counts,
        StateView((("operatorId", "0"), ("stateVarName", "events"))),
    ),
    _two_operators("transform_then_distinct", processors.counts_then_distinct, OF_FIRST_OPERATOR),
)
# Later forms of a program, with those of its views that both forms have.
LATER_TRANSFORM_OPERATORS: tuple[Operator, ...] = (
    _by_event_time(
        "transform_without_names",
        processors.VisitsWithoutNames,
        views=_state_views("values", "total"),
    ),
    _by_event_time("transform_avro", processors.Visits, conf={ENCODING: "avro"}),
    _by_event_time("transform_largest", processors.VisitsWithLargest),
    _by_event_time("transform_avro_largest", processors.VisitsWithLargest, conf={ENCODING: "avro"}),
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
    # The source declares the event time of format 4 as a field of the key, but the key's row lacks
    # it: Spark reads the 8 bytes of the heap behind the row, which change when objects move.
    volatile = ("__event_time",) if version == 4 else ()
    by_side = tuple(
        StateView((("joinSide", side),), has_changes=False, volatile_fields=volatile)
        for side in sides
    )
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
        replace(view, options=(("operatorId", str(number)), *view.options))
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
    *TRANSFORM_OPERATORS,
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


# The same function for single keys, and for chunks of them.
STEPS = tuple(
    Operator(
        f"steps_{form}_{timeout}",
        steps.steps(form, timeout),
        # Without this, Spark runs empty batches endlessly, to check for timeouts.
        conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
        if timeout == GroupStateTimeout.ProcessingTimeTimeout
        else {},
        views=(
            StateView(
                volatile_fields=("timeoutTimestamp",)
                if timeout == GroupStateTimeout.ProcessingTimeTimeout
                else ()
            ),
        ),
    )
    for form in ("pandas", "arrow")
    for timeout in (
        GroupStateTimeout.NoTimeout,
        GroupStateTimeout.EventTimeTimeout,
        GroupStateTimeout.ProcessingTimeTimeout,
    )
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

BY_NAME = {
    operator.name: operator
    for operator in (*OPERATORS, *SINGLE_JOINS, *ENCODED, *LATER_TRANSFORM_OPERATORS, *STEPS)
}
