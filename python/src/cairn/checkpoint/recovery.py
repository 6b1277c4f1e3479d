"""Recovery: fetches and verifies the objects of a version, and puts a snapshot on the disk.

Layer: checkpoint.  Spec: docs/checkpoint-format.md. ``store.load.load`` decides which objects are
fetched, and applies them.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import RESTORE, StoredVersions
from cairn.errors import DISK_FULL_ERRNOS, CairnError, CorruptError
from cairn.format.names import manifest_name
from cairn.storage.files import translate_os_error
from cairn.storage.parallel import in_turns
from cairn.storage.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cairn.checkpoint.transfers import TransferResources
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import StoreId, Version
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)


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


class Recovery(StoredVersions):
    """Fetches one store's objects. Thread-safe.

    Args:
        objects: at the store's root.
        store: the expected store of the objects.
        checkpoint_format: Spark's, 1 or 2.
        resources: SST cache and threads for downloads.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        resources: TransferResources,
    ) -> None:
        # Not every caller has a progress: the change feed reads one changelog after the other.
        super().__init__(objects, store, checkpoint_format, resources.activity.moved)
        self._cache = resources.cache
        self._downloads = resources.downloads
        self._download_threads = resources.download_threads

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
            size = self._cache.fetch_into(self.objects.origin, file, path, download)
            return file.size_bytes, size

        names = [file.object_name for file in snapshot.files]
        near = {
            name for name in names if name in kept or self._cache.has(self.objects.origin, name)
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
                store=str(self.store),
                version=snapshot.ref.version,
                object_name=self.objects.object_url(manifest_name(snapshot.ref)),
                next_step=RESTORE,
            ) from error
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            raise translate_os_error(error, str(target)).with_context(
                store=str(self.store), version=snapshot.ref.version
            ) from error
        known = {file.local_name: file for file in snapshot.files if file.is_sst}
        return Materialized(downloaded, known)

    def _downloader(self, file: SstFile, version: Version) -> Callable[[Path], None]:
        def download(path: Path) -> None:
            name, size_bytes, crc32c = file.object_name, file.size_bytes, file.crc32c
            try:
                try:
                    self.objects.download(name, path, size_bytes=size_bytes, crc32c=crc32c)
                except CorruptError as error:
                    # The bytes may have changed in transit: storages do not verify ranges.
                    _LOG.warning("%s arrived corrupt, downloading it again: %s", name, error)
                    self.objects.download(name, path, size_bytes=size_bytes, crc32c=crc32c)
            except CairnError as error:
                self.add_context(error, name, version)
                raise

        return download


def _replace_link(path: Path) -> None:
    """Make a file a copy of itself, which may be written: it is a hard link into the cache."""
    copy = path.with_name(f"{path.name}.copy")
    shutil.copyfile(path, copy)
    copy.replace(path)
