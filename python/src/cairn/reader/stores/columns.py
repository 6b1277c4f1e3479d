"""Columns of bytes: cut out of a buffer, concatenated and compared as a whole.

Layer: reader.stores. All columns are ``pa.large_binary()`` without nulls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Column: TypeAlias = pa.Array[Any]
    Positions: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]

# Arrow's type hints cover neither the results nor numpy's arrays as arguments.
pc: Any = pyarrow.compute

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
"""What one batch of rows has, unless a single row is larger."""

EMPTY: Column = pa.array([], pa.large_binary())


def column(offsets: Positions, data: bytes | memoryview | NDArray[np.uint8]) -> Column:
    """Return the column whose rows lie in ``data`` one after the other; no copy."""
    of: Any = pa.py_buffer
    buffers = [None, of(np.ascontiguousarray(offsets)), of(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def segments(data: bytes | memoryview, starts: Positions, ends: Positions) -> Column:
    """Return ``data[starts[i]:ends[i]]`` as rows, copied.

    REQUIRES: segments are inside ``data``, ascending, and do not overlap.
    """
    count = len(starts)
    if not count:
        return EMPTY
    lengths = ends - starts
    width = int(lengths[0])
    if (lengths == width).all():
        strides = np.diff(starts)
        stride = int(strides[0]) if count > 1 else max(width, 1)
        if (strides == stride).all():
            # Rows of one width at one distance: a matrix of bytes.
            matrix = np.ndarray((count, width), np.uint8, data, int(starts[0]), (stride, 1))
            body = np.ascontiguousarray(matrix).reshape(-1)
            return column(np.arange(count + 1, dtype=np.int64) * width, body)
    # Arrow copies rows of many lengths faster: what lies between two segments is a row, too.
    offsets = np.empty(2 * count + 1, np.int64)
    offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
    both = column(offsets, data)
    return both.take(np.arange(0, 2 * count, 2))


def cells(rows: Column) -> tuple[memoryview, Positions]:
    """Return the bytes of all rows, and where each begins and the last ends; no copy."""
    _, offsets, data = rows.buffers()
    if not len(rows) or offsets is None:
        return memoryview(b""), np.zeros(1, np.int64)
    positions = np.frombuffer(memoryview(offsets), np.int64)
    of_rows = positions[rows.offset : rows.offset + len(rows) + 1]
    return memoryview(data) if data is not None else memoryview(b""), of_rows


def joined(rows: Column, group_starts: Positions) -> Column:
    """Return one row per group of neighbouring rows: their bytes one after the other; no copy.

    Args:
        rows: all rows belong to a group.
        group_starts: the index of each group's first row, ascending from 0.
    """
    if not len(rows):
        return EMPTY
    data, offsets = cells(rows)
    return column(np.append(offsets[:-1][group_starts], offsets[-1]), data)


def byte_count(rows: Column) -> int:
    """Return the memory that the rows take: their bytes and offsets."""
    _, offsets = cells(rows)
    return int(offsets[-1] - offsets[0]) + offsets.nbytes


def concatenated(columns: Sequence[Column]) -> Column:
    """Return all rows as one column."""
    if len(columns) == 1:
        return columns[0]
    result: Column = pa.concat_arrays(columns) if columns else EMPTY
    return result


def cut(keys: Column, values: Column) -> Iterator[slice]:
    """Yield slices of the rows that have at most ``BATCH_ROWS`` and about ``BATCH_BYTES``."""
    ends = cells(keys)[1] + cells(values)[1]
    start, count = 0, len(keys)
    while start < count:
        enough = int(np.searchsorted(ends, ends[start] + BATCH_BYTES, side="right")) - 1
        end = min(max(enough, start + 1), start + BATCH_ROWS, count)
        yield slice(start, end)
        start = end
