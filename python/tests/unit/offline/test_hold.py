"""The hold of a command that runs, was killed, or is on another machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from running_checkpoint import RunningCheckpoint

import cairn
from cairn.clock import SystemClock
from cairn.errors import AccessError, CairnError, CorruptError, InUseError, UnavailableError
from cairn.format import hold
from cairn.format.hold import Hold
from cairn.offline.hold import HeldCheckpoint, identity_of
from cairn.storage.open import open_store


@pytest.fixture
def written(tmp_path: Path) -> RunningCheckpoint:
    """Return a checkpoint with four batches, which needs nothing."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local")
    for batch in range(4):
        written.commit({user: (batch, user) for user in range(20)})
    written.stop()
    return written


def ended() -> Hold:
    """Return the hold of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        left = Hold("repair", socket.gethostname(), process.pid, identity_of(process.pid), "t", 0)
        process.communicate(b"\n")
    return left


def leave(written: RunningCheckpoint, left: Hold) -> Path:
    """Let a hold stand in a checkpoint."""
    entry = written.folder / "offsets/4"
    entry.write_bytes(hold.encode(left))
    return entry


@pytest.mark.parametrize("command", ["repair", "gc"])
def test_what_a_killed_command_left_goes_though_nothing_else_is_to_do(
    written: RunningCheckpoint, command: str
) -> None:
    """It was killed behind its last step: without its entry the query starts again."""
    entry = leave(written, ended())
    plan = (
        cairn.repair(str(written.folder)) if command == "repair" else cairn.gc(str(written.folder))
    )

    with plan:
        assert entry.exists()
        plan.apply()

    assert not entry.exists()


def test_a_plan_shows_the_hold(written: RunningCheckpoint) -> None:
    """With a plan that is empty nobody would see why the query does not start."""
    leave(written, ended())

    with cairn.repair(str(written.folder)) as plan:
        (step,) = plan.steps
    with cairn.gc(str(written.folder)) as orphans:
        assert orphans.hold is not None

    assert step.action == "remove-entry"
    assert str(step.object_name).endswith("offsets/4")
    assert "cairn repair` changes this checkpoint" in step.reason


def test_a_process_with_the_same_id_is_another_one(written: RunningCheckpoint) -> None:
    """A container that is started again has the same ids as before."""
    mine = identity_of(os.getpid())
    earlier = mine.rpartition("/")[0] + "/1"
    entry = leave(written, Hold("gc", socket.gethostname(), os.getpid(), earlier, "t", 0))

    with cairn.gc(str(written.folder)) as plan:
        plan.apply()

    assert not entry.exists()


@pytest.mark.parametrize(
    ("host", "process"),
    [("elsewhere", ""), (None, "another-boot/pid:[1]/5"), (None, "parent")],
    ids=["host", "namespace", "alive"],
)
def test_a_process_that_may_be_alive_keeps_its_hold(
    written: RunningCheckpoint, host: str | None, process: str
) -> None:
    """A container beside this one has the same name of the host, and other processes."""
    process = identity_of(os.getppid()) if process == "parent" else process
    pid = os.getppid() if process else 2**22 - 1
    entry = leave(written, Hold("gc", host or socket.gethostname(), pid, process, "t", 0))

    with (
        cairn.gc(str(written.folder)) as plan,
        pytest.raises(InUseError, match=r"process \d+ on .*delete the commit.*, then this entry"),
    ):
        plan.apply()

    assert entry.exists()


def test_a_hold_that_could_not_be_marked_as_left_is_one_that_has_ended(
    written: RunningCheckpoint,
) -> None:
    """On a full disk it stays as it is; the notebook that repeats the work goes on running."""
    hold_ = Hold("gc", socket.gethostname(), os.getpid(), identity_of(os.getpid()), "t", 0)
    entry = leave(written, hold_)

    with cairn.gc(str(written.folder)) as plan:
        plan.apply()

    assert not entry.exists()


def test_work_of_this_process_keeps_its_hold(written: RunningCheckpoint) -> None:
    """Two threads of a notebook may change one checkpoint."""
    objects = open_store(str(written.folder), {})

    with (
        HeldCheckpoint(objects, "gc"),
        cairn.gc(str(written.folder)) as plan,
        pytest.raises(InUseError),
    ):
        plan.apply()


def test_of_two_commands_that_find_a_hold_one_takes_it(written: RunningCheckpoint) -> None:
    """The other one had read the entry before."""
    leave(written, ended())
    first, second = (open_store(str(written.folder), {}) for _ in range(2))
    real, held = second.put_if_match, HeldCheckpoint(first, "gc")

    def late(key: str, data: bytes, etag: str) -> None:
        held.__enter__()
        real(key, data, etag)

    second.put_if_match = late  # type: ignore[method-assign, assignment]

    with pytest.raises(InUseError, match="offsets/4 was written just now"):
        HeldCheckpoint(second, "gc").__enter__()

    assert held.token.encode() in (written.folder / "offsets/4").read_bytes()
    held.__exit__()


def test_a_hold_of_a_newer_release_is_no_cut_entry(written: RunningCheckpoint) -> None:
    """Otherwise a repair would remove it while that command runs."""
    (written.folder / "offsets/4").write_bytes(b'text\n{"magic":"CAIRN-HOLD","format":2}\n')

    with pytest.raises(CairnError, match="CAIRN_FORMAT_VERSION"):
        cairn.repair(str(written.folder))


def test_the_hold_is_behind_a_commit_without_plan(written: RunningCheckpoint) -> None:
    """In its place the commit would look like one of a planned batch."""
    (written.folder / "offsets/3").unlink()
    with HeldCheckpoint(open_store(str(written.folder), {}), "gc") as held:
        assert held.batches.committed == (0, 1, 2)
        assert (written.folder / "offsets/4").exists()

    with cairn.repair(str(written.folder)) as plan:
        plan.apply()

    assert not (written.folder / "commits/3").exists()


def test_how_long_the_logs_were_quiet_is_told_by_the_clock_of_the_storage(
    written: RunningCheckpoint,
) -> None:
    """That of this machine may be wrong, the times of objects are of the other one."""

    class WrongClock(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(days=2)

    objects = open_store(str(written.folder), {})
    objects.server_time = SystemClock().now  # type: ignore[method-assign]

    with HeldCheckpoint(objects, "gc", WrongClock()) as held:
        assert held.batches.committed == (0, 1, 2, 3)


def test_who_may_not_delete_leaves_no_hold(written: RunningCheckpoint) -> None:
    """Nobody but another person could end it."""
    objects = open_store(str(written.folder), {})

    def delete(keys: Sequence[str]) -> None:
        raise AccessError("access is denied", object_name=objects.object_url(keys[0]))

    objects.delete = delete  # type: ignore[method-assign]

    with pytest.raises(AccessError):
        HeldCheckpoint(objects, "gc").__enter__()

    assert not (written.folder / "offsets/4").exists()


def test_the_first_error_is_shown_though_the_hold_stays(
    written: RunningCheckpoint, caplog: pytest.LogCaptureFixture
) -> None:
    """That of the hold would hide it."""
    objects = open_store(str(written.folder), {})

    def delete(keys: Sequence[str]) -> None:
        raise UnavailableError("does not answer", object_name=objects.object_url(keys[0]))

    held = HeldCheckpoint(objects, "gc").__enter__()
    objects.delete = delete  # type: ignore[method-assign]

    held.__exit__(CorruptError, CorruptError("what went wrong"), None)

    assert "the hold stays" in caplog.text
    assert "offsets/4" in caplog.text


def test_an_entry_of_the_future_is_called_so(written: RunningCheckpoint) -> None:
    """To wait does not help: one of the clocks is wrong."""
    entry = written.folder / "commits/3"
    later = entry.stat().st_mtime + 3 * 86_400
    os.utime(entry, (later, later))

    with pytest.raises(InUseError, match=r"commits/3 was written \d+ s later than it is"):
        HeldCheckpoint(open_store(str(written.folder), {}), "gc").__enter__()
