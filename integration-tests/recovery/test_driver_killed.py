"""The driver JVM is killed; a new one continues from the checkpoint, in another local directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.processes import wait_until_ended
from harness.spark import CAIRN_CONF, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5
KILL_AFTER_BATCH = 1


def test_a_query_continues_after_its_driver_was_killed(tmp_path: Path) -> None:
    """After a crash the query must have a batch job's rows, even if all local files are lost.

    The second driver has another local directory and that of the first is removed, as if each
    partition had moved.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    query = Query("distinct", events, str(tmp_path / "checkpoint"), SUBJECT)
    first = JobProcess(tmp_path / "job", [query], local_dir_conf(tmp_path / "first"), pause_s=1)
    try:
        first.wait_for_batch(KILL_AFTER_BATCH)
        engines = first.engines()
        first.jvm().kill()
        left = wait_until_ended(engines, timeout_s=15)
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
    assert second.all_rows() == query.batch_rows()


def local_dir_conf(folder: Path) -> dict[str, str]:
    """Return the setting of the engine's local directory."""
    folder.mkdir()
    return {CAIRN_CONF + "localDir": str(folder)}
