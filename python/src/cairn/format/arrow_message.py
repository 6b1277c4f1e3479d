"""What an Arrow IPC message says about its size, checked before Arrow reads its columns.

Layer: format (bytes only). Arrow trusts two statements of a message: the decompressed length of a
compressed buffer, which it allocates at once, and the offsets of binary values, which it follows
without a look at the length of the data. A changed byte in either would take terabytes, or end the
process. ``check_record_batch`` finds the first, ``pyarrow.RecordBatch.validate(full=True)`` the
second.

    message      := flatbuffer {2: header}                       ; Arrow's Message.fbs
    header       := flatbuffer {0: rows i64, 2: buffers, 3: compression}
    buffers      := {i64 offset, i64 length}*                    ; in the body
    buffer (compressed) := i64 decompressed_length | -1  bytes   ; -1: the bytes are not compressed
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from cairn.errors import CorruptError

if TYPE_CHECKING:
    import pyarrow as pa

_ZSTD_RATIO_MAX = 32_768
"""A block of zstd has at least four bytes and stands for at most 128 KiB."""
_BLOCK_BYTES = 1 << 17
_LENGTH = struct.Struct("<q")
_NOT_COMPRESSED = -1


def check_record_batch(message: pa.Message, *, may_compress: bool) -> tuple[int, int]:
    """Return the rows of a message, and the bytes of its columns after decompression.

    Args:
        message: as pyarrow read it, which verifies its flatbuffer.
        may_compress: whether its buffers may be compressed.

    Raises:
        CorruptError: it is no record batch, or its lengths are impossible.
    """
    if message.type != "record batch":
        raise CorruptError(f"an Arrow message is a {message.type}, not a record batch")
    metadata = message.metadata.to_pybytes()
    body: Any = memoryview(message.body if message.body is not None else b"")
    try:
        return _checked(metadata, body, may_compress=may_compress)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptError("the metadata of an Arrow message cannot be read") from error


def _checked(metadata: bytes, body: memoryview, *, may_compress: bool) -> tuple[int, int]:
    message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    batch = message.table(2)
    if batch is None:
        raise CorruptError("an Arrow message has no header")
    is_compressed = batch.table(3) is not None
    if is_compressed and not may_compress:
        raise CorruptError("an Arrow message is compressed")
    total = 0
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise CorruptError("a buffer of an Arrow message is outside its body")
        total += _decompressed_bytes(body, offset, length) if is_compressed else length
    return batch.number(0), total


def _decompressed_bytes(body: memoryview, offset: int, length: int) -> int:
    if not length:
        return 0
    (stated,) = _LENGTH.unpack_from(body, offset)
    content = length - _LENGTH.size
    if stated == _NOT_COMPRESSED:
        return content
    if not 0 <= stated <= content * _ZSTD_RATIO_MAX + _BLOCK_BYTES:
        raise CorruptError(f"a buffer of {content} bytes cannot decompress to {stated}")
    return int(stated)


class _Table:
    """A table of a flatbuffer: fields by their number, found through a table of offsets."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position
        (back,) = struct.unpack_from("<i", data, position)
        self._fields = position - back
        if self._fields < 0:
            raise ValueError
        (self._fields_bytes,) = struct.unpack_from("<H", data, self._fields)

    def _place(self, field: int) -> int | None:
        """Return where the field's value or offset is, ``None`` if the table has no such field."""
        at = 4 + 2 * field
        if at + 2 > self._fields_bytes:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + at)
        return self._position + offset if offset else None

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        if place is None:
            return None
        return place + int(struct.unpack_from("<I", self._data, place)[0])

    def number(self, field: int) -> int:
        """Return a field that is an i64; 0 if it is absent."""
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from("<q", self._data, place)[0])

    def table(self, field: int) -> _Table | None:
        """Return a field that is a table."""
        target = self._target(field)
        return None if target is None else _Table(self._data, target)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a field that is a vector of pairs of i64."""
        target = self._target(field)
        if target is None:
            return []
        (count,) = struct.unpack_from("<I", self._data, target)
        end = target + 4 + 16 * count
        if end > len(self._data):
            raise ValueError
        return list(struct.iter_unpack("<qq", self._data[target + 4 : end]))
