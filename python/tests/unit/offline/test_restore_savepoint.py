"""`cairn.restore(savepoint=...)`: a query goes on from a savepoint, whatever became of the logs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from dying_store import DyingStore, Killed, Life
from running_checkpoint import RunningCheckpoint, age

import cairn
from cairn.cli.main import main
from cairn.clock import SYSTEM_CLOCK
from cairn.errors import ConfigError, InUseError, NotThereError
from cairn.format import hold, savepoint
from cairn.format.spark_log import parse_offsets
from cairn.offline.restore import SavepointPlan
from cairn.reader.stores.base import ReadLimits

KEPT = 5
LOGS = ("offsets", "commits")


@pytest.fixture
def kept(written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch) -> RunningCheckpoint:
    """Return a stopped checkpoint with a savepoint of batch 5, whose logs begin with batch 8."""
    monkeypatch.setattr("cairn.offline.savepoint.SETTLING_S", 0)
    cairn.create_savepoint(str(written.folder), name="kept", batch=KEPT)
    written.stop()
    for batch in range(8):
        for log in LOGS:
            (written.folder / log / str(batch)).unlink()
    return written


def restore(folder: Path, name: str = "kept") -> list[tuple[str, str]]:
    """Restore; return actions and names of what was done."""
    with cairn.restore(str(folder), savepoint=name) as plan:
        plan.apply()
        assert plan.left == ()
        return [(one.action, str(one.object_name).removeprefix(f"{folder}/")) for one in plan.steps]


def logs_of(folder: Path) -> dict[str, list[int]]:
    """Return the batches of both logs."""
    return {
        log: sorted(int(path.name) for path in (folder / log).iterdir() if path.name.isdecimal())
        for log in LOGS
    }


def go_on(written: RunningCheckpoint, batches: int) -> None:
    """Run the query behind a restored batch, and compare each of its states."""
    written.start()
    for number in range(batches):
        written.commit({user: (100 + number, user) for user in range(5 + number)})
        written.snapshot()
    assert written.state() == written.rows[-1]
    written.stop()


def test_a_query_goes_on_from_a_savepoint(kept: RunningCheckpoint) -> None:
    """Its entries are written back, also the plans around it; no state is deleted."""
    state = {path for path in (kept.folder / "state").rglob("*") if path.is_file()}
    done = restore(kept.folder)

    assert done == [
        ("put-back", f"offsets/{KEPT - 1}"),
        ("put-back", f"offsets/{KEPT}"),
        ("put-back", f"offsets/{KEPT + 1}"),
        ("put-back", f"commits/{KEPT}"),
        ("remove-entry", "commits/9"),
        ("remove-entry", "commits/8"),
        ("remove-entry", "offsets/9"),
        ("remove-entry", "offsets/8"),
    ]
    assert logs_of(kept.folder) == {"offsets": [KEPT - 1, KEPT, KEPT + 1], "commits": [KEPT]}
    assert state <= set((kept.folder / "state").rglob("*"))
    (record,) = kept.folder.glob("cairn-log/*-restore-*/record.json")
    assert json.loads(record.read_bytes())["ended"] is not None
    assert (record.parent / "removed/commits/9").exists()
    kept.go_back(KEPT)
    assert kept.state() == kept.rows[KEPT]
    go_on(kept, 12)
    with cairn.gc(str(kept.folder), grace_s=0) as plan:
        plan.apply()
    assert kept.state() == kept.rows[-1]
    with cairn.open_checkpoint(str(kept.folder)) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []
    assert [one.status for one in cairn.list_savepoints(str(kept.folder))] == ["whole"]


def test_nothing_is_done_twice(kept: RunningCheckpoint) -> None:
    """A second plan is empty."""
    restore(kept.folder)
    assert restore(kept.folder) == []


def test_a_savepoint_is_restored_after_another_history(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In format 1 the plain names of its versions have later attempts then."""
    monkeypatch.setattr("cairn.offline.savepoint.SETTLING_S", 0)
    cairn.create_savepoint(str(written.folder), name="early", batch=KEPT - 3)
    cairn.create_savepoint(str(written.folder), name="kept", batch=KEPT)
    written.stop()
    rows, ids = list(written.rows), list(written.ids)
    restore(written.folder, "early")
    written.go_back(KEPT - 3)
    go_on(written, 5)
    assert written.rows[KEPT] != rows[KEPT]

    done = restore(written.folder)

    replaced = [name for action, name in done if action == "put-back" and "changelog" in name]
    assert len(replaced) == (3 if written.checkpoint_format == 1 else 0)
    written.rows, written.ids = rows[: KEPT + 1], ids[: KEPT + 2]
    assert written.state() == rows[KEPT]
    assert restore(written.folder) == []
    go_on(written, 3)
    restore(written.folder, "early")
    written.rows, written.ids = rows[: KEPT - 2], ids[: KEPT - 1]
    assert written.state() == rows[KEPT - 3]
    go_on(written, 8)
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        assert [one for one in checkpoint.verify() if one.severity == "error"] == []


