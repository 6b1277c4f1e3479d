"""Arrivals: committed versions that wait for their sorting, and up to which reads find them.

Layer: store. Deltas are sorted when a read, a snapshot or the bound of pending bytes needs them:
the shim's cache answers most reads, and many deltas are sorted at once in much less time than each
alone.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cairn.store.local.merging import MAX_MERGED_BYTES, Merging
from cairn.store.local.waiters import Waiters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.errors import CairnError
    from cairn.ids import Version
    from cairn.store.rows.committed import CommittedRows
    from cairn.store.rows.deltas import CommittedRun, Delta
    from cairn.store.shared.resources import WorkerResources

_SORT_WAIT_S = 0.001
# The first read after many commits sorts their deltas.
MAX_UNSORTED = 64


class OpenStore(Protocol):
    """What arrivals and writer use of their store. On the event loop, except ``read_at``."""

    @property
    def is_open(self) -> bool:
        """Whether a database is open and not broken."""

    @property
    def rows(self) -> CommittedRows:
        """What reads find; REQUIRES: ``is_open``."""

    @property
    def barrier(self) -> Version | None:
        """The version of the snapshot that is being made.

        INVARIANT: no run has versions up to it and versions above it. No run above it is written.
        """

    @property
    def read_at(self) -> Version:
        """The newest version at the last read."""

    def advance(self) -> None:
        """Begin what can be done after a change."""

    def give_up(self, failure: CairnError) -> None:
        """Mark the database as broken; it then has no arrivals, and nothing is in progress."""


class Arrivals:
    """See the module. On the event loop, except ``add``; the attributes may be read by any thread.

    Attributes:
        applied_through: reads find all deltas up to this version; they wait for their sorting.
        readable_through: all deltas up to this version are in runs, or in the database.
        waiters: reads that wait for ``readable_through``.
    """

    def __init__(self, store: OpenStore, resources: WorkerResources) -> None:
        self._store = store
        self._resources = resources
        self._deltas: deque[Delta] = deque()
        self._sorting = Merging(resources, store.give_up)  # the first of `_deltas`
        self._sort_through = 0  # deltas up to this version must be sorted
        self.waiters = Waiters()
        self.applied_through = 0
        self.readable_through = 0

    def begin(self, version: Version) -> None:
        """Follow a database that holds ``version``. REQUIRES: ``drop`` before."""
        self.applied_through = self.readable_through = version
        self._sort_through = 0

    def drop(self) -> None:
        """Forget all deltas, and their sort. Idempotent."""
        while self._deltas:
            self._resources.pending.add(self._store, -self._deltas.popleft().size_bytes)
        self._sorting.stop()

    def add(self, delta: Delta) -> None:
        """Add a delta; versions ascend. Any thread, one at a time; ``admit`` follows."""
        self._resources.pending.expect(self._store, delta.size_bytes)
        self._resources.pending.add(self._store, delta.size_bytes)
        self._deltas.append(delta)

    def admit(self) -> None:
        """Note the deltas that have arrived, and whether they must be sorted."""
        self._take_empty()
        if len(self._deltas) > MAX_UNSORTED:
            self.need(self._deltas[-1].last)
        elif self._deltas:
            self.applied_through = self._deltas[-1].last

    def _take_empty(self) -> None:
        """Make the first deltas readable, as far as they have no rows."""
        while self._deltas and not self._sorting.parts and not self._deltas[0].row_count:
            self._make_readable([self._deltas[0]], None)
        self.waiters.call(lambda version: version <= self.readable_through)

    def _make_readable(self, deltas: Sequence[Delta], run: CommittedRun | None) -> None:
        pending, rows = self._resources.pending, self._store.rows
        for delta in deltas:
            self._deltas.popleft()
            pending.add(self._store, -delta.size_bytes)
        if run is not None:
            pending.add(self._store, run.size_bytes)
            rows.add(run)
        newest = deltas[-1]
        rows.database.multi_families = newest.multi_families
        self.readable_through = newest.last
        self.applied_through = max(self.applied_through, newest.last)

    def need(self, version: Version) -> None:
        """Note that all deltas up to ``version`` must be sorted, also those to come."""
        self._sort_through = max(self._sort_through, version)

    def sort_if_needed(self) -> None:
        """Begin to sort the first deltas, if they are needed and none is being sorted."""
        self._take_empty()  # a delta without rows, of which `admit` does not know yet, has no run
        if self._sorting.parts or not self._deltas or self._deltas[0].first > self._sort_through:
            return
        barrier = self._store.barrier
        deltas: list[Delta] = []
        size = 0
        for delta in list(self._deltas):
            size += delta.size_bytes
            if deltas and size > MAX_MERGED_BYTES:
                break
            if deltas and barrier is not None and deltas[0].first <= barrier < delta.first:
                break
            deltas.append(delta)
        self._sorting.begin(deltas, partial(self._use_sorted, deltas))

    def _use_sorted(self, deltas: Sequence[Delta], run: CommittedRun) -> None:
        barrier = self._store.barrier
        if barrier is None or not run.spans(barrier):
            self._make_readable(deltas, run)
        self._store.advance()

    def wait_for_sort(self) -> None:
        """Wait a millisecond for the sort in progress, if there is one."""
        self._sorting.wait(_SORT_WAIT_S)

    def is_sorting_up_to(self, version: Version) -> bool:
        """Return whether deltas are being sorted that have versions up to this one."""
        return bool(self._sorting.parts) and self._sorting.parts[0].first <= version

    @property
    def oldest(self) -> Delta | None:
        """The first delta that is in no run."""
        return self._deltas[0] if self._deltas else None

    @property
    def newest_version(self) -> Version:
        """The last version that has arrived."""
        return self._deltas[-1].last if self._deltas else self.readable_through

    def size_bytes(self) -> int:
        """Return the bytes of the deltas. Any thread."""
        return sum(delta.size_bytes for delta in list(self._deltas))

    def row_count(self) -> int:
        """Return the number of rows of the deltas. Any thread."""
        return sum(delta.row_count for delta in list(self._deltas))
