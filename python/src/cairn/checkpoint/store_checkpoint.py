"""StoreCheckpoint: one store's objects, with all that reads, writes and deletes them.

Layer: checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.purge import PurgeResult, purge
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.upload import SnapshotUploader, SnapshotWriter
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.ids import CheckpointId

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from datetime import datetime

    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.sst_cache import SstCache
    from cairn.config import EngineConf
    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore


@dataclass(frozen=True)
class TransferResources:
    """What the stores of a worker share for their transfers: SST cache, threads, time, chance."""

    cache: SstCache
    downloads: Executor
    uploads: Executor
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY


class StoreCheckpoint:
    """The objects of one store. Thread-safe.

    Args:
        objects: at the store's root.
        store: to which the objects must belong.
        checkpoint_format: Spark's, 1 or 2.
        conf: of the instance.
        writer: named by the snapshots.
        resources: of the worker.
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
        self.recovery = Recovery(
            objects,
            store,
            checkpoint_format=checkpoint_format,
            cache=resources.cache,
            transfers=resources.downloads,
        )
        self.uploader = SnapshotUploader(
            objects,
            store,
            writer=writer,
            transfers=resources.uploads,
            clock=resources.clock,
            entropy=resources.entropy,
            grace_ms=conf.orphan_grace_ms,
            cache=resources.cache,
        )

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return a version's changelog, verified.

        Args:
            version: 1 or more.
            checkpoint_id: of the attempt; ``None`` in format 1 for whichever attempt is there.

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
        """Delete what no kept version needs; see ``checkpoint.purge``."""
        return purge(
            self.objects,
            manifest,
            kept,
            grace_ms=self.conf.orphan_grace_ms,
            checkpoint_format=self._checkpoint_format,
            store_time=time,
            is_garbage_young=is_young,
        )

    def sweep(self, manifest: Manifest, kept: KeptVersions) -> int:
        """Delete the objects that nothing names; return how many."""
        return sweep_orphans(self.objects, manifest, kept, grace_ms=self.conf.orphan_grace_ms)

    def close(self) -> None:
        """Close the connections."""
        self.objects.close()
