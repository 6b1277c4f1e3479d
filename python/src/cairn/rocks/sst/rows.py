"""FixedRows: puts and deletes whose keys have one width, and whose values have one width.

Layer: rocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    Cells = NDArray[np.uint8]
    Flags = NDArray[np.bool_]

_WORD_BYTES = 8
MAX_KEY_BYTES = 256
"""Hashes and comparisons of keys take numpy one step per some of their bytes, for all rows at once:
RocksDB's writer needs less CPU for longer keys, however many there are."""
_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False)
class FixedRows:
    """See the module. Immutable.

    Attributes:
        prefix: the first bytes of the keys of all rows.
        keys: the other bytes; shape ``(rows, width)``, at most ``MAX_KEY_BYTES`` wide.
        values: of the puts, in the order of their rows; shape ``(puts, width)``.
        is_put: one per row; the other rows are deletes.
    """

    prefix: bytes
    keys: Cells
    values: Cells
    is_put: Flags

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.keys)

    @property
    def row_bytes(self) -> int:
        """The bytes of key and value of a put."""
        key_bytes: int = self.keys.shape[1]
        return len(self.prefix) + key_bytes + int(self.values.shape[1])

    def parts(self, row_count: int) -> Iterator[FixedRows]:
        """Yield the rows in parts of at most ``row_count``; no copy."""
        value = 0
        for start in range(0, self.count, row_count):
            end = start + row_count
            is_put = self.is_put[start:end]
            puts = int(np.count_nonzero(is_put))
            yield FixedRows(
                self.prefix, self.keys[start:end], self.values[value : value + puts], is_put
            )
            value += puts


def fixed_rows(prefix: bytes, rows: pa.RecordBatch) -> FixedRows | None:
    """Return rows with columns ``key`` and ``value``; ``None`` if widths differ or keys are long.

    Args:
        prefix: see ``FixedRows``.
        rows: at least one; a null value deletes the key.
    """
    is_put = rows.column("value").is_valid().to_numpy(zero_copy_only=False)
    every = np.ones(rows.num_rows, np.bool_)
    keys = _cells(rows.column("key"), every)
    if keys is None or keys.shape[1] > MAX_KEY_BYTES:
        return None
    values = _cells(rows.column("value"), is_put)
    return None if values is None else FixedRows(prefix, keys, values, is_put)


def _cells(column: pa.Array[Any], is_used: Flags) -> Cells | None:
    """Return the used cells as a matrix without a copy; ``None`` if that is impossible."""
    _, offsets, data = column.buffers()
    if offsets is None:
        return None
    ends = np.frombuffer(memoryview(offsets), np.int32)
    ends = ends[column.offset : column.offset + len(column) + 1]
    widths = np.diff(ends)
    used = int(np.count_nonzero(is_used))
    width = int(widths[int(is_used.argmax())]) if used else 0
    if not np.array_equal(widths, is_used * np.int32(width)):
        return None
    cells = _NO_BYTES if data is None else np.frombuffer(memoryview(data), np.uint8)
    return cells[int(ends[0]) : int(ends[-1])].reshape(used, width)


def ascends(keys: Cells) -> bool:
    """Return whether each key is above the one before it.

    Args:
        keys: shape ``(rows, width)``.
    """
    count, width = keys.shape
    start = 0
    while start + _WORD_BYTES <= width:
        words = keys[:, start : start + _WORD_BYTES].view(np.uint64)[:, 0]
        if (words != words[0]).any():
            break
        start += _WORD_BYTES
    if start == width:
        return bool(count == 1)
    # numpy compares byte strings of one size as RocksDB does, but byte by byte.
    names = keys[:, start:].view(f"S{width - start}")[:, 0]
    return bool((names[1:] > names[:-1]).all())


def common_prefixes(left: Cells, right: Cells) -> NDArray[np.int64]:
    """Return for each row how many first bytes are equal.

    Args:
        left: shape ``(rows, width)``.
        right: the same shape.
    """
    differs = np.ones((len(left), left.shape[1] + 1), np.bool_)
    np.not_equal(left, right, out=differs[:, :-1])
    prefixes: NDArray[np.int64] = differs.argmax(axis=1)
    return prefixes
