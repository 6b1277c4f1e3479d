"""Clones and restored savepoints run on in Spark, with the rows of a query that never moved."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import cairn
from cairn.location import open_location
from harness.differential import Rows, Run
from harness.events import Events
from harness.moves import take_away
from harness.operators import BY_NAME
from harness.s3 import S3Bucket
from harness.spark import CAIRN_CONF, HDFS, ROCKSDB, STATE_STORE, SUBJECT, s3a_conf
from recovery.test_repair import cairn_on

pytestmark = pytest.mark.usefixtures("driver")

FILES = 12
BEGINS = 5
"""The savepoint is created while this batch runs."""
CONF = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    STATE_STORE + "maintenanceInterval": "100ms",
    STATE_STORE + "minDeltasForSnapshot": "2",
    CAIRN_CONF + "orphanGraceMs": "1000",
}


def run_of(
    name: str, events: Events, checkpoint: str, provider: str = SUBJECT, form: int = 1
) -> Run:
    """Return a run of an operator."""
    return Run(BY_NAME[name], events, checkpoint, provider, form, CONF)


def state_of(checkpoint: str, batch: int) -> list[tuple[str, Rows]]:
    """Return the rows of all stores at a batch, as the reader has them."""
    with cairn.open_checkpoint(checkpoint) as found:
        return [
            (
                f"{one.operator} {one.name}",
                sorted(
                    map(
                        repr,
                        found.state(operator=one.operator, store=one.name, batch=batch)
                        .to_table()
                        .to_pylist(),
                    )
                ),
            )
            for one in found.stores_at(batch)
        ]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("totals_complete", 1),
        ("totals_complete", 2),
        ("join_left_outer_v2", 2),
        ("join_left_outer_v4", 1),
        ("transform_event_time", 2),
        ("transform_then_windows", 1),
    ],
)
def test_a_savepoint_of_a_running_query_runs_on_at_another_place(
    tmp_path: Path, name: str, form: int
) -> None:
    """The query purges far beyond it; the clone has each of its later batches, row for row."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = run_of(name, events, str(tmp_path / "ck"), form=form)
    places = {when: str(tmp_path / when) for when in ("at_once", "late")}

    def clone(when: str) -> None:
        with cairn.clone(run.checkpoint, to=places[when], savepoint="kept") as plan:
            plan.apply()

    def keep() -> None:
        cairn.create_savepoint(run.checkpoint, name="kept")
        clone("at_once")

    run.before_batch[BEGINS] = keep
    run.advance()
    clone("late")
    batches = sorted(run.record.rows)
    assert batches[-1] > BEGINS + 3
    take_away(run.checkpoint)

    states = [state_of(place, BEGINS - 1) for place in places.values()]
    assert states[0] == states[1]
    copy = run_of(name, events, places["at_once"], form=form)
    copy.advance()
    assert sorted(copy.record.rows) == batches[BEGINS:]
    for batch in batches[BEGINS:]:
        assert copy.record.rows[batch] == run.record.rows[batch], batch
    late = run_of(name, events, places["late"], form=form)
    late.advance()
    assert late.record.rows[BEGINS] == run.record.rows[BEGINS]
    if name == "totals_complete":
        newest = late.record.rows[late.record.last_batch]
        assert newest == run.record.rows[batches[-1]]
    events.add_files(FILES, 2)
    late.advance()
    for place in places.values():
        with cairn.open_checkpoint(place) as checkpoint:
            assert [one for one in checkpoint.verify() if one.severity == "error"] == []


