"""A batch runs again after a crash between state commit and batch commit, in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.differential import Run, copy_checkpoint, forget_batches
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.spark import CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 4
VIEW = StateView()


def crashed_run(whole: Run, copy: Path) -> Run:
    """Run to the end; return a run on a copy of its checkpoint, as after a crash."""
    whole.advance()
    again = copy_checkpoint(whole, copy)
    # The last batch is planned, and its state is committed.
    forget_batches(copy, "commits", FILES - 1)
    forget_batches(copy, "offsets", FILES)
    return again


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return a run that has not started."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    operator = BY_NAME["windows_update"]
    return Run(operator, events, str(tmp_path / "whole"), SUBJECT, request.param)


def test_a_rerun_batch_has_the_same_rows(whole: Run, tmp_path: Path) -> None:
    """The store already has the writes of the crashed attempt: they must not be added twice."""
    again = crashed_run(whole, tmp_path / "crashed")

    again.advance()

    rerun = again.record.rows
    assert min(rerun) == FILES - 1
    assert rerun == {batch: whole.record.rows[batch] for batch in rerun}
    last = whole.record.last_batch
    assert again.state(VIEW, batchId=last) == whole.state(VIEW, batchId=last)


def test_the_query_continues_after_a_rerun(whole: Run, tmp_path: Path) -> None:
    """The next batches write other rows where objects of the crashed run exist."""
    control = Run(whole.operator, whole.events, str(tmp_path / "control"), CONTROL)
    again = crashed_run(whole, tmp_path / "crashed")
    expected = crashed_run(control, tmp_path / "control-crashed")
    # The next batch had no rows before the crash and has some now.
    whole.events.add_files(FILES, 2)

    for run in (again, expected):
        run.advance()

    assert again.record.rows == expected.record.rows
    last = expected.record.last_batch
    assert again.state(VIEW, batchId=last) == expected.state(VIEW, batchId=last)
