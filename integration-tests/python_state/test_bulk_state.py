"""`bulkState` changes nothing that a user sees of transformWithState in PySpark: only its speed.

The same queries run with it on and off: rows, counts and state are equal, errors are raised in the
same calls, and a checkpoint goes on with either.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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
from harness.operators import BY_CLOCK, BY_NAME, TIMERS, Operator, StateView
from harness.recorders import (
    OUTPUT,
    ClockTimerCalls,
    ListCalls,
    MapCalls,
    Recorder,
    TimerCalls,
    ValueCalls,
)
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
    "transform_then_transform",
    "transform_initial",
    "transform_event_time_pandas",
    "transform_ttl_pandas",
    "transform_clock_pandas",
    "transform_initial_pandas",
)
QUICK = ("transform_ttl", "transform_initial_pandas")


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


def _metrics_of_operator(run: Run) -> dict[str, int]:
    """Return the metrics of state variables and timers; those of the store count reads ahead."""
    names = re.compile("num(Value|List|Map|Deleted|Registered|Expired)")
    return {name: count for name, count in run.record.metrics.items() if names.match(name)}


def assert_equal(on: Run, off: Run) -> None:
    """Check that both have the same rows, counts, state and changes of the state."""
    assert on.record.rows == off.record.rows
    assert on.record.counts == off.record.counts
    assert _metrics_of_operator(on) == _metrics_of_operator(off)
    for view in off.operator.views:
        last = off.record.last_batch
        assert on.state(view, batchId=last) == off.state(view, batchId=last), view
        if view.has_changes:
            assert on.changes(view, last) == off.changes(view, last), view


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


def _calls_of(column: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        rows = left.where("k is not null and v is not null").withColumn("key", f.expr(column))
        grouped = rows.groupBy("key")
        return grouped.transformWithState(ValueCalls(), OUTPUT, "append", "None")

    return plan


def _views(*names: str) -> tuple[StateView, ...]:
    return tuple(StateView((("stateVarName", name),)) for name in names)


VIEWS = _views("plain", "nested", "large")


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


def _calls(
    processor: type[Recorder], *views: StateView, mode: str = "None", **conf: str
) -> Operator:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        rows = left.where("k is not null and v is not null").withWatermark("ts", "10 minutes")
        # A batch has few of the keys, so that the timers of the others expire.
        some = rows.where("(v + k) % 2 = 0") if mode != "None" else rows
        return some.groupBy("k").transformWithState(processor(), OUTPUT, "append", mode)

    return Operator(processor.__name__, plan, conf=conf, views=views)


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(_calls(ListCalls, *_views("short", "long", "nested")), id="lists"),
        pytest.param(_calls(MapCalls, *_views("plain", "nested", "numbers")), id="maps"),
        pytest.param(
            _calls(
                TimerCalls,
                StateView(TIMERS, has_changes=False),
                *_views("count"),
                mode="EventTime",
            ),
            id="timers of the event time",
        ),
        pytest.param(
            _calls(ClockTimerCalls, *_views("count"), mode="ProcessingTime", **BY_CLOCK),
            id="timers of the clock",
        ),
    ],
)
def test_each_call_of_lists_maps_and_timers_does_what_it_does_in_sparks_way(
    tmp_path: Path, operator: Operator
) -> None:
    """Also values that the JVM refuses, long lists, and iterators over what changes."""
    events = Events(tmp_path / "input", keys=30)
    events.add_files(0, FILES + 1)
    on, off = both(operator, tmp_path, events)

    assert_equal(on, off)
    assert any(_metrics_of_operator(off).values())
    rows = [row for batch in off.record.rows.values() for row in batch]
    assert len(rows) > FILES * 20


class Refused(ValueCalls):
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
        yield self.row(key)


def test_a_refused_value_ends_the_task_as_in_sparks_way(tmp_path: Path) -> None:
    """The call itself raises; Spark's server then ends, so that the next message has no answer."""
    events = Events(tmp_path / "input", keys=30)
    events.add_files(0, 1)

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        grouped = left.where("k is not null").groupBy("k")
        return grouped.transformWithState(Refused(), OUTPUT, "append", "None")

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


class Fails(ValueCalls):
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
        return grouped.transformWithState(Fails(), OUTPUT, "append", "None")

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
