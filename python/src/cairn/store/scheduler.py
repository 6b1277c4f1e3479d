"""Scheduler: which store of a worker gets the event loop's next slice of work.

Layer: store. It depends on ``ScheduledStore`` alone, so that stores can depend on it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from cairn.clock import SYSTEM_CLOCK, Clock
from cairn.errors import CairnError

if TYPE_CHECKING:
    from concurrent.futures import Executor

_LOG = logging.getLogger(__name__)
_STOPPED_PAUSE_S = 0.0005
_MEMTABLE_CHECK_BYTES = 1 << 20


class ScheduledStore(Protocol):
    """One store's local state. On the event loop, except ``flush``."""

    @property
    def has_work(self) -> bool:
        """Whether a delta can be applied now."""

    @property
    def waiting_since_ns(self) -> int:
        """When the oldest delta arrived; REQUIRES: ``has_work``."""

    def is_write_stopped(self) -> bool:
        """Whether a write would have to wait for a flush; REQUIRES: ``has_work``."""

    def apply_slice(self) -> int:
        """Apply rows for at most some 2 ms; return their bytes."""

    def join_one_long_list(self) -> bool:
        """Rewrite one list of many chunks; return whether there was one."""

    def memtable_bytes(self) -> int:
        """Return the size of the open database's memtables, 0 if none is open."""

    def flush(self) -> None:
        """Write the memtables to SSTs. Any thread."""


class Scheduler:
    """See the module. Methods run on the event loop.

    Attributes:
        with_deltas: stores with a delta in their queue.
        with_long_lists: stores in which a read found a list of many chunks.

    Args:
        memtable_bytes: bound of all memtables together. RocksDB flushes only full memtables, not a
            hundred half-full ones; so the scheduler flushes the largest one.
        background: runs flushes.
        clock: pauses while all writes are stopped.
    """

    def __init__(
        self, memtable_bytes: int, background: Executor, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._memtable_bytes = memtable_bytes
        self._background = background
        self._clock = clock
        self._open: dict[ScheduledStore, None] = {}
        # An idle store is in neither, so it costs the event loop no time.
        self.with_deltas: dict[ScheduledStore, None] = {}
        self.with_long_lists: dict[ScheduledStore, None] = {}
        self._failed: set[ScheduledStore] = set()
        self._unchecked_bytes = 0
        self._is_flushing = False

    def add(self, store: ScheduledStore) -> None:
        """Count a store's database as open."""
        self._open[store] = None

    def remove(self, store: ScheduledStore) -> None:
        """Forget a store. Idempotent."""
        for stores in (self._open, self.with_deltas, self.with_long_lists):
            stores.pop(store, None)
        self._failed.discard(store)

    def run_slice(self) -> bool:
        """Apply deltas of the store with the oldest delta; return whether work may be left.

        Stores whose writes RocksDB has stopped, or whose last slice failed, come last.
        """
        if not self.with_deltas and not self.with_long_lists:
            return False  # at once: the event loop asks after each request
        waiting = [store for store in self.with_deltas if store.has_work]
        waiting.sort(key=lambda store: (store in self._failed, store.waiting_since_ns))
        for store in waiting:
            if store.is_write_stopped():
                continue
            self._failed.add(store)  # until its slice has succeeded
            self._bound_memtables(store.apply_slice())
            self._failed.discard(store)
            return True
        if any(store.join_one_long_list() for store in list(self.with_long_lists)):
            return True
        if waiting:
            self._clock.sleep(_STOPPED_PAUSE_S)  # the flush that ends the stop needs the CPU
        return bool(waiting)

    def _bound_memtables(self, applied_bytes: int) -> None:
        self._unchecked_bytes += applied_bytes
        if self._unchecked_bytes < _MEMTABLE_CHECK_BYTES or self._is_flushing:
            return
        self._unchecked_bytes = 0
        sizes = {store: store.memtable_bytes() for store in self._open}
        if sum(sizes.values()) <= self._memtable_bytes:
            return
        self._is_flushing = True
        self._background.submit(self._flush, max(sizes, key=sizes.__getitem__))

    def _flush(self, store: ScheduledStore) -> None:
        try:
            store.flush()
        except CairnError as failure:
            _LOG.warning("a flush failed: %s", failure)
        finally:
            self._is_flushing = False
