"""Frames of the data channel: header, kinds, and the Arrow schema of each payload.

Layer: protocol.  Spec: docs/protocol.md#data-channel.  Little-endian.

    frame  := header payload
    header := u32 magic = "CRNF"  u8 protocol = 1  u8 kind  u16 flags  u64 session  u64 sequence
              u64 applied  u32 rows  u32 payload_bytes                                   ; 40 bytes

    lookup       := u16 cf  u32 key_bytes[rows]  key[rows]
    lookup_reply := u8 origin[rows]  u32 value_bytes[rows]  value[rows]   ; 0xFFFFFFFF: no value
    commit_reply := u64 changelog_bytes  u64 snapshot_version  u64 estimated_keys
                    u64 memtable_bytes  u64 sst_bytes  u64 snapshot_bytes_left
                    u32 lineage_versions  u32 wait_us  u32 encode_us  u32 put_us
                    u32 memory_wait_us  u32 snapshot_wait_us
                    { u16 cf  u64 keys }[rows]  checkpoint_id
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from cairn.errors import CairnError, CorruptError, ProtocolError, unexpected
from cairn.format.arrow_message import check_record_batch
from cairn.format.changelog import CHANGELOG_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

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
LOOKUP = 0x06
COMMIT = 0x08
RANGES = 0x09
SERVE_FILES = 0x0A
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

MAX_RANGES = 16_384
MAX_LOOKUP_KEYS = 64
MAX_LOOKUP_BYTES = 16 << 10
_NO_VALUE = 0xFFFFFFFF
# Whole frames of one key. The first word is magic, protocol, kind and flags; the fifth is the
# number of rows, and above it the length of the payload.
_LOOKUP_OF_ONE = struct.Struct("<QQQQQHI")
_REPLY_TO_ONE = struct.Struct("<QQQQQBI")
_LOOKUP_WORD, _LOOKUP_REPLY_WORD = (
    _MAGIC | PROTOCOL << 32 | kind << 40 for kind in (LOOKUP, LOOKUP | REPLY)
)
_MAX_LOOKUP_FRAME_BYTES = HEADER_BYTES + MAX_LOOKUP_BYTES
# One key, and the reply's origin and length of its value.
_REPLY_TO_ONE_BYTES = _REPLY_TO_ONE.size - HEADER_BYTES


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
RANGES_SCHEMA = pa.schema(
    [_required("cf", pa.uint16()), _required("from", pa.binary()), pa.field("to", pa.binary())]
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
            f"the shim uses protocol {protocol}, this engine {PROTOCOL}",
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
        message = pa.ipc.read_message(pa.py_buffer(payload))
        check_record_batch(message, may_compress=False)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
    except MemoryError as failure:  # Arrow's is an ArrowException, too
        raise unexpected(failure) from failure
    except (pa.ArrowException, CorruptError, OSError, EOFError) as failure:
        raise ProtocolError(f"a payload is not a record batch of its kind: {failure}") from failure
    return batch


def decode_lookup(payload: bytes, rows: int) -> tuple[int, list[bytes]]:
    """Return family and keys of a LOOKUP.

    Raises:
        ProtocolError: over the limits, or not exactly ``rows`` keys.
    """
    if not 0 < rows <= MAX_LOOKUP_KEYS or len(payload) > MAX_LOOKUP_BYTES:
        raise ProtocolError(
            f"a lookup of {rows} keys in {len(payload)} bytes is over the limits of "
            f"{MAX_LOOKUP_KEYS} and {MAX_LOOKUP_BYTES}, or empty"
        )
    try:
        cf, *sizes = struct.unpack_from(f"<H{rows}I", payload)
    except struct.error as failure:
        raise ProtocolError("a lookup is shorter than the lengths of its keys") from failure
    keys: list[bytes] = []
    end = struct.calcsize(f"<H{rows}I")
    for size in sizes:
        start, end = end, end + size
        keys.append(payload[start:end])
    if end != len(payload):
        raise ProtocolError("the keys of a lookup have other lengths than it says")
    return cf, keys


def decode_lookup_of_one(
    received: memoryview, size: int
) -> tuple[int, int, int, int, bytes] | None:
    """Return session, sequence, required version, family and key of a LOOKUP of one key.

    ``None`` if the first ``size`` bytes are not exactly one such frame.
    """
    if not _LOOKUP_OF_ONE.size <= size <= _MAX_LOOKUP_FRAME_BYTES:
        return None
    word, session, sequence, applied, lengths, cf, key_bytes = _LOOKUP_OF_ONE.unpack_from(received)
    if (
        word != _LOOKUP_WORD
        or lengths != 1 | (size - HEADER_BYTES) << 32
        or key_bytes != size - _LOOKUP_OF_ONE.size
    ):
        return None
    return session, sequence, applied, cf, bytes(received[_LOOKUP_OF_ONE.size : size])


def encode_lookup_reply(origins: Sequence[int], values: Sequence[bytes | None]) -> bytes:
    """Return the payload of a reply to LOOKUP."""
    sizes = (_NO_VALUE if value is None else len(value) for value in values)
    lengths = struct.pack(f"<{len(values)}I", *sizes)
    return b"".join((bytes(origins), lengths, *filter(None, values)))


def encode_reply_to_one(
    session: int, sequence: int, applied: int, row: tuple[int, bytes | None]
) -> bytes:
    """Return the whole frame that answers a LOOKUP of one key; ``row``: its origin and value."""
    origin, value = row
    if value is None:
        lengths = 1 | _REPLY_TO_ONE_BYTES << 32
        return _REPLY_TO_ONE.pack(
            _LOOKUP_REPLY_WORD, session, sequence, applied, lengths, origin, _NO_VALUE
        )
    size = len(value)
    lengths = 1 | (_REPLY_TO_ONE_BYTES + size) << 32
    return (
        _REPLY_TO_ONE.pack(_LOOKUP_REPLY_WORD, session, sequence, applied, lengths, origin, size)
        + value
    )


def encode_refusal(error: CairnError) -> bytes:
    """Return the whole frame that ends a connection which has made no request."""
    payload = encode_error(error)
    return encode_header(Header(ERROR, 0, 0, 0, 0, 0, len(payload))) + payload


def encode_error(error: CairnError) -> bytes:
    """Return the payload of an ERROR frame."""
    return json.dumps(error.to_dict()).encode()
