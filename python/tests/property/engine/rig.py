"""An instance in this process, with the threads and directories of a worker."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from commits import commit_reply, expected_rows
from lookups import lookup, lookup_rows

from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.reader_pins import ReaderPins
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.transfers import TransferResources
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import SYSTEM_CLOCK
from cairn.config import EngineConf
from cairn.engine.channel import Connection
from cairn.engine.commit_threads import CommitThreads
from cairn.engine.event_loop import EventLoop
from cairn.engine.frame_service import FrameService
from cairn.format.header import ColumnFamily
from cairn.ids import Attempt, StoreId
from cairn.protocol import frames
from cairn.protocol.calls import (
    CommitRequest,
    LoadRequest,
    LoadSnapshotRequest,
    MaintainRequest,
)
from cairn.protocol.frames import WRITES_SCHEMA, Header
from cairn.protocol.session_id import SessionId
from cairn.rocks import RocksMemory, engine_description
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.open import open_store
from cairn.store.front.instance import ProviderInstance
from cairn.store.rows.committed import ScanRequest
from cairn.store.shared.resources import ByteBudget, PendingBytes, WorkerResources
from cairn.store.shared.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from cairn.clock import Clock
    from cairn.storage.progress import Progress
    from cairn.store.local.local_state import LocalState
    from cairn.store.state.store_state import StoreState

Result = TypeVar("Result")
STORE = StoreId(0, 3)


def family(number: int, *, multi: bool) -> ColumnFamily:
    name = "default" if number == 0 else f"family{number}"
    return ColumnFamily(number, name, multi, False, False, "key", "value", "encoder")  # noqa: FBT003


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, WRITES_SCHEMA, strict=True)],
        schema=WRITES_SCHEMA,
    )


class Rig:
    """The threads of one worker, and one instance.

    Args:
        local: the local disk.
        url: the URL of the objects.
        checkpoint_format: Spark's.
        conf: the instance's settings.
        pending_bytes: bound of deltas that the database does not have.
        reader_pins: of the worker; no thread keeps them.
        run: id of the query's run.
        lent_cache_bytes: a block cache of this size, whose spare bytes the deltas may use too; 0:
            they use their own bound only.
        beside: an instance whose worker has this one too.
        clock: of the worker.
        store: the store of the instance.

    Attributes:
        fault: called at each fault point.
    """

    def __init__(
        self,
        local: Path,
        url: str,
        checkpoint_format: int,
        conf: dict[str, Any],
        pending_bytes: int = 1 << 20,
        reader_pins: ReaderPins | None = None,
        lent_cache_bytes: int = 0,
        run: str = "run",
        beside: Rig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        store: StoreId = STORE,
    ) -> None:
        self.run = run
        self.store = store
        self.has_worker = beside is None
        if beside is None:
            self._start_worker(local, pending_bytes, lent_cache_bytes, clock)
        else:
            self.pools: list[ThreadPoolExecutor] = beside.pools
            self.event_loop: EventLoop = beside.event_loop
            self.resources: WorkerResources = beside.resources
        self.resources.reader_pins = reader_pins or self.resources.reader_pins
        self.fault: FaultHook = no_fault
        self.url = url
        self.checkpoint_format = checkpoint_format
        self.conf = EngineConf.from_mapping(conf)
        checkpoint = self.new_checkpoint(str(local))
        self.instance = ProviderInstance(checkpoint, local / "i1", self.resources)
        self.number = 0
        self._forget_writes()
        self.peer, served = socket.socketpair()
        self.peer.settimeout(20)
        served.setblocking(False)  # noqa: FBT003 - by place in the standard library
        service = FrameService(
            lambda _: self.instance,
            self.event_loop,
            self.pools[0],
            CommitThreads(4),
            StorageConnections(),
        )
        self.connection = self.event_loop.run(
            lambda: Connection(
                served, b"", self.event_loop, service, memoryview(bytearray(1 << 12))
            )
        )
        self.peer.sendall(frames.encode_header(Header(frames.HELLO, 0, 0, 0, 0, 0, 0)))
        self._receive(frames.HEADER_BYTES)

    def _start_worker(
        self, local: Path, pending_bytes: int, lent_cache_bytes: int, clock: Clock
    ) -> None:
        pool = ThreadPoolExecutor(4)
        self.pools = [pool, ThreadPoolExecutor(2), ThreadPoolExecutor(2)]
        scheduler = Scheduler(4 << 20, pool)
        self.event_loop = EventLoop(scheduler.run_slice)
        memory = RocksMemory(lent_cache_bytes or 4 << 20, 4 << 20)
        self.resources = WorkerResources(
            event_loop=self.event_loop,
            scheduler=scheduler,
            memory=memory,
            background=pool,
            sorting=pool,
            maintenance=pool,
            transfers=TransferResources(
                SstCache(local / "sst", 1 << 26), self.pools[1], self.pools[2]
            ),
            pending=PendingBytes(pending_bytes, memory if lent_cache_bytes else None),
            fetched=ByteBudget(1 << 20),
            clock=clock,
        )
        self.event_loop.start()

    def new_checkpoint(self, writer: str) -> StoreCheckpoint:
        """Open the store's objects, as by other credentials or another instance."""
        return StoreCheckpoint(
            open_store(self.url, {}),
            self.store,
            self.checkpoint_format,
            self.conf,
            SnapshotWriter(self.run, writer, engine_description()),
            self.resources.transfers,
            fault=lambda point: self.fault(point),  # noqa: PLW0108 - tests replace it
        )

    @property
    def state(self) -> StoreState:
        return self.instance.state

    @property
    def local(self) -> LocalState:
        return self.instance.state.local

    def load(
        self, version: int, checkpoint_id: str | None, progress: Progress | None = None
    ) -> dict[str, Any]:
        request = LoadRequest(1, self.next_session(), version, checkpoint_id)
        return self._load(request, progress)

    def load_snapshot(
        self, version: int, checkpoint_id: str | None, snapshot: int, snapshot_id: str | None
    ) -> dict[str, Any]:
        return self._load(
            LoadSnapshotRequest(
                1,
                self.next_session(),
                version,
                checkpoint_id,
                snapshot_version=snapshot,
                snapshot_checkpoint_id=snapshot_id,
            )
        )

    def compact(self) -> None:
        """Merge all files of the database, as RocksDB does by itself later."""
        self.local.db._db.compact_range(None, None)

    def next_session(self) -> SessionId:
        """Begin a session at the version that is loaded."""
        self.number += 1
        self._forget_writes()
        return SessionId(1, self.number)

    def _load(self, request: LoadRequest, progress: Progress | None = None) -> dict[str, Any]:
        return dict(self.instance.load(request, progress).to_json())

    def maintain(self, *, cleanup: bool = True) -> dict[str, Any]:
        """Take a snapshot if one is due, and purge if ``cleanup``."""
        request = MaintainRequest(1, snapshot=True, cleanup=cleanup)
        return dict(self.instance.maintain(request).to_json())

    def until_applied(self, version: int) -> None:
        """Wait until all deltas up to ``version`` are applied."""
        self.event_loop.run_stepwise(self.local.until_readable(version))

    def until_written(self, version: int) -> None:
        """Wait until the database has all deltas up to ``version``."""
        self.local.wait_until_written(version)

    def _forget_writes(self) -> None:
        self.frames = self.rows = 0
        self.keys: list[tuple[int, bytes]] = []
        self.sent: list[tuple[Any, ...]] = []

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        batch = _batch(rows)
        self.frames += 1
        self.rows += len(rows)
        self.keys += [(cf, key) for _, cf, key, *_ in rows]
        self.sent += rows
        session = self.instance.open_session(self.number)
        assert session is not None
        self.event_loop.run(partial(session.add_frame, self.frames, batch))

    def commit(
        self,
        version: int,
        base: str | None,
        families: list[ColumnFamily],
        attempt: int | Attempt = 0,
        *,
        snapshot: bool = False,
        track_counts: bool = True,
    ) -> dict[str, Any]:
        if isinstance(attempt, int):
            attempt = Attempt(self.run, 1, 0, 0, attempt)
        answer = self.instance.commit(
            CommitRequest(
                instance=1,
                session=SessionId(1, self.number),
                frames=self.frames,
                rows=self.rows,
                are_distinct=len(self.keys) == len(set(self.keys)),
                version=version,
                base_checkpoint_id=base,
                column_families=tuple(families),
                max_cf_id=9,
                attempt=attempt,
                expected_rows=expected_rows(self.sent),
                snapshot=snapshot,
                track_counts=track_counts,
            )
        )
        return commit_reply(answer.to_bytes(), len(answer.counts))

    def contents(self, cf: int, version: int, page_rows: int = 5) -> dict[bytes, bytes]:
        """Scan a family, all deltas up to ``version`` applied."""
        self.until_applied(version)
        found: dict[bytes, bytes] = {}
        start, inclusive = None, True
        while True:
            request = ScanRequest(cf, start, inclusive, None, page_rows, 1 << 20)
            page = self.read(partial(self.instance.scan, self.number, request))
            rows = page.rows.to_pylist()
            found |= {row["key"]: row["value"] for row in rows}
            if page.through is None:
                return found
            start, inclusive = rows[-1]["key"], False

    def ranges(
        self, cf: int, ranges: list[tuple[bytes, bytes | None]]
    ) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Return the rows of ranges, and whether others follow."""
        version = self.local.readable_through
        page = self.read(lambda: self.instance.ranges(self.number, cf, ranges))
        self.event_loop.run(
            lambda: self.instance.note_found_ranges(self.number, version, cf, ranges, page)
        )
        return [
            (row["key"], row["value"]) for row in page.rows.to_pylist()
        ], page.through is not None

    def get(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        version = self.local.readable_through
        origins, values = self.read(lambda: self.instance.get(self.number, cf, keys))
        cfs = pa.array([cf] * len(keys), pa.uint16())
        names = pa.record_batch([cfs, pa.array(keys, pa.binary())], schema=frames.GET_SCHEMA)
        self.event_loop.run(lambda: self.instance.note_found(self.number, version, names, origins))
        return values

    def look_up(self, cf: int, keys: list[bytes], applied: int) -> list[bytes | None]:
        """Send a LOOKUP over a connection and return the values of its reply."""
        session = SessionId(1, self.number).pack()
        payload = lookup(cf, keys)
        head = frames.encode_header(
            Header(frames.LOOKUP, 0, session, 1, applied, len(keys), len(payload))
        )
        self.peer.sendall(head + payload)
        header = frames.decode_header(self._receive(frames.HEADER_BYTES))
        reply = self._receive(header.payload_bytes)
        assert header.kind == frames.LOOKUP | frames.REPLY, reply
        assert header.rows == len(keys)
        return [value for _, value in lookup_rows(header, reply)]

    def _receive(self, count: int) -> bytes:
        return self.peer.recv(count, socket.MSG_WAITALL) if count else b""

    def read(self, read: Callable[[], Generator[None, None, Result]]) -> Result:
        """Run a read once all writes are in a run, as the data channel does."""
        written = threading.Event()
        self.event_loop.run(partial(self.instance.when_readable, self.number, written.set))
        assert written.wait(20)
        return self.event_loop.run_stepwise(read())

    def crash(self) -> None:
        """Leave the disk unchanged, as a dead process does. The others of its worker first."""
        self.event_loop.run(self.connection.close)
        self.peer.close()
        database = self.event_loop.run(self.local.detach)
        if self.has_worker:
            self.event_loop.stop()
            for pool in self.pools:
                pool.shutdown()
        # Unlike a dead process, a test must free memory and descriptors. The
        # directory is never opened again, so nothing reads what this flushes.
        if database is not None:
            database.close()
