"""LocalState: an instance's database, and the committed deltas on their way into it.

Layer: store. Methods run on the owner thread unless they say otherwise. A delta stays in the queue
until its last slice is written; ``applied_through`` then says its version, and who waits is told.
A database that fails to write, or a read of which finds corruption, is *broken*: nothing more is asked
of it, what waits is told, and the next load makes it anew from the objects.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from cairn.errors import CairnError, ClosedError, CorruptError, RetryableError
from cairn.rocks import Delta, RocksDb

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.metrics import Metrics
    from cairn.store.resources import WorkerResources

_LOG = logging.getLogger(__name__)
_SLICE_NS = 1_500_000
_PIECE_ROWS = 1024
_PIECE_BYTES = 128 * 1024
_PRESENCE_STRIDE = 512
_SORTED_AT_ONCE_ROWS = 2048
_SORT_WAIT_S = 0.001


class LocalState:
    """See the module.

    Args:
        services: of the worker.
        metrics: of the instance.
    """

    def __init__(self, services: WorkerResources, metrics: Metrics) -> None:
        self._services = services
        self._metrics = metrics
        self._pending: deque[tuple[int, Delta]] = deque()  # when it came, and what
        self._waiting: list[tuple[int, Callable[[CairnError | None], None]]] = []
        self._db: RocksDb | None = None
        # What a snapshot holds back: deltas above it wait until its local checkpoint is made.
        self._barrier: int | None = None
        self.applied_through = 0
        self.failure: CairnError | None = None
        # Counts openings: what began in one directory must not go on in the next.
        self.incarnation = 0

    @property
    def db(self) -> RocksDb:
        """Return the open database.

        Raises:
            RetryableError: none is open: load first.
            CairnError: it broke; the next load starts afresh.
        """
        self.require_sound()
        if self._db is None:
            raise RetryableError(
                "no version is loaded in this worker",
                code="CAIRN_UNKNOWN_INSTANCE",
                next_step="open the instance and load the version again",
            )
        return self._db

    @contextmanager
    def reading(self) -> Iterator[RocksDb]:
        """Yield the database for reads: one that finds corruption breaks it."""
        incarnation = self.incarnation
        try:
            yield self.db
        except CorruptError as failure:
            if incarnation == self.incarnation:
                self._break(failure)
            raise

    def require_sound(self) -> None:
        """Raise what broke the database, if anything did. Any thread."""
        if self.failure is not None:
            # Many tasks are told: of one raised again and again the traceback would only grow.
            raise copy.copy(self.failure)

    @property
    def is_open(self) -> bool:
        """Whether a sound database is open."""
        return self._db is not None and self.failure is None

    @property
    def waiting_since_ns(self) -> int:
        """When the oldest delta came; REQUIRES: ``has_work``."""
        return self._pending[0][0]

    @property
    def has_work(self) -> bool:
        """Whether a delta can be applied now."""
        if not self._pending or self._db is None or self.failure is not None:
            return False
        delta = self._pending[0][1]
        return delta.ready.is_set() and (self._barrier is None or delta.version <= self._barrier)

    def open(self, directory: Path, version: int, multi: frozenset[int], *, create: bool) -> None:
        """Open a directory that holds ``version``; REQUIRES: ``close`` before.

        Raises:
            CorruptError: it is no whole database; the next load checks the cache's files again.
            DiskFullError: no room.
        """
        memory = self._services.memory
        try:
            self._db = RocksDb(directory, memory, create=create, multi_families=multi)
        except CorruptError:
            self._services.cache.mark_unverified()
            raise
        self.applied_through = version
        self.incarnation += 1
        self.failure = None

    def check(self) -> None:
        """Find out what no delta has met yet: a flush or compaction that failed, on a full disk."""
        if self.is_open and self.db.is_broken():
            failure = RetryableError(
                "the local database could not write its files",
                code="CAIRN_LOCAL_DISK",
                next_step="load the version again; the worker then starts from the object store",
            )
            self._break(failure)

    def _break(self, failure: CairnError) -> None:
        """Use this database no more; its deltas are in the objects, and the next load has them."""
        if self._db is None or self.failure is not None:
            return
        self.failure = copy.copy(failure)  # without its traceback, which keeps frames alive
        # The cache's files are links to the same bytes; and a compaction that read a corrupt block
        # reports as a failed write.
        self._services.cache.mark_unverified()
        self._forget_deltas()
        self._tell(failure)

    def _forget_deltas(self) -> None:
        while self._pending:
            _, delta = self._pending.popleft()
            self._services.pending.add(-delta.bytes_left)
        self._rest()
        self._services.with_long_lists.pop(self, None)

    def close(self, reason: CairnError | None = None) -> None:
        """Forget the database and all that waits for it. Idempotent."""
        self._forget_deltas()
        self._barrier = None
        database, self._db = self._db, None
        self.incarnation += 1
        self._tell(reason or ClosedError("the store was loaded anew or closed meanwhile"))
        if database is not None:
            try:
                database.close()
            except CairnError as failure:
                # Its directory is never opened again: nothing is lost, and the next may open.
                _LOG.warning("a local database was not closed in good order: %s", failure)

    # -- deltas --------------------------------------------------------------------------------

    def enqueue(self, delta: Delta) -> None:
        """Hand over a committed delta; versions ascend. Any thread, one at a time."""
        self._services.pending.add(delta.bytes_left)
        if delta.rows_left > _SORTED_AT_ONCE_ROWS:
            delta.ready.clear()
            self._services.sorting.submit(self._sort, delta)
        else:
            delta.sort()
        self._pending.append((self._services.clock.monotonic_ns(), delta))
        self._services.with_deltas[self] = None
        if self.failure is not None:
            # It broke during the commit: nobody will apply this, so it must not count as waiting.
            self._services.owner.post(self._forget_if_broken)
        self._services.owner.wake()

    def _forget_if_broken(self) -> None:
        if self.failure is not None:
            self._forget_deltas()

    def _sort(self, delta: Delta) -> None:
        try:
            delta.sort()
        except Exception:  # noqa: BLE001 - unsorted it is applied as well, only slower
            _LOG.exception("the writes of version %d could not be sorted", delta.version)
        delta.ready.set()
        self._services.owner.wake()

    def pending_bytes(self) -> int:
        """Return the bytes of deltas not applied yet."""
        return sum(delta.bytes_left for _, delta in list(self._pending))

    def hold_for(self, version: int, incarnation: int) -> bool:
        """Apply no delta above ``version`` until released.

        ``False`` if RocksDB is past that version, or is of another opening.
        """
        if not self.is_open or self.incarnation != incarnation or self.applied_through > version:
            return False
        if self.applied_through == version and self._pending and self._pending[0][1].is_begun:
            return False  # half of the next version is in already
        self._barrier = version
        return True

    def release_hold(self, incarnation: int) -> None:
        """Let deltas go on; nothing if the database is another one by now."""
        if incarnation == self.incarnation:
            self._barrier = None

    def apply_slice(self) -> int:
        """Apply some rows, at most some 2 ms of them; return their bytes.

        An error breaks this database alone: ``failure`` keeps it, and the next load begins afresh.
        """
        clock = self._services.clock
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
            self._services.pending.add(delta.bytes_left - before)
        if not delta.rows_left:
            self._pending.popleft()
            self._rest()
            self.applied_through = delta.version
            self._tell(None)
        return (0, 0) if piece is None else (piece.num_rows, piece.nbytes)

    def _rest(self) -> None:
        """Leave the list of those with work when the queue is empty."""
        if self._pending:
            return
        self._services.with_deltas.pop(self, None)
        if self._pending:
            # Another thread enqueued between the two lines above.
            self._services.with_deltas[self] = None

    def when_applied(self, version: int, act: Callable[[CairnError | None], None]) -> None:
        """Call ``act`` once ``version`` is applied, or with the error that prevents it."""
        if self.applied_through >= version:
            act(None)
        elif self.failure is not None:
            act(copy.copy(self.failure))
        else:
            self._waiting.append((version, act))

    def _tell(self, failure: CairnError | None) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for version, act in waiting:
            if failure is not None or version <= self.applied_through:
                try:
                    act(failure)
                except Exception:  # noqa: BLE001 - the others wait as well, and so does the delta
                    _LOG.exception("what waited for version %d failed", version)
            else:
                self._waiting.append((version, act))

    def until_applied(
        self, version: int, incarnation: int | None = None
    ) -> Generator[None, None, None]:
        """Steps until ``version`` is applied.

        Args:
            version: REQUIRES: committed to this opening of the directory, or on its way.
            incarnation: the opening that is meant; by default the one at the first step.

        Raises:
            CairnError: the database broke, or another one was opened meanwhile.
        """
        expected = self.incarnation if incarnation is None else incarnation
        while True:
            if expected != self.incarnation:
                raise ClosedError("the store was loaded anew or closed meanwhile")
            if self.applied_through >= version:
                return
            if self._pending:
                self._pending[0][1].ready.wait(_SORT_WAIT_S)
            self.apply_slice()
            self.require_sound()
            yield

    def find_present(
        self, version: int, asked: Sequence[tuple[int, pa.Array[Any]]]
    ) -> Generator[None, None, list[bool]]:
        """Steps that find which keys exist at ``version``; REQUIRES: none above is committed."""
        yield from self.until_applied(version)
        found: list[bool] = []
        for cf, keys in asked:
            for start in range(0, len(keys), _PRESENCE_STRIDE):
                # A stride at a time: all keys as objects would weigh as much as the commit.
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
            counting = database.count_keys(cf)
        while True:
            with self.reading():
                counted = next(counting, None)
            if counted is None:
                return count
            count = counted
            yield

    def join_one_long_list(self) -> bool:
        """Rewrite a list that a read found long; return whether there was one."""
        if not self.is_open or self._barrier is not None or self._pending:
            return False
        with self.reading() as database:
            is_joined = database.join_one_long_list()
        if not is_joined:
            self._services.with_long_lists.pop(self, None)
            return False
        self._metrics.add("lists_joined_count")
        return True
