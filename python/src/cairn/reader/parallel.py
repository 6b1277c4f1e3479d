"""in_threads: the batches of several partitions, read by threads.

Layer: reader.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

_THREADS_MAX = 4
_WAITING_BATCHES = 2
"""Batches per thread that wait for the caller."""
_LOOK_EVERY_S = 0.1


def in_threads(
    read: Callable[[int], Iterator[pa.RecordBatch]], partitions: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of partitions; an error of one of them ends all.

    The threads end with the iterator.

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


class _StoppedError(Exception):
    """The caller wants no more batches."""


class _Ended:
    """What a thread puts last into the queue."""


class _Readers:
    def __init__(
        self,
        read: Callable[[int], Iterator[pa.RecordBatch]],
        partitions: Sequence[int],
        count: int,
    ) -> None:
        self._read = read
        self._partitions = iter(partitions)
        self._lock = threading.Lock()
        self._ready: queue.Queue[Any] = queue.Queue(count * _WAITING_BATCHES)
        self._is_stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name="cairn-read", daemon=True)
            for _ in range(count)
        ]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for thread in self._threads:
            thread.start()
        try:
            left = len(self._threads)
            while left:
                item = self._ready.get()
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, _Ended):
                    left -= 1
                else:
                    yield item
        finally:
            self._is_stopped.set()
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        with contextlib.suppress(_StoppedError):
            try:
                while (partition := self._next()) is not None:
                    for batch in self._read(partition):
                        self._put(batch)
                self._put(_Ended())
            except _StoppedError:
                raise
            except BaseException as problem:  # noqa: BLE001 - the caller gets it
                self._put(problem)

    def _next(self) -> int | None:
        with self._lock:
            return next(self._partitions, None)

    def _put(self, item: object) -> None:
        while not self._is_stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=_LOOK_EVERY_S)
                return
        raise _StoppedError
