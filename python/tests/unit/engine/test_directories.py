"""Workers that start at once on one local disk do not remove each other's directories."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cairn.engine import directories
from cairn.engine.directories import WorkerDirectories


def test_a_worker_that_is_just_starting_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock file exists and is not locked yet: the other would remove its directory."""
    made, go_on = threading.Event(), threading.Event()
    lock = directories._lock
    started: list[WorkerDirectories] = []

    def slow_lock(root: Path) -> int:
        (root / "lock").touch()
        if not made.is_set():
            made.set()
            assert go_on.wait(20)
        return lock(root)

    def start() -> None:
        started.append(WorkerDirectories(tmp_path / "local", tmp_path / "sockets"))

    monkeypatch.setattr(directories, "_lock", slow_lock)
    first, second = threading.Thread(target=start), threading.Thread(target=start)
    first.start()
    assert made.wait(20)
    second.start()
    second.join(0.3)
    go_on.set()
    first.join(20)
    second.join(20)

    assert len(started) == 2
    for one in started:
        assert (one.root / "lock").exists()
        os.close(one._lock)
        one.remove()
