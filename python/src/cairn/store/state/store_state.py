"""StoreState: the state that load, commit, snapshot and reads of one store share.

Layer: store. ``load``, ``commit`` and ``snapshot`` decide what happens; this class makes the
changes in the order that keeps its invariants.

Threads. Three kinds of thread meet in a store:

    control call   load, commit, use, close    one at a time, under the instance's lock
    maintenance    snapshot, purge             one at a time, under ``snapshots.lock``
    event loop     frames, reads, deltas       the only one that uses rows in RocksDB

A control call and maintenance run concurrently; neither lock is acquired while the other is held.
Both wait for the event loop while they hold their lock, so the event loop acquires neither. It
acquires only locks that are held briefly and under which no other lock is acquired: the instance's
``_sessions_lock``, the session's ``_arrival``, ``Chain._lock``, those of metrics and
pending bytes.

Opening a database takes milliseconds, and closing one may take as long as a flush. So a control
call opens it before it attaches it, and it is closed in the background after it was detached.

    changed by                        what
    control calls                     version, chain (replaced), repair, data_bytes
    event loop, for control calls     the database: attach, detach
    event loop                        applied_through, written_through, failure, barrier
    control calls, maintenance        the chain's content, ``snapshots``

``version`` is immutable and replaced as a whole: a thread without the instance's lock reads the
reference once.
"""

from __future__ import annotations

import itertools
import logging
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairn.errors import CairnError, CorruptError, LocalDiskError, RetryableError, unexpected
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.metrics import Metrics
from cairn.rocks import RocksDb
from cairn.rocks.failures import translate
from cairn.store.local.local_state import LocalState, nothing_loaded
from cairn.store.rows.deltas import Delta
from cairn.store.state.chain import Chain
from cairn.store.state.repair import Repair
from cairn.store.state.root_check import RootCheck
from cairn.store.state.snapshot_runs import SnapshotRuns
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.checkpoint.store_checkpoint import StoreCheckpoint
    from cairn.format.changelog import Changelog
    from cairn.format.manifest import Manifest, SstFile
    from cairn.store.shared.resources import WorkerResources

_LOG = logging.getLogger(__name__)
# For its estimate RocksDB reads a block of each file: too slow for every batch.
_ESTIMATE_NS = 30_000_000_000


