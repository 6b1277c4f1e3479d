"""Two different commands that change one checkpoint at the same time: the second one is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS

import cairn
from cairn.errors import InUseError
from cairn.offline.hold import HeldCheckpoint

USER = 12
NEW_ROW = (1, 2)
PARTITIONS_AFTER = 5
BACK_TO = 8
Users = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Verb:
    """A command that changes a checkpoint in place.

    Attributes:
        plan: makes its plan.
        expected: the rows that it leaves, by those of all batches before.
        run: the arguments of ``apply``.
    """

    plan: Callable[[Path], Any]
    expected: Callable[[list[Users]], Users]
    run: dict[str, Any]


def _import(folder: Path) -> Any:  # noqa: ANN401 - a plan
    file = folder.parent / "rows.parquet"
    row = {"user": pa.array([USER], pa.int64()), "max": [NEW_ROW[0]], "max_2": [NEW_ROW[1]]}
    pq.write_table(pa.table(row), file)
    return cairn.import_state(str(folder), files=str(file), operator=0, mode="merge")


HERE = {"processes": 1}
VERBS = {
    "migrate": Verb(
        lambda folder: cairn.migrate(str(folder), to=None, provider="hdfs"),
        lambda rows: rows[-1],
        HERE,
    ),
    "repartition": Verb(
        lambda folder: cairn.repartition(str(folder), partitions=PARTITIONS_AFTER),
        lambda rows: rows[-1],
        HERE,
    ),
    "restore": Verb(
        lambda folder: cairn.restore(str(folder), to_batch=BACK_TO),
        lambda rows: rows[BACK_TO],
        {},
    ),
    "restore-savepoint": Verb(
        lambda folder: cairn.restore(str(folder), savepoint="kept"),
        lambda rows: rows[BACK_TO],
        {},
    ),
    "import": Verb(_import, lambda rows: rows[-1] | {USER: NEW_ROW}, HERE),
    "erase": Verb(
        lambda folder: cairn.erase(str(folder), key={"user": USER}),
        lambda rows: {user: row for user, row in rows[-1].items() if user != USER},
        {"processes": 1, "deletes_savepoints": True},
    ),
}


@pytest.fixture
def kept(stopped: RunningCheckpoint) -> RunningCheckpoint:
    """Return a checkpoint whose query has ended, with a savepoint."""
    cairn.create_savepoint(str(stopped.folder), name="kept", batch=BACK_TO)
    return stopped


def others(first: str) -> list[str]:
    """Return the other commands."""
    return [name for name in VERBS if name != first]


def refusal(second: str, plan: Any) -> InUseError:  # noqa: ANN401 - a plan
    """Return the error with which a command is refused."""
    try:
        plan.apply(**VERBS[second].run)
    except InUseError as error:
        return error
    pytest.fail(f"{second} was not refused")


@pytest.mark.parametrize("written", [2], indirect=True, ids=["format2"])
@pytest.mark.parametrize("first", VERBS)
def test_of_two_commands_at_once_the_second_one_is_refused(
    kept: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Both would write the same batch, or one would remove what the other one reads.

    Each other command begins when the first one has just begun, and when it is about to end. Its
    plan is an earlier one, or a new one.
    """
    folder = kept.folder
    enter, check = HeldCheckpoint.__enter__, HeldCheckpoint.check
    refused: list[tuple[str, InUseError]] = []

    def begin_others() -> None:
        monkeypatch.undo()
        for second, plan in former.items():
            refused.append((second, refusal(second, plan)))
            with VERBS[second].plan(folder) as new:
                refused.append((second, refusal(second, new)))

    def enters(self: HeldCheckpoint) -> HeldCheckpoint:
        entered = enter(self)
        begin_others()
        monkeypatch.setattr(HeldCheckpoint, "check", checks)
        return entered

    def checks(self: HeldCheckpoint, *removed: Any, **added: Any) -> None:  # noqa: ANN401
        begin_others()
        check(self, *removed, **added)

    with ExitStack() as opened:
        former = {name: opened.enter_context(VERBS[name].plan(folder)) for name in others(first)}
        plan = opened.enter_context(VERBS[first].plan(folder))
        monkeypatch.setattr(HeldCheckpoint, "__enter__", enters)
        plan.apply(**VERBS[first].run)

    assert len(refused) == 4 * len(others(first))
    command = first.removesuffix("-savepoint")
    for second, error in refused:
        assert f"`cairn {command}`" in str(error), second
        assert "offsets/10" in str(error.object_name), second
        assert error.next_step, second
    require_whole(kept, first)


@pytest.mark.parametrize("written", [2], indirect=True, ids=["format2"])
@pytest.mark.parametrize("first", VERBS)
def test_a_plan_that_another_command_has_overtaken_is_refused(
    kept: RunningCheckpoint, first: str
) -> None:
    """It would undo what the first command has done, which nobody has seen."""
    with ExitStack() as opened:
        former = {
            name: opened.enter_context(VERBS[name].plan(kept.folder)) for name in others(first)
        }
        with VERBS[first].plan(kept.folder) as plan:
            plan.apply(**VERBS[first].run)
        for log in ("offsets", "commits"):
            for path in (kept.folder / log).iterdir():
                age(path)

        for second, plan in former.items():
            error = refusal(second, plan)
            # A restore may leave the plan of the batch behind the one to which it goes.
            is_planned = first.startswith("restore") and not second.startswith("restore")
            why = "is planned, and not committed" if is_planned else "since the plan was made"
            assert why in error.message, f"{second}: {error}"
            assert error.next_step, second

    require_whole(kept, first)


def require_whole(kept: RunningCheckpoint, first: str) -> None:
    """Require that a command has done its work."""
    assert kept.state() == VERBS[first].expected(kept.rows)
    with cairn.open_checkpoint(str(kept.folder)) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []
        partitions = PARTITIONS_AFTER if first == "repartition" else PARTITIONS
        assert checkpoint.operators[0].partitions == partitions
