"""Commands that write a state anew while an object of it is missing: the query is as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_checkpoint import RunningCheckpoint
from small_checkpoint import partition_of_user

import cairn
from cairn.errors import MissingError
from cairn.format import manifest
from cairn.ids import StoreId

USER = 12
NEW_ROW = (1, 2)
Users = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Verb:
    """A command that writes a state anew.

    Attributes:
        plan: makes its plan; ``apply`` of that writes.
        expected: the rows that it leaves.
    """

    plan: Callable[[Path], Any]
    expected: Callable[[Users], Users]


def _import(folder: Path) -> Any:  # noqa: ANN401 - a plan
    file = folder.parent / "rows.parquet"
    row = {"user": pa.array([USER], pa.int64()), "max": [NEW_ROW[0]], "max_2": [NEW_ROW[1]]}
    pq.write_table(pa.table(row), file)
    return cairn.import_state(str(folder), files=str(file), operator=0, mode="merge")


VERBS = {
    "repartition": Verb(
        lambda folder: cairn.repartition(str(folder), partitions=5), lambda rows: rows
    ),
    "import": Verb(_import, lambda rows: rows | {USER: NEW_ROW}),
    "erase": Verb(
        lambda folder: cairn.erase(str(folder), key={"user": USER}),
        lambda rows: {user: row for user, row in rows.items() if user != USER},
    ),
}


def newest_changelog(written: RunningCheckpoint) -> Path:
    """Return the object that has the newest version of the key's store; no snapshot has it."""
    folder = written.folder / f"state/0/{partition_of_user(USER)}"
    assert not list(folder.glob("snapshot/10_*"))
    (found,) = folder.glob("changelog/10[._]*")
    return found


def only_sst(written: RunningCheckpoint) -> Path:
    """Return a file of the newest snapshot of the key's store, which alone leads to the version.

    As with a driver's retention, which has deleted what is older.
    """
    store = StoreId(0, partition_of_user(USER))
    folder = written.folder / store.folder
    *older, newest = sorted(folder.glob("snapshot/*.json"), key=_version)
    for path in [*older, *folder.glob("changelog/*")]:
        if path in older or _version(path) <= _version(newest):
            path.unlink()
    found = manifest.decode(newest.read_bytes(), object_name=str(newest), store=store)
    return folder / next(one.object_name for one in found.files if one.is_sst)


def _version(path: Path) -> int:
    return int(path.name.replace("_", ".").partition(".")[0])


def files(folder: Path) -> dict[str, bytes]:
    """Return all files but records and locks."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "cairn-log" not in path.parts and path.name != ".cairn.lock"
    }


@pytest.mark.parametrize("choose", [newest_changelog, only_sst])
@pytest.mark.parametrize("name", VERBS)
def test_a_missing_object_is_named_and_nothing_changes(
    stopped: RunningCheckpoint, name: str, choose: Callable[[RunningCheckpoint], Path]
) -> None:
    """It goes before the plan is made, or behind that; with it the same command does its work."""
    lost = choose(stopped)
    whole = lost.read_bytes()
    before = files(stopped.folder)
    del before[lost.relative_to(stopped.folder).as_posix()]
    verb = VERBS[name]

    lost.unlink()
    with pytest.raises(MissingError) as at_once, verb.plan(stopped.folder) as plan:
        plan.apply(processes=1)
    lost.write_bytes(whole)
    with verb.plan(stopped.folder) as plan:
        lost.unlink()
        with pytest.raises(MissingError) as later:
            plan.apply(processes=1)
    after = files(stopped.folder)
    lost.write_bytes(whole)

    for failure in (at_once.value, later.value):
        assert lost.name in str(failure.object_name)
        assert failure.next_step
        assert failure.store == str(StoreId(0, partition_of_user(USER)))
        assert failure.version == len(stopped.rows)
    assert after.items() >= before.items()
    new = after.keys() - before.keys()
    assert not [key for key in new if not key.startswith("state/")], "a hold, or a batch, is left"
    assert stopped.state() == stopped.rows[-1]
    with verb.plan(stopped.folder) as plan:
        plan.apply(processes=1)
    assert stopped.state() == verb.expected(stopped.rows[-1])
