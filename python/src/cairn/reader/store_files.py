"""The objects of stores, counted: what a state costs in its storage.

Layer: reader.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.ids import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.reader.spark.operators import Operator
    from cairn.storage.base import ObjectStore


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


def count_files(objects: ObjectStore, operator: Operator) -> Iterator[StoreFiles]:
    """Yield the objects per store and partition of an operator, by store and partition.

    Costs one LIST per 1,000 objects on S3.

    Args:
        objects: at the checkpoint's location.
        operator: one with all its stores.
    """
    names = {store.name for store in operator.stores}
    counts: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    prefix = f"state/{operator.id}/"
    for info in objects.list(prefix):
        partition, _, rest = info.key.removeprefix(prefix).partition("/")
        if not (partition.isascii() and partition.isdecimal() and rest):
            continue
        folder = rest.partition("/")[0]
        place = (folder if folder in names else DEFAULT_STORE, int(partition))
        counts[place] += 1
        sizes[place] += info.size_bytes
    for store, number in sorted(counts):
        place = (store, number)
        yield StoreFiles(operator.id, store, number, counts[place], sizes[place])
