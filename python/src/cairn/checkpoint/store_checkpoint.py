"""StoreCheckpoint: one store's objects, and the ways to read, write and delete them.

Layer: checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.purge import Purger
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.upload import SnapshotUploader, SnapshotWriter
from cairn.ids import CheckpointId

if TYPE_CHECKING:
    from datetime import datetime

    from cairn.checkpoint.purge import PurgeResult
    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.transfers import TransferResources
    from cairn.config import EngineConf
    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.ids import StoreId
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
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        conf: EngineConf,
        writer: SnapshotWriter,
        resources: TransferResources,
    ) -> None:
        self.objects = objects
        self.store = store
        self.conf = conf
        self._checkpoint_format = checkpoint_format
        self.recovery = Recovery(objects, store, checkpoint_format, resources)
        self.uploader = SnapshotUploader(
            objects, store, writer, resources, grace_ms=conf.orphan_grace_ms
        )
        self._purger = Purger(objects, checkpoint_format, grace_ms=conf.orphan_grace_ms)

    def prepare(self) -> None:
        """Expect a commit soon; see ``ObjectStore.prepare``."""
        self.objects.prepare()

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return a version's changelog, verified.

        Args:
            version: 1 or more.
            checkpoint_id: the attempt's id; ``None`` in format 1: any attempt.

        Raises:
            MissingError, CorruptError: names the object.
        """
        wanted = None if checkpoint_id is None else CheckpointId.parse(checkpoint_id)
        return self.recovery.fetch_head(version, wanted)

    def commit(self, header: ChangelogHeader, data: bytes) -> None:
        """Make an encoded version durable; see ``commit_point.commit_changelog``."""
        commit_changelog(self.objects, header, data, checkpoint_format=self._checkpoint_format)

    def purge(
        self, manifest: Manifest, kept: KeptVersions, time: datetime | None, *, is_young: bool
    ) -> PurgeResult:
        """Delete the objects that no kept version needs; see ``Purger.purge``."""
        return self._purger.purge(manifest, kept, time, is_garbage_young=is_young)

    def sweep(self, manifest: Manifest, kept: KeptVersions) -> int:
        """Delete the objects that nothing names; return how many."""
        return sweep_orphans(self.objects, manifest, kept, grace_ms=self.conf.orphan_grace_ms)

    def close(self) -> None:
        """Close the connections."""
        self.objects.close()
