"""Partitions in threads: their batches are read, and their stores are opened ahead.

Layer: reader.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from cairn.reader.stores.base import StoreRows

_OPENING_THREADS = 8
_THREADS_MAX = 4
_WAITING_BATCHES = 2
"""Batches of a partition that wait for the caller."""
_LOOK_EVERY_S = 0.1


def in_threads(
    read: Callable[[int], Iterator[pa.RecordBatch]], partitions: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of partitions, one partition after the other.

    An error of one ends all. The threads end with the iterator.

    Args:
        read: yields the batches of a partition.
        partitions: their numbers.
    """
    count = min(_THREADS_MAX, os.cpu_count() or 1, len(partitions))
    if count > 1:
        yield from _Readers(read, partitions, count).batches()
        return
    for partition in partitions:
        yield from read(partition)


class OpenedAhead:
    """The stores of partitions, opened by threads before they are needed. Thread-safe.

    Not for speed: a store of Cairn's is protected from retention from then on, and that of the last
    partition may be read hours after that of the first.

    Args:
        open_store: opens the store of a partition.
        partitions: their numbers.
    """

    def __init__(self, open_store: Callable[[int], StoreRows], partitions: Sequence[int]) -> None:
        self._pool = ThreadPoolExecutor(_OPENING_THREADS, "cairn-open")
        self._open_store = open_store
        self._futures = {one: self._pool.submit(self._open, one) for one in partitions}

    def _open(self, partition: int) -> StoreRows:
        store = self._open_store(partition)
        store.rest()
        return store

    def take(self, partition: int) -> StoreRows:
        """Return the store of a partition, once; the caller closes it."""
        return self._futures.pop(partition).result()

    def close(self) -> None:
        """Close the stores that nobody has taken."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for future in self._futures.values():
            if not future.cancelled() and future.exception() is None:
                future.result().close()


class _StoppedError(Exception):
    """The caller wants no more batches."""


class _Ended:
    """What comes after the last batch of a partition."""


class _Readers:
    """Threads that each read one partition after the other, in ascending order of all.

    INVARIANT: the partition whose batches the caller waits for is being read: it is the first one
    that is not complete.
    """

    def __init__(
        self,
        read: Callable[[int], Iterator[pa.RecordBatch]],
        partitions: Sequence[int],
        count: int,
    ) -> None:
        self._read = read
        self._ready: dict[int, queue.Queue[Any]] = {
            place: queue.Queue(_WAITING_BATCHES) for place in range(len(partitions))
        }
        self._todo = iter(enumerate(partitions))
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="cairn-read", daemon=True)
            for _ in range(count)
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for thread in self._threads:
            thread.start()
        try:
            for place in range(len(self._ready)):
                ready = self._ready[place]
                while not isinstance(item := ready.get(), _Ended):
                    if isinstance(item, BaseException):
                        raise item
                    yield item
        finally:
            self._is_stopped.set()
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        with contextlib.suppress(_StoppedError):
            while (found := self._next()) is not None:
                self._read_one(*found)

    def _next(self) -> tuple[int, int] | None:
        with self._lock:
            return next(self._todo, None)

    def _read_one(self, place: int, partition: int) -> None:
        ready = self._ready[place]
        try:
            for batch in self._read(partition):
                self._put(ready, batch)
        except _StoppedError:
            raise
        except BaseException as problem:  # noqa: BLE001 - the caller gets it
            self._put(ready, problem)
        self._put(ready, _Ended())

    def _put(self, ready: queue.Queue[Any], item: object) -> None:
        while not self._is_stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=_LOOK_EVERY_S)
                return
        raise _StoppedError
