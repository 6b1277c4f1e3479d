"""Snapshots and clean-up of one instance: what is held back, uploaded, remembered and deleted.

Layer: store.  Spec: docs/checkpoint-format.md#manifest, #deletion.

A snapshot of version N: apply all deltas up to N and none above, flush, make a local checkpoint,
let the deltas go on, upload. Commits go on all the while. If it dies: SSTs that nobody names.
"""

from __future__ import annotations

import logging
import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.orphans import SweepSchedule
from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.upload import SnapshotContent
from cairn.errors import BusyError, CairnError, ClosedError, InternalError
from cairn.format.manifest import ChangelogRef
from cairn.rocks.failures import translate

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from cairn.checkpoint.upload import SnapshotResult
    from cairn.clock import Clock, Entropy
    from cairn.format.header import Base
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import VersionRef
    from cairn.store.instance import ProviderInstance
    from cairn.store.version import StoreVersion

_LOG = logging.getLogger(__name__)
_TRIES = 5


@dataclass
class MaintenanceReport:
    """What a snapshot and a clean-up did."""

    uploaded_files: int = 0
    uploaded_bytes: int = 0
    reused_files: int = 0
    deleted_objects: int = 0
    snapshot_ns: int = 0


class SnapshotState:
    """What an instance remembers of manifests. ``running`` serialises snapshots and clean-ups.

    Threads: loads (``opened``, ``note_changelog``) and commits (``note_changelog``, ``rebased``)
    come one at a time, under the instance's lock; a snapshot or clean-up beside them, under
    ``running``. What both touch is changed under ``_lock``, and a manifest is replaced, not edited.

    Args:
        clock: for the daily sweep.
        entropy: as ``clock``.
    """

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self.running = threading.Lock()
        self._lock = threading.Lock()
        self.sweeps = SweepSchedule(clock, entropy)
        # The last manifest loaded or stored; a later snapshot may reuse what it names.
        self.manifest: Manifest | None = None
        # Whether it is ours and stands: only then may this writer delete.
        self.is_ours = False
        # As the last clean-up left it: what it still lists as garbage is too young upon it.
        self.cleaned: Manifest | None = None
        self._known: Mapping[str, SstFile] = {}
        self._known_of = -1  # the opening of the directory that `known` speaks of
        self._bases: dict[VersionRef, Base] = {}

    def opened(
        self, incarnation: int, manifest: Manifest | None, known: Mapping[str, SstFile]
    ) -> None:
        """Begin anew with a directory: empty, or made of ``manifest``."""
        with self._lock:
            self.manifest, self.is_ours = manifest, False
            self._known, self._known_of = known, incarnation
            self._bases = {}

    def note_changelog(self, standing: StoreVersion) -> None:
        """Remember the base of a changelog that was replayed or committed."""
        if standing.ref is not None:
            with self._lock:
                self._bases[standing.ref] = standing.base

    def stored(self, result: SnapshotResult, incarnation: int) -> None:
        """Take over what an upload left."""
        newest = result.manifest.ref.version
        with self._lock:
            if incarnation != self._known_of:
                return  # loaded anew meanwhile: what the directory needs is not what we stored
            self.manifest, self.is_ours = result.manifest, result.won
            self._known = result.known
            self._bases = {ref: base for ref, base in self._bases.items() if ref.version > newest}

    def known(self, incarnation: int) -> Mapping[str, SstFile]:
        """Return the objects behind local SSTs, for this opening of the directory."""
        with self._lock:
            return self._known if incarnation == self._known_of else {}

    def changelogs(self, refs: tuple[VersionRef, ...]) -> tuple[ChangelogRef, ...]:
        """Return lineage entries with the base that each of them names.

        Raises:
            InternalError: one of them never passed through this instance.
        """
        with self._lock:
            found = [(ref, self._bases.get(ref)) for ref in refs]
        named = tuple(ChangelogRef(ref, base) for ref, base in found if base is not None)
        if len(named) < len(refs):
            missing = next(ref for ref, base in found if base is None)
            raise InternalError(f"the base of changelog {missing} is not known")
        return named

    def rebased(self, standing: StoreVersion) -> StoreVersion:
        """Return ``standing`` upon the newest manifest that lies in its lineage."""
        manifest = self.manifest
        return standing if manifest is None else standing.rebased(manifest.ref) or standing

    @property
    def newest_version(self) -> int:
        """Return the version of the newest manifest known, 0 if none."""
        manifest = self.manifest
        return 0 if manifest is None else manifest.ref.version


class _MovedOnError(Exception):
    """What the snapshot was to be of, or where it was to go, is not what the instance has now."""


