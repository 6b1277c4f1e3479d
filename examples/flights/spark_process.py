"""One run of the demo's Spark driver: spark-submit as a child process in its own session.

The child is the driver JVM itself, because spark-submit execs it. Python workers and engines are
its descendants in the same session, so that they can be found when the JVM is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

LEFTOVERS_END_S = 10.0


class SparkProcess:
    """A running driver JVM and the events that its application writes.

    Args:
        command: the spark-submit command line.
        environment: all environment variables of the child.
        log: the child's output is appended to this file.
        events: the application writes its JSON lines to this file.
    """

    def __init__(
        self, command: list[str], environment: dict[str, str], log: Path, events: Path
    ) -> None:
        self.log = log
        self.started_at = time.time()
        self._events = events
        self._offset = 0
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id of the driver JVM, which is also the id of its session."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """The JVM's exit code; None while it runs."""
        return self._child.poll()

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events since the last call, oldest first, without an incomplete line."""
        if not self._events.exists():
            return []
        with self._events.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().rpartition(b"\n")[0]
        self._offset += len(lines) + 1 if lines else 0
        return [json.loads(line) for line in lines.splitlines()]

    def kill(self) -> None:
        """End the driver JVM by SIGKILL and wait until it is gone.

        Raises:
            RuntimeError: the child is not a JVM, or has ended in another way.
        """
        name = Path(f"/proc/{self.pid}/comm")
        if name.exists() and name.read_text().strip() != "java":
            raise RuntimeError(f"process {self.pid} is {name.read_text().strip()}, not the JVM")
        os.kill(self.pid, signal.SIGKILL)
        code = self._child.wait(timeout=30)
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the driver JVM ended with {code}, not by SIGKILL")

    def end(self) -> list[int]:
        """End all processes of this run; kill those that do not end by themselves.

        Returns:
            The ids of the killed processes.
        """
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        deadline = time.monotonic() + LEFTOVERS_END_S
        while (left := session_members(self.pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return left


def session_members(session: int) -> list[int]:
    """Return the ids of the live processes of a session, from ``/proc`` or else from ``ps``."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        lines = subprocess.check_output(["ps", "-A", "-o", "pid=,sess="], text=True).splitlines()
        pairs = [line.split() for line in lines]
        return [int(pid) for pid, sess in pairs if sess == str(session)]
    members = []
    for stat in proc.glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid pgrp session; the name may contain blanks and brackets.
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members
