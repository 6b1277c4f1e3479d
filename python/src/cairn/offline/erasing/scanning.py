"""StoreScan: where one store has a key: in its rows, and in the objects of all its versions.

Layer: offline.erasing. RocksDB's files keep a key after it was deleted, until they are compacted:
all entries of all files are looked at, also those that no version has any more.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import CairnError, DataError
from cairn.format import changelog, manifest
from cairn.format.names import ChangelogName, ManifestName, SstName, parse_name
from cairn.ids import VersionRef
from cairn.offline.erasing.matching import KeyMatcher, without
from cairn.offline.move.digest import Digest
from cairn.rocks import keys as layout
from cairn.rocks.sst.reading import TableReader

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cairn.format.header import ColumnFamily
    from cairn.offline.stores import PartitionStore
    from cairn.reader.families import Family
    from cairn.reader.stores.base import ReadLimits
    from cairn.storage.base import ObjectInfo, ObjectStore

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_PART_BYTES = 1 << 20
_CF_BYTES = 2
_HEADS = b"\xff\xff"


@dataclass(frozen=True, slots=True)
class FoundFamily:
    """A family of one store.

    Attributes:
        keys: those that are meant, in the last version.
        others: the number of all others there.
        digest: of the others' rows, as a hexadecimal number.
    """

    keys: int
    others: int
    digest: str


@dataclass(frozen=True, slots=True)
class StoreScan:
    """See the module.

    Attributes:
        store: which one.
        families: of the last version, by name.
        objects: how many objects of all versions have the key, or cannot be read; and all objects
            of another provider that once had the state, of which it is not known.
    """

    store: PartitionStore
    families: Mapping[str, FoundFamily]
    objects: int

    @property
    def has_key(self) -> bool:
        """Whether the store has to be written anew."""
        return self.objects > 0 or any(one.keys for one in self.families.values())


def scan(
    store: PartitionStore,
    families: Sequence[Family],
    matchers: Mapping[str, KeyMatcher],
    limits: ReadLimits,
) -> StoreScan:
    """Look for a key in a store.

    Args:
        store: which one, at the last version.
        families: all of it.
        matchers: by the names of those that may have the key.
        limits: of the memory.

    Raises:
        DataError: the last version cannot be read.
    """
    found = {}
    with store.open_rows(limits) as rows:
        for family in families:
            matcher = matchers.get(family.family)
            digest, count = Digest(), 0
            if family.family in rows.families:
                for some in rows.rows(family.family):
                    if matcher is None:
                        digest.add(some)
                    else:
                        flags = matcher.of(some.keys)
                        count += int(flags.sum())
                        digest.add(without(some, flags))
            found[family.family] = FoundFamily(count, digest.rows, f"{digest.value:016x}")
    with store.open() as root:
        return StoreScan(store, found, _Objects(store, root, found, matchers).count())


class _Objects:
    """The objects of a store, of all versions.

    Rows of a variable that the program has deleted since may have the key: nobody knows.
    """

    def __init__(
        self,
        store: PartitionStore,
        root: ObjectStore,
        known: Collection[str],
        matchers: Mapping[str, KeyMatcher],
    ) -> None:
        self._store = store
        self._root = root
        self._known = known
        self._matchers = matchers
        # A store that was written anew may have given an id to another family.
        self._names: defaultdict[int, set[tuple[str, bool]]] = defaultdict(set)
        self._no_tables: set[str] = set()

    def count(self) -> int:
        """Return how many have the key."""
        infos = list(self._root.list(""))
        named = [(info, parse_name(info.key)) for info in infos]
        result = 0
        for info, name in named:
            if isinstance(name, ChangelogName):
                result += self._in_changelog(info, name)
            elif isinstance(name, ManifestName):
                result += self._is_damaged(info, name)
            elif name is None:
                result += 1
        for info, name in named:
            if isinstance(name, SstName) and info.key not in self._no_tables:
                result += self._in_table(info)
        return result

    def _learn(self, families: Sequence[ColumnFamily]) -> None:
        for one in families:
            self._names[one.id].add((one.name, one.multi))

    def _in_changelog(self, info: ObjectInfo, name: ChangelogName) -> bool:
        url = self._root.object_url(info.key)
        try:
            data = self._root.get(info.key, max_bytes=changelog.MAX_OBJECT_BYTES).data
            found = changelog.decode(
                data, object_name=url, store=self._store.id, version=name.version
            )
        except DataError:
            return True
        self._learn(found.header.column_families)
        names = {one.id: one.name for one in found.header.column_families}
        for batch in found.table.to_batches():
            cfs = np.asarray(batch.column("cf").to_numpy())
            for cf in np.unique(cfs).tolist():
                keys: Any = batch.column("key").filter(pa.array(cfs == cf))
                if self._have(names.get(cf, ""), _filled(keys)):
                    return True
        return False

    def _is_damaged(self, info: ObjectInfo, name: ManifestName) -> bool:
        url = self._root.object_url(info.key)
        try:
            data = self._root.get(info.key, max_bytes=manifest.MAX_OBJECT_BYTES).data
            ref = VersionRef(name.version, name.checkpoint_id)
            found = manifest.decode(data, object_name=url, store=self._store.id, ref=ref)
        except DataError:
            return True
        self._learn(found.column_families)
        self._no_tables |= {one.object_name for one in found.files if not one.is_sst}
        return False

    def _in_table(self, info: ObjectInfo) -> bool:
        try:
            table = TableReader(_File(self._root, info))
            return any(
                self._in_entries(entries.keys) for entries in table.scan(b"", None, _PART_BYTES)
            )
        except CairnError:
            return True

    def _in_entries(self, column: pa.Array[Any]) -> bool:
        by_family: defaultdict[tuple[int, bool], list[bytes]] = defaultdict(list)
        keys: Any = column.to_pylist()
        for key in keys:
            is_head = key[:_CF_BYTES] == _HEADS
            start = _CF_BYTES if is_head else 0
            cf = int.from_bytes(key[start : start + _CF_BYTES], "big")
            by_family[cf, is_head].append(key)
        for (cf, is_head), some in by_family.items():
            for name, is_list in self._names[cf]:
                if self._have(name, _plain(some, is_head=is_head, is_list=is_list)):
                    return True
        return False

    def _have(self, family: str, keys: pa.Array[Any]) -> bool:
        """Return whether the key may be one of a family's."""
        matcher = self._matchers.get(family)
        if matcher is None:
            return len(keys) > 0 and family not in self._known
        try:
            return bool(matcher.of(keys).any())
        except DataError:
            return True


def _filled(keys: Any) -> Any:  # noqa: ANN401 - the stubs have a type per kind
    """Return the keys of rows: a family that is dropped has an empty one."""
    return keys.filter(pc.greater(pc.binary_length(keys), 0)).cast(pa.large_binary())


def _plain(keys: list[bytes], *, is_head: bool, is_list: bool) -> pa.Array[Any]:
    """Return the operator's keys of RocksDB's; of a prefix alone, none."""
    if is_list and not is_head:
        plain = [layout.key_of_chunk(key) for key in keys]
    else:
        start = 2 * _CF_BYTES if is_head else _CF_BYTES
        plain = [key[start:] for key in keys]
    return pa.array([key for key in plain if key], pa.large_binary())


@dataclass(frozen=True, slots=True)
class _File:
    """An object as a file of which parts are read."""

    objects: ObjectStore
    info: ObjectInfo

    @property
    def name(self) -> str:
        return self.objects.object_url(self.info.key)

    @property
    def size_bytes(self) -> int:
        return self.info.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        return self.objects.get_range(self.info.key, offset, length)
