"""Row checksums: what Spark's providers put before a value, so that they can verify a row.

Layer: offline.move.  Grammar: ``cairn.reader.stores.checksums`` (short), ``values`` (long).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.checksum import crc32c
from cairn.reader.stores.columns import cells, column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.reader.stores.columns import Column

# Arrow's type hints do not cover joins of columns.
pc: Any = pyarrow.compute

_NOTHING = pa.scalar(b"", pa.large_binary())


def joined(*columns: Column | pa.Scalar[Any]) -> Column:
    """Return for each row the bytes of all columns, one after the other."""
    result: Column = pc.binary_join_element_wise(*columns, _NOTHING)
    return result


def numbers(values: NDArray[Any], dtype: str) -> Column:
    """Return numbers as bytes.

    Args:
        values: whole numbers.
        dtype: how each is stored.
    """
    stored = np.ascontiguousarray(values, np.dtype(dtype))
    ends = np.arange(len(stored) + 1, dtype=np.int64) * stored.itemsize
    return column(ends, stored.view(np.uint8))


def lengths(values: Column) -> NDArray[np.int64]:
    """Return the bytes of each value."""
    return np.diff(cells(values)[1])


def row_checksums(keys: Column, values: Column) -> Column:
    """Return the checksum of each row, over its key and its value as they are stored."""
    data, ends = cells(joined(keys, values))
    places = ends.tolist()
    found = [crc32c(data[start:end]) for start, end in pairwise(places)]
    return numbers(np.array(found, np.uint32), "<u4")
