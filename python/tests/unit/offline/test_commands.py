"""`cairn repair`, `cairn gc` and `cairn savepoint` on the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from running_checkpoint import RunningCheckpoint, age

from cairn.cli.main import main

HOLDS = """
import sys
from cairn.offline.hold import HeldCheckpoint
from cairn.storage.open import open_store
with HeldCheckpoint(open_store(sys.argv[1], {}), "repair"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def written(tmp_path: Path) -> RunningCheckpoint:
    """Return a checkpoint with four batches, whose newest changelog is gone and whose logs are old.

    It has an orphan, too.
    """
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    for batch in range(4):
        written.commit({user: (batch, user) for user in range(20)})
        if batch < 3:
            written.snapshot()
    written.stop()
    next((written.folder / "state/0/1/changelog").glob("4_*")).unlink()
    orphan = written.folder / f"state/0/0/sst/{'ab' * 16}.sst"
    orphan.write_bytes(b"left")
    age(orphan)
    return written


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, list(arguments))


def rows_of(result: Result) -> list[dict[str, object]]:
    """Return the rows of the output."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_repair_prints_its_plan_and_then_does_it(written: RunningCheckpoint) -> None:
    """The exit code says whether something is left to do."""
    folder = str(written.folder)

    planned = run("repair", folder, "-o", "ndjson")
    done = run("repair", folder, "-o", "ndjson", "--apply")
    again = run("repair", folder, "-o", "json")

    assert (planned.exit_code, done.exit_code, again.exit_code) == (3, 0, 0)
    assert "Nothing was changed" in planned.stderr
    for result, is_done in ((planned, False), (done, True)):
        (row,) = rows_of(result)
        assert row["action"] == "remove-entry"
        assert str(row["object"]).endswith("commits/3")
        assert row["done"] is is_done
    assert again.stdout.strip() == "[]"
    assert (written.folder / "offsets/3").exists()


def test_what_older_batches_alone_need_is_shown_and_is_no_finding(
    written: RunningCheckpoint,
) -> None:
    """After a repair nothing is left to do, though the damaged snapshot is still there."""
    manifest = max((written.folder / "state/0/1/snapshot").iterdir())
    manifest.write_bytes(b"damaged")

    done = run("repair", str(written.folder), "--apply")
    again = run("repair", str(written.folder), "-o", "ndjson")

    assert (done.exit_code, again.exit_code) == (0, 0), done.output
    assert {row["action"] for row in rows_of(again)} <= {"not-needed"}


def test_gc_prints_its_plan_and_then_does_it(written: RunningCheckpoint) -> None:
    """Sizes are there for a person to decide."""
    folder = str(written.folder)

    planned = run("gc", folder)
    done = run("gc", folder, "-o", "ndjson", "--apply")

    assert planned.exit_code == 3
    assert "1 objects, 4 bytes. Nothing was deleted." in planned.stderr
    assert done.exit_code == 0, done.output
    assert [row["bytes"] for row in rows_of(done)] == [4]
    assert run("gc", folder).exit_code == 0


def test_a_command_that_was_killed_is_followed_by_another(written: RunningCheckpoint) -> None:
    """A real `kill -9`: while the process lives nobody else may change the checkpoint."""
    folder = str(written.folder)
    with subprocess.Popen(  # noqa: S603 - this file's own program
        [sys.executable, "-c", HOLDS, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        beside = run("repair", folder, "--apply")
        found = run("verify", folder, "-o", "ndjson")
        holder.send_signal(signal.SIGKILL)
        holder.wait()

    after = run("repair", folder, "--apply")

    assert beside.exit_code == 1
    assert f"process {holder.pid} on" in beside.output
    assert "CAIRN_IN_USE" in beside.output
    rules = {str(row["rule"]) for row in rows_of(found)}
    assert "held" in rules
    assert "planned-ahead" not in rules
    assert after.exit_code == 0, after.output
    assert sorted(path.name for path in (written.folder / "offsets").glob("[0-9]*")) == list("0123")


def test_a_savepoint_is_created_listed_and_deleted(tmp_path: Path) -> None:
    """Scripts read the names of the columns, and the exit codes."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    written.commit({user: (1, user) for user in range(20)})
    folder = str(written.folder)

    create = ("savepoint", "create", folder, "--name", "one", "--batch", "0", "-o", "ndjson")
    delete = ("savepoint", "delete", folder, "--name", "one", "-o", "ndjson")
    planned = run(*create)
    none = run("savepoint", "list", folder, "-o", "json")
    made = run(*create, "--apply")
    again = run("savepoint", "create", folder, "--name", "one")
    shown = run(*delete)
    listed = run("savepoint", "list", folder, "-o", "ndjson")
    deleted = run(*delete, "--apply")
    absent = run("savepoint", "delete", folder, "--name", "one")
    left = run("savepoint", "list", folder, "-o", "json")
    written.stop()

    about = {"name": "one", "batch": 0, "stores": 3}
    assert (planned.exit_code, rows_of(planned)) == (3, [about | {"done": False}])
    assert none.stdout.strip() == "[]"
    assert (made.exit_code, rows_of(made)) == (0, [about | {"done": True}])
    assert (shown.exit_code, rows_of(shown)) == (3, [about | {"done": False}])
    assert (again.exit_code, absent.exit_code) == (1, 4)
    assert "there is a savepoint 'one'" in again.output
    assert "there is no savepoint 'one'; there are: none" in absent.output
    (row,) = rows_of(listed)
    assert str(row.pop("created")).endswith("+00:00")
    assert row == {"name": "one", "batch": 0, "stores": 3, "missing": 0, "status": "whole"}
    assert (deleted.exit_code, rows_of(deleted)) == (0, [about | {"done": True}])
    assert left.stdout.strip() == "[]"


def test_a_folder_without_a_query_is_not_there(tmp_path: Path) -> None:
    """A misspelled location must not look as if nothing were to do."""
    for command in (["repair"], ["gc"], ["savepoint", "list"], ["savepoint", "create"]):
        result = run(*command, str(tmp_path))
        assert result.exit_code == 4
        assert "CAIRN_NOT_THERE" in result.output
