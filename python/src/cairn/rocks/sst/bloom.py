"""BloomFilter: the filter block of an SST file.

Layer: rocks. RocksDB's first format of full filters. Numbers are little-endian.

    filter   := line[lines]  u8 probes  u32 lines
    line     := 64 bytes: 512 bits, the lowest bit of a byte first
    hash     := u32, ``key_hashes``
    the line of a key := hash mod lines ; lines is odd
    its bits          := (hash + n * rotated) mod 512, for n = 0 .. probes-1
    rotated           := hash, rotated right by 17 bits

The newer format has 64-bit hashes, which numpy cannot compute fast.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.rocks.sst.rows import Cells

    Hashes = NDArray[np.uint32]

NAME = "rocksdb.BuiltinBloomFilter"
BITS_PER_KEY = 10
_PROBES = 6
_LINE_BITS = 512
_MAX_BITS = 0xFFFF0000
_SEED = 0xBC9F1D34
_FACTOR = 0xC6A4A793
# One byte per bit at a time: 8 MiB.
LINES_AT_ONCE = 1 << 14
_KEYS_AT_ONCE = 1 << 14


def key_hashes(keys: Cells) -> Hashes:
    """Return RocksDB's 32-bit hash of each key.

    Args:
        keys: shape ``(rows, width)``.
    """
    count, width = keys.shape
    factor = np.uint32(_FACTOR)
    result = np.full(count, (_SEED ^ (width * _FACTOR)) & 0xFFFFFFFF, np.uint32)
    whole = width // 4 * 4
    for start in range(0, whole, 4):
        result += _number(keys[:, start : start + 4], "<u4")
        result *= factor
        result ^= result >> np.uint32(16)
    if whole < width:
        for place in range(whole, width):
            # The hash takes these bytes as signed numbers.
            byte = keys[:, place].view(np.int8).astype(np.int32) << np.int32(8 * (place - whole))
            result += byte.view(np.uint32)
        result *= factor
        result ^= result >> np.uint32(24)
    return result


def _number(cells: Cells, kind: str) -> NDArray[Any]:
    return cells.view(kind)[:, 0]


class BloomFilter:
    """Collects keys; ``finish`` returns the block. Not thread-safe.

    Attributes:
        count: the number of keys.
    """

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []
        self.count = 0

    def add(self, keys: Cells) -> None:
        """Add keys of one width; shape ``(rows, width)``."""
        self._hashes.append(key_hashes(keys))
        self.count += len(keys)

    def finish(self) -> bytes:
        """Return the block. Once. REQUIRES: there are keys."""
        hashes = np.concatenate(self._hashes)
        self._hashes = []
        lines = (min(self.count * BITS_PER_KEY, _MAX_BITS) + _LINE_BITS - 1) // _LINE_BITS | 1
        line_of = hashes % np.uint32(lines)
        parts = []
        for first in range(0, lines, LINES_AT_ONCE):
            count = min(LINES_AT_ONCE, lines - first)
            if count == lines:
                parts.append(_bits(hashes, line_of, count))
            else:
                here = (line_of >= first) & (line_of < first + count)
                parts.append(_bits(hashes[here], line_of[here] - np.uint32(first), count))
        return b"".join(parts) + struct.pack("<BI", _PROBES, lines)


def _bits(hashes: Hashes, line_of: Hashes, lines: int) -> bytes:
    """Return the bits of some lines with the keys of these hashes."""
    bits = np.zeros(lines * _LINE_BITS, np.uint8)
    for start in range(0, len(hashes), _KEYS_AT_ONCE):
        chosen = slice(start, start + _KEYS_AT_ONCE)
        first = line_of[chosen].astype(np.intp) * _LINE_BITS
        within = hashes[chosen].astype(np.intp)
        # Only the low bits of the sums count, so they need not wrap at 32 bits.
        step = within >> 17 | within << 15
        for _ in range(_PROBES):
            bits[first + (within & (_LINE_BITS - 1))] = 1
            within += step
    return np.packbits(bits, bitorder="little").tobytes()
