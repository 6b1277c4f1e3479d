"""What the instances of a worker share: the event loop, threads, memory, time.

Layer: store. The engine creates one ``WorkerResources``; a test creates its own.
"""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from cairn.checkpoint.reader_pins import ReaderPins
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.memory import resident_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from concurrent.futures import Executor, Future

    from cairn.checkpoint.transfers import TransferResources
    from cairn.rocks import RocksMemory
    from cairn.store.shared.scheduler import Scheduler

Result = TypeVar("Result")

_RELEASE_AFTER_S = 1.0
# A release while most memory is in use finds little, and takes some milliseconds.
_RELEASE_INTERVAL_NS = 100_000_000
_NS_PER_S = 1_000_000_000
# Of the bound of pending bytes: commits of stores with few of them may use so much more.
_RESERVED_DIVISOR = 8


class _MemoryRelease:
    """Returns unused memory of Arrow's pool and of the C library to the system. Thread-safe.

    ``soon`` does so at most once per second: the system clears each page when it gives it out
    again, and the next commit needs as much memory. ``if_high`` does so at once if the process has
    grown: memory that was freed between buffers in use stays in it otherwise, up to twice as much
    as is in use.

    Args:
        high_bytes: the growth since this object was made above which ``if_high`` releases memory;
            ``None``: it never does.
    """

    def __init__(self, high_bytes: int | None, clock: Clock) -> None:
        self._high_bytes = high_bytes
        self._start_bytes = resident_bytes()
        self._clock = clock
        self._is_due = threading.Lock()  # held from the first call until the release
        self._next_ns = 0

    def soon(self) -> None:
        if self._is_due.acquire(blocking=False):
            timer = threading.Timer(_RELEASE_AFTER_S, self._release_later)
            timer.daemon = True
            timer.start()

    def if_high(self) -> None:
        if self._high_bytes is None:
            return
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._next_ns and resident_bytes() - self._start_bytes > self._high_bytes:
            self._next_ns = now_ns + _RELEASE_INTERVAL_NS
            self._release()

    def _release_later(self) -> None:
        self._is_due.release()  # before the work: a later call needs a later release
        self._release()

    def _release(self) -> None:
        pa.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class EventLoopThread(Protocol):
    """The only thread that reads or writes rows in RocksDB."""

    def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` there and return its result."""

    def run_stepwise(self, steps: Generator[None, None, Result]) -> Result:
        """Advance ``steps`` there, with other work in between, and return the result."""

    def post(self, task: Callable[[], None], *, wakes: bool = True) -> None:
        """Run ``task`` there soon, without waiting for it; unless ``wakes``, after ``wake``."""

    def wake(self) -> None:
        """Make it look for posted tasks."""


class PendingBytes:
    """Bytes of committed deltas that RocksDB does not have yet, over all instances of a worker.

    They have a share of the worker's memory, and a merge of them may need as much again. Both may
    also use the spare bytes of the block cache, a half each. Rows are written when the half of
    share and spare bytes is in use; a merge needs as much as they have, so both fit. A worker
    whose stores are in the shim's cache reads few blocks. Its rows then wait longer for RocksDB,
    and of more versions only the newest row of a key is written.

    Above the bound a commit waits for the rows of its own store: until that has no more than its
    part of the bound. So a store whose rows take long to write holds up no other one. Only above
    the bound by a further part do all commits wait: the memory is needed.

    Args:
        own_bytes: the share.
        memory: has the block cache; ``None``: the share is all there is.
    """

    def __init__(self, own_bytes: int, memory: RocksMemory | None = None) -> None:
        self._own_bytes = own_bytes
        self._memory = memory
        self._changed = threading.Condition()
        self._bytes = 0
        self._bytes_of: dict[object, int] = {}  # by store, none of them 0
        self._expected: dict[object, int] = {}
        self._expected_bytes = 0

    @property
    def current(self) -> int:
        """Return the bytes that are pending now."""
        return self._bytes

    @property
    def limit_bytes(self) -> int:
        """Return the bound as it is now: it falls while reads fill the block cache."""
        return self._own_bytes + self._spare_bytes() // 2

    @property
    def is_high(self) -> bool:
        """Whether rows should be written now, so that no commit has to wait at the limit.

        The next commit of each store must fit while these rows are written. Below the half, rows
        that later versions replace were written too: a tenth of the worker's CPU in an aggregation.
        """
        half = (self._own_bytes + self._spare_bytes()) // 2
        until_wait = self.limit_bytes - self._expected_bytes
        return self._bytes > max(self._own_bytes // 2, min(half, until_wait))

    def must_wait(self, store: object) -> bool:
        """Whether a commit of a store must wait; see the class."""
        limit = self.limit_bytes
        excess = self._bytes - limit
        if excess <= 0:
            return False
        part = limit // max(1, len(self._bytes_of))
        return excess > limit // _RESERVED_DIVISOR or self._bytes_of.get(store, 0) > part

    def add(self, store: object, amount: int) -> None:
        """Add bytes that a store enqueued; a negative amount: they were written or dropped."""
        with self._changed:
            self._bytes += amount
            left = self._bytes_of.pop(store, 0) + amount
            if left:
                self._bytes_of[store] = left
            if self._memory is not None:
                self._memory.is_lent = self._bytes > self._own_bytes
            self._changed.notify_all()

    def expect(self, store: object, size_bytes: int) -> None:
        """Note what a store has committed: its next commit brings about as much. 0: none comes."""
        with self._changed:
            self._expected_bytes += size_bytes - self._expected.pop(store, 0)
            if size_bytes:
                self._expected[store] = size_bytes

    def wait(self, store: object, timeout_s: float) -> bool:
        """Wait while ``must_wait``; return whether that ended within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self.must_wait(store), timeout_s)

    def _spare_bytes(self) -> int:
        return 0 if self._memory is None else self._memory.spare_bytes()


class ByteBudget:
    """Bytes in use by several users, with a common limit that each of them observes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def current(self) -> int:
        """Return the bytes that are in use now."""
        return self._bytes

    def add(self, amount: int) -> None:
        """Add bytes, also above the limit; a negative amount returns them."""
        with self._lock:
            self._bytes += amount

    def add_if_within(self, amount: int) -> bool:
        """Add bytes if the sum stays within the limit; return whether it did."""
        with self._lock:
            if self._bytes + amount > self._limit_bytes:
                return False
            self._bytes += amount
            return True


class RunningSnapshots:
    """The snapshots and clean-ups that run in a worker: its end waits for them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stores: dict[Future[Any], str] = {}

    def add(self, run: Future[Any], store: str) -> None:
        """Note a snapshot or a clean-up, until it ends."""
        with self._lock:
            self._stores[run] = store
        run.add_done_callback(self._remove)

    def _remove(self, run: Future[Any]) -> None:
        with self._lock:
            self._stores.pop(run, None)

    def wait(self, wait_s: float) -> list[str]:
        """Wait until all have ended, or failed; return the stores of those that have not."""
        until_ns = SYSTEM_CLOCK.monotonic_ns() + int(wait_s * _NS_PER_S)
        while True:
            with self._lock:
                runs = {run: store for run, store in self._stores.items() if not run.done()}
            if not runs:
                return []
            # Its clean-up follows a snapshot.
            _, left = wait(runs, max(0.0, (until_ns - SYSTEM_CLOCK.monotonic_ns()) / _NS_PER_S))
            if left:
                return sorted({runs[run] for run in left})


@dataclass
class WorkerResources:
    """What the instances of a worker share.

    Attributes:
        event_loop: the thread that owns RocksDB.
        scheduler: chooses the store whose rows are written next.
        memory: block cache and memtables.
        background: threads for spill runs, the ends of files, flushes and similar work.
        sorting: a thread that sorts and merges deltas; reads of a version may wait for it.
        maintenance: threads for snapshots, which may take hours: about one per store.
        transfers: the SST cache and the threads for downloads and uploads.
        pending: the bound of committed deltas that RocksDB does not have yet.
        fetched: the bound of changelogs that loads have fetched ahead.
        run_bytes: bound of an open session's writes in memory. Above it they are written to disk;
            at four times this size the sender is paused.
        clock: measures durations.
        entropy: generates ids.
        high_memory_bytes: growth of the process from which unused memory is returned to the system
            before large buffers are needed; ``None``: it never is.
        reader_pins: protects the versions of long reads.
        snapshots: those that run.
    """

    event_loop: EventLoopThread
    scheduler: Scheduler
    memory: RocksMemory
    background: Executor
    sorting: Executor
    maintenance: Executor
    transfers: TransferResources
    pending: PendingBytes
    fetched: ByteBudget
    run_bytes: int = 8 << 20
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY
    high_memory_bytes: int | None = None
    reader_pins: ReaderPins = field(init=False)
    snapshots: RunningSnapshots = field(init=False, default_factory=RunningSnapshots)
    _memory_release: _MemoryRelease = field(init=False)

    def __post_init__(self) -> None:
        """Create what needs the clock."""
        self.reader_pins = ReaderPins(self.clock, self.entropy)
        self._memory_release = _MemoryRelease(self.high_memory_bytes, self.clock)

    def release_memory(self) -> None:
        """Return unused memory to the system, within about a second."""
        self._memory_release.soon()

    def release_memory_if_high(self) -> None:
        """Return unused memory to the system now, if there is much: large buffers are needed."""
        self._memory_release.if_high()

    def in_background(self, job: Callable[[], object]) -> None:
        """Run a job in another thread soon."""
        self.background.submit(job)
