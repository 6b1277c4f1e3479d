"""A worker's instances, and the dispatch of control calls to them.

Layer: engine.  Spec: docs/protocol.md#control-calls.
"""

from __future__ import annotations

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.transfers import DOWNLOAD_THREADS, UPLOAD_THREADS, TransferResources
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import SYSTEM_ENTROPY
from cairn.engine.channel import Listener
from cairn.engine.commit_threads import CommitThreads
from cairn.engine.event_loop import EventLoop
from cairn.engine.frame_service import FrameService
from cairn.errors import ProtocolError, UnknownInstanceError
from cairn.protocol.calls import (
    AbortRequest,
    Answer,
    ChangesRequest,
    CloseRequest,
    FinishAnswer,
    FinishRequest,
    Json,
    LoadRequest,
    LoadSnapshotRequest,
    MaintainRequest,
    OpenRequest,
    Request,
)
from cairn.rocks import RocksMemory, engine_description
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.open import open_store
from cairn.store.front.instance import ProviderInstance
from cairn.store.shared.resources import ByteBudget, PendingBytes, WorkerResources
from cairn.store.shared.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.engine.directories import WorkerDirectories
    from cairn.storage.progress import Activity, Progress

_MIB = 1 << 20
_OPEN_FILES = 4096
# They are started one by one, when no other is idle. As many as tasks of an executor may commit.
_COMMIT_THREADS = 64
# Each runs one snapshot and mostly waits for its upload, perhaps for hours: about one per store.
_SNAPSHOT_THREADS = 256
_FIRST_USE_BYTES = 32 * _MIB
_MIN_RUN_BYTES = 4 * _MIB
_MAX_RUN_BYTES = 32 * _MIB
_LOADS: dict[str, type[LoadRequest]] = {"load": LoadRequest, "load_snapshot": LoadSnapshotRequest}


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


class Worker:
    """The instances of one process; every connection must send ``token`` first."""

    def __init__(self, directories: WorkerDirectories, limits: WorkerLimits, token: bytes) -> None:
        self._directories = directories
        # Unique among all executors: the writer of a snapshot recognises its own manifests by it.
        self._name = SYSTEM_ENTROPY.token(8)
        self._instances: dict[int, ProviderInstance] = {}
        self._instances_lock = threading.Lock()  # guards the two above
        self._storage = StorageConnections()
        background = ThreadPoolExecutor(2, "cairn-background")
        scheduler = Scheduler(limits.memtable_bytes, background)
        self._event_loop = EventLoop(scheduler.run_slice)
        memory = RocksMemory(limits.cache_bytes, limits.memtable_bytes, _open_files())
        self._resources = WorkerResources(
            event_loop=self._event_loop,
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
        frames = FrameService(
            self.instance,
            self._event_loop,
            downloads=self._resources.transfers.downloads,
            commits=CommitThreads(_COMMIT_THREADS),
            storage=self._storage,
        )
        self._listener = Listener(directories.socket_path, token, self._event_loop, frames)
        self._methods: dict[str, tuple[type[Request], Callable[[Any], Answer]]] = {
            "open_instance": (OpenRequest, self._open),
            "abort": (AbortRequest, self._abort),
            "maintain": (MaintainRequest, self._maintain),
            "changes": (ChangesRequest, self._changes),
            "close_instance": (CloseRequest, self._close),
            "finish": (FinishRequest, self._finish),
        }

    def start(self) -> None:
        """Begin to serve the data channel."""
        self._event_loop.start()
        self._resources.reader_pins.start()

    @property
    def activity(self) -> Activity:
        """Return what shows that the worker moves."""
        return self._resources.transfers.activity

    def call(self, method: str, arguments: Json, progress: Progress | None = None) -> Answer:
        """Run a control call; a load can be cancelled by ``progress``.

        Raises:
            ProtocolError: there is no such method.
        """
        if method in _LOADS:
            request = _LOADS[method].from_json(arguments)
            return self.instance(request.instance).load(request, progress)
        if method not in self._methods:
            raise ProtocolError(f"the engine has no method {method!r}")
        request_type, handle = self._methods[method]
        return handle(request_type.from_json(arguments))

    def instance(self, number: int) -> ProviderInstance:
        """Return an open instance.

        Raises:
            UnknownInstanceError: this worker has none of that number.
        """
        found = self._instances.get(number)
        if found is None:
            raise UnknownInstanceError(
                f"this worker has no instance {number}",
                next_step="open the instance and load the version again",
            )
        return found

    # -- control calls -------------------------------------------------------------------------

    def _open(self, request: OpenRequest) -> Answer:
        number = request.instance
        with self._instances_lock:
            known = self._instances.get(number)
            if known is None:
                checkpoint = StoreCheckpoint(
                    open_store(request.url, request.storage, self._storage),
                    request.store,
                    request.checkpoint_format,
                    request.conf,
                    SnapshotWriter(request.run_id, f"{self._name}/{number}", engine_description()),
                    self._resources.transfers,
                )
                self._instances[number] = ProviderInstance(
                    checkpoint, self._directories.instance_directory(number), self._resources
                )
        if known is not None:
            # The shim opens an instance again if it does not know whether it is open, or has other
            # credentials; the loaded version stays.
            known.renew(request.storage)
        return Answer()

    def _abort(self, request: AbortRequest) -> Answer:
        found = self._instances.get(request.instance)
        if found is not None:
            found.end_sessions(request.session.number)
        return Answer()

    def _maintain(self, request: MaintainRequest) -> Answer:
        instance = self.instance(request.instance)
        if request.storage is not None:
            # Sent each time, because temporary credentials may have been renewed.
            instance.renew(request.storage)
        return instance.maintain(request)

    def _changes(self, request: ChangesRequest) -> Answer:
        return self.instance(request.instance).changes.versions(request)

    def _close(self, request: CloseRequest) -> Answer:
        with self._instances_lock:
            found = self._instances.pop(request.instance, None)
        if found is not None:
            found.close(request.snapshot_wait_ms / 1000)
            self._resources.release_memory()
        return Answer()

    def _finish(self, request: FinishRequest) -> Answer:
        return FinishAnswer(self._resources.snapshots.wait(request.snapshot_wait_ms / 1000))