@pytest.mark.parametrize("form", [1, 2], ids=["format1", "format2"])
def test_a_query_goes_on_from_a_savepoint_that_it_has_left_behind(
    tmp_path: Path, form: int
) -> None:
    """Spark's logs of the batch are gone; its totals are those of a query that went on."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = run_of("totals_complete", events, str(tmp_path / "ck"), form=form)
    run.before_batch[BEGINS] = lambda: _keep(run.checkpoint)
    run.advance()
    assert not Path(run.checkpoint, f"offsets/{BEGINS - 1}").exists()
    expected = run.record.rows[run.record.last_batch]
    repeated = run.record.rows[BEGINS]

    done = cairn_on("restore", run.checkpoint, "--savepoint", "kept", "--apply")
    assert done.returncode == 0, done.stderr
    again = run_of("totals_complete", events, run.checkpoint, form=form)
    again.advance()

    assert min(again.record.rows) == BEGINS
    assert again.record.rows[BEGINS] == repeated
    assert again.record.rows[again.record.last_batch] == expected
    with cairn.open_checkpoint(run.checkpoint) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []


def _keep(checkpoint: str) -> None:
    cairn.create_savepoint(checkpoint, name="kept")


@pytest.mark.parametrize(
    ("provider", "name", "form"),
    [
        (HDFS, "totals_complete", 1),
        (ROCKSDB, "totals_complete", 2),
        (ROCKSDB, "transform_event_time", 1),
        (ROCKSDB, "join_left_outer_v4", 2),
    ],
)
def test_a_query_under_sparks_own_provider_runs_on_as_a_clone(
    tmp_path: Path, provider: str, name: str, form: int
) -> None:
    """The plan before the batch is gone, and so is the folder of the original."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = run_of(name, events, str(tmp_path / "ck"), provider, form)
    run.before_batch[BEGINS] = lambda: _clone(run.checkpoint, str(tmp_path / "running"))
    run.advance()
    before = Path(run.checkpoint, f"offsets/{run.record.last_batch - 1}")
    plan = before.read_bytes()
    before.unlink()
    _clone(run.checkpoint, str(tmp_path / "stopped"))
    with pytest.raises(StreamingQueryException, match=r"batch \d+ doesn't exist"):
        run.advance()
    before.write_bytes(plan)
    batches = sorted(run.record.rows)
    running, stopped = (
        run_of(name, events, str(tmp_path / place), provider, form)
        for place in ("running", "stopped")
    )
    running.advance()
    for batch in batches[BEGINS:]:
        assert running.record.rows[batch] == run.record.rows[batch], batch
    events.add_files(FILES, 1)
    run.advance()
    take_away(run.checkpoint)
    stopped.advance()

    newest = run.record.last_batch
    assert stopped.record.rows[newest] == run.record.rows[newest]
    assert min(stopped.record.rows) > batches[-1]


def _clone(checkpoint: str, to: str) -> None:
    with cairn.clone(checkpoint, to=to) as plan:
        plan.apply()


def test_a_clone_on_s3_runs_on(tmp_path: Path, s3_bucket: S3Bucket) -> None:
    """From files to S3, and from there by S3's own copies to another place of the bucket."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = run_of("transform_event_time", events, str(tmp_path / "ck"), form=2)
    run.before_batch[BEGINS] = lambda: _keep(run.checkpoint)
    run.advance()
    first, second = f"{s3_bucket.url}/first", f"{s3_bucket.url}/second"
    options = s3_bucket.settings
    for source, to, more in ((run.checkpoint, first, {"savepoint": "kept"}), (first, second, {})):
        with cairn.clone(source, to=to, storage_options=options, **more) as plan:  # type: ignore[arg-type]
            plan.apply()
    take_away(run.checkpoint)
    with open_location(first, options) as objects:
        objects.delete([info.key for info in objects.list("state/")])

    copy = run_of("transform_event_time", events, second, form=2)
    copy.conf = {**CONF, **s3a_conf(options)}
    copy.advance()

    assert copy.record.rows[BEGINS] == run.record.rows[BEGINS]


KILLED = 6


def test_commands_that_are_killed_beside_a_running_query_are_finished_by_the_same_command(
    tmp_path: Path,
) -> None:
    """Each is killed after another time; the query does not notice."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = run_of("totals_complete", events, str(tmp_path / "ck"), form=2)
    to = str(tmp_path / "clone")
    run.before_batch[BEGINS] = lambda: _keep(run.checkpoint)
    run.advance()
    command = [sys.executable, "-m", "cairn", "clone", f"{run.checkpoint}@kept", "--to", to]
    began = time.monotonic()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 3
    whole_s = time.monotonic() - began
    for number in range(KILLED):
        with subprocess.Popen([*command, "--apply"], stderr=subprocess.DEVNULL) as process:
            time.sleep(whole_s * (0.6 + 0.1 * number))
            process.send_signal(signal.SIGKILL)
    done = subprocess.run([*command, "--apply"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 or "is whole" in done.stderr, done.stderr
    copy = run_of("totals_complete", events, to, form=2)
    copy.advance()

    assert copy.record.rows[BEGINS] == run.record.rows[BEGINS]
    assert copy.record.rows[copy.record.last_batch] == run.record.rows[run.record.last_batch]
