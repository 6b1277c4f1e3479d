"""`bulkState` changes nothing that a user sees of transformWithState in PySpark: only its speed.

The same queries run with it on and off: rows, counts and state are equal, errors are raised in the
same calls, and a checkpoint goes on with either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from harness.differential import Record, Run
from harness.events import Events
from harness.operators import BY_NAME, Operator, StateView
from harness.spark import CAIRN, CAIRN_CONF, MINOR

# Spark's Python workers cannot import this module: its classes are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = [
    pytest.mark.usefixtures("driver"),
    pytest.mark.skipif(MINOR != "4.3", reason="bulkState is for Spark 4.3"),
]

ON = {CAIRN_CONF + "bulkState": "true"}
OFF = {CAIRN_CONF + "bulkState": "false"}
FILES = 2
OPERATORS = (
    "transform_event_time",
    "transform_ttl",
    "transform_clock",
    "transform_avro",
    "transform_then_windows",
    # Spark's own way.
    "transform_initial",
    "transform_event_time_pandas",
)
QUICK = ("transform_ttl", "transform_then_windows")


def both(
    operator: Operator, folder: Path, events: Events, checkpoint_format: int = 2
) -> tuple[Run, Run]:
    """Run an operator over all files, with bulkState and without."""
    runs = tuple(
        Run(operator, events, str(folder / name), CAIRN, checkpoint_format, conf)
        for name, conf in (("on", ON), ("off", OFF))
    )
    for run in runs:
        run.advance()
    return runs[0], runs[1]


def assert_equal(on: Run, off: Run) -> None:
    """Check that both have the same rows, counts and state."""
    assert on.record.rows == off.record.rows
    assert on.record.counts == off.record.counts
    for view in off.operator.views:
        batch = {"batchId": off.record.last_batch}
        assert on.state(view, **batch) == off.state(view, **batch), view


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name)
        for name in OPERATORS
    ],
)
def test_rows_and_state_are_those_of_sparks_way(tmp_path: Path, name: str) -> None:
    """Also when the second half of the input is read in the other way."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    on, off = both(BY_NAME[name], tmp_path, events)
    assert_equal(on, off)

    events.add_files(FILES, FILES)
    on.conf, off.conf = off.conf, on.conf
    for run in (on, off):
        run.advance()
    assert_equal(on, off)


class Calls(StatefulProcessor):
    """Gives a row with what each of many calls returned or raised."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.plain = handle.getValueState(
            "plain", "i int, l bigint, s string, d double, b boolean, t tinyint"
        )
        self.nested = handle.getValueState("nested", "a array<bigint>, m map<string,int>, x binary")
        self.large = handle.getValueState("large", "text string")
        self.seen = handle.getListState("seen", "v bigint")
        self.calls: list[str] = []

    def call(self, name: str, made: Callable[[], Any]) -> None:
        try:
            result = repr(made())
        except Exception as error:  # noqa: BLE001 - the test compares what users can catch
            result = f"{type(error).__name__}: {str(error)[:200]}"
        self.calls.append(f"{name}={result}")

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
        yield Row(k=repr(key[0]), calls="; ".join(self.calls))

    def close(self) -> None:
        pass


def _calls_of(column: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        rows = left.where("k is not null and v is not null").withColumn("key", f.expr(column))
        grouped = rows.groupBy("key")
        return grouped.transformWithState(Calls(), "k string, calls string", "append", "None")

    return plan


VIEWS = tuple(StateView((("stateVarName", name),)) for name in ("plain", "nested", "large"))


@pytest.mark.parametrize(
    "column",
    [
        pytest.param("k", id="integers"),
        pytest.param("if(k = 1, double('NaN'), k / 2)", id="doubles"),
        pytest.param("date_add('2020-01-01', k)", id="dates"),
        pytest.param("nullif(concat('k', k), 'k3')", id="texts and null"),
    ],
)
def test_each_call_returns_and_raises_what_it_does_in_sparks_way(
    tmp_path: Path, column: str
) -> None:
    """Values that the JVM refuses or changes, values of some megabytes, keys that come twice."""
    events = Events(tmp_path / "input", keys=30)
    events.add_files(0, FILES)
    on, off = both(Operator("calls", _calls_of(column), views=VIEWS), tmp_path, events)

    assert_equal(on, off)
    calls = " ".join(off.record.rows[off.record.last_batch])
    assert "TypeError: 'NoneType' object is not iterable" in calls
    assert "exists before=True" in calls


class Refused(Calls):
    """Writes a value that the JVM refuses, and goes on to the next call."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],  # noqa: ARG002
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        self.calls = []
        self.call("update", lambda: self.plain.update((1, 2)))
        if "STRUCT_ARRAY_LENGTH_MISMATCH" in self.calls[0]:
            self.plain.exists()
        yield Row(k=repr(key[0]), calls=self.calls[0])


def test_a_refused_value_ends_the_task_as_in_sparks_way(tmp_path: Path) -> None:
    """The call itself raises; Spark's server then ends, so that the next message has no answer."""
    events = Events(tmp_path / "input", keys=30)
    events.add_files(0, 1)

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        grouped = left.where("k is not null").groupBy("k")
        return grouped.transformWithState(Refused(), "k string, calls string", "append", "None")

    for name, conf in (("on", ON), ("off", OFF)):
        run = Run(Operator("refused", plan), events, str(tmp_path / name), CAIRN, 2, conf)
        with pytest.raises(Exception, match=r"Broken pipe|EOFError|Connection reset"):
            run.advance()


class Handles(StatefulProcessor):
    """Tells the class of its handle."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.name = type(handle).__name__

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],  # noqa: ARG002
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield Row(k=key[0], handle=self.name)

    def close(self) -> None:
        pass


def test_it_is_on_by_its_setting(tmp_path: Path) -> None:
    """Else the other tests would compare Spark's way with itself."""
    events = Events(tmp_path / "input")
    events.add_files(0, 1)

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        grouped = left.where("k is not null").groupBy("k")
        return grouped.transformWithState(Handles(), "k int, handle string", "append", "None")

    on, off = both(Operator("handles", plan, views=()), tmp_path, events)

    assert all("handle='BulkHandle'" in row for row in on.record.rows[0])
    assert all("handle='StatefulProcessorHandle'" in row for row in off.record.rows[0])


class Fails(Calls):
    """Fails when its second key comes."""

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        yield from super().handleInputRows(key, rows, timerValues)
        raise ValueError("the user's own error")


def test_an_error_of_the_user_fails_the_query_and_leaves_nothing(tmp_path: Path) -> None:
    """Its message is the user's; the batch runs again from the state before."""
    events = Events(tmp_path / "input", keys=30)
    events.add_files(0, 1)

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        rows = left.where("k is not null and v is not null").withColumn("key", f.col("k"))
        grouped = rows.groupBy("key")
        return grouped.transformWithState(Fails(), "k string, calls string", "append", "None")

    run = Run(Operator("calls", plan), events, str(tmp_path / "on"), CAIRN, 2, ON)
    with pytest.raises(Exception, match="the user's own error"):
        run.advance()

    again = Run(
        Operator("calls", _calls_of("k"), views=VIEWS), events, str(tmp_path / "on"), CAIRN, 2, ON
    )
    again.record = Record()
    again.advance()
    calls = " ".join(again.record.rows[0])
    assert "exists before=False" in calls
    assert "exists before=True" not in calls
