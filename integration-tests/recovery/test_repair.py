"""A checkpoint that `cairn repair` has mended, and a hold under a driver."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from cairn.clock import SystemClock
from cairn.offline.hold import HeldCheckpoint
from cairn.storage.open import open_store
from harness.clear_errors import assert_clear
from harness.differential import Rows, Run
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import CONTROL, FILE_MANAGER_CLASS, STATE_STORE, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

OPERATOR = BY_NAME["totals_complete"]
FILES = 6
MANAGERS = {
    "cairn": {},
    "spark": {
        FILE_MANAGER_CLASS: "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileContextBasedCheckpointFileManager"
    },
}
TOTAL = re.compile(r"\bk=(-?\w+)\b.*?\b(?:sum|total)=(-?\w+)")


class LaterClock(SystemClock):
    """A clock by which the logs have been quiet for long."""

    def now(self) -> datetime:
        """Return a time in two hours."""
        return super().now() + timedelta(hours=2)


def totals(rows: Rows) -> dict[str, str]:
    """Return the total of each key in rows of the sink."""
    found = [match for match in map(TOTAL.search, rows) if match]
    assert len(found) == len(rows)
    return {match[1]: match[2] for match in found}


def cairn_on(verb: str, checkpoint: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a checkpoint whose logs have been quiet for an hour."""
    for log in ("offsets", "commits"):
        for path in Path(checkpoint, log).iterdir():
            past = path.stat().st_mtime - 3600
            os.utime(path, (past, past))
    command = [sys.executable, "-m", "cairn", verb, checkpoint, "-o", "ndjson", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("checkpoint_format", [1, 2], ids=["format1", "format2"])
def test_a_query_goes_on_after_a_repair(tmp_path: Path, checkpoint_format: int) -> None:
    """Its newest version was lost; without the command it does not start."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    conf = {STATE_STORE + "minDeltasForSnapshot": "50"}
    subject, control = (
        Run(OPERATOR, events, str(tmp_path / name), provider, checkpoint_format, conf)
        for name, provider in (("subject", SUBJECT), ("control", CONTROL))
    )
    for run in (subject, control):
        run.advance()
    lost = max(Path(subject.checkpoint, "state/0").glob(f"*/changelog/{FILES}*.arrow"))
    lost.write_bytes(lost.read_bytes()[:100])
    events.add_files(FILES, 1)
    with pytest.raises(StreamingQueryException) as failed:
        subject.advance()
    assert_clear(str(failed.value), "CAIRN_CORRUPT", lost.name)

    planned = cairn_on("repair", subject.checkpoint)
    done = cairn_on("repair", subject.checkpoint, "--apply")
    for run in (subject, control):
        run.advance()

    assert planned.returncode == 3, planned.stderr
    assert '"action": "remove-entry"' in planned.stdout
    assert done.returncode == 0, done.stderr
    newest = {run.provider: run.record.rows[max(run.record.rows)] for run in (subject, control)}
    assert totals(newest[subject.provider]) == totals(newest[control.provider])


@pytest.mark.parametrize(
    "checkpoint_format",
    [pytest.param(1, marks=pytest.mark.slow), 2],
    ids=["format1", "format2"],
)
def test_a_query_goes_on_from_an_earlier_batch(tmp_path: Path, checkpoint_format: int) -> None:
    """Its totals are those of a query that never went back."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    subject, control = (
        Run(OPERATOR, events, str(tmp_path / name), provider, checkpoint_format)
        for name, provider in (("subject", SUBJECT), ("control", CONTROL))
    )
    for run in (subject, control):
        run.advance()

    done = cairn_on("restore", subject.checkpoint, "--to-batch", "2", "--apply")
    assert done.returncode == 0, done.stderr
    assert sorted(
        int(path.name) for path in Path(subject.checkpoint, "commits").glob("[0-9]*")
    ) == ([0, 1, 2])
    events.add_files(FILES, 1)
    subject.record.rows.clear()  # Spark puts the files of several former batches into one
    for run in (subject, control):
        run.advance()

    newest = {run.provider: run.record.rows[max(run.record.rows)] for run in (subject, control)}
    assert totals(newest[subject.provider]) == totals(newest[control.provider])


@pytest.mark.parametrize("manager", MANAGERS)
def test_no_driver_uses_a_checkpoint_that_is_held(tmp_path: Path, manager: str) -> None:
    """One that runs fails at its next batch, one that starts shows the text of the hold."""
    events = Events(tmp_path / "input")
    events.add_files(0, FILES)
    run = Run(OPERATOR, events, str(tmp_path / "checkpoint"), SUBJECT, 2, MANAGERS[manager])
    objects = open_store(run.checkpoint, {})
    held = HeldCheckpoint(objects, "test", LaterClock())

    def hold() -> None:
        held.__enter__()

    run.before_batch = {2: hold}

    with pytest.raises(StreamingQueryException, match="CONCURRENT_STREAM_LOG_UPDATE"):
        run.advance()
    with pytest.raises(StreamingQueryException, match="cairn test` changes this checkpoint"):
        run.advance()
    assert sorted(run.record.rows) == [0, 1, 2]
    held.__exit__()
    run.before_batch = {}
    run.advance()

    # Spark had noted the file of batch 3 already: that batch may have another one, too.
    assert {0, 1, 2, 3} <= run.record.rows.keys()
