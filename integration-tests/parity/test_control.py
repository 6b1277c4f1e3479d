"""Recorded results of Spark's provider are played for their program and their input alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from harness import control
from harness.control import Control, StaleRecordingError
from harness.differential import Rows, Run
from harness.events import Events
from harness.operators import Operator, StateView
from harness.spark import CAIRN_CONF, CONTROL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

pytestmark = pytest.mark.tools

FACTOR = 2
VIEW = StateView()
MANY = [f"row {number:03}" for number in range(control.READABLE_ROWS + 1)]


def _doubled(left: DataFrame) -> DataFrame:
    return left.selectExpr(f"v * {FACTOR}")


def _plan(left: DataFrame, _: DataFrame) -> DataFrame:
    return _doubled(left)


def _other_plan(left: DataFrame, _: DataFrame) -> DataFrame:
    return left


@dataclass
class CountedRun(Run):
    """A run without Spark: each step gives the rows of one batch."""

    results: list[Rows] = field(default_factory=lambda: [["a", "b"], MANY])
    started: int = 0

    def advance(self) -> None:
        self.record.rows[self.started] = self.results[self.started]
        self.record.counts[self.started] = [(3, 2, 1, 0)]
        self.started += 1

    def state(self, view: StateView, **options: object) -> Rows:  # noqa: ARG002 - as Run's
        return [f"state of {self.started}"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountedRun:
    """Return a run whose recording goes to a folder of the test."""
    monkeypatch.setattr(control, "RECORDED", tmp_path / "recorded")
    events = Events(tmp_path / "input")
    events.add_files(0, 1)
    return CountedRun(Operator("doubled", _plan), events, str(tmp_path / "checkpoint"), CONTROL)


def finished(run: CountedRun, mode: str, monkeypatch: pytest.MonkeyPatch) -> Control:
    """Run two steps of a fresh run in a mode, and read the state."""
    monkeypatch.setattr(control, "MODE", mode)
    done = Control("one", run)
    for number in (1, 2):
        done.advance()
        run.events.add_files(number, 1)
    done.state(VIEW, batchId=1)
    for number in (1, 2):
        for side in ("left", "right"):
            run.events.path(side, number).unlink()
    return done


def again(run: CountedRun, **changes: object) -> CountedRun:
    """Return the run as it was before it began."""
    return replace(run, record=type(run.record)(), started=0, **changes)  # type: ignore[arg-type]


def test_a_recording_is_played_without_a_run(
    run: CountedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of Spark's provider is what a recording saves."""
    finished(run, "record", monkeypatch)
    second = again(run)

    played = finished(second, "recorded", monkeypatch)

    assert second.started == 0
    assert played.record.rows == {0: ["a", "b"], 1: MANY}
    assert played.record.rows != {0: ["a", "b"], 1: [*MANY[1:], "other"]}
    assert len(played.record.rows[1]) == len(MANY)
    assert played.record.counts == {0: [(3, 2, 1, 0)], 1: [(3, 2, 1, 0)]}
    assert played.state(VIEW, batchId=1) == ["state of 2"]


def test_without_a_recording_spark_s_provider_runs(
    run: CountedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another minor version of Spark, or a slow test, must not compare with nothing."""
    assert finished(run, "recorded", monkeypatch).record.rows == {0: ["a", "b"], 1: MANY}

    assert run.started == 2


@pytest.mark.parametrize("changed", ["plan", "what the plan calls", "setting", "input"])
def test_a_recording_of_something_else_is_an_error(
    run: CountedRun, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cairn would be compared with the rows of another query."""
    finished(run, "record", monkeypatch)
    second = again(run)
    if changed == "plan":
        second = replace(second, operator=Operator("doubled", _other_plan))
    elif changed == "what the plan calls":
        monkeypatch.setitem(globals(), "FACTOR", 3)
    elif changed == "setting":
        second = replace(second, conf={"spark.sql.session.timeZone": "CET"})
    else:
        replace(second.events, seed=8).add_files(0, 1)

    with pytest.raises(StaleRecordingError) as failure:
        finished(second, "recorded", monkeypatch)

    part = "input" if changed == "input" else "program"
    assert f"another {part} in step 1" in str(failure.value)
    assert "make record-control" in str(failure.value)


def test_a_setting_of_cairn_s_makes_no_recording_stale(
    run: CountedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's provider does not read it."""
    finished(run, "record", monkeypatch)
    second = again(run, conf={CAIRN_CONF + "cacheMemory": "1m"})

    finished(second, "recorded", monkeypatch)

    assert second.started == 0


def test_what_was_not_recorded_is_an_error(
    run: CountedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison that a test gets later must not be left out."""
    finished(run, "record", monkeypatch)
    played = finished(again(run), "recorded", monkeypatch)

    with pytest.raises(StaleRecordingError, match="no result of"):
        played.state(VIEW, batchId=0)
    with pytest.raises(StaleRecordingError, match="in step 3"):
        played.advance()


def test_live_results_that_differ_from_the_recording_are_an_error(
    run: CountedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording that was edited, or of another Spark, proves nothing."""
    finished(run, "record", monkeypatch)
    finished(again(run), "live", monkeypatch)

    with pytest.raises(StaleRecordingError, match="other results"):
        finished(again(run, results=[["a", "b"], [*MANY[1:], "z"]]), "live", monkeypatch)
