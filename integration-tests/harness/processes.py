"""Processes of the tests, found by `/proc` and ended by their own ids.

A process is ours when its environment carries the marker that the session set before it started
anything; children inherit it, however they are spawned.  Nothing here ends a process by its name.
"""

from __future__ import annotations

import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

MARKER = "CAIRN_TEST_RUN"
ENGINE = "cairn.engine"
POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """One live process as `/proc` shows it."""

    pid: int
    command: str

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, by its id; a process that is gone is no error."""
        # Its id may be another's by now.
        if command_of(self.pid) != self.command:
            return
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def command_of(pid: int) -> str | None:
    """Give the command line of a live process; ``None`` when it is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return raw.replace(b"\0", b" ").decode(errors="replace").strip() or None


def parent_of(pid: int) -> int | None:
    """Give the parent's id; ``None`` when the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def live_pids() -> list[int]:
    """List every process id of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def descendants(root: int) -> list[Process]:
    """List the live descendants of a process, parents before children."""
    children: dict[int, list[int]] = {}
    for pid in live_pids():
        parent = parent_of(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found, frontier = [], [root]
    while frontier:
        for pid in children.get(frontier.pop(), []):
            frontier.append(pid)
            command = command_of(pid)
            if command is not None:
                found.append(Process(pid, command))
    return found


def engines_of(root: int) -> list[Process]:
    """List the engine workers below a process."""
    return [process for process in descendants(root) if ENGINE in process.command]


def marked(run: str) -> list[Process]:
    """List the live processes, but this one, whose environment carries the marker of ``run``."""
    sign = f"{MARKER}={run}".encode()
    found = []
    for pid in live_pids():
        if pid == os.getpid():
            continue
        try:
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        command = command_of(pid)
        if sign in variables and command is not None:
            found.append(Process(pid, command))
    return found


def wait_until(
    is_met: Callable[[], bool],
    timeout_s: float,
    what: str,
    explain: Callable[[], str] | None = None,
) -> None:
    """Poll until the claim holds.

    Raises:
        TimeoutError: it did not within ``timeout_s``; says ``what`` was awaited, and ``explain()``.
    """
    deadline = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline:
            details = f"\n{explain()}" if explain else ""
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}{details}")
        time.sleep(POLL_S)


def wait_gone(processes: list[Process], timeout_s: float) -> list[Process]:
    """Wait for processes to end; give those that did not."""
    deadline = time.monotonic() + timeout_s
    left = processes
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if command_of(process.pid) == process.command]
    return left


def free_port() -> int:
    """Give a loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Shared:
    """Something that several folders of tests use and the last of them closes.

    pytest makes a session fixture once per conftest that names it; this keeps what it stands for
    single, and closes it when the last of those fixtures ends.
    """

    users: int = 0
    closers: list[Callable[[], None]] = field(default_factory=list)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Hold it open; the last one to leave runs the closers, newest first."""
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            while not self.users and self.closers:
                self.closers.pop()()


_run = Shared()


@contextmanager
def nothing_survives(timeout_s: float = 20.0) -> Iterator[str]:
    """Mark every process started within, and fail at the end when one is still there.

    Nests: only the outermost one to end looks. A survivor is ended before the failure is raised.
    """
    if not _run.users:
        os.environ[MARKER] = uuid.uuid4().hex
        _run.closers.append(lambda: _check_none_left(timeout_s))
    with _run.used():
        yield os.environ[MARKER]


def _check_none_left(timeout_s: float) -> None:
    run = os.environ.pop(MARKER)
    left = wait_gone(marked(run), timeout_s)
    for process in left:
        process.kill()
    if left:
        listing = "\n".join(f"  {process.pid} {process.command[:200]}" for process in left)
        raise AssertionError(f"processes outlived the tests:\n{listing}")
