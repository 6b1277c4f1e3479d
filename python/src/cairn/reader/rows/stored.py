"""StoredRows and RowForm: rows as a store has them, and how to take them apart.

Layer: reader.rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class StoredRows:
    """One batch of rows of one column family, as bytes.

    Attributes:
        keys: ``pa.large_binary()`` without nulls; without the prefix of the family.
        values: ``pa.large_binary()`` without nulls, one per key; without row checksums.
    """

    keys: pa.Array[Any]
    values: pa.Array[Any]

    def take(self, places: Sequence[int]) -> StoredRows:
        """Return some of the rows."""
        indices: Any = pa.array(places, pa.int64())
        return StoredRows(self.keys.take(indices), self.values.take(indices))


@dataclass(frozen=True)
class RowForm:
    """How the rows of a family became bytes, beyond what its schema says.

    Attributes:
        encoding: Spark's ``spark.sql.streaming.stateStore.encodingFormat``.
        is_bare: keys and values are UnsafeRows alone, without the layout of the key encoder and
            without a version byte, as in the HDFS-backed store.
        is_list: a value is a list of elements, each behind its length, without delimiters.
        booleans_as_bytes: an ordered boolean of a RangeScan key is stored as a byte, 0 or 1, as in
            Cairn's stores. Spark's stores lose its value.
        has_no_value: each value is one null column, whatever the schema says: ``dropDuplicates``
            before Spark 3.4. See ``decoder.is_placeholder``.
    """

    encoding: Literal["unsaferow", "avro"]
    is_bare: bool
    is_list: bool
    booleans_as_bytes: bool = False
    has_no_value: bool = False
