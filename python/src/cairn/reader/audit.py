"""Audits of a store's objects: those that are named are there, those that are there are named.

Layer: reader. Of one of Cairn's stores:

    names          one LIST
    manifests      whole; one GET each
    changelogs     whole if they are small, else their beginning and end; one or two GETs each
    files of SSTs  by their sizes; by their bytes those of the snapshots from which the newest
                   version is loaded

What only an older version needs may have wrong bytes in a large changelog or in an SST.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import StoredVersions
from cairn.checksum import crc32c
from cairn.errors import CairnError, DataError, FormatVersionError, MissingError
from cairn.format.names import (
    SST_PREFIX,
    ChangelogName,
    ManifestName,
    PinnedRange,
    SstName,
    changelog_name,
    manifest_name,
    parse_name,
    plain_changelog_name,
)
from cairn.ids import StoreId, VersionRef
from cairn.reader.findings import Finding, Place
from cairn.reader.stores.files import StoreFiles
from cairn.reader.stores.snapshot_zip import ZIP_BYTES_MAX, ZippedSnapshot
from cairn.store.load.detours import Detours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import Version
    from cairn.reader.stores.opening import StorePlace
    from cairn.storage.base import ObjectInfo, ObjectStore

_GRACE_S = 3600
"""An upload may still be going on: younger SSTs are no orphans. The default grace period."""
_LAG_VERSIONS = 100
_PART_BYTES = 8 << 20
_THREADS = 8


def audit_cairn(
    place: StorePlace,
    partition: int,
    versions: Mapping[int, str | None],
    *,
    reads_content: bool = True,
) -> Iterator[Finding]:
    """Yield what is wrong with the objects of one of Cairn's stores.

    Args:
        place: where the store is.
        partition: its partition.
        versions: those of the committed batches, with Spark's ids; ``None`` in format 1.
        reads_content: whether changelogs and files of SSTs are read; else their names and sizes are
            compared, and manifests are read.
    """
    root = place.objects.at(place.objects.object_url(place.folder(partition)))
    store = StoreId(place.operator, partition, place.store)
    with root:
        audit = _CairnAudit(root, store, 1 if place.unique_ids is None else 2)
        yield from audit.findings(versions, reads_content=reads_content)


def audit_objects(
    objects: ObjectStore,
    store: StoreId,
    checkpoint_format: int,
    versions: Mapping[int, str | None],
) -> Iterator[Finding]:
    """Yield what is wrong with the objects of one of Cairn's stores.

    Args:
        objects: at the store's root.
        store: the store.
        checkpoint_format: Spark's, 1 or 2.
        versions: see ``audit_cairn``.
    """
    yield from _CairnAudit(objects, store, checkpoint_format).findings(versions)


class _CairnAudit:
    def __init__(self, objects: ObjectStore, store: StoreId, checkpoint_format: int) -> None:
        self._where = Place(store.operator, store.partition, store.name)
        self._objects = objects
        self._versions = StoredVersions(objects, store, checkpoint_format)

    def findings(
        self, versions: Mapping[int, str | None], *, reads_content: bool = True
    ) -> Iterator[Finding]:
        listed = {info.key: info for info in self._objects.list("")}
        names = {key: parse_name(key) for key in listed}
        for key, name in names.items():
            if name is None:
                yield self._finding("unknown-object", "the name is not one of Cairn's", key)
        manifests: list[Manifest] = []
        for name in names.values():
            if isinstance(name, ManifestName):
                ref = VersionRef(name.version, name.checkpoint_id)
                try:
                    manifests.append(self._versions.fetch_manifest(ref))
                except MissingError:
                    continue  # deleted since the listing
                except DataError as failure:
                    yield self._damaged(failure)
        yield from self._missing_ssts(manifests, listed)
        if reads_content:
            yield from self._changed_files(manifests, listed, self._base_of_newest(versions))
            headers: dict[str, ChangelogHeader] = {}
            yield from self._damaged_changelogs(listed, headers)
            yield from self._unreachable(versions, listed, headers)
        pinned = [name for name in names.values() if isinstance(name, PinnedRange)]
        yield from self._missing_changelogs(versions, listed, pinned)
        yield from self._orphans(manifests, listed)
        yield from self._lag(manifests, names.values())

    def _missing_ssts(
        self, manifests: Sequence[Manifest], listed: Mapping[str, ObjectInfo]
    ) -> Iterator[Finding]:
        for manifest in manifests:
            for file in manifest.files:
                info = listed.get(file.object_name)
                if info is None:
                    yield self._finding(
                        "object-missing",
                        f"the snapshot of version {manifest.ref.version} names it",
                        file.object_name,
                    )
                elif info.size_bytes != file.size_bytes:
                    yield self._finding(
                        "object-damaged",
                        f"it has {info.size_bytes} bytes, the snapshot of version "
                        f"{manifest.ref.version} says {file.size_bytes}",
                        file.object_name,
                    )

    def _base_of_newest(self, versions: Mapping[int, str | None]) -> Version:
        """Return the version of the snapshot that the newest version begins with.

        If its changelog cannot be read, the newest snapshot is the only one that leads to it.
        """
        newest = max(versions, default=0)
        if not newest:
            return 0
        try:
            return self._versions.read_header(newest, versions[newest]).header.base.version
        except DataError:
            return newest

    def _changed_files(
        self, manifests: Sequence[Manifest], listed: Mapping[str, ObjectInfo], first: Version
    ) -> Iterator[Finding]:
        """Yield the files with other bytes than the snapshots from a version on say."""
        files = {
            file.object_name: file
            for manifest in manifests
            if manifest.ref.version >= first
            for file in manifest.files
        }
        for file in files.values():
            info = listed.get(file.object_name)
            if info is None or info.size_bytes != file.size_bytes:
                continue  # another rule finds it
            try:
                crc = self._crc_of(file)
            except MissingError:
                continue  # deleted since the listing
            if crc != file.crc32c:
                yield self._finding(
                    "object-damaged",
                    "its bytes differ from the checksum in a snapshot",
                    file.object_name,
                )

    def _crc_of(self, file: SstFile) -> int:
        crc = 0
        for offset in range(0, file.size_bytes, _PART_BYTES):
            size = min(_PART_BYTES, file.size_bytes - offset)
            crc = crc32c(self._objects.get_range(file.object_name, offset, size), crc)
        return crc

    def _damaged_changelogs(
        self, listed: Mapping[str, ObjectInfo], headers: dict[str, ChangelogHeader]
    ) -> Iterator[Finding]:
        """Yield the changelogs that are damaged; add the headers of the others."""
        names = [name for name in listed if isinstance(parse_name(name), ChangelogName)]
        with ThreadPoolExecutor(_THREADS) as threads:
            sizes = [listed[name].size_bytes for name in names]
            looks = threads.map(self._look_at, names, sizes)
            for name, found in zip(names, looks, strict=True):
                if isinstance(found, CairnError):
                    yield self._damaged(found)
                elif found is not None:
                    headers[name] = found

    def _look_at(self, name: str, size_bytes: int) -> ChangelogHeader | DataError | None:
        """Return the header of a changelog, or what is wrong with it; ``None``: it is gone."""
        parsed = parse_name(name)
        assert isinstance(parsed, ChangelogName)  # noqa: S101 - the caller has chosen them
        try:
            return self._versions.look_at(name, parsed.version, size_bytes)
        except MissingError:
            return None  # deleted since the listing
        except DataError as failure:
            return failure

    def _unreachable(
        self,
        versions: Mapping[int, str | None],
        listed: Mapping[str, ObjectInfo],
        headers: Mapping[str, ChangelogHeader],
    ) -> Iterator[Finding]:
        """Yield the snapshots that are missing, without which an older version cannot be loaded.

        The newest version is read. The oldest one of the logs has perhaps been purged: Spark keeps
        the logs of one batch more than Cairn keeps versions.
        """
        missing: set[VersionRef] = set()
        for version in sorted(versions)[1:-1]:
            names = self._names_of(version, versions[version]) or ()
            header = next((headers[name] for name in names if name in headers), None)
            base = None if header is None else header.base.ref
            if base is None or base in missing or manifest_name(base) in listed:
                continue
            name = manifest_name(base)
            lost = MissingError("it is missing", object_name=self._objects.object_url(name))
            if next(iter(Detours(self._versions, version, versions[version], lost)), None) is None:
                missing.add(base)
                yield Finding(
                    "batch-unreadable",
                    "the state begins with this snapshot, which does not exist",
                    lost.object_name,
                    self._where,
                    version - 1,
                )

    def _missing_changelogs(
        self,
        versions: Mapping[int, str | None],
        listed: Mapping[str, ObjectInfo],
        pinned: Sequence[PinnedRange],
    ) -> Iterator[Finding]:
        """Yield the changelogs that are missing though an older one is there.

        What is kept for a long read or a savepoint may have a gap above it.
        """
        is_older_there = False
        for version in sorted(versions):
            ref_names = self._names_of(version, versions[version])
            if ref_names is None:
                continue
            if any(name in listed for name in ref_names):
                is_older_there |= not any(one.protects_changelog(version) for one in pinned)
            elif is_older_there:
                yield self._finding(
                    "object-missing", f"the changelog of version {version}", ref_names[0]
                )

    def _names_of(self, version: int, id_: str | None) -> tuple[str, ...] | None:
        if id_ is None:
            return (plain_changelog_name(version),)
        try:
            ref = VersionRef.named(version, id_)
        except (DataError, FormatVersionError):
            return None  # another rule finds it
        if ref.version != version:
            return None  # an empty commit has no object
        return changelog_name(ref), plain_changelog_name(version)

    def _orphans(
        self, manifests: Sequence[Manifest], listed: Mapping[str, ObjectInfo]
    ) -> Iterator[Finding]:
        named = {file.object_name for one in manifests for file in one.files}
        named |= {name for one in manifests for entry in one.retained for name in entry.objects}
        named |= {entry.object_name for one in manifests for entry in one.garbage}
        newest: datetime | None = max(
            (info.last_modified for info in listed.values()), default=None
        )
        for key, info in listed.items():
            if not key.startswith(SST_PREFIX) or key in named or newest is None:
                continue
            age_s = (newest - info.last_modified).total_seconds()
            if isinstance(parse_name(key), SstName) and age_s > _GRACE_S:
                yield self._finding("orphan", "no snapshot names this file", key)

    def _lag(self, manifests: Sequence[Manifest], names: Iterable[object]) -> Iterator[Finding]:
        """Yield whether a load replays many changelogs. Empty commits have none."""
        newest = max((one.ref.version for one in manifests), default=0)
        behind = {
            one.version for one in names if isinstance(one, ChangelogName) and one.version > newest
        }
        if len(behind) > _LAG_VERSIONS:
            yield Finding(
                "snapshot-lags", f"it is {len(behind)} versions behind", place=self._where
            )

    def _damaged(self, failure: CairnError) -> Finding:
        return Finding("object-damaged", failure.message, failure.object_name, self._where)

    def _finding(self, rule: str, message: str, key: str) -> Finding:
        return Finding(rule, message, self._objects.object_url(key), self._where)


def audit_rocksdb(place: StorePlace, partition: int) -> Iterator[Finding]:
    """Yield what is wrong with the snapshots of one of Spark's RocksDB stores.

    Args:
        place: where the store is.
        partition: its partition.
    """
    where = Place(place.operator, partition, place.store)
    folder = place.folder(partition)
    files = StoreFiles(place.objects, folder)
    prefix = f"{folder}/SSTs/"
    sizes = {info.key.removeprefix(prefix): info.size_bytes for info in place.objects.list(prefix)}
    for name in files:
        if not name.endswith(".zip"):
            continue
        try:
            snapshot = ZippedSnapshot.parse(files.get(name, max_bytes=ZIP_BYTES_MAX), ())
        except MissingError:
            continue  # deleted since the listing
        except DataError as failure:
            yield Finding("object-damaged", failure.message, files.url(name), where)
            continue
        for sst in snapshot.ssts.values():
            size, url = sizes.get(sst.name), files.url(f"SSTs/{sst.name}")
            if size is None:
                yield Finding("object-missing", f"the snapshot {name} names it", url, where)
            elif size != sst.size_bytes:
                message = f"it has {size} bytes, the snapshot {name} says {sst.size_bytes}"
                yield Finding("object-damaged", message, url, where)
