"""One life of the demo's Spark driver: spark-submit as a child with a session of its own.

The child is the driver JVM itself (spark-submit execs it); Python workers and engines are its
descendants and stay in its session, by which they are found again when the JVM is gone.
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
    """A running driver JVM and the events that its application tells.

    Args:
        command: the spark-submit line.
        environment: for the child, whole.
        log: gets the child's output.
        events: the file to which the application writes its JSON lines.
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
        """The driver JVM's process id, which is also its session's."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """How the JVM ended; None while it lives."""
        return self._child.poll()

    def new_events(self) -> list[dict[str, Any]]:
        """Events told since the last call, oldest first; a line cut by a kill is left out."""
        if not self._events.exists():
            return []
        with self._events.open("rb") as file:
            file.seek(self._offset)
            lines, _, rest = file.read().rpartition(b"\n")
        self._offset += len(lines) + 1 if lines else 0
        del rest
        return [json.loads(line) for line in lines.splitlines()]

    def kill(self) -> None:
        """End the driver JVM by SIGKILL and make sure that it was the JVM, and that it is gone.

        Raises:
            RuntimeError: the child is not a JVM, or ended in another way.
        """
        name = Path(f"/proc/{self.pid}/comm")
        if name.exists() and name.read_text().strip() != "java":
            raise RuntimeError(f"process {self.pid} is {name.read_text().strip()}, not the JVM")
        os.kill(self.pid, signal.SIGKILL)
        code = self._child.wait(timeout=30)
        if code != -signal.SIGKILL:
            raise RuntimeError(f"the driver JVM ended with {code}, not by SIGKILL")

    def end(self) -> list[int]:
        """End what is left of this life; what does not go by itself is killed.

        Returns:
            The ids of the processes that had to be killed.
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
    """Ids of the living processes of a session, by ``ps``'s or ``/proc``'s account."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        lines = subprocess.check_output(["ps", "-A", "-o", "pid=,sess="], text=True).splitlines()
        pairs = [line.split() for line in lines]
        return [int(pid) for pid, sess in pairs if sess == str(session)]
    members = []
    for stat in proc.glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid pgrp session; the name may hold blanks and brackets.
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(stat.parent.name))
    return members
