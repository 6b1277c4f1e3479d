"""`cairn.erase` and `cairn.import_state`, killed before or behind each of their writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dying_store import Killed, Life, opener
from running_checkpoint import RunningCheckpoint, age

import cairn

ERASED = 12
SEEDED = {user: (500, user) for user in range(30, 60)}

Users = dict[int, tuple[int, int]]
Command = Callable[[str], None]


def erase(place: str) -> None:
    """Run the command, as a person who repeats it until it says that there is nothing to do."""
    with cairn.erase(place, key={"user": ERASED}) as plan:
        if plan.stores or plan.is_committed:
            plan.apply(processes=1)


def import_rows(files: Path) -> Command:
    """Return the command for these files."""

    def command(place: str) -> None:
        with cairn.import_state(place, files=str(files), operator=0, mode="replace") as plan:
            assert plan.problems == ()
            plan.apply(processes=1)

    return command


@pytest.fixture(params=["erase", "import"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    """Return a command that appends a batch."""
    if request.param == "erase":
        return erase
    files = tmp_path / "rows.parquet"
    columns = {"user": list(SEEDED), "max": [500] * len(SEEDED), "max_2": list(SEEDED)}
    table = pa.table({name: pa.array(one, pa.int64()) for name, one in columns.items()})
    pq.write_table(table, files)
    return import_rows(files)


@pytest.fixture(params=[pytest.param("before", marks=pytest.mark.slow), "behind"])
def copies(
    request: pytest.FixtureRequest,
    stopped: RunningCheckpoint,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """Return an iterator: for each write of the command a copy that it has left when killed."""
    return killed_copies(
        stopped.folder, command, tmp_path, monkeypatch, is_behind=request.param == "behind"
    )


def killed_copies(
    checkpoint: Path,
    command: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_behind: bool,
) -> Iterator[Path]:
    """Yield the copies; each is deleted when the next one is asked for."""
    point = 0
    while True:
        point += 1
        copy = folder / f"killed{point}"
        shutil.copytree(checkpoint, copy)
        age_logs(copy)
        life = Life(point, is_behind=is_behind)
        with monkeypatch.context() as patch:
            patch.setattr("cairn.location.open_store", opener(life))
            with suppress(Killed):
                command(str(copy))
        if not life.has_ended:
            break
        yield copy
        shutil.rmtree(copy)
    assert point > 10


def age_logs(place: Path) -> None:
    """Let no driver seem to run."""
    for log in ("offsets", "commits"):
        for path in (place / log).iterdir():
            age(path)


def rows_of(place: Path, batch: int | None = None) -> Users:
    """Return the state at a batch, the last one unless it is named."""
    with cairn.open_checkpoint(str(place)) as checkpoint:
        rows = checkpoint.state(batch=batch).to_table().to_pylist()
    return {row["user"]: (row["max"], row["max_2"]) for row in rows}


def wanted(stopped: RunningCheckpoint, command: Command) -> Users:
    """Return the rows behind the command."""
    if command is erase:
        return {user: row for user, row in stopped.rows[-1].items() if user != ERASED}
    return SEEDED


def has_ended(place: Path) -> bool:
    """Return whether the record of the command says that it had ended before it was killed."""
    records = [json.loads(path.read_text()) for path in place.glob("cairn-log/*/record.json")]
    return any(one["ended"] is not None for one in records)


def newest(place: Path) -> int:
    """Return the newest committed batch."""
    return max(int(path.name) for path in (place / "commits").iterdir() if path.name.isdigit())


def test_the_same_command_finishes_what_a_kill_has_left(
    stopped: RunningCheckpoint, command: Command, copies: Iterator[Path]
) -> None:
    """One batch is appended, whatever the first process had done, and no version has the key.

    If it had only its own notes left to delete, the same rows are imported once more.
    """
    rows = wanted(stopped, command)
    for place in copies:
        age_logs(place)
        is_again = has_ended(place) and command is not erase
        command(str(place))

        assert rows_of(place) == rows
        assert newest(place) == 10 + is_again
        if command is erase:
            with cairn.erase(str(place), key={"user": ERASED}) as plan:
                assert (plan.stores, plan.is_committed) == ((), False)
        with cairn.open_checkpoint(str(place)) as checkpoint:
            assert [one for one in checkpoint.verify() if one.severity == "error"] == []


@pytest.mark.slow
def test_nothing_has_happened_before_the_batch_is_there(
    stopped: RunningCheckpoint, command: Command, copies: Iterator[Path]
) -> None:
    """`cairn gc` ends the hold of the dead process, and the query has the rows of before."""
    rows = wanted(stopped, command)
    committed = 0
    for place in copies:
        age_logs(place)
        with cairn.gc(str(place)) as plan:
            plan.apply()

        is_committed = newest(place) == 10
        assert rows_of(place) == (rows if is_committed else stopped.rows[-1])
        committed += is_committed
    assert committed < 10 or command is erase
