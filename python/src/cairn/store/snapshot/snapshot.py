"""Snapshots of one store, beside its loads and commits.

Layer: store.  Spec: docs/checkpoint-format.md#manifest.

A snapshot of version N: apply all deltas up to N and none above, flush, make a local checkpoint,
apply the held deltas, upload. If the worker dies meanwhile, it leaves SSTs that no manifest names.

A snapshot runs in a thread of its own, one per store, because an upload may take hours. Calls that
want it wait for a while and go on without it. A clean-up follows it: a run may end before Spark's
first maintenance.
"""

from __future__ import annotations

import copy
import logging
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import DAMAGES
from cairn.checkpoint.upload import SnapshotContent, SnapshotResult
from cairn.errors import (
    AccessError,
    BusyError,
    CairnError,
    ClosedError,
    DataError,
    MissingError,
    unexpected,
)
from cairn.format.names import SST_PREFIX
from cairn.rocks.failures import translate
from cairn.store.snapshot.purge import purge, purge_before
from cairn.store.state.snapshot_runs import SnapshotDone

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import datetime
    from pathlib import Path

    from cairn.format.manifest import Manifest
    from cairn.ids import VersionRef
    from cairn.store.state.chain import Chain
    from cairn.store.state.store_state import StoreState
    from cairn.store.state.version import StoreVersion

_LOG = logging.getLogger(__name__)
_TRIES = 5
_MS = 1_000_000


class _MovedOnError(Exception):
    """The store was loaded again during the snapshot."""


class _RootGoneError(Exception):
    """The checkpoint was deleted or replaced during the snapshot."""


def begin(state: StoreState, *, is_forced: bool = False) -> tuple[Future[SnapshotDone], bool]:
    """Start a snapshot of the current version, unless one is running; return at once.

    Args:
        state: the store's state.
        is_forced: whether one is due after fewer deltas than ``minDeltasForSnapshot`` too.

    Returns:
        The running snapshot, and whether this call started it.
    """
    resources = state.resources

    def start() -> Future[SnapshotDone]:
        run = resources.maintenance.submit(_run, state, is_forced)
        resources.snapshots.add(run, str(state.checkpoint.store))
        return run

    return state.snapshots.begin(start)


def wait_for(run: Future[SnapshotDone], wait_s: float) -> SnapshotDone | None:
    """Return what a snapshot did; ``None`` if it is still running after a while.

    Raises:
        CairnError: it failed; no partial snapshot is visible; the next one uploads what is missing.
    """
    try:
        return run.result(max(0.0, wait_s))
    except TimeoutError:
        return None
    except CairnError as failure:
        raise copy.copy(failure) from failure  # several calls may wait for this one


def _run(state: StoreState, is_forced: bool) -> SnapshotDone:  # noqa: FBT001 - a thread's argument
    snapshots = state.snapshots
    with snapshots.lock:
        try:
            done = _take_in_time(state, is_forced=is_forced)
        except Exception as problem:
            failure = unexpected(problem).with_context(store=str(state.checkpoint.store))
            snapshots.failure = failure
            _LOG.warning(
                "a snapshot failed, the next one tries again: %s",
                failure,
                exc_info=None if failure is problem else problem,
            )
            raise failure from problem
        snapshots.failure = None
        if done.is_stored:
            # A job of its own: calls wait for this snapshot, and need not wait for more.
            job = state.resources.maintenance.submit(_clean_up, state, done)
            snapshots.clean_up = job
            state.resources.snapshots.add(job, str(state.checkpoint.store))
        return done


def _take_in_time(state: StoreState, *, is_forced: bool) -> SnapshotDone:
    for _ in range(_TRIES):
        try:
            return _take(state, is_forced=is_forced)
        except _MovedOnError:
            continue  # try again with the current version
        except _RootGoneError:
            return SnapshotDone()
    state.local.check_not_broken()
    raise BusyError(
        "commits and loads left no time to begin a snapshot", next_step="wait for the next"
    )


def _take(state: StoreState, *, is_forced: bool) -> SnapshotDone:
    """Take a snapshot of the current version, if one is due and possible."""
    chain, current = state.snapshot_point()
    if current is None or current.ref is None:
        return SnapshotDone()
    version = chain.rebased(current)
    due = state.checkpoint.conf.min_deltas_for_snapshot
    if len(version.lineage) < (1 if is_forced or chain.is_wanted else due):
        return SnapshotDone()
    job = _Job(state, chain, current, version, current.ref)
    return SnapshotDone() if job.is_present() else job.run()


