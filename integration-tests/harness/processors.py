"""The stateful processors of the tests, and plans of `transformWithState` over `harness.events`.

Each has the same logic for rows and for pandas frames. All results depend on the input alone: a
batch has few of the keys, and a time to live or a timer of the clock ends either in the next batch
or not before an hour.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from harness.scala_programs import plan_in_scala

# Spark's Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

Plan = Callable[[DataFrame, DataFrame], DataFrame]

HOUR_MS = 3_600_000
# Three batches: keys have state at each restart, and some end before the last batch.
IDLE_MS = 1_500_000
NEXT_BATCH_MS = 1
VISITS = "k int, events bigint, total bigint, last bigint, names bigint, is_ended boolean"
TOTAL = "events bigint, total bigint"


class Visits(StatefulProcessor):
    """Keeps a value, a list and a map per key; a timer of the event time ends the key."""

    ttl_ms: ClassVar[Mapping[str, int]] = {}
    total_type = TOTAL

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        live = self.ttl_ms.get
        self.total = handle.getValueState("total", self.total_type, live("total"))
        self.values = handle.getListState("values", "v bigint", live("values"))
        self.declare_names(handle)

    def declare_names(self, handle: StatefulProcessorHandle) -> None:
        """Declare the map."""
        live = self.ttl_ms.get
        self.names = handle.getMapState("names", "name string", "events bigint", live("names"))

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Any],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Any]:
        present = sorted(rows, key=lambda row: (row.v, row.name or ""))
        self.count([row.v for row in present])
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
        self.later(key, timerValues)
        yield self.row(key, is_ended=False)

    def count(self, values: list[int]) -> None:
        """Add the values of a batch to the total."""
        events, total = self.total.get() or (0, 0)
        self.total.update((events + len(values), total + sum(values)))

    def later(self, key: tuple[int], timers: TimerValues) -> None:  # noqa: ARG002 - subclasses
        """Set the end of the key anew."""
        self.end_at(timers.getCurrentWatermarkInMs() + IDLE_MS)

    def end_at(self, expiry_ms: int) -> None:
        """Replace all timers of the key by one."""
        for earlier_ms in self.handle.listTimers():
            self.handle.deleteTimer(earlier_ms)
        self.handle.registerTimer(expiry_ms)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: ARG002, N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: ARG002, N803
    ) -> Iterator[Any]:
        yield self.row(key, is_ended=True)
        for state in (self.total, self.values, self.names):
            state.clear()

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        initialState: Any,  # noqa: ANN401, N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        self.total.update((initialState.events, initialState.total))
        self.values.put([(int(value),) for value in initialState.seen])
        self.names.updateValue(("initial",), (initialState.events,))
        self.later(key, timerValues)

    def row(self, key: tuple[int], *, is_ended: bool) -> Row:
        """Return the key's state as a row of the sink."""
        events, total = (self.total.get() or (0, 0))[:2]
        return Row(
            k=key[0],
            events=events,
            total=total,
            last=max((value for (value,) in self.values.get()), default=None),
            names=sum(count for (count,) in self.names.values()),
            is_ended=is_ended,
        )

    def close(self) -> None:
        pass


class VisitsWithTtl(Visits):
    """Nothing expires in an hour, but every write goes to the index of times as well."""

    ttl_ms: ClassVar[Mapping[str, int]] = dict.fromkeys(("total", "values", "names"), HOUR_MS)

    def later(self, key: tuple[int], timers: TimerValues) -> None:
        pass


class VisitsByClock(Visits):
    """Value and list expire before the next batch, and so do the timers of even keys."""

    ttl_ms: ClassVar[Mapping[str, int]] = {
        "total": NEXT_BATCH_MS,
        "values": NEXT_BATCH_MS,
        "names": HOUR_MS,
    }

    def later(self, key: tuple[int], timers: TimerValues) -> None:
        after_ms = HOUR_MS if key[0] % 2 else NEXT_BATCH_MS
        self.end_at(timers.getCurrentProcessingTimeInMs() + after_ms)


class VisitsWithoutNames(Visits):
    """A later form of the program, which deletes the map."""

    def declare_names(self, handle: StatefulProcessorHandle) -> None:
        handle.deleteIfExists("names")
        self.names = _NoNames()  # type: ignore[assignment]


class _NoNames:
    """A map state that keeps nothing."""

    def containsKey(self, _: object) -> bool:  # noqa: N802 - Spark's name
        return False

    getValue = updateValue = removeKey = lambda *_: None  # noqa: N815 - Spark's names

    def values(self) -> Iterable[tuple[int]]:
        return ()

    def clear(self) -> None:
        pass