@pytest.mark.parametrize("is_all", [False, True])
def test_logs_that_are_gone_are_no_obstacle(kept: RunningCheckpoint, *, is_all: bool) -> None:
    """Of the commit log alone, or of both."""
    for log in LOGS if is_all else ("commits",):
        for path in (kept.folder / log).iterdir():
            path.unlink()
    (kept.folder / "metadata").unlink()
    restore(kept.folder)

    assert logs_of(kept.folder) == {"offsets": [KEPT - 1, KEPT, KEPT + 1], "commits": [KEPT]}
    kept.go_back(KEPT)
    go_on(kept, 2)


def test_a_savepoint_of_a_former_release_has_no_plan_before(kept: RunningCheckpoint) -> None:
    """That of the batch takes its place."""
    path = kept.folder / savepoint.key_of("kept")
    found = savepoint.parse(path.read_bytes(), object_name="")
    files = tuple(
        one
        for one in found.files
        if one.key in {"metadata", f"offsets/{KEPT}", f"commits/{KEPT}"}
        or one.key.startswith("state/")
    )
    path.write_bytes(savepoint.encode(replace(found, files=files)))
    restore(kept.folder)

    assert logs_of(kept.folder) == {"offsets": [KEPT - 1, KEPT], "commits": [KEPT]}
    entries = [(kept.folder / f"offsets/{batch}").read_bytes() for batch in (KEPT - 1, KEPT)]
    assert parse_offsets(entries[0]) == parse_offsets(entries[1])


def test_metadata_of_later_batches_go(kept: RunningCheckpoint) -> None:
    """Spark would read them once the query is there again, and never replaces them."""
    folder = kept.folder / "state/0/_metadata/v2"
    folder.mkdir()
    (folder / "8").write_bytes(b"v2 of a program that is given up")
    (kept.folder / "state/0/0/_metadata/schema").write_bytes(b"of a program that is given up")
    done = restore(kept.folder)

    assert ("remove-entry", "state/0/_metadata/v2/8") in done
    assert ("put-back", "state/0/0/_metadata/schema") in done
    assert not (folder / "8").exists()
    removed = next(kept.folder.glob("cairn-log/*/removed/state/0"))
    assert (removed / "_metadata/v2/8").read_bytes() == b"v2 of a program that is given up"
    assert (removed / "0/_metadata/schema").read_bytes() == b"of a program that is given up"
    kept.go_back(KEPT)
    assert kept.state() == kept.rows[KEPT]


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_restore_that_is_killed_anywhere_is_finished_by_the_next(
    kept: RunningCheckpoint, tmp_path: Path, *, is_behind: bool
) -> None:
    """Until then no driver starts, or it goes on where it was."""
    kept.go_back(KEPT)
    killed = 0
    for point in range(1, 100):
        folder = tmp_path / f"ck{point}"
        shutil.copytree(kept.folder, folder)
        store = DyingStore(str(folder), Life(point, is_behind=is_behind))
        try:
            with SavepointPlan(store, ReadLimits(), SYSTEM_CLOCK, "kept") as plan:
                plan.apply()
            break
        except Killed:
            killed += 1
        offsets = logs_of(folder)["offsets"]
        is_held = hold.parse((folder / f"offsets/{offsets[-1]}").read_bytes()) is not None
        is_done = logs_of(folder) == {
            "offsets": [KEPT - 1, KEPT, KEPT + 1],
            "commits": [KEPT],
        }
        assert is_held or is_done or offsets == [8, 9], (point, offsets)
        for path in [*folder.glob("offsets/*"), *folder.glob("commits/*")]:
            age(path)
        restore(folder)
        assert logs_of(folder)["commits"] == [KEPT]
        assert logs_of(folder)["offsets"] == [KEPT - 1, KEPT, KEPT + 1]
        with cairn.open_checkpoint(str(folder)) as checkpoint:
            table = checkpoint.state().to_table().to_pylist()
        assert {row["user"]: (row["max"], row["max_2"]) for row in table} == kept.rows[KEPT]
    assert killed > 12


