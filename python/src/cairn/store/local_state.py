"""LocalState: one store's database, and the queue of committed deltas that it does not have yet.

Layer: store. Methods run on the event loop unless they say otherwise. A delta stays in the queue
until its last slice is written; then ``applied_through`` is its version. A database that fails to
write, or in which a read finds corruption, is *broken*: it is not used again, waiters receive the
error, and the next load opens a new one.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from cairn.errors import (
    CairnError,
    ClosedError,
    CorruptError,
    LocalDiskError,
    UnknownInstanceError,
)
from cairn.rocks import Delta, RocksDb

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.metrics import Metrics
    from cairn.store.resources import WorkerResources

    Waiter = Callable[[CairnError | None], None]

_LOG = logging.getLogger(__name__)
_SLICE_NS = 1_500_000
_PIECE_ROWS = 1024
_PIECE_BYTES = 128 * 1024
_PRESENCE_STRIDE = 512
_SORTED_AT_ONCE_ROWS = 2048
_SORT_WAIT_S = 0.001


def nothing_loaded() -> UnknownInstanceError:
    """Return the error of a call that needs a loaded version."""
    return UnknownInstanceError(
        "no version is loaded in this worker",
        next_step="open the instance and load the version again",
    )


class LocalState:
    """See the module.

    Attributes:
        applied_through: the database has all deltas up to this version.
        incarnation: changes with the database; work of one incarnation stops in the next.
        failure: why the database is broken; ``None`` if it is not.
    """

    def __init__(self, resources: WorkerResources, metrics: Metrics) -> None:
        self._resources = resources
        self._scheduler = resources.scheduler
        self._metrics = metrics
        self._pending: deque[tuple[int, Delta]] = deque()  # with the time of its arrival
        self._waiters: list[tuple[int, Waiter]] = []  # with the version that they wait for
        self._db: RocksDb | None = None
        self._barrier: int | None = None  # deltas above it are held back for a snapshot
        self.applied_through = 0
        self.incarnation = 0
        self.failure: CairnError | None = None

    # -- the database --------------------------------------------------------------------------

    @property
    def db(self) -> RocksDb:
        """Return the open database.

        Raises:
            UnknownInstanceError: none is open.
            CairnError: it is broken.
        """
        if self._db is None or self.failure is not None:
            self.check_not_broken()
            raise nothing_loaded()
        return self._db

    @property
    def is_open(self) -> bool:
        """Whether a database is open and not broken. Any thread."""
        return self._db is not None and self.failure is None

    def check_not_broken(self) -> None:
        """Raise the failure that broke the database, if it is broken. Any thread."""
        if self.failure is not None:
            # A copy: an exception collects the tracebacks of all places that raise it.
            raise copy.copy(self.failure)

    @contextmanager
    def reading(self) -> Iterator[RocksDb]:
        """Yield the database for reads; if they find corruption, it becomes broken."""
        database = self.db
        try:
            yield database
        except CorruptError as failure:
            self._break(failure)  # no other database: a closed one raises ClosedError
            raise
        if database.has_long_lists and database is self._db:
            self._scheduler.with_long_lists[self] = None

    def get(self, cf: int, key: bytes) -> bytes | None:
        """Return the value of one key, ``None`` where absent; as ``reading``."""
        database = self.db if self._db is None or self.failure is not None else self._db
        try:
            value = database.get(cf, key)
        except CorruptError as failure:
            self._break(failure)
            raise
        if database.has_long_lists:
            self._scheduler.with_long_lists[self] = None
        return value

    def attach(self, database: RocksDb, version: int) -> None:
        """Use an open database that holds ``version``. REQUIRES: ``detach`` before."""
        self._db = database
        self.applied_through = version
        self.incarnation += 1
        self.failure = None
        self._scheduler.add(self)

    def detach(self) -> RocksDb | None:
        """Stop using the database; all waiters fail. Idempotent.

        Returns:
            The database, if there was one. The caller closes it, in another thread: that may take
            as long as a flush. Its directory is never opened again.
        """
        self._drop_deltas()
        self._scheduler.remove(self)
        self._barrier = None
        database, self._db = self._db, None
        self.incarnation += 1
        self._call_waiters(_closed())
        if database is not None:
            database.retire()
        return database

    def check(self) -> None:
        """Mark the database as broken if a flush or compaction failed in the background."""
        if self.is_open and self.db.is_broken():
            failure = LocalDiskError(
                "the local database could not write its files",
                next_step="load the version again; the worker then starts from the object store",
            )
            self._break(failure)

    def _break(self, failure: CairnError) -> None:
        """Mark the database as broken. The object store has its deltas for the next load."""
        if self._db is None or self.failure is not None:
            return
        self.failure = copy.copy(failure)  # without its traceback, which keeps frames alive
        # The cache has links to the same files. Even a failed write may come from a corrupt block,
        # which a compaction has read.
        self._resources.transfers.cache.mark_unverified()
        self._drop_deltas()
        self._scheduler.with_long_lists.pop(self, None)
        self._call_waiters(failure)

    # -- the queue of deltas -------------------------------------------------------------------

    def enqueue(self, delta: Delta) -> None:
        """Add a committed delta; versions ascend. Any thread, one at a time."""
        self._resources.pending.add(delta.bytes_left)
        if delta.rows_left > _SORTED_AT_ONCE_ROWS:
            delta.ready.clear()
            self._resources.sorting.submit(self._sort, delta)
        else:
            delta.sort()
        self._pending.append((self._resources.clock.monotonic_ns(), delta))
        self._resources.event_loop.post(self._schedule)

    def _sort(self, delta: Delta) -> None:
        try:
            delta.sort()
        except Exception:  # noqa: BLE001 - an unsorted delta is applied as well, only slower
            _LOG.exception("the writes of version %d could not be sorted", delta.version)
        delta.ready.set()
        self._resources.event_loop.post(self._schedule)

    def _schedule(self) -> None:
        if self.failure is not None:
            # The database broke during the commit: the delta must not count as pending forever.
            self._drop_deltas()
        elif self._pending:
            self._scheduler.with_deltas[self] = None

    def _drop_deltas(self) -> None:
        while self._pending:
            _, delta = self._pending.popleft()
            self._resources.pending.add(-delta.bytes_left)
        self._scheduler.with_deltas.pop(self, None)

    def pending_bytes(self) -> int:
        """Return the bytes of deltas that are not applied yet."""
        return sum(delta.bytes_left for _, delta in list(self._pending))

    @property
    def waiting_since_ns(self) -> int:
        """See ``ScheduledStore``, also for the other members that the scheduler uses."""
        return self._pending[0][0]

    @property
    def has_work(self) -> bool:
        """Whether a delta can be applied now."""
        if not self._pending or not self.is_open:
            return False
        delta = self._pending[0][1]
        return delta.ready.is_set() and (self._barrier is None or delta.version <= self._barrier)

    def is_write_stopped(self) -> bool:
        """REQUIRES: ``has_work``."""
        return self.db.is_write_stopped()

    def apply_slice(self) -> int:
        """Apply rows for at most some 2 ms; return their bytes. An error breaks the database."""
        clock = self._resources.clock
        began = clock.monotonic_ns()
        rows = size = 0
        while self.has_work and not self.db.is_write_stopped():
            piece_rows, piece_bytes = self._apply_piece(self._pending[0][1])
            rows += piece_rows
            size += piece_bytes
            if clock.monotonic_ns() - began > _SLICE_NS:
                break
        self._metrics.add("applied_rows_count", rows)
        self._metrics.raise_to("apply_slice_max_us", (clock.monotonic_ns() - began) // 1000)
        return size

    def _apply_piece(self, delta: Delta) -> tuple[int, int]:
        database = self.db
        database.multi_families = delta.multi_families
        before = delta.bytes_left
        piece = delta.take(max(1, min(_PIECE_ROWS, _PIECE_BYTES // max(delta.row_bytes, 1))))
        try:
            if piece is not None:
                database.apply(piece, delta.version)
        except CairnError as failure:
            self._break(failure)
            return 0, 0
        finally:
            self._resources.pending.add(delta.bytes_left - before)
        if not delta.rows_left:
            self._pending.popleft()
            if not self._pending:
                # A delta that is enqueued right now calls _schedule itself.
                self._scheduler.with_deltas.pop(self, None)
            self.applied_through = delta.version
            self._call_waiters(None)
        return (0, 0) if piece is None else (piece.num_rows, piece.nbytes)

    # -- waiting for deltas --------------------------------------------------------------------

    def when_applied(self, version: int, waiter: Waiter) -> None:
        """Call ``waiter`` once ``version`` is applied, or with the error that prevents it."""
        if self.applied_through >= version:
            waiter(None)
        elif self.failure is not None:
            waiter(copy.copy(self.failure))
        else:
            self._waiters.append((version, waiter))

    def _call_waiters(self, failure: CairnError | None) -> None:
        if not self._waiters:
            return
        waiters, self._waiters = self._waiters, []
        for version, waiter in waiters:
            if failure is None and version > self.applied_through:
                self._waiters.append((version, waiter))
                continue
            try:
                waiter(failure)
            except Exception:  # noqa: BLE001 - the other waiters must be called
                _LOG.exception("a read that waited for version %d failed", version)

    def until_applied(
        self, version: int, incarnation: int | None = None
    ) -> Generator[None, None, None]:
        """Steps until ``version`` is applied. REQUIRES: it is or will be enqueued before a close.

        Args:
            version: the version of the last delta.
            incarnation: the expected incarnation; by default the one at the first step.

        Raises:
            CairnError: the database broke, or another one was opened meanwhile.
        """
        expected = self.incarnation if incarnation is None else incarnation
        while True:
            if expected != self.incarnation:
                raise _closed()
            if self.applied_through >= version:
                return
            if self._pending:
                self._pending[0][1].ready.wait(_SORT_WAIT_S)
            self.apply_slice()
            self.check_not_broken()
            yield

    def find_present(
        self, version: int, keys_by_family: Sequence[tuple[int, pa.Array[Any]]]
    ) -> Generator[None, None, list[bool]]:
        """Steps that find which keys exist at ``version``; REQUIRES: no later one is committed."""
        yield from self.until_applied(version)
        found: list[bool] = []
        for cf, keys in keys_by_family:
            for start in range(0, len(keys), _PRESENCE_STRIDE):
                # In strides: all keys as Python objects would need as much memory as the commit.
                stride = cast("list[bytes]", keys.slice(start, _PRESENCE_STRIDE).to_pylist())
                with self.reading() as database:
                    found += database.present(cf, stride)
                yield
        return found

    def count_keys(self, version: int, cf: int) -> Generator[None, None, int]:
        """Steps that count a family's keys at ``version``."""
        yield from self.until_applied(version)
        count = 0
        with self.reading() as database:
            for count in database.count_keys(cf):  # noqa: B007 - the last one is the count
                yield
        return count

    # -- snapshots and maintenance -------------------------------------------------------------

    def checkpoint(self, version: int, incarnation: int, directory: Path) -> bool:
        """Make ``directory`` a local checkpoint of exactly ``version``. Not from the event loop.

        Returns:
            Whether that was possible: not if the database is past ``version``, nor if its
            incarnation is another one.

        Raises:
            CairnError: the database broke, or another one was opened meanwhile.
        """
        event_loop = self._resources.event_loop
        if not event_loop.run(lambda: self.hold_above(version, incarnation)):
            return False
        try:
            event_loop.run_stepwise(self.until_applied(version, incarnation))
            database = event_loop.run(lambda: self.db if self.incarnation == incarnation else None)
            if database is None:
                return False
            # Flush in this thread, without the GIL; then the checkpoint has nothing to flush.
            database.flush()
            database.checkpoint(directory)
        finally:
            event_loop.run(lambda: self.release_held(incarnation))
        return True

    def hold_above(self, version: int, incarnation: int) -> bool:
        """Apply no delta above ``version`` until ``release_held``.

        Returns:
            Whether that is possible; see ``checkpoint``.
        """
        if not self.is_open or self.incarnation != incarnation or self.applied_through > version:
            return False
        if self.applied_through == version and self._pending and self._pending[0][1].is_begun:
            return False  # a part of the next version is applied already
        self._barrier = version
        return True

    def release_held(self, incarnation: int) -> None:
        """Apply held deltas again, if the database still has this ``incarnation``."""
        if incarnation == self.incarnation:
            self._barrier = None

    def memtable_bytes(self) -> int:
        """Return the size of the open database's memtables, 0 if none is open."""
        return self.db.memtable_bytes() if self.is_open else 0

    def flush(self) -> None:
        """Write the memtables to SSTs. Any thread."""
        database = self._db
        if database is not None:
            self._metrics.add("flushes_count")
            database.flush()

    def join_one_long_list(self) -> bool:
        """Rewrite one list of many chunks; return whether there was one."""
        if not self.is_open or self._barrier is not None or self._pending:
            return False
        with self.reading() as database:
            is_joined = database.join_one_long_list()
        if not is_joined:
            self._scheduler.with_long_lists.pop(self, None)
            return False
        self._metrics.add("lists_joined_count")
        return True


def _closed() -> ClosedError:
    return ClosedError("the store was loaded again or closed meanwhile")
