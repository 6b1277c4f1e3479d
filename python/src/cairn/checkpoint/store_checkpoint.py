"""StoreCheckpoint: one store's objects, and the ways to read, write and delete them.

Layer: checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.presence import header_under_plain_name, is_stored
from cairn.checkpoint.purge import Purger, PurgeSchedule
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.upload import SnapshotUploader, SnapshotWriter
from cairn.format.names import changelog_name, manifest_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from cairn.checkpoint.purge import PurgeResult
    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.stored_versions import Head
    from cairn.checkpoint.transfers import TransferResources
    from cairn.config import EngineConf
    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.ids import CheckpointId, StoreId, VersionRef
    from cairn.storage.base import ObjectStore


class StoreCheckpoint:
    """The objects of one store. Thread-safe.

    Args:
        objects: at the store's root.
        store: the store to which the objects must belong.
        checkpoint_format: Spark's, 1 or 2.
        conf: the instance's settings.
        writer: the writer that snapshots name.
        resources: the worker's resources for transfers.
        fault: called at each fault point.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        conf: EngineConf,
        writer: SnapshotWriter,
        resources: TransferResources,
        *,
        fault: FaultHook = no_fault,
    ) -> None:
        self.objects = objects
        self.store = store
        self.conf = conf
        self._checkpoint_format = checkpoint_format
        self._fault = fault
        self.recovery = Recovery(objects, store, checkpoint_format, resources)
        self.uploader = SnapshotUploader(
            objects, store, writer, resources, grace_ms=conf.orphan_grace_ms, fault=fault
        )
        self._purger = Purger(
            objects, checkpoint_format, grace_ms=conf.orphan_grace_ms, fault=fault
        )

    @property
    def has_checkpoint_ids(self) -> bool:
        """Whether Spark's commit log has the id of each version: checkpoint format 2."""
        return self._checkpoint_format == 2  # noqa: PLR2004 -- Spark's number

    @property
    def grace_ms(self) -> int:
        """The age below which no SST is deleted."""
        return self.conf.orphan_grace_ms

    def prepare(self) -> None:
        """Expect a commit soon; see ``ObjectStore.prepare``."""
        self.objects.prepare()

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return the changelog of a version; see ``StoredVersions.read``."""
        return self.recovery.read(version, checkpoint_id)

    def read_header(self, version: int, checkpoint_id: str | None) -> Head:
        """Return the header of that changelog; see ``StoredVersions.read_header``."""
        return self.recovery.read_header(version, checkpoint_id)

    def has_changelog(self, ref: VersionRef) -> bool:
        """Return whether the changelog of an attempt is stored; one GET, at its usual name."""
        if not self.has_checkpoint_ids:
            found = header_under_plain_name(self.objects, self.store, ref.version)
            if found is not None and found.ref == ref:
                return True
        return is_stored(self.objects, changelog_name(ref))

    def has_manifest(self, ref: VersionRef) -> bool:
        """Return whether a manifest is stored; one GET."""
        return is_stored(self.objects, manifest_name(ref))

    def commit(self, header: ChangelogHeader, data: bytes) -> None:
        """Make an encoded version durable; see ``commit_point.commit_changelog``."""
        commit_changelog(
            self.objects,
            header,
            data,
            checkpoint_format=self._checkpoint_format,
            fault=self._fault,
        )

    def purge(
        self,
        manifest: Manifest,
        kept: KeptVersions,
        time: datetime | None,
        *,
        age_ms: int,
        is_young: bool,
        schedule: PurgeSchedule,
        may_delete: Callable[[], bool],
    ) -> PurgeResult | None:
        """Delete the objects that no kept version needs; see ``Purger.purge``."""
        return self._purger.purge(
            manifest,
            kept,
            time,
            age_ms=age_ms,
            is_garbage_young=is_young,
            schedule=schedule,
            may_delete=may_delete,
        )

    def sweep(self, manifest: Manifest, kept: KeptVersions) -> int:
        """Delete the objects that nothing names; return how many.

        Nothing on a storage where two writers may both believe that they stored a manifest: the
        one that is listed may be another one than this writer's chain says.
        """
        if not self.uploader.excludes_others():
            return 0
        limits = SweepLimits(self.conf.orphan_grace_ms)
        return len(sweep_orphans(self.objects, manifest, kept, limits, fault=self._fault))

    def pin_content(self, checkpoint_id: CheckpointId | None) -> bytes:
        """Return the bytes of the pin of a read of a version."""
        return self.uploader.pin_content(checkpoint_id)

    def close(self) -> None:
        """Close the connections."""
        self.objects.close()
