"""Scheduler: which store of a worker gets the event loop's next slice of work.

Layer: store. It depends on ``ScheduledStore`` alone, so that stores can depend on it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from cairn.errors import CairnError

if TYPE_CHECKING:
    from concurrent.futures import Executor

_LOG = logging.getLogger(__name__)
_MEMTABLE_CHECK_BYTES = 1 << 20


class ScheduledStore(Protocol):
    """One store's writer of the local database. On the event loop, except ``flush``."""

    @property
    def waiting_since_ns(self) -> int:
        """When the oldest of its committed rows arrived; REQUIRES: there are any."""

    @property
    def run_bytes(self) -> int:
        """The bytes of committed rows that the database lacks and that could be written now."""

    @property
    def is_write_due(self) -> bool:
        """Whether rows must be written that are not written yet."""

    def write_runs(self) -> None:
        """Begin to write all committed rows into the database."""

    def write_slice(self) -> None:
        """Write rows for less than 2 ms. REQUIRES: it is among ``Scheduler.writing``."""

    def join_one_long_list(self) -> int:
        """Rewrite one list of many chunks; return its bytes, 0 if there was none."""

    def memtable_bytes(self) -> int:
        """Return the size of the database's memtables."""

    def flush(self) -> None:
        """Write the memtables to SSTs. Any thread."""


class Scheduler:
    """See the module. Methods run on the event loop.

    Attributes:
        writing: stores that write rows into their database.
        with_long_lists: stores in which a read found a list of many chunks.

    Args:
        memtable_bytes: bound of all memtables together. RocksDB flushes only full memtables, not a
            hundred half-full ones; so the scheduler flushes the largest one.
        background: runs flushes.
    """

    def __init__(self, memtable_bytes: int, background: Executor) -> None:
        self._memtable_bytes = memtable_bytes
        self._background = background
        self._open: dict[ScheduledStore, None] = {}
        # An idle store is in neither, so it costs the event loop no time.
        self.writing: dict[ScheduledStore, None] = {}
        self.with_long_lists: dict[ScheduledStore, None] = {}
        self._failed: set[ScheduledStore] = set()
        self._unchecked_bytes = 0
        self._is_flushing = False

    def add(self, store: ScheduledStore) -> None:
        """Count a store's database as open."""
        self._open[store] = None

    def remove(self, store: ScheduledStore) -> None:
        """Forget a store whose database is closed or broken. Idempotent."""
        for stores in (self._open, self.writing, self.with_long_lists):
            stores.pop(store, None)
        self._failed.discard(store)

    def run_slice(self) -> bool:
        """Write rows of the next store; return whether work may be left.

        The stores take turns: a commit may wait for the few rows of one, while the rows of another
        take long. Stores whose last slice failed come last.
        """
        if not self.writing and not self.with_long_lists:
            return False  # at once: the event loop asks after each request
        if self.writing:
            store = min(self.writing, key=self._failed.__contains__)
            del self.writing[store]
            self.writing[store] = None  # the last one now
            self._failed.add(store)  # until its slice has succeeded
            store.write_slice()
            self._failed.discard(store)
            return True
        for store in list(self.with_long_lists):
            joined_bytes = store.join_one_long_list()
            if joined_bytes:
                self._bound_memtables(joined_bytes)
                return True
        return False

    def reclaim(self, now_ns: int) -> None:
        """Begin to write the rows of one store, to free memory, unless one is writing already.

        Chooses large rows and old ones: those of an idle store would otherwise stay for ever.
        """
        if any(store.is_write_due for store in self._open):
            return
        stores = [store for store in self._open if store.run_bytes]
        if stores:
            max(
                stores, key=lambda one: one.run_bytes * max(1, now_ns - one.waiting_since_ns)
            ).write_runs()

    def _bound_memtables(self, written_bytes: int) -> None:
        self._unchecked_bytes += written_bytes
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
