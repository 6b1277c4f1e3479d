"""SnapshotRuns: the snapshot of a store that is running, and the clean-up after it.

Layer: store. Calls that want a snapshot wait for the one that is running.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.purge import PurgeSchedule

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from datetime import datetime

    from cairn.clock import Clock
    from cairn.errors import CairnError


@dataclass(frozen=True)
class SnapshotDone:
    """What a snapshot did: nothing, if none was due.

    Attributes:
        uploaded_files: files that were uploaded.
        uploaded_bytes: their size.
        reused_files: files that the object store had.
        duration_ms: how long it took.
        store_time: the time of the last upload, by the storage's clock; ``None`` if this writer
            uploaded no SST, or did not store the manifest.
        deleted_objects: objects that were deleted before.
        is_stored: whether this writer stored the manifest: a clean-up follows.
        is_sweep_due: whether that sweeps, too.
    """

    uploaded_files: int = 0
    uploaded_bytes: int = 0
    reused_files: int = 0
    duration_ms: int = 0
    store_time: datetime | None = None
    deleted_objects: int = 0
    is_stored: bool = False
    is_sweep_due: bool = False


class SnapshotRuns:
    """See the module.

    Attributes:
        lock: held during a snapshot or purge.
        purges: when the next purge is due.
        failure: why the last snapshot failed; ``None`` if it did not. The run sets it.
        clean_up: the clean-up after the last snapshot; its result is the number of deleted objects.
            The run sets it before it ends.
    """

    def __init__(self, clock: Clock, *, grace_ms: int) -> None:
        self.lock = threading.Lock()
        self.purges = PurgeSchedule(clock, grace_ms)
        self.failure: CairnError | None = None
        self.clean_up: Future[int] | None = None
        self._run: Future[SnapshotDone] | None = None
        self._run_lock = threading.Lock()

    def begin(self, start: Callable[[], Future[SnapshotDone]]) -> tuple[Future[SnapshotDone], bool]:
        """Return the running snapshot, or that of ``start``; and whether it is a new one."""
        with self._run_lock:
            if self._run is not None and not self._run.done():
                return self._run, False
            self._run = start()
            return self._run, True

    @property
    def run(self) -> Future[SnapshotDone] | None:
        """Return the running snapshot."""
        run = self._run
        return None if run is None or run.done() else run
