"""Records of Spark's delta, snapshot and changelog files, found in whole columns.

Layer: reader.stores. Knows lengths and op codes, not what keys and values are. Big-endian.

    plain  := ( bytes bytes | bytes i32 -1 )*  i32 -1                 ; put, delete
    tagged := ( 01 bytes bytes | 11 bytes bytes                       ; put, append
              | 10 bytes i32 -1 | 20 bytes bytes )*  00               ; delete, delete of a range
    bytes  := i32 length  byte[length]

A file is read in windows of some MiB. Where records have the same lengths as the first one, numpy
finds them all at once; others are found one by one.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cairn.errors import CorruptError, RowTooLargeError
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.reader.stores.columns import segments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cairn.reader.stores.columns import Column, Flags, Positions

OP_DELETE_RANGE: Final = 0x20
"""Beside the ops of ``cairn.format.ops``; the key is the first of the range, the value its end."""

WINDOW_BYTES = 4 << 20
_LENGTH = struct.Struct(">i")
_LENGTH_BYTES = _LENGTH.size
_NOTHING = -1
_TAG_OF = {0x01: OP_PUT, 0x11: OP_APPEND, 0x10: OP_DELETE, 0x20: OP_DELETE_RANGE}
_TAG_PUT = 0x01
_TAG_END = 0x00
_WALKED_RECORDS = 1024
"""How many records are found one by one before the next try to find many at once."""
_RUN_RECORDS = 32
"""Fewer records of equal lengths are not worth the start of numpy."""


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records of one file.

    Attributes:
        data: what the positions count in.
        ops: the op of each record.
        key_starts, key_ends, value_starts, value_ends: each ascends; a delete has no value.
    """

    data: bytes
    ops: NDArray[np.uint8]
    key_starts: Positions
    key_ends: Positions
    value_starts: Positions
    value_ends: Positions

    def where(self, flags: Flags) -> Records:
        """Return some of the records."""
        if flags.all():
            return self
        return Records(
            self.data,
            self.ops[flags],
            self.key_starts[flags],
            self.key_ends[flags],
            self.value_starts[flags],
            self.value_ends[flags],
        )

    def keys(self) -> Column:
        """Return a copy of the keys."""
        return segments(self.data, self.key_starts, self.key_ends)

    def values(self) -> Column:
        """Return a copy of the values."""
        return segments(self.data, self.value_starts, self.value_ends)


def read_records(
    chunks: Iterator[bytes], *, is_tagged: bool, record_bytes: int
) -> Iterator[Records]:
    """Yield the records of a file, some thousand at a time.

    Args:
        chunks: the file after its header, decompressed.
        is_tagged: which grammar it has.
        record_bytes: the limit of one record.

    Raises:
        CorruptError: the file is cut, goes on after its end, or has a length or an op that cannot
            be; earlier records may have been yielded.
        RowTooLargeError: a record exceeds the limit.
    """
    walk = _TaggedWalk if is_tagged else _PlainWalk
    window, wanted_bytes = b"", WINDOW_BYTES
    is_last = False
    while True:
        parts, size = [window], len(window)
        while size < wanted_bytes and not is_last:
            chunk = next(chunks, None)
            is_last = chunk is None
            if chunk is not None:
                parts.append(chunk)
                size += len(chunk)
        window = b"".join(parts)
        found = walk(window)
        found.go()
        if found.count:
            yield found.records()
        rest = len(window) - found.position
        if found.is_ended:
            if rest or any(map(len, chunks)):
                raise CorruptError("there are bytes after the end of the records")
            return
        if is_last:
            raise CorruptError("the file ends within its records")
        if rest > record_bytes:
            raise RowTooLargeError(
                f"a record has more than {record_bytes} bytes",
                next_step="read with a larger memory_bytes",
            )
        window = window[found.position :]
        wanted_bytes = max(WINDOW_BYTES, 2 * rest)


