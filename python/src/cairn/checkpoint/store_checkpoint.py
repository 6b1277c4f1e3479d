"""StoreCheckpoint: one store's objects, and the ways to read, write and delete them.

Layer: checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.presence import header_under_plain_name, is_stored
from cairn.checkpoint.purge import Purger, PurgeSchedule
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.upload import SnapshotUploader, SnapshotWriter
from cairn.errors import MissingError
from cairn.format.names import changelog_name, manifest_name
from cairn.ids import VersionRef

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from cairn.checkpoint.purge import PurgeResult
    from cairn.checkpoint.recovery import Head
    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.transfers import TransferResources
    from cairn.config import EngineConf
    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.ids import CheckpointId, StoreId
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

    def prepare(self) -> None:
        """Expect a commit soon; see ``ObjectStore.prepare``."""
        self.objects.prepare()

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return the changelog of a version, verified; that of its real version, if it has none.

        Args:
            version: 1 or more.
            checkpoint_id: Spark's id of the version; ``None`` in format 1: any attempt.

        Raises:
            MissingError, CorruptError: names the object.
        """
        return self.recovery.fetch_head(*_real_version(version, checkpoint_id))

    def read_header(self, version: int, checkpoint_id: str | None) -> Head:
        """Return the header of that changelog, not verified; the whole changelog if it is small.

        Args and errors: as for ``read``.
        """
        try:
            return self.recovery.fetch_header(*_real_version(version, checkpoint_id))
        except MissingError as failure:
            if checkpoint_id is not None and self.has_checkpoint_ids:
                failure.next_step = (
                    f"{failure.next_step}. If the checkpoint's folder commits lacks batch "
                    f"{version - 1}, the id is that of an earlier version: restore the entries of "
                    "commits, or delete those of the folder offsets that are more than one batch "
                    "ahead of it; the query then repeats its batches from there"
                )
            raise

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
        return sweep_orphans(
            self.objects, manifest, kept, grace_ms=self.conf.orphan_grace_ms, fault=self._fault
        )

    def pin_content(self, checkpoint_id: CheckpointId | None) -> bytes:
        """Return the bytes of the pin of a read of a version."""
        return self.uploader.pin_content(checkpoint_id)

    def close(self) -> None:
        """Close the connections."""
        self.objects.close()


def _real_version(version: int, checkpoint_id: str | None) -> tuple[int, CheckpointId | None]:
    if checkpoint_id is None:
        return version, None
    real = VersionRef.named(version, checkpoint_id)
    return real.version, real.checkpoint_id
