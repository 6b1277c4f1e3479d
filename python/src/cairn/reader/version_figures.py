"""Keys and sizes of stores over the batches, without their rows.

Layer: reader. The sources, by provider:

    cairn    keys: headers of changelogs; size: the snapshot of the header, and listed changelogs
    hdfs     keys: none; size: the listed snapshot, and the delta files after it
    rocksdb  none
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from cairn.checkpoint.stored_versions import StoredVersions
from cairn.errors import DataError
from cairn.format.names import changelog_name, plain_changelog_name
from cairn.ids import StoreId, VersionRef

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cairn.format.header import ChangelogHeader
    from cairn.ids import CheckpointId
    from cairn.reader.stores.opening import StorePlace

Partition: TypeAlias = tuple[int, str, int]
"""Operator, Spark's name of the store, number of the partition."""
Ids: TypeAlias = "Mapping[int, Mapping[int, tuple[tuple[str, ...], ...]] | None]"
"""Spark's checkpoint ids, by batch and operator."""
Attempt: TypeAlias = "tuple[int, CheckpointId | None]"
Listing: TypeAlias = "Mapping[Partition, Mapping[str, int]]"
"""Sizes of the objects of each partition, by their names."""

HEADERS_MAX = 10_000
"""Headers that are read for all batches together; one GET each."""
_THREADS = 16


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """One partition of a store at one version.

    Attributes:
        keys: their number, by Spark's name of the family; ``None``: not known.
        load_bytes: objects that a load of the version reads; ``None``: not known.
    """

    keys: Mapping[str, int] | None
    load_bytes: int | None


Figures: TypeAlias = "Mapping[int, Mapping[Partition, VersionFigures]]"
"""By batch and partition."""


def figures_of_cairn(
    places: Sequence[tuple[StorePlace, int]], ids: Ids, listing: Listing, first: int
) -> Figures:
    """Return the figures of some batches of Cairn's stores, evenly chosen.

    Args:
        places: the stores, with the number of partitions of each.
        ids: of the batches.
        listing: of the stores.
        first: a batch that is among them if its objects are there. The oldest and the newest such
            batch are too, if there is a choice at all.
    """
    stores = [
        _CairnStore(place, number, listing.get((place.operator, place.store, number), {}))
        for place, count in places
        for number in range(count)
    ]
    there = [batch for batch in ids if all(one.has(batch, ids) for one in stores)]
    figures: dict[int, Mapping[Partition, VersionFigures]] = {}
    with ThreadPoolExecutor(_THREADS) as threads:
        for batch in evenly(there, max(1, HEADERS_MAX // max(1, len(stores))), first):
            try:
                read = list(threads.map(partial(_CairnStore.figures, batch=batch, ids=ids), stores))
            except DataError:
                continue  # verify says what is wrong with it
            figures[batch] = dict(zip((one.name for one in stores), read, strict=True))
    return figures


def evenly(batches: Sequence[int], count: int, first: int) -> list[int]:
    """Return so many of the batches, ascending, among them ``first``."""
    if len(batches) <= count:
        return list(batches)
    kept = [first] if first in batches else []
    steps = count - len(kept)
    if steps == 1:
        kept.append(batches[0])
    elif steps > 1:
        kept += [batches[place * (len(batches) - 1) // (steps - 1)] for place in range(steps)]
    return sorted(set(kept))


class _CairnStore:
    """One partition of one of Cairn's stores. Its batches are read by one thread at a time."""

    def __init__(self, place: StorePlace, partition: int, sizes: Mapping[str, int]) -> None:
        self.name: Partition = (place.operator, place.store, partition)
        self._place = place
        self._partition = partition
        self._sizes = sizes
        self._known: dict[Attempt, VersionFigures] = {}
        self._snapshots: dict[VersionRef, int | None] = {}

    def has(self, batch: int, ids: Ids) -> bool:
        """Return whether the changelog of a batch is in the listing."""
        try:
            version, id_ = self._real(batch, ids)
        except DataError:
            return False
        return version == 0 or self._size_of(version, id_) is not None

    def figures(self, batch: int, ids: Ids) -> VersionFigures:
        """Return the figures of a batch.

        Raises:
            DataError: the header cannot be read.
        """
        real = self._real(batch, ids)
        if real not in self._known:
            self._known[real] = self._read(*real)
        return self._known[real]

    def _real(self, batch: int, ids: Ids) -> Attempt:
        """Return the version whose object a batch has: without changes it is an earlier one."""
        place = self._place.at_batch(batch, ids[batch])
        id_ = place.id_of(self._partition)
        if id_ is None:
            return place.version, None
        ref = VersionRef.named(place.version, id_)
        return ref.version, ref.checkpoint_id

    def _size_of(self, version: int, id_: CheckpointId | None) -> int | None:
        if id_ is not None:
            own = self._sizes.get(changelog_name(VersionRef(version, id_)))
            if own is not None:
                return own
        return self._sizes.get(plain_changelog_name(version))

    def _read(self, version: int, id_: CheckpointId | None) -> VersionFigures:
        if version == 0:
            return VersionFigures({}, 0)
        operator, store, number = self.name
        objects = self._place.objects
        with objects.at(objects.object_url(self._place.folder(number))) as root:
            format_ = 1 if id_ is None else 2
            versions = StoredVersions(root, StoreId(operator, number, store), format_)
            header = versions.fetch_header(version, id_).header
            keys = {one.name: header.counts.get(one.id, 0) for one in header.column_families}
            return VersionFigures(keys, self._load_bytes(versions, header))

    def _load_bytes(self, versions: StoredVersions, header: ChangelogHeader) -> int | None:
        sizes = [self._size_of(one.version, one.checkpoint_id) for one in header.lineage]
        base = header.base.ref
        if base is not None:
            if base not in self._snapshots:
                self._snapshots[base] = _snapshot_bytes(versions, base)
            sizes.append(self._snapshots[base])
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None


def _snapshot_bytes(versions: StoredVersions, ref: VersionRef) -> int | None:
    try:
        manifest = versions.fetch_manifest(ref)
    except DataError:
        return None  # verify says what is wrong with it
    small = sum(len(file.content) for file in manifest.small_files)
    return small + sum(file.size_bytes for file in manifest.files)


def figures_of_hdfs(
    stores: Sequence[Partition], batches: Collection[int], listing: Listing
) -> Figures:
    """Return the figures of the batches whose files are there, of the HDFS-backed provider.

    Args:
        stores: all partitions.
        batches: the committed ones.
        listing: of the stores.
    """
    sizes = {one: _sizes_of_hdfs(listing.get(one, {})) for one in stores}
    return {
        batch: {one: VersionFigures(None, sizes[one][batch + 1]) for one in stores}
        for batch in batches
        if all(batch + 1 in sizes[one] for one in stores)
    }


def _sizes_of_hdfs(sizes: Mapping[str, int]) -> dict[int, int]:
    """Return what a load reads, by version; of those versions that can be loaded."""
    result: dict[int, int] = {}
    for version in sorted({int(name.partition(".")[0]) for name in sizes}):
        snapshot, delta = sizes.get(f"{version}.snapshot"), sizes.get(f"{version}.delta")
        before = 0 if version == 1 else result.get(version - 1)
        if snapshot is not None:
            result[version] = snapshot
        elif delta is not None and before is not None:
            result[version] = before + delta
    return result
