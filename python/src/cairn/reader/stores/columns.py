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

    Positions: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]

# Arrow's type hints cover neither the results nor numpy's arrays as arguments.
pc: Any = pyarrow.compute

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
"""What one batch of rows has, unless a single row is larger."""

EMPTY: pa.LargeBinaryArray = pa.array([], pa.large_binary())


def column(offsets: Positions, data: bytes | memoryview | NDArray[np.uint8]) -> pa.LargeBinaryArray:
    """Return the column whose rows lie in ``data`` one after the other; no copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def segments(data: bytes | memoryview, starts: Positions, ends: Positions) -> pa.LargeBinaryArray:
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
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def cells(rows: pa.LargeBinaryArray) -> tuple[memoryview, Positions]:
    """Return the bytes of all rows, and where each begins and the last ends; no copy."""
    _, offsets, data = rows.buffers()
    if not len(rows) or offsets is None:
        return memoryview(b""), np.zeros(1, np.int64)
    positions = np.frombuffer(offsets, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    return memoryview(data) if data is not None else memoryview(b""), positions


def joined(rows: pa.LargeBinaryArray, group_starts: Positions) -> pa.LargeBinaryArray:
    """Return one row per group of neighbouring rows: their bytes one after the other; no copy.

    Args:
        rows: all rows belong to a group.
        group_starts: the index of each group's first row, ascending from 0.
    """
    if not len(rows):
        return EMPTY
    data, offsets = cells(rows)
    return column(np.append(offsets[:-1][group_starts], offsets[-1]), data)


def byte_count(rows: pa.LargeBinaryArray) -> int:
    """Return the memory that the rows take: their bytes and offsets."""
    _, offsets = cells(rows)
    return int(offsets[-1] - offsets[0]) + offsets.nbytes


def concatenated(columns: Sequence[pa.LargeBinaryArray]) -> pa.LargeBinaryArray:
    """Return all rows as one column."""
    if len(columns) == 1:
        return columns[0]
    result: pa.LargeBinaryArray = pa.concat_arrays(columns) if columns else EMPTY
    return result


def cut(keys: pa.LargeBinaryArray, values: pa.LargeBinaryArray) -> Iterator[slice]:
    """Yield slices of the rows that have at most ``BATCH_ROWS`` and about ``BATCH_BYTES``."""
    ends = cells(keys)[1] + cells(values)[1]
    start, count = 0, len(keys)
    while start < count:
        enough = int(np.searchsorted(ends, ends[start] + BATCH_BYTES, side="right")) - 1
        end = min(max(enough, start + 1), start + BATCH_ROWS, count)
        yield slice(start, end)
        start = end
