"""LocalState: one store's database, and the committed versions that it does not have yet.

Layer: store.

    enqueue -> Delta   ->   sorted and merged -> CommittedRun -> SST file -> database
               (applied_through)          (readable_through)           (written_through)
               Arrivals                           DatabaseWriter

A version can be read as soon as it is in a run: reads search the runs, then the database
(``CommittedRows``).

Threads: ``enqueue``, ``checkpoint`` and ``wait_until_written`` are called by other threads, the
last two never by the event loop. ``is_open``, ``check_not_broken`` and the attributes may be used
by any thread. All other methods run on the event loop. Sorting and merging run in the sorting
thread, the end of a file in the background; each gives its result to the event loop, which ignores
it if the database was closed meanwhile.

A database that fails to write, or whose files cannot be read or are corrupt, is *broken*: it is not
used again, waiters receive the error, and the next load opens a new one.
"""

from __future__ import annotations

import copy
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from cairn.errors import (
    CairnError,
    ClosedError,
    CorruptError,
    DiskFullError,
    LocalDiskError,
    UnknownInstanceError,
)
from cairn.rocks import RocksDb
from cairn.store.local.arrivals import Arrivals
from cairn.store.local.writer import DatabaseWriter
from cairn.store.rows.committed import CommittedRows

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.ids import Version
    from cairn.metrics import Metrics
    from cairn.store.local.waiters import Waiter
    from cairn.store.rows.deltas import Delta
    from cairn.store.shared.resources import WorkerResources

_PRESENCE_STRIDE = 512
_LIVENESS_CHECK_S = 1.0
# A file of the database is corrupt, unreadable or gone: the object store has it.
_DISK_FAULTS = (CorruptError, LocalDiskError)
# Before all versions.
_NEVER = -(1 << 62)


def nothing_loaded() -> UnknownInstanceError:
    """Return the error of a call that needs a loaded version."""
    return UnknownInstanceError(
        "no version is loaded in this worker",
        next_step="open the instance and load the version again",
    )


def _closed() -> ClosedError:
    return ClosedError("the store was loaded again or closed meanwhile")


