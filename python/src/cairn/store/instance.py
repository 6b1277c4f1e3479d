"""ProviderInstance: one provider object's half in the worker.

Layer: store.  Spec: docs/architecture.md#terms-of-a-session.

Threads: control calls come from threads of their own and are serialised by ``_lock``; frames and
reads come from the owner thread and take only the short ``_sessions`` lock. A snapshot's upload
holds neither, nor does who waits for one.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, ClosedError, ProtocolError, RetryableError
from cairn.metrics import Metrics
from cairn.store import commit as committing
from cairn.store import load as loading
from cairn.store import snapshot as snapshots
from cairn.store.changes import ChangeFeed
from cairn.store.local_state import LocalState
from cairn.store.reads import ScanReply, ScanRequest, TimeSlice, read_keys, read_page
from cairn.store.session import SessionThreads, StoreSession
from cairn.store.spill import Spill

_LOG = logging.getLogger(__name__)
_LARGE_CHANGELOG_BYTES = 1 << 20
_NOTHING_SPILLED = Spill()
# For a snapshot under way: Spark's task waits as long, and asks again with a later batch.
_MAX_SNAPSHOT_WAIT_S = 60.0

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    import pyarrow as pa

    from cairn.store.durable import Durable
    from cairn.store.resources import WorkerResources
    from cairn.store.version import StoreVersion


class ProviderInstance:
    """See the module.

    Args:
        number: unique in the JVM.
        durable: its objects.
        directory: its place on the local disk.
        services: of the worker.
    """

    def __init__(
        self, number: int, durable: Durable, directory: Path, services: WorkerResources
    ) -> None:
        self.number = number
        self.durable = durable
        self.services = services
        self.metrics = Metrics()
        self.local = LocalState(services, self.metrics)
        self.snapshots = snapshots.SnapshotState(services.clock, services.entropy)
        self.changes = ChangeFeed(durable)
        self.is_closed = False
        # INVARIANT: what the database and its queue hold, or None if that is not known.
        self.standing: StoreVersion | None = None
        # What a load answers about the size of keys and values, and when RocksDB was last asked.
        self.data_bytes = 0
        self.data_bytes_at_ns = 0
        self._directory = directory
        self._directory_numbers = itertools.count(1)
        self.current_directory: Path | None = None
        self._lock = threading.RLock()
        self._sessions = threading.Lock()
        self._session: StoreSession | None = None
        self._ended_through = 0

    # -- control calls -------------------------------------------------------------------------

    def load(self, request: loading.LoadRequest) -> dict[str, Any]:
        """Make the store stand at a version and return what it is.

        Raises:
            MissingError, CorruptError: an object on the way is gone or corrupt; it is named. What
                was loaded before may be gone too: load again.
        """
        with self._lock:
            self._check_open()
            self._end_sessions_below(request.session)
            try:
                return loading.load(self, request)
            except CairnError as failure:
                raise failure.with_context(
                    store=str(self.durable.store), version=request.version
                ) from failure.__cause__

    def commit(self, request: committing.CommitRequest) -> dict[str, Any]:
        """Make a session's writes a version; durable when this returns.

        Raises:
            FencedError: a newer attempt has the version.
            FramesMissingError: not all writes came.
            CairnError: nothing is committed, or nobody knows; the store stands as before.
        """
        with self._lock:
            self._check_open()
            try:
                session = self._session_to_commit(request.session)
                answer = committing.commit(self, session, request)
                self._end_session(request.session)
            except CairnError as failure:
                raise failure.with_context(
                    store=str(self.durable.store), version=request.version
                ) from failure.__cause__
        if answer["changelog_bytes"] > _LARGE_CHANGELOG_BYTES:
            # Arrow's pool keeps what a large commit used; the next batch may be of another store.
            self.services.release_memory()
        # Durable already: what follows may take its time, but not the instance.
        self.services.pending.wait_below_limit(committing.MAX_PENDING_WAIT_S)
        if request.snapshot:
            self._snapshot_at_once()
            answer["snapshot_version"] = self.snapshots.newest_version
        return answer

    def abort(self, session: int) -> None:
        """Void a session's writes. Idempotent."""
        self._end_session(session)

    def maintain(self, *, snapshot: bool, cleanup: bool) -> dict[str, Any]:
        """Take a snapshot if one is due, clean up, or both; commits go on meanwhile.

        Raises:
            CairnError: the storage failed; nothing visible was left, and the next call tries again.
        """
        self._check_open()
        report = snapshots.MaintenanceReport()
        with self.snapshots.running:
            try:
                time = None
                if snapshot:
                    time = snapshots.take_snapshot(self, report, is_forced=False)
                if cleanup:
                    snapshots.clean_up(self, report, time)
            except CairnError as failure:
                raise failure.with_context(store=str(self.durable.store)) from failure.__cause__
        return {
            "snapshot_version": self.snapshots.newest_version,
            "uploaded_files": report.uploaded_files,
            "uploaded_bytes": report.uploaded_bytes,
            "reused_files": report.reused_files,
            "deleted_objects": report.deleted_objects,
            "snapshot_ms": report.snapshot_ns // 1_000_000,
        }

    def use(self, durable: Durable) -> None:
        """Go on with other credentials for the same objects."""
        unused = durable
        with self._lock:
            if not self.is_closed:
                unused, self.durable = self.durable, durable
                self.changes = ChangeFeed(durable)
        unused.close()

    def _snapshot_at_once(self) -> None:
        """Take a snapshot of what was just committed; its failure does not undo the commit."""
        # Spark sees by the answer's snapshot_version when it asked in vain.
        running = self.snapshots.running
        if not running.acquire(timeout=_MAX_SNAPSHOT_WAIT_S):
            _LOG.warning("the snapshot that Spark asked for is left out: one is still under way")
            return
        try:
            snapshots.take_snapshot(self, snapshots.MaintenanceReport(), is_forced=True)
        except Exception as failure:  # noqa: BLE001 - durable already, whatever fails now
            _LOG.warning("the snapshot that Spark asked for failed: %s", failure)
        finally:
            running.release()

    def close(self) -> None:
        """End everything and free the local disk. Idempotent."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            self._end_session(self._ended_through)
            with self._sessions:
                session, self._session = self._session, None
            if session is not None:
                session.close()
            self.standing = None
            self.services.owner.run(self.local.close)
            shutil.rmtree(self._directory, ignore_errors=True)
        self.durable.close()

    def figures_now(self) -> dict[str, int]:
        """Return the instance's metrics and what it holds now.

        REQUIRES: the lock, so that no database is closed meanwhile.
        """
        values = self.metrics.values()
        if self.local.is_open:
            database = self.local.db
            values |= {
                "memtable_bytes": database.memtable_bytes(),
                "sst_bytes": database.sst_bytes(),
                "estimated_keys_count": database.estimated_key_count(),
                "applied_through": self.local.applied_through,
            }
        values |= {
            "block_cache_bytes": self.services.memory.cached_bytes(),
            "pending_delta_bytes": self.services.pending.current,
        }
        return values

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClosedError("the instance is closed", store=str(self.durable.store))

    # -- directories ---------------------------------------------------------------------------

    def fresh_directory(self, kind: str) -> Path:
        """Return the path of a directory that never was before; its parent exists."""
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory / f"{kind}{next(self._directory_numbers)}"

    # -- sessions ------------------------------------------------------------------------------

    def _session_to_commit(self, number: int) -> StoreSession:
        session = self._session_for(number)
        if session is None:
            raise ClosedError("the session has ended: it was committed, aborted or overtaken")
        return session

    def _session_for(self, number: int) -> StoreSession | None:
        """Return the session of a number, made at its first frame; ``None`` if it has ended."""
        with self._sessions:
            current = self._session
            if current is not None and current.number == number:
                return current
            if number <= self._ended_through:
                return None
            self._ended_through = number - 1
            self._session = StoreSession(
                number,
                self._directory / f"s{number}",
                SessionThreads(
                    self.services.in_background,
                    self.services.owner.post,
                    lambda size: self.metrics.add("spilled_bytes", size),
                ),
                self.services.run_bytes,
            )
            made = self._session
        if current is not None:
            current.close()
        return made

    def _end_sessions_below(self, number: int) -> None:
        self._end_session(number - 1)

    def _end_session(self, number: int) -> None:
        with self._sessions:
            self._ended_through = max(self._ended_through, number)
            current = self._session
            if current is None or current.number > number:
                return
            self._session = None
        current.close()

    # -- the owner's side ----------------------------------------------------------------------

    def take_writes(self, session: int, sequence: int, rows: pa.RecordBatch) -> None:
        """Take a frame of writes; a frame of an ended session is discarded."""
        found = self._session_for(session)
        if found is not None:
            found.add_frame(sequence, rows)

    def refuse_writes(self, session: int, failure: CairnError) -> None:
        """Make the session's commit fail: a frame of it could not be read."""
        found = self._session_for(session)
        if found is not None:
            found.fail(failure)

    def when_room(self, session: int, act: Callable[[], None]) -> bool:
        """Call ``act`` on the owner once a session takes more writes; ``False`` if it does now."""
        with self._sessions:
            found = self._session
        return found is not None and found.number == session and found.when_room(act)

    def when_written(self, session: int, act: Callable[[], None]) -> None:
        """Call ``act``, now or later, when reads of a session see all that came of it."""
        with self._sessions:
            found = self._session
        if found is None or found.number != session:
            act()
        else:
            found.when_written(act)

    def _spill_of(self, number: int) -> Spill:
        with self._sessions:
            session = self._session
            if session is None or session.number != number:
                if number <= self._ended_through:
                    raise ClosedError(
                        "a read came for a session that has ended", store=str(self.durable.store)
                    )
                return _NOTHING_SPILLED
        return session.spill

    def get(
        self, session: int, cfs: list[int], keys: list[bytes]
    ) -> Generator[None, None, tuple[list[int], list[bytes | None]]]:
        """Steps that return origin and value of the first keys asked: see ``cursors.read_keys``.

        REQUIRES: ``when_written``.
        """
        self._check_loaded()
        spill, turn = self._spill_of(session), TimeSlice(self.services.clock)
        with self.local.reading() as database:
            found = yield from read_keys(database, spill, cfs, keys, turn)
        self.metrics.add("gets_count", len(found[0]))
        if database.has_long_lists:
            self.services.with_long_lists[self.local] = None
        return found

    def scan(self, session: int, request: ScanRequest) -> Generator[None, None, ScanReply]:
        """Steps that return one page. REQUIRES: ``when_written``."""
        self._check_loaded()
        spill, turn = self._spill_of(session), TimeSlice(self.services.clock)
        with self.local.reading() as database:
            reply = yield from read_page(database, spill, request, turn)
        self.metrics.add("scanned_rows_count", len(reply.keys))
        if database.has_long_lists:
            self.services.with_long_lists[self.local] = None
        return reply

    def _check_loaded(self) -> None:
        if self.standing is None:
            raise self._nothing_loaded()  # a load is under way, or has failed half-way

    def _nothing_loaded(self) -> RetryableError:
        return RetryableError(
            "no version is loaded in this worker",
            code="CAIRN_UNKNOWN_INSTANCE",
            store=str(self.durable.store),
            next_step="open the instance and load the version again",
        )

    def check_required(self, version: int) -> None:
        """Refuse to wait for a version that is not on its way.

        Raises:
            RetryableError: nothing is loaded.
            ProtocolError: the shim asks for a version above the loaded one.
        """
        standing = self.standing
        if standing is None:
            raise self._nothing_loaded()
        if version > standing.version:
            raise ProtocolError(
                f"a read requires version {version}, the store stands at {standing.version}",
                store=str(self.durable.store),
            )
