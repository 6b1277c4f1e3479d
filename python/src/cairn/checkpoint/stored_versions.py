"""StoredVersions: reads and verifies changelogs and manifests of one store.

Layer: checkpoint.  Spec: docs/checkpoint-format.md. Loads of the engine and readers share it. No
HEAD, and no LIST but for a version of format 1 that a replacement on a file system of Hadoop's has
left without its name.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cairn.format.changelog import Changelog
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.storage.base import ObjectStore

DAMAGES = (CorruptError, MissingError, ForeignObjectError, AccessError)
"""Errors of one object. S3 denies access to an absent object if it may not be listed."""
RESTORE = (
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


def _nothing() -> None:
    """Do nothing: nobody waits for signs of life."""


class StoredVersions:
    """See the module. Thread-safe.

    Args:
        objects: at the store's root.
        store: the expected store of the objects.
        checkpoint_format: Spark's, 1 or 2; determines which of two names is tried first.
        has_moved: called after each changelog.
    """

    def __init__(
        self,
        objects: ObjectStore,
        store: StoreId,
        checkpoint_format: int,
        has_moved: Callable[[], None] = _nothing,
    ) -> None:
        self.objects = objects
        self.store = store
        self._is_plain_first = checkpoint_format == 1
        self._has_moved = has_moved

    def read(self, version: int, checkpoint_id: str | None) -> Changelog:
        """Return the changelog of a version, verified; that of its real version, if it has none.

        Args:
            version: 1 or more.
            checkpoint_id: Spark's id of the version; ``None`` in format 1: any attempt.

        Raises:
            MissingError, CorruptError: names the object.
        """
        return self.fetch_head(*_real_version(version, checkpoint_id))

    def read_header(self, version: int, checkpoint_id: str | None) -> Head:
        """Return the header of that changelog, not verified; the whole changelog if it is small.

        Args and errors: as for ``read``.
        """
        try:
            return self.fetch_header(*_real_version(version, checkpoint_id))
        except MissingError as failure:
            if checkpoint_id is not None and not self._is_plain_first:
                failure.next_step = (
                    f"{failure.next_step}. If the checkpoint's folder commits lacks batch "
                    f"{version - 1}, the id is that of an earlier version: restore the entries of "
                    "commits, or delete those of the folder offsets that are more than one batch "
                    "ahead of it; the query then repeats its batches from there"
                )
            raise

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
                moved = self.objects.moved_away(plain)
            if moved is not None:
                return self._decoded(moved.data, plain, version)
        which = "" if checkpoint_id is None else f" by attempt {checkpoint_id}"
        raise MissingError(
            f"there is no changelog of version {version}{which}",
            store=str(self.store),
            version=version,
            object_name=self.objects.object_url(names[0]),
            next_step=RESTORE,
        )

    def _read_whole(self, name: str, version: Version) -> Head:
        return self._decoded(self._get(name, version, changelog.MAX_OBJECT_BYTES), name, version)

    def _decoded(self, data: bytes, name: str, version: Version) -> Head:
        url = self.objects.object_url(name)
        found = changelog.decode(data, object_name=url, store=self.store, version=version)
        self._has_moved()
        return Head(found.header, found, found.size_bytes)

    def look_at(self, name: str, version: Version, size_bytes: int) -> ChangelogHeader:
        """Return the header of a changelog, by the object's name.

        A small changelog is verified; of another one the beginning and the end are looked at, in
        two GETs.

        Args:
            name: of the object.
            version: of the name.
            size_bytes: of the object.

        Raises:
            MissingError: there is no such object.
            CorruptError, FormatVersionError, ForeignObjectError: it cannot be used.
        """
        head = self._read_start(name, version)
        if head.changelog is None:
            end_at = size_bytes - changelog.TRAILER_BYTES
            with self._named(name, version):
                end = self.objects.get_range(name, end_at, changelog.TRAILER_BYTES)
            if changelog.peek_row_count(end) is None:
                return self._read_whole(name, version).header
        return head.header

    def _read_start(self, name: str, version: Version) -> Head:
        with suppress(CorruptError), self._named(name, version):
            start = self.objects.get_start(name, _START_BYTES)
            if start.is_whole:
                url = self.objects.object_url(name)
                with suppress(DataError):
                    found = changelog.decode(
                        start.data, object_name=url, store=self.store, version=version
                    )
                    return Head(found.header, found, found.size_bytes)
            else:
                header = changelog.peek_header(start.data, store=self.store, version=version)
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
        url = self.objects.object_url(name)
        return manifest.decode(data, object_name=url, store=self.store, ref=ref)

    def _get(self, name: str, version: Version, max_bytes: int) -> bytes:
        with self._named(name, version):
            return self.objects.get(name, max_bytes=max_bytes).data

    @contextmanager
    def _named(self, name: str, version: Version) -> Iterator[None]:
        """Add the object to errors."""
        try:
            yield
        except CairnError as error:
            self.add_context(error, name, version)
            raise

    def add_context(self, error: CairnError, name: str, version: Version) -> None:
        """Add the place to ``error``, and the next step to a ``DataError``."""
        error.with_context(
            store=str(self.store),
            version=version,
            object_name=self.objects.object_url(name),
            next_step=RESTORE if isinstance(error, DataError) else None,
        )


def _real_version(version: int, checkpoint_id: str | None) -> tuple[int, CheckpointId | None]:
    if checkpoint_id is None:
        return version, None
    real = VersionRef.named(version, checkpoint_id)
    return real.version, real.checkpoint_id
