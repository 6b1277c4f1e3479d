"""ChangelogStream: the changelogs of a lineage in order, fetched ahead of their use.

Layer: store. The first fetches begin at once, so they run beside the download of SSTs. All loads of
a worker share one budget for what is fetched and not used yet; beyond it each load has one.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from cairn.format.changelog import Changelog
    from cairn.ids import VersionRef
    from cairn.storage.progress import Progress
    from cairn.store.shared.resources import ByteBudget

_MAX_FETCHES = 8
_FIRST_FETCHES = 2  # until the size of a changelog is known


@dataclass(slots=True, eq=False)
class _Fetch:
    future: Future[Changelog] | None = None
    reserved_bytes: int = 0


class ChangelogStream:
    """An iterator over changelogs; the caller closes it.

    Args:
        refs: the changelogs, in order.
        read: fetches and verifies one. Runs in ``threads``.
        threads: threads for downloads.
        budget: bytes of rows that all streams may have fetched ahead.
        progress: of the load; it ends the wait for a changelog if that is cancelled.
    """

    def __init__(
        self,
        refs: Sequence[VersionRef],
        read: Callable[[VersionRef], Changelog],
        threads: Executor,
        budget: ByteBudget,
        progress: Progress,
    ) -> None:
        self._progress = progress
        self._read = read
        self._threads = threads
        self._budget = budget
        self._lock = threading.RLock()  # a future that has ended calls back at once
        self._left = deque(refs)
        self._fetches: deque[_Fetch] = deque()  # begun, and not yet taken
        self._used = _Fetch()  # its changelog is with the consumer
        self._largest_bytes = 0
        self._is_closed = False
        self._fetch_more()

    def __iter__(self) -> Iterator[Changelog]:
        """Yield the changelogs; a fetch that failed, or ``CancelledError``, is raised here.

        Fetches as many as fit into the budget if all are as large as the largest yet.
        """
        while self._fetches:
            future = self._fetches[0].future
            assert future is not None  # noqa: S101 - set when the fetch is added
            self._progress.wait([future])
            changelog = future.result()
            with self._lock:
                self._used = self._fetches.popleft()
            self._used.future = future = None  # the consumer alone keeps the rows
            self._fetch_more()
            yield changelog
            del changelog
            self._release(self._used)
            self._fetch_more()

    def close(self) -> None:
        """Cancel what was not taken. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._left.clear()
            self._release(self._used)
            while self._fetches:
                fetch = self._fetches.popleft()
                self._release(fetch)
                if fetch.future is not None:
                    fetch.future.cancel()

    def _release(self, fetch: _Fetch) -> None:
        with self._lock:
            self._budget.add(-fetch.reserved_bytes)
            fetch.reserved_bytes = 0

    def _fetch_more(self) -> None:
        with self._lock:
            while self._left and self._reserve_next():
                ref, fetch = self._left.popleft(), _Fetch(reserved_bytes=self._largest_bytes)
                self._fetches.append(fetch)
                fetch.future = self._threads.submit(self._fetch, ref, fetch)

    def _reserve_next(self) -> bool:
        """Reserve the largest size yet for one more fetch; return whether it may begin."""
        count = len(self._fetches)
        if not count:
            # The next one is always fetched, else streams could wait for each other for ever.
            self._budget.add(self._largest_bytes)
            return True
        if not self._largest_bytes:
            return count < _FIRST_FETCHES
        return count < _MAX_FETCHES and self._budget.add_if_within(self._largest_bytes)

    def _fetch(self, ref: VersionRef, fetch: _Fetch) -> Changelog:
        changelog = self._read(ref)
        size = max(changelog.table.nbytes, 1)
        with self._lock:
            self._largest_bytes = max(self._largest_bytes, size)
            if not self._is_closed:
                self._budget.add(size - fetch.reserved_bytes)
                fetch.reserved_bytes = size
                self._fetch_more()
        return changelog
