"""Clean-up: carries out what ``retention`` and ``orphans`` decide, in the order that is safe.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint import faults
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.retention import plan_retention
from cairn.errors import CairnError
from cairn.format.names import changelog_name, manifest_name, plain_changelog_name

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.checkpoint.retention import DeletionPlan, KeptVersions
    from cairn.format.manifest import Manifest
    from cairn.storage.base import ObjectStore


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What a clean-up did.

    Attributes:
        manifest: the newest one with its chain as it is now; ``previous`` of the next snapshot.
        deleted_objects: how many objects went.
    """

    manifest: Manifest
    deleted_objects: int


def clean_up(
    objects: ObjectStore,
    manifest: Manifest,
    kept: KeptVersions,
    *,
    grace_ms: int,
    checkpoint_format: int,
    store_time: datetime | None,
    is_garbage_young: bool = False,
    fault: FaultHook = no_fault,
) -> CleanupResult:
    """Delete what no retained version needs. Idempotent: after an error, call again.

    REQUIRES: this writer stored ``manifest``, and it stands (``SnapshotResult.won``).
    No request is made where nothing can go.

    Args:
        objects: at the store's root.
        manifest: the newest one: of the last ``SnapshotResult``, or of the last clean-up since.
        kept: which versions must stay loadable.
        grace_ms: how long an SST outlives the last manifest that named it.
        checkpoint_format: Spark's, 1 or 2: which names changelogs have.
        store_time: now by the storage's clock (``SnapshotResult.store_time``); ``None``: it is
            asked of the storage, by one LIST of the manifest's own name.
        is_garbage_young: an earlier clean-up upon this manifest left its garbage: what the storage
            says of the manifest's time does not change, so none of it is due now either.
        fault: called at each named point.

    Raises:
        UnavailableError and other storage errors: a part is deleted, in the safe order.
    """
    # Manifests and changelogs go by version alone, garbage by time.
    timeless = plan_retention(manifest, kept, now_ms=0, grace_ms=grace_ms)
    is_garbage_asked = bool(manifest.garbage) and not is_garbage_young
    if not (timeless.manifests or timeless.changelogs or is_garbage_asked):
        return CleanupResult(manifest, 0)
    now = store_time or _stored_at(objects, manifest)
    if now is None:
        # A later writer's floor is above the newest manifest that we know: its clean-up counts.
        return CleanupResult(manifest, 0)
    now_ms = int(now.timestamp() * 1000)
    plan = plan_retention(manifest, kept, now_ms=now_ms, grace_ms=grace_ms)
    try:
        carry_out(objects, plan, checkpoint_format=checkpoint_format, fault=fault)
    except CairnError as error:
        raise error.with_context(
            store=str(manifest.store), version=manifest.ref.version
        ) from error.__cause__
    return CleanupResult(plan.remaining, plan.object_count)


def carry_out(
    objects: ObjectStore,
    plan: DeletionPlan,
    *,
    checkpoint_format: int,
    fault: FaultHook = no_fault,
) -> None:
    """Delete manifests one by one, then changelogs, then SSTs; what is gone already is fine."""
    for ref in plan.manifests:
        fault(faults.CLEANUP_BEFORE_MANIFEST)
        objects.delete([manifest_name(ref)])
    if plan.changelogs:
        fault(faults.CLEANUP_BEFORE_CHANGELOGS)
        names = [changelog_name(ref) for ref in plan.changelogs]
        if checkpoint_format == 1:
            names += [plain_changelog_name(ref.version) for ref in plan.changelogs]
        objects.delete(names)
    if plan.ssts:
        fault(faults.CLEANUP_BEFORE_SSTS)
        objects.delete(plan.ssts)
    fault(faults.CLEANUP_AFTER)


def _stored_at(objects: ObjectStore, manifest: Manifest) -> datetime | None:
    """Return when the manifest was stored, by the storage's clock; ``None`` if it is gone."""
    infos = list(objects.list(manifest_name(manifest.ref)))
    return infos[0].last_modified if infos else None
