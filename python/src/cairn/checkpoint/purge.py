"""Purge: deletes what ``retention`` plans, in the safe order.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.named_ssts import named_outside_chain
from cairn.checkpoint.pins import list_pins, young_reads
from cairn.checkpoint.presence import header_under_plain_name
from cairn.checkpoint.retention import floor_of, plan_retention
from cairn.errors import CairnError
from cairn.format.names import (
    SNAPSHOT_PREFIX,
    changelog_name,
    manifest_name,
    plain_changelog_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from cairn.checkpoint.retention import DeletionPlan, KeptVersions
    from cairn.clock import Clock
    from cairn.format.manifest import Manifest
    from cairn.ids import Version, VersionRef
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


_INTERVAL_MS = 600_000
# With a grace period of an hour, the default, that is the interval.
_INTERVAL_DIVISOR = 6
_NS_PER_MS = 1_000_000
# In format 1 each costs a GET. Few at once, so that little time passes between it and the deletion.
_CHANGELOGS_AT_ONCE = 100


def _always() -> bool:
    return True


class PurgeSchedule:
    """When a store's next purge is due: a purge lists the pins, so it waits for some work.

    It is due ten minutes after the last one, and earlier if as many versions can be deleted as are
    kept: so there are never more than about twice as many.

    Args:
        clock: measures the time.
        grace_ms: with a grace period of less than an hour, a sixth of it is the interval.
    """

    def __init__(self, clock: Clock, grace_ms: int) -> None:
        self._clock = clock
        self._interval_ns = min(_INTERVAL_MS, grace_ms // _INTERVAL_DIVISOR) * _NS_PER_MS
        self._done: tuple[int, Version] | None = None

    def is_due(self, floor: Version, count: int) -> bool:
        """Return whether to purge now.

        Args:
            floor: what ``retention.floor_of`` returns.
            count: the number of versions to keep.
        """
        if self._done is None:
            return True
        done_ns, done_floor = self._done
        waited_ns = self._clock.monotonic_ns() - done_ns
        return waited_ns >= self._interval_ns or floor - done_floor >= count

    def done(self, floor: Version) -> None:
        """Note a purge down to ``floor``."""
        self._done = self._clock.monotonic_ns(), floor


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
        age_ms: int = 0,
        is_garbage_young: bool = False,
        schedule: PurgeSchedule | None = None,
        may_delete: Callable[[], bool] = _always,
    ) -> PurgeResult | None:
        """Delete the objects that no kept version and no pinned read needs.

        Idempotent: after an error, call it again. It sends no request if nothing can be deleted.

        REQUIRES: this writer stored ``manifest``, and it is the present one
        (``SnapshotResult.won``); or it is about to store the next one, with the remaining chain.

        Args:
            manifest: the newest one: of the last ``SnapshotResult``, or of the last purge after it.
            kept: the versions that must stay loadable.
            store_time: when the manifest was stored, by the storage's clock
                (``SnapshotResult.store_time``), or any later time by that clock; ``None``: read it
                with one LIST of its name.
            age_ms: how long ago that was: both together are the present time.
            is_garbage_young: an earlier purge with this manifest kept its garbage. It waits for the
                next manifest: an idle store sends no requests.
            schedule: the store's; without it a purge is due whenever something can be deleted.
            may_delete: whether the store at the root is still that of ``manifest``; called if a
                purge is due.

        Returns:
            ``None`` if no purge is due, ``may_delete`` denies it, or a pin is of an unknown kind:
            nothing was deleted.

        Raises:
            UnavailableError and other storage errors: some objects are deleted, in the safe order.
        """
        # Manifests and changelogs are deleted by version alone, garbage by time.
        timeless = plan_retention(manifest, kept, now_ms=0, grace_ms=self._grace_ms)
        may_delete_garbage = bool(manifest.garbage) and not is_garbage_young
        if not (timeless.manifests or timeless.changelogs or may_delete_garbage):
            return PurgeResult(manifest, 0)
        floor = floor_of(manifest, kept)
        if schedule is not None and not schedule.is_due(floor, kept.count):
            return None
        if not may_delete():
            return None
        # After `kept`: a version that is pinned later, while it is kept, is not deleted here.
        needs_pins = bool(timeless.manifests or timeless.changelogs)
        pins = list_pins(self._objects) if needs_pins else ()
        if pins is None:
            if schedule is not None:
                schedule.done(floor)
            return None
        self._fault(FaultPoint.PURGE_AFTER_PINS)
        stored_at = store_time or self._stored_at(manifest)
        if stored_at is None:
            # A later writer has deleted this manifest, and purges all that is older than its own.
            return PurgeResult(manifest, 0)
        now_ms = int(stored_at.timestamp() * 1000) + age_ms
        planned = partial(
            plan_retention,
            manifest,
            kept,
            now_ms=now_ms,
            grace_ms=self._grace_ms,
            reads=young_reads(pins, now_ms - self._grace_ms),
        )
        plan = planned()
        try:
            if plan.ssts:
                # Another executor that was at an older version may have stored a newer manifest.
                listed = self._objects.list(SNAPSHOT_PREFIX)
                shared = named_outside_chain(self._objects, manifest, listed)
                plan = planned(shared=plan.ssts if shared is None else shared)
            self._delete(plan, manifest)
        except CairnError as error:
            error.with_context(store=str(manifest.store), version=manifest.ref.version)
            raise
        if schedule is not None:
            schedule.done(floor)
        return PurgeResult(plan.remaining, plan.object_count)

    def _delete(self, plan: DeletionPlan, manifest: Manifest) -> None:
        """Delete manifests one by one, then changelogs, then SSTs; absent objects are no error."""
        for ref in plan.manifests:
            self._fault(FaultPoint.PURGE_BEFORE_MANIFEST)
            self._objects.delete([manifest_name(ref)])
        if plan.changelogs:
            self._fault(FaultPoint.PURGE_BEFORE_CHANGELOGS)
            for start in range(0, len(plan.changelogs), _CHANGELOGS_AT_ONCE):
                some = plan.changelogs[start : start + _CHANGELOGS_AT_ONCE]
                self._objects.delete(self._changelog_names(some, manifest))
        if plan.ssts:
            self._fault(FaultPoint.PURGE_BEFORE_SSTS)
            self._objects.delete(plan.ssts)
        self._fault(FaultPoint.PURGE_AFTER)

    def _changelog_names(self, refs: Sequence[VersionRef], manifest: Manifest) -> list[str]:
        """Return the names of changelogs; in format 1 the plain name only where that is certain.

        An attempt of a later run may have the plain name: in a checkpoint that was created at the
        same place since this purge began. An attempt of the manifest's run is none of a later one.
        """
        names = [changelog_name(ref) for ref in refs]
        for ref in refs if self._checkpoint_format == 1 else ():
            found = header_under_plain_name(self._objects, manifest.store, ref.version)
            if found is not None and (
                found.ref == ref or found.attempt.run_id == manifest.writer_run_id
            ):
                names.append(plain_changelog_name(ref.version))
        return names

    def _stored_at(self, manifest: Manifest) -> datetime | None:
        """Return when the manifest was stored, by the storage's clock; ``None`` if it is gone."""
        infos = list(self._objects.list(manifest_name(manifest.ref)))
        return infos[0].last_modified if infos else None
