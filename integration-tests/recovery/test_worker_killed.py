"""The engine process is killed while a query runs; the query does not fail or change a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.killed_workers import kill_during, kill_engines
from harness.operators import BY_NAME
from harness.spark import CONTROL, SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES = 5


OPERATORS = (
    "windows_update",
    "join_left_outer_v2",
    "transform_event_time",
    "transform_clock",
    "transform_scala_clock",
)


def cases(*quick: str) -> list[Any]:
    """Return all operators; those that are not named are slow tests."""
    return [
        pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in OPERATORS
    ]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Return the input of all queries."""
    events = Events(tmp_path_factory.mktemp("input"))
    events.add_files(0, FILES)
    return events


@pytest.fixture(scope="module")
def control(
    request: pytest.FixtureRequest, events: Events, tmp_path_factory: pytest.TempPathFactory
) -> Control:
    """Return a finished run under Spark's own provider."""
    folder = tmp_path_factory.mktemp("killed")
    run = Run(BY_NAME[request.param], events, str(folder / "control"), CONTROL)
    control = Control(f"worker-killed/{request.param}", run)
    control.advance()
    return control


@pytest.mark.parametrize("control", cases("windows_update"), indirect=True)
def test_a_worker_killed_between_two_runs_of_a_query_changes_no_row(
    control: Control, events: Events, tmp_path: Path
) -> None:
    """The next query on this executor must not use an engine that the OOM killer has ended."""
    run = Run(control.operator, events, str(tmp_path / "checkpoint"), SUBJECT)
    run.advance()
    killed = kill_engines()
    rerun = Run(control.operator, events, str(tmp_path / "second"), SUBJECT)

    rerun.advance()

    assert killed, "there was no engine to kill"
    assert run.record.rows == rerun.record.rows == control.record.rows


@pytest.mark.parametrize("control", cases(*OPERATORS[:3]), indirect=True)
def test_workers_killed_while_the_query_runs_change_no_row(
    control: Control, events: Events, tmp_path: Path
) -> None:
    """A kill may hit a load, a read, a commit or a snapshot: each is repeated, no row is lost."""
    run = Run(control.operator, events, str(tmp_path / "checkpoint"), SUBJECT)
    killed = kill_during(run, range(1, FILES))

    run.advance()

    assert killed, "there was no engine to kill"
    assert run.record.rows == control.record.rows
    assert run.record.counts == control.record.counts