@dataclass(frozen=True, slots=True)
class _Job:
    """A snapshot of one version of one database.

    Attributes:
        state: the store's state.
        chain: that of the database, which has ``current``, or a later version.
        current: the version as it was loaded or committed.
        version: the same, with the newest manifest as its base.
        ref: names it.
    """

    state: StoreState
    chain: Chain
    current: StoreVersion
    version: StoreVersion
    ref: VersionRef

    def is_present(self) -> bool:
        """Return whether no snapshot is needed, or possible, because there is one."""
        chain = self.chain
        if chain.is_taken(self.ref):
            return True  # an idle store sends no requests
        if chain.is_wanted:
            # A load found damaged objects, perhaps that one: the next version gets a snapshot.
            if self._is_name_taken():
                chain.note_taken(self.ref)
                return True
            return False
        return not self.version.has_changelog and self._adopt()

    def _is_name_taken(self) -> bool:
        """Return whether the storage has a manifest of the version, whole or damaged."""
        try:
            self.state.checkpoint.recovery.fetch_manifest(self.ref)
        except (MissingError, AccessError):
            return False  # S3 denies access to an absent object if it may not be listed
        except DataError:
            pass
        return True

    def _adopt(self) -> bool:
        """Use the snapshot that another instance may have stored; return whether there is one.

        An empty commit is loaded from the changelog of its real version, which does not name that
        version's own snapshot. Each restart of an idle store would upload it again. It is used if
        its files are there: its writer may have failed to delete it.
        """
        checkpoint = self.state.checkpoint
        try:
            manifest = checkpoint.recovery.fetch_manifest(self.ref)
        except (MissingError, AccessError):
            return False  # S3 denies access to an absent object if it may not be listed
        stored = {info.key for info in checkpoint.objects.list(SST_PREFIX)}
        if any(file.object_name not in stored for file in manifest.files):
            self.chain.note_taken(self.ref)
        else:
            self.chain.adopted(manifest)
        return True

    def run(self) -> SnapshotDone:
        """Take the snapshot.

        Raises:
            CairnError: no partial snapshot is visible.
        """
        state, clock = self.state, self.state.resources.clock
        state.root_check.look_again()
        self._require_root()
        began = clock.monotonic_ns()
        content = self._content()
        try:
            previous = self._previous()
        except DAMAGES:
            self.chain.needs_load = True  # which finds another way to the version
            raise
        directory, incarnation = state.new_directory("c"), self.chain.incarnation
        try:
            if not state.local.checkpoint(self.version.version, incarnation, directory):
                raise _MovedOnError
            result, deleted_objects = self._upload(directory, content, previous)
        except (CairnError, OSError) as failure:
            if state.is_closed:
                return SnapshotDone()  # a closed store has no directory
            if isinstance(failure, ClosedError) and incarnation != state.local.incarnation:
                raise _MovedOnError from failure
            if isinstance(failure, CairnError):
                raise
            raise translate(failure, str(directory)) from failure
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self.chain.stored(result)
        state.metrics.add("snapshots_count", int(result.won))
        state.metrics.add("snapshot_uploaded_bytes", result.uploaded_bytes)
        return SnapshotDone(
            uploaded_files=result.uploaded_files,
            uploaded_bytes=result.uploaded_bytes,
            reused_files=result.reused_files,
            duration_ms=(clock.monotonic_ns() - began) // _MS,
            store_time=result.store_time if result.won else None,
            deleted_objects=deleted_objects,
            is_stored=result.won,
            is_sweep_due=result.is_sweep_due,
        )

    def _require_root(self) -> None:
        if not self.state.root_check.holds(self.state.checkpoint, self.current):
            self.chain.drop_upload()
            raise _RootGoneError

    def _content(self) -> SnapshotContent:
        version = self.version
        return SnapshotContent(
            ref=self.ref,
            counts=version.counts,
            column_families=version.families,
            max_cf_id=version.max_cf_id,
            changelogs=self.chain.changelogs(version.lineage),
        )

    def _previous(self) -> Manifest | None:
        base, known = self.version.base.ref, self.chain.manifest
        if base is None:
            return None
        if known is not None and known.ref == base:
            return known
        # Another executor stored the base of the changelogs that were replayed here.
        return self.state.checkpoint.recovery.fetch_manifest(base)

    def _upload(
        self, directory: Path, content: SnapshotContent, previous: Manifest | None
    ) -> tuple[SnapshotResult, int]:
        """Return the result, and how many objects were deleted before."""
        uploader, chain = self.state.checkpoint.uploader, self.chain
        deleted = 0

        def trim(last: Manifest, now: datetime) -> Manifest:
            nonlocal deleted
            purged = purge_before(self.state, chain, self.current, content, last, now)
            if purged is None:
                return last
            deleted = purged.deleted_objects
            return purged.manifest

        result = uploader.upload(
            directory,
            content,
            known=chain.known,
            previous=previous,
            pending=chain.upload_of(uploader),
            trim=trim,
            confirm=self._require_root,
        )
        return result, deleted


def _clean_up(state: StoreState, done: SnapshotDone) -> int:
    """Purge, and sweep if that is due, after a snapshot; return how many objects were deleted."""
    try:
        with state.snapshots.lock:
            return purge(state, done.store_time, sweeps=done.is_sweep_due)
    except Exception as problem:  # noqa: BLE001 - each call of maintenance would raise it again
        failure = unexpected(problem)
        if not state.is_closed:
            _LOG.warning(
                "store %s: the clean-up after a snapshot failed, a later one tries again: %s",
                state.checkpoint.store,
                failure,
                exc_info=None if failure is problem else problem,
            )
        return 0


def newest_with_snapshot(state: StoreState) -> int:
    """Return the newest version that has a snapshot, as far as this instance knows; 0 if none.

    The snapshot of an empty commit is that of its real version. Spark would otherwise find that
    an idle store lags, and request a snapshot of it.
    """
    version, manifest = state.version, state.chain.manifest
    if version is not None and manifest is not None and version.ref == manifest.ref:
        return version.version
    return state.chain.newest_version
