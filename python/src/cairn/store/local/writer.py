"""DatabaseWriter: merges the runs of committed versions and writes them into the database.

Layer: store. Runs stay in memory until a snapshot needs them, or until the bound of pending bytes
is reached. Then they are merged, so that a key that several versions wrote is written once, and
enter the database as one file. A file is written in the background, or in slices on the event loop;
its end is in the background.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from cairn.errors import CairnError, unexpected
from cairn.store.local.merging import MAX_MERGED_BYTES, Merging
from cairn.store.local.waiters import Waiters
from cairn.store.rows.runs import first_to_merge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cairn.ids import Version
    from cairn.metrics import Metrics
    from cairn.rocks import Ingestion, RocksDb
    from cairn.store.local.arrivals import Arrivals, OpenStore
    from cairn.store.rows.deltas import CommittedRun, Delta
    from cairn.store.shared.resources import WorkerResources

_LOG = logging.getLogger(__name__)
_SLICE_NS = 800_000
_PIECE_ROWS = 1024
_PIECE_BYTES = 128 * 1024
# A read searches every run: some 1 us for a key.
_MAX_RUNS = 8


class DatabaseWriter:
    """See the module, and ``ScheduledStore``. On the event loop, if it says nothing else.

    Attributes:
        written_through: the newest version of which the database has writes.
        waiters: calls that wait until the database has all writes up to a version.
    """

    def __init__(
        self, store: OpenStore, arrivals: Arrivals, resources: WorkerResources, metrics: Metrics
    ) -> None:
        self._store = store
        self._arrivals = arrivals
        self._resources = resources
        self._scheduler = resources.scheduler
        self._metrics = metrics
        self._merging = Merging(resources, store.give_up)
        self._writing: tuple[CommittedRun, Ingestion] | None = None  # the first run
        self._write_through = 0  # runs up to this version must be written
        self._read_at = 0  # that of the store, at the last write into the database
        self.waiters = Waiters()
        self.written_through = 0

    def begin(self, version: Version) -> None:
        """Follow a database that holds ``version``. REQUIRES: ``stop`` before."""
        self.written_through = version
        self._write_through = 0
        self._read_at = self._store.read_at

    def stop(self) -> None:
        """Forget what is in progress. Idempotent."""
        self._merging.stop()
        self._writing = None

    @property
    def _runs(self) -> tuple[CommittedRun, ...]:
        """The runs that the database lacks; a merge or write keeps the place of its runs."""
        return self._store.rows.newer if self._store.is_open else ()

    # -- what must be written ------------------------------------------------------------------

    @property
    def waiting_since_ns(self) -> int:
        """See ``ScheduledStore``. REQUIRES: there is a run or a delta."""
        oldest = self._oldest()
        return oldest.since_ns if oldest is not None else 0

    def _oldest(self) -> CommittedRun | Delta | None:
        runs = self._runs
        return runs[0] if runs else self._arrivals.oldest

    @property
    def run_bytes(self) -> int:
        """The bytes of runs whose write can begin; 0 if a merge or write is in progress."""
        if self._merging.parts or self._writing is not None or self._store.barrier is not None:
            return 0
        return self.pending_bytes()

    def pending_bytes(self) -> int:
        """Return the bytes of rows that the database does not have. Any thread."""
        return self._arrivals.size_bytes() + sum(run.size_bytes for run in self._runs)

    def pending_rows(self) -> int:
        """Return how many rows the database does not have; a key may have several. Any thread."""
        return self._arrivals.row_count() + sum(run.rows.num_rows for run in self._runs)

    @property
    def is_write_due(self) -> bool:
        """Whether rows that must be written are not written yet."""
        oldest = self._oldest()
        return oldest is not None and oldest.first <= self._write_through

    def write_runs(self) -> None:
        """Begin to write all rows into the database."""
        self.need(self._arrivals.newest_version)
        self._store.advance()

    def need(self, version: Version) -> None:
        """Note that all rows up to ``version`` must be written, also those to come."""
        self._write_through = max(self._write_through, version)
        self._arrivals.need(version)

    def is_past(self, version: Version) -> bool:
        """Return whether the database has, or will get, rows above ``version`` with others."""
        if self.written_through > version:
            return True
        # A run is written whole or not at all.
        if any(run.spans(version) for run in self._runs):
            return True
        return self._writing is not None and self._writing[0].last > version

    def advance(self) -> None:
        """Begin the next merge or write, if one is due and none is in progress."""
        if not self._merging.parts and self._writing is None:
            due = self._due_runs()
            if len(due) > 1:
                self._merge(due)
            elif due:
                self._begin_write(due[0])
            else:
                self._merge(self._small_runs())
        self.waiters.call(self._is_written)

    def _is_written(self, version: Version) -> bool:
        if self._arrivals.readable_through < version:
            return False
        runs = self._runs
        return not runs or runs[0].first > version

    def _due_runs(self) -> list[CommittedRun]:
        """Return the oldest runs that must be written, as many as may be merged.

        None if deltas are being sorted that belong into the same file. A run is written whole, also
        if it begins at or below ``_write_through`` and ends above it: deltas may have arrived
        before its sort began. None ends above the barrier.
        """
        barrier = self._store.barrier
        through = self._write_through if barrier is None else min(self._write_through, barrier)
        if self._arrivals.is_sorting_up_to(through):
            return []
        due: list[CommittedRun] = []
        size = 0
        for run in self._runs:
            size += run.size_bytes
            is_held_back = barrier is not None and run.last > barrier
            if run.first > through or is_held_back or (due and size > MAX_MERGED_BYTES):
                break
            due.append(run)
        return due

    # -- merges --------------------------------------------------------------------------------

    def _small_runs(self) -> Sequence[CommittedRun]:
        """Return the newest runs that should be merged, so that reads search few; often none."""
        runs = self._runs
        if len(runs) <= _MAX_RUNS:
            return ()
        barrier = self._store.barrier or 0
        some = [run for run in runs if run.last > barrier] or runs[-1:]
        return some[first_to_merge([run.size_bytes for run in some], MAX_MERGED_BYTES) :]

    def _merge(self, runs: Sequence[CommittedRun]) -> None:
        if len(runs) > 1:
            self._merging.begin(runs, partial(self._use_merged, runs))

    def _use_merged(self, runs: Sequence[CommittedRun], result: CommittedRun) -> None:
        barrier = self._store.barrier
        # A snapshot of a version in the middle needs the runs as they were.
        if barrier is None or not result.spans(barrier):
            self._store.rows.replace(runs, result)
            self._resources.pending.add(
                self._store, result.size_bytes - sum(run.size_bytes for run in runs)
            )
        self._store.advance()

    # -- a file of the database ----------------------------------------------------------------

    def _begin_write(self, run: CommittedRun) -> None:
        database = self._store.rows.database
        ingestion = database.new_ingestion(
            run.rows, run.last, run.multi_families, may_begin_lists=run.may_begin_lists
        )
        self._writing = run, ingestion
        read_at = self._store.read_at
        is_read, self._read_at = read_at != self._read_at, read_at
        self._resources.in_background(lambda: self._write(database, ingestion, is_read=is_read))

    def _write(self, database: RocksDb, ingestion: Ingestion, *, is_read: bool) -> None:
        """Write the file at once, or let the event loop write it in slices. In the background."""
        self._resources.release_memory_if_high()

        def write() -> None:
            database.note_use(is_read=is_read)
            database.write(ingestion, lambda: self._is_writing(ingestion))

        failure = self._tried(ingestion, write)
        if failure is None and ingestion.rows_left:
            self._resources.event_loop.post(lambda: self._write_in_slices(ingestion))
        else:
            self._resources.event_loop.post(lambda: self._ingest(ingestion, failure))

    def _is_writing(self, ingestion: Ingestion) -> bool:
        writing = self._writing
        return writing is not None and writing[1] is ingestion

    def _write_in_slices(self, ingestion: Ingestion) -> None:
        if self._is_writing(ingestion):
            self._scheduler.writing[self] = None

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
            self._store.give_up(failure)
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
        rows = self._store.rows
        try:
            if failure is not None:
                raise failure
            rows.database.ingest(ingestion)
        except CairnError as problem:
            self._store.give_up(problem)
            return
        self._writing = None
        self.written_through = run.last
        # In the same task as the ingestion: a read must not find an append twice.
        rows.replace([run])
        self._resources.pending.add(self._store, -run.size_bytes)
        self._store.advance()

    # -- memtables and lists -------------------------------------------------------------------

    def memtable_bytes(self) -> int:
        """Return the size of the database's memtables."""
        return self._store.rows.database.memtable_bytes()

    def flush(self) -> None:
        """Write the memtables to SSTs. Any thread."""
        if self._store.is_open:
            self._metrics.add("flushes_count")
            self._store.rows.database.flush()

    def join_one_long_list(self) -> int:
        """Rewrite one list of many chunks; return its bytes, 0 if there was none."""
        store = self._store
        if not store.is_open or store.barrier is not None or self._writing is not None:
            return 0
        database = store.rows.database
        if database.is_write_stopped():
            return 0
        try:
            joined_bytes = database.join_one_long_list()
        except CairnError as failure:
            store.give_up(failure)
            return 0
        if not joined_bytes:
            self._scheduler.with_long_lists.pop(self, None)
            return 0
        self._metrics.add("lists_joined_count")
        return joined_bytes