class StoreState:
    """See the module.

    Attributes:
        checkpoint: the store's objects.
        local: the database, and the runs that it does not have.
        chain: the snapshot in the database, and the changelogs since.
        repair: which snapshots are rotten.
        snapshots: the snapshot that is running.
        root_check: whether the objects are still those of this store.
        kept_files: verified SSTs of a load that was interrupted, by the object's name.
    """

    def __init__(
        self, checkpoint: StoreCheckpoint, directory: Path, resources: WorkerResources
    ) -> None:
        self.checkpoint = checkpoint
        self.resources = resources
        self.metrics = Metrics()
        self.local = LocalState(resources, self.metrics)
        self.chain = Chain(resources.clock, self.local.incarnation)
        self.repair = Repair()
        self.snapshots = SnapshotRuns(resources.clock, grace_ms=checkpoint.conf.orphan_grace_ms)
        self.root_check = RootCheck(resources.clock)
        self.is_closed = False
        # INVARIANT: the version of database and runs together; None while it is between two.
        self._version: StoreVersion | None = None
        self._directory = directory
        self._directory_numbers = itertools.count(1)
        self._kept_directory: Path | None = None
        self.kept_files: Mapping[str, Path] = {}
        self._data_bytes = 0
        self._data_bytes_at_ns = 0

    @property
    def version(self) -> StoreVersion | None:
        """Return the current version; ``None`` during a load, and after one that failed."""
        return self._version

    def require_version(self) -> StoreVersion:
        """Return the current version.

        Raises:
            UnknownInstanceError: none is loaded.
        """
        version = self._version
        if version is None:
            raise nothing_loaded().with_context(store=str(self.checkpoint.store))
        return version

    def new_directory(self, kind: str) -> Path:
        """Return a path that was never used before; its parent exists.

        Raises:
            DiskFullError, LocalDiskError: the parent cannot be created.
        """
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise translate(error, str(self._directory)) from error
        return self._directory / f"{kind}{next(self._directory_numbers)}"

    def session_directory(self, number: int) -> Path:
        """Return the path of a session's directory; not created."""
        return self._directory / f"s{number}"

    # -- control calls: REQUIRES the instance's lock -------------------------------------------

    @contextmanager
    def new_database_directory(self) -> Iterator[Path]:
        """Yield a path to fill and to give to ``open_database``; after an error it is removed."""
        if not self.local.is_open:
            # A broken database may have filled the disk: the next one needs the space.
            self._discard(self._detach())
        directory = self.new_directory("d")
        try:
            yield directory
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _detach(self) -> RocksDb | None:
        return self.resources.event_loop.run(self.local.detach)

    def _discard(self, database: RocksDb | None) -> None:
        """Close a detached database and remove its directory. Any thread but the event loop."""
        if database is None:
            return
        try:
            database.close()
        except CairnError as failure:
            # Its directory is never opened again, so nothing is lost.
            _LOG.warning("a local database was not closed cleanly: %s", failure)
        # The SST cache has links of its own.
        shutil.rmtree(database.directory, ignore_errors=True)

    def forget_version(self) -> None:
        """Make no version current: the next load starts from a snapshot."""
        self._version = None

    def keep_download(self, directory: Path, manifest: Manifest) -> None:
        """Keep the SSTs that a load has fetched into ``directory``, for the next load."""
        kept = self.new_directory("k")
        directory.rename(kept)
        self.drop_download()
        files = {file.object_name: kept / file.local_name for file in manifest.files}
        self._kept_directory = kept
        self.kept_files = {name: path for name, path in files.items() if path.exists()}

    def drop_download(self) -> None:
        """Remove what ``keep_download`` has kept. Idempotent."""
        kept, self._kept_directory, self.kept_files = self._kept_directory, None, {}
        if kept is not None:
            shutil.rmtree(kept, ignore_errors=True)

    def open_database(
        self,
        directory: Path,
        version: StoreVersion,
        manifest: Manifest | None = None,
        known: Mapping[str, SstFile] | None = None,
    ) -> None:
        """Replace the database by the one in ``directory``, and make ``version`` current.

        Args:
            directory: holds a snapshot's files; without ``manifest``, it does not exist yet.
            version: the version in the directory.
            manifest: the snapshot's manifest.
            known: the objects behind the snapshot's SSTs.

        Raises:
            CorruptError, LocalDiskError: not a whole or readable database; the next load verifies
                the cache's files again.
            CairnError: it does not open. In all cases no version is current then.
        """
        local = self.local
        self._version = None
        former = self._detach()
        if former is not None:
            self.resources.in_background(lambda: self._discard(former))
        try:
            database = RocksDb(
                directory,
                self.resources.memory,
                create=manifest is None,
                multi_families=version.multi_families,
            )
        except (CorruptError, LocalDiskError):
            self.resources.transfers.cache.mark_unverified()
            raise
        self.resources.event_loop.run(lambda: local.attach(database, version.version))
        self.chain = Chain(
            self.resources.clock, local.incarnation, manifest, known, self.chain.unusable
        )
        self.repair.opened(None if manifest is None else manifest.ref)
        self._version = version  # after the chain: `snapshot_point` relies on it

    def replay(self, changelogs: Iterable[Changelog], version: StoreVersion) -> None:
        """Apply the changelogs after the current version up to ``version``; make it current.

        Raises:
            RetryableError: a changelog could not be read. The version before it is current.
            CairnError: no version is current.
        """
        event_loop, pending = self.resources.event_loop, self.resources.pending
        reached, self._version = self._version, None  # until the last changelog is enqueued
        try:
            for changelog in changelogs:
                at = StoreVersion.of_header(changelog.header)
                if reached is None or not at.was_written_on(reached):
                    raise self._not_a_lineage(at, reached)
                self.chain.add(at, is_replayed=True)
                self._end_former_kinds(reached, at)
                self._enqueue(at, changelog.table.to_batches())
                reached = at
                if pending.current > pending.limit_bytes:
                    self.local.wait_until_written(at.version)
        except RetryableError:
            self._version = reached  # the next load continues from there
            raise
        if not version.has_changelog:
            # The database reaches an empty commit by a delta without rows, as after its commit.
            self._enqueue(version, ())
        event_loop.run_stepwise(self.local.until_readable(version.version))
        self._version = version

    def _not_a_lineage(self, at: StoreVersion, reached: StoreVersion | None) -> CorruptError:
        """Return the error of a lineage whose changelogs were not written one on the other.

        A lineage may leave out versions: without this check a lost entry would be an empty commit.
        """
        assert at.ref is not None  # noqa: S101 - it has a changelog
        has_ids = self.checkpoint.has_checkpoint_ids
        name = changelog_name(at.ref) if has_ids else plain_changelog_name(at.version)
        before = "an empty store" if reached is None or reached.ref is None else reached.ref
        return CorruptError(
            f"the changelog of version {at.version} was not written on {before}, which the lineage "
            "has before it",
            version=at.version,
            object_name=self.checkpoint.objects.object_url(name),
            next_step="report it with the changelogs, and restart the query from a version before",
        )

    def advance(
        self,
        version: StoreVersion,
        changes: Sequence[pa.RecordBatch],
        *,
        may_begin_lists: bool,
    ) -> None:
        """Make a version current that was committed on the current one. Never raises.

        Args:
            version: what was committed.
            changes: its rows.
            may_begin_lists: whether there may be appends to absent lists.

        The version is durable: if its rows do not get into the local state, only that is broken,
        and the next load starts from the objects. The caller wakes the event loop afterwards, which
        then admits the delta.
        """
        try:
            # Add its base first: a snapshot of the version may begin as soon as it is current.
            self.chain.add(version)
            before, self._version = self._version, version
            self._end_former_kinds(before, version)
            self._enqueue(version, changes, may_begin_lists=may_begin_lists, wakes=False)
            self._data_bytes += sum(batch.get_total_buffer_size() for batch in changes)
        except Exception as problem:  # noqa: BLE001 - the version is durable, whatever fails now
            _LOG.exception("version %d is committed, but not in the local state", version.version)
            failure = unexpected(problem)
            self.resources.event_loop.run(lambda: self.local.give_up(failure))

    def _end_former_kinds(self, before: StoreVersion | None, version: StoreVersion) -> None:
        """Write the rows so far into the database if a family's values become lists, or no lists.

        RocksDB's keys differ, so a run has rows of one kind alone.
        """
        if before is None:
            return
        changed = before.multi_families ^ version.multi_families
        for families in (before.families, version.families) if changed else ():
            changed &= {family.id for family in families}
        if changed:
            self.local.wait_until_written(before.version)

    def _enqueue(
        self,
        version: StoreVersion,
        rows: Iterable[pa.RecordBatch],
        *,
        may_begin_lists: bool = True,
        wakes: bool = True,
    ) -> None:
        now = self.resources.clock.monotonic_ns()
        delta = Delta(
            version.version, rows, version.multi_families, now, may_begin_lists=may_begin_lists
        )
        self.local.enqueue(delta, wakes=wakes)

    def data_bytes(self, *, is_new: bool) -> int:
        """Return the estimated bytes of keys and values; sometimes, or if ``is_new``, a new one."""
        now = self.resources.clock.monotonic_ns()
        if is_new or now - self._data_bytes_at_ns > _ESTIMATE_NS:
            self._data_bytes = self.resources.event_loop.run(self._estimated_bytes)
            self._data_bytes_at_ns = now
        return self._data_bytes

    def _estimated_bytes(self) -> int:
        entry_bytes, entry_count = self.local.db.data_estimate()
        total = entry_bytes + self.local.writer.pending_bytes()
        version = self._version
        if version is None or not entry_count or version.multi_families:
            return total
        if any(family.id not in version.counts for family in version.families):
            return total
        # The database may have several entries of a key; a list has several chunks.
        return min(total, entry_bytes * sum(version.counts.values()) // entry_count)

    def estimated_keys(self) -> int:
        """Return about how many keys the database and the rows that it lacks have.

        REQUIRES: a database is open.
        """
        # Most pending rows have keys of the database, or it has hardly any.
        return max(self.local.db.estimated_key_count(), self.local.writer.pending_rows())

    def figures(self) -> dict[str, int]:
        """Return the instance's metrics and its present sizes, by name."""
        values = self.metrics.values()
        values["gets_count"] += self.local.looked_up_count
        if self.local.is_open:
            database = self.local.db
            values |= {
                "memtable_bytes": database.memtable_bytes(),
                "sst_bytes": database.sst_bytes(),
                "estimated_keys_count": self.estimated_keys(),
                "applied_through": self.local.applied_through,
                "written_through": self.local.written_through,
            }
        left_files, left_bytes = self.upload_left()
        values |= {
            "lineage_versions_count": self.lineage_length(),
            "snapshot_left_files": left_files,
            "snapshot_left_bytes": left_bytes,
            "block_cache_bytes": self.resources.memory.cached_bytes(),
            "pending_delta_bytes": self.resources.pending.current,
        }
        return values

    def lineage_length(self) -> int:
        """Return the number of changelogs that a load of the current version adds to a snapshot."""
        version = self._version
        return 0 if version is None else len(self.chain.rebased(version).lineage)

    def upload_left(self) -> tuple[int, int]:
        """Return the number and size of the files that the running snapshot has to upload."""
        return (0, 0) if self.snapshots.run is None else self.chain.upload_left()

    def close(self) -> None:
        """Close the database and free the local disk."""
        self.is_closed = True
        self._version = None
        self._discard(self._detach())
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- maintenance: REQUIRES ``snapshots.lock`` ----------------------------------------------

    def snapshot_point(self) -> tuple[Chain, StoreVersion | None]:
        """Return the database's chain and the current version, which belong together.

        A load that comes later changes the incarnation, so that ``local.checkpoint`` refuses.
        """
        while True:
            chain, version = self.chain, self._version
            if self.chain is chain:
                return chain, version
