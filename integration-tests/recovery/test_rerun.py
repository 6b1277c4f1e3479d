"""A batch runs again after a crash between state commit and batch commit, in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.differential import Run, copy_checkpoint
from harness.events import Events
from harness.operators import BY_NAME, StateView
from harness.spark import CONTROL, SUBJECT

FILES = 4
VIEW = StateView()


def forget_batches_from(checkpoint: Path, first: int) -> None:
    """Make a checkpoint as a crash left it: batch ``first`` planned and its state committed."""
    for log, planned in (("commits", False), ("offsets", True)):
        for entry in (checkpoint / log).iterdir():
            name = entry.name.removeprefix(".").removesuffix(".crc")
            if name.isdigit() and int(name) >= first + planned:
                entry.unlink()


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def crashed(request: pytest.FixtureRequest, driver: None, tmp_path: Path) -> tuple[Run, Run]:
    """Give a finished run, and one on a copy of its checkpoint as a crash in the last file left it."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(BY_NAME["windows_update"], events, str(tmp_path / "whole"), SUBJECT, request.param)
    run.advance()
    copy = copy_checkpoint(run, tmp_path / "crashed")
    forget_batches_from(tmp_path / "crashed", FILES - 1)
    return run, copy


def test_a_rerun_batch_gives_the_same_rows(crashed: tuple[Run, Run]) -> None:
    """The store already holds what the crashed attempt wrote: it must not be added twice."""
    whole, again = crashed

    again.advance()

    rerun = again.record.rows
    assert min(rerun) == FILES - 1
    assert rerun == {batch: whole.record.rows[batch] for batch in rerun}
    last = whole.record.last_batch
    assert again.state(VIEW, batchId=last) == whole.state(VIEW, batchId=last)


def test_the_query_goes_on_after_a_rerun(crashed: tuple[Run, Run], tmp_path: Path) -> None:
    """What was written before the crash stands where the next batches now write other rows."""
    whole, again = crashed
    control = Run(whole.operator, whole.events, str(tmp_path / "control"), CONTROL)
    control.advance()
    # Its next batch, without rows before the crash, has some now.
    whole.events.add_files(FILES, 2)
    control.advance()

    again.advance()

    assert rows_from(again, FILES - 1) == rows_from(control, FILES - 1)
    expected = control.state(VIEW, batchId=control.record.last_batch)
    assert again.state(VIEW, batchId=again.record.last_batch) == expected


def rows_from(run: Run, first: int) -> list[list[str]]:
    """Give the rows of the batches that had some, from batch ``first`` on."""
    rows = run.record.rows
    return [rows[batch] for batch in sorted(rows) if batch >= first and rows[batch]]
