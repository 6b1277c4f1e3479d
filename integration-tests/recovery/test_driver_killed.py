"""The driver JVM dies by SIGKILL; a new one goes on from the checkpoint, elsewhere on the disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.processes import wait_gone
from harness.spark import CAIRN_CONF, SUBJECT, new_session

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
KILL_AFTER_BATCH = 1


def test_a_killed_driver_goes_on_where_it_was(tmp_path: Path) -> None:
    """After a crash the query must give a batch job's rows, though nothing local is left.

    The second life has another local directory and the first one's is gone: each partition moved.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    query = Query("distinct", events, str(tmp_path / "checkpoint"), SUBJECT)
    first = JobProcess(tmp_path / "job", [query], local_dir_conf(tmp_path / "first"), pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH)
        engines = first.engines()
        first.jvm().kill()
        left = wait_gone(engines, timeout_s=15)
        first.wait()
        reached = set(first.rows())
    finally:
        first.end()
    shutil.rmtree(tmp_path / "first", ignore_errors=True)
    second = JobProcess(tmp_path / "job", [query], local_dir_conf(tmp_path / "second"))
    try:
        code = second.wait()
    finally:
        second.end()

    assert not left, f"engines outlived their JVM: {left}"
    assert code == 0, second.tail()
    assert not second.error(), second.error()
    assert len(reached) < FILES, "the job had ended before it was killed"
    given = sorted(row for rows in second.rows().values() for row in rows)
    expected = BY_NAME["distinct"].batch(new_session({}), events)
    assert given == sorted(map(repr, expected.collect()))


def local_dir_conf(folder: Path) -> dict[str, str]:
    """Give the setting that puts the engine's working state into a folder."""
    folder.mkdir()
    return {CAIRN_CONF + "localDir": str(folder)}
