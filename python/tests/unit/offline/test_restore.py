"""`cairn.restore`: a query goes on behind a batch that a person names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from running_checkpoint import RunningCheckpoint

import cairn
from cairn.cli.main import main
from cairn.errors import NotThereError

BATCHES = 10


@pytest.mark.parametrize("batch", [8, 4, 0])
def test_a_query_goes_on_behind_the_batch(stopped: RunningCheckpoint, batch: int) -> None:
    """Later versions are there, and never read again; the next batch has the input it had."""
    planned = (stopped.folder / f"offsets/{batch + 1}").read_bytes()
    state = {path for path in (stopped.folder / "state").rglob("*") if path.is_file()}

    with cairn.restore(str(stopped.folder), to_batch=batch) as plan:
        left = plan.apply()

    assert left == ()
    assert state <= set((stopped.folder / "state").rglob("*"))
    assert (stopped.folder / f"offsets/{batch + 1}").read_bytes() == planned
    stopped.go_back(batch)
    assert stopped.state() == stopped.rows[batch]
    stopped.start()
    for number in range(3):
        stopped.commit({user: (100 + number, user) for user in range(5)})
        stopped.snapshot()
    assert stopped.state() == stopped.rows[-1]
    stopped.stop()
    with cairn.gc(str(stopped.folder), grace_s=0) as plan:
        plan.apply()
    assert stopped.state() == stopped.rows[-1]
    with cairn.open_checkpoint(str(stopped.folder)) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []


def test_a_batch_that_is_not_there_is_named(stopped: RunningCheckpoint) -> None:
    """Nothing is changed for a misspelled number."""
    with pytest.raises(NotThereError, match=r"no batch 99 to go back to; committed are: 0 to 9"):
        cairn.restore(str(stopped.folder), to_batch=99)


def test_a_batch_that_cannot_be_read_is_refused(stopped: RunningCheckpoint) -> None:
    """The query would not start from there."""
    for path in (stopped.folder / "state/0/1/changelog").glob("[12][._]*"):
        path.unlink()

    with cairn.restore(str(stopped.folder), to_batch=1) as plan:
        assert plan.steps == ()
        assert [step.action for step in plan.left] == ["none"]
        with pytest.raises(NotThereError, match=r"no way back to batch 1: .*changelog"):
            plan.apply()


def test_the_command_prints_its_plan_and_then_does_it(stopped: RunningCheckpoint) -> None:
    """As all commands that change a checkpoint."""
    command = ["restore", str(stopped.folder), "--to-batch", "7", "-o", "ndjson"]

    planned = CliRunner().invoke(main, command)
    done = CliRunner().invoke(main, [*command, "--apply"])
    again = CliRunner().invoke(main, command)

    assert (planned.exit_code, done.exit_code, again.exit_code) == (3, 0, 0), done.output
    assert planned.stdout.count("remove-entry") == 3
    assert not (stopped.folder / "commits/8").exists()
    assert (stopped.folder / "offsets/8").exists()
