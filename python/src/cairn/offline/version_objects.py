"""The objects that lead to one version of a store, and the names that they have in a clone.

Layer: offline. Of Cairn's store: the manifest of the base, its files, and the changelogs of the
lineage. Of Spark's: a snapshot, the changes after it, the files of the database, and checksums.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.presence import header_under_plain_name
from cairn.errors import MissingError
from cairn.format.names import (
    CHANGELOG_PREFIX,
    changelog_name,
    manifest_name,
    plain_changelog_name,
)
from cairn.reader.stores.files import CRC_SUFFIX, StoreFiles
from cairn.reader.stores.hdfs import choose_files
from cairn.reader.stores.rocksdb import plan_version
from cairn.reader.stores.snapshot_zip import ZIP_BYTES_MAX, ZippedSnapshot
from cairn.store.load.lineage import reading_of
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.checkpoint.reader_pins import Reading
    from cairn.checkpoint.stored_versions import StoredVersions
    from cairn.format.header import ChangelogHeader
    from cairn.ids import VersionRef
    from cairn.offline.stores import PartitionStore
    from cairn.storage.base import ObjectStore

_WHOLE_CHANGELOG = threading.Lock()
"""A changelog that is not small is read whole by one thread at a time: it may need much memory."""


@dataclass(frozen=True, slots=True)
class StoreObject:
    """One object.

    Attributes:
        key: relative to the checkpoint.
        target: its key in a clone.
        size_bytes: its length.
        crc32c: its checksum; ``None``: not known here.
        is_manifest: a clone has it without what it says of other manifests.
        is_unique: no other bytes have ever the name.
    """

    key: str
    target: str
    size_bytes: int
    crc32c: int | None = None
    is_manifest: bool = False
    is_unique: bool = False


@dataclass(frozen=True, slots=True)
class VersionObjects:
    """What leads to one version of a store.

    Attributes:
        at: the store.
        objects: at least one.
        reading: what a pin protects; ``None``: Spark's stores have no pins.
    """

    at: PartitionStore
    objects: tuple[StoreObject, ...]
    reading: Reading | None = None


def cairn_objects(at: PartitionStore, ref: VersionRef | None) -> VersionObjects:
    """Return what leads to a version of a store of Cairn's.

    Costs a LIST, two GETs, and in checkpoint format 1 a GET per changelog.

    Args:
        at: the store, at the version.
        ref: the real version of a savepoint; ``None``: what Spark's commit log says.

    Raises:
        MissingError, CorruptError, FormatVersionError: an object is gone, or cannot be read.
    """
    with at.open() as root:
        versions = at.versions(root)
        header = _verified_header(versions, at, ref)
        sizes = {info.key: info.size_bytes for info in root.list(CHANGELOG_PREFIX)}
        found: list[StoreObject] = []
        if header.base.ref is not None:
            found += _base(at.folder, versions, header.base.ref)
        for one in header.lineage:
            name = _changelog_of(root, at, one, sizes)
            own = changelog_name(one)
            target = plain_changelog_name(one.version) if at.checkpoint_format == 1 else own
            found.append(
                StoreObject(
                    f"{at.folder}/{name}",
                    f"{at.folder}/{target}",
                    sizes[name],
                    is_unique=target == own,
                )
            )
    return VersionObjects(at, tuple(found), reading_of(StoreVersion.of_header(header)))


def _verified_header(
    versions: StoredVersions, at: PartitionStore, ref: VersionRef | None
) -> ChangelogHeader:
    version, id_ = (
        (at.version, at.checkpoint_id) if ref is None else (ref.version, str(ref.checkpoint_id))
    )
    head = versions.read_header(version, id_)
    if head.changelog is not None:
        return head.header
    with _WHOLE_CHANGELOG:
        return versions.read(version, id_).header


def _base(folder: str, versions: StoredVersions, ref: VersionRef) -> Iterator[StoreObject]:
    manifest = versions.fetch_manifest(ref)
    for file in manifest.files:
        key = f"{folder}/{file.object_name}"
        yield StoreObject(key, key, file.size_bytes, file.crc32c, is_unique=True)
    key = f"{folder}/{manifest_name(ref)}"
    yield StoreObject(key, key, 0, is_manifest=True)


def _changelog_of(
    root: ObjectStore, at: PartitionStore, ref: VersionRef, sizes: dict[str, int]
) -> str:
    """Return the name under which the changelog of an attempt is stored."""
    own, plain = changelog_name(ref), plain_changelog_name(ref.version)
    if own in sizes:
        return own
    header = header_under_plain_name(root, at.id, ref.version) if plain in sizes else None
    if header is not None and header.ref == ref:
        return plain
    raise MissingError(
        f"there is no changelog of version {ref.version} by attempt {ref.checkpoint_id}",
        store=str(at.id),
        version=at.version,
        object_name=root.object_url(own),
    )


def spark_objects(at: PartitionStore) -> VersionObjects:
    """Return what leads to a version of a store of Spark's providers.

    Costs a LIST; for RocksDB a GET, and in checkpoint format 2 one per lineage that is followed.

    Raises:
        MissingError, CorruptError, FormatVersionError: a file is gone, or cannot be read.
    """
    objects = at.stores.objects
    files = StoreFiles(objects, at.folder)
    found: list[StoreObject] = []

    def add(name: str, *, is_unique: bool) -> None:
        for one in (name, name + CRC_SUFFIX):
            if one in files:
                key = f"{at.folder}/{one}"
                found.append(StoreObject(key, key, files.size(one), is_unique=is_unique))

    if at.stores.provider == "hdfs":
        snapshot, changes = choose_files(files, at.version)
    else:
        plan = plan_version(files, at.version, at.checkpoint_id)
        snapshot, changes = plan.snapshot, plan.changelogs
        if snapshot is not None:
            found += _database_files(files, at.folder, snapshot)
    has_ids = at.checkpoint_format > 1
    for name in changes:
        add(name, is_unique=has_ids)
    if snapshot is not None:
        add(snapshot, is_unique=has_ids)
    return VersionObjects(at, tuple(found))


def _database_files(files: StoreFiles, folder: str, snapshot: str) -> Iterator[StoreObject]:
    data = files.get(snapshot, max_bytes=ZIP_BYTES_MAX)
    with files.naming(snapshot):
        zipped = ZippedSnapshot.parse(data, ())
    for kind, some in (("SSTs", zipped.ssts.values()), ("logs", zipped.logs)):
        for file in some:
            key = f"{folder}/{kind}/{file.name}"
            yield StoreObject(key, key, file.size_bytes, is_unique=True)
