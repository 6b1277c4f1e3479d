"""The resident memory and the CPU time of a process and of all that it starts."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

INTERVAL_S = 0.25
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")  # per second


class PeakMemory:
    """Samples the sum of a session's processes between ``__enter__`` and ``__exit__``.

    Args:
        session_id: id of the session: of the process that was started with one of its own.

    Attributes:
        peak_bytes: the largest sum so far. Pages that processes share count in each of them.
    """

    def __init__(self, session_id: int) -> None:
        self.peak_bytes = 0
        self._session_id = session_id
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._session_id))
            if self._is_over.wait(INTERVAL_S):
                return


def resident_bytes(session_id: int) -> int:
    """Return the resident bytes of all processes of a session together."""
    return sum(int(fields[24 - 3]) for fields in _stats(session_id).values()) * _PAGE_BYTES


def cpu_seconds(session_id: int) -> float:
    """Return the CPU time so far of all processes of a session, and of children that ended."""
    stats = _stats(session_id).values()
    return sum(sum(map(int, fields[14 - 3 : 18 - 3])) for fields in stats) / _TICKS


def session_processes(session_id: int) -> list[int]:
    """Return the ids of all processes of a session."""
    return list(_stats(session_id))


def _stats(session_id: int) -> dict[int, list[str]]:
    """Return what the kernel says of each process of a session: its fields from the third on."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(errors="replace")
        except OSError:  # it has ended
            continue
        # The name, in parentheses, may contain spaces. Field 6 is the session.
        fields = stat.rpartition(")")[2].split()
        if int(fields[6 - 3]) == session_id:
            found[int(entry.name)] = fields
    return found
