"""Workers that start concurrently on one local disk do not remove each other's directories."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cairn.engine import directories
from cairn.engine.directories import WorkerDirectories


def test_a_worker_that_is_starting_does_not_count_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock file exists and is not locked yet: the other would remove its directory."""
    is_created, may_continue = threading.Event(), threading.Event()
    lock = directories._lock
    started: list[WorkerDirectories] = []

    def slow_lock(root: Path) -> int:
        (root / "lock").touch()
        if not is_created.is_set():
            is_created.set()
            assert may_continue.wait(20)
        return lock(root)

    def start() -> None:
        started.append(WorkerDirectories(tmp_path / "local", tmp_path / "sockets"))

    monkeypatch.setattr(directories, "_lock", slow_lock)
    first, second = threading.Thread(target=start), threading.Thread(target=start)
    first.start()
    assert is_created.wait(20)
    second.start()
    second.join(0.3)
    may_continue.set()
    first.join(20)
    second.join(20)

    assert len(started) == 2
    for one in started:
        assert (one.root / "lock").exists()
        os.close(one._lock)
        one.remove()
