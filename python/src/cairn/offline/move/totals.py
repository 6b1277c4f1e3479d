"""What was moved, over all partitions: for the record, the user, and Spark's commit log.

Layer: offline.move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from cairn.reader.stores.opening import in_order_of_ids

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.format.spark_log import UniqueIds
    from cairn.offline.move.moving import Moved, StoreRef


@dataclass(frozen=True, slots=True)
class MovedFamily:
    """One kind of rows, in all partitions.

    Attributes:
        operator: its operator's number.
        store: Spark's name of its store.
        family: Spark's name of the column family.
        partitions: how many have them.
        keys: their number.
        digest: of the rows in the form of the source: the sum over the partitions, of 64 bits.
    """

    operator: int
    store: str
    family: str
    partitions: int
    keys: int
    digest: str

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Return what a record has."""
        return cls(**fields)


def totals(moved: Mapping[StoreRef, Moved]) -> tuple[MovedFamily, ...]:
    """Return the sums over the partitions."""
    keys: dict[tuple[int, str, str], list[int]] = {}
    for ref, one in moved.items():
        for family, count in one.keys.items():
            total = keys.setdefault((ref.operator, ref.store, family), [0, 0, 0])
            total[0] += 1
            total[1] += count
            total[2] = (total[2] + int(one.digests[family], 16)) % 2**64
    return tuple(
        MovedFamily(*name, partitions, count, f"{digest:016x}")
        for name, (partitions, count, digest) in sorted(keys.items())
    )


def checkpoint_ids(moved: Mapping[StoreRef, Moved], checkpoint_format: int) -> UniqueIds | None:
    """Return the checkpoint ids of the batch; ``None`` in format 1."""
    if checkpoint_format == 1:
        return None
    found: dict[int, list[list[str]]] = {}
    by_place: dict[tuple[int, int], dict[str, str]] = {}
    for ref, one in moved.items():
        ids = by_place.setdefault((ref.operator, ref.partition), {})
        ids[ref.store] = str(one.checkpoint_id)
    for (operator, _), ids in sorted(by_place.items()):
        found.setdefault(operator, []).append([ids[name] for name in in_order_of_ids(ids)])
    return {operator: tuple(map(tuple, ids)) for operator, ids in found.items()}
