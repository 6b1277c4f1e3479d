"""With Avro encoding the schema of transformWithState's values may change between two runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import ENCODINGS, Operator, StateView
from harness.spark import CONTROL, SUBJECT

# Spark's Python workers cannot import this module: its functions are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

pytestmark = pytest.mark.usefixtures("driver")

VIEWS = tuple(StateView((("stateVarName", name),)) for name in ("seen", "each"))


class Seen(StatefulProcessor):
    """Counts rows and keeps their values; ``fields`` is the schema of both states."""

    fields = "events bigint"

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", self.fields)
        self.each = handle.getMapState("each", "v bigint", self.fields)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        values = sorted(row.v for row in rows)
        before = tuple(self.seen.get() or (0,))
        after = self.after(before, values)
        self.seen.update(after)
        for value in values:
            if value % 3 == 0:
                self.each.updateValue((value,), self.after((0,), [value]))
        yield Row(k=key[0], events=after[0], stored=repr(before))

    def after(self, before: tuple[int, ...], values: list[int]) -> tuple[int, ...]:
        return (before[0] + len(values),)

    def close(self) -> None:
        pass


class SeenWithTotal(Seen):
    """The next release of the job adds a field; states that were written before have null."""

    fields = "events bigint, total bigint"

    def after(self, before: tuple[int, ...], values: list[int]) -> tuple[int, ...]:
        total = before[1] if len(before) > 1 and before[1] is not None else 0
        return (before[0] + len(values), total + sum(values))


def operator(processor: type[Seen]) -> Operator:
    """Return the job with one of the processors."""

    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        # A batch has few of the keys: some states keep the former schema.
        some = left.where("k is not null and v is not null and (v + k) % 4 = 0")
        return some.groupBy("k").transformWithState(
            processor(), "k int, events bigint, stored string", "update", "none"
        )

    return Operator("evolving", plan, "update", ENCODINGS["avro"], VIEWS)


@pytest.mark.parametrize("checkpoint_format", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_field_is_added_to_the_values(tmp_path: Path, checkpoint_format: int) -> None:
    """Without evolution each new field of a state costs the state of all keys."""
    events = Events(tmp_path / "input")
    subject, run = (
        Run(operator(Seen), events, str(tmp_path / name), provider, checkpoint_format)
        for name, provider in (("subject", SUBJECT), ("control", CONTROL))
    )
    control = Control(f"evolution/format{checkpoint_format}", run)
    for first, processor in ((0, Seen), (2, SeenWithTotal), (4, SeenWithTotal)):
        events.add_files(first, 2)
        subject = replace(subject, operator=operator(processor))
        control.change(subject.operator)
        subject.advance()
        control.advance()

    assert subject.record.rows == control.record.rows
    stored = [row for rows in subject.record.rows.values() for row in rows]
    assert any("None)" in row for row in stored), "no value of the former schema was read"
    last = control.record.last_batch
    for view in VIEWS:
        for batch in (1, last):
            assert subject.state(view, batchId=batch) == control.state(view, batchId=batch)
