"""Upload of snapshots: first the new SSTs, then the manifest that names them.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#manifest.

A crash before the manifest is stored leaves SSTs that no manifest names; the orphan sweep deletes
them. After the manifest the snapshot is complete. An upload may take any time: what limits it are
the time-outs of each request. After an error the next attempt uploads what is still missing.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.orphans import next_sweep
from cairn.checkpoint.pending_upload import PendingUpload
from cairn.checkpoint.presence import is_stored
from cairn.checksum import crc32c_file
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    ConditionalPutUnsupportedError,
    DiskFullError,
    InternalError,
)
from cairn.format import manifest as manifest_format
from cairn.format import pin
from cairn.format.manifest import (
    MAX_SMALL_BYTES,
    ChangelogRef,
    Garbage,
    Manifest,
    Retained,
    SmallFile,
    SstFile,
)
from cairn.format.names import manifest_name
from cairn.storage.base import ignore
from cairn.storage.parallel import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from pathlib import Path
    from typing import TypeAlias

    from cairn.checkpoint.transfers import TransferResources
    from cairn.format.header import ColumnFamily
    from cairn.ids import CheckpointId, StoreId, VersionRef
    from cairn.storage.base import ObjectStore

    Trim: TypeAlias = Callable[[Manifest, datetime], Manifest]
    """Returns a manifest without a part of its chain, at a time by the storage's clock."""

