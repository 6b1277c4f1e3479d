"""What a worker lends its instances: the owner thread, other threads, memory, time.

Layer: store. The engine makes one ``WorkerResources``; a test makes its own.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor

    from cairn.checkpoint.sst_cache import SstCache
    from cairn.rocks import RocksMemory
    from cairn.store.local_state import LocalState

Result = TypeVar("Result")


def _release_memory() -> None:
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class EventLoopThread(Protocol):
    """The one thread that touches rows in RocksDB."""

    def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` there and return its result."""

    def run_stepwise(self, steps: Generator[None, None, Result]) -> Result:
        """Advance ``steps`` there, serving others in between, and return its result."""

    def post_steps(self, step: Callable[[], bool]) -> None:
        """Call ``step`` there, serving others in between, until it returns false."""

    def post(self, task: Callable[[], None]) -> None:
        """Run ``task`` there some time soon; nobody waits."""

    def wake(self) -> None:
        """Make it look for work."""


class PendingBytes:
    """Bytes of committed deltas that wait for RocksDB, of all instances of a worker."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._changed = threading.Condition()
        self._bytes = 0

    @property
    def current(self) -> int:
        """Return what waits now."""
        return self._bytes

    def add(self, amount: int) -> None:
        """Count what was enqueued, or with a minus what was applied."""
        with self._changed:
            self._bytes += amount
            self._changed.notify_all()

    def wait_below_limit(self, timeout_s: float) -> bool:
        """Wait until the bound holds again; return whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self._bytes <= self.limit_bytes, timeout_s)


@dataclass
class WorkerResources:
    """What instances share.

    Args:
        owner: the thread that has RocksDB.
        memory: block cache and memtables.
        background: threads for runs, flushes and the like.
        sorting: a thread for deltas, which a commit of the next version may wait for.
        maintenance: threads for snapshots that nobody waits for.
        downloads: threads for objects coming in.
        uploads: threads for SSTs going out.
        cache: of SST files on the local disk.
        pending: the bound of deltas not applied yet.
        run_bytes: writes of an open session that are held in memory; what is above goes to disk,
            and at four times that the sender waits.
    """

    owner: EventLoopThread
    memory: RocksMemory
    background: Executor
    sorting: Executor
    maintenance: Executor
    downloads: Executor
    uploads: Executor
    cache: SstCache
    pending: PendingBytes
    run_bytes: int = 8 << 20
    metrics: Metrics = field(default_factory=Metrics)
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY
    # Whose deltas wait, and whose long lists; so that an idle store costs the loop nothing.
    with_deltas: dict[LocalState, None] = field(default_factory=dict)
    with_long_lists: dict[LocalState, None] = field(default_factory=dict)

    def release_memory(self) -> None:
        """Give back to the system what Arrow's pool and the C library keep, some time soon."""
        self.in_background(_release_memory)

    def in_background(self, job: Callable[[], None]) -> None:
        """Run a job in another thread, some time soon."""
        self.background.submit(job)
