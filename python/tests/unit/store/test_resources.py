"""What the instances of a worker share."""

from __future__ import annotations

import ctypes
import threading

import pytest

from cairn.store import resources


def test_memory_is_released_once_for_all_calls_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release per commit makes the system clear the same pages for the next commit."""
    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))  # noqa: PLW0108 - a method
    released: list[int] = []

    class Library:
        malloc_trim = staticmethod(released.append)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    release = resources._MemoryRelease()

    release.soon()
    release.soon()
    assert len(started) == 1
    assert not released

    started[0].function()
    assert released == [0]
    release.soon()
    assert len(started) == 2, "memory that was freed after a release must be released too"
