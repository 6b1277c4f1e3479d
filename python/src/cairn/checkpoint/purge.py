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


class Purger:
    """Purges one store.

    Args:
        objects: at the store's root.
        checkpoint_format: Spark's, 1 or 2; it determines the names of changelogs.
        grace_ms: how long an SST outlives the last manifest that named it.
        fault: called at each fault point.
    """

    def __init__(
        self,
        objects: ObjectStore,
        checkpoint_format: int,
        *,
        grace_ms: int,
        fault: FaultHook = no_fault,
    ) -> None:
        self._objects = objects
        self._checkpoint_format = checkpoint_format
        self._grace_ms = grace_ms
        self._fault = fault

    def purge(
        self,
        manifest: Manifest,
        kept: KeptVersions,
        store_time: datetime | None,
        *,
        is_garbage_young: bool = False,
    ) -> PurgeResult:
        """Delete the objects that no kept version needs. Idempotent: after an error, call it again.

        REQUIRES: this writer stored ``manifest``, and it is the present one
        (``SnapshotResult.won``). It sends no request if nothing can be deleted.

        Args:
            manifest: the newest one: of the last ``SnapshotResult``, or of the last purge after it.
            kept: the versions that must stay loadable.
            store_time: now by the storage's clock (``SnapshotResult.store_time``); ``None``: read
                it with one LIST of the manifest's name.
            is_garbage_young: an earlier purge with this manifest kept its garbage. The manifest's
                time does not change, so its garbage is not due now either.

        Raises:
            UnavailableError and other storage errors: some objects are deleted, in the safe order.
        """
        # Manifests and changelogs are deleted by version alone, garbage by time.
        timeless = plan_retention(manifest, kept, now_ms=0, grace_ms=self._grace_ms)
        may_delete_garbage = bool(manifest.garbage) and not is_garbage_young
        if not (timeless.manifests or timeless.changelogs or may_delete_garbage):
            return PurgeResult(manifest, 0)
        now = store_time or self._stored_at(manifest)
        if now is None:
            # A later writer has deleted this manifest, and purges all that is older than its own.
            return PurgeResult(manifest, 0)
        now_ms = int(now.timestamp() * 1000)
        plan = plan_retention(manifest, kept, now_ms=now_ms, grace_ms=self._grace_ms)
        try:
            self._delete(plan)
        except CairnError as error:
            error.with_context(store=str(manifest.store), version=manifest.ref.version)
            raise
        return PurgeResult(plan.remaining, plan.object_count)

    def _delete(self, plan: DeletionPlan) -> None:
        """Delete manifests one by one, then changelogs, then SSTs; absent objects are no error."""
        for ref in plan.manifests:
            self._fault(FaultPoint.PURGE_BEFORE_MANIFEST)
            self._objects.delete([manifest_name(ref)])
        if plan.changelogs:
            self._fault(FaultPoint.PURGE_BEFORE_CHANGELOGS)
            names = [changelog_name(ref) for ref in plan.changelogs]
            if self._checkpoint_format == 1:
                names += [plain_changelog_name(ref.version) for ref in plan.changelogs]
            self._objects.delete(names)
        if plan.ssts:
            self._fault(FaultPoint.PURGE_BEFORE_SSTS)
            self._objects.delete(plan.ssts)
        self._fault(FaultPoint.PURGE_AFTER)

    def _stored_at(self, manifest: Manifest) -> datetime | None:
        """Return when the manifest was stored, by the storage's clock; ``None`` if it is gone."""
        infos = list(self._objects.list(manifest_name(manifest.ref)))
        return infos[0].last_modified if infos else None
