"""Processors of `transformWithState` that tell what each of their calls returned or raised.

Their rows are equal under any two ways to run them; a user sees no more of the state than these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

# Spark's Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

OUTPUT = "k string, calls string"
# Lists in the place of tuples, which Spark's client takes, too.
AS_LIST: Any = [1, "list"]
KEY_AS_LIST: Any = ["fixed", 2]


class Recorder(StatefulProcessor):
    """Gives a row with what each of many calls returned or raised."""

    calls: list[str]

    def call(self, name: str, made: Callable[[], Any]) -> None:
        """Make a call and note its result."""
        try:
            result = repr(made())
        except Exception as error:  # noqa: BLE001 - the test compares what users can catch
            result = f"{type(error).__name__}: {str(error)[:200]}"
        self.calls.append(f"{name}={result}")

    def row(self, key: tuple[Any, ...]) -> Row:
        """Return the row with all calls since the last one."""
        calls, self.calls = self.calls, []
        return Row(k=repr(key[0]), calls="; ".join(calls))

    def close(self) -> None:
        """Do nothing."""


class ValueCalls(Recorder):
    """Calls of value states."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.plain = handle.getValueState(
            "plain", "i int, l bigint, s string, d double, b boolean, t tinyint"
        )
        self.nested = handle.getValueState("nested", "a array<bigint>, m map<string,int>, x binary")
        self.large = handle.getValueState("large", "text string")
        self.seen = handle.getListState("seen", "v bigint")
        self.calls: list[str] = []

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        self.calls = []
        next(rows)  # not all rows: the next key's come all the same
        plain, nested, large = self.plain, self.nested, self.large
        good = (1, 7, "text ü", 0.1, True, 3)
        self.call("exists before", plain.exists)
        self.call("get before", plain.get)
        self.call("large before", lambda: [len(text) for text in large.get() or ()])
        values: tuple[Any, ...] = (
            good,
            (None, None, None, None, None, None),
            (2**31, 1, "s", 0.1, True, 1),
            (1, 2**63, "s", 0.1, True, 1),
            (1, 1, "s", 1, True, 1),
            (1, 1, 7, 0.1, True, 1),
            (1, 1, "\ud800", 0.1, True, 1),
            (1, 1, "s", float("nan"), True, 128),
            (1, True, "s", float("inf"), 1, 1),
            list(good),
            Row(i=1, l=2, s="s", d=0.1, b=True, t=1),
            None,
            good,
        )
        for value in values:
            self.call(f"update {value!r}", partial(plain.update, value))
            self.call("get", plain.get)
        self.call("clear", plain.clear)
        self.call("exists after clear", plain.exists)
        self.call("clear again", plain.clear)
        self.call("update after clear", lambda: plain.update(good))
        self.call("nested before", nested.get)
        kept = ([1, None, 7], {"a": 1}, b"\x00\xff")
        self.call("nested update", lambda: nested.update(kept))
        kept[0].append(5)
        self.call("nested after", nested.get)
        for number in range(3):
            self.call("append", partial(self.seen.appendValue, (number,)))
        for seen in self.seen.get():  # values are read and written while the list is
            self.call("seen", partial(tuple, seen))
            self.call("get in the loop", plain.get)
            self.call("update in the loop", partial(plain.update, good))
            self.call("large", large.exists)
        large.update(("x" * 300_000,))
        if isinstance(key[0], int) and key[0] % 5 == 0:
            plain.clear()
        yield self.row(key)


