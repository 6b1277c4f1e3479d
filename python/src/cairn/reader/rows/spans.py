"""Spans and Places: many pieces of one buffer, read as whole columns by numpy.

Layer: reader.rows. Numbers are little-endian and need not be aligned.

Evenly spaced places, as those of rows of one length, are read through a strided view. Others are
gathered. Neither reads outside the buffer, whatever the places are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class Places:
    """Where one value of each item begins.

    Args:
        data: the buffer.
        at: the places, from 0.
        step: the distance from each place to the next, if it is the same; ``None``: it is not.
    """

    def __init__(self, data: NDArray[np.uint8], at: Int64s, step: int | None) -> None:
        self.data = data
        self.at = at
        self.step = step

    @classmethod
    def of(cls, data: NDArray[np.uint8], at: Int64s) -> Places:
        """Return places; whether they are evenly spaced is found out."""
        step = int(at[1] - at[0]) if len(at) > 1 else 0
        is_even = step >= 0 and bool((at[1:] - at[:-1] == step).all())
        return cls(data, at, step if is_even else None)

    def __len__(self) -> int:
        return len(self.at)

    def shifted(self, by: int) -> Places:
        """Return the places behind these by a number of bytes."""
        return Places(self.data, self.at + by, self.step)

    def where(self, flags: Flags | None) -> Places:
        """Return some of the places; ``None``: all."""
        return self if flags is None else Places(self.data, self.at[flags], None)

    def load(self, dtype: np.dtype[Any] | str, by: int = 0) -> NDArray[Any]:
        """Return the number at each place, ``by`` bytes further on; the array is a new one.

        REQUIRES: each number lies within the buffer.
        """
        kind = np.dtype(dtype)
        if not len(self.at):
            return np.empty(0, kind)
        if self.step is not None:
            start = int(self.at[0]) + by
            return np.ndarray(len(self.at), kind, self.data, start, (self.step,)).copy()
        window = np.ndarray(len(self.data) - kind.itemsize + 1, kind, self.data, 0, (1,))
        gathered: NDArray[Any] = window[self.at + by if by else self.at]
        return gathered

    def bits(self, index: int | Int64s, by: int) -> Flags:
        """Return a bit of each bit set, which begins ``by`` bytes further on.

        Args:
            index: the bit's number, one for all or one per place; 0 is the lowest of a byte.
            by: see ``load``.
        """
        shifts: Any = index % 8
        if isinstance(index, int):
            loaded = self.load("u1", by + index // 8)
        else:
            loaded = Places(self.data, self.at + index // 8, None).load("u1", by)
            shifts = shifts.astype(np.uint8)
        flags: Flags = (loaded >> shifts) & np.uint8(1) != 0
        return flags


@dataclass(frozen=True)
class Spans:
    """Pieces of a buffer, in ascending order and without overlap.

    Attributes:
        data: the buffer.
        starts: where each begins.
        ends: where each ends.
    """

    data: NDArray[np.uint8]
    starts: Int64s
    ends: Int64s

    @classmethod
    def of(cls, array: pa.Array[Any]) -> Spans:
        """Return the values of a ``large_binary`` array without nulls, which are not copied."""
        _, offsets, data = array.buffers()
        count = len(array)
        if not count:
            return cls(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
        all_ends = np.frombuffer(memoryview(offsets or b""), np.int64)
        ends = all_ends[array.offset : array.offset + count + 1]
        content = np.frombuffer(memoryview(data or b""), np.uint8)
        return cls(content, ends[:-1], ends[1:])

    @classmethod
    def checked(cls, data: NDArray[np.uint8], starts: Int64s, ends: Int64s, where: str) -> Spans:
        """Return spans that the data itself names.

        Raises:
            CorruptError: one begins before the end of the one before. Then their sizes could add
                up to more than the buffer.
        """
        if bool((starts[1:] < ends[:-1]).any()):
            raise CorruptError(f"{where}: two values share bytes")
        return cls(data, starts, ends)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Int64s:
        """Bytes of each."""
        return self.ends - self.starts

    @property
    def places(self) -> Places:
        """The start of each."""
        return Places.of(self.data, self.starts)

    def require(self, least: int, where: str) -> None:
        """Check that each has some bytes.

        Raises:
            CorruptError: one is shorter.
        """
        if len(self) and int(self.sizes.min()) < least:
            raise CorruptError(f"{where}: {int(self.sizes.min())} bytes where {least} are needed")

    def behind(self, by: int) -> Spans:
        """Return what is behind the first bytes of each. REQUIRES: each has as many."""
        return Spans(self.data, self.starts + by, self.ends)

    def chosen(self, places: Int64s) -> Spans:
        """Return some of the spans, by their ascending numbers."""
        return Spans(self.data, self.starts[places], self.ends[places])

    def binary(self) -> pa.Array[Any]:
        """Return the bytes of each, as ``large_binary``."""
        count = len(self)
        if not count:
            return pa.array([], pa.large_binary())
        # An array of all spans and the gaps between them needs no copy of the data.
        offsets = np.empty(2 * count, np.int64)
        offsets[0::2] = self.starts
        offsets[1::2] = self.ends
        buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(self.data.data)]
        pieces = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, buffers)
        return pieces.take(np.arange(0, 2 * count, 2))


def spread(values: pa.Array[Any], valid: Flags | None) -> pa.Array[Any]:
    """Return ``values``, in order, with a null wherever ``valid`` is not set."""
    if valid is None:
        return values
    places = np.cumsum(valid) - 1
    return values.take(pa.array(places, mask=~valid))


def validity(valid: Flags | None) -> pa.Buffer | None:
    """Return Arrow's bitmap of flags; ``None``: all are set."""
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little").data)