class LocalState:
    """See the module, and ``OpenStore``.

    Attributes:
        writer: writes the versions into the database.
        barrier: runs above this version are held back for a snapshot.
        read_at: the newest version at the last read.
        incarnation: changes with the database; work of one incarnation stops in the next.
        failure: why the database is broken; ``None`` if it is not.
        looked_up_count: keys read by ``look_up``, which the metrics do not have.
    """

    def __init__(self, resources: WorkerResources, metrics: Metrics) -> None:
        self._resources = resources
        self._scheduler = resources.scheduler
        self._arrivals = Arrivals(self, resources)
        self.writer = DatabaseWriter(self, self._arrivals, resources, metrics)
        self._rows: CommittedRows | None = None
        self.barrier: Version | None = None
        self.read_at = _NEVER
        self.incarnation = 0
        self.failure: CairnError | None = None
        self.looked_up_count = 0

    @property
    def applied_through(self) -> Version:
        """See ``Arrivals``."""
        return self._arrivals.applied_through

    @property
    def readable_through(self) -> Version:
        """See ``Arrivals``."""
        return self._arrivals.readable_through

    @property
    def written_through(self) -> Version:
        """See ``DatabaseWriter``."""
        return self.writer.written_through

    # -- the database --------------------------------------------------------------------------

    @property
    def rows(self) -> CommittedRows:
        """Return what reads find.

        Raises:
            UnknownInstanceError: no database is open.
            CairnError: it is broken.
        """
        if self._rows is None or self.failure is not None:
            self.check_not_broken()
            raise nothing_loaded()
        return self._rows

    @property
    def db(self) -> RocksDb:
        """Return the open database, which may lack the newest versions; errors as ``rows``."""
        return self.rows.database

    @property
    def is_open(self) -> bool:
        """Whether a database is open and not broken."""
        return self._rows is not None and self.failure is None

    def check_not_broken(self) -> None:
        """Raise the failure that broke the database, if it is broken. Any thread."""
        if self.failure is not None:
            # A copy: an exception collects the tracebacks of all places that raise it.
            raise copy.copy(self.failure)

    @contextmanager
    def reading(self) -> Iterator[CommittedRows]:
        """Yield the committed rows; if the disk fails a read, the database becomes broken."""
        rows = self.rows
        try:
            yield rows
        except _DISK_FAULTS as failure:
            self.give_up(failure)  # no other database: a closed one raises ClosedError
            raise
        if rows.database.long_lists and rows is self._rows:
            self._scheduler.with_long_lists[self.writer] = None

    def look_up(self, version: int, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return ``readable_through`` and the value of one key; ``None`` if it cannot be read now.

        As ``reading``. It repeats what the other methods do for many keys, in few calls.
        """
        rows, arrivals = self._rows, self._arrivals
        through = arrivals.readable_through
        if (
            through < version
            or through < arrivals.applied_through
            or rows is None
            or self.failure is not None
        ):
            return None
        self.read_at = through
        self.looked_up_count += 1
        try:
            value = rows.get(cf, key)
        except _DISK_FAULTS as failure:
            self.give_up(failure)
            raise
        if rows.database.long_lists:
            self._scheduler.with_long_lists[self.writer] = None
        return through, value

    def attach(self, database: RocksDb, version: int) -> None:
        """Use an open database that holds ``version``. REQUIRES: ``detach`` before."""
        self._rows = CommittedRows(database)
        self.read_at = _NEVER
        self._arrivals.begin(version)
        self.writer.begin(version)
        self.incarnation += 1
        self.failure = None
        self._scheduler.add(self.writer)

    def detach(self) -> RocksDb | None:
        """Stop using the database; all waiters fail. Idempotent.

        Returns:
            The database, if there was one. The caller closes it, in another thread: that may take
            as long as a flush. Its directory is never opened again.
        """
        self._drop_versions()
        self._resources.pending.expect(self, 0)
        self.barrier = None
        rows, self._rows = self._rows, None
        self.incarnation += 1
        self._fail_waiters(_closed())
        self._reclaim()
        if rows is None:
            return None
        rows.database.retire()
        return rows.database

    def check(self) -> None:
        """Mark the database as broken if a flush or compaction failed in the background."""
        if self.is_open and self.db.is_broken():
            failure = LocalDiskError(
                "the local database could not write its files",
                next_step="load the version again; the worker then starts from the object store",
            )
            self.give_up(failure)

    def give_up(self, failure: CairnError) -> None:
        """Mark the database as broken. The object store has its deltas for the next load."""
        if self._rows is None or self.failure is not None:
            return
        self.failure = copy.copy(failure)  # without its traceback, which keeps frames alive
        # The cache has links to the same files. Even a failed write may come from a corrupt block,
        # which a compaction has read.
        cache = self._resources.transfers.cache
        cache.mark_unverified()
        if isinstance(failure, DiskFullError):
            self._resources.in_background(cache.give_way)  # for the next database
        self._drop_versions()
        self._fail_waiters(failure)
        self._reclaim()

    def _drop_versions(self) -> None:
        """Forget all versions that the database lacks, and what is in progress with them."""
        self._arrivals.drop()
        self.writer.stop()
        self._scheduler.remove(self.writer)
        if self._rows is not None:
            lost_bytes = sum(run.size_bytes for run in self._rows.newer)
            self._resources.pending.add(self, -lost_bytes)
            # A read in progress keeps the runs that it reads: without them it would find older
            # rows.
            self._rows = CommittedRows(self._rows.database)

    def _fail_waiters(self, failure: CairnError) -> None:
        self._arrivals.waiters.fail(failure)
        self.writer.waiters.fail(failure)

    # -- the way of a version ------------------------------------------------------------------

    def enqueue(self, delta: Delta, *, wakes: bool = True) -> None:
        """Add a committed delta; versions ascend. Any thread, one at a time.

        Unless ``wakes``, the caller wakes the event loop afterwards.
        """
        self._arrivals.add(delta)
        self._resources.event_loop.post(self._admit, wakes=wakes)

    def _admit(self) -> None:
        if not self.is_open:
            # The database broke during the commit: the delta must not count as pending forever.
            self._arrivals.drop()
            return
        self._arrivals.admit()
        self.advance()

    def advance(self) -> None:
        """Begin the next sort, merge or write, as far as one is due and none is in progress."""
        if self.is_open:
            self._arrivals.sort_if_needed()
            self.writer.advance()
        self._reclaim()

    def _reclaim(self) -> None:
        """Let a store write its runs, if commits wait for memory."""
        if self._resources.pending.is_high:
            self._scheduler.reclaim(self._resources.clock.monotonic_ns())

    # -- waiting for versions ------------------------------------------------------------------

    def is_readable(self, version: int) -> bool:
        """Whether a read that needs ``version`` need not wait."""
        arrivals = self._arrivals
        through = arrivals.readable_through
        return through >= version and through >= arrivals.applied_through

    def note_read(self) -> None:
        """Note that reads are not all answered by the shim's cache."""
        self.read_at = max(self._arrivals.applied_through, self._arrivals.readable_through)

    def when_readable(self, version: int, waiter: Waiter) -> None:
        """Call ``waiter`` once ``version`` can be read, or with the error that prevents it.

        So can all versions up to ``applied_through``, on which the shim relies.
        """
        self.note_read()
        if self.is_readable(version):
            waiter(None)
        elif self.failure is not None:
            waiter(copy.copy(self.failure))
        else:
            arrivals = self._arrivals
            needed = max(version, arrivals.applied_through)
            arrivals.waiters.add(needed, waiter)
            arrivals.need(needed)
            arrivals.sort_if_needed()

    def until_readable(
        self, version: int, incarnation: int | None = None
    ) -> Generator[None, None, None]:
        """Steps until ``version`` can be read. REQUIRES: it is or will be enqueued before a close.

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
            if self.readable_through >= version:
                return
            self._arrivals.need(version)
            self._admit()
            self.check_not_broken()
            self._arrivals.wait_for_sort()
            yield

    def wait_until_written(self, version: int, incarnation: int | None = None) -> None:
        """Wait until the database has all deltas up to ``version``; arguments as above.

        Not from the event loop.

        Raises:
            CairnError: the database broke, or it was closed or replaced.
        """
        done: Future[CairnError | None] = Future()
        event_loop = self._resources.event_loop
        event_loop.run(lambda: self._when_written(version, incarnation, done.set_result))
        while True:
            try:
                failure = done.result(_LIVENESS_CHECK_S)
            except TimeoutError:
                event_loop.run(_nothing)  # it raises if the event loop has ended
                continue
            if failure is not None:
                raise copy.copy(failure)
            return

    def _when_written(self, version: int, incarnation: int | None, waiter: Waiter) -> None:
        if incarnation not in (None, self.incarnation) or self._rows is None:
            waiter(_closed())
        elif self.failure is not None:
            waiter(self.failure)
        else:
            self.writer.waiters.add(version, waiter)
            self.writer.need(version)
            self.advance()

    def find_present(
        self, version: int, keys_by_family: Sequence[tuple[int, pa.Array[Any]]]
    ) -> Generator[None, None, list[bool]]:
        """Steps that find which keys exist at ``version``; REQUIRES: no later one is committed."""
        self.note_read()
        yield from self.until_readable(version)
        found: list[bool] = []
        for cf, keys in keys_by_family:
            for start in range(0, len(keys), _PRESENCE_STRIDE):
                # In strides: all keys as Python objects would need as much memory as the commit.
                stride = cast("list[bytes]", keys.slice(start, _PRESENCE_STRIDE).to_pylist())
                with self.reading() as rows:
                    found += rows.present(cf, stride)
                yield
        return found

    def count_keys(self, version: int, cf: int) -> Generator[None, None, int]:
        """Steps that count a family's keys at ``version``; REQUIRES: as ``find_present``."""
        self.note_read()
        yield from self.until_readable(version)
        count = 0
        with self.reading() as rows:
            for count in rows.count_keys(cf):  # noqa: B007 - the last one is the count
                yield
        return count

    # -- snapshots -----------------------------------------------------------------------------

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
            self.wait_until_written(version, incarnation)
            database = event_loop.run(lambda: self.db if self.incarnation == incarnation else None)
            if database is None:
                return False
            # Flush in this thread, without the GIL; then the checkpoint has nothing to flush.
            try:
                database.flush()
            except DiskFullError as failure:  # RocksDB then refuses all writes
                event_loop.run(partial(self._give_up_if, incarnation, failure))
                raise
            database.checkpoint(directory)
        except _DISK_FAULTS as failure:
            event_loop.run(partial(self._give_up_if, incarnation, failure))
            raise
        finally:
            event_loop.run(lambda: self.release_held(incarnation))
        return True

    def _give_up_if(self, incarnation: int, failure: CairnError) -> None:
        if incarnation == self.incarnation:
            self.give_up(failure)

    def hold_above(self, version: int, incarnation: int) -> bool:
        """Write no run above ``version`` into the database until ``release_held``.

        Returns:
            Whether that is possible; see ``checkpoint``.
        """
        if not self.is_open or self.incarnation != incarnation or self.writer.is_past(version):
            return False
        self.barrier = version
        return True

    def release_held(self, incarnation: int) -> None:
        """Write held runs again when needed, if the database still has this ``incarnation``."""
        if incarnation == self.incarnation:
            self.barrier = None
            self.advance()


def _nothing() -> None:
    """Show that the event loop runs."""
