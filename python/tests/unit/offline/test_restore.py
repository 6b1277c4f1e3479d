"""`cairn.restore`: a query goes on behind a batch that a person names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from running_checkpoint import RunningCheckpoint

import cairn
from cairn.cli.main import main
from cairn.errors import NotThereError

BATCHES = 10


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCheckpoint]:
    """Return a checkpoint with ten batches and several snapshots, whose engine has ended."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", request.param)
    for batch in range(BATCHES):
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        written.snapshot()
    written.stop()
    yield written
    if written.stores:
        written.stop()


def rows_of(written: RunningCheckpoint) -> dict[int, tuple[int, int]]:
    """Return the state at the newest batch, as the reader has it."""
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        table = checkpoint.state().to_table().to_pylist()
    return {row["user"]: (row["max"], row["max_2"]) for row in table}


@pytest.mark.parametrize("batch", [8, 4, 0])
def test_a_query_goes_on_behind_the_batch(written: RunningCheckpoint, batch: int) -> None:
    """Later versions are there, and never read again; the next batch has the input it had."""
    planned = (written.folder / f"offsets/{batch + 1}").read_bytes()
    state = {path for path in (written.folder / "state").rglob("*") if path.is_file()}

    with cairn.restore(str(written.folder), to_batch=batch) as plan:
        left = plan.apply()

    assert left == ()
    assert state <= set((written.folder / "state").rglob("*"))
    assert (written.folder / f"offsets/{batch + 1}").read_bytes() == planned
    written.go_back(batch)
    assert rows_of(written) == written.rows[batch]
    written.start()
    for number in range(3):
        written.commit({user: (100 + number, user) for user in range(5)})
        written.snapshot()
    assert rows_of(written) == written.rows[-1]
    written.stop()
    with cairn.gc(str(written.folder), grace_s=0) as plan:
        plan.apply()
    assert rows_of(written) == written.rows[-1]
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []


def test_a_batch_that_is_not_there_is_named(written: RunningCheckpoint) -> None:
    """Nothing is changed for a misspelled number."""
    with pytest.raises(NotThereError, match=r"no batch 99 to go back to; committed are: 0 to 9"):
        cairn.restore(str(written.folder), to_batch=99)


def test_a_batch_that_cannot_be_read_is_refused(written: RunningCheckpoint) -> None:
    """The query would not start from there."""
    for path in (written.folder / "state/0/1/changelog").glob("[12][._]*"):
        path.unlink()

    with cairn.restore(str(written.folder), to_batch=1) as plan:
        assert plan.steps == ()
        assert [step.action for step in plan.left] == ["none"]


def test_the_command_prints_its_plan_and_then_does_it(written: RunningCheckpoint) -> None:
    """As all commands that change a checkpoint."""
    command = ["restore", str(written.folder), "--to-batch", "7", "-o", "ndjson"]

    planned = CliRunner().invoke(main, command)
    done = CliRunner().invoke(main, [*command, "--apply"])
    again = CliRunner().invoke(main, command)

    assert (planned.exit_code, done.exit_code, again.exit_code) == (3, 0, 0), done.output
    assert planned.stdout.count("remove-entry") == 3
    assert not (written.folder / "commits/8").exists()
    assert (written.folder / "offsets/8").exists()
