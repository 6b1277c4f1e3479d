"""Placement: the partition of stored rows, as Spark's operators look for them.

Layer: offline.move.  Spec: docs/spark-formats.md#partition-of-a-row. Rows without a column that
says it, such as those of an aggregation without grouping keys, are in partition 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import UnsupportedStateError
from cairn.reader.rows.partition_hash import has_hash, partition_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows


class Placement:
    """See the module.

    Args:
        family: of the rows.

    Raises:
        UnsupportedStateError: the types of its keys, or their hash, are not known.
    """

    def __init__(self, family: Family) -> None:
        self._columns = [column for column in family.columns if column.is_hashed]
        self._decoder = family.decoder()
        unknown = [one for one in self._columns if not has_hash(one.type)]
        if self._decoder is None or unknown:
            why = f"no hash is known of {unknown[0].type}" if unknown else "its schema is not known"
            raise UnsupportedStateError(
                f"it is not known to which partitions the rows of '{family.name}' belong: {why}",
                store=f"{family.operator.id}/{family.store.name}",
                next_step="start the query with a new checkpoint and the wanted number",
            )

    def of(self, rows: StoredRows, partitions: int) -> NDArray[np.int32]:
        """Return the partition of each row.

        Args:
            rows: of the family.
            partitions: how many there are.

        Raises:
            CorruptError: a key does not have the form that its schema demands.
        """
        if not self._columns:
            return np.zeros(len(rows.keys), np.int32)
        assert self._decoder is not None  # noqa: S101 - see above
        decoded = self._decoder.decode_keys(rows.keys)
        columns: list[Any] = [column.of(decoded) for column in self._columns]
        return partition_of(columns, partitions)
