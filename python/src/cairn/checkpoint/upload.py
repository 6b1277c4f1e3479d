"""Upload of snapshots: first the new SSTs, then the manifest that names them.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#manifest.

A crash before the manifest is stored leaves SSTs that no manifest names; the orphan sweep deletes
them. After the manifest the snapshot is complete.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checksum import crc32c_file
from cairn.errors import AlreadyExistsError, BusyError, CairnError, DiskFullError, InternalError
from cairn.format import manifest as manifest_format
from cairn.format.manifest import ChangelogRef, Manifest, SmallFile, SstFile
from cairn.format.names import manifest_name, new_sst_name
from cairn.storage.parallel import run_all

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from cairn.checkpoint.transfers import TransferResources
    from cairn.format.header import ColumnFamily
    from cairn.ids import StoreId, VersionRef
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_SMALL_PREFIXES = ("MANIFEST-", "OPTIONS-")
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """The writer of a manifest: for people, and to distinguish the manifests of two writers.

    Attributes:
        run_id: id of the query's run.
        instance: unique among all instances of all executors.
        engine: ``{"name", "version", "options"}``.
    """

    run_id: str
    instance: str
    engine: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The content of a snapshot.

    Attributes:
        ref: the version in the directory: it has all deltas up to this one and no later one.
        counts: keys per column family id.
        column_families: the families of that version.
        max_cf_id: highest family id ever used.
        changelogs: those after ``previous`` (or from the first one) up to ``ref``, ascending.
    """

    ref: VersionRef
    counts: Mapping[int, int]
    column_families: tuple[ColumnFamily, ...]
    max_cf_id: int
    changelogs: tuple[ChangelogRef, ...]


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """The result of an upload.

    Attributes:
        manifest: the stored one, by this writer or by another one that was first; ``previous`` of
            the next upload.
        won: whether this writer stored it. If not, ``known`` is empty and the next upload reuses
            no file.
        known: the object of each SST by its local name, for the next upload from this directory.
        uploaded_files: number of SSTs uploaded.
        uploaded_bytes: total size of these SSTs.
        reused_files: number of SSTs that the object store already had.
        store_time: time of the last SST upload, by the storage's clock; ``None`` without upload.
    """

    manifest: Manifest
    won: bool
    known: Mapping[str, SstFile]
    uploaded_files: int
    uploaded_bytes: int
    reused_files: int
    store_time: datetime | None


