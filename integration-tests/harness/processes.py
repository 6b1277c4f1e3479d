"""Processes of the tests, found in `/proc` and ended by their ids, never by their names.

A process belongs to the tests if its environment has the marker that the session sets before it
starts anything; all children inherit it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKER = "CAIRN_TEST_RUN"
ENGINE = "cairn.engine"
START_TIMEOUT_S = 120.0
POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """One live process."""

    pid: int
    command: str

    def cpu_s(self) -> float:
        """Return the CPU time of all its threads; 0 if it has ended."""
        try:
            # Linux's clock of a process: clock_getcpuclockid(3).
            return time.clock_gettime(~self.pid << 3 | 2)
        except OSError:
            return 0.0

    def kill(self) -> None:
        """End it by SIGKILL; it may have ended already."""
        # Another process may have its id now.
        if command_of(self.pid) != self.command:
            return
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def command_of(pid: int) -> str | None:
    """Return the command line of a live process; ``None`` if it is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return raw.replace(b"\0", b" ").decode(errors="replace").strip() or None


def parent_of(pid: int) -> int | None:
    """Return the parent's id; ``None`` if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def live_pids() -> list[int]:
    """List the ids of all processes of this machine."""
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
    """List the engine workers among the descendants of a process."""
    return [process for process in descendants(root) if ENGINE in process.command]


def marked(run: str) -> list[Process]:
    """List the live processes, except this one, whose environment has the marker of ``run``."""
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


def server_environment() -> dict[str, str]:
    """Return what a server of the tests inherits: PATH and the marker, and no credentials."""
    marker = {name: value for name, value in os.environ.items() if name.startswith("CAIRN_TEST")}
    return {"PATH": os.environ.get("PATH", ""), **marker}


def end_child(child: subprocess.Popen[Any], timeout_s: float) -> None:
    """End a child process that may have ended: SIGTERM, and SIGKILL after a while."""
    if child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end a test run as Ctrl-C does: the fixtures then end what they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def end_with_descendants(*signals: signal.Signals) -> None:
    """Let these signals end this process and all below it, also those in a session of their own.

    No ``finally`` and no thread runs then: for programs whose files may stay as they are.
    """

    def end(number: int, _frame: object) -> None:
        for process in reversed(descendants(os.getpid())):
            process.kill()
        os._exit(128 + number)

    for one in signals:
        signal.signal(one, end)


def wait_until(
    is_met: Callable[[], bool],
    timeout_s: float,
    what: str,
    explain: Callable[[], str] | None = None,
) -> None:
    """Poll until the condition is met.

    Raises:
        TimeoutError: it is not met within ``timeout_s``; the message has ``what``, ``explain()``.
    """
    deadline = time.monotonic() + timeout_s
    while not is_met():
        if time.monotonic() > deadline:
            details = f"\n{explain()}" if explain else ""
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}{details}")
        time.sleep(POLL_S)


def wait_until_serving(child: subprocess.Popen[bytes], url: str, name: str, log: Path) -> None:
    """Wait until a server that was just started answers a request of ``url``, with any status.

    Raises:
        RuntimeError, TimeoutError: it ended, or does not answer; the message has its log's end.
    """

    def explain() -> str:
        return log.read_text(errors="replace")[-2000:]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - loopback
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    wait_until(lambda: answers() or child.poll() is not None, START_TIMEOUT_S, name, explain)
    if child.poll() is not None:
        raise RuntimeError(f"{name} did not start:\n{explain()}")


def wait_until_ended(processes: list[Process], timeout_s: float) -> list[Process]:
    """Wait for processes to end; return those that have not ended."""
    deadline = time.monotonic() + timeout_s
    left = processes
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left = [process for process in left if command_of(process.pid) == process.command]
    return left


def free_port() -> int:
    """Return a loopback port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def nothing_survives(timeout_s: float = 20.0) -> Iterator[str]:
    """Mark every process started within, and fail at the end if one is still alive.

    A survivor is killed before the failure is raised.
    """
    run = os.environ[MARKER] = uuid.uuid4().hex
    try:
        yield run
    finally:
        del os.environ[MARKER]
        left = wait_until_ended(marked(run), timeout_s)
        for process in left:
            process.kill()
    listing = "\n".join(f"  {process.pid} {process.command[:200]}" for process in left)
    assert not left, f"processes outlived the tests:\n{listing}"
