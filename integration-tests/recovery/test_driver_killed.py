"""The driver JVM is killed; a new one continues from the checkpoint, in another local directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.differential import Run
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.processes import wait_until_ended
from harness.spark import CAIRN_CONF, CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
KILL_AFTER_BATCH = 1


def test_a_query_continues_after_its_driver_was_killed(tmp_path: Path) -> None:
    """After a crash the query must have a batch job's rows, even if all local files are lost."""
    query = query_of("distinct", tmp_path)

    job = continued_after_a_kill(query, tmp_path)

    assert job.all_rows() == query.batch_rows()


@pytest.mark.parametrize(
    ("operator", "checkpoint_format"),
    [
        ("transform_event_time", 1),
        pytest.param("transform_clock", 2, marks=pytest.mark.slow),
        pytest.param("transform_scala_clock", 2, marks=pytest.mark.slow),
    ],
)
def test_transform_with_state_continues_after_its_driver_was_killed(
    tmp_path: Path, operator: str, checkpoint_format: int
) -> None:
    """Lists, maps, timers and times to live are those of a query that was never killed."""
    query = query_of(operator, tmp_path, checkpoint_format)
    control = Run(BY_NAME[operator], query.events, str(tmp_path / "control"), CONTROL)

    job = continued_after_a_kill(query, tmp_path)
    control.advance()

    assert job.rows() == control.record.rows


def query_of(operator: str, folder: Path, checkpoint_format: int = 1) -> Query:
    """Return a query over new input."""
    events = Events(folder / "input")
    events.add_files(0, FILES)
    return Query(operator, events, str(folder / "checkpoint"), SUBJECT, checkpoint_format)


def continued_after_a_kill(query: Query, folder: Path) -> JobProcess:
    """Run a query, kill its driver in the middle, and continue to the end in another one.

    The second driver has another local directory and that of the first is removed, as if each
    partition had moved.
    """
    first = JobProcess(folder / "job", [query], local_dir_conf(folder / "first"), pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH)
        engines = first.engines()
        first.jvm().kill()
        left = wait_until_ended(engines, timeout_s=15)
        first.wait()
        reached = set(first.rows())
    finally:
        first.end()
    shutil.rmtree(folder / "first", ignore_errors=True)
    second = JobProcess(folder / "job", [query], local_dir_conf(folder / "second"))
    try:
        code = second.wait()
    finally:
        second.end()
    assert not left, f"engines outlived their JVM: {left}"
    assert code == 0, second.tail()
    assert not second.error(), second.error()
    assert len(reached) < FILES, "the job had ended before it was killed"
    return second


def local_dir_conf(folder: Path) -> dict[str, str]:
    """Return the setting of the engine's local directory."""
    folder.mkdir()
    return {CAIRN_CONF + "localDir": str(folder)}