_LOG = logging.getLogger(__name__)
_SMALL_PREFIXES = ("MANIFEST-", "OPTIONS-")
_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
# A manifest that this writer stored is there for a half: clocks may differ, requests take time.
_SAFE_DIVISOR = 2
_DELETED_WITHIN_NS = 10_000_000_000
# How often the log shows the progress of an upload that takes longer than this.
LOG_EVERY_NS = 300 * _NS_PER_S
# How often an upload looks whether its pin must be renewed, if no file ends before.
KEEP_PIN_EVERY_S = 1.0


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
        manifest: of this writer; ``previous`` of the next upload if it is stored.
        won: whether it is stored. If not, the version has a manifest already, perhaps one that
            its writer deletes because its files are gone. So it is no ``previous``: the next upload
            has the same one as this, is of a later version, and uses the same ``pending``.
        known: the object of each SST by its local name, for the next upload from this directory.
        uploaded_files: number of SSTs uploaded by this attempt.
        uploaded_bytes: total size of these SSTs.
        reused_files: number of SSTs that the object store already had.
        store_time: time of the last SST upload, by the storage's clock; ``None`` without upload.
        is_sweep_due: whether this writer sweeps, now that the manifest says so.
    """

    manifest: Manifest
    won: bool
    known: Mapping[str, SstFile]
    uploaded_files: int
    uploaded_bytes: int
    reused_files: int
    store_time: datetime | None
    is_sweep_due: bool


@dataclass(frozen=True, slots=True)
class _Chain:
    """What a manifest says of what was stored before it."""

    retained: tuple[Retained, ...]
    changelogs: tuple[ChangelogRef, ...]
    garbage: tuple[Garbage, ...]


def _chain_after(previous: Manifest | None, content: SnapshotContent) -> _Chain:
    if previous is None:
        return _Chain((), content.changelogs, ())
    retained = (*previous.retained, previous.as_retained())
    return _Chain(retained, content.changelogs, previous.garbage)


def _chain_around(gone: Manifest, content: SnapshotContent, now: datetime | None) -> _Chain:
    """Return the chain without a manifest that is gone.

    The versions that it led to are loaded from an older manifest: no purge may take it as a base.

    Args:
        gone: the manifest.
        content: of the next one.
        now: by the storage's clock; ``None``: a sweep deletes the SSTs.
    """
    garbage = gone.garbage
    if now is not None:
        named = {name for entry in gone.retained for name in entry.objects}
        named.update(entry.object_name for entry in gone.garbage)
        dropped = [file.object_name for file in gone.files if file.object_name not in named]
        now_ms = int(now.timestamp() * 1000)
        garbage += tuple(Garbage(name, now_ms) for name in dropped)
    return _Chain(gone.retained, (*gone.changelogs, *content.changelogs), garbage)


class SnapshotUploader:
    """Uploads snapshots of one store, one at a time.

    Args:
        objects: at the store's root.
        store: the store of the snapshots.
        writer: this writer.
        resources: threads for uploads, clock, and the SST cache, which gets the uploaded files so
            that the next load here downloads less.
        grace_ms: grace period of sweeps; a longer upload stores a pin. 0: none does.
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
        self._grace_ms = grace_ms
        self._fault = fault
        # The last manifest that this writer stored, and a time before that.
        self._stored: tuple[VersionRef, int] | None = None

    def new_pending(self) -> PendingUpload:
        """Return the empty pending upload of the first attempt at a snapshot."""
        # Where nothing is swept there is no pin.
        grace_ms = self._grace_ms if self.excludes_others() else 0
        return PendingUpload(self._resources, grace_ms, self.pin_content)

    def upload(
        self,
        directory: Path,
        content: SnapshotContent,
        *,
        known: Mapping[str, SstFile],
        previous: Manifest | None,
        pending: PendingUpload,
        trim: Trim | None = None,
        confirm: Callable[[], None] = ignore,
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
                are reused: no writer deletes those before it deletes this manifest.
            pending: what earlier attempts from the same database directory have uploaded since its
                last snapshot. After an error it has what this attempt has uploaded, too. The next
                snapshot needs a new one.
            trim: shortens the chain of ``previous`` before the new manifest has it, unless
                ``previous`` is gone, or no file was uploaded.
            confirm: called at once before the manifest is stored; an error prevents that.

        Raises:
            BusyError: a sweep may have deleted uploaded files (``pending.is_lost``).
            UnavailableError and other storage errors: try again with the same ``pending``.
            CorruptError: a file changed during its upload.
        """
        local_files = sorted(path for path in directory.iterdir() if path.is_file())
        is_exclusive = self.excludes_others()
        named = previous.files if previous is not None and is_exclusive else ()
        reusable = {file.object_name for file in named}
        ssts = [path for path in local_files if path.suffix == ".sst"]
        large = [path for path in local_files if _is_large_manifest(path)]
        reused, missing = _split(ssts, known, reusable, pending.files)
        try:
            uploaded = self._upload_all(missing + large, pending, content.ref)
            if previous is not None and not self._exists(previous.ref):
                reused, missing = _split(ssts, {}, (), pending.files)
                if missing:
                    uploaded += self._upload_all(missing, pending, content.ref)
                names = {file.object_name for file in uploaded}
                reused = [file for file in reused if file.object_name not in names]
                chain = _chain_around(previous, content, pending.stored_at)
            else:
                if previous is not None and trim is not None and pending.stored_at is not None:
                    previous = trim(previous, pending.stored_at)
                chain = _chain_after(previous, content)
            swept_at_ms, is_sweep_due = next_sweep(
                0 if previous is None else previous.swept_at_ms, self._store, pending.stored_at
            )
            small = _small_files([path for path in local_files if path not in large])
            manifest = self._manifest(content, chain, (*reused, *uploaded), small, swept_at_ms)
            pending.keep(self._objects)
            self._fault(FaultPoint.SNAPSHOT_BEFORE_MANIFEST)
            confirm()
            if not is_exclusive:
                pending.forget()  # even if the answer is lost, no other manifest names them
            put_ns = self._resources.clock.monotonic_ns()
            won = self._put_manifest(manifest, is_exclusive=is_exclusive)
            self._fault(FaultPoint.SNAPSHOT_AFTER_MANIFEST)
            if won:
                self._verify(pending, manifest, put_ns)
                self._stored = manifest.ref, put_ns
        except CairnError as error:
            error.with_context(store=str(self._store), version=content.ref.version)
            raise
        return SnapshotResult(
            manifest=manifest,
            won=won,
            known={
                file.local_name: file
                for file in manifest.files
                if won and is_exclusive and file.is_sst
            },
            uploaded_files=len(uploaded),
            uploaded_bytes=sum(file.size_bytes for file in uploaded),
            reused_files=len(reused),
            store_time=pending.stored_at,
            is_sweep_due=is_sweep_due and won,
        )

    def _upload_all(
        self, paths: list[Path], pending: PendingUpload, ref: VersionRef
    ) -> list[SstFile]:
        clock = self._resources.clock
        pending.expect(len(paths), sum(path.stat().st_size for path in paths))
        pending.keep(self._objects)  # before the first of perhaps slow uploads
        logged_ns = clock.monotonic_ns()

        def await_some(running: Collection[Future[SstFile]]) -> Collection[Future[SstFile]]:
            nonlocal logged_ns
            ended, _ = wait(running, timeout=KEEP_PIN_EVERY_S, return_when=FIRST_COMPLETED)
            try:
                pending.keep(self._objects)
            except CairnError as failure:
                if pending.is_lost:
                    raise
                _LOG.warning("a pin is renewed later: %s", failure)
            if clock.monotonic_ns() - logged_ns >= LOG_EVERY_NS:
                logged_ns = clock.monotonic_ns()
                self._log_progress(len(paths), pending, ref)
            return ended

        return list(
            in_turns(
                self._resources.uploads,
                lambda path: self._upload_one(path, pending),
                paths,
                at_once=self._resources.upload_threads,
                await_some=await_some,
            )
        )

    def _log_progress(self, file_count: int, pending: PendingUpload, ref: VersionRef) -> None:
        _LOG.warning(
            "the snapshot of version %d of store %s is being uploaded: %d of %d files, "
            "%d MiB are left",
            ref.version,
            self._store,
            file_count - pending.left_files,
            file_count,
            pending.left_bytes >> 20,
        )

    def _upload_one(self, path: Path, pending: PendingUpload) -> SstFile:
        self._fault(FaultPoint.SNAPSHOT_BEFORE_SST)
        file = SstFile(
            object_name=pending.new_name(),
            local_name=path.name,
            size_bytes=path.stat().st_size,
            crc32c=crc32c_file(path),
        )
        uploaded = self._resources.uploaded
        stored_at = self._objects.upload(file.object_name, path, crc32c=file.crc32c, moved=uploaded)
        pending.add(file, stored_at)
        uploaded()
        self._fault(FaultPoint.SNAPSHOT_AFTER_SST)
        if self._resources.cache is not None:
            try:
                self._resources.cache.adopt(self._objects.origin, file, path)
            except (DiskFullError, OSError) as failure:
                # The object is stored; a load downloads what the cache lacks.
                _LOG.info("%s is not cached on the local disk: %s", file.object_name, failure)
        return file

    def _verify(self, pending: PendingUpload, manifest: Manifest, put_ns: int) -> None:
        """Check that no sweep has deleted files of the manifest; otherwise delete it.

        Only at once after it was stored, at ``put_ns``: later another writer may have built on it,
        and have deleted what it replaces. Loads go around a manifest without files.
        """
        try:
            pending.verify(self._objects)
        except CairnError:
            if self._resources.clock.monotonic_ns() - put_ns < _DELETED_WITHIN_NS:
                with suppress(CairnError):
                    self._objects.delete([manifest_name(manifest.ref)])
            raise
        pending.release(self._objects)

    def _exists(self, base: VersionRef) -> bool:
        """Return whether a manifest exists whose files the next manifest may share.

        A writer deletes a manifest, and its SSTs at least the grace period later, after it has
        listed the manifests. So if it is there, and the next one is stored within the grace period,
        that listing will have the next one.
        """
        if self._stored is not None and self._stored[0] == base:
            age_ns = self._resources.clock.monotonic_ns() - self._stored[1]
            if age_ns < self._grace_ms * _NS_PER_MS // _SAFE_DIVISOR:
                return True
        if is_stored(self._objects, manifest_name(base)):
            return True
        _LOG.warning(
            "%s: the snapshot of version %d is gone: all files are uploaded again",
            self._store,
            base.version,
        )
        return False

    def pin_content(self, checkpoint_id: CheckpointId | None = None) -> bytes:
        """Return the bytes of a pin; ``checkpoint_id``: of the version that a reader pins."""
        return pin.encode(
            self._store,
            run_id=self._writer.run_id,
            instance=self._writer.instance,
            written_at_ms=int(self._resources.clock.now().timestamp() * 1000),
            checkpoint_id=checkpoint_id,
        )

    def _manifest(
        self,
        content: SnapshotContent,
        chain: _Chain,
        files: tuple[SstFile, ...],
        small_files: tuple[SmallFile, ...],
        swept_at_ms: int,
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
            changelogs=chain.changelogs,
            retained=chain.retained,
            garbage=chain.garbage,
            swept_at_ms=swept_at_ms,
        )

    def excludes_others(self) -> bool:
        """Tell whether of two writers of one manifest only one can believe that it won.

        Otherwise each SST is named by one manifest only, and nothing is swept (docs/adr/0034).
        """
        try:
            self._objects.probe_conditional_put()
        except ConditionalPutUnsupportedError:
            return False
        return True

    def _put_manifest(self, manifest: Manifest, *, is_exclusive: bool) -> bool:
        """Store the manifest if there is none; return whether that was done."""
        name = manifest_name(manifest.ref)
        if not is_exclusive:
            # A present one is of the same version: both are whole, and no other one names its SSTs.
            self._objects.put(name, manifest_format.encode(manifest))
            return True
        try:
            self._objects.put_if_absent(name, manifest_format.encode(manifest))
        except AlreadyExistsError:
            return False
        return True


def _split(
    paths: list[Path],
    known: Mapping[str, SstFile],
    reusable: Collection[str],
    uploaded: Mapping[str, SstFile],
) -> tuple[list[SstFile], list[Path]]:
    """Return the objects of the SSTs that are stored, and the SSTs that have to be uploaded.

    Args:
        paths: the local SSTs.
        known: the objects of earlier snapshots by local names.
        reusable: those of them that may be used.
        uploaded: the objects of this upload by local names.
    """
    reused: list[SstFile] = []
    missing: list[Path] = []
    for path in paths:
        file = known.get(path.name)
        if file is None or file.object_name not in reusable:
            file = uploaded.get(path.name)
        if file is None:
            missing.append(path)
        elif path.stat().st_size != file.size_bytes:
            raise InternalError(f"{path.name} is not the file that was uploaded before")
        else:
            reused.append(file)
    return reused, missing


def _is_large_manifest(path: Path) -> bool:
    """Return whether a file is RocksDB's MANIFEST and too large for that of the snapshot."""
    return path.name.startswith("MANIFEST-") and path.stat().st_size > MAX_SMALL_BYTES


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