def take_snapshot(
    instance: ProviderInstance, report: MaintenanceReport, *, is_forced: bool
) -> datetime | None:
    """Upload a snapshot of where the instance stands, if that is worth it.

    REQUIRES: ``snapshots.running`` is held.

    Args:
        instance: whose.
        report: is filled in.
        is_forced: also when fewer deltas than ``minDeltasForSnapshot`` came since the last one.

    Returns:
        The storage's time of the upload, if anything was uploaded.
    """
    for _ in range(_TRIES):
        try:
            return _take_snapshot(instance, report, is_forced=is_forced)
        except _MovedOnError:
            continue  # its newest version then
    instance.local.require_sound()
    raise BusyError(
        "commits and loads came faster than a snapshot could begin", next_step="wait for the next"
    )


def _take_snapshot(
    instance: ProviderInstance, report: MaintenanceReport, *, is_forced: bool
) -> datetime | None:
    state = instance.snapshots
    # In this order: a load changes the incarnation before it changes the standing.
    incarnation = instance.local.incarnation
    standing = instance.standing
    if standing is None or standing.ref is None:
        return None
    standing = state.rebased(standing)
    due = 1 if is_forced else instance.durable.conf.min_deltas_for_snapshot
    if standing.ref is None or len(standing.lineage) < due:
        return None
    clock = instance.services.clock
    began = clock.monotonic_ns()
    content = SnapshotContent(
        ref=standing.ref,
        counts=standing.counts,
        column_families=standing.families,
        max_cf_id=standing.max_cf_id,
        changelogs=state.changelogs(standing.lineage),
    )
    previous = _previous(instance, standing)
    directory = instance.fresh_directory("c")
    durable = instance.durable
    try:
        _checkpoint(instance, standing, incarnation, directory)
        result = durable.upload(
            directory, content, known=state.known(incarnation), previous=previous
        )
    except (CairnError, OSError) as failure:
        if instance.is_closed:
            return None  # and its directory is gone
        is_other = incarnation != instance.local.incarnation or durable is not instance.durable
        if isinstance(failure, ClosedError) and is_other:
            raise _MovedOnError from failure
        if isinstance(failure, CairnError):
            raise
        raise translate(failure, str(directory)) from failure
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    state.stored(result, incarnation)
    report.uploaded_files += result.uploaded_files
    report.uploaded_bytes += result.uploaded_bytes
    report.reused_files += result.reused_files
    report.snapshot_ns += clock.monotonic_ns() - began
    instance.metrics.add("snapshots_count")
    instance.metrics.add("snapshot_uploaded_bytes", result.uploaded_bytes)
    return result.store_time


def _previous(instance: ProviderInstance, standing: StoreVersion) -> Manifest | None:
    base = standing.base.ref
    if base is None:
        return None
    known = instance.snapshots.manifest
    if known is not None and known.ref == base:
        return known
    # Another executor made the base of what we replayed.
    return instance.durable.read_manifest(base)


def _checkpoint(
    instance: ProviderInstance, standing: StoreVersion, incarnation: int, directory: Path
) -> None:
    """Make ``directory`` a local checkpoint of exactly ``standing``."""
    local, owner = instance.local, instance.services.owner
    if not owner.run(lambda: local.hold_for(standing.version, incarnation)):
        raise _MovedOnError
    try:
        owner.run_stepwise(local.until_applied(standing.version, incarnation))
        database = owner.run(lambda: local.db if local.incarnation == incarnation else None)
        if database is None:
            raise _MovedOnError  # loaded anew since the hold
        # In this thread, giving up the GIL: afterwards the checkpoint finds nothing to flush.
        database.flush()
        database.checkpoint(directory)
    finally:
        owner.run(lambda: local.release_hold(incarnation))
        owner.wake()


def clean_up(
    instance: ProviderInstance, report: MaintenanceReport, store_time: datetime | None
) -> None:
    """Delete what no retained version needs. REQUIRES: ``snapshots.running`` is held."""
    state = instance.snapshots
    standing = instance.standing
    if state.manifest is None or not state.is_ours or standing is None or standing.ref is None:
        return
    rebased = state.rebased(standing)
    if rebased.base.ref != state.manifest.ref:
        return  # we stand before, or beside, our newest manifest: not the time to delete
    kept = KeptVersions(
        newest_version=standing.version,
        count=instance.durable.conf.min_versions_to_retain,
        recent=state.changelogs(rebased.lineage),
    )
    result = instance.durable.clean_up(
        state.manifest, kept, store_time, is_garbage_young=state.cleaned is state.manifest
    )
    state.cleaned = state.manifest = result.manifest
    report.deleted_objects += result.deleted_objects
    if state.sweeps.is_due():
        report.deleted_objects += instance.durable.sweep(state.manifest, kept)


def snapshot_in_background(instance: ProviderInstance) -> None:
    """Snapshot a store whose lineage grew long, without a batch that waits for it."""
    if not instance.snapshots.running.acquire(blocking=False):
        return
    try:
        take_snapshot(instance, MaintenanceReport(), is_forced=False)
    except CairnError as failure:
        _LOG.warning("a snapshot failed, the next one tries again: %s", failure)
    except Exception:  # noqa: BLE001 - nobody waits for this thread
        _LOG.exception("a snapshot failed, the next one tries again")
    finally:
        instance.snapshots.running.release()
