"""The objects of stores, as listings have them: what a state costs in its storage.

Layer: reader. Names of the objects of a store, with ``id`` of checkpoint format 2:

    cairn    changelog/<version>[_<id>].arrow, snapshot/<version>_<id>.json, sst/<name>.sst
    rocksdb  <version>[_<id>].changelog, <version>[_<id>].zip, SSTs/<name>.sst
    hdfs     <version>.delta, <version>.snapshot

A file ``<name>.crc`` with a checksum belongs to the object ``<name>``.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from cairn.format.names import ChangelogName, ManifestName, SstName, parse_name
from cairn.ids import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.reader.spark.logs import Provider
    from cairn.reader.spark.operators import Operator
    from cairn.storage.base import ObjectStore

Kind: TypeAlias = Literal["changes", "snapshot", "table", "other"]

_CRC = ".crc"
_OF_SPARK = re.compile(r"([1-9][0-9]{0,18})(?:_[0-9A-Za-z-]+)?\.(delta|changelog|snapshot|zip)")
_CHANGES = ("delta", "changelog")


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The objects of one store in one partition, of all batches that are retained.

    Attributes:
        operator: its operator's number.
        store: Spark's name of the store.
        partition: its number.
        objects: how many there are.
        bytes: their size.
    """

    operator: int
    store: str
    partition: int
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreObject:
    """One object of a store.

    Attributes:
        store: Spark's name of the store.
        partition: its number.
        name: relative to the store's folder.
        size_bytes: its length.
    """

    store: str
    partition: int
    name: str
    size_bytes: int

    def role(self, provider: Provider) -> tuple[Kind, int | None]:
        """Return what it has, and its version: ``None`` of a table, which many versions share."""
        name = self.name.removesuffix(_CRC)
        if provider == "cairn":
            found = parse_name(name)
            if isinstance(found, ChangelogName):
                return "changes", found.version
            if isinstance(found, ManifestName):
                return "snapshot", found.version
            return ("table" if isinstance(found, SstName) else "other"), None
        if match := _OF_SPARK.fullmatch(name):
            return ("changes" if match[2] in _CHANGES else "snapshot"), int(match[1])
        return ("table" if name.startswith("SSTs/") else "other"), None


def list_objects(objects: ObjectStore, operator: Operator) -> Iterator[StoreObject]:
    """Yield the objects of all stores of an operator; one LIST per 1,000 objects on S3.

    Args:
        objects: at the checkpoint's location.
        operator: one with all its stores.
    """
    names = {store.name for store in operator.stores}
    prefix = f"state/{operator.id}/"
    for info in objects.list(prefix):
        partition, _, rest = info.key.removeprefix(prefix).partition("/")
        if not (partition.isascii() and partition.isdecimal() and rest):
            continue
        folder, _, name = rest.partition("/")
        if folder in names and name:
            yield StoreObject(folder, int(partition), name, info.size_bytes)
        else:
            yield StoreObject(DEFAULT_STORE, int(partition), rest, info.size_bytes)


def count_files(objects: ObjectStore, operator: Operator) -> Iterator[StoreFiles]:
    """Yield the objects per store and partition of an operator, by store and partition.

    Args and cost: as of ``list_objects``.
    """
    counts: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    for one in list_objects(objects, operator):
        place = (one.store, one.partition)
        counts[place] += 1
        sizes[place] += one.size_bytes
    for store, number in sorted(counts):
        place = (store, number)
        yield StoreFiles(operator.id, store, number, counts[place], sizes[place])
