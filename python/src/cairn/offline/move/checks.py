"""What of a batch can be moved, and what is moved.

Layer: offline.move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import UnsupportedStateError
from cairn.offline.move.forms import converter
from cairn.offline.move.moving import StoreRef
from cairn.offline.move.target import target_family

if TYPE_CHECKING:
    from cairn.reader.batch import BatchView
    from cairn.reader.spark.logs import Provider
    from cairn.reader.spark.operators import Operator


def movable_stores(view: BatchView, provider: Provider) -> tuple[StoreRef, ...]:
    """Return the stores of a batch, all of which a provider can have.

    Raises:
        UnsupportedStateError: it cannot; names the operator.
    """
    found: list[StoreRef] = []
    for operator in view.operators:
        families = view.families(operator)
        _check(operator, provider)
        for family in families:
            target = target_family(family, provider)
            try:
                converter(family.form, target.form, target.schema)
            except UnsupportedStateError as failure:
                raise failure.with_context(
                    store=f"{operator.id}/{family.store.name}"
                ) from failure.__cause__
        found += [
            StoreRef(operator.id, store.name, partition)
            for store in operator.stores
            for partition in range(view.partitions(operator))
        ]
    return tuple(found)


def _check(operator: Operator, provider: Provider) -> None:
    if provider == "hdfs" and operator.has_families:
        raise UnsupportedStateError(
            f"Spark's HDFS-backed provider cannot run operator {operator.id}, {operator.name}: it "
            "has no column families",
            next_step="choose the provider cairn or rocksdb",
        )
