"""Entries of data blocks as columns, decoded by numpy: many blocks at a time.

Layer: rocks. Grammar of a block: ``entries.py``. All restart intervals of all blocks are decoded in
step: first the first entry of each, then the second of each. So a step is a few calls of numpy for
thousands of entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.rocks.sst.blocks import BadBlockError, restarts_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Trailers = NDArray[np.uint64]

DELETE, PUT, MERGE, SINGLE_DELETE = 0, 1, 2, 7
_TRAILER_BYTES = 8
_KIND_BITS = 8
_MAX_VARINT_BYTES = 5
# Numbers behind the last entry may be read, and are then refused.
_SPARE_BYTES = 16
_MAX_STEPS = 1 << 16
_MAX_MATRIX_BYTES = 64 << 20
MAX_COLUMN_BYTES = 1 << 30
"""Of the keys, and of the values, that are decoded together."""


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of one SST file in their order: keys ascend, and of one key the newest comes first.

    Attributes:
        keys: user keys; type ``binary``.
        values: as ``keys``; empty for deletes.
        kinds: one of the constants above per entry.
        sequences: the sequence numbers in the file.
    """

    keys: pa.Array[Any]
    values: pa.Array[Any]
    kinds: Bytes
    sequences: NDArray[np.uint64]

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.kinds)

    def slice(self, start: int, end: int) -> Entries:
        """Return some of the entries; no copy."""
        count = end - start
        return Entries(
            self.keys.slice(start, count),
            self.values.slice(start, count),
            self.kinds[start:end],
            self.sequences[start:end],
        )


def decoded(blocks: Sequence[memoryview]) -> Entries:
    """Return the entries of data blocks of one file, which follow each other.

    Args:
        blocks: their contents; together below 2 GiB.

    Raises:
        BadBlockError: the bytes are not entries.
    """
    data, starts, ends = _intervals(blocks)
    steps: list[tuple[Numbers, ...]] = []
    at = starts.copy()
    alive = np.flatnonzero(at < ends)
    while alive.size:
        if len(steps) > _MAX_STEPS:
            raise BadBlockError("a block has too few restarts")
        place = at[alive]
        shared, place = _varints(data, place)
        unshared, place = _varints(data, place)
        size, place = _varints(data, place)
        value_at = place + unshared
        end = value_at + size
        if (end > ends[alive]).any():
            raise BadBlockError("an entry does not fit into its block")
        steps.append((alive, shared, unshared, size, place))
        at[alive] = end
        alive = alive[end < ends[alive]]
    return _columns(data, steps, len(starts))


def _intervals(blocks: Sequence[memoryview]) -> tuple[Bytes, Numbers, Numbers]:
    """Return the bytes of all blocks, and where the restart intervals begin and end in them."""
    starts: list[Numbers] = []
    ends: list[Numbers] = []
    offset = 0
    for block in blocks:
        limit, count = restarts_at(block)
        restarts = np.frombuffer(block, "<u4", count, limit).astype(np.int64)
        if not count or restarts[0] or (np.diff(restarts) < 0).any() or restarts[-1] > limit:
            raise BadBlockError("a block has restarts outside of it")
        starts.append(restarts + offset)
        ends.append(np.append(restarts[1:], limit) + offset)
        offset += len(block)
    data = np.frombuffer(b"".join((*blocks, bytes(_SPARE_BYTES))), np.uint8)
    return data, np.concatenate(starts), np.concatenate(ends)


def _varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers at places, and the places behind them."""
    byte = data[at]
    numbers = (byte & 0x7F).astype(np.int64)
    at = at + 1
    more = np.flatnonzero(byte > 0x7F)  # noqa: PLR2004 - the bit of a number that goes on
    shift = 7
    while more.size:
        if shift >= 7 * _MAX_VARINT_BYTES:
            raise BadBlockError("an entry has too large a number")
        places = np.minimum(at[more], data.size - 1)
        byte = data[places]
        numbers[more] |= (byte & 0x7F).astype(np.int64) << shift
        at[more] += 1
        more = more[byte > 0x7F]  # noqa: PLR2004 - as above
        shift += 7
    return numbers, at


def _columns(data: Bytes, steps: list[tuple[Numbers, ...]], interval_count: int) -> Entries:
    """Return the entries, given for each step: intervals, shared, unshared, size, key's place."""
    shape = (interval_count, len(steps))
    is_entry = np.zeros(shape, np.bool_)
    key_sizes = np.zeros(shape, np.int64)
    value_starts = np.zeros(shape, np.int64)
    value_sizes = np.zeros(shape, np.int64)
    last = np.zeros(interval_count, np.int64)
    for step, (alive, shared, unshared, size, place) in enumerate(steps):
        length = shared + unshared
        if (shared > last[alive]).any() or (length < _TRAILER_BYTES).any():
            raise BadBlockError("an entry shares more bytes than the key before it has")
        last[alive] = length
        is_entry[alive, step] = True
        key_sizes[alive, step] = length
        value_starts[alive, step] = place + unshared
        value_sizes[alive, step] = size
    lengths = key_sizes[is_entry]
    if not lengths.size:
        raise BadBlockError("a data block has no entry")
    if int(lengths.sum()) > MAX_COLUMN_BYTES:
        raise BadBlockError("the keys of a block are larger than a key may be")
    if is_entry.size * int(lengths.max()) <= _MAX_MATRIX_BYTES:
        keys, trailers = _short_keys(data, steps, is_entry, lengths)
    else:
        keys, trailers = _long_keys(data, steps, is_entry)
    return Entries(
        keys,
        spans(data, value_starts[is_entry], value_sizes[is_entry]),
        (trailers & np.uint64(0xFF)).astype(np.uint8),
        trailers >> np.uint64(_KIND_BITS),
    )