def test_the_hold_is_behind_what_is_written(kept: RunningCheckpoint) -> None:
    """The logs may end before the savepoint's batch; then a driver would start meanwhile."""
    for log in LOGS:
        for path in (kept.folder / log).iterdir():
            path.unlink()
        entry = kept.folder / log / "2"
        shutil.copy(kept.folder / "metadata", entry)
        age(entry)
    holds: list[int] = []
    with cairn.restore(str(kept.folder), savepoint="kept") as plan:
        plan.apply(progress=lambda *_: holds.append(logs_of(kept.folder)["offsets"][-1]))

    assert set(holds) == {KEPT + 2}


def test_a_hold_that_was_left_moves_behind_what_is_written(kept: RunningCheckpoint) -> None:
    """A killed command has left one before the savepoint's batch."""
    for log in LOGS:
        for path in (kept.folder / log).iterdir():
            path.unlink()
    left = hold.Hold("gc", "elsewhere", 1, "", "t", 0, is_left=True)
    (kept.folder / "offsets/3").write_bytes(hold.encode(left))
    holds: list[list[int]] = []
    with cairn.restore(str(kept.folder), savepoint="kept") as plan:
        plan.apply(progress=lambda *_: holds.append(logs_of(kept.folder)["offsets"]))

    assert all(one[-1] == KEPT + 2 for one in holds)
    assert not (kept.folder / "offsets/3").exists()


def test_a_savepoint_that_is_not_whole_is_refused(kept: RunningCheckpoint) -> None:
    """Before anything is changed."""
    for kind in ("changelog", "snapshot"):
        for path in kept.folder.glob(f"state/0/1/{kind}/{KEPT + 1}[._]*"):
            path.unlink()
    before = logs_of(kept.folder)

    with pytest.raises(NotThereError, match="the savepoint is not whole"):
        cairn.restore(str(kept.folder), savepoint="kept")
    assert logs_of(kept.folder) == before


def test_a_query_that_runs_is_not_restored(kept: RunningCheckpoint) -> None:
    """Its logs have an entry of now."""
    (kept.folder / "commits/9").touch()
    with (
        cairn.restore(str(kept.folder), savepoint="kept") as plan,
        pytest.raises(InUseError),
    ):
        plan.apply()


def test_the_command_takes_a_batch_or_a_savepoint(kept: RunningCheckpoint) -> None:
    """Not both, and not none."""
    command = ["restore", str(kept.folder), "-o", "ndjson"]
    for wrong in ([], ["--to-batch", "8", "--savepoint", "kept"]):
        assert CliRunner().invoke(main, [*command, *wrong]).exit_code == 2
    planned = CliRunner().invoke(main, [*command, "--savepoint", "kept"])
    done = CliRunner().invoke(main, [*command, "--savepoint", "kept", "--apply"])

    assert (planned.exit_code, done.exit_code) == (3, 0), done.output
    assert planned.stdout.count("put-back") == 4
    assert logs_of(kept.folder)["commits"] == [KEPT]
    with pytest.raises(ConfigError):
        cairn.restore(str(kept.folder))


def test_the_plan_before_a_batch_is_written_by_a_restore_to_it(
    written: RunningCheckpoint,
) -> None:
    """Spark has deleted it; and it does not start without it where no plan follows."""
    written.stop()
    for batch in range(9):
        (written.folder / f"offsets/{batch}").unlink()
    with cairn.restore(str(written.folder), to_batch=9) as plan:
        plan.apply()

    assert logs_of(written.folder)["offsets"] == [8, 9]
    assert written.state() == written.rows[9]


def test_metadata_of_later_batches_go_by_a_restore_to_a_batch(written: RunningCheckpoint) -> None:
    """As by one to a savepoint."""
    written.stop()
    path = written.folder / "state/0/_metadata/v2/8"
    path.parent.mkdir()
    path.write_bytes(b"v2 of a program that is given up")
    with cairn.restore(str(written.folder), to_batch=7) as plan:
        assert [one.action for one in plan.steps].count("remove-entry") == 4
        plan.apply()
    assert not path.exists()


def test_a_plan_for_another_form_of_the_state_goes(written: RunningCheckpoint) -> None:
    """A repartition has planned the batch behind the one to go back to."""
    written.stop()
    path = written.folder / "offsets/8"
    path.write_bytes(path.read_bytes().replace(b'"3"', b'"7"'))
    age(path)
    with cairn.restore(str(written.folder), to_batch=7) as plan:
        plan.apply()
    assert logs_of(written.folder)["offsets"][-1] == 7
