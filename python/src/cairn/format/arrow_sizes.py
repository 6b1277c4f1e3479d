"""How many rows and bytes an Arrow IPC stream has after decompression, read without decoding it.

Layer: format.  Spec: https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message

A compressed buffer begins with its length after decompression, and Arrow allocates that much. So a
few bytes could make the worker use all memory of its machine.

    Message     := table {1: u8 header_type, 2: table header, ...}
    RecordBatch := table {0: i64 rows, 2: vector of Buffer, 3: table compression, ...}
    Buffer      := struct {i64 offset, i64 length}      ; of the message's body
    body buffer := i64 decompressed_length (-1: not compressed)  data   ; if there is a compression
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD_BATCH = 3
_HEADER_TYPE, _HEADER = 1, 2
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_U8, _U16, _U32, _I32, _I64 = (struct.Struct(f"<{code}") for code in "BHIiq")
_BUFFER = struct.Struct("<qq")


def batch_sizes(stream: pa.Buffer) -> Iterator[tuple[int, int]]:
    """Yield rows and decompressed bytes of each record batch in a stream.

    Raises:
        ValueError, struct.error: a message does not follow the grammar.
        pyarrow.ArrowException: Arrow refused its frame.
    """
    reader = pa.ipc.MessageReader.open_stream(stream)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        metadata = memoryview(message.metadata)
        root = _U32.unpack_from(metadata)[0]
        at = _field(metadata, root, _HEADER_TYPE)
        if at and _U8.unpack_from(metadata, at)[0] == _RECORD_BATCH:
            body = memoryview(b"" if message.body is None else message.body)
            yield _size_of(metadata, _table(metadata, root, _HEADER), body)


def _size_of(metadata: memoryview, batch: int, body: memoryview) -> tuple[int, int]:
    at = _field(metadata, batch, _ROWS)
    rows = _I64.unpack_from(metadata, at)[0] if at else 0
    is_compressed = _field(metadata, batch, _COMPRESSION) != 0
    vector = _table(metadata, batch, _BUFFERS)
    count = _U32.unpack_from(metadata, vector)[0]
    size = 0
    for index in range(count):
        offset, length = _BUFFER.unpack_from(metadata, vector + _U32.size + index * _BUFFER.size)
        if offset < 0 or length < 0:
            raise ValueError("a buffer lies outside of its message")
        if length and is_compressed:
            decompressed = _I64.unpack_from(body, offset)[0]
            if decompressed < -1:
                raise ValueError("a buffer has a negative length")
            length = max(decompressed, 0) or length
        size += length
    return rows, size


def _field(data: memoryview, table: int, field: int) -> int:
    """Return where a table's field is, 0 if it has its default."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise ValueError("a table lies outside of its message")
    entry = _U16.size * (2 + field)
    if entry >= _U16.unpack_from(data, vtable)[0]:
        return 0
    offset: int = _U16.unpack_from(data, vtable + entry)[0]
    return table + offset if offset else 0


def _table(data: memoryview, table: int, field: int) -> int:
    """Return where the table or vector of a field is."""
    at = _field(data, table, field)
    if not at:
        raise ValueError("a message lacks a field")
    return at + int(_U32.unpack_from(data, at)[0])
