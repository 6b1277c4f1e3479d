"""Order of rows by family and key, found on whole columns.

Layer: store. A key becomes 64-bit words whose order is the order of the keys; numpy sorts those
about ten times faster than Arrow sorts bytes.

    words(key) := the big-endian u64 of each 8 bytes, padded with zeros; then the length
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Indices = NDArray[np.int64]
    Flags = NDArray[np.bool_]

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_WORD_BYTES = 8
_WORD_BITS = 64
# Longer keys are sorted by Arrow: numpy would need one pass per word.
_MAX_KEY_BYTES = 64
_FEW_ROWS = 64
_VARYING = re.compile("1(?:0{0,3}1)*")


class BinaryColumn:
    """The buffers of a binary column as arrays; no copy. Immutable, thread-safe.

    Attributes:
        count: number of rows.
        offsets: where each row begins in ``data``, and where the last one ends.
        data: the bytes of all rows.
        width: the length of each row; ``None`` if lengths differ or there are no rows.
    """

    def __init__(self, column: pa.Array[Any]) -> None:
        _, offsets, data = column.buffers()
        self.count = len(column)
        # An empty column may have neither buffer.
        self.offsets: NDArray[np.int32] = (
            np.frombuffer(memoryview(offsets), np.int32)[
                column.offset : column.offset + self.count + 1
            ]
            if offsets is not None and offsets.size and self.count
            else np.zeros(1, np.int32)
        )
        self.data: NDArray[np.uint8] = (
            np.frombuffer(memoryview(data), np.uint8)
            if data is not None and data.size
            else _NO_BYTES
        )
        lengths = np.diff(self.offsets)
        self.longest = int(lengths.max()) if self.count else 0
        self.width = self.longest if self.count and int(lengths.min()) == self.longest else None

    def matrix(self) -> NDArray[np.uint8]:
        """Return the rows as a matrix of bytes. REQUIRES: ``width`` is not ``None``."""
        body = self.data[self.offsets[0] : self.offsets[-1]]
        return body.reshape(self.count, self.width or 0)

    def words(self, skip: int) -> Words:
        """Return the 8 bytes of each row after the first ``skip``, padded, as one number."""
        if self.width is not None:
            return self._fixed_words(self.width, skip)
        result = np.zeros(self.count, np.uint64)
        if not self.data.size:
            return result
        at = self.offsets[:-1].astype(np.int64) + skip
        last = self.data.size - 1
        for _ in range(_WORD_BYTES):
            byte = np.where(at < self.offsets[1:], self.data[np.minimum(at, last)], 0)
            result = result << np.uint64(8) | byte.astype(np.uint64)
            at += 1
        return result

    def _fixed_words(self, width: int, skip: int) -> Words:
        missing = max(0, skip + _WORD_BYTES - width)
        if missing >= _WORD_BYTES:
            return np.zeros(self.count, np.uint64)
        if width < _WORD_BYTES:
            padded = np.zeros((self.count, _WORD_BYTES), np.uint8)
            padded[:, : width - skip] = self.matrix()[:, skip:]
            return padded.view(">u8").ravel().astype(np.uint64)
        # Read the last 8 bytes instead of some after the row, and shift the first of them out.
        at = int(self.offsets[0]) + skip - missing
        read: NDArray[Any] = np.ndarray(
            (self.count,), ">u8", self.data, offset=at, strides=(width,)
        )
        words = read.astype(np.uint64)
        return words << np.uint64(8 * missing) if missing else words


_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class KeyOrder:
    """The order of rows by family and key; rows of one key keep their order.

    Attributes:
        order: the sorted rows' indices; ``None`` if the rows are sorted already.
        repeats: for each sorted row but the first, whether it has the key of the one before it.
    """

    order: Indices | None
    repeats: Flags

    def is_last(self) -> Flags:
        """Return for each sorted row whether it is the last one of its key."""
        return np.append(~self.repeats, True)


def key_order(rows: pa.RecordBatch) -> KeyOrder:
    """Return the order of rows with columns ``cf`` and ``key``; at least one row."""
    keys = BinaryColumn(rows.column("key"))
    if keys.longest > _MAX_KEY_BYTES:
        return _order_by_arrow(rows)
    cfs = _plain(rows.column("cf"))
    columns = [] if (cfs == cfs[0]).all() else [cfs.astype(np.uint64)]
    columns += [keys.words(skip) for skip in range(0, keys.longest, _WORD_BYTES)]
    if keys.width is None:
        columns.append(np.diff(keys.offsets).astype(np.uint64))
    columns = _packed(columns)
    if _ascends([column[:_FEW_ROWS] for column in columns]) and _ascends(columns):
        return KeyOrder(None, _repeats(columns, rows.num_rows))
    return _order_of(columns)


def _order_of(columns: list[Words]) -> KeyOrder:
    """Return the order of rows of words; at least one column.

    Numbers are sorted that have a row's first bits, then its index. numpy needs two thirds of the
    time for them that it needs for indices, and rows that are equal keep their order. Rows that
    differ only in later bits are sorted once more.
    """
    count = len(columns[0])
    row_bits = (count - 1).bit_length()
    too_long = int(columns[0].max()).bit_length() + row_bits - _WORD_BITS
    numbers = columns[0] >> np.uint64(max(0, too_long)) << np.uint64(row_bits)
    numbers |= np.arange(count, dtype=np.uint64)
    numbers.sort()
    order = (numbers & _low_bits(row_bits)).astype(np.int64)
    numbers >>= np.uint64(row_bits)
    alike = numbers[1:] == numbers[:-1]
    if too_long <= 0 and len(columns) == 1:
        return KeyOrder(order, alike)
    repeats = _repeats([column[order] for column in columns], count)
    if (alike & ~repeats).any():
        _sort_alike(order, columns, alike, repeats)
    return KeyOrder(order, repeats)


def _sort_alike(order: Indices, columns: list[Words], alike: Flags, repeats: Flags) -> None:
    """Sort the rows in ``order`` that are alike in their first bits, but not equal.

    Args:
        order: changed in place, as ``repeats``.
        columns: words of the rows.
        alike: for each row in order but the first, whether its first bits are those before it.
        repeats: the same for all its bits.
    """
    groups = np.append(0, np.cumsum(~alike))
    is_mixed = np.zeros(len(groups), np.bool_)  # by group
    is_mixed[groups[1:][alike & ~repeats]] = True
    places = np.flatnonzero(is_mixed[groups])
    rows = order[places]
    order[places] = rows[np.lexsort([column[rows] for column in reversed(columns)])]
    pairs = np.flatnonzero(alike & is_mixed[groups[1:]])
    befores, afters = order[pairs], order[pairs + 1]
    repeats[pairs] = np.all([column[befores] == column[afters] for column in columns], axis=0)


def _low_bits(count: int) -> np.uint64:
    return np.uint64((1 << count) - 1)


def _packed(columns: list[Words]) -> list[Words]:
    """Return columns with the same order, without most bits that all rows share; often one.

    All words but the last are full.
    """
    result: list[Words] = []
    used = _WORD_BITS
    for column in columns:
        varying = int(np.bitwise_or.reduce(column ^ column[0]))
        for low, span in _varying_parts(varying):
            left = span
            while left:
                is_full = used == _WORD_BITS
                taken = left if is_full else min(left, _WORD_BITS - used)
                left -= taken
                part = (column >> np.uint64(low + left)) & _low_bits(taken)
                if is_full:
                    result.append(part)
                    used = taken
                else:
                    result[-1] = result[-1] << np.uint64(taken) | part
                    used += taken
    return result


def _varying_parts(varying: int) -> list[tuple[int, int]]:
    """Return the lowest bit and the number of bits of each part that varies, the highest first.

    Between two parts are at least four bits that all rows share: a part costs time, too.
    """
    bits = f"{varying:0{_WORD_BITS}b}"
    return [
        (_WORD_BITS - part.end(), part.end() - part.start()) for part in _VARYING.finditer(bits)
    ]


def _ascends(columns: list[Words]) -> bool:
    """Return whether each row is above the one before it, or equal."""
    equal: Flags | bool = True
    falls: Flags | bool = False
    for column in columns:
        falls |= equal & (column[1:] < column[:-1])
        equal &= column[1:] == column[:-1]
    return not np.any(falls)


def _repeats(columns: list[Words], count: int) -> Flags:
    """Return for each row but the first whether it equals the one before it."""
    equal = np.ones(count - 1, np.bool_)
    for column in columns:
        equal &= column[1:] == column[:-1]
    return equal


def _order_by_arrow(rows: pa.RecordBatch) -> KeyOrder:
    order = pc.sort_indices(rows, [("cf", "ascending"), ("key", "ascending")])
    cfs, keys = rows.column("cf").take(order), rows.column("key").take(order)
    count = rows.num_rows
    repeats = pc.and_(
        pc.equal(keys.slice(0, count - 1), keys.slice(1)),
        pc.equal(cfs.slice(0, count - 1), cfs.slice(1)),
    )
    return KeyOrder(
        order.to_numpy().astype(np.int64), repeats.to_numpy(zero_copy_only=False).astype(np.bool_)
    )


def _plain(column: pa.Array[Any]) -> NDArray[Any]:
    """Return a column of numbers without nulls as an array; no copy."""
    return column.to_numpy(zero_copy_only=True)


def take(batches: Sequence[pa.RecordBatch], order: Indices) -> pa.RecordBatch:
    """Return the rows of these indices, in their order.

    Args:
        batches: of one schema; indices count the rows of all of them.
        order: the indices.
    """
    schema = batches[0].schema
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([_taken(parts, order) for parts in columns], schema=schema)


def _taken(parts: Sequence[pa.Array[Any]], order: Indices) -> pa.Array[Any]:
    if pa.types.is_binary(parts[0].type) and not any(part.null_count for part in parts):
        cells = [BinaryColumn(part) for part in parts]
        width = cells[0].width
        if width is not None and all(one.width == width for one in cells):
            return _taken_cells([one.matrix() for one in cells], order, width)
    indices: Any = pa.array(order)
    whole = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return whole.take(indices)


def _taken_cells(
    matrices: Sequence[NDArray[np.uint8]], order: Indices, width: int
) -> pa.Array[Any]:
    """Take cells of one width."""
    # One matrix, though that needs memory for a copy: taking from each in turn is six times slower.
    whole = matrices[0] if len(matrices) == 1 else np.concatenate(matrices)
    data = np.take(whole, order, axis=0)
    offsets = np.arange(len(order) + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(
        pa.binary(), len(order), [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    )
