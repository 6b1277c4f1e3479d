"""A short chaos run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.run import OPERATORS, Options, run

if TYPE_CHECKING:
    from pathlib import Path

# `make chaos` is the long form; the tests of faults and recovery have each fault by itself.
pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.tools]

# In its short run the driver stands still for over four seconds from the second one on, when it
# always runs. Later faults hit what is there: an executor may just be gone.
SHORT_SEED = 14506
# Each kind that needs no restart of the driver: one of those takes as long as this whole run.
SLOW_KINDS = frozenset({"kill_driver", "s3_away", "second_driver"})


def test_a_short_run_changes_no_row_and_leaves_nothing(tmp_path: Path) -> None:
    """Faults of processes, storage and objects at the same time must not lose or repeat a row."""
    options = Options(SHORT_SEED, 0.5, 1.5, [OPERATORS[1], OPERATORS[2]], SLOW_KINDS)

    outcome = run(tmp_path, options)

    assert not outcome.findings, "\n".join(outcome.findings)
    hit = {fault.kind for fault, _ in outcome.hits}
    assert len(hit) > len(SLOW_KINDS)
    assert "stop_driver" in hit  # docs/semantics.md names this test for it
