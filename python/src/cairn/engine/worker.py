"""A worker's instances, and who answers what: control calls by name, frames by kind.

Layer: engine.  Spec: docs/architecture.md.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from cairn.checkpoint.sst_cache import SstCache
from cairn.clock import SYSTEM_ENTROPY
from cairn.config import EngineConf
from cairn.engine.channel import Connection, Listener
from cairn.engine.event_loop import EventLoop
from cairn.engine.reads import ReadService, reported
from cairn.errors import CairnError, ProtocolError, RetryableError
from cairn.format.header import ColumnFamily
from cairn.ids import Attempt, StoreId
from cairn.protocol import frames
from cairn.rocks import RocksMemory
from cairn.storage.open import open_store
from cairn.store.commit import CommitRequest
from cairn.store.durable import Durable
from cairn.store.instance import ProviderInstance
from cairn.store.load import LoadRequest, SnapshotChoice
from cairn.store.memtables import MemtableBound
from cairn.store.resources import PendingBytes, WorkerResources
from cairn.store.writes import WRITES_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.engine.directories import WorkerDirectories
    from cairn.protocol.frames import Header
    from cairn.store.local_state import LocalState

_LOG = logging.getLogger(__name__)
Arguments = dict[str, Any]
_MIB = 1 << 20
_OPEN_FILES = 4096
_FIRST_USE_BYTES = 32 * _MIB
_MIN_RUN_BYTES = 4 * _MIB
_MAX_RUN_BYTES = 32 * _MIB
_STOPPED_PAUSE_S = 0.0005


@dataclass(frozen=True)
class WorkerLimits:
    """The bounds of one worker, from its start line.

    Args:
        memory_bytes: above what the process holds after its start. What the first batches load of
            code and libraries comes off first; of the rest a quarter is block cache, an eighth
            memtables, an eighth deltas waiting, and what is left for buffers in flight, of which a
            commit holds some three times its rows.
        local_disk_bytes: of the SST cache.
        download_threads: objects downloaded at once.
        upload_threads: SSTs uploaded at once.
    """

    memory_bytes: int
    local_disk_bytes: int
    download_threads: int
    upload_threads: int

    @property
    def _shared_bytes(self) -> int:
        return self.memory_bytes - _FIRST_USE_BYTES

    @property
    def run_bytes(self) -> int:
        """Of one session's writes in memory; what is above goes to disk.

        Four times that while the disk is slower than who sends; then the sender waits.
        """
        return min(max(self._shared_bytes // 16, _MIN_RUN_BYTES), _MAX_RUN_BYTES)

    @property
    def cache_bytes(self) -> int:
        """Of RocksDB's block cache."""
        return max(self._shared_bytes // 4, 8 * _MIB)

    @property
    def memtable_bytes(self) -> int:
        """Of all memtables together."""
        return max(self._shared_bytes // 8, 4 * _MIB)

    @property
    def pending_bytes(self) -> int:
        """Of committed deltas that RocksDB does not hold yet."""
        return max(self._shared_bytes // 8, 4 * _MIB)


class Worker:
    """One process's instances.

    Args:
        directories: its place on the local disk, with the socket's path.
        limits: its bounds.
        token: what a connection must say first.
    """

    def __init__(self, directories: WorkerDirectories, limits: WorkerLimits, token: bytes) -> None:
        self._directories = directories
        self._limits = limits
        # Unique among all executors: a snapshot's writer tells its own manifest by it.
        self._name = SYSTEM_ENTROPY.token(8)
        self._instances: dict[int, ProviderInstance] = {}
        self._opening = threading.Lock()
        self._asked: dict[int, Arguments] = {}
        self._owner = EventLoop(self._idle_work)
        self._services = WorkerResources(
            owner=self._owner,
            memory=RocksMemory(limits.cache_bytes, limits.memtable_bytes, _OPEN_FILES),
            background=ThreadPoolExecutor(2, "cairn-background"),
            sorting=ThreadPoolExecutor(1, "cairn-sorting"),
            maintenance=ThreadPoolExecutor(1, "cairn-maintenance"),
            downloads=ThreadPoolExecutor(limits.download_threads, "cairn-download"),
            uploads=ThreadPoolExecutor(limits.upload_threads, "cairn-upload"),
            cache=SstCache(directories.cache_directory, limits.local_disk_bytes),
            pending=PendingBytes(limits.pending_bytes),
            run_bytes=limits.run_bytes,
        )
        self._memtables = MemtableBound(self._services)
        self._stumbled: WeakSet[LocalState] = WeakSet()
        self._reads = ReadService(self._services)
        self._listener = Listener(directories.socket_path, token, self._owner, self)
        self._methods: dict[str, Callable[[Arguments], Arguments]] = {
            "open_instance": self._open_instance,
            "load": self._load,
            "load_snapshot": self._load_snapshot,
            "commit": self._commit,
            "abort": self._abort,
            "maintain": self._maintain,
            "changes": self._changes,
            "close_instance": self._close_instance,
        }

    def start(self) -> None:
        """Begin to serve the data channel."""
        self._owner.start()

    def find_method(self, name: str) -> Callable[[Arguments], Arguments]:
        """Return the control method of a name.

        Raises:
            ProtocolError: there is none.
        """
        found = self._methods.get(name)
        if found is None:
            raise ProtocolError(f"the engine has no method {name!r}")
        return found

    def instance(self, number: int) -> ProviderInstance:
        """Return an open instance.

        Raises:
            RetryableError: this worker has none of that number; open it and load again.
        """
        found = self._instances.get(number)
        if found is None:
            raise RetryableError(
                f"this worker has no instance {number}",
                code="CAIRN_UNKNOWN_INSTANCE",
                next_step="open the instance and load the version again",
            )
        return found

    # -- control calls -------------------------------------------------------------------------

    def _open_instance(self, asked: Arguments) -> Arguments:
        number = int(asked["instance"])
        with self._opening:
            self._asked[number] = asked
            known = self._instances.get(number)
            conf = EngineConf.from_mapping(asked.get("conf") or {})
            durable = Durable.of(
                open_store(asked["url"], asked["storage"] or {}),
                StoreId(**asked["store"]),
                int(asked["checkpoint_format"]),
                conf,
                run_id=asked["run_id"],
                instance=f"{self._name}/{number}",
                services=self._services,
            )
            if known is None:
                self._instances[number] = ProviderInstance(
                    number, durable, self._directories.instance_directory(number), self._services
                )
        if known is not None:
            # The shim opens anew when it is unsure, or has other credentials: what is loaded here
            # is still right. It may have to wait for a load; other stores open meanwhile.
            known.use(durable)
        return {}

    def _load(self, asked: Arguments) -> Arguments:
        return self.instance(int(asked["instance"])).load(_load_request(asked, None))

    def _load_snapshot(self, asked: Arguments) -> Arguments:
        snapshot = SnapshotChoice(
            int(asked["snapshot_version"]), asked.get("snapshot_checkpoint_id")
        )
        return self.instance(int(asked["instance"])).load(_load_request(asked, snapshot))

    def _commit(self, asked: Arguments) -> Arguments:
        request = CommitRequest(
            session=_session_number(asked),
            frames=int(asked["frames"]),
            rows=int(asked["rows"]),
            version=int(asked["version"]),
            base_checkpoint_id=asked.get("base_checkpoint_id"),
            families=tuple(ColumnFamily.from_json(one) for one in asked["column_families"]),
            max_cf_id=int(asked["max_cf_id"]),
            attempt=Attempt(**asked["attempt"]),
            snapshot=bool(asked.get("snapshot", False)),
            track_counts=bool(asked.get("track_counts", True)),
            are_distinct=bool(asked.get("are_distinct", False)),
        )
        return self.instance(int(asked["instance"])).commit(request)

    def _abort(self, asked: Arguments) -> Arguments:
        found = self._instances.get(int(asked["instance"]))
        if found is not None:
            found.abort(_session_number(asked))
        return {}

    def _maintain(self, asked: Arguments) -> Arguments:
        number = int(asked["instance"])
        instance = self.instance(number)
        opened = self._asked[number]
        # Sent each time, as temporary keys may have been renewed; mostly they have not.
        if asked.get("storage") not in (None, opened["storage"]):
            self._open_instance(opened | {"storage": asked["storage"]})
        return instance.maintain(snapshot=bool(asked["snapshot"]), cleanup=bool(asked["cleanup"]))

    def _changes(self, asked: Arguments) -> Arguments:
        found = self.instance(int(asked["instance"])).changes.versions(
            int(asked["start_version"]), int(asked["end_version"]), asked.get("end_checkpoint_id")
        )
        return {"versions": found}

    def _close_instance(self, asked: Arguments) -> Arguments:
        with self._opening:
            found = self._instances.pop(int(asked["instance"]), None)
            self._asked.pop(int(asked["instance"]), None)
        if found is not None:
            found.close()
            self._services.release_memory()
        return {}

    # -- the owner's side ----------------------------------------------------------------------

    def on_frame(self, header: Header, payload: memoryview, connection: Connection) -> None:
        """Serve one frame; see ``channel.Dispatcher``."""
        if header.kind == frames.WRITES:
            self._take_writes(header, payload, connection)
            return
        if not self._reads.knows(header.kind):
            raise ProtocolError(f"the engine knows no frames of kind 0x{header.kind:02x}")
        instance = self.instance(header.session >> 32)
        local = instance.local
        if header.applied <= local.applied_through:
            self._reads.serve(instance, header, payload, connection)
            return
        try:
            instance.check_required(header.applied)
        except CairnError as failure:
            raise reported(failure, instance) from failure.__cause__

        def resume(failure: CairnError | None) -> None:
            if failure is not None:
                connection.reply_error(header, reported(failure, instance))
            else:
                self._reads.serve(instance, header, payload, connection)

        local.when_applied(header.applied, resume)

    def _take_writes(self, header: Header, payload: memoryview, connection: Connection) -> None:
        instance = self._instances.get(header.session >> 32)
        if instance is None:
            return  # the commit will say that the instance is unknown
        number = header.session & 0xFFFFFFFF
        try:
            rows = frames.decode_rows(payload, WRITES_SCHEMA)
            instance.take_writes(number, header.sequence, rows)
            if instance.when_room(number, connection.resume):
                connection.pause()
        except Exception as failure:  # noqa: BLE001 - whatever it is, the commit must hear of it
            instance.refuse_writes(number, reported(failure, instance))

    def _idle_work(self) -> bool:
        """Do a slice: of the stores that can take one, that whose delta waits longest gets it.

        A store whose writes RocksDB has stopped lets others pass; so does one whose slice failed.
        """
        services = self._services
        waiting = [local for local in list(services.with_deltas) if local.has_work]
        waiting.sort(key=lambda one: (one in self._stumbled, one.waiting_since_ns))
        for local in waiting:
            if local.db.is_write_stopped():
                continue
            self._stumbled.add(local)  # until its slice has ended well
            self._memtables.after_apply(local.apply_slice(), self._instances)
            self._stumbled.discard(local)
            return True
        if any(local.join_one_long_list() for local in list(services.with_long_lists)):
            return True
        if waiting:
            services.clock.sleep(_STOPPED_PAUSE_S)  # a flush needs the processor more than we do
        return bool(waiting)


def _session_number(asked: Arguments) -> int:
    return int(asked["session"]) & 0xFFFFFFFF


def _load_request(asked: Arguments, snapshot: SnapshotChoice | None) -> LoadRequest:
    return LoadRequest(
        session=_session_number(asked),
        version=int(asked["version"]),
        checkpoint_id=asked.get("checkpoint_id"),
        load_empty=bool(asked.get("load_empty", False)),
        snapshot=snapshot,
    )
