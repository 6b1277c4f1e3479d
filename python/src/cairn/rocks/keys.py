r"""Keys inside RocksDB.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.  Big-endian, so that bytes sort as numbers do.

    rocks_key := u16be cf  key                                  ; single-value family
               | u16be cf  escaped(key) 00 01  u64be version    ; multi-value: chunks of a list
    escaped   := key with each 00 written as 00 FF

The terminator 00 01 sorts below every continuation of an escaped key (00 FF, or a byte above 00),
so the chunks of one key are adjacent and keys keep their order.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CF = struct.Struct(">H")
_VERSION = struct.Struct(">Q")
MAX_CF = 0xFFFF
"""The shim creates no family of this id, so that there is a key above those of all families."""
CF_BYTES = 2
BELOW_ALL_KEYS = b"\0"
"""No row has this key: it is shorter than a family's id."""
ABOVE_ALL_KEYS = b"\xff\xff\xff"
"""Above all keys, but for those of family ``MAX_CF`` that begin with FF."""
_END = b"\x00\x01"
_AFTER_END = b"\x00\x02"
VERSION_BYTES = _VERSION.size
CHUNK_SUFFIX_BYTES = len(_END) + VERSION_BYTES


def family_start(cf: int) -> bytes:
    """Return the first possible key of family ``cf``."""
    return _CF.pack(cf)


def family_end(cf: int) -> bytes:
    """Return a key above all keys of family ``cf``, for an exclusive bound."""
    return _CF.pack(cf + 1) if cf < MAX_CF else ABOVE_ALL_KEYS


def list_start(cf: int, key: bytes) -> bytes:
    """Return the prefix of all chunks of a multi-value ``key``, and of no other key."""
    return _CF.pack(cf) + key.replace(b"\x00", b"\x00\xff") + _END


def list_end(cf: int, key: bytes) -> bytes:
    """Return the first possible key above all chunks of ``key``."""
    return _CF.pack(cf) + key.replace(b"\x00", b"\x00\xff") + _AFTER_END


def lists(cf: int, keys: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return ``list_start`` and ``list_end`` of each key."""
    prefix = _CF.pack(cf)
    names = [prefix + key.replace(b"\x00", b"\x00\xff") for key in keys]
    return [(name + _END, name + _AFTER_END) for name in names]


def successor(prefix: bytes) -> bytes | None:
    """Return the first key above all keys that begin with a prefix; ``None``: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def chunk_keys(cf: int, keys: Iterable[bytes], version: int) -> list[bytes]:
    """Return for each multi-value key that of its chunk of appends up to ``version``."""
    prefix, suffix = _CF.pack(cf), _END + _VERSION.pack(version)
    return [prefix + key.replace(b"\x00", b"\x00\xff") + suffix for key in keys]


def key_of_chunk(rocks_key: bytes) -> bytes:
    """Return the multi-value key of a chunk."""
    return rocks_key[CF_BYTES:-CHUNK_SUFFIX_BYTES].replace(b"\x00\xff", b"\x00")


def keys_of_chunks(rocks_keys: Iterable[bytes]) -> list[bytes]:
    """Return ``key_of_chunk`` of each; without a call for each."""
    body = slice(CF_BYTES, -CHUNK_SUFFIX_BYTES)
    return [key[body].replace(b"\x00\xff", b"\x00") for key in rocks_keys]


def scan_bounds(
    cf: int, *, multi: bool, start: bytes | None, inclusive: bool, end: bytes | None
) -> tuple[bytes, bytes]:
    """Return the first RocksDB key of a scan of a family, and the key above the last.

    Args:
        cf: the family's id.
        multi: whether its values are lists.
        start: first key, or ``None`` for the family's first.
        inclusive: whether the scan includes ``start``.
        end: the key above the last, or ``None`` for the family's end.
    """
    if multi:
        low = None if start is None else (list_start if inclusive else list_end)(cf, start)
        high = None if end is None else list_start(cf, end)
    else:
        prefix = family_start(cf)
        low = None if start is None else prefix + start + (b"" if inclusive else b"\x00")
        high = None if end is None else prefix + end
    return (
        family_start(cf) if low is None else low,
        family_end(cf) if high is None else high,
    )
