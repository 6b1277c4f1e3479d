"""transformWithState needs Cairn's extension, and says so; its results are in test_operators."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.job import JobProcess, Query
from harness.operators import BY_NAME, Operator, StateView
from harness.processes import descendants, wait_until, wait_until_ended
from harness.scala_programs import plan_in_scala
from harness.spark import CAIRN_CONF, CONTROL, EXTENSIONS, REPOSITORY, SHORT_LIVED, SUBJECT

if TYPE_CHECKING:
    from pathlib import Path

SMALL_CACHE = {CAIRN_CONF + "cacheMemory": "1m"}


@pytest.mark.usefixtures("driver")
def test_without_the_extension_the_error_names_the_setting(tmp_path: Path) -> None:
    """Spark's own error recommends another provider. Queries that need no extension go on.

    Nothing is lost: with the extension the same checkpoints go on.
    """
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    names = ("transform_event_time", "transform_event_time_pandas", "transform_scala")
    refused = [(SUBJECT, name, number) for name in names for number in (1, 2)]
    allowed = [(CONTROL, names[0], 1), *((SUBJECT, "windows_update", number) for number in (1, 2))]
    queries = [
        Query(operator, events, str(tmp_path / str(number)), provider, checkpoint_format)
        for number, (provider, operator, checkpoint_format) in enumerate((*refused, *allowed))
    ]
    job = JobProcess(tmp_path / "job", queries, {"spark.sql.extensions": ""})

    try:
        job.wait()
    finally:
        job.end()

    for number in range(len(refused)):
        assert "CAIRN_EXTENSION_MISSING" in job.error(number)
        assert f"spark.sql.extensions={EXTENSIONS}" in job.error(number)
    for number in range(len(refused), len(queries)):
        assert not job.error(number)
        assert job.rows(number)

    for number, (_, name, checkpoint_format) in enumerate(refused):
        again = Run(BY_NAME[name], events, str(tmp_path / str(number)), SUBJECT, checkpoint_format)
        again.advance()
        rows = sorted(row for batch in again.record.rows.values() for row in batch)
        assert rows
        if name == names[0]:
            assert rows == job.all_rows(len(refused))


@pytest.mark.usefixtures("driver")
def test_state_that_each_batch_writes_and_removes_is_absent(tmp_path: Path) -> None:
    """The session spills nothing but removals of absent keys, after it has sent puts of them."""
    events = Events(tmp_path / "input", rows_per_file=60_000, keys=60_000)
    events.add_files(0, 2)
    operator = Operator(
        "withdraws",
        lambda left, _: plan_in_scala("withdraws", left.where("k is not null and v is not null")),
    )
    cache = {CAIRN_CONF + "cacheMemory": "1536k"}
    run = Run(operator, events, str(tmp_path / "checkpoint"), SUBJECT, 2, cache)

    run.advance()

    assert run.record.metrics["cairnSpills"] > 0
    assert {0, 1} <= run.record.rows.keys()
    assert not any(run.record.rows.values())
    assert not any(counts[0][0] for counts in run.record.counts.values())
    assert run.state(StateView((("stateVarName", "total"),))) == []


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    "operator",
    [
        pytest.param("transform_scala", marks=pytest.mark.slow),
        "transform_scala_clock",
        pytest.param("transform_scala_ahead", marks=pytest.mark.slow),
    ],
)
def test_state_larger_than_the_cache_has_the_same_rows(tmp_path: Path, operator: str) -> None:
    """Scans of timers, times to live and maps then read the rows of the worker."""
    events = Events(tmp_path / "input", rows_per_file=6000, keys=6000)
    events.add_files(0, 4)
    run = Run(BY_NAME[operator], events, str(tmp_path / "control"), CONTROL)
    control = Control(f"transform/{operator}", run)
    subject = Run(BY_NAME[operator], events, str(tmp_path / "subject"), SUBJECT, 2, SMALL_CACHE)

    control.advance()
    subject.advance()

    assert subject.record.metrics["cairnCacheMisses"] > 0
    assert subject.record.metrics["cairnSpills"] > 0
    assert subject.record.rows == control.record.rows
    assert subject.record.counts == control.record.counts
    for view in control.operator.views:
        assert subject.state(view) == control.state(view), str(view)


def test_the_example_prints_visits(tmp_path: Path) -> None:
    """Users copy it: a value, a timer, a time to live, and a sink that is a table."""
    program = REPOSITORY / "examples" / "transform" / "run.py"
    output = tmp_path / "output"
    with output.open("wb") as sink:
        example = subprocess.Popen(
            [sys.executable, str(program), "--seconds", "100"],
            env={**os.environ, "JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED)},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(
                lambda: (
                    re.search(r"\|\s*[0-6]\|\s*\d+\|", output.read_text()) is not None
                    or example.poll() is not None
                ),
                100,
                "a visit",
                lambda: output.read_text()[-2000:],
            )
            assert example.poll() is None, output.read_text()[-2000:]
        finally:
            started = descendants(example.pid)
            # As Ctrl-C would: Python and Spark remove their temporary folders.
            example.send_signal(signal.SIGINT)
            for process in reversed(wait_until_ended(started, 30)):
                process.kill()
            example.kill()
            example.wait()
