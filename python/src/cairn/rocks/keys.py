r"""Keys inside RocksDB.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.  Big-endian, so that bytes sort as numbers do.

    rocks_key := u16be cf  key                                  ; single-value family
               | ff ff  u16be cf  key                           ; multi-value: the head of a list
               | u16be cf  escaped(key) 00 01  u64be version    ; multi-value: a chunk after it
    escaped   := key with each 00 written as 00 FF

The terminator 00 01 sorts below every continuation of an escaped key (00 FF, or a byte above 00),
so the chunks of one key are adjacent and keys keep their order. No family has the id FFFF.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_CF = struct.Struct(">H")
_HEAD_CF = struct.Struct(">HH")
_VERSION = struct.Struct(">Q")
_HEADS = 0xFFFF
BELOW_ALL_KEYS = b"\0"
"""No row has this key: it is shorter than a family's id."""
ABOVE_ALL_KEYS = b"\xff\xff\xff\xff"
"""Above the keys of all families."""
_END = b"\x00\x01"
_AFTER_END = b"\x00\x02"
_CF_BYTES = _CF.size
VERSION_BYTES = _VERSION.size
_CHUNK_SUFFIX_BYTES = len(_END) + VERSION_BYTES


def row_prefix(cf: int, *, is_list: bool = False) -> bytes:
    """Return the first bytes of the keys of a family's rows, or of the heads of its lists."""
    return _HEAD_CF.pack(_HEADS, cf) if is_list else _CF.pack(cf)


def row_bounds(
    prefix: bytes, *, start: bytes | None, inclusive: bool, end: bytes | None
) -> tuple[bytes, bytes]:
    """Return the first RocksDB key of a scan, and the key above the last.

    Args:
        prefix: of ``row_prefix``.
        start: first key, or ``None`` for the family's first.
        inclusive: whether the scan includes ``start``.
        end: the key above the last, or ``None`` for the family's end.
    """
    low = prefix + (start or b"") + (b"" if inclusive or start is None else b"\x00")
    return low, (successor(prefix) or ABOVE_ALL_KEYS) if end is None else prefix + end


def chunk_bounds(
    cf: int, *, start: bytes | None, inclusive: bool, end: bytes | None
) -> tuple[bytes, bytes]:
    """Return what ``row_bounds`` does, for the chunks of lists."""
    prefix = _CF.pack(cf)
    low = (
        prefix if start is None else prefix + _escaped(start) + (_END if inclusive else _AFTER_END)
    )
    high = _CF.pack(cf + 1) if end is None else prefix + _escaped(end) + _END
    return low, high


def chunks_of(cf: int, keys: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return for each list the first possible key of its chunks, and a key above the last."""
    prefix = _CF.pack(cf)
    names = [prefix + key.replace(b"\x00", b"\x00\xff") for key in keys]
    return [(name + _END, name + _AFTER_END) for name in names]


def chunk_keys(cf: int, keys: Iterable[bytes], version: int) -> list[bytes]:
    """Return for each list the key of its chunk of appends up to ``version``."""
    prefix, suffix = _CF.pack(cf), _END + _VERSION.pack(version)
    return [prefix + key.replace(b"\x00", b"\x00\xff") + suffix for key in keys]


def key_of_chunk(rocks_key: bytes) -> bytes:
    """Return the key of the list that has a chunk."""
    return rocks_key[_CF_BYTES:-_CHUNK_SUFFIX_BYTES].replace(b"\x00\xff", b"\x00")


def are_of_one_list(chunk: bytes, other: bytes) -> bool:
    """Return whether two RocksDB keys are those of chunks of one list."""
    return chunk[:-VERSION_BYTES] == other[:-VERSION_BYTES]


# The functions for many keys escape without a call for each.
def _escaped(key: bytes) -> bytes:
    return key.replace(b"\x00", b"\x00\xff")


def successor(prefix: bytes) -> bytes | None:
    """Return the first key above all keys that begin with a prefix; ``None``: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None
