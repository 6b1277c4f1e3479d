"""A worker with rows of kilobytes to the largest that a frame can hold, against a dictionary."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from client import APPEND, DELETE, PUT, Store, WorkerProcess
from test_memory_bound import MIB

KIB = 1 << 10
FRAME_BYTES = 4 * MIB
LARGEST_BYTES = 60 * MIB
"""A frame has 64 MiB at most."""
LISTS = 1

Sizes = Callable[[random.Random, int], tuple[int, int]]
"""Returns the bytes of key and value of a row, by its number in its batch."""


def keys_of_one_length(_random: random.Random, _number: int) -> tuple[int, int]:
    return 200 * KIB, 20


def keys_of_varied_lengths(random: random.Random, _number: int) -> tuple[int, int]:
    return random.choice([10, KIB, 30 * KIB, 600 * KIB]), 20


def values_of_one_length(_random: random.Random, _number: int) -> tuple[int, int]:
    return 20, MIB


def values_of_varied_lengths(random: random.Random, _number: int) -> tuple[int, int]:
    return 20, random.choice([0, KIB, 100 * KIB, 3 * MIB])


def one_of_the_largest_values(_random: random.Random, number: int) -> tuple[int, int]:
    return 20, LARGEST_BYTES if number == 0 else KIB


def one_of_the_largest_keys(_random: random.Random, number: int) -> tuple[int, int]:
    return (LARGEST_BYTES, 20) if number == 0 else (KIB, 20)


class History:
    """A store and the rows that it must have; each batch puts, replaces and deletes some."""

    def __init__(self, store: Store, sizes: Sizes) -> None:
        self.store = store
        self.sizes = sizes
        self.rows: dict[bytes, bytes] = {}
        self.lists: dict[bytes, bytes] = {}
        self.random = random.Random(7)
        store.load(0)

    def commit_batch(self, row_count: int) -> None:
        frame: list[tuple[int, int, bytes, bytes | None]] = []
        size = 0
        for number in range(row_count):
            key_bytes, value_bytes = self.sizes(self.random, number)
            name = b"%d-%d-" % (self.store.version, number)
            key = name + self.random.randbytes(key_bytes // 2) + bytes(key_bytes - key_bytes // 2)
            value = self.random.randbytes(value_bytes)
            self.rows[key] = value
            frame.append((PUT, 0, key, value))
            size += len(key) + len(value)
            if number % 8 == 3:
                self.lists[key] = value + value
                frame += [(APPEND, LISTS, key, value)] * 2
                size += 2 * (len(key) + len(value))
            if size > FRAME_BYTES:
                self.store.write(frame)
                frame, size = [], 0
        old = sorted(self.rows)[:: max(1, len(self.rows) // 3)]
        for key in old[:3]:
            del self.rows[key]
            frame.append((DELETE, 0, key, None))
        self.store.write(frame)
        self.store.commit()
        self.store.load(self.store.version, self.store.checkpoint_id)

    def check_some(self) -> None:
        keys = self.random.sample(sorted(self.rows), min(4, len(self.rows)))
        absent = [key + b"\0" for key in keys] + [key[:-1] for key in keys]
        for key in [*keys, *absent]:
            ((_, value),) = self.store.get([key])
            assert value == self.rows.get(key)

    def check_all(self) -> None:
        # Not `==` in the assertion: it would print megabytes.
        assert (self.store.scan() == self.rows) is True
        assert (self.store.scan(LISTS) == self.lists) is True


@pytest.mark.parametrize(
    ("sizes", "row_count", "batch_count"),
    [
        pytest.param(keys_of_one_length, 40, 4),
        pytest.param(keys_of_varied_lengths, 40, 6, marks=pytest.mark.slow),
        pytest.param(values_of_one_length, 16, 6, marks=pytest.mark.slow),
        pytest.param(values_of_varied_lengths, 16, 4),
        pytest.param(one_of_the_largest_values, 8, 2, marks=pytest.mark.slow),
        pytest.param(one_of_the_largest_keys, 8, 2, marks=pytest.mark.slow),
    ],
)
def test_large_rows_equal_a_dictionary(
    spawn: Callable[..., WorkerProcess],
    url: str,
    tmp_path: Path,
    sizes: Sizes,
    row_count: int,
    batch_count: int,
) -> None:
    """After commits, a snapshot, and in another worker that replays and opens that snapshot."""
    worker = spawn(memory_bytes=128 * MIB, local_disk_bytes=8 << 30)
    conf = {"minDeltasForSnapshot": "2", "minBatchesToRetain": "2"}
    store = Store(worker, 1, url, conf=conf)
    history = History(store, sizes)
    for _ in range(batch_count):
        history.commit_batch(row_count)
        history.check_some()
    history.check_all()
    worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)
    history.check_all()
    history.commit_batch(row_count)

    other = spawn(local=tmp_path / "other", memory_bytes=128 * MIB)
    again = Store(other, 1, url, conf=conf)
    again.load(store.version, store.checkpoint_id)
    history.store = again
    history.check_all()
