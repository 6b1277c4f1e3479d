"""Fixtures: a spawned worker, and a store in it on local files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "property" / "engine"))

from client import Store, WorkerProcess


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Return a function that spawns a worker on ``tmp_path/local``; all are ended afterwards."""
    with ExitStack() as spawned:  # ends all, although one does not end by itself

        def start(**overrides: object) -> WorkerProcess:
            local = overrides.pop("local", tmp_path / "local")
            worker = WorkerProcess(local, **overrides)  # type: ignore[arg-type]
            spawned.callback(worker.close)
            return worker

        yield start


@pytest.fixture
def worker(spawn: Callable[..., WorkerProcess]) -> WorkerProcess:
    """Return a running worker."""
    return spawn()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of the store's objects."""
    return str(tmp_path / "checkpoint" / "state" / "0" / "3")


@pytest.fixture
def store(worker: WorkerProcess, url: str) -> Store:
    """Return instance 1 of the store, loaded at version 0."""
    opened = Store(worker, 1, url)
    opened.load(0)
    return opened
