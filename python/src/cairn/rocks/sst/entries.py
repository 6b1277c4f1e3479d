"""Data blocks of an SST file, without compression and checksum, from FixedRows.

Layer: rocks. RocksDB's format of data blocks. Numbers are little-endian.

    block   := entry+  u32 restart[restarts]  u32 restarts
    entry   := varint shared  varint unshared  varint value_bytes
               internal_key[shared ..]  value        ; unshared = bytes of internal_key[shared ..]
    internal_key := key  u8 type  zeros[7]           ; sequence number 0; type 0 deletes, 1 puts
    restart := where an entry with shared = 0 begins

RocksDB finds a restart by binary search and reads entries from there. ``shared`` is the number of
bytes that all keys up to the next restart have in common: the entries between two restarts then
have few sizes, and all entries of one size are copied by one call of numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cairn.rocks.sst.rows import common_prefixes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.rocks.sst.rows import Cells, FixedRows

    Numbers = NDArray[np.int64]

_RESTART_ROWS = 16
_TRAILER_BYTES = 8
_NUMBER_BYTES = 4


def varint(number: int) -> bytes:
    """Return a number in groups of 7 bits, the lowest first."""
    result = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - the groups' bits
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)


@dataclass(frozen=True, eq=False)
class DataBlocks:
    """Blocks one after the other.

    Attributes:
        data: the bytes of all blocks.
        ends: where each block ends in ``data``.
        last_keys: the last key of each block; shape ``(blocks, width)``.
    """

    data: memoryview
    ends: list[int]
    last_keys: Cells


class Entries:
    """The rows with room for the head of an entry before each key.

    Attributes:
        keys: shape ``(rows, width)``; the first bytes change in ``blocks``.
    """

    def __init__(self, rows: FixedRows) -> None:
        self._is_put = rows.is_put
        self._value_bytes: int = rows.values.shape[1]
        prefix = len(rows.prefix)
        self._key_bytes: int = prefix + rows.keys.shape[1]
        # At least the longest head: three numbers, none of them above the size of a row.
        self._room = 3 * len(varint(rows.row_bytes + _TRAILER_BYTES))
        key_end = self._room + self._key_bytes
        value_start = key_end + _TRAILER_BYTES
        width = value_start + self._value_bytes
        blank = bytes(self._room) + rows.prefix + bytes(width - self._room - prefix)
        self._table = np.full(rows.count, np.void(blank)).view(np.uint8).reshape(-1, width)
        self.keys = self._table[:, self._room : key_end]
        _fill(self._table, self._room + prefix, rows.keys)
        self._table[:, key_end] = rows.is_put
        if len(rows.values) == rows.count:
            _fill(self._table, value_start, rows.values)
        else:
            self._table[rows.is_put, value_start:] = rows.values

    def blocks(self, block_bytes: int) -> DataBlocks:
        """Return the rows as data blocks. Once.

        Args:
            block_bytes: a block ends after the restart interval that reaches a multiple of it.
        """
        count = len(self.keys)
        stride = max(1, min(_RESTART_ROWS, block_bytes // self._table.shape[1]))
        starts = np.arange(0, count, stride)
        lasts = np.append(starts[1:], count) - 1
        shared = np.repeat(common_prefixes(self.keys[starts], self.keys[lasts]), stride)[:count]
        shared[starts] = 0
        shapes = 2 * shared + self._is_put
        heads = self._heads(shapes)
        sizes = np.zeros(2 * self._key_bytes + 2, np.int64)
        for shape, head in heads.items():
            sizes[shape] = len(head) + self._unshared_bytes(shape)

        # Where each entry begins, and each interval, if there were no restarts between the blocks.
        entry_ends = np.cumsum(sizes[shapes])
        begins = np.append(0, entry_ends[:-1])
        interval_begins = begins[starts]
        number = interval_begins // block_bytes
        firsts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))  # intervals
        interval_counts = np.diff(np.append(firsts, len(starts)))
        # The bytes of the restarts of all blocks before, and of their numbers of restarts.
        shifts = _NUMBER_BYTES * (firsts + np.arange(len(firsts)))
        shift_of_interval = np.repeat(shifts, interval_counts)
        last_rows = np.append(starts[firsts[1:]], count) - 1
        restarts_at = entry_ends[last_rows] + shifts
        ends = restarts_at + _NUMBER_BYTES * (interval_counts + 1)

        last_keys = self.keys[last_rows]
        data = np.empty(int(ends[-1]), np.uint8)
        self._copy(heads, shapes, data, begins + np.repeat(shift_of_interval, stride)[:count])
        restarts = interval_begins - np.repeat(interval_begins[firsts], interval_counts)
        within = np.arange(len(starts)) - np.repeat(firsts, interval_counts)
        places = np.repeat(restarts_at, interval_counts) + _NUMBER_BYTES * within
        _put(data, places, _numbers(restarts))
        _put(data, ends - _NUMBER_BYTES, _numbers(interval_counts))
        return DataBlocks(data.data, ends.tolist(), last_keys)

    def _unshared_bytes(self, shape: int) -> int:
        shared, is_put = divmod(shape, 2)
        return self._key_bytes + _TRAILER_BYTES - shared + self._value_bytes * is_put

    def _heads(self, shapes: Numbers) -> dict[int, bytes]:
        """Return the first bytes of the entries of each shape: twice ``shared``, plus the type."""
        heads = {}
        for shape in np.flatnonzero(np.bincount(shapes)).tolist():
            shared, is_put = divmod(shape, 2)
            unshared = self._key_bytes + _TRAILER_BYTES - shared
            numbers = (shared, unshared, self._value_bytes * is_put)
            heads[shape] = b"".join(map(varint, numbers))
        return heads

    def _copy(self, heads: dict[int, bytes], shapes: Numbers, data: Cells, places: Numbers) -> None:
        """Copy the entries to their places in ``data``."""
        width = self._table.shape[1]
        for shape, head in heads.items():
            chosen = np.flatnonzero(shapes == shape)
            # The head may overwrite shared bytes of the key, which this entry does not need.
            start = self._room + shape // 2 - len(head)
            size = len(head) + self._unshared_bytes(shape)
            _items(self._table, start, len(head), width)[chosen] = np.void(head)
            _put(data, places[chosen], _items(self._table, start, size, width)[chosen])


def _fill(table: Cells, first: int, cells: Cells) -> None:
    """Copy cells into the rows of ``table`` from column ``first`` on."""
    width = cells.shape[1]
    if width:
        source = np.ascontiguousarray(cells).view(f"V{width}")[:, 0]
        _items(table, first, width, table.shape[1])[:] = source


def _numbers(numbers: Numbers) -> NDArray[np.void]:
    return numbers.astype("<u4").view(f"V{_NUMBER_BYTES}")


def _put(data: Cells, places: Numbers, items: NDArray[np.void]) -> None:
    """Copy items of one size to places in ``data``."""
    _items(data, 0, items.dtype.itemsize, 1)[places] = items


def _items(data: Cells, first: int, size: int, stride: int) -> NDArray[np.void]:
    """Return a view of ``data``: items of ``size`` bytes that begin ``stride`` bytes apart."""
    count = (data.size - first - size) // stride + 1
    return np.ndarray((count,), f"V{size}", data, offset=first, strides=(stride,))
