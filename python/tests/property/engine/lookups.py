"""LOOKUP frames as the shim writes and reads them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.protocol.frames import Header

NO_VALUE = 0xFFFFFFFF


def lookup(cf: int, keys: list[bytes]) -> bytes:
    """Return the payload of a LOOKUP."""
    return struct.pack(f"<H{len(keys)}I", cf, *map(len, keys)) + b"".join(keys)


def lookup_rows(header: Header, payload: bytes) -> list[tuple[int, bytes | None]]:
    """Return origin and value of each row of a reply."""
    origins = payload[: header.rows]
    sizes = struct.unpack_from(f"<{header.rows}I", payload, header.rows)
    rows: list[tuple[int, bytes | None]] = []
    end = 5 * header.rows
    for origin, size in zip(origins, sizes, strict=True):
        value = None
        if size != NO_VALUE:
            value, end = payload[end : end + size], end + size
        rows.append((origin, value))
    assert end == len(payload)
    return rows
