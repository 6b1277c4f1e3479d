"""Recovery: objects of a version, fetched and verified.

Layer: checkpoint.  Spec: docs/checkpoint-format.md. No LIST and no HEAD.
``store.loading`` decides what is fetched, and applies it.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import CairnError, CorruptError, DataError, DiskFullError, MissingError
from cairn.format import changelog, manifest
from cairn.format.names import (
    changelog_name,
    manifest_name,
    plain_changelog_name,
)
from cairn.ids import CheckpointId, StoreId, Version, VersionRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from cairn.checkpoint.sst_cache import SstCache
    from cairn.format.changelog import Changelog
    from cairn.format.manifest import Manifest, SstFile
    from cairn.storage.base import ObjectStore

_LOG = logging.getLogger(__name__)
_RESTORE = (
    "restore the object from the bucket's versions, or restart the query from a version that is "
    "still whole"
)


@dataclass(frozen=True, slots=True)
class Materialized:
    """A snapshot on disk.

    Attributes:
        bytes_downloaded: without what the cache had.
        known: the object behind each SST, by the file's local name; where the map of this opening
            of the directory begins.
    """

    bytes_downloaded: int
    known: Mapping[str, SstFile]


class Recovery:
    """Fetches one store's objects. Thread-safe.

    Args:
        objects: at the store's root.
        store: whose objects they must be.
        checkpoint_format: Spark's, 1 or 2: which of two names is tried first.
        cache: for SSTs.
        transfers: runs downloads; no method may be called from one of its threads.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        *,
        checkpoint_format: int,
        cache: SstCache,
        transfers: Executor,
    ) -> None:
        self._objects = objects
        self._store = store
        self._is_plain_first = checkpoint_format == 1
        self._cache = cache
        self._transfers = transfers

    def fetch_head(self, version: Version, checkpoint_id: CheckpointId | None) -> Changelog:
        """Return the changelog of the version asked for; one GET where it has the expected name.

        Args:
            version: above 0; version 0 is empty and has no object.
            checkpoint_id: ``None`` in format 1: whatever attempt stands under the plain name.

        Raises:
            MissingError: there is none; the version was never committed, or purged.
            CorruptError, FormatVersionError, ForeignObjectError: it cannot be used.
        """
        plain = plain_changelog_name(version)
        if checkpoint_id is None:
            names = [plain]
        else:
            own = changelog_name(VersionRef(version, checkpoint_id))
            names = [plain, own] if self._is_plain_first else [own, plain]
        problem: DataError | None = None
        for name in names:
            try:
                found = self._fetch_changelog(name, version)
            except MissingError:
                continue
            except DataError as error:
                # In format 1 the attempt may stand whole under its other name.
                problem = problem or error
                continue
            if checkpoint_id is None or found.header.ref.checkpoint_id == checkpoint_id:
                return found
        if problem is not None:
            raise problem
        which = "" if checkpoint_id is None else f" by attempt {checkpoint_id}"
        raise MissingError(
            f"there is no changelog of version {version}{which}",
            store=str(self._store),
            version=version,
            object_name=self._objects.object_url(names[0]),
            next_step=_RESTORE,
        )

    def fetch_changelog(self, ref: VersionRef) -> Changelog:
        """Return the changelog of a lineage's entry; errors as ``fetch_head``."""
        return self.fetch_head(ref.version, ref.checkpoint_id)

    def fetch_manifest(self, ref: VersionRef) -> Manifest:
        """Return the manifest of a base; one GET.

        Raises:
            MissingError: there is none.
            CorruptError, FormatVersionError, ForeignObjectError: it cannot be used.
        """
        name = manifest_name(ref)
        try:
            data = self._objects.get(name).data
        except DataError as error:
            raise self._placed(error, name, ref.version) from error.__cause__
        url = self._objects.object_url(name)
        return manifest.decode(data, object_name=url, store=self._store, ref=ref)

    def materialize(self, snapshot: Manifest, target: Path) -> Materialized:
        """Fill a directory with a snapshot's files, so that RocksDB can open it.

        SSTs are hard links to the cache's files: RocksDB may delete them, nobody may write them.

        Args:
            snapshot: which.
            target: made here; must not hold files. After an error it is the caller's to remove.

        Raises:
            MissingError, CorruptError: names the SST; nothing of it is used.
            DiskFullError: no room.
        """
        target.mkdir(parents=True, exist_ok=True)

        def fetch(file: SstFile) -> int:
            return self._cache.fetch_into(
                file, target / file.local_name, self._downloader(file, snapshot.ref.version)
            )

        futures = [self._transfers.submit(fetch, file) for file in snapshot.files]
        try:
            downloaded = sum(future.result() for future in futures)
        finally:
            for future in futures:
                future.cancel()
            # None writes into the directory once this has returned or raised.
            for future in futures:
                if not future.cancelled():
                    future.exception()
        for small in snapshot.small_files:
            try:
                (target / small.local_name).write_bytes(small.content)
            except OSError as error:
                if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                    raise
                raise DiskFullError(
                    f"cannot write {small.local_name}: {error.strerror}",
                    store=str(self._store),
                    version=snapshot.ref.version,
                    next_step="free some disk",
                ) from error
        known = {file.local_name: file for file in snapshot.files}
        return Materialized(downloaded, known)

    def _fetch_changelog(self, name: str, version: Version) -> Changelog:
        try:
            data = self._objects.get(name).data
        except CairnError as error:
            raise self._placed(error, name, version) from error.__cause__
        url = self._objects.object_url(name)
        return changelog.decode(data, object_name=url, store=self._store, version=version)

    def _downloader(self, file: SstFile, version: Version) -> Callable[[Path], None]:
        def once(path: Path) -> None:
            self._objects.download(
                file.object_name, path, size_bytes=file.size_bytes, crc32c=file.crc32c
            )

        def download(path: Path) -> None:
            try:
                try:
                    once(path)
                except CorruptError as error:
                    # Perhaps only on its way, as no storage checks what it sends of a part.
                    _LOG.warning("%s arrived corrupt, asking once more: %s", path.name, error)
                    once(path)
            except CairnError as error:
                raise self._placed(error, file.object_name, version) from error.__cause__

        return download

    def _placed(self, error: CairnError, name: str, version: Version) -> CairnError:
        """Say where ``error`` happened, and for a ``DataError`` what to do."""
        return error.with_context(
            store=str(self._store),
            version=version,
            object_name=self._objects.object_url(name),
            next_step=_RESTORE if isinstance(error, DataError) else None,
        )
