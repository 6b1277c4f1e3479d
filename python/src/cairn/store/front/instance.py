"""ProviderInstance: the part of one provider object that runs in the worker.

Layer: store.  Spec: docs/protocol.md#sessions. Locks and threads: ``store.state.store_state``.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cairn.errors import (
    CairnError,
    ClosedError,
    CredentialsExpiredError,
    DiskFullError,
    ProtocolError,
    UnavailableError,
)
from cairn.protocol.calls import MaintainAnswer
from cairn.rocks.failures import translate
from cairn.rocks.keys import successor
from cairn.storage.progress import Progress
from cairn.store.front.change_feed import ChangeFeed
from cairn.store.load import load
from cairn.store.rows.reads import read_keys, read_page, read_ranges, with_spill
from cairn.store.rows.runs import NO_RUNS
from cairn.store.snapshot import lineage_bound, snapshot
from cairn.store.snapshot.purge import purge
from cairn.store.state.snapshot_runs import SnapshotDone
from cairn.store.state.store_state import StoreState
from cairn.store.write import commit
from cairn.store.write.session import SessionThreads, StoreSession

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.protocol.calls import (
        CommitAnswer,
        CommitRequest,
        LoadAnswer,
        LoadRequest,
        MaintainRequest,
    )
    from cairn.store.rows.committed import Page, ScanRequest
    from cairn.store.rows.found_keys import FoundKeys
    from cairn.store.rows.reads import RangesReply
    from cairn.store.rows.runs import Runs
    from cairn.store.shared.resources import WorkerResources

_LARGE_CHANGELOG_BYTES = 1 << 20
MAX_PENDING_WAIT_S = 60.0
# A commit that needs a snapshot waits for it for at most five times ``requestTimeoutMs``: half of
# what the shim allows a commit. Maintenance, which needs none, answers sooner.
REQUESTS_PER_SNAPSHOT = 5
_NS_PER_S = 1_000_000_000
_MAX_MAINTENANCE_WAIT_S = 60.0
_CANCEL_CHECK_S = 0.1
_CLOSE_WAIT_S = 1.0
# After these errors, requests of a purge would wait as long again.
_NO_ANSWER = (UnavailableError, CredentialsExpiredError)


def _no_reply(_answer: CommitAnswer) -> None:
    """Do nothing: the caller of ``commit`` uses what it returns."""


class ProviderInstance:
    """See the module.

    Args:
        checkpoint: the store's objects.
        directory: the instance's place on the local disk.
        resources: the worker's resources.
    """

    def __init__(
        self, checkpoint: StoreCheckpoint, directory: Path, resources: WorkerResources
    ) -> None:
        self.state = StoreState(checkpoint, directory, resources)
        self._directory = directory
        self.changes = ChangeFeed(checkpoint, resources.reader_pins)
        self._resources = resources
        self._lock = threading.RLock()
        self._cancellable: Progress | None = None  # of the load in progress
        self._sessions_lock = threading.Lock()
        self._session: StoreSession | None = None
        # All sessions up to this number have ended. Changed before the session is cleared, as the
        # event loop reads without the lock: the session first, then this.
        self._ended_through = 0

    # -- control calls -------------------------------------------------------------------------

    def load(self, request: LoadRequest, progress: Progress | None = None) -> LoadAnswer:
        """Make a version current and describe it.

        Args:
            request: the version.
            progress: receives the steps of the load; it may cancel it.

        Raises:
            MissingError, CorruptError: names a needed object that is gone or corrupt. Perhaps no
                version is loaded afterwards: load again. Nothing has changed if an id was issued
                for another version.
            CancelledError: the load was cancelled, or the instance is closing.
        """
        progress = progress or Progress()
        with self._context(request.version), self._alone(progress):
            self._check_open()
            request.check_ids()  # before anything changes, also if no id is needed
            self.end_sessions(request.session.number - 1)
            return load.load(self.state, request, progress)

    @contextmanager
    def _alone(self, progress: Progress) -> Iterator[None]:
        """Hold the instance's lock, for a call that can be cancelled."""
        progress.check()
        while not self._lock.acquire(timeout=_CANCEL_CHECK_S):
            progress.check()
        try:
            self._cancellable = progress
            yield
        finally:
            self._cancellable = None
            self._lock.release()

    def commit(
        self, request: CommitRequest, reply: Callable[[CommitAnswer], None] = _no_reply
    ) -> CommitAnswer:
        """Commit a session's writes as a version; it is durable when this returns.

        The event loop admits the delta after ``reply``: until then it would take the GIL.

        Args:
            request: the session, and what it has sent.
            reply: sends the answer.

        Raises:
            FencedError: a newer attempt has committed the version.
            FramesMissingError: not all writes arrived.
            LineageTooLongError: a snapshot must be taken before, and fails or takes long.
            CairnError: nothing is committed, or the outcome is unknown; the current version stays.
        """
        state, resources = self.state, self._resources
        conf, now_ns = state.checkpoint.conf, resources.clock.monotonic_ns
        snapshot_wait_s = REQUESTS_PER_SNAPSHOT * conf.frame_timeout_ms / 1000
        began_ns = now_ns()
        try:
            if request.frames or not state.checkpoint.has_checkpoint_ids:
                with self._context(request.version):
                    lineage_bound.before_commit(state, snapshot_wait_s)
            snapshot_wait_ns = now_ns() - began_ns
            with self._lock, self._context(request.version):
                self._check_open()
                session = self.open_session(request.session.number)
                if session is None:
                    raise ClosedError("the session was committed, aborted or replaced already")
                answer = commit.commit(state, session, request)
                self.end_sessions(request.session.number)
                is_overdue = not request.snapshot and lineage_bound.is_overdue(state)
            # The version is durable. The rest may be slow, so it runs without the lock.
            if resources.pending.must_wait(state.local):
                began_ns = now_ns()
                # Beside the rows of the store that is writing, for which this one need not wait.
                resources.event_loop.post(state.local.writer.write_runs)
                resources.pending.wait(state.local, MAX_PENDING_WAIT_S)
                answer.memory_wait_ns = now_ns() - began_ns
            if request.snapshot or lineage_bound.holds_commit(state):
                began_ns = now_ns()
                resources.event_loop.wake()
                # After a failure the answer has an older version: Spark requests a snapshot again.
                lineage_bound.take_now(state, snapshot_wait_s)
                snapshot_wait_ns += now_ns() - began_ns
                answer.snapshot_version = state.chain.newest_version
                answer.lineage_versions = state.lineage_length()
            answer.snapshot_wait_ns = snapshot_wait_ns
            reply(answer)
        finally:
            resources.event_loop.wake()
        if is_overdue:
            snapshot.begin(state)
        if answer.changelog_bytes:
            lineage_bound.warn(state, answer.lineage_versions)
        if answer.changelog_bytes > _LARGE_CHANGELOG_BYTES:
            # Arrow's pool keeps this commit's memory; another store may need it for the next batch.
            resources.release_memory()
        return answer

    def maintain(self, request: MaintainRequest) -> MaintainAnswer:
        """Take a snapshot if one is due, purge, or both; loads and commits run meanwhile.

        A snapshot that takes long goes on after the answer; a purge is left out while it runs.

        Raises:
            CairnError: the snapshot or the purge failed; no partial snapshot is visible; the next
                call retries. The purge is tried although the snapshot has failed.
        """
        state = self.state
        self._check_open()
        answer = MaintainAnswer()
        wait_s = _MAX_MAINTENANCE_WAIT_S if request.wait_ms is None else request.wait_ms / 1000
        clock = self._resources.clock
        began_ns = clock.monotonic_ns()

        def left_s() -> float:
            return max(0.0, wait_s - (clock.monotonic_ns() - began_ns) / _NS_PER_S)

        def clean_up(store_time: datetime | None) -> int:
            if not request.cleanup:
                return 0
            deleted, job = 0, state.snapshots.clean_up
            with suppress(TimeoutError):
                deleted = 0 if job is None else job.result(left_s())
                state.snapshots.clean_up = None
            if not state.snapshots.lock.acquire(timeout=left_s()):
                return deleted
            try:
                return deleted + purge(state, store_time)
            finally:
                state.snapshots.lock.release()

        with self._context():
            done = SnapshotDone()
            try:
                if request.snapshot:
                    done = snapshot.wait_for(snapshot.begin(state)[0], wait_s) or done
            except CairnError as failure:
                # Perhaps the manifest is too large, and a purge makes the next one smaller.
                if not isinstance(failure, _NO_ANSWER):
                    with suppress(CairnError):
                        clean_up(None)
                raise
            answer.uploaded_files = done.uploaded_files
            answer.uploaded_bytes = done.uploaded_bytes
            answer.reused_files = done.reused_files
            answer.snapshot_ms = done.duration_ms
            answer.deleted_objects = done.deleted_objects + clean_up(done.store_time)
        answer.snapshot_version = snapshot.newest_with_snapshot(state)
        with suppress(CairnError):  # a load has closed the database meanwhile
            answer.engine = state.figures()
        return answer

    def renew(self, storage: Mapping[str, str]) -> None:
        """Use other credentials for the same objects; calls in progress use them from now on.

        Raises:
            ConfigError, AccessError: they cannot be used; the former ones stay.
        """
        self.state.checkpoint.objects.renew(storage)

    def close(self, snapshot_wait_s: float = 0.0) -> None:
        """End all sessions and free the local disk; cancel a load in progress. Idempotent.

        If a commit takes longer than a second, this happens after it, in another thread. So it does
        after a running snapshot and its clean-up, which may go on for ``snapshot_wait_s``.
        """
        loading = self._cancellable
        if loading is not None:
            loading.cancel()
        snapshots, clock = self.state.snapshots, self._resources.clock
        run, cleaned = snapshots.run, snapshots.clean_up  # a run sets the second before it ends
        is_cleaned = cleaned is None or cleaned.done()
        if not snapshot_wait_s or (run is None and is_cleaned):
            self._when_idle(self._close)
            return

        def close_later() -> None:
            until_ns = clock.monotonic_ns() + int(snapshot_wait_s * _NS_PER_S)
            with suppress(CairnError):
                if run is not None:
                    snapshot.wait_for(run, snapshot_wait_s)
            cleaned = snapshots.clean_up
            if cleaned is not None:
                wait([cleaned], max(0.0, (until_ns - clock.monotonic_ns()) / _NS_PER_S))
            self._wait_until_idle(self._close)

        threading.Thread(target=close_later, name="cairn-close", daemon=True).start()

    def _when_idle(self, work: Callable[[], None]) -> None:
        """Do ``work`` while no load or commit runs: now, or in another thread if one takes long."""
        if self._lock.acquire(timeout=_CLOSE_WAIT_S):
            try:
                work()
            finally:
                self._lock.release()
        else:
            threading.Thread(
                target=self._wait_until_idle, args=(work,), name="cairn-close", daemon=True
            ).start()

    def _wait_until_idle(self, work: Callable[[], None]) -> None:
        with self._lock:
            work()

    def _close(self) -> None:
        if self.state.is_closed:
            return
        self.end_sessions(sys.maxsize)
        self.changes.close()
        self.state.close()
        self.state.checkpoint.close()

    def _check_open(self) -> None:
        if self.state.is_closed:
            raise ClosedError("the instance is closed", store=self.store)

    @property
    def store(self) -> str:
        """Return the store's name, for errors and logs."""
        return str(self.state.checkpoint.store)

    @contextmanager
    def _context(self, version: int | None = None) -> Iterator[None]:
        try:
            yield
        except (CairnError, OSError) as problem:
            # Storages have translated their errors: an OSError is one of the local disk.
            failure = translate(problem, str(self._directory))
            failure.with_context(store=self.store, version=version)
            if isinstance(failure, DiskFullError):
                # For the next attempt, whatever failed: a spill, a replay, a checkpoint.
                self._resources.transfers.cache.give_way()
            if failure is problem:
                raise
            raise failure from problem

    # -- sessions ------------------------------------------------------------------------------

    def open_session(self, number: int) -> StoreSession | None:
        """Return a session; ``None`` if it has ended.

        The first call with a number creates its session and closes the one before it.
        """
        with self._sessions_lock:
            former = self._session
            if former is not None and former.number == number:
                return former
            if number <= self._ended_through:
                return None
            self._ended_through = number - 1
            session = self._session = StoreSession(
                number,
                self.state.session_directory(number),
                SessionThreads(
                    self._resources.in_background,
                    self._resources.event_loop.post,
                    lambda size: self.state.metrics.add("spilled_bytes", size),
                ),
                self._resources.run_bytes,
            )
        if former is not None:
            former.close()
        return session

    def end_sessions(self, through: int) -> None:
        """End the sessions up to a number and drop their writes. Idempotent."""
        with self._sessions_lock:
            self._ended_through = max(self._ended_through, through)
            session = self._session
            if session is None or session.number > through:
                return
            self._session = None
        session.close()

    # -- the event loop's side -----------------------------------------------------------------

    def when_applied(self, version: int, act: Callable[[CairnError | None], None]) -> None:
        """Call ``act``, now or later, once ``version`` is applied or that has failed.

        Raises:
            UnknownInstanceError: no version is loaded.
            ProtocolError: ``version`` is above the current one.
        """
        local = self.state.local
        if not local.is_readable(version):
            current = self.state.require_version()
            if version > current.version:
                raise ProtocolError(
                    f"a read requires version {version}, but {current.version} is loaded",
                    store=self.store,
                )
        local.when_readable(version, act)

    def when_readable(self, session: int, act: Callable[[], None]) -> None:
        """Call ``act``, now or later, once reads of a session find all frames that arrived."""
        found = self._session
        if found is None or found.number != session:
            act()
        else:
            found.when_readable(act)

    def look_up(
        self, session: int, version: int, cf: int, key: bytes
    ) -> tuple[int, int, bytes | None] | None:
        """Return ``applied_through``, and origin and value of one key, at once.

        ``None`` if the read must wait or is an error: ``get`` and ``when_readable`` know what to
        do.

        Args:
            session: number of the session.
            version: the version that must be applied.
            cf: the key's family.
            key: the key.
        """
        spill: Runs | None = NO_RUNS
        found = self._session
        if found is not None and found.number == session and not found.is_unread:
            spill = found.settled_spill
        if spill is None or session <= self._ended_through or self.state.version is None:
            return None
        committed = self.state.local.look_up(version, cf, key)
        if committed is None:
            return None
        through, value = committed
        return through, *with_spill(spill, cf, key, value)

    def get(
        self, session: int, cf: int, keys: list[bytes]
    ) -> Generator[None, None, tuple[bytearray, list[bytes | None]]]:
        """Steps that return origin and value of the first keys; see ``reads.read_keys``.

        REQUIRES: ``when_readable``.
        """
        state = self.state
        state.require_version()  # there is none during a load, and after a failed one
        spill = self._spill_of(session)
        with state.local.reading() as rows:
            found = yield from read_keys(rows, spill, cf, keys, self._resources.clock)
        state.metrics.add("gets_count", len(found[0]))
        return found

    def note_found(
        self, session: int, version: int, names: pa.RecordBatch, origins: bytearray
    ) -> None:
        """Keep which keys exist, for the commit of the session.

        Args:
            session: number of the session that read them.
            version: the version up to which the read found all deltas, at least.
            names: columns ``cf`` and ``key`` of the request.
            origins: those of its first keys.
        """
        found = self._found_at(session, version)
        if found is not None:
            found.add(names, origins)

    def note_found_ranges(
        self,
        session: int,
        version: int,
        cf: int,
        ranges: list[tuple[bytes, bytes | None]],
        page: RangesReply,
    ) -> None:
        """As ``note_found``, for a page of ``ranges``; those that are no prefix are left out.

        So are ranges with spilled writes, which hide what is committed.
        """
        found = self._found_at(session, version)
        if found is None:
            return
        length = len(ranges[0][0])
        known = [
            start
            for (start, end), is_spilled in zip(
                ranges[: page.read_count], page.is_spilled, strict=False
            )
            if not is_spilled and len(start) == length and end == successor(start)
        ]
        if known and length:
            found.add_prefixes(cf, known, page.rows)

    def _found_at(self, session: int, version: int) -> FoundKeys | None:
        current, of_session = self.state.version, self.open_session(session)
        if current is None or of_session is None or version < current.version:
            return None
        return of_session.found

    def scan(self, session: int, request: ScanRequest) -> Generator[None, None, Page]:
        """Steps that return one page; see ``get``."""
        state = self.state
        state.require_version()
        spill = self._spill_of(session)
        with state.local.reading() as rows:
            page = yield from read_page(rows, spill, request, self._resources.clock)
        state.metrics.add("scanned_rows_count", page.rows.num_rows)
        return page

    def ranges(
        self, session: int, cf: int, ranges: list[tuple[bytes, bytes | None]]
    ) -> Generator[None, None, RangesReply]:
        """Steps that return the rows of several ranges; see ``reads.read_ranges`` and ``get``."""
        state = self.state
        state.require_version()
        spill = self._spill_of(session)
        with state.local.reading() as rows:
            page = yield from read_ranges(rows, spill, cf, ranges, self._resources.clock)
        state.metrics.add("scanned_rows_count", page.rows.num_rows)
        return page

    def _spill_of(self, number: int) -> Runs:
        session = self._session
        if session is not None and session.number == number:
            return session.spill
        if number <= self._ended_through:
            raise ClosedError("a read came for a session that has ended", store=self.store)
        return NO_RUNS
