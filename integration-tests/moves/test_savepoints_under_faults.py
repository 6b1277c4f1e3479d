"""Savepoints of a query that purges, is killed and starts again: each one stays whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cairn
from cairn.format.savepoint import Savepoint
from harness.differential import Run
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME
from harness.processes import wait_until
from harness.spark import CAIRN_CONF, STATE_STORE, SUBJECT

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.slow]

FILES = 16
LIVES = 4
BATCHES_PER_LIFE = 3
TIMEOUT_S = 240
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "minDeltasForSnapshot": "2",
    CAIRN_CONF + "orphanGraceMs": "1000",
}
OF_DRIVER = {STATE_STORE + "maintenanceInterval": "100ms"}


@pytest.mark.parametrize(
    ("name", "form"),
    [("windows_append", 1), ("join_left_outer_v4", 2), ("transform_event_time", 2)],
)
def test_each_savepoint_of_a_killed_query_runs_on_as_a_clone(
    tmp_path: Path, name: str, form: int
) -> None:
    """Its driver is killed within a batch after each savepoint, or while it is created."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    query = Query(name, events, str(tmp_path / "ck"), SUBJECT, form, CONF)
    kept: list[Savepoint] = []

    def keep(when: str) -> None:
        kept.append(cairn.create_savepoint(query.checkpoint, name=f"{when}-{len(kept)}"))

    for life in range(LIVES):
        job = JobProcess(tmp_path / "job", [query], OF_DRIVER, pause_s=0.5)
        try:
            for _ in range(BATCHES_PER_LIFE):
                wait_for_more(job)
                keep("running")
            jvm = job.jvm()
            jvm.kill()
            keep("killed")
            job.wait()
        finally:
            job.end()
        assert job.rows(), life
    job = JobProcess(tmp_path / "job", [query], OF_DRIVER)
    try:
        job.wait()
    finally:
        job.end()
    assert not job.error(), job.error()
    rows = job.rows()
    assert len({one.batch for one in kept}) > LIVES
    with cairn.open_checkpoint(query.checkpoint) as checkpoint:
        assert min(checkpoint.batches) > kept[0].batch, "retention did not pass a savepoint"
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []

    places = {one.name: str(tmp_path / one.name) for one in kept}
    for saved, place in places.items():
        with cairn.clone(query.checkpoint, to=place, savepoint=saved) as plan:
            plan.apply()
    shutil.rmtree(query.checkpoint)

    for one in kept:
        copy = Run(BY_NAME[name], events, places[one.name], SUBJECT, form, CONF)
        copy.advance()
        assert copy.record.rows == {b: rows[b] for b in rows if b > one.batch}, one.name


def wait_for_more(job: JobProcess) -> None:
    """Wait until the sink has one batch more."""
    before = len(job.rows())
    wait_until(lambda: len(job.rows()) > before or job.has_ended, TIMEOUT_S, "a batch", job.tail)
    assert not job.has_ended, job.tail()
