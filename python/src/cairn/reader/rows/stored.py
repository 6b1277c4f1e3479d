"""Rows as a store has them: keys and values, before they are decoded.

Layer: reader.rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredRows:
    """One batch of rows; both columns have the same length and no nulls.

    Attributes:
        keys: large_binary; without the prefix of a column family.
        values: large_binary; without row checksums.
    """

    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray
