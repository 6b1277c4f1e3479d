"""Digest: a number for the rows of a family, whatever their order.

Layer: offline.move. Sums modulo 2**64; ``w[i]`` are fixed numbers, ``mix`` is a bijection of 64
bits (the last steps of SplitMix64).

    digest := the sum of hash(row) over all rows
    hash   := mix( part(key) + mix( part(value) ) )
    part   := length + the sum of mix( word[i] + w[i] )    ; u64le, the last one padded with zeros
            | XXH3 of the bytes                            ; of more than 4,096

It finds what went wrong, and is no protection against somebody who chooses rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cairn.checksum import xxh3
from cairn.reader.rows.spans import Spans

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from cairn.reader.rows.stored import StoredRows

    Numbers = NDArray[np.uint64]

_LONGEST = 4096
_WORD_BYTES = 8
_STEP_BYTES = 1 << 20
_GOLDEN = 0x9E3779B97F4A7C15


def _mixed(numbers: Numbers) -> Numbers:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


_WEIGHTS = _mixed(np.arange(1, _LONGEST // _WORD_BYTES + 1, dtype=np.uint64) * np.uint64(_GOLDEN))


class Digest:
    """See the module.

    Attributes:
        rows: how many there were.
        value: of 64 bits.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.value = 0

    def add(self, rows: StoredRows) -> None:
        """Count some rows."""
        hashes = _mixed(_parts(rows.keys) + _mixed(_parts(rows.values)))
        self.rows += len(hashes)
        self.value = (self.value + int(hashes.sum(dtype=np.uint64))) % 2**64


def _parts(column: pa.Array[Any]) -> Numbers:
    spans = Spans.of(column)
    sizes = spans.sizes
    result = sizes.astype(np.uint64)
    is_long = sizes > _LONGEST
    for place in np.flatnonzero(is_long).tolist():
        start, end = int(spans.starts[place]), int(spans.ends[place])
        result[place] = xxh3(spans.data[start:end].tobytes())
    rows = np.flatnonzero(~is_long & (sizes > 0))
    ends = np.cumsum(sizes[rows])
    begin = 0
    while begin < len(rows):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + _STEP_BYTES, "right")))
        some = rows[begin:end]
        result[some] += _sums(spans.data, spans.starts[some], sizes[some])
        begin = end
    return result


def _sums(data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Numbers:
    """Return the sums of the mixed words of rows that are neither empty nor long."""
    counts = -(-sizes // _WORD_BYTES)
    width, words = int(sizes[0]), int(counts[0])
    if bool((sizes == width).all()) and bool((np.diff(starts) == width).all()):
        first = int(starts[0])
        cells = np.zeros((len(sizes), words * _WORD_BYTES), np.uint8)
        cells[:, :width] = data[first : first + len(sizes) * width].reshape(-1, width)
        mixed = _mixed(cells.view("<u8") + _WEIGHTS[:words])
        return cast("Numbers", mixed.sum(axis=1, dtype=np.uint64))
    firsts = np.cumsum(counts) - counts
    offsets = np.cumsum(sizes) - sizes
    within = np.arange(int(sizes.sum())) - np.repeat(offsets, sizes)
    padded = np.zeros(int(counts.sum()) * _WORD_BYTES, np.uint8)
    padded[np.repeat(firsts * _WORD_BYTES, sizes) + within] = data[
        np.repeat(starts, sizes) + within
    ]
    places = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
    mixed = _mixed(padded.view("<u8") + _WEIGHTS[places])
    return cast("Numbers", np.add.reduceat(mixed, firsts))
