"""The schedule of a chaos run, and a short run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.run import OPERATORS, Options, run
from chaos.schedule import KINDS, schedule

pytestmark = pytest.mark.usefixtures("driver")

SEED = 11
# Each kind that needs no restart of the driver: one of those takes as long as this whole run.
SLOW_KINDS = frozenset({"kill_driver", "s3_away", "second_driver"})


def test_a_seed_repeats_its_schedule_and_has_every_kind() -> None:
    """A run that found a fault must be repeatable."""
    faults = schedule(SEED, minutes=60, every_s=3, without=frozenset())

    assert faults == schedule(SEED, minutes=60, every_s=3, without=frozenset())
    assert faults != schedule(SEED + 1, minutes=60, every_s=3, without=frozenset())
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


def test_a_short_run_changes_no_row_and_leaves_nothing(tmp_path: Path) -> None:
    """Faults of processes, storage and objects at the same time must not lose or repeat a row."""
    options = Options(SEED, 0.7, 2.0, [OPERATORS[1], OPERATORS[-1]], SLOW_KINDS)

    outcome = run(tmp_path, options)

    assert not outcome.findings, "\n".join(outcome.findings)
    assert len({fault.kind for fault, _ in outcome.hits}) > len(SLOW_KINDS)
