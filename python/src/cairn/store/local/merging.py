"""Merging: committed versions that the sorting thread makes one run of.

Layer: store.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from cairn.errors import unexpected
from cairn.store.rows.deltas import CommittedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cairn.errors import CairnError
    from cairn.store.rows.deltas import Delta
    from cairn.store.shared.resources import WorkerResources

    Parts = Sequence[Delta | CommittedRun]

_LOG = logging.getLogger(__name__)
# Of the parts of one run. Arrow counts the bytes of a column in 32 bits.
MAX_MERGED_BYTES = 256 << 20


class Merging:
    """One sort or merge at a time. On the event loop.

    Args:
        resources: of the worker.
        failed: receives the error of one that fails.

    Attributes:
        parts: the deltas and runs that are sorted and merged now; empty: none are.
    """

    def __init__(self, resources: WorkerResources, failed: Callable[[CairnError], None]) -> None:
        self._resources = resources
        self._failed = failed
        self.parts: Parts = ()
        self._done = threading.Event()

    def begin(self, parts: Parts, use: Callable[[CommittedRun], None]) -> None:
        """Begin to make one run of ``parts``, which ``use`` receives. REQUIRES: none is begun."""
        self.parts = parts
        self._done = threading.Event()
        self._resources.sorting.submit(self._run, parts, use, self._done)

    def _run(
        self, parts: Parts, use: Callable[[CommittedRun], None], done: threading.Event
    ) -> None:
        self._resources.release_memory_if_high()
        post = self._resources.event_loop.post
        try:
            run = CommittedRun(parts)
        except Exception as problem:  # noqa: BLE001 - all calls of this store must get it
            first, last = parts[0].first, parts[-1].last
            _LOG.error("versions %d to %d were not merged", first, last, exc_info=problem)
            failure = unexpected(problem)
            post(lambda: self._end(parts, lambda: self._failed(failure)))
        else:
            post(lambda: self._end(parts, lambda: use(run)))
        done.set()

    def _end(self, parts: Parts, act: Callable[[], None]) -> None:
        if self.parts is parts:  # not stopped meanwhile
            self.parts = ()
            act()

    def stop(self) -> None:
        """Ignore the result of what has begun. Idempotent."""
        self.parts = ()

    def wait(self, timeout_s: float) -> None:
        """Wait for the end of what has begun, for a short time."""
        if self.parts:
            self._done.wait(timeout_s)
