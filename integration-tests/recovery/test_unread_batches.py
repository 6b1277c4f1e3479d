"""A `foreachBatch` that does not read its whole batch: one clear error, and the batch runs again.

Some partitions then do not commit their state. Spark's own error is bare in checkpoint format 2; in
format 1 it comes after the entry of the commit log, whose state is then missing for good.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from harness.control import Control
from harness.differential import Rows, Run, as_text
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

Read = Callable[[DataFrame], Rows]


@dataclass
class ReadingRun(Run):
    """A run whose function of `foreachBatch` can be replaced."""

    reader: Read = as_text

    def read(self, frame: DataFrame) -> Rows:
        return self.reader(frame)


def nothing(_: DataFrame) -> Rows:
    return []


def one_row(frame: DataFrame) -> Rows:
    return as_text(frame.limit(1))


def no_column(frame: DataFrame) -> Rows:
    """Spark's optimizer finds that no row is needed."""
    return as_text(frame.filter("false"))


def one_row_then_all(frame: DataFrame) -> Rows:
    one_row(frame)
    return as_text(frame)


def all_then_one_row(frame: DataFrame) -> Rows:
    rows = as_text(frame)
    one_row(frame)
    return rows


@pytest.mark.parametrize(
    ("name", "read", "checkpoint_format"),
    [
        ("windows_update", nothing, 2),
        ("windows_update", one_row, 1),
        ("limit", nothing, 1),
        ("transform_scala", one_row, 1),
        *(
            pytest.param(*case, checkpoint_format, marks=pytest.mark.slow)
            for case in (
                ("windows_update", no_column),
                ("join_inner_v2", nothing),
                ("transform_scala_initial", nothing),
                ("transform_initial_pandas", one_row),
                ("groups_event_time", nothing),
            )
            for checkpoint_format in (1, 2)
        ),
    ],
)
def test_a_batch_that_is_not_read_whole_fails_and_runs_again(
    name: str, read: Read, checkpoint_format: int, tmp_path: Path
) -> None:
    """An entry of the commit log without its state would end the query at every start."""
    operator = BY_NAME[name]
    events = Events(tmp_path / "input")
    run, other = (
        ReadingRun(operator, events, str(tmp_path / name), provider, checkpoint_format)
        for name, provider in (("checkpoint", SUBJECT), ("control", CONTROL))
    )
    control = Control(f"unread-batches/{name}-format{checkpoint_format}", other)
    for first in (0, 1):
        events.add_files(first, 1)
        control.advance()
        if first == 0:
            run.advance()
    run.reader = read

    with pytest.raises(StreamingQueryException) as failure:
        run.advance()
    run.reader = as_text
    run.advance()

    text = str(failure.value)
    assert "[STATE_STORE_COMMIT_VALIDATION_FAILED]" in text
    assert "Missing commits: operator 0 (" in text
    assert "ensure your foreachBatch function processes the entire DataFrame" in text
    assert run.record.rows == control.record.rows


@pytest.mark.parametrize(
    ("read", "checkpoint_format"), [(one_row_then_all, 1), (all_then_one_row, 2)]
)
def test_a_batch_may_be_read_more_than_once(
    read: Read, checkpoint_format: int, tmp_path: Path
) -> None:
    """The check must count partitions, and no reading of them."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)
    runs = [
        ReadingRun(
            BY_NAME["windows_update"], events, str(tmp_path / name), provider, checkpoint_format
        )
        for name, provider in (("checkpoint", SUBJECT), ("control", CONTROL))
    ]
    for one in runs:
        one.reader = read
    subject, control = (
        runs[0],
        Control(f"unread-batches/read-twice-format{checkpoint_format}", runs[1]),
    )

    subject.advance()
    control.advance()

    assert subject.record.rows == control.record.rows
