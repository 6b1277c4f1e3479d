"""Snapshots and purges of one store, beside its loads and commits.

Layer: store.  Spec: docs/checkpoint-format.md#manifest, #deletion.

A snapshot of version N: apply all deltas up to N and none above, flush, make a local checkpoint,
apply the held deltas, upload. If the worker dies meanwhile, it leaves SSTs that no manifest names.
"""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.upload import SnapshotContent, SnapshotResult
from cairn.errors import BusyError, CairnError, ClosedError, MissingError
from cairn.protocol.calls import MaintainAnswer
from cairn.rocks.failures import translate

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.format.manifest import Manifest
    from cairn.ids import VersionRef
    from cairn.store.state import StoreState
    from cairn.store.version import StoreVersion

_LOG = logging.getLogger(__name__)
_TRIES = 5
_MS = 1_000_000
# If a lineage is more than this many times minDeltasForSnapshot long, maintenance is too slow.
_LINEAGE_FACTOR = 4


class _MovedOnError(Exception):
    """The store was loaded again, or its credentials were replaced, during the snapshot."""


def take_snapshot(
    state: StoreState, answer: MaintainAnswer, *, is_forced: bool = False
) -> datetime | None:
    """Upload a snapshot of the current version, if one is due.

    REQUIRES: ``snapshots.running`` is held.

    Args:
        state: the store's state.
        answer: this call fills it in.
        is_forced: whether one is due after fewer deltas than ``minDeltasForSnapshot`` too.

    Returns:
        The time of the upload, by the storage's clock; ``None`` if nothing was uploaded.
    """
    for _ in range(_TRIES):
        try:
            return _take_snapshot(state, answer, is_forced=is_forced)
        except _MovedOnError:
            continue  # try again with the current version
    state.local.check_not_broken()
    raise BusyError(
        "commits and loads left no time to begin a snapshot", next_step="wait for the next"
    )


def _take_snapshot(
    state: StoreState, answer: MaintainAnswer, *, is_forced: bool
) -> datetime | None:
    incarnation, version = state.snapshot_point()
    if version is None or version.ref is None:
        return None
    checkpoint, snapshots = state.checkpoint, state.snapshots
    version = snapshots.rebased(version)
    is_due_now = is_forced or snapshots.is_wanted
    due = 1 if is_due_now else checkpoint.conf.min_deltas_for_snapshot
    if version.ref is None or len(version.lineage) < due:
        return None
    if not version.has_changelog and _adopt_snapshot(state, version.ref, incarnation):
        return None
    clock = state.resources.clock
    began = clock.monotonic_ns()
    content = SnapshotContent(
        ref=version.ref,
        counts=version.counts,
        column_families=version.families,
        max_cf_id=version.max_cf_id,
        changelogs=snapshots.changelogs(version.lineage),
    )
    previous = _previous(state, version)
    directory = state.new_directory("c")
    try:
        if not state.local.checkpoint(version.version, incarnation, directory):
            raise _MovedOnError
        result = checkpoint.uploader.upload(
            directory, content, known=snapshots.known(incarnation), previous=previous
        )
    except (CairnError, OSError) as failure:
        if state.is_closed:
            return None  # a closed store has no directory
        is_other = incarnation != state.local.incarnation or checkpoint is not state.checkpoint
        if isinstance(failure, ClosedError) and is_other:
            raise _MovedOnError from failure
        if isinstance(failure, CairnError):
            raise
        raise translate(failure, str(directory)) from failure
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    snapshots.stored(result, incarnation)
    answer.uploaded_files = result.uploaded_files
    answer.uploaded_bytes = result.uploaded_bytes
    answer.reused_files = result.reused_files
    answer.snapshot_ms = (clock.monotonic_ns() - began) // _MS
    state.metrics.add("snapshots_count")
    state.metrics.add("snapshot_uploaded_bytes", result.uploaded_bytes)
    return result.store_time


def _adopt_snapshot(state: StoreState, ref: VersionRef, incarnation: int) -> bool:
    """Use the snapshot that another instance may have stored; return whether there is one.

    An empty commit is loaded from the changelog of its real version, which does not name that
    version's own snapshot. Each restart of an idle store would upload it again.
    """
    try:
        manifest = state.checkpoint.recovery.fetch_manifest(ref)
    except MissingError:
        return False
    result = SnapshotResult(
        manifest=manifest,
        won=False,
        known={},
        uploaded_files=0,
        uploaded_bytes=0,
        reused_files=0,
        store_time=None,
    )
    state.snapshots.stored(result, incarnation)
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


def purge(state: StoreState, store_time: datetime | None) -> int:
    """Delete the objects that no retained version needs; return how many.

    REQUIRES: ``snapshots.running`` is held.
    """
    snapshots, version = state.snapshots, state.version
    purgeable = snapshots.purgeable()
    if purgeable is None or version is None or version.ref is None:
        return 0
    manifest, is_garbage_young = purgeable
    version = snapshots.rebased(version)
    if version.base.ref != manifest.ref:
        return 0  # the newest manifest is not the base of the current version: delete later
    kept = KeptVersions(
        newest_version=version.version,
        count=state.checkpoint.conf.min_versions_to_retain,
        recent=snapshots.changelogs(version.lineage),
    )
    result = state.checkpoint.purge(manifest, kept, store_time, is_young=is_garbage_young)
    snapshots.purged(manifest, result.manifest)
    deleted = result.deleted_objects
    if snapshots.sweeps.is_due():
        deleted += state.checkpoint.sweep(result.manifest, kept)
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
    """Return whether a snapshot cannot wait: it is wanted, or the lineage is very long."""
    version = state.version
    if state.snapshots.is_wanted:
        return True
    limit = _LINEAGE_FACTOR * state.checkpoint.conf.min_deltas_for_snapshot
    return version is not None and len(version.lineage) > limit


def try_snapshot(state: StoreState, *, is_forced: bool = False, wait_s: float = 0) -> None:
    """Take a snapshot, or log why it failed. Never raises.

    Args:
        state: the store's state.
        is_forced: as for ``take_snapshot``.
        wait_s: how long to wait for a running snapshot; after that, none is taken.
    """
    running = state.snapshots.running
    if not running.acquire(timeout=wait_s):
        if is_forced:
            _LOG.warning("the snapshot that Spark requested is not taken: another one is running")
        return
    try:
        take_snapshot(state, MaintainAnswer(), is_forced=is_forced)
    except CairnError as failure:
        _LOG.warning("a snapshot failed, the next one tries again: %s", failure)
    except Exception:  # noqa: BLE001 - the version is durable, whatever fails now
        _LOG.exception("a snapshot failed, the next one tries again")
    finally:
        running.release()
