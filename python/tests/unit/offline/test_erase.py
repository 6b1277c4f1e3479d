"""`cairn.erase`: a key leaves every store and every retained version."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS, SmallCheckpoint, partition_of_user

import cairn
from cairn.cli.main import main
from cairn.errors import (
    ConfigError,
    DataError,
    InUseError,
    NotThereError,
    UnavailableError,
    UnsupportedStateError,
)
from cairn.offline.erasing.erase import ErasedStore

USER = 12

KILLED_AT = """
import os, sys
import cairn
from cairn.offline.erasing import erase
place, name = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), 9)
owner = erase.ErasePlan if hasattr(erase.ErasePlan, name) else erase
setattr(owner, name, die)
with cairn.erase(place, key={"user": 12}) as plan:
    plan.apply(processes=1)
"""


def erase(checkpoint: RunningCheckpoint, user: int = USER, **options: Any) -> Any:  # noqa: ANN401
    """Erase a key, as a person does who has looked at the plan."""
    with cairn.erase(str(checkpoint.folder), key={"user": user}) as plan:
        return plan.apply(processes=1, **options)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder, without the locks of local stores."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".cairn.lock"
    }


def goes_on(checkpoint: RunningCheckpoint, user: int = USER) -> None:
    """Check that all other rows are there, and that the query goes on from them."""
    rows = {other: row for other, row in checkpoint.rows[-1].items() if other != user}
    assert checkpoint.state() == rows
    checkpoint.adopt(rows)
    checkpoint.start()
    for number in range(4):
        checkpoint.commit({other: (200 + number, other) for other in range(3)})
        checkpoint.snapshot()
    assert checkpoint.state() == checkpoint.rows[-1]
    assert user not in checkpoint.rows[-1]
    checkpoint.stop()
    with cairn.gc(str(checkpoint.folder), grace_s=0) as plan:
        plan.apply()
    assert checkpoint.state() == checkpoint.rows[-1]


def test_the_key_is_in_no_version(stopped: RunningCheckpoint) -> None:
    """Older versions of the store that had it are gone; those of other stores stay."""
    partition = partition_of_user(USER)
    store = stopped.folder / f"state/0/{partition}"
    before = {number: contents(stopped.folder / f"state/0/{number}") for number in range(3)}

    (done,) = erase(stopped)

    assert done == ErasedStore(0, "default", partition, {"default": 1}, done.objects)
    assert done.objects > 3
    assert {name for name in before[partition] if "_metadata" in name} <= set(contents(store))
    new = {name for name in contents(store) if "_metadata" not in name}
    assert not new & set(before[partition])
    assert len([name for name in new if name.startswith("changelog/")]) == 1
    (manifest,) = store.glob("snapshot/*")
    named = {one["object"] for one in json.loads(manifest.read_bytes())["files"]}
    assert {name for name in new if name.startswith("sst/")} == named
    for number in set(range(PARTITIONS)) - {partition}:
        after = contents(stopped.folder / f"state/0/{number}")
        assert after.items() >= before[number].items()
        assert len(after) == len(before[number]) + (stopped.checkpoint_format == 1)
    with cairn.open_checkpoint(str(stopped.folder)) as checkpoint:
        with pytest.raises(DataError):
            checkpoint.state(batch=8).to_table()
        others = set(range(PARTITIONS)) - {partition}
        found = checkpoint.state(batch=8).reader(partitions=others).read_all()
        assert found.num_rows == sum(
            partition_of_user(user) != partition for user in stopped.rows[8]
        )
    with cairn.erase(str(stopped.folder), key={"user": USER}) as plan:
        assert plan.stores == ()
    goes_on(stopped)


def test_a_key_of_older_versions_is_found(stopped: RunningCheckpoint) -> None:
    """The operator has removed it, and objects still have it."""
    stopped.start()
    stopped.commit({USER: None})
    stopped.stop()

    (done,) = erase(stopped)

    assert done.keys == {}
    assert done.objects > 3
    goes_on(stopped)


def test_a_key_that_was_never_there_costs_nothing(stopped: RunningCheckpoint) -> None:
    """A wrong key must not take the history of a store."""
    before = contents(stopped.folder)

    assert erase(stopped, 7_000) == ()

    assert contents(stopped.folder) == before


def test_the_record_has_counts_and_no_key(stopped: RunningCheckpoint) -> None:
    """A record of an erasure that names the person would undo it."""
    done = erase(stopped)

    (path,) = stopped.folder.glob("cairn-log/*-erase-*/record.json")
    assert [file for file in path.parent.rglob("*") if file.is_file()] == [path]
    record = json.loads(path.read_bytes())
    assert record["done"][0]["keys"] == done[0].keys
    assert record["done"][1]["deleted_objects"] > 3
    assert record["ended"]
    (step,) = record["steps"]
    assert set(step) == {"batch", "committed_ms", "key_sha256", "operator"}


def test_savepoints_with_the_key_stop_the_command(stopped: RunningCheckpoint) -> None:
    """A person decides about each."""
    place = str(stopped.folder)
    cairn.create_savepoint(place, name="kept", batch=8)
    before = contents(stopped.folder)

    with pytest.raises(ConfigError, match="kept"):
        erase(stopped)

    assert contents(stopped.folder) == before
    erase(stopped, deletes_savepoints=True)
    assert cairn.list_savepoints(place) == ()
    goes_on(stopped)


def test_copies_of_removed_objects_are_deleted(stopped: RunningCheckpoint) -> None:
    """`repair` keeps what it removes."""
    partition = partition_of_user(USER)
    removed = stopped.folder / "cairn-log/20260101T000000Z-repair-ab/removed/state/0"
    for number in range(PARTITIONS):
        (removed / f"{number}/changelog").mkdir(parents=True)
        (removed / f"{number}/changelog/3.arrow").write_bytes(b"rows")

    erase(stopped)

    left = {path.relative_to(removed).parts[0] for path in removed.rglob("*.arrow")}
    assert left == {str(number) for number in range(PARTITIONS)} - {str(partition)}


def test_files_of_another_provider_are_deleted(stopped: RunningCheckpoint) -> None:
    """A migration within the checkpoint has left them, with the former state."""
    store = stopped.folder / f"state/0/{partition_of_user(USER)}"
    (store / "3.delta").write_bytes(b"rows")

    erase(stopped)

    assert not (store / "3.delta").exists()


@pytest.mark.parametrize("name", ["run_move", "unchanged_stores", "_delete"])
def test_a_killed_command_is_finished_by_the_same_one(
    stopped: RunningCheckpoint, name: str
) -> None:
    """Either nothing has happened, or the same command deletes what is left."""
    place = str(stopped.folder)
    command = [sys.executable, "-c", KILLED_AT, place, name]
    killed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    is_committed = (stopped.folder / "commits/10").exists()
    assert is_committed is (name == "_delete")
    for log in ("offsets", "commits"):
        for path in (stopped.folder / log).iterdir():
            age(path)

    with cairn.erase(place, key={"user": USER}) as plan:
        assert plan.is_committed is is_committed
        (done,) = plan.apply(processes=1)

    assert done.keys == {"default": 1}
    with cairn.erase(place, key={"user": USER}) as plan:
        assert (plan.stores, plan.is_committed) == ((), False)
    goes_on(stopped)


def fail(checkpoint: RunningCheckpoint, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the command until an error, in place of the step of this name, ends it."""

    def fails(*_: object, **__: object) -> None:
        raise UnavailableError("the storage is away")

    owner = "ErasePlan." if name == "_delete" else ""
    with monkeypatch.context() as patch:
        patch.setattr(f"cairn.offline.erasing.erase.{owner}{name}", fails)
        with pytest.raises(UnavailableError):
            erase(checkpoint)
    for log in ("offsets", "commits"):
        for path in (checkpoint.folder / log).iterdir():
            age(path)


