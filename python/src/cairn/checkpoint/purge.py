"""Purge: deletes what ``retention`` plans, in the safe order.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.retention import plan_retention
from cairn.errors import CairnError
from cairn.format.names import changelog_name, manifest_name, plain_changelog_name

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.checkpoint.retention import DeletionPlan, KeptVersions
    from cairn.format.manifest import Manifest
    from cairn.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """The result of a purge.

    Attributes:
        manifest: the newest one with its remaining chain; ``previous`` of the next snapshot.
        deleted_objects: how many objects were deleted.
    """

    manifest: Manifest
    deleted_objects: int


def purge(
    objects: ObjectStore,
    manifest: Manifest,
    kept: KeptVersions,
    *,
    grace_ms: int,
    checkpoint_format: int,
    store_time: datetime | None,
    is_garbage_young: bool = False,
    fault: FaultHook = no_fault,
) -> PurgeResult:
    """Delete the objects that no kept version needs. Idempotent: after an error, call it again.

    REQUIRES: this writer stored ``manifest``, and it is the present one (``SnapshotResult.won``).
    It sends no request if nothing can be deleted.

    Args:
        objects: at the store's root.
        manifest: the newest one: of the last ``SnapshotResult``, or of the last purge after it.
        kept: the versions that must stay loadable.
        grace_ms: how long an SST outlives the last manifest that named it.
        checkpoint_format: Spark's, 1 or 2; it determines the names of changelogs.
        store_time: now by the storage's clock (``SnapshotResult.store_time``); ``None``: one LIST
            of the manifest's name asks the storage.
        is_garbage_young: an earlier purge with this manifest kept its garbage. The manifest's time
            does not change, so its garbage is not due now either.
        fault: called at each fault point.

    Raises:
        UnavailableError and other storage errors: a part was deleted, in the safe order.
    """
    # Manifests and changelogs are deleted by version alone, garbage by time.
    timeless = plan_retention(manifest, kept, now_ms=0, grace_ms=grace_ms)
    may_delete_garbage = bool(manifest.garbage) and not is_garbage_young
    if not (timeless.manifests or timeless.changelogs or may_delete_garbage):
        return PurgeResult(manifest, 0)
    now = store_time or _stored_at(objects, manifest)
    if now is None:
        # A later writer has deleted this manifest, and purges what is below its own.
        return PurgeResult(manifest, 0)
    now_ms = int(now.timestamp() * 1000)
    plan = plan_retention(manifest, kept, now_ms=now_ms, grace_ms=grace_ms)
    try:
        _carry_out(objects, plan, checkpoint_format, fault)
    except CairnError as error:
        error.with_context(store=str(manifest.store), version=manifest.ref.version)
        raise
    return PurgeResult(plan.remaining, plan.object_count)


def _carry_out(
    objects: ObjectStore, plan: DeletionPlan, checkpoint_format: int, fault: FaultHook
) -> None:
    """Delete manifests one by one, then changelogs, then SSTs; absent objects are no error."""
    for ref in plan.manifests:
        fault(FaultPoint.PURGE_BEFORE_MANIFEST)
        objects.delete([manifest_name(ref)])
    if plan.changelogs:
        fault(FaultPoint.PURGE_BEFORE_CHANGELOGS)
        names = [changelog_name(ref) for ref in plan.changelogs]
        if checkpoint_format == 1:
            names += [plain_changelog_name(ref.version) for ref in plan.changelogs]
        objects.delete(names)
    if plan.ssts:
        fault(FaultPoint.PURGE_BEFORE_SSTS)
        objects.delete(plan.ssts)
    fault(FaultPoint.PURGE_AFTER)


def _stored_at(objects: ObjectStore, manifest: Manifest) -> datetime | None:
    """Return when the manifest was stored, by the storage's clock; ``None`` if it is missing."""
    infos = list(objects.list(manifest_name(manifest.ref)))
    return infos[0].last_modified if infos else None
