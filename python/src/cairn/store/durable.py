"""Durable: an instance's objects, as loading and committing ask for them.

Layer: store, over ``checkpoint``. Thread-safe; knows no RocksDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.commit_point import commit_changelog
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.purge import CleanupResult, clean_up
from cairn.checkpoint.recovery import Materialized, Recovery
from cairn.checkpoint.upload import SnapshotUploader, SnapshotWriter
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock, Entropy
from cairn.errors import InternalError
from cairn.format import changelog as changelog_format
from cairn.format.header import ChangelogHeader
from cairn.ids import CheckpointId, VersionRef
from cairn.rocks import engine_description
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

    from cairn.checkpoint.retention import KeptVersions
    from cairn.checkpoint.upload import SnapshotContent, SnapshotResult
    from cairn.config import EngineConf
    from cairn.format.header import Base
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import Attempt, StoreId
    from cairn.storage.base import ObjectStore
    from cairn.store.resources import WorkerResources

_MS = 1_000_000


@dataclass(frozen=True)
class LoadedVersion:
    """A version's changelog as loading uses it.

    Attributes:
        standing: what its header says.
        batches: its rows.
        object_bytes: of the object, compressed.
        row_bytes: of the rows, in memory.
    """

    standing: StoreVersion
    batches: list[pa.RecordBatch]
    object_bytes: int
    row_bytes: int


@dataclass(frozen=True)
class Written:
    """What a commit wrote, and how long its two halves took."""

    standing: StoreVersion
    size_bytes: int
    encode_ms: float
    put_ms: float


@dataclass(frozen=True)
class Durable:
    """See the module.

    Args:
        objects: at the store's root.
        store: whose they are.
        checkpoint_format: Spark's, 1 or 2.
        conf: of the instance.
        recovery: fetches them.
        uploader: stores snapshots.
    """

    objects: ObjectStore
    store: StoreId
    checkpoint_format: int
    conf: EngineConf
    recovery: Recovery
    uploader: SnapshotUploader
    clock: Clock = SYSTEM_CLOCK
    entropy: Entropy = SYSTEM_ENTROPY

    @classmethod
    def of(
        cls,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        conf: EngineConf,
        *,
        run_id: str,
        instance: str,
        services: WorkerResources,
    ) -> Durable:
        """Return an instance's objects, with the threads and the cache of the worker."""
        return cls(
            objects,
            store,
            checkpoint_format,
            conf,
            Recovery(
                objects,
                store,
                checkpoint_format=checkpoint_format,
                cache=services.cache,
                transfers=services.downloads,
            ),
            SnapshotUploader(
                objects,
                store,
                writer=SnapshotWriter(run_id, instance, engine_description()),
                transfers=services.uploads,
                clock=services.clock,
                entropy=services.entropy,
                grace_ms=conf.orphan_grace_ms,
                cache=services.cache,
            ),
            services.clock,
            services.entropy,
        )

    def read(self, version: int, checkpoint_id: str | None) -> LoadedVersion:
        """Return a version's changelog, verified.

        Args:
            version: 1 or more.
            checkpoint_id: of the attempt; ``None`` in format 1 for whichever stands there.

        Raises:
            MissingError, CorruptError: the object, named.
        """
        wanted = None if checkpoint_id is None else CheckpointId.parse(checkpoint_id)
        found = self.recovery.fetch_head(version, wanted)
        return LoadedVersion(
            StoreVersion.of_header(found.header),
            found.table.to_batches(),
            object_bytes=found.size_bytes,
            row_bytes=found.table.nbytes,
        )

    def read_manifest(self, ref: VersionRef) -> Manifest:
        """Return a base's manifest, verified."""
        return self.recovery.fetch_manifest(ref)

    def materialize(self, base: Base, directory: Path) -> tuple[Manifest, Materialized]:
        """Fill ``directory`` with the files of a base's manifest, verified.

        Raises:
            MissingError, CorruptError: the object, named; the directory is the caller's to remove.
        """
        if base.ref is None:
            raise InternalError("emptiness has no manifest")
        manifest = self.recovery.fetch_manifest(base.ref)
        return manifest, self.recovery.materialize(manifest, directory)

    def upload(
        self,
        directory: Path,
        content: SnapshotContent,
        *,
        known: Mapping[str, SstFile],
        previous: Manifest | None,
    ) -> SnapshotResult:
        """Make a local checkpoint a snapshot; see ``SnapshotUploader.upload``."""
        return self.uploader.upload(directory, content, known=known, previous=previous)

    def clean_up(
        self,
        manifest: Manifest,
        kept: KeptVersions,
        store_time: datetime | None,
        *,
        is_garbage_young: bool,
    ) -> CleanupResult:
        """Delete what no kept version needs; see ``cleanup.clean_up``."""
        return clean_up(
            self.objects,
            manifest,
            kept,
            grace_ms=self.conf.orphan_grace_ms,
            checkpoint_format=self.checkpoint_format,
            store_time=store_time,
            is_garbage_young=is_garbage_young,
        )

    def sweep(self, manifest: Manifest, kept: KeptVersions) -> int:
        """Delete what nobody names; return how many objects."""
        return sweep_orphans(self.objects, manifest, kept, grace_ms=self.conf.orphan_grace_ms)

    def write(
        self, draft: StoreVersion, changes: Sequence[pa.RecordBatch], attempt: Attempt
    ) -> Written:
        """Make a version durable: one PUT.

        Args:
            draft: the version, with the lineage before it and no ref.
            changes: its rows, at most one a key.
            attempt: who writes.

        Raises:
            FencedError: a newer attempt has the version.
            CairnError: it is not there, or nobody knows.
        """
        began = self.clock.monotonic_ns()
        ref = VersionRef(draft.version, CheckpointId.new(self.entropy))
        header = ChangelogHeader(
            store=self.store,
            ref=ref,
            attempt=attempt,
            base=draft.base,
            lineage=(*draft.lineage, ref),
            counts=draft.counts,
            column_families=draft.families,
            max_cf_id=draft.max_cf_id,
            written_at_ms=int(self.clock.now().timestamp() * 1000),
        )
        data = changelog_format.encode(header, changes)
        encoded = self.clock.monotonic_ns()
        commit_changelog(self.objects, header, data, checkpoint_format=self.checkpoint_format)
        return Written(
            standing=StoreVersion.of_header(header),
            size_bytes=len(memoryview(data)),
            encode_ms=(encoded - began) / _MS,
            put_ms=(self.clock.monotonic_ns() - encoded) / _MS,
        )

    def close(self) -> None:
        """Give back connections."""
        self.objects.close()