class _Walk(ABC):
    """The records of one window, from its start to the first that is not whole."""

    tag_bytes = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.is_ended = False
        self.is_cut = False
        self.count = 0
        self._ops: list[NDArray[np.uint8]] = []
        self._key_ends: list[Positions] = []
        self._value_ends: list[Positions] = []

    def go(self) -> None:
        """Find all records."""
        while not self.is_ended and not self.is_cut:
            self._run()
            self._walk()

    def records(self) -> Records:
        """Return what ``go`` found; a delete's value is empty."""
        ops, key_ends = np.concatenate(self._ops), np.concatenate(self._key_ends)
        value_ends = np.concatenate(self._value_ends)
        key_starts = np.empty_like(key_ends)
        key_starts[0], key_starts[1:] = 0, value_ends[:-1]
        key_starts += self.tag_bytes + _LENGTH_BYTES
        value_starts = key_ends + _LENGTH_BYTES
        return Records(self.data, ops, key_starts, key_ends, value_starts, value_ends)

    def _add(self, ops: NDArray[np.uint8], key_ends: Positions, value_ends: Positions) -> None:
        if len(ops):
            self._ops.append(ops)
            self._key_ends.append(key_ends)
            self._value_ends.append(value_ends)
            self.count += len(ops)
            self.position = int(value_ends[-1])

    def _run(self) -> None:
        """Find the puts from here on that have the lengths of the first one."""
        data, start = self.data, self.position + self.tag_bytes
        if start + _LENGTH_BYTES > len(data):
            return
        (key_bytes,) = _LENGTH.unpack_from(data, start)
        key_end = start + _LENGTH_BYTES + key_bytes
        if key_bytes < 0 or key_end + _LENGTH_BYTES > len(data):
            return
        (value_bytes,) = _LENGTH.unpack_from(data, key_end)
        if value_bytes < 0:
            return
        stride = key_end + _LENGTH_BYTES + value_bytes - self.position
        possible = (len(data) - self.position) // stride
        matching = min(possible, _RUN_RECORDS)
        for wanted in (matching, possible):
            if matching < _RUN_RECORDS:
                return
            matches = (self._lengths(start, stride, wanted) == key_bytes) & (
                self._lengths(key_end, stride, wanted) == value_bytes
            )
            if self.tag_bytes:
                tags = np.ndarray((wanted,), np.uint8, self.data, self.position, (stride,))
                matches &= tags == _TAG_PUT
            matching = wanted if matches.all() else int(matches.argmin())
        value_ends = self.position + stride * np.arange(1, matching + 1, dtype=np.int64)
        key_ends = value_ends - (value_bytes + _LENGTH_BYTES)
        self._add(np.full(matching, OP_PUT, np.uint8), key_ends, value_ends)

    def _lengths(self, offset: int, stride: int, count: int) -> NDArray[np.int32]:
        return np.ndarray((count,), np.dtype(">i4"), self.data, offset, (stride,))

    @abstractmethod
    def _walk(self) -> None:
        """Find some records, one by one."""


class _PlainWalk(_Walk):
    def _walk(self) -> None:
        unpack, data, size = _LENGTH.unpack_from, self.data, len(self.data)
        key_ends: list[int] = []
        value_ends: list[int] = []
        deletes: list[int] = []
        position = self.position
        try:
            for _ in range(_WALKED_RECORDS):
                (length,) = unpack(data, position)
                if length < 0:
                    _check_nothing(length)
                    self.is_ended = True
                    break
                key_end = position + _LENGTH_BYTES + length
                (length,) = unpack(data, key_end)
                value_end = key_end + _LENGTH_BYTES + length
                if length < 0:
                    _check_nothing(length)
                    value_end = key_end + _LENGTH_BYTES
                    deletes.append(len(key_ends))
                if value_end > size:
                    self.is_cut = True
                    break
                key_ends.append(key_end)
                value_ends.append(value_end)
                position = value_end
        except struct.error:
            self.is_cut = True
        ops = np.full(len(key_ends), OP_PUT, np.uint8)
        ops[deletes] = OP_DELETE
        self._add(ops, np.array(key_ends, np.int64), np.array(value_ends, np.int64))
        if self.is_ended:
            self.position = position + _LENGTH_BYTES


class _TaggedWalk(_Walk):
    tag_bytes = 1

    def _walk(self) -> None:
        unpack, data, size = _LENGTH.unpack_from, self.data, len(self.data)
        ops: list[int] = []
        key_ends: list[int] = []
        value_ends: list[int] = []
        position = self.position
        try:
            for _ in range(_WALKED_RECORDS):
                tag = data[position]
                if tag == _TAG_END:
                    self.is_ended = True
                    break
                op = _TAG_OF.get(tag)
                (length,) = unpack(data, position + 1)
                if op is None or length < 0:
                    raise CorruptError(f"a record has the type {tag}, a key of {length} bytes")
                key_end = position + 1 + _LENGTH_BYTES + length
                (length,) = unpack(data, key_end)
                if length < _NOTHING or (length == _NOTHING) != (op == OP_DELETE):
                    raise CorruptError(f"a record has the type {tag}, a value of {length} bytes")
                value_end = key_end + _LENGTH_BYTES + max(length, 0)
                if value_end > size:
                    self.is_cut = True
                    break
                ops.append(op)
                key_ends.append(key_end)
                value_ends.append(value_end)
                position = value_end
        except (struct.error, IndexError):
            self.is_cut = True
        self._add(
            np.array(ops, np.uint8), np.array(key_ends, np.int64), np.array(value_ends, np.int64)
        )
        if self.is_ended:
            self.position = position + 1


def _check_nothing(length: int) -> None:
    if length != _NOTHING:
        raise CorruptError(f"a record has a key or a value of {length} bytes")
