"""Snapshots and purges of one store, beside its loads and commits.

Layer: store.  Spec: docs/checkpoint-format.md#manifest, #deletion.

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
from typing import TYPE_CHECKING

from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.upload import SnapshotContent, SnapshotResult
from cairn.errors import (
    AccessError,
    BusyError,
    CairnError,
    ClosedError,
    CredentialsExpiredError,
    DataError,
    InternalError,
    LineageTooLongError,
    MissingError,
    unexpected,
)
from cairn.format.names import SST_PREFIX
from cairn.rocks.failures import translate
from cairn.store.detours import DAMAGES
from cairn.store.local_state import nothing_loaded
from cairn.store.snapshot_state import SnapshotDone

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import datetime
    from pathlib import Path

    from cairn.checkpoint.purge import PurgeResult
    from cairn.format.manifest import Manifest
    from cairn.ids import VersionRef
    from cairn.store.state import StoreState
    from cairn.store.version import StoreVersion

_LOG = logging.getLogger(__name__)
_TRIES = 5
_MS = 1_000_000
_S = 1_000_000_000
# A warning at each tenth of the bound of lineages.
_WARN_DIVISOR = 10
# If a lineage is more than this many times minDeltasForSnapshot long, maintenance is too slow; if a
# load replays more, the runs before were too short.
_LINEAGE_FACTOR = 4


class _MovedOnError(Exception):
    """The store was loaded again, or its credentials were replaced, during the snapshot."""


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
    with snapshots.running:
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
            snapshots.cleaned = job
            state.resources.snapshots.add(job, str(state.checkpoint.store))
        return done


def _take_in_time(state: StoreState, *, is_forced: bool) -> SnapshotDone:
    for _ in range(_TRIES):
        try:
            return _take_snapshot(state, is_forced=is_forced)
        except _MovedOnError:
            continue  # try again with the current version
        except _RootGoneError:
            state.snapshots.drop_pending()
            return SnapshotDone()
    state.local.check_not_broken()
    raise BusyError(
        "commits and loads left no time to begin a snapshot", next_step="wait for the next"
    )


def _take_snapshot(state: StoreState, *, is_forced: bool) -> SnapshotDone:
    incarnation, version = state.snapshot_point()
    if version is None or version.ref is None:
        return SnapshotDone()
    checkpoint, snapshots = state.checkpoint, state.snapshots
    current, version = version, snapshots.rebased(version)
    is_due_now = is_forced or snapshots.is_wanted
    due = 1 if is_due_now else checkpoint.conf.min_deltas_for_snapshot
    if version.ref is None or len(version.lineage) < due:
        return SnapshotDone()
    if _is_present(state, version, version.ref, incarnation):
        return SnapshotDone()
    _require_root(state, current)
    clock = state.resources.clock
    began = clock.monotonic_ns()
    content = _content(state, version, version.ref, incarnation)
    try:
        previous = _previous(state, version)
    except DAMAGES:
        snapshots.needs_load = True  # which finds another way to the version
        raise
    directory = state.new_directory("c")
    try:
        if not state.local.checkpoint(version.version, incarnation, directory):
            raise _MovedOnError
        result, deleted_objects = _upload(state, incarnation, directory, current, content, previous)
    except (CairnError, OSError) as failure:
        if state.is_closed:
            return SnapshotDone()  # a closed store has no directory
        is_other = incarnation != state.local.incarnation or checkpoint is not state.checkpoint
        if isinstance(failure, ClosedError) and is_other:
            raise _MovedOnError from failure
        if isinstance(failure, CairnError):
            raise
        raise translate(failure, str(directory)) from failure
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    snapshots.stored(result, incarnation)
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


def _clean_up(state: StoreState, done: SnapshotDone) -> int:
    """Purge, and sweep if that is due, after a snapshot; return how many objects were deleted."""
    try:
        with state.snapshots.running:
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


def _content(
    state: StoreState, version: StoreVersion, ref: VersionRef, incarnation: int
) -> SnapshotContent:
    try:
        changelogs = state.snapshots.changelogs(version.lineage)
    except InternalError:
        if incarnation == state.local.incarnation:
            raise
        raise _MovedOnError from None  # a load has opened another database meanwhile
    return SnapshotContent(
        ref=ref,
        counts=version.counts,
        column_families=version.families,
        max_cf_id=version.max_cf_id,
        changelogs=changelogs,
    )


def _upload(
    state: StoreState,
    incarnation: int,
    directory: Path,
    current: StoreVersion,
    content: SnapshotContent,
    previous: Manifest | None,
) -> tuple[SnapshotResult, int]:
    """Return the result, and how many objects were deleted before."""
    uploader, snapshots = state.checkpoint.uploader, state.snapshots
    deleted = 0

    def trim(chain: Manifest, now: datetime) -> Manifest:
        nonlocal deleted
        purged = _purge_before(state, current, content, chain, now)
        if purged is None:
            return chain
        deleted = purged.deleted_objects
        return purged.manifest

    result = uploader.upload(
        directory,
        content,
        known=snapshots.known(incarnation),
        previous=previous,
        pending=snapshots.pending(incarnation, uploader),
        trim=trim,
        confirm=lambda: _require_root(state, current),
    )
    return result, deleted


def _purge_before(
    state: StoreState,
    current: StoreVersion,
    content: SnapshotContent,
    previous: Manifest,
    now: datetime,
) -> PurgeResult | None:
    """Delete what no kept version needs, before a snapshot after one of another writer.

    A purge shortens the chain in memory. If each writer stored one snapshot with the chain that it
    has loaded, and purged after that, then no manifest would have a shorter chain, nor any garbage.
    """
    snapshots = state.snapshots
    purgeable = snapshots.purgeable()
    if purgeable is not None and purgeable.manifest is previous:
        return None  # it has what the purges of this instance left
    kept = KeptVersions(
        newest_version=content.ref.version,
        count=state.checkpoint.conf.min_versions_to_retain,
        recent=content.changelogs,
        unusable=snapshots.unusable,
    )
    try:
        result = state.checkpoint.purge(
            previous,
            kept,
            now,
            age_ms=0,
            is_young=False,
            schedule=snapshots.purges,
            may_delete=lambda: state.root_check.holds(state.checkpoint, current),
        )
    except CairnError as failure:
        _LOG.warning("a purge failed, the next one tries again: %s", failure)
        return None
    if result is not None:
        snapshots.purged(previous, result.manifest)
    return result


def _require_root(state: StoreState, current: StoreVersion) -> None:
    if not state.root_check.holds(state.checkpoint, current):
        raise _RootGoneError


def _is_present(
    state: StoreState, version: StoreVersion, ref: VersionRef, incarnation: int
) -> bool:
    """Return whether no snapshot of a version is needed, or possible, because there is one."""
    snapshots = state.snapshots
    if snapshots.taken == ref:
        return True  # an idle store sends no requests
    if snapshots.is_wanted:
        # A load found damaged objects, perhaps that one: the next version gets a snapshot.
        if _is_name_taken(state, ref):
            snapshots.found_other(ref, incarnation)
            return True
        return False
    return not version.has_changelog and _adopt_snapshot(state, ref, incarnation)


def _is_name_taken(state: StoreState, ref: VersionRef) -> bool:
    """Return whether the storage has a manifest of ``ref``, whole or damaged."""
    try:
        state.checkpoint.recovery.fetch_manifest(ref)
    except (MissingError, AccessError):
        return False  # S3 denies access to an absent object if it may not be listed
    except DataError:
        pass
    return True


def _adopt_snapshot(state: StoreState, ref: VersionRef, incarnation: int) -> bool:
    """Use the snapshot that another instance may have stored; return whether there is one.

    An empty commit is loaded from the changelog of its real version, which does not name that
    version's own snapshot. Each restart of an idle store would upload it again. It is used if its
    files are there: its writer may have failed to delete it.
    """
    try:
        manifest = state.checkpoint.recovery.fetch_manifest(ref)
    except (MissingError, AccessError):
        return False  # S3 denies access to an absent object if it may not be listed
    stored = {info.key for info in state.checkpoint.objects.list(SST_PREFIX)}
    if any(file.object_name not in stored for file in manifest.files):
        state.snapshots.found_other(ref, incarnation)
        return True
    state.snapshots.adopted(manifest, incarnation)
    return True


def _previous(state: StoreState, version: StoreVersion) -> Manifest | None:
    base = version.base.ref
    if base is None:
        return None
    known = state.snapshots.manifest
    if known is not None and known.ref == base:
        return known
    # Another executor stored the base of the changelogs that were replayed here.
    return state.checkpoint.recovery.fetch_manifest(base)


def purge(state: StoreState, store_time: datetime | None, *, sweeps: bool = False) -> int:
    """Delete the objects that no retained version needs; return how many.

    REQUIRES: ``snapshots.running`` is held.

    Args:
        state: the store's state.
        store_time: when the newest manifest was stored, by the storage's clock, if that is known.
        sweeps: whether to delete the objects that nothing names, too.
    """
    snapshots, version = state.snapshots, state.version
    purgeable = snapshots.purgeable()
    if purgeable is None or version is None or version.ref is None:
        return 0
    manifest = purgeable.manifest
    current, version = version, snapshots.rebased(version)
    if version.base.ref != manifest.ref:
        return 0  # the newest manifest is not the base of the current version: delete later
    kept = KeptVersions(
        newest_version=version.version,
        count=state.checkpoint.conf.min_versions_to_retain,
        recent=snapshots.changelogs(version.lineage),
        unusable=snapshots.unusable,
    )

    def is_ours() -> bool:
        return state.root_check.holds(state.checkpoint, current)

    result = state.checkpoint.purge(
        manifest,
        kept,
        store_time,
        age_ms=purgeable.age_ms,
        is_young=purgeable.is_garbage_young,
        schedule=snapshots.purges,
        may_delete=is_ours,
    )
    deleted = 0
    if result is not None:
        snapshots.purged(manifest, result.manifest)
        manifest, deleted = result.manifest, result.deleted_objects
    if sweeps and is_ours():
        deleted += state.checkpoint.sweep(manifest, kept)
    return deleted


def newest_with_snapshot(state: StoreState) -> int:
    """Return the newest version that has a snapshot, as far as this instance knows; 0 if none.

    The snapshot of an empty commit is that of its real version. Spark would otherwise find that
    an idle store lags, and request a snapshot of it.
    """
    version, manifest = state.version, state.snapshots.manifest
    if version is not None and manifest is not None and version.ref == manifest.ref:
        return version.version
    return state.snapshots.newest_version


def is_overdue(state: StoreState) -> bool:
    """Return whether a snapshot cannot wait for maintenance.

    It is wanted; or the lineage is very long; or it was due when the version was loaded: the run
    before ended without it, and this one may be as short.
    """
    version, snapshots = state.version, state.snapshots
    due = state.checkpoint.conf.min_deltas_for_snapshot
    if snapshots.is_wanted or snapshots.replayed_count >= due:
        return True
    return version is not None and len(version.lineage) > _LINEAGE_FACTOR * due


def holds_commit(state: StoreState) -> bool:
    """Return whether this commit waits for a snapshot; true once per loaded database.

    Earlier runs began one and ended before it did, because they were short or their end did not
    wait long enough. Nothing that they uploaded helps this run, and one as short would not help the
    next.
    """
    snapshots = state.snapshots
    if snapshots.replayed_count <= _LINEAGE_FACTOR * state.checkpoint.conf.min_deltas_for_snapshot:
        return False
    snapshots.forget_replayed()
    return True


def take_now(state: StoreState, wait_s: float) -> None:
    """Take a snapshot of the current version and wait for it. Never raises: failures are logged."""
    clock = state.resources.clock
    until_ns = clock.monotonic_ns() + int(wait_s * _S)
    is_new, done = False, None
    while not is_new:  # a snapshot that is running may be of an earlier version
        run, is_new = begin(state, is_forced=True)
        try:
            done = wait_for(run, (until_ns - clock.monotonic_ns()) / _S)
        except CairnError:
            continue
        if done is None:
            _LOG.warning(
                "the answer to a commit does not wait longer for a snapshot, which goes on"
            )
            return


def bound_lineage(state: StoreState, wait_s: float) -> None:
    """Take a snapshot before a commit whose lineage would be too long, and wait for it.

    If the snapshot does not end in time, but the worker's uploads move, the commit may go on: an
    error would end the query, and with its workers what is uploaded. The waits keep the lineage
    near its bound. Uploads of other stores count, because stores take turns. They do not count for
    a snapshot that fails: only what this store has uploaded makes a further attempt worthwhile.
    If the lineage was as long when it was loaded, the commit does not go on: no earlier run was
    long enough for the upload, and the end of this one would lose it again.

    Without the instance's lock: ``use`` needs it to renew the credentials of the upload.

    Raises:
        LineageTooLongError: the snapshot fails, or no upload moves; says why.
        CredentialsExpiredError: the same call succeeds with new credentials.
        UnknownInstanceError: the snapshot's base is damaged. The shim loads the version then, which
            finds another way to it, and repeats the commit.
    """
    limit = state.checkpoint.conf.max_lineage
    clock, snapshots = state.resources.clock, state.snapshots
    until_ns = clock.monotonic_ns() + int(wait_s * _S)
    uploaded, uploads = snapshots.uploaded(), state.resources.transfers.upload_activity
    moved = uploads.count
    while (length := state.lineage_length()) >= limit:
        run, is_new = begin(state, is_forced=True)
        try:
            done = wait_for(run, (until_ns - clock.monotonic_ns()) / _S)
        except CredentialsExpiredError:
            raise
        except CairnError as failure:
            before, uploaded = uploaded, snapshots.uploaded()
            if not is_new or uploaded != before:
                continue  # the next one uploads the rest
            raise _failed_at_bound(state, length, failure) from failure
        files, size = snapshots.left()
        left = f"{files} files, {size >> 20} MiB are left"
        if done is None and uploads.count != moved:
            is_last_chance = snapshots.replayed_count >= limit
            _LOG.warning(
                "store %s: a commit has waited %d s for a snapshot and %s: %s",
                state.checkpoint.store,
                wait_s,
                "waits on" if is_last_chance else "goes on without it",
                left,
            )
            if not is_last_chance:
                return
            moved, until_ns = uploads.count, clock.monotonic_ns() + int(wait_s * _S)
            continue
        if done is None:
            raise _too_long(state, length, f"the upload of their snapshot does not move: {left}")
        if is_new and snapshots.is_wanted:
            return  # the current version cannot have another one: that of this commit follows
        if is_new and state.lineage_length() >= limit:
            problem = "no snapshot of the current version was possible"
            raise _too_long(state, length, problem + state.root_check.reason())


def _failed_at_bound(state: StoreState, length: int, failure: CairnError) -> CairnError:
    if state.snapshots.needs_load:
        return nothing_loaded()
    problem = f"their snapshot failed: [{failure.code}] {failure.message}"
    error = _too_long(state, length, problem, failure.next_step)
    return error.with_context(object_name=failure.object_name)


def _too_long(
    state: StoreState, length: int, problem: str, next_step: str | None = None
) -> LineageTooLongError:
    return LineageTooLongError(
        f"{length} versions were committed since the last snapshot, as many as cairn.maxLineage "
        f"allows, and {problem}",
        next_step=next_step or "let Spark retry the task",
    ).with_context(store=str(state.checkpoint.store))


def note_lineage(state: StoreState, length: int) -> None:
    """Warn, after a commit, if the lineage has become a tenth of its bound longer."""
    limit = state.checkpoint.conf.max_lineage
    if length and length % max(1, limit // _WARN_DIVISOR) == 0:
        _LOG.warning(
            "store %s: %d versions were committed since the last snapshot; at %d "
            "(cairn.maxLineage) each commit waits for a snapshot. %s",
            state.checkpoint.store,
            length,
            limit,
            state.snapshots.failure or "No snapshot has failed: perhaps one is still running",
        )
