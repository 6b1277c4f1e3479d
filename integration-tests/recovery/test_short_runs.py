"""A scheduled job: a driver per run, each with `availableNow`, and no maintenance in any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.events import Events
from harness.job import JobProcess, Query
from harness.processes import wait_until_ended
from harness.spark import CAIRN_CONF, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

RUNS = 4
PARTITIONS = 2
# An upload goes on when the end of the worker waits for it, and not before.
LATE_ENGINE = """#!{python}
import runpy
import threading
from cairn.storage.local import LocalStore
from cairn.store.shared.resources import RunningSnapshots

upload, wait, is_waited_for = LocalStore.upload, RunningSnapshots.wait, threading.Event()

def late(self, *arguments, **named):
    is_waited_for.wait()
    return upload(self, *arguments, **named)

def noted(self, wait_s):
    if wait_s > 0:
        is_waited_for.set()
    return wait(self, wait_s)

LocalStore.upload, RunningSnapshots.wait = late, noted
runpy.run_module("cairn.engine", run_name="__main__")
"""


@pytest.mark.slow
def test_a_scheduled_job_has_snapshots_of_its_state(tmp_path: Path) -> None:
    """Otherwise each run replays all versions, until `maxLineage` of them stop the query."""
    program = tmp_path / "engine"
    program.write_text(LATE_ENGINE.format(python=sys.executable))
    program.chmod(0o700)
    conf = {CAIRN_CONF + "python": str(program), STATE_STORE + "maintenanceInterval": "1h"}
    events = Events(tmp_path / "input", rows_per_file=200)
    query = Query("totals_complete", events, str(tmp_path / "checkpoint"), SUBJECT, 2)

    for run in range(RUNS):
        events.add_files(run, 1)
        local = tmp_path / f"local{run}"
        local.mkdir()
        folders = {CAIRN_CONF + "localDir": str(local)}
        job = JobProcess(tmp_path / "job", [query], conf | folders, pause_s=0.5)
        try:
            job.wait_for_pause(run)
            jvm = job.jvm()
            assert job.wait() == 0, job.tail()
            # Python has ended; the JVM, its child, lets the snapshots end.
            assert wait_until_ended([jvm], 60) == []
        finally:
            job.end()
        assert not job.error(), job.error()

    manifests = list((tmp_path / "checkpoint" / "state").rglob("snapshot/*.json"))
    assert len(manifests) >= PARTITIONS, job.tail()
    assert "begins them again" not in job.tail()