class SnapshotUploader:
    """Uploads snapshots of one store, one at a time.

    Args:
        objects: at the store's root.
        store: the store of the snapshots.
        writer: this writer.
        resources: threads for uploads, clock, and the SST cache, which gets the uploaded files so
            that the next load here downloads less.
        grace_ms: grace period of orphans; an upload that takes half of it fails. 0: no limit.
        fault: called at each fault point.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        writer: SnapshotWriter,
        resources: TransferResources,
        *,
        grace_ms: int,
        fault: FaultHook = no_fault,
    ) -> None:
        self._objects = objects
        self._store = store
        self._writer = writer
        self._resources = resources
        self._limit_ns = grace_ms * _NS_PER_MS // 2
        self._fault = fault

    def upload(
        self,
        directory: Path,
        content: SnapshotContent,
        *,
        known: Mapping[str, SstFile],
        previous: Manifest | None,
    ) -> SnapshotResult:
        """Store ``directory`` as a snapshot of ``content.ref``; complete once its manifest exists.

        Args:
            directory: a RocksDB checkpoint (hard links), only read. The caller removes it.
            content: describes the directory.
            known: the object of each local SST, from ``Materialized.known`` or the last
                ``SnapshotResult.known`` of the same database directory. RocksDB reuses file numbers
                after a reset, so entries of another directory would be wrong.
            previous: the manifest that is the base of the newest version, or the one that this
                writer stored after it; ``None`` if there is no manifest. Only SSTs that it names
                are reused: no writer deletes those.

        Raises:
            BusyError: the upload took half of the grace period; the sweep deletes its files.
            UnavailableError and other storage errors: as for ``BusyError``.
            ConditionalPutUnsupportedError: the storage has no conditional PUT.
            CorruptError: a file changed during its upload, or the other writer's manifest is
                corrupt.
        """
        began_ns = self._resources.clock.monotonic_ns()
        local_files = sorted(path for path in directory.iterdir() if path.is_file())
        reusable = {file.object_name for file in previous.files} if previous else set()
        reused: list[SstFile] = []
        missing: list[Path] = []
        for path in local_files:
            if path.suffix != ".sst":
                continue
            file = known.get(path.name)
            if file is not None and file.object_name in reusable:
                if path.stat().st_size != file.size_bytes:
                    raise InternalError(f"{path.name} is not the file that was uploaded before")
                reused.append(file)
            else:
                missing.append(path)
        try:
            # The manifest must not replace another attempt's: probe this before any upload.
            self._objects.probe_conditional_put()
            calls = [(path, began_ns) for path in missing]
            uploads = run_all(self._resources.uploads, self._upload_one, calls)
            uploaded = [file for file, _ in uploads]
            manifest = self._manifest(
                content, previous, (*reused, *uploaded), _small_files(local_files)
            )
            self._check_time(began_ns)
            self._fault(FaultPoint.SNAPSHOT_BEFORE_MANIFEST)
            stored = self._put_manifest(manifest)
            self._fault(FaultPoint.SNAPSHOT_AFTER_MANIFEST)
        except CairnError as error:
            error.with_context(store=str(self._store), version=content.ref.version)
            raise
        won = stored == manifest
        return SnapshotResult(
            manifest=stored,
            won=won,
            known={file.local_name: file for file in manifest.files} if won else {},
            uploaded_files=len(uploaded),
            uploaded_bytes=sum(file.size_bytes for file in uploaded),
            reused_files=len(reused),
            store_time=max((stored_at for _, stored_at in uploads), default=None),
        )

    def _upload_one(self, path: Path, began_ns: int) -> tuple[SstFile, datetime]:
        self._check_time(began_ns)
        self._fault(FaultPoint.SNAPSHOT_BEFORE_SST)
        file = SstFile(
            object_name=new_sst_name(self._resources.entropy),
            local_name=path.name,
            size_bytes=path.stat().st_size,
            crc32c=crc32c_file(path),
        )
        stored_at = self._objects.upload(file.object_name, path, crc32c=file.crc32c)
        self._resources.activity.moved()
        self._fault(FaultPoint.SNAPSHOT_AFTER_SST)
        if self._resources.cache is not None:
            try:
                self._resources.cache.adopt(file, path)
            except (DiskFullError, OSError) as failure:
                # The object is stored; a load downloads what the cache lacks.
                _LOG.info("%s is not cached on the local disk: %s", file.object_name, failure)
        return file, stored_at

    def _manifest(
        self,
        content: SnapshotContent,
        previous: Manifest | None,
        files: tuple[SstFile, ...],
        small_files: tuple[SmallFile, ...],
    ) -> Manifest:
        return Manifest(
            store=self._store,
            ref=content.ref,
            counts=dict(content.counts),
            column_families=content.column_families,
            max_cf_id=content.max_cf_id,
            written_at_ms=int(self._resources.clock.now().timestamp() * 1000),
            writer_run_id=self._writer.run_id,
            writer_instance=self._writer.instance,
            engine=dict(self._writer.engine),
            files=tuple(sorted(files, key=lambda file: file.local_name)),
            small_files=small_files,
            changelogs=content.changelogs,
            retained=(*previous.retained, previous.as_retained()) if previous else (),
            garbage=previous.garbage if previous else (),
        )

    def _put_manifest(self, manifest: Manifest) -> Manifest:
        """Store the manifest if there is none; return the one that is stored."""
        name = manifest_name(manifest.ref)
        try:
            self._objects.put_if_absent(name, manifest_format.encode(manifest))
        except AlreadyExistsError:
            return manifest_format.decode(
                self._objects.get(name).data,
                object_name=self._objects.object_url(name),
                store=self._store,
                ref=manifest.ref,
            )
        return manifest

    def _check_time(self, began_ns: int) -> None:
        if self._limit_ns and self._resources.clock.monotonic_ns() - began_ns > self._limit_ns:
            raise BusyError(
                "the snapshot took more than half of the grace period of orphans",
                next_step="none, the next snapshot uploads again; if it happens again, raise "
                "spark.sql.streaming.stateStore.cairn.orphanGraceMs or uploadThreads",
            )


def _small_files(paths: list[Path]) -> tuple[SmallFile, ...]:
    """Return RocksDB's small files; its logs and locks are not part of a snapshot."""
    small = tuple(
        SmallFile(path.name, path.read_bytes())
        for path in paths
        if path.name == "CURRENT" or path.name.startswith(_SMALL_PREFIXES)
    )
    if all(file.local_name != "CURRENT" for file in small):
        raise InternalError("the directory is not a RocksDB checkpoint: it has no CURRENT")
    return small
