"""What all instances of a worker share, made from the worker's bounds.

Layer: engine.
"""

from __future__ import annotations

import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.transfers import DOWNLOAD_THREADS, UPLOAD_THREADS, TransferResources
from cairn.engine.event_loop import EventLoop
from cairn.rocks import RocksMemory
from cairn.store.shared.resources import ByteBudget, PendingBytes, WorkerResources
from cairn.store.shared.scheduler import Scheduler

if TYPE_CHECKING:
    from cairn.engine.directories import WorkerDirectories

_MIB = 1 << 20
_OPEN_FILES = 4096
# Each runs one snapshot and mostly waits for its upload, perhaps for hours: about one per store.
_SNAPSHOT_THREADS = 256
_FIRST_USE_BYTES = 32 * _MIB
_MIN_RUN_BYTES = 4 * _MIB
_MAX_RUN_BYTES = 32 * _MIB


@dataclass(frozen=True)
class WorkerLimits:
    """The bounds of one worker, from its start line.

    ``memory_bytes`` is in addition to what the process uses after its start. The code and libraries
    that the first batches load are subtracted. A quarter of the rest is for the block cache, 1/32
    for memtables, 7/32 for pending deltas. The remainder is for buffers in flight: a commit needs
    some three times the size of its rows, a merge of pending deltas as much memory as they have.
    Pending deltas and their merge may also use what the block cache does not need.
    """

    memory_bytes: int
    local_disk_bytes: int

    @property
    def _shared_bytes(self) -> int:
        return self.memory_bytes - _FIRST_USE_BYTES

    @property
    def run_bytes(self) -> int:
        """Bound of one session's writes in memory; see ``WorkerResources.run_bytes``."""
        return min(max(self._shared_bytes // 16, _MIN_RUN_BYTES), _MAX_RUN_BYTES)

    @property
    def cache_bytes(self) -> int:
        """Size of RocksDB's block cache."""
        return max(self._shared_bytes // 4, 8 * _MIB)

    @property
    def memtable_bytes(self) -> int:
        """Bound of all memtables together."""
        return max(self._shared_bytes // 32, 1 * _MIB)

    @property
    def pending_bytes(self) -> int:
        """Committed deltas that RocksDB does not have yet: their own share."""
        return max(self._shared_bytes // 32 * 7, 4 * _MIB)


def _open_files() -> int:
    """Return how many files RocksDB may keep open: a part of what the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _OPEN_FILES if soft == resource.RLIM_INFINITY else min(_OPEN_FILES, soft // 4)


def make_resources(
    directories: WorkerDirectories, limits: WorkerLimits
) -> tuple[WorkerResources, EventLoop]:
    """Return the resources, and the event loop among them; nothing is started."""
    background = ThreadPoolExecutor(2, "cairn-background")
    scheduler = Scheduler(limits.memtable_bytes, background)
    event_loop = EventLoop(scheduler.run_slice)
    memory = RocksMemory(limits.cache_bytes, limits.memtable_bytes, _open_files())
    resources = WorkerResources(
        event_loop=event_loop,
        scheduler=scheduler,
        memory=memory,
        background=background,
        sorting=ThreadPoolExecutor(1, "cairn-sorting"),
        maintenance=ThreadPoolExecutor(_SNAPSHOT_THREADS, "cairn-snapshot"),
        transfers=TransferResources(
            cache=SstCache(
                directories.cache_directory, limits.local_disk_bytes, directories.other_caches
            ),
            downloads=ThreadPoolExecutor(DOWNLOAD_THREADS, "cairn-download"),
            uploads=ThreadPoolExecutor(UPLOAD_THREADS, "cairn-upload"),
            upload_threads=UPLOAD_THREADS,
            download_threads=DOWNLOAD_THREADS,
        ),
        pending=PendingBytes(limits.pending_bytes, memory),
        fetched=ByteBudget(limits.pending_bytes),
        run_bytes=limits.run_bytes,
        high_memory_bytes=limits.memory_bytes // 8 * 5,
    )
    return resources, event_loop
