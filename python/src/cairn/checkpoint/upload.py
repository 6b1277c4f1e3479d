"""Snapshots: new SSTs, then the manifest that names them.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#manifest.

A crash before the manifest leaves SSTs that nobody names: the orphan sweep has them. After it the
snapshot is whole.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint import faults
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checksum import crc32c_file
from cairn.errors import (
    AlreadyExistsError,
    BusyError,
    CairnError,
    DiskFullError,
    InternalError,
)
from cairn.format import manifest as manifest_format
from cairn.format.manifest import ChangelogRef, Manifest, SmallFile, SstFile
from cairn.format.names import manifest_name, new_sst_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor
    from datetime import datetime
    from pathlib import Path

    from cairn.checkpoint.sst_cache import SstCache
    from cairn.clock import Clock, Entropy
    from cairn.format.header import ColumnFamily
    from cairn.ids import StoreId, VersionRef
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_SMALL_PREFIXES = ("MANIFEST-", "OPTIONS-")
_NS_A_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class SnapshotWriter:
    """Who writes: for people, and to tell one's own manifest from a twin's.

    Attributes:
        run_id: of the query's run.
        instance: unique among all instances of all executors.
        engine: ``{"name", "version", "options"}``.
    """

    run_id: str
    instance: str
    engine: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """What is snapshotted.

    Attributes:
        ref: the version that the directory holds: all deltas up to it and none above.
        counts: keys per column family id.
        column_families: of that version.
        max_cf_id: of that version.
        changelogs: after ``previous`` (or after emptiness) up to ``ref``, ascending.
    """

    ref: VersionRef
    counts: Mapping[int, int]
    column_families: tuple[ColumnFamily, ...]
    max_cf_id: int
    changelogs: tuple[ChangelogRef, ...]


@dataclass(frozen=True, slots=True)
class SnapshotResult:
    """What an upload did.

    Attributes:
        manifest: the one that stands now: ours, or the winner's. ``previous`` of the next upload.
        won: ours stands. A loser reuses nothing next time: ``known`` is empty.
        known: the object behind each SST of the directory, for this opening's next upload.
        uploaded_files: SSTs.
        uploaded_bytes: of them.
        reused_files: SSTs that were there already.
        store_time: of the last upload by the storage's clock; ``None`` if there was none.
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
        store: whose snapshots.
        writer: who we are.
        transfers: runs uploads; ``upload`` may not be called from one of its threads.
        clock: for the time limit and the manifest's date.
        entropy: for names.
        grace_ms: of orphans; an upload that takes half of it gives up. 0: no limit.
        cache: adopts what was uploaded, so that a moved or reset store downloads less.
        fault: called at each named point.
    """

    def __init__(  # noqa: PLR0913 -- components, each used in one place
        self,
        objects: ObjectStore,
        store: StoreId,
        *,
        writer: SnapshotWriter,
        transfers: Executor,
        clock: Clock,
        entropy: Entropy,
        grace_ms: int,
        cache: SstCache | None = None,
        fault: FaultHook = no_fault,
    ) -> None:
        self._objects = objects
        self._store = store
        self._writer = writer
        self._transfers = transfers
        self._clock = clock
        self._entropy = entropy
        self._limit_ns = grace_ms * _NS_A_MS // 2
        self._cache = cache
        self._fault = fault

    def upload(
        self,
        directory: Path,
        content: SnapshotContent,
        *,
        known: Mapping[str, SstFile],
        previous: Manifest | None,
    ) -> SnapshotResult:
        """Make ``directory`` a snapshot of ``content.ref``; whole once the manifest stands.

        Args:
            directory: a RocksDB checkpoint (hard links); only read. The caller removes it.
            content: what it holds.
            known: the object behind local SSTs, for the opening that ``directory`` comes from:
                from ``Materialized.known`` or the last ``SnapshotResult.known``; RocksDB uses file
                numbers again after a reset, so never from another opening.
            previous: the manifest that is the base of the newest version, or the one that this
                writer stored after it; ``None`` if versions began from emptiness. Only SSTs that it
                names are reused: no writer deletes those.

        Raises:
            BusyError: it took half of the grace period; what was uploaded is left for the sweep.
            UnavailableError and other storage errors: as ``BusyError``, nothing is visible.
            ConditionalPutUnsupportedError: the storage cannot keep two writers' manifests apart.
            CorruptError: a file changed while it was uploaded, or the winner's manifest is corrupt.
        """
        began_ns = self._clock.monotonic_ns()
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
                    raise InternalError(f"{path.name} is not the file that was uploaded")
                reused.append(file)
            else:
                missing.append(path)
        try:
            # The manifest must never replace another attempt's: known before any byte is sent.
            self._objects.probe_conditional_put()
            uploads = self._upload_all(missing, began_ns)
            uploaded = [file for file, _ in uploads]
            manifest = self._manifest(
                content, previous, (*reused, *uploaded), _small_files(local_files)
            )
            self._check_time(began_ns)
            self._fault(faults.SNAPSHOT_BEFORE_MANIFEST)
            standing = self._put_manifest(manifest)
            self._fault(faults.SNAPSHOT_AFTER_MANIFEST)
        except CairnError as error:
            raise error.with_context(
                store=str(self._store), version=content.ref.version
            ) from error.__cause__
        won = standing == manifest
        return SnapshotResult(
            manifest=standing,
            won=won,
            known={file.local_name: file for file in manifest.files} if won else {},
            uploaded_files=len(uploaded),
            uploaded_bytes=sum(file.size_bytes for file in uploaded),
            reused_files=len(reused),
            store_time=max((stored_at for _, stored_at in uploads), default=None),
        )

    def _upload_all(self, paths: list[Path], began_ns: int) -> list[tuple[SstFile, datetime]]:
        """Upload files several at a time; when this ends, none is under way."""
        futures = [self._transfers.submit(self._upload_one, path, began_ns) for path in paths]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait([future for future in futures if not future.cancelled()])
        failures = [f for f in futures if not f.cancelled() and f.exception() is not None]
        if failures:
            failures[0].result()
        return [future.result() for future in futures]

    def _upload_one(self, path: Path, began_ns: int) -> tuple[SstFile, datetime]:
        self._check_time(began_ns)
        self._fault(faults.SNAPSHOT_BEFORE_SST)
        file = SstFile(
            object_name=new_sst_name(self._entropy),
            local_name=path.name,
            size_bytes=path.stat().st_size,
            crc32c=crc32c_file(path),
        )
        info = self._objects.upload(file.object_name, path, crc32c=file.crc32c)
        self._fault(faults.SNAPSHOT_AFTER_SST)
        if self._cache is not None:
            try:
                self._cache.adopt(file, path)
            except (DiskFullError, OSError) as failure:
                # The object is there; what the cache lacks is downloaded when it is wanted.
                _LOG.info("%s is not kept on the local disk: %s", file.object_name, failure)
        return file, info.last_modified

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
            written_at_ms=int(self._clock.now().timestamp() * 1000),
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
        """Store the manifest if there is none, and return the one that stands."""
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
        if self._limit_ns and self._clock.monotonic_ns() - began_ns > self._limit_ns:
            raise BusyError(
                "the snapshot took more than half of the grace period of orphans",
                next_step="nothing, the next one starts anew; if it happens again, raise "
                "spark.sql.streaming.stateStore.cairn.orphanGraceMs or uploadThreads",
            )


def _small_files(paths: list[Path]) -> tuple[SmallFile, ...]:
    """Return RocksDB's own small files; its logs and locks are no part of a snapshot."""
    small = tuple(
        SmallFile(path.name, path.read_bytes())
        for path in paths
        if path.name == "CURRENT" or path.name.startswith(_SMALL_PREFIXES)
    )
    if not {"CURRENT"} <= {file.local_name for file in small}:
        raise InternalError("the directory is no RocksDB checkpoint: it has no CURRENT")
    return small
