"""A worker's instances, and the dispatch of control calls to them.

Layer: engine.  Spec: docs/protocol.md#control-calls.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import SYSTEM_ENTROPY
from cairn.engine.channel import Listener
from cairn.engine.commit_threads import CommitThreads
from cairn.engine.frame_service import FrameService
from cairn.engine.resources import WorkerLimits, make_resources
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
from cairn.rocks import engine_description
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.open import open_store
from cairn.store.front.instance import ProviderInstance

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.engine.directories import WorkerDirectories
    from cairn.storage.progress import Activity, Progress

# They are started one by one, when no other is idle. As many as tasks of an executor may commit.
_COMMIT_THREADS = 64
_LOADS: dict[str, type[LoadRequest]] = {"load": LoadRequest, "load_snapshot": LoadSnapshotRequest}


class Worker:
    """The instances of one process; every connection must send ``token`` first."""

    def __init__(self, directories: WorkerDirectories, limits: WorkerLimits, token: bytes) -> None:
        self._directories = directories
        # Unique among all executors: the writer of a snapshot recognises its own manifests by it.
        self._name = SYSTEM_ENTROPY.token(8)
        self._instances: dict[int, ProviderInstance] = {}
        self._instances_lock = threading.Lock()  # guards the two above
        self._storage = StorageConnections()
        self._resources, self._event_loop = make_resources(directories, limits)
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