def test_a_savepoint_that_was_created_behind_a_failed_attempt_is_asked_for(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be left, without its objects."""
    place = str(stopped.folder)
    fail(stopped, "run_move", monkeypatch)
    cairn.create_savepoint(place, name="safe")

    with pytest.raises(ConfigError, match="safe"):
        erase(stopped)
    (done,) = erase(stopped, deletes_savepoints=True)

    assert done.keys == {"default": 1}
    assert list(cairn.list_savepoints(place)) == []
    records = [json.loads(path.read_text()) for path in stopped.folder.glob("cairn-log/*/*.json")]
    assert [one["ended"] for one in records if one["ended"] is None] == []
    goes_on(stopped)


def test_a_savepoint_that_was_created_behind_the_commit_is_asked_for(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older batches are there until the same command has deleted them."""
    place = str(stopped.folder)
    fail(stopped, "_delete", monkeypatch)
    cairn.create_savepoint(place, name="later", batch=9)
    cairn.create_savepoint(place, name="without-the-key", batch=10)

    with cairn.erase(place, key={"user": USER}) as plan:
        assert (plan.is_committed, plan.savepoints) == (True, ("later",))
        with pytest.raises(ConfigError, match="later"):
            plan.apply(processes=1)
        plan.apply(processes=1, deletes_savepoints=True)

    (kept,) = cairn.list_savepoints(place)
    assert (kept.name, kept.status) == ("without-the-key", "whole")
    goes_on(stopped)


def test_what_came_behind_a_failed_attempt_is_erased_too(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has gone on, and back to the batch from which the attempt began."""
    place = str(stopped.folder)
    fail(stopped, "run_move", monkeypatch)
    stopped.start()
    for number in (77, 78):
        stopped.commit({USER: (number, number)})
    stopped.stop()
    with cairn.restore(place, to_batch=9) as plan:
        plan.apply()
    for batch in (10, 11):
        (stopped.folder / f"offsets/{batch}").unlink(missing_ok=True)
    stopped.go_back(9)
    age(stopped.folder / "commits/9")

    erase(stopped)

    with cairn.erase(place, key={"user": USER}) as plan:
        assert (plan.stores, plan.is_committed) == ((), False)
    goes_on(stopped)


def test_the_command_says_that_no_object_has_the_key(stopped: RunningCheckpoint) -> None:
    """A key that is mistyped must not look as if it were erased."""
    command = ["erase", str(stopped.folder), "--key", '{"user": 4711}', "--apply"]

    result = CliRunner().invoke(main, command)

    assert (result.exit_code, result.stderr) == (0, "No object has this key.\n")


def test_versions_that_were_given_up_lose_the_key_and_their_names(
    stopped: RunningCheckpoint,
) -> None:
    """In checkpoint format 1 the new version, and those of a driver behind it, have these names."""
    place = str(stopped.folder)
    with cairn.restore(place, to_batch=6) as plan:
        plan.apply()
    for batch in (7, 8, 9):
        (stopped.folder / f"offsets/{batch}").unlink(missing_ok=True)
    stopped.go_back(6)
    age(stopped.folder / "commits/6")
    killed = [sys.executable, "-c", KILLED_AT, place, "_delete"]
    subprocess.run(killed, capture_output=True, check=False)  # noqa: S603 - this test
    rows = {user: row for user, row in stopped.rows[-1].items() if user != USER}
    assert stopped.state() == rows
    stopped.adopt(rows)
    stopped.start()
    for number in range(3):
        stopped.commit({user: (300 + number, user) for user in range(30) if user != USER})
    stopped.stop()

    (done,) = erase(stopped)

    assert done.objects > 3
    assert stopped.state() == stopped.rows[-1]
    with cairn.erase(place, key={"user": USER}) as plan:
        assert plan.stores == ()


def test_a_driver_that_has_run_the_batch_is_not_taken_for_the_command(
    stopped: RunningCheckpoint,
) -> None:
    """Otherwise its objects would be deleted under it."""
    place = str(stopped.folder)
    command = [sys.executable, "-c", KILLED_AT, place, "unchanged_stores"]
    subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - this test
    (stopped.folder / "offsets/10").unlink()  # the hold
    stopped.start()
    stopped.commit({USER: (500, 500)})
    stopped.stop()

    with cairn.erase(place, key={"user": USER}) as plan:
        assert not plan.is_committed
        plan.apply(processes=1)

    goes_on(stopped)


def test_a_running_query_is_not_changed(written: RunningCheckpoint) -> None:
    """Its next batch would bring the key back."""
    before = contents(written.folder)
    with pytest.raises(InUseError, match="written"):
        erase(written)

    assert contents(written.folder) == before


def test_a_key_that_no_store_can_have_is_refused(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """A misspelled column must not look like success."""
    place = str(stopped.folder)
    with pytest.raises(NotThereError, match="0/default: user"):
        cairn.erase(place, key={"person": 1})
    with pytest.raises(ConfigError, match="'user' is not of type int64"):
        cairn.erase(place, key={"user": "ann"})
    hdfs = SmallCheckpoint(tmp_path / "hdfs")
    hdfs.commit({1: (1, 1)})
    with pytest.raises(UnsupportedStateError, match="migrate"):
        cairn.erase(str(hdfs.folder), key={"user": 1})


def test_other_rows_that_change_are_noticed(
    stopped: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the batch is committed."""

    def nothing(*_: object) -> Any:  # noqa: ANN401 - an iterator
        return iter(())

    monkeypatch.setattr("cairn.offline.erasing.matching.WithoutKey.rows", nothing)

    with pytest.raises(DataError, match="others that it had before"):
        erase(stopped)

    assert not (stopped.folder / "commits/10").exists()
    assert stopped.state() == stopped.rows[-1]


def test_the_command_prints_its_plan_and_then_does_it(stopped: RunningCheckpoint) -> None:
    """As all commands that change a checkpoint."""
    command = ["erase", str(stopped.folder), "--key", f'{{"user": {USER}}}', "-o", "ndjson"]

    planned = CliRunner().invoke(main, command)
    done = CliRunner().invoke(main, [*command, "--apply", "--processes", "1"])
    again = CliRunner().invoke(main, command)

    assert (planned.exit_code, done.exit_code, again.exit_code) == (3, 0, 0), done.output
    assert "cannot go back behind it" in planned.stderr
    assert json.loads(planned.stdout) | {"erased": True} == json.loads(done.stdout)
    assert again.stdout == ""
    goes_on(stopped)


@pytest.mark.parametrize(
    ("key_type", "users", "written_as"),
    [
        ("double", [0.49543508709194095, 0.5], "0.49543508709194095"),
        ("timestamp", [253_402_300_800_000_000, 1], '"10000-01-01T00:00:00Z"'),
        ("time(9)", [1, 1000], '"00:00:00.000000001"'),
    ],
)
def test_the_command_erases_keys_of_any_type_as_they_are_printed(
    tmp_path: Path, key_type: str, users: list[Any], written_as: str
) -> None:
    """Python has neither all times nor nanoseconds, and a number may be rounded to another key."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", key_type=key_type)
    for number in range(3):
        written.commit(dict.fromkeys(users, (number, number)))
    written.stop()
    command = ["erase", str(written.folder), "--key", f'{{"user": {written_as}}}', "-o", "ndjson"]

    done = CliRunner().invoke(main, [*command, "--apply", "--processes", "1"])

    assert (done.exit_code, json.loads(done.stdout)["keys"]) == (0, 1), done.output
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        left = checkpoint.state().to_table()["user"]
    expected = pa.array(users[1:]) if key_type == "double" else pa.array(users[1:]).cast(left.type)
    assert left.combine_chunks().equals(expected)
