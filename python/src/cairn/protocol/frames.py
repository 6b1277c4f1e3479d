"""Frames of the data channel: header, kinds, and the Arrow schema of each payload.

Layer: protocol.  Spec: docs/protocol.md#data-channel.  Little-endian.

    frame  := header payload
    header := u32 magic = "CRNF"  u8 protocol = 1  u8 kind  u16 flags  u64 session  u64 sequence
              u64 applied  u32 rows  u32 payload_bytes                                   ; 40 bytes
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

import pyarrow as pa

from cairn.errors import CairnError, ProtocolError
from cairn.format.changelog import CHANGELOG_SCHEMA

PROTOCOL = 1
_MAGIC = int.from_bytes(b"CRNF", "little")
_HEADER = struct.Struct("<IBBHQQQII")
HEADER_BYTES = _HEADER.size
MAX_PAYLOAD_BYTES = 64 << 20
# Larger than a request's limit: many frames may append to one list, and a read returns it whole.
MAX_REPLY_BYTES = 1 << 30

# Kinds. DO NOT RENUMBER: the shim uses the same numbers for all values below.
HELLO = 0x01
WRITES = 0x02
GET = 0x03
SCAN = 0x04
CHANGES = 0x05
REPLY = 0x80
ERROR = 0xFF
FLAG_MORE = 0x0001

# Whether a written key is among the committed ones, if the shim knows.
PRESENCE_UNKNOWN = 0
PRESENCE_PRESENT = 1
PRESENCE_ABSENT = 2

# Where the value in a reply comes from.
ORIGIN_ABSENT = 0
ORIGIN_COMMITTED = 1
ORIGIN_SPILL = 2
ORIGIN_DELETED = 3


def _required(name: str, kind: pa.DataType) -> pa.Field[Any]:
    return pa.field(name, kind, nullable=False)


WRITES_SCHEMA = CHANGELOG_SCHEMA.append(_required("presence", pa.uint8()))
GET_SCHEMA = pa.schema([_required("cf", pa.uint16()), _required("key", pa.binary())])
GET_REPLY_SCHEMA = pa.schema([_required("origin", pa.uint8()), pa.field("value", pa.binary())])
SCAN_SCHEMA = pa.schema(
    [
        _required("cf", pa.uint16()),
        pa.field("from", pa.binary()),
        _required("from_inclusive", pa.uint8()),
        pa.field("to", pa.binary()),
        _required("limit_rows", pa.uint32()),
        _required("limit_bytes", pa.uint32()),
    ]
)
SCAN_REPLY_SCHEMA = pa.schema(
    [
        _required("origin", pa.uint8()),
        _required("key", pa.binary()),
        _required("value", pa.binary()),
    ]
)
CHANGES_SCHEMA = pa.schema(
    [
        _required("version", pa.uint64()),
        _required("checkpoint_id", pa.binary()),
        _required("from_row", pa.uint64()),
        _required("limit_rows", pa.uint32()),
    ]
)
CHANGES_REPLY_SCHEMA = CHANGELOG_SCHEMA


class Header(NamedTuple):
    """A frame's header without its constant fields."""

    kind: int
    flags: int
    session: int
    sequence: int
    applied: int
    rows: int
    payload_bytes: int


def decode_header(buffer: bytes | bytearray | memoryview, offset: int = 0) -> Header:
    """Return the header at ``offset``.

    Raises:
        ProtocolError: not a frame of this protocol, or over the limit. The connection must be
            closed, because the start of the next frame is unknown.
    """
    magic, protocol, *rest = _HEADER.unpack_from(buffer, offset)
    header = Header(*rest)
    if magic != _MAGIC:
        raise ProtocolError("a message on the data channel does not begin with CRNF")
    if protocol != PROTOCOL:
        raise ProtocolError(
            f"the shim speaks protocol {protocol}, this engine {PROTOCOL}",
            next_step="install the shim jar and the Python package of one release",
        )
    if header.payload_bytes > MAX_PAYLOAD_BYTES:
        raise ProtocolError(
            f"a frame of {header.payload_bytes} bytes is over the limit of {MAX_PAYLOAD_BYTES}"
        )
    return header


def encode_header(header: Header) -> bytes:
    """Return the 40 bytes of a header."""
    return _HEADER.pack(_MAGIC, PROTOCOL, *header)


def decode_rows(payload: pa.Buffer | memoryview | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch in a payload that ``batch.serialize()`` returned.

    The columns of the batch point into ``payload``.

    Raises:
        ProtocolError: the payload is not a record batch of ``schema``.
    """
    try:
        return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)
    except (pa.ArrowException, OSError, EOFError) as failure:
        raise ProtocolError(f"a payload is not a record batch of its kind: {failure}") from failure


def encode_error(error: CairnError) -> bytes:
    """Return the payload of an ERROR frame."""
    return json.dumps(error.to_dict()).encode()
