"""Savepoints of a query that purges, is killed and starts again: each one stays whole.

The input has no late rows, and ends with a file that lets the watermark pass all others. So a query
writes what a batch job over the same files writes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from pyspark.sql import functions as f

import cairn
from cairn.format.savepoint import Savepoint
from harness.differential import Run, forget_batches
from harness.events import LAST_KEY, SCHEMA, Events
from harness.job import JobProcess, Query
from harness.moves import take_away
from harness.operators import BY_NAME
from harness.processes import wait_until
from harness.processors import some_rows
from harness.spark import CAIRN_CONF, STATE_STORE, SUBJECT, new_session

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.slow]

FILES = 40
LIVES = 3
BATCHES_PER_LIFE = 2
TIMEOUT_S = 240
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "minDeltasForSnapshot": "2",
    CAIRN_CONF + "orphanGraceMs": "1000",
    # An entry per batch, of which a test can forget some.
    "spark.sql.streaming.fileSource.log.compactInterval": "1000",
}
OF_DRIVER = {STATE_STORE + "maintenanceInterval": "100ms"}


@pytest.mark.parametrize(
    ("name", "form"),
    [("windows_append", 1), ("join_left_outer_v4", 2), ("transform_event_time", 2)],
)
def test_each_savepoint_of_a_killed_query_runs_on_as_a_clone(
    tmp_path: Path, name: str, form: int
) -> None:
    """Its driver is killed within a batch; each later batch of the clone has the same rows.

    With the rows of the batches before, they are the rows of the batch job.
    """
    events = Events(tmp_path / "input", has_late_rows=False)
    events.add_files(0, FILES)
    events.add_last_file(FILES)
    query = Query(name, events, str(tmp_path / "ck"), SUBJECT, form, CONF)
    kept: list[Savepoint] = []

    def keep(when: str) -> None:
        kept.append(cairn.create_savepoint(query.checkpoint, name=f"{when}-{len(kept)}"))

    for life in range(LIVES):
        job = JobProcess(tmp_path / "job", [query], OF_DRIVER, pause_s=2)
        try:
            for _ in range(BATCHES_PER_LIFE):
                wait_for_commit(job, query)
                keep("running")
            # Not while the source lists files: it would give more of them to the next batch.
            job.wait_for_pause(len(job.rows()) + 1)
            job.jvm().kill()
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
    take_away(query.checkpoint)
    expected = rows_of_batch_job(query)

    for one in {one.batch: one for one in kept}.values():
        # The source of files would give all that it has listed to the first batch that is not
        # planned: here it takes the same parts again, as other sources do.
        folder = Path(places[one.name])
        planned = max(int(path.name) for path in folder.glob("offsets/[0-9]*"))
        for source in folder.glob("sources/*"):
            forget_batches(source, ".", planned + 1)
        copy = Run(BY_NAME[name], events, places[one.name], SUBJECT, form, CONF)
        copy.advance()
        assert copy.record.rows == {b: rows[b] for b in rows if b > one.batch}, one.name
        before = {b: rows[b] for b in rows if b <= one.batch}
        assert comparable(name, before | copy.record.rows) == expected, one.name


def comparable(name: str, rows: Mapping[int, list[str]]) -> list[str]:
    """Return all rows of a sink that a batch job has, too.

    A batch job of `transformWithState` knows each key once, but a query again after its end: its
    rows are the sums of what the keys had when they ended.
    """
    every = [row for of_batch in rows.values() for row in of_batch]
    if not name.startswith("transform"):
        return without_last(every)
    events, total = Counter[str](), Counter[str]()
    for row in every:
        found = re.match(r"Row\((k=\S+), events=(\d+), total=(-?\d+), .*is_ended=True", row)
        if found is not None:
            events[found[1]] += int(found[2])
            total[found[1]] += int(found[3])
    return without_last(f"Row({k}, events={events[k]}, total={total[k]})" for k in events)


def rows_of_batch_job(query: Query) -> list[str]:
    """Return the rows that `comparable` leaves of a sink with all rows."""
    if not query.operator.startswith("transform"):
        return without_last(query.batch_rows())
    rows = some_rows(new_session({}).read.schema(SCHEMA).json(query.events.side("left")))
    sums = rows.groupBy("k").agg(f.count("*").alias("events"), f.sum("v").alias("total"))
    return without_last(map(repr, sums.collect()))


def without_last(rows: Iterable[str]) -> list[str]:
    """Leave out the key of the last file, whose windows wait for the watermark at the end."""
    return sorted(row for row in rows if f"k={LAST_KEY}," not in row)


def wait_for_commit(job: JobProcess, query: Query) -> None:
    """Wait until the query has committed one batch more."""
    commits = Path(query.checkpoint, "commits")
    before = len(job.rows())
    wait_until(
        lambda: (commits / str(before)).exists() or job.has_ended, TIMEOUT_S, "a batch", job.tail
    )
    assert not job.has_ended, job.tail()
