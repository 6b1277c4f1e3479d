"""Frames of storage connections: requests to the shim for files, and its replies.

Layer: protocol.  Spec: docs/protocol.md#storage-connections.  Little-endian.

    file_status := u64 size_bytes  u64 modified_ms
    file_read   := u64 offset  u64 length  path
    file_write  := u8 mode  path
    file_rename := u8 replaces  u32 from_bytes  from  to
    listing     := { file_status  u32 path_bytes  path }[rows]
    paths       := { u32 path_bytes  path }[rows]
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from cairn.errors import CairnError, ProtocolError, error_of
from cairn.protocol import frames
from cairn.protocol.frames import Header

if TYPE_CHECKING:
    from collections.abc import Sequence

# Kinds. DO NOT RENUMBER: the shim uses the same numbers.
FILE_READ = 0x10
FILE_WRITE = 0x11
FILE_DATA = 0x12
FILE_RENAME = 0x13
FILE_STATUS = 0x14
FILE_LIST = 0x15
FILE_DELETE = 0x16
FILE_SYSTEM = 0x17

MAX_DATA_BYTES = 256 << 10
MAX_REPLY_BYTES = 1 << 20
MAX_DELETE_PATHS = 100
PUBLISHES_BY_RENAME: Final = 1
PUBLISHES_BY_CLOSE: Final = 2

_MAX_SIZE_BYTES = 1 << 62
_MAX_MODIFIED_MS = 253_402_300_799_000
"""The end of the year 9999."""
_STATUS = struct.Struct("<QQ")
_NO_SEGMENTS = frozenset({"", ".", ".."})
_ENTRY = struct.Struct("<QQI")
_LENGTH = struct.Struct("<I")
_RENAME = struct.Struct("<BI")
_WRITTEN = struct.Struct("<Q")


class FileStatus(NamedTuple):
    """Length of a file, and its time by the file system's clock, in ms since 1970."""

    size_bytes: int
    modified_ms: int


def request(kind: int, file_system: int, sequence: int, payload: bytes, rows: int = 0) -> bytes:
    """Return the frame of a request."""
    header = Header(kind, 0, file_system, sequence, 0, rows, len(payload))
    return frames.encode_header(header) + payload


def data_header(file_system: int, sequence: int, size: int, *, has_more: bool) -> bytes:
    """Return the header of a FILE_DATA whose ``size`` bytes follow."""
    flags = frames.FLAG_MORE if has_more else 0
    return frames.encode_header(Header(FILE_DATA, flags, file_system, sequence, 0, 0, size))


def read_payload(path: str, offset: int, length: int) -> bytes:
    """Return the payload of FILE_READ."""
    return _STATUS.pack(offset, length) + path.encode()


def write_payload(path: str, *, replaces: bool) -> bytes:
    """Return the payload of FILE_WRITE."""
    return (b"\0" if replaces else b"\1") + path.encode()


def rename_payload(source: str, target: str, *, replaces: bool) -> bytes:
    """Return the payload of FILE_RENAME."""
    encoded = source.encode()
    return _RENAME.pack(int(replaces), len(encoded)) + encoded + target.encode()


def delete_payload(paths: Sequence[str]) -> bytes:
    """Return the payload of FILE_DELETE."""
    encoded = [path.encode() for path in paths]
    return b"".join(_LENGTH.pack(len(path)) + path for path in encoded)


def decode_status(payload: bytes) -> FileStatus:
    """Return a ``file_status``.

    Raises:
        ProtocolError: the payload is not one, as in all functions below.
    """
    try:
        return _checked(FileStatus(*_STATUS.unpack(payload)))
    except struct.error as failure:
        raise ProtocolError("a reply is not the status of a file") from failure


def _checked(status: FileStatus) -> FileStatus:
    if status.size_bytes > _MAX_SIZE_BYTES or status.modified_ms > _MAX_MODIFIED_MS:
        raise ProtocolError(
            f"a file has {status.size_bytes} bytes and is of {status.modified_ms} ms after 1970"
        )
    return status


def decode_written(payload: bytes) -> int:
    """Return the bytes that a FILE_WRITE has written."""
    try:
        (written,) = _WRITTEN.unpack(payload)
    except struct.error as failure:
        raise ProtocolError("a reply is not a number of bytes") from failure
    return int(written)


def decode_publishing(payload: bytes) -> int:
    """Return how files of a file system appear: one of the two constants above."""
    if payload not in (bytes([PUBLISHES_BY_RENAME]), bytes([PUBLISHES_BY_CLOSE])):
        raise ProtocolError("a reply does not say how files appear")
    return payload[0]


def decode_listing(payload: bytes, rows: int) -> list[tuple[str, FileStatus]]:
    """Return the files of one frame of a listing; no path leads out of the folder."""
    found: list[tuple[str, FileStatus]] = []
    offset = 0
    try:
        for _ in range(rows):
            *status, size = _ENTRY.unpack_from(payload, offset)
            offset += _ENTRY.size + size
            path = payload[offset - size : offset].decode()
            if not _NO_SEGMENTS.isdisjoint(path.split("/")):
                raise ProtocolError(f"a listing has the path {path[:80]!r}")
            found.append((path, _checked(FileStatus(*status))))
    except (struct.error, UnicodeDecodeError) as failure:
        raise ProtocolError("a listing has other rows than it says") from failure
    if offset != len(payload):
        raise ProtocolError("a listing has other rows than it says")
    return found


def decode_failure(payload: bytes, object_name: str) -> CairnError:
    """Return the error in an ERROR frame."""
    try:
        fields = json.loads(payload)
        return error_of(fields).with_context(object_name=object_name)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ProtocolError("an error of the shim is not JSON", object_name=object_name)