class ListCalls(Recorder):
    """Calls of list states: a short list, a long one, and one whose values have no plain form."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.short = handle.getListState("short", "v bigint, s string")
        self.long = handle.getListState("long", "v int")
        self.nested = handle.getListState("nested", "a array<bigint>")
        self.calls = []

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        numbers = [row.v for row in rows]
        short, nested = self.short, self.nested
        self.call("exists", short.exists)
        self.call("before", lambda: list(short.get()))
        self.call("append", lambda: short.appendValue((numbers[0], "first")))
        self.call("after append", lambda: list(short.get()))
        self.call("append list", lambda: short.appendList([(number, None) for number in numbers]))
        self.call("append a list", lambda: short.appendValue([1, "list"]))  # type: ignore[arg-type]
        self.call("after Spark's append", lambda: list(short.get()))
        first = short.get()
        self.call("a row", lambda: next(first))
        self.call("put while it is read", lambda: short.put([(7, "put"), (8, "put")]))
        self.call("a row after put", lambda: next(first))
        self.call("after put", lambda: list(short.get()))
        self.call("two iterators", lambda: list(zip(short.get(), short.get(), strict=True)))
        if key[0] % 3 == 0:
            self.call("clear", short.clear)
            self.call("after clear", lambda: (short.exists(), list(short.get())))
        if key[0] % 4 == 0:
            self.call("append after clear", lambda: short.appendValue((2**63 - 1, "last")))
        self.call("nested", lambda: list(nested.get()))
        self.call("nested append", lambda: nested.appendValue(([1, None],)))
        self.call("nested after", lambda: list(nested.get()))
        self.call("long", lambda: sum(1 for _ in self.long.get()))
        if key[0] % 2 == 0:
            self.long.appendList([(number,) for number in range(700)])
            self.call("long after", lambda: sum(number for (number,) in self.long.get()))
            self.call("long exists", self.long.exists)
        yield self.row(key)


class MapCalls(Recorder):
    """Calls of map states."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.plain = handle.getMapState("plain", "name string, n int", "v bigint, s string")
        self.nested = handle.getMapState("nested", "d date", "a array<bigint>")
        self.numbers = handle.getMapState("numbers", "n bigint", "n bigint")
        self.calls = []

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        plain, numbers = self.plain, self.numbers
        present = list(rows)
        names = [(row.name, 1) for row in present[:3]] + [("fixed", 2), (None, None)]
        self.call("exists", plain.exists)
        for name in names:
            self.call(f"{name} before", partial(plain.getValue, name))
            self.call(f"has {name}", partial(plain.containsKey, name))
        for place, name in enumerate(names):
            self.call("update", partial(plain.updateValue, name, (place, f"value {place}")))
            self.call("after update", partial(plain.getValue, name))
        self.call("a field", lambda: plain.getValue(("fixed", 2)).s)  # type: ignore[union-attr]
        self.call("all", lambda: sorted(map(repr, plain.iterator())))
        self.call("update null", lambda: plain.updateValue(("fixed", 2), (None, None)))
        self.call(
            "after null", lambda: (plain.getValue(("fixed", 2)), plain.containsKey(("fixed", 2)))
        )
        self.call("update a list", lambda: plain.updateValue(("fixed", 2), AS_LIST))
        self.call("after Spark's update", lambda: plain.getValue(("fixed", 2)))
        self.call("update with a list", lambda: plain.updateValue(KEY_AS_LIST, (3, "key")))
        self.call("after Spark's update of a key", lambda: plain.getValue(("fixed", 2)))
        self.call("remove", lambda: plain.removeKey(names[0]))
        self.call("after remove", lambda: (plain.getValue(names[0]), plain.containsKey(names[0])))
        self.call("remove again", lambda: plain.removeKey(names[0]))
        self.call("keys", lambda: sorted(map(repr, plain.keys())))
        if key[0] % 3 == 0:
            self.call("clear", plain.clear)
            self.call("after clear", lambda: (plain.exists(), plain.getValue(("fixed", 2))))
            self.call("update after clear", lambda: plain.updateValue(("fixed", 2), (1, "new")))
        self.call("values", lambda: sorted(map(repr, plain.values())))
        for number in range(100):  # more map keys than are fetched ahead
            seen = numbers.getValue((number % 70,))
            numbers.updateValue((number % 70,), ((seen[0] if seen else 0) + number,))
        self.call("sum", lambda: sum(number for (number,) in numbers.values()))
        day = pd.Timestamp("2026-01-01").date()
        self.call("nested", lambda: self.nested.getValue((day,)))
        self.call("nested update", lambda: self.nested.updateValue((day,), ([1, None],)))
        self.call("nested after", lambda: self.nested.getValue((day,)))
        yield self.row(key)


class TimerCalls(Recorder):
    """Calls of timers, beside those of a value. Times are told from the time of the batch."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n bigint")
        self.calls = []

    def now_ms(self, timers: TimerValues) -> int:
        """Return the time that timers are compared with."""
        return timers.getCurrentWatermarkInMs()

    def register(self, now_ms: int, later_ms: int) -> None:
        """Register a timer and note it."""
        self.call(f"register {later_ms}", lambda: self.handle.registerTimer(now_ms + later_ms))

    def delete(self, now_ms: int, later_ms: int) -> None:
        """Delete a timer and note it."""
        self.call(f"delete {later_ms}", lambda: self.handle.deleteTimer(now_ms + later_ms))

    def list(self, now_ms: int, name: str) -> None:
        """Note the timers, those of earlier batches only by their number."""
        times = [time_ms - now_ms for time_ms in self.handle.listTimers()]
        self.calls.append(f"{name}={len(times)} {sorted({*times} & {*LATER_MS})}")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[Any],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        now_ms = self.now_ms(timerValues)
        (count,) = self.count.get() or (0,)
        self.count.update((count + sum(1 for _ in rows),))
        self.list(now_ms, "before")
        for later_ms in LATER_MS:
            self.register(now_ms, later_ms)
        self.register(now_ms, LATER_MS[0])  # again
        self.list(now_ms, "registered")
        self.delete(now_ms, LATER_MS[1])
        self.delete(now_ms, 12_345)  # there is none
        self.list(now_ms, "deleted")
        self.register(now_ms, 77_777)
        self.delete(now_ms, 77_777)
        for time_ms in self.handle.listTimers():  # timers change while they are read
            if key[0] % 4 == 0:
                self.handle.deleteTimer(time_ms)
        self.list(now_ms, "at the end")
        self.call("no time", lambda: self.handle.registerTimer("soon"))  # type: ignore[arg-type]
        self.call("large", lambda: self.handle.registerTimer(2**63))
        yield self.row(key)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: tuple[Any],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        now_ms = self.now_ms(timerValues)
        self.calls.append(f"expired {key!r}")
        self.list(now_ms, "expired")
        (count,) = self.count.get() or (0,)
        self.call("count", lambda: count)
        self.count.update((count + 1000,))
        self.register(now_ms, 3_600_000)
        if count % 2:
            self.delete(expiredTimerInfo.getExpiryTimeInMs(), 0)
        self.list(now_ms, "after")
        yield self.row(key)


# After the time of the batch: the first ones expire in the same batch or the next one.
LATER_MS = (-5, 1, 2, 600_000, 7_200_000, 9_000_000_000)


class ClockTimerCalls(TimerCalls):
    """The same with the time of the batch."""

    def now_ms(self, timers: TimerValues) -> int:
        return timers.getCurrentProcessingTimeInMs()
