"""What the instances of a worker share."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace

import pytest
from rig import Rig

from cairn.clock import FakeClock
from cairn.rocks import RocksMemory
from cairn.store.shared import resources
from cairn.store.shared.resources import PendingBytes

MIB = 1 << 20


def test_memory_is_released_once_for_all_calls_of_a_second(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release per commit makes the system clear the same pages for the next commit."""
    started: list[threading.Timer] = []
    monkeypatch.setattr(threading.Timer, "start", lambda timer: started.append(timer))  # noqa: PLW0108 - a method
    released: list[int] = []

    class Library:
        malloc_trim = staticmethod(released.append)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    worker = replace(rig.resources)

    worker.release_memory()
    worker.release_memory()
    assert len(started) == 1
    assert not released

    started[0].function()
    assert released == [0]
    worker.release_memory()
    assert len(started) == 2, "memory that was freed after a release must be released too"


def test_unused_memory_is_returned_at_once_where_the_process_has_grown(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freed memory between buffers in use is kept otherwise: the worker exceeded its bound."""
    released: list[int] = []

    class Library:
        malloc_trim = staticmethod(released.append)

    monkeypatch.setattr(ctypes, "CDLL", lambda _: Library)
    sizes = iter([50 * MIB, 150 * MIB, 151 * MIB, 200 * MIB])
    monkeypatch.setattr(resources, "resident_bytes", lambda: next(sizes))
    clock = FakeClock()
    worker = replace(rig.resources, high_memory_bytes=100 * MIB, clock=clock)

    worker.release_memory_if_high()
    assert not released
    worker.release_memory_if_high()
    assert released == [0]
    worker.release_memory_if_high()
    assert released == [0], "memory in use is not looked through again at once"
    clock.advance(0.1)
    worker.release_memory_if_high()
    assert released == [0, 0]


STORE = object()


def states(pending: PendingBytes, store: object = STORE) -> tuple[bool, bool]:
    return pending.is_high, pending.must_wait(store)


def test_pending_bytes_use_the_half_of_what_the_block_cache_does_not_need() -> None:
    memory = RocksMemory(40 * MIB, MIB)
    pending = PendingBytes(20 * MIB, memory)
    # A quarter of the cache is kept; the other half of the 30 MiB is for the merge.
    assert pending.limit_bytes == 35 * MIB

    lent: list[bool] = []
    for amount in (20 * MIB, 5 * MIB):
        pending.add(STORE, amount)
        lent.append(memory.is_lent)
    assert lent == [False, True]
    assert states(pending) == (False, False)
    pending.add(STORE, 10 * MIB)
    assert states(pending) == (True, False)
    pending.add(STORE, 1)
    assert states(pending) == (True, True)
    pending.add(STORE, -15 * MIB - 1)
    assert not memory.is_lent


def test_without_a_block_cache_the_share_is_the_bound() -> None:
    pending = PendingBytes(20)

    pending.add(STORE, 10)
    assert states(pending) == (False, False)
    pending.add(STORE, 10)
    assert states(pending) == (True, False)
    pending.add(STORE, 1)
    assert states(pending) == (True, True)


def test_rows_are_written_before_the_next_commits_must_wait() -> None:
    """At the half of the bound, 25 MiB, the commits of one batch more would not fit into it."""
    pending = PendingBytes(20 * MIB, RocksMemory(40 * MIB, MIB))
    first, second = object(), object()
    pending.expect(first, 3 * MIB)
    pending.expect(first, 8 * MIB)
    pending.expect(second, 6 * MIB)

    pending.add(STORE, 21 * MIB)
    assert states(pending) == (False, False)
    pending.add(STORE, 1)
    assert states(pending) == (True, False)

    pending.expect(second, 0)
    assert states(pending) == (False, False), "nothing is expected of a store that was closed"


def test_rows_wait_until_the_half_of_the_share_however_large_the_commits_are() -> None:
    pending = PendingBytes(20)
    pending.expect(object(), 1000)

    pending.add(STORE, 10)
    assert states(pending) == (False, False)
    pending.add(STORE, 1)
    assert states(pending) == (True, False)


def test_a_commit_waits_for_its_own_store_and_others_only_for_memory_that_is_needed() -> None:
    """Above the bound a store has to give back its own rows; a small one is not held up."""
    pending = PendingBytes(1600)
    large, small, new = object(), object(), object()
    pending.add(large, 1600)
    assert not pending.must_wait(large)

    pending.add(small, 100)
    assert [pending.must_wait(store) for store in (large, small, new)] == [True, False, False]
    pending.add(small, 101)
    assert [pending.must_wait(store) for store in (large, small, new)] == [True, True, True]
    pending.add(large, -200)
    assert [pending.must_wait(store) for store in (large, small, new)] == [True, False, False]
    pending.add(large, -501)
    pending.add(small, 700)
    assert [pending.must_wait(store) for store in (large, small, new)] == [True, True, False]
    pending.add(large, -899)
    assert not pending.must_wait(small)
    pending.add(small, -901)
    assert pending.current == 0
    pending.add(large, 900)
    pending.add(new, 701)
    assert [pending.must_wait(store) for store in (large, new)] == [True, False], (
        "a store that has none has no part"
    )
