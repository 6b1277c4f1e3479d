"""Recovery: fetches and verifies the objects of a version.

Layer: checkpoint.  Spec: docs/checkpoint-format.md. No HEAD, and no LIST but for a version of
format 1 that a replacement on a file system of Hadoop's has left without its name.
``store.load.load`` decides which objects are fetched, and applies them.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import (
    DISK_FULL_ERRNOS,
    AccessError,
    CairnError,
    CorruptError,
    DataError,
    ForeignObjectError,
    MissingError,
)
from cairn.format import changelog, manifest
from cairn.format.names import changelog_name, manifest_name, plain_changelog_name
from cairn.ids import CheckpointId, StoreId, Version, VersionRef
from cairn.storage.files import translate_os_error
from cairn.storage.parallel import in_turns
from cairn.storage.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from cairn.checkpoint.transfers import TransferResources
    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest, SstFile
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
DAMAGES = (CorruptError, MissingError, ForeignObjectError, AccessError)
"""Errors of one object. S3 denies access to an absent object if it may not be listed."""
_RESTORE = (
    "restore the object from the bucket's versions, or restart the query from an intact version"
)


_START_BYTES = 1 << 16
"""The header of almost every changelog fits, and many a changelog: that is then one request."""


@dataclass(frozen=True, slots=True)
class Head:
    """The changelog of the version to load, or its header alone.

    Attributes:
        header: verified only if ``changelog`` is there.
        changelog: the whole changelog, if it was read.
        bytes_read: the bytes that were downloaded for this.
    """

    header: ChangelogHeader
    changelog: Changelog | None
    bytes_read: int


@dataclass(frozen=True, slots=True)
class Materialized:
    """A snapshot on disk.

    Attributes:
        bytes_downloaded: does not count files from the cache.
        known: the object of each SST by the file's local name, for the next upload from this
            directory.
    """

    bytes_downloaded: int
    known: Mapping[str, SstFile]


class Recovery:
    """Fetches one store's objects. Thread-safe.

    Args:
        objects: at the store's root.
        store: the expected store of the objects.
        checkpoint_format: Spark's, 1 or 2; determines which of two names is tried first.
        resources: SST cache and threads for downloads.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        resources: TransferResources,
    ) -> None:
        self._objects = objects
        self._store = store
        self._is_plain_first = checkpoint_format == 1
        self._cache = resources.cache
        self._downloads = resources.downloads
        self._download_threads = resources.download_threads
        self._activity = resources.activity

    def fetch_head(self, version: Version, checkpoint_id: CheckpointId | None) -> Changelog:
        """Return the changelog of a version, verified; one GET if it has the expected name.

        Args and errors: as for ``fetch_header``.
        """
        found = self._find(version, checkpoint_id, self._read_whole).changelog
        assert found is not None  # noqa: S101 - the whole object was read
        return found

    def fetch_header(self, version: Version, checkpoint_id: CheckpointId | None) -> Head:
        """Return the changelog of a version if it is small, else its header, not verified.

        One GET if it has the expected name.

        Args:
            version: above 0; version 0 is empty and has no object.
            checkpoint_id: the attempt's id; ``None`` in format 1: any attempt with the plain name.

        Raises:
            MissingError: the version was never committed, or it was purged.
            CorruptError, FormatVersionError, ForeignObjectError: it cannot be used.
        """
        try:
            return self._find(version, checkpoint_id, self._read_start)
        except MissingError:
            # A corrupt header may name another attempt: find out which of both it is.
            return self._find(version, checkpoint_id, self._read_whole)

    def _find(
        self,
        version: Version,
        checkpoint_id: CheckpointId | None,
        read: Callable[[str, Version], Head],
    ) -> Head:
        plain = plain_changelog_name(version)
        if checkpoint_id is None:
            names = [plain]
        else:
            own = changelog_name(VersionRef(version, checkpoint_id))
            names = [plain, own] if self._is_plain_first else [own, plain]
        problem: DataError | None = None
        for name in names:
            try:
                found = read(name, version)
            except MissingError:
                continue
            except DataError as error:
                # In format 1 the other name may have an intact copy of the attempt.
                problem = problem or error
                continue
            if checkpoint_id is None or found.header.ref.checkpoint_id == checkpoint_id:
                return found
        if problem is not None:
            raise problem
        if checkpoint_id is None:
            # A process that ends within a replacement leaves no object under the plain name.
            with self._named(plain, version):
                moved = self._objects.moved_away(plain)
            if moved is not None:
                return self._decoded(moved.data, plain, version)
        which = "" if checkpoint_id is None else f" by attempt {checkpoint_id}"
        raise MissingError(
            f"there is no changelog of version {version}{which}",
            store=str(self._store),
            version=version,
            object_name=self._objects.object_url(names[0]),
            next_step=_RESTORE,
        )

    def _read_whole(self, name: str, version: Version) -> Head:
        return self._decoded(self._get(name, version, changelog.MAX_OBJECT_BYTES), name, version)

    def _decoded(self, data: bytes, name: str, version: Version) -> Head:
        url = self._objects.object_url(name)
        found = changelog.decode(data, object_name=url, store=self._store, version=version)
        # Not every caller has a progress: the change feed reads one changelog after the other.
        self._activity.moved()
        return Head(found.header, found, found.size_bytes)

    def _read_start(self, name: str, version: Version) -> Head:
        with suppress(CorruptError), self._named(name, version):
            start = self._objects.get_start(name, _START_BYTES)
            if start.is_whole:
                url = self._objects.object_url(name)
                with suppress(DataError):
                    found = changelog.decode(
                        start.data, object_name=url, store=self._store, version=version
                    )
                    return Head(found.header, found, found.size_bytes)
            else:
                header = changelog.peek_header(start.data, store=self._store, version=version)
                if header is not None:
                    return Head(header, None, len(start.data))
        # The storage verifies whole objects only, so the bytes may have changed in transit.
        return self._read_whole(name, version)

    def fetch_manifest(self, ref: VersionRef) -> Manifest:
        """Return the manifest of a base; one GET.

        Raises:
            MissingError: there is no such manifest.
            CorruptError, FormatVersionError, ForeignObjectError: it cannot be used.
        """
        name = manifest_name(ref)
        data = self._get(name, ref.version, manifest.MAX_OBJECT_BYTES)
        url = self._objects.object_url(name)
        return manifest.decode(data, object_name=url, store=self._store, ref=ref)

    def materialize(
        self,
        snapshot: Manifest,
        target: Path,
        progress: Progress | None = None,
        kept: Mapping[str, Path] | None = None,
    ) -> Materialized:
        """Fill a directory with a snapshot's files, so that RocksDB can open it.

        SSTs are hard links to files of the cache: they may be deleted, but never written. What is
        on this disk is linked first: downloads may evict it from the cache.

        Args:
            snapshot: the manifest.
            target: created if absent; must be empty. After an error the caller removes or keeps it.
            progress: of the load.
            kept: verified SSTs by the object's name, that an earlier load left.

        Raises:
            MissingError, CorruptError: names the SST; no byte of it is used.
            DiskFullError: the local disk is full.
            CancelledError: the load was cancelled; downloads that have begun go on.
        """
        target.mkdir(parents=True, exist_ok=True)
        progress, kept = progress or Progress(), kept or {}

        def fetch(file: SstFile) -> tuple[int, int]:
            path = target / file.local_name
            if file.object_name in kept:
                with suppress(OSError):  # a file system without links: the cache has copies
                    os.link(kept[file.object_name], path)
                    return file.size_bytes, 0
            download = self._downloader(file, snapshot.ref.version)
            size = self._cache.fetch_into(self._objects.origin, file, path, download)
            return file.size_bytes, size

        names = [file.object_name for file in snapshot.files]
        near = {
            name for name in names if name in kept or self._cache.has(self._objects.origin, name)
        }
        files = sorted(snapshot.files, key=lambda file: file.object_name not in near)
        total = sum(file.size_bytes for file in files)
        done = downloaded = 0
        fetches = in_turns(
            self._downloads,
            fetch,
            files,
            at_once=self._download_threads,
            await_some=progress.wait,
        )
        for number, (size, fetched) in enumerate(fetches, 1):
            done, downloaded = done + size, downloaded + fetched
            progress.count_bytes(fetched)
            progress.note(
                f"has {number} of {len(files)} files, {done >> 20} of {total >> 20} MiB, of which "
                f"{downloaded >> 20} MiB were downloaded"
            )
        try:
            for file in snapshot.files:
                if not file.is_sst:
                    _replace_link(target / file.local_name)
            for small in snapshot.small_files:
                # A new file: a present one may be a hard link into the cache.
                with (target / small.local_name).open("xb") as out:
                    out.write(small.content)
        except FileExistsError as error:
            raise CorruptError(
                f"the snapshot has two files named {small.local_name}",
                store=str(self._store),
                version=snapshot.ref.version,
                object_name=self._objects.object_url(manifest_name(snapshot.ref)),
                next_step=_RESTORE,
            ) from error
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise translate_os_error(error, str(target)).with_context(
                store=str(self._store), version=snapshot.ref.version
            ) from error
        known = {file.local_name: file for file in snapshot.files if file.is_sst}
        return Materialized(downloaded, known)

    def _get(self, name: str, version: Version, max_bytes: int) -> bytes:
        with self._named(name, version):
            return self._objects.get(name, max_bytes=max_bytes).data

    @contextmanager
    def _named(self, name: str, version: Version) -> Iterator[None]:
        """Add the object to errors."""
        try:
            yield
        except CairnError as error:
            self._add_context(error, name, version)
            raise

    def _downloader(self, file: SstFile, version: Version) -> Callable[[Path], None]:
        def download(path: Path) -> None:
            name, size_bytes, crc32c = file.object_name, file.size_bytes, file.crc32c
            try:
                try:
                    self._objects.download(name, path, size_bytes=size_bytes, crc32c=crc32c)
                except CorruptError as error:
                    # The bytes may have changed in transit: storages do not verify ranges.
                    _LOG.warning("%s arrived corrupt, downloading it again: %s", name, error)
                    self._objects.download(name, path, size_bytes=size_bytes, crc32c=crc32c)
            except CairnError as error:
                self._add_context(error, name, version)
                raise

        return download

    def _add_context(self, error: CairnError, name: str, version: Version) -> None:
        """Add the place to ``error``, and the next step to a ``DataError``."""
        error.with_context(
            store=str(self._store),
            version=version,
            object_name=self._objects.object_url(name),
            next_step=_RESTORE if isinstance(error, DataError) else None,
        )


def _replace_link(path: Path) -> None:
    """Make a file a copy of itself, which may be written: it is a hard link into the cache."""
    copy = path.with_name(f"{path.name}.copy")
    shutil.copyfile(path, copy)
    copy.replace(path)
