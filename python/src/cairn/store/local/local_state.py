"""LocalState: one store's database, and the committed versions that it does not have yet.

Layer: store.

    enqueue -> Delta   ->   sorted and merged -> Run -> SST file -> database
               (applied_through)     (readable_through)     (written_through)

A version can be read as soon as it is in a run: reads search the runs, then the database. Deltas
are sorted when a read, a snapshot or the bound of pending bytes needs them: the shim's cache
answers most reads, and many deltas are sorted at once in much less time than each alone. A store
that was read lately is the exception: its deltas are sorted as they arrive, so that no read waits.

Runs stay in memory until a snapshot needs them, or until the bound of pending bytes is reached.
Then they are merged, so that a key that several versions wrote is written once, and enter the
database as one file.

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
import logging
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from cairn.errors import (
    CairnError,
    ClosedError,
    CorruptError,
    DiskFullError,
    LocalDiskError,
    UnknownInstanceError,
    unexpected,
)
from cairn.rocks import RocksDb
from cairn.store.local.deltas import CommittedRun, Delta, merged
from cairn.store.local.waiters import Waiters
from cairn.store.rows.committed import CommittedRows
from cairn.store.rows.runs import Runs, first_to_merge

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.ids import Version
    from cairn.metrics import Metrics
    from cairn.rocks import Ingestion
    from cairn.store.local.waiters import Waiter
    from cairn.store.shared.resources import WorkerResources

_LOG = logging.getLogger(__name__)
_SLICE_NS = 800_000
_PIECE_ROWS = 1024
_PIECE_BYTES = 128 * 1024
_PRESENCE_STRIDE = 512
_SORTED_AT_ONCE_ROWS = 2048
_SORT_WAIT_S = 0.001
# A store that was read at one of so many versions will be read again.
_READ_LATELY_VERSIONS = 8
# The first read after many commits sorts their deltas.
_MAX_UNSORTED = 64
_LIVENESS_CHECK_S = 1.0
# A read searches every run: some 1 us for a key.
_MAX_RUNS = 8
# A file of the database is corrupt, unreadable or gone: the object store has it.
_DISK_FAULTS = (CorruptError, LocalDiskError)
# Arrow counts the bytes of a column in 32 bits.
_MAX_MERGED_BYTES = 256 << 20


def nothing_loaded() -> UnknownInstanceError:
    """Return the error of a call that needs a loaded version."""
    return UnknownInstanceError(
        "no version is loaded in this worker",
        next_step="open the instance and load the version again",
    )


def _closed() -> ClosedError:
    return ClosedError("the store was loaded again or closed meanwhile")


class LocalState:
    """See the module.

    Attributes:
        applied_through: reads find all deltas up to this version; they wait for their sorting.
        readable_through: all deltas up to this version are in runs, or in the database.
        written_through: the newest version of which the database has writes.
        incarnation: changes with the database; work of one incarnation stops in the next.
        failure: why the database is broken; ``None`` if it is not.
        looked_up_count: keys read by ``look_up``, which the metrics do not have.
    """

    def __init__(self, resources: WorkerResources, metrics: Metrics) -> None:
        self._resources = resources
        self._scheduler = resources.scheduler
        self._metrics = metrics
        self._arrived: deque[Delta] = deque()
        self._rows: CommittedRows | None = None  # the database, with the rows of `_runs`
        # INVARIANT: ascending versions, all above `written_through`. New runs are added at the end;
        # during a merge or write its runs keep their place.
        self._runs: tuple[CommittedRun, ...] = ()
        self._sorting: Sequence[Delta] = ()  # the first of `_arrived`
        self._sort_done = threading.Event()
        self._sort_through = 0  # deltas up to this version must be sorted
        self._read_at = -_READ_LATELY_VERSIONS  # the newest version at the last read
        self._read_before_write = self._read_at  # `_read_at` at the last write into the database
        self._merging: Sequence[CommittedRun] = ()
        self._writing: tuple[CommittedRun, Ingestion] | None = None  # the first run
        self._write_through = 0  # runs up to this version must be written
        self._barrier: Version | None = None  # runs above it are held back for a snapshot
        self._readers = Waiters()
        self._writers = Waiters()
        self.applied_through = 0
        self.readable_through = 0
        self.written_through = 0
        self.incarnation = 0
        self.failure: CairnError | None = None
        self.looked_up_count = 0

    # -- the database --------------------------------------------------------------------------

    @property
    def db(self) -> RocksDb:
        """Return the open database, which may lack the newest versions.

        Raises:
            UnknownInstanceError: none is open.
            CairnError: it is broken.
        """
        return self._committed.database

    @property
    def _committed(self) -> CommittedRows:
        if self._rows is None or self.failure is not None:
            self.check_not_broken()
            raise nothing_loaded()
        return self._rows

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
        rows = self._committed
        try:
            yield rows
        except _DISK_FAULTS as failure:
            self.give_up(failure)  # no other database: a closed one raises ClosedError
            raise
        if rows.database.long_lists and rows is self._rows:
            self._scheduler.with_long_lists[self] = None

    def look_up(self, version: int, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return ``readable_through`` and the value of one key; ``None`` if it cannot be read now.

        As ``reading``. It repeats what the other methods do for many keys, in few calls.
        """
        rows, through = self._rows, self.readable_through
        if (
            through < version
            or through < self.applied_through
            or rows is None
            or self.failure is not None
        ):
            return None
        self._read_at = through
        self.looked_up_count += 1
        try:
            value = rows.get(cf, key)
        except _DISK_FAULTS as failure:
            self.give_up(failure)
            raise
        if rows.database.long_lists:
            self._scheduler.with_long_lists[self] = None
        return through, value

    def attach(self, database: RocksDb, version: int) -> None:
        """Use an open database that holds ``version``. REQUIRES: ``detach`` before."""
        self._rows = CommittedRows(database)
        self.applied_through = self.readable_through = self.written_through = version
        self._write_through = self._sort_through = 0
        self._read_at = version - _READ_LATELY_VERSIONS
        self._read_before_write = self._read_at
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
        self._resources.pending.expect(self, 0)
        self._scheduler.remove(self)
        self._barrier = None
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
        self._drop_deltas()
        self._scheduler.with_long_lists.pop(self, None)
        self._fail_waiters(failure)
        self._reclaim()

    def _drop_deltas(self) -> None:
        """Forget all deltas and runs, and what is in progress with them."""
        while self._arrived:
            self._resources.pending.add(self, -self._arrived.popleft().size_bytes)
        self._resources.pending.add(self, -sum(run.size_bytes for run in self._runs))
        # A read in progress keeps the runs that it reads: without them it would find older rows.
        self._runs = ()
        self._sorting, self._merging, self._writing = (), (), None
        self._scheduler.writing.pop(self, None)

    def _fail_waiters(self, failure: CairnError) -> None:
        self._readers.fail(failure)
        self._writers.fail(failure)

    # -- from deltas to runs -------------------------------------------------------------------

    def enqueue(self, delta: Delta, *, wakes: bool = True) -> None:
        """Add a committed delta; versions ascend. Any thread, one at a time.

        Unless ``wakes``, the caller wakes the event loop afterwards.
        """
        if 0 < delta.row_count <= _SORTED_AT_ONCE_ROWS and self._was_read_lately(delta.last):
            # The version is committed: if this fails, the sorting thread tries again and reports.
            with suppress(Exception):
                delta.sort()
        self._resources.pending.expect(self, delta.size_bytes)
        self._resources.pending.add(self, delta.size_bytes)
        self._arrived.append(delta)
        self._resources.event_loop.post(self._admit, wakes=wakes)

    def _was_read_lately(self, version: Version) -> bool:
        return version - self._read_at < _READ_LATELY_VERSIONS

    def _admit(self) -> None:
        """Note the deltas that have arrived, and sort them if they are needed."""
        if not self.is_open:
            # The database broke during the commit: the delta must not count as pending forever.
            self._drop_deltas()
            return
        self._admit_runs()
        if self._arrived:
            newest = self._arrived[-1].last
            if self._was_read_lately(newest) or len(self._arrived) > _MAX_UNSORTED:
                self._sort_through = newest
            else:
                self.applied_through = newest
        self._advance()

    def _admit_runs(self) -> None:
        """Make the first deltas readable, as far as they are sorted or have no rows."""
        while self._arrived and not self._sorting:
            delta = self._arrived[0]
            if delta.row_count and delta.run is None:
                break
            self._make_readable([delta], delta.run)
        self._readers.call(lambda version: version <= self.readable_through)

    def _make_readable(self, deltas: Sequence[Delta], run: CommittedRun | None) -> None:
        for delta in deltas:
            self._arrived.popleft()
            self._resources.pending.add(self, -delta.size_bytes)
        if run is not None:
            self._resources.pending.add(self, run.size_bytes)
            self._set_runs((*self._runs, run))
        newest = deltas[-1]
        self.db.multi_families = newest.multi_families
        self.readable_through = newest.last
        self.applied_through = max(self.applied_through, newest.last)

    def _sort_if_needed(self) -> None:
        """Begin to sort the first deltas, if they are needed and none is being sorted."""
        self._admit_runs()  # a delta without rows, of which `_admit` does not know yet, has no run
        if self._sorting or not self._arrived or self._arrived[0].first > self._sort_through:
            return
        deltas: list[Delta] = []
        size = 0
        for delta in list(self._arrived):
            size += delta.size_bytes
            is_held_back = self._barrier is not None and delta.first > self._barrier
            if deltas and (size > _MAX_MERGED_BYTES or delta.run is not None):
                break
            if deltas and is_held_back and deltas[0].first <= cast("Version", self._barrier):
                break  # a snapshot of the version in the middle needs two runs
            deltas.append(delta)
        self._sorting = deltas
        self._sort_done = threading.Event()
        self._resources.sorting.submit(self._run_sort, deltas, self._sort_done)

    def _run_sort(self, deltas: Sequence[Delta], done: threading.Event) -> None:
        self._resources.release_memory_if_high()
        post = self._resources.event_loop.post
        try:
            result = merged(deltas)
        except Exception as problem:  # noqa: BLE001 - all calls of this store must get it
            self._fail_work(problem, deltas, lambda: self._sorting is deltas)
        else:
            post(lambda: self._use_sorted(deltas, result))
        done.set()

    def _use_sorted(self, deltas: Sequence[Delta], run: CommittedRun) -> None:
        if self._sorting is not deltas:
            return
        self._sorting = ()
        if not self._is_split_by_barrier(run):
            self._make_readable(deltas, run)
        self._advance()

    def _is_split_by_barrier(self, run: CommittedRun) -> bool:
        """Return whether a snapshot of a version in the middle of a run was begun."""
        return self._barrier is not None and run.first <= self._barrier < run.last

    def _fail_work(
        self,
        problem: Exception,
        parts: Sequence[Delta | CommittedRun],
        is_current: Callable[[], bool],
    ) -> None:
        """Report the failure of a sort or merge. Any thread."""
        _LOG.error(
            "versions %d to %d were not merged", parts[0].first, parts[-1].last, exc_info=problem
        )
        failure = unexpected(problem)
        self._resources.event_loop.post(lambda: self.give_up(failure) if is_current() else None)

    def _set_runs(self, runs: tuple[CommittedRun, ...]) -> None:
        self._runs = runs
        if self._rows is not None:
            self._rows.runs = Runs(tuple(one.run for one in runs))

    def pending_bytes(self) -> int:
        """Return the bytes of deltas that the database does not have."""
        arrived = sum(delta.size_bytes for delta in list(self._arrived))
        return arrived + sum(run.size_bytes for run in self._runs)

    def pending_rows(self) -> int:
        """Return the number of rows that the database does not have; a key may have several."""
        arrived = sum(delta.row_count for delta in list(self._arrived))
        return arrived + sum(one.run.rows.num_rows for one in self._runs)

    # -- from runs to the database -------------------------------------------------------------

    def _advance(self) -> None:
        """Begin the next merge or write, if one is due and none is in progress."""
        if self.is_open:
            self._sort_if_needed()
            if not self._merging and self._writing is None:
                due = self._due_runs()
                if len(due) > 1:
                    self._merge(due)
                elif due:
                    self._begin_write(due[0])
                else:
                    self._merge(self._small_runs())
        self._writers.call(self._is_written)
        self._reclaim()

    def _reclaim(self) -> None:
        """Let a store write its runs, if commits wait for memory."""
        if self._resources.pending.is_high:
            self._scheduler.reclaim(self._resources.clock.monotonic_ns())

    def _due_runs(self) -> list[CommittedRun]:
        """Return the oldest runs that must be written, as many as may be merged.

        None if deltas are being sorted that belong into the same file. A run is written whole, also
        if it begins at or below ``_write_through`` and ends above it: deltas may have arrived
        before its sort began. None ends above the barrier.
        """
        barrier = self._barrier
        through = self._write_through if barrier is None else min(self._write_through, barrier)
        if self._sorting and self._sorting[0].first <= through:
            return []
        due: list[CommittedRun] = []
        size = 0
        for run in self._runs:
            size += run.size_bytes
            is_held_back = barrier is not None and run.last > barrier
            if run.first > through or is_held_back or (due and size > _MAX_MERGED_BYTES):
                break
            due.append(run)
        return due

    def _small_runs(self) -> Sequence[CommittedRun]:
        """Return the newest runs that should be merged, so that reads search few; often none."""
        if len(self._runs) <= _MAX_RUNS:
            return ()
        barrier = self._barrier or 0
        runs = [run for run in self._runs if run.last > barrier] or self._runs[-1:]
        return runs[first_to_merge([run.size_bytes for run in runs], _MAX_MERGED_BYTES) :]

    def _merge(self, runs: Sequence[CommittedRun]) -> None:
        if len(runs) > 1:
            self._merging = runs
            self._resources.sorting.submit(self._run_merge, runs)

    def _run_merge(self, runs: Sequence[CommittedRun]) -> None:
        self._resources.release_memory_if_high()
        try:
            result = merged(runs)
        except Exception as problem:  # noqa: BLE001 - all calls of this store must get it
            self._fail_work(problem, runs, lambda: self._merging is runs)
        else:
            self._resources.event_loop.post(lambda: self._use_merged(runs, result))

    def _use_merged(self, runs: Sequence[CommittedRun], result: CommittedRun) -> None:
        if self._merging is not runs:
            return
        self._merging = ()
        # A snapshot of a version in the middle needs the runs as they were.
        if not self._is_split_by_barrier(result):
            start = self._runs.index(runs[0])
            end = start + len(runs)
            self._set_runs((*self._runs[:start], result, *self._runs[end:]))
            self._resources.pending.add(
                self, result.size_bytes - sum(run.size_bytes for run in runs)
            )
        self._advance()

    def _begin_write(self, run: CommittedRun) -> None:
        database = self.db
        ingestion = database.new_ingestion(
            run.run.rows, run.last, run.multi_families, may_begin_lists=run.may_begin_lists
        )
        self._writing = run, ingestion
        is_read = self._read_at != self._read_before_write
        self._read_before_write = self._read_at
        self._resources.in_background(lambda: self._write(database, ingestion, is_read=is_read))

    def _write(self, database: RocksDb, ingestion: Ingestion, *, is_read: bool) -> None:
        """Write the file at once, or let the event loop write it in slices. In the background."""
        self._resources.release_memory_if_high()

        def write() -> None:
            database.note_use(is_read=is_read)
            database.write(ingestion, lambda: self._is_writing_file(ingestion))

        failure = self._tried(ingestion, write)
        if failure is None and ingestion.rows_left:
            self._resources.event_loop.post(lambda: self._write_in_slices(ingestion))
        else:
            self._resources.event_loop.post(lambda: self._ingest(ingestion, failure))

    def _is_writing_file(self, ingestion: Ingestion) -> bool:
        writing = self._writing
        return writing is not None and writing[1] is ingestion

    def _write_in_slices(self, ingestion: Ingestion) -> None:
        if self._is_writing_file(ingestion):
            self._scheduler.writing[self] = None

    @property
    def waiting_since_ns(self) -> int:
        """See ``ScheduledStore``, also for the other members that the scheduler uses.

        REQUIRES: there is a run or a delta.
        """
        oldest = self._oldest()
        return oldest.since_ns if oldest is not None else 0

    def _oldest(self) -> CommittedRun | Delta | None:
        if self._runs:
            return self._runs[0]
        return self._arrived[0] if self._arrived else None

    @property
    def run_bytes(self) -> int:
        """The bytes of runs whose write can begin; 0 if a merge or write is in progress."""
        if self._merging or self._writing is not None or self._barrier is not None:
            return 0
        return self.pending_bytes()

    @property
    def is_write_due(self) -> bool:
        """Whether rows that must be written are not written yet."""
        oldest = self._oldest()
        return oldest is not None and oldest.first <= self._write_through

    def write_runs(self) -> None:
        """Begin to write all rows into the database."""
        newest = self._arrived[-1].last if self._arrived else self.readable_through
        self._write_through = self._sort_through = newest
        self._advance()

    def write_slice(self) -> None:
        """Write rows for less than 2 ms. An error breaks the database."""
        if self._writing is None:
            return
        _, ingestion = self._writing
        clock = self._resources.clock
        began = clock.monotonic_ns()
        piece_rows = max(1, min(_PIECE_ROWS, _PIECE_BYTES // ingestion.row_bytes))
        try:
            while ingestion.rows_left and clock.monotonic_ns() - began < _SLICE_NS:
                ingestion.add(piece_rows)
        except CairnError as failure:
            self.give_up(failure)
            return
        self._metrics.raise_to("write_slice_max_us", (clock.monotonic_ns() - began) // 1000)
        if not ingestion.rows_left:
            self._scheduler.writing.pop(self, None)
            self._resources.in_background(lambda: self._finish(ingestion))

    def _finish(self, ingestion: Ingestion) -> None:
        failure = self._tried(ingestion, ingestion.finish)
        self._resources.event_loop.post(lambda: self._ingest(ingestion, failure))

    @staticmethod
    def _tried(ingestion: Ingestion, work: Callable[[], object]) -> CairnError | None:
        """Do work on a file; return the error that it raised."""
        try:
            work()
        except CairnError as problem:
            return problem
        except Exception as problem:  # noqa: BLE001 - all calls of this store must get it
            _LOG.exception("%s was not written", ingestion.path)
            return unexpected(problem)
        return None

    def _ingest(self, ingestion: Ingestion, failure: CairnError | None) -> None:
        if self._writing is None or self._writing[1] is not ingestion:
            return
        run, _ = self._writing
        self._metrics.add("written_rows_count", ingestion.row_count)
        try:
            if failure is not None:
                raise failure
            self.db.ingest(ingestion)
        except CairnError as problem:
            self.give_up(problem)
            return
        self._writing = None
        self.written_through = run.last
        # In the same task as the ingestion: a read must not find an append twice.
        self._set_runs(self._runs[1:])
        self._resources.pending.add(self, -run.size_bytes)
        self._advance()

    # -- waiting for deltas --------------------------------------------------------------------

    def is_readable(self, version: int) -> bool:
        """Whether a read that needs ``version`` need not wait."""
        return self.readable_through >= version and self.readable_through >= self.applied_through

    def note_read(self) -> None:
        """Note that reads are not all answered by the shim's cache."""
        self._read_at = max(self.applied_through, self.readable_through)

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
            needed = max(version, self.applied_through)
            self._readers.add(needed, waiter)
            self._need_sorted(needed)

    def _need_sorted(self, version: int) -> None:
        self._sort_through = max(self._sort_through, version)
        self._sort_if_needed()

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
            self._sort_through = max(self._sort_through, version)
            self._admit()
            self.check_not_broken()
            if self._sorting:
                self._sort_done.wait(_SORT_WAIT_S)
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
            self._writers.add(version, waiter)
            self._write_through = max(self._write_through, version)
            self._sort_through = max(self._sort_through, version)
            self._advance()

    def _is_written(self, version: Version) -> bool:
        if self.readable_through < version:
            return False
        return not self._runs or self._runs[0].first > version

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
        if not self.is_open or self.incarnation != incarnation or self.written_through > version:
            return False
        # A merged run is written whole or not at all.
        if any(run.first <= version < run.last for run in self._runs):
            return False
        if self._writing is not None and self._writing[0].last > version:
            return False
        self._barrier = version
        return True

    def release_held(self, incarnation: int) -> None:
        """Write held runs again when needed, if the database still has this ``incarnation``."""
        if incarnation == self.incarnation:
            self._barrier = None
            self._advance()

    def memtable_bytes(self) -> int:
        """Return the size of the open database's memtables, 0 if none is open."""
        return self.db.memtable_bytes() if self.is_open else 0

    def flush(self) -> None:
        """Write the memtables to SSTs. Any thread."""
        rows = self._rows
        if rows is not None:
            self._metrics.add("flushes_count")
            rows.database.flush()

    def join_one_long_list(self) -> int:
        """Rewrite one list of many chunks; return its bytes, 0 if there was none."""
        if not self.is_open or self._barrier is not None or self._writing is not None:
            return 0
        if self.db.is_write_stopped():
            return 0
        try:
            with self.reading() as rows:
                joined_bytes = rows.database.join_one_long_list()
        except CairnError as failure:
            self.give_up(failure)
            return 0
        if not joined_bytes:
            self._scheduler.with_long_lists.pop(self, None)
            return 0
        self._metrics.add("lists_joined_count")
        return joined_bytes


def _nothing() -> None:
    """Show that the event loop runs."""