class VisitsWithLargest(Visits):
    """A later form of the program, whose value has one more field."""

    total_type = TOTAL + ", largest bigint"

    def count(self, values: list[int]) -> None:
        events, total, largest = self.total.get() or (0, 0, None)
        new = max([*values, *([] if largest is None else [largest])])
        self.total.update((events + len(values), total + sum(values), new))


class InPandas(Visits):
    """Takes and gives frames; comes before a form of `Visits` in a class's list of bases."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        present = (row for frame in rows for row in frame.itertuples(index=False))
        for row in super().handleInputRows(key, present, timerValues):
            yield pd.DataFrame([row.asDict()])

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])

    def handleInitialState(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        initialState: pd.DataFrame,  # noqa: N803
        timerValues: TimerValues,  # noqa: N803
    ) -> None:
        for row in initialState.itertuples(index=False):
            super().handleInitialState(key, row, timerValues)


class VisitsInPandas(InPandas, Visits):
    """`Visits` over frames."""


class VisitsWithTtlInPandas(InPandas, VisitsWithTtl):
    """`VisitsWithTtl` over frames."""


class VisitsByClockInPandas(InPandas, VisitsByClock):
    """`VisitsByClock` over frames."""


class Counts(StatefulProcessor):
    """Counts the rows of a key; its rows have a time, so that another operator can follow."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.events = handle.getValueState("events", "events bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        times = sorted(row.ts for row in rows)
        (events,) = self.events.get() or (0,)
        self.events.update((events + len(times),))
        yield Row(k=key[0], events=events + len(times), ts=times[-1])

    def close(self) -> None:
        pass


def some_rows(left: DataFrame) -> DataFrame:
    """Return the rows of the input: a batch has few of the keys, so that others expire."""
    return left.where("k is not null and v is not null and (v + k) % 4 = 0")


def visits(
    processor: type[Visits],
    time_mode: str,
    *,
    initial: DataFrame | Callable[[DataFrame], DataFrame] | None = None,
) -> Plan:
    """Return the plan of one processor, of rows or of frames, with an initial state or without.

    Args:
        processor: its class.
        time_mode: Spark's name of the time of timers and times to live.
        initial: `initial_rows`, or a frame with the same columns.
    """

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        groups = some_rows(left).withWatermark("ts", "10 minutes").groupBy("k")
        is_pandas = issubclass(processor, InPandas)
        transform = groups.transformWithStateInPandas if is_pandas else groups.transformWithState
        frame = initial(left) if callable(initial) else initial
        start = frame.groupBy("k") if frame is not None else None
        rows = transform(processor(), VISITS, "append", time_mode, start)
        # The operator is not the root of the plan.
        return rows.withColumn("mean", f.try_divide("total", "events"))

    return plan


def initial_rows(left: DataFrame) -> DataFrame:
    """Return a state for some keys that the input has, and for some that it has not."""
    rows = [(k, 10 + k, 100 * k, [k, -k, 7]) for k in (-1, 0, 3, 8, 40, 41, 42)]
    types = "k int, events bigint, total bigint, seen array<bigint>"
    return left.sparkSession.createDataFrame(rows, types)


def visits_in_scala(name: str, *, has_initial_state: bool = False) -> Plan:
    """Return the plan of that name of the Scala programs."""

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        initial = (initial_rows(left),) if has_initial_state else ()
        return plan_in_scala(name, some_rows(left), *initial)

    return plan


def counts(left: DataFrame) -> DataFrame:
    """Return the running counts of all keys, with the time of the last row."""
    return (
        some_rows(left)
        .withWatermark("ts", "10 minutes")
        .groupBy("k")
        .transformWithState(
            Counts(),
            "k int, events bigint, ts timestamp",
            "append",
            "EventTime",
            eventTimeColumnName="ts",
        )
    )


def counts_then_windows(left: DataFrame, _: DataFrame) -> DataFrame:
    """Aggregate the rows of the operator by their time."""
    windows = counts(left).groupBy(f.window("ts", "5 minutes"))
    return windows.agg(f.sum("events").alias("events"), f.max("k").alias("k"))


def counts_then_counts(left: DataFrame, _: DataFrame) -> DataFrame:
    """Count the rows of the operator by another one."""
    again = counts(left).select((f.col("k") % 3).alias("k"), "ts").groupBy("k")
    return again.transformWithState(
        Counts(), "k int, events bigint, ts timestamp", "append", "EventTime"
    )


def counts_then_distinct(left: DataFrame, _: DataFrame) -> DataFrame:
    """Let one row of the operator per key through, in the time of the watermark."""
    return counts(left).dropDuplicatesWithinWatermark(["k"]).select("k", "events")