def _short_keys(
    data: Bytes, steps: list[tuple[Numbers, ...]], is_entry: Flags, lengths: Numbers
) -> tuple[pa.Array[Any], Trailers]:
    """Return the user keys, and kind and sequence number of each as one number.

    The keys are the rows of a matrix as wide as the longest. What a key shares with the one before
    it is copied from that row.
    """
    width = int(lengths.max())
    padded = np.concatenate((data, np.zeros(width, np.uint8)))
    # What is in the file at the bytes that a key does not share, and something before them: never
    # before the interval, as its first entry has all bytes that later ones share.
    windows = np.ndarray((data.size,), f"V{width}", padded, strides=(1,))
    cube = np.zeros((*is_entry.shape, width), np.uint8)
    columns = np.arange(width)
    for step, (alive, shared, _, _, place) in enumerate(steps):
        cells = windows[place - shared].view(np.uint8).reshape(-1, width)
        if step:
            cells = np.where(columns < shared[:, None], cube[alive, step - 1], cells)
        cube[alive, step] = cells
    matrix = cube[is_entry]
    sizes = lengths - _TRAILER_BYTES
    if (sizes == sizes[0]).all():
        user, trailers = matrix[:, : sizes[0]], matrix[:, sizes[0] : lengths[0]]
    else:
        user = matrix[columns < sizes[:, None]]
        trailers = np.take_along_axis(matrix, sizes[:, None] + np.arange(_TRAILER_BYTES), axis=1)
    return (
        binary_column(sizes, np.ascontiguousarray(user)),
        np.ascontiguousarray(trailers).view("<u8")[:, 0],
    )


def _long_keys(
    data: Bytes, steps: list[tuple[Numbers, ...]], is_entry: Flags
) -> tuple[pa.Array[Any], Trailers]:
    """Return what ``_short_keys`` does, one key after the other."""
    rows: list[dict[int, bytes]] = []
    for alive, shared, unshared, _, place in steps:
        before = rows[-1] if rows else {}
        rows.append(
            {
                interval: before.get(interval, b"")[:kept] + data[at : at + size].tobytes()
                for interval, kept, size, at in zip(
                    *(column.tolist() for column in (alive, shared, unshared, place)), strict=True
                )
            }
        )
    whole = [rows[step][interval] for interval, step in np.argwhere(is_entry).tolist()]
    trailers = np.frombuffer(b"".join(key[-_TRAILER_BYTES:] for key in whole), "<u8")
    return pa.array([key[:-_TRAILER_BYTES] for key in whole], pa.binary()), trailers


def spans(data: Bytes, starts: Numbers, sizes: Numbers) -> pa.Array[Any]:
    """Return parts of ``data`` as a column.

    Args:
        data: below 2 GiB.
        starts: where each part begins; ascending, no part reaches into the next one.
        sizes: the length of each.
    """
    count = len(starts)
    if not sizes.any():
        return binary_column(sizes, np.zeros(0, np.uint8))
    if (sizes == sizes[0]).all():
        width = int(sizes[0])
        items = np.ndarray((data.size - width + 1,), f"V{width}", data, strides=(1,))
        return binary_column(sizes, items[starts].view(np.uint8))
    # Arrow copies the cells of a column fast: a column of the parts and of the gaps between them.
    offsets = np.column_stack((starts, starts + sizes)).astype(np.int32).reshape(-1)
    cells: pa.Array[Any] = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    )
    indices: Any = pa.array(np.arange(0, 2 * count - 1, 2))
    return cells.take(indices)


def binary_column(sizes: Numbers, data: Bytes) -> pa.Array[Any]:
    """Return a column of cells of these sizes, which follow each other in ``data``."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)]
    )
