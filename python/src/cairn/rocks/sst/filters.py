"""may_have: asks the filter block of an SST file for a key, whichever of RocksDB's writers made it.

Layer: rocks. Numbers are little-endian. ``bloom.py`` has the older format, which a file of
``TableWriter`` has; the newer one, of RocksDB itself, is

    filter  := line[lines]  u8 255  u8 0  u8 probes  zeros[2]
    line    := 64 bytes: 512 bits, the lowest bit of a byte first
    hash    := u64, ``_hash``; low and high are its halves
    the line of a key := low * lines >> 32
    its bits          := n-th: (high * 0x9e3779b9 ** n mod 2**32) >> 23, for n = 0 .. probes-1

The hash is a preview of XXH3, which RocksDB keeps. Only that of keys up to 128 bytes is here.
"""

from __future__ import annotations

import struct

import numpy as np

from cairn.rocks.sst.bloom import key_hashes

_TRAILER_BYTES = 5
_LINE_BYTES = 64
_IS_NEWER, _FAST_BLOOM = 255, 0
_MAX_PROBES = 30
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_GOLDEN = 0x9E3779B9
_MAX_KEY_BYTES = 128
_PRIME32_1 = 0x9E3779B1
_PRIME64_1, _PRIME64_2, _PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_SECRET = struct.unpack(
    "<16Q",
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
)


def may_have(block: memoryview, key: bytes) -> bool:
    """Return whether a file may have a key; also if the filter is of an unknown kind.

    Args:
        block: the content of the filter block.
        key: without sequence number.
    """
    lines, kind = block[:-_TRAILER_BYTES], block[-_TRAILER_BYTES:]
    if not len(lines) or len(lines) % _LINE_BYTES:
        return True
    found = _newer(lines, kind, key) if kind[0] == _IS_NEWER else _older(lines, kind, key)
    if found is None:
        return True
    line, places = found
    return all(line[place >> 3] >> (place & 7) & 1 for place in places)


def _newer(lines: memoryview, kind: memoryview, key: bytes) -> tuple[memoryview, list[int]] | None:
    """Return the line of a key and the places of its bits; ``None`` if they are not known."""
    _, second, probes, *zeros = kind
    if second != _FAST_BLOOM or not 0 < probes <= _MAX_PROBES or any(zeros):
        return None
    if len(key) > _MAX_KEY_BYTES:
        return None
    found = _hash(key)
    line = (found & _U32) * (len(lines) // _LINE_BYTES) >> 32
    bits, places = found >> 32, []
    for _ in range(probes):
        places.append(bits >> 23)
        bits = bits * _GOLDEN & _U32
    return lines[line * _LINE_BYTES :], places


def _older(lines: memoryview, kind: memoryview, key: bytes) -> tuple[memoryview, list[int]] | None:
    """Return what ``_newer`` does."""
    probes, count = kind[0], int.from_bytes(kind[1:], "little")
    if count * _LINE_BYTES != len(lines) or not 0 < probes <= _MAX_PROBES:
        return None
    found = int(key_hashes(np.frombuffer(key, np.uint8).reshape(1, len(key)))[0])
    step = found >> 17 | found << 15 & _U32
    places = [(found + number * step) % (8 * _LINE_BYTES) for number in range(probes)]
    return lines[found % count * _LINE_BYTES :], places


def _hash(key: bytes) -> int:
    """Return the 64-bit hash of a key of up to 128 bytes."""
    size = len(key)
    if size > 16:  # noqa: PLR2004 - the hash has a form for each range of sizes
        result = size * _PRIME64_1
        for part in range((size - 1) // 32, -1, -1):
            result += _mixed(key, 16 * part, 4 * part)
            result += _mixed(key, size - 16 * (part + 1), 4 * part + 2)
        return _avalanche(result)
    if size > 8:  # noqa: PLR2004 - see above
        first = _number(key, 0, 8) ^ _SECRET[0]
        last = _number(key, size - 8, 8) ^ _SECRET[1]
        return _avalanche(size + first + last + _folded(first, last))
    if size >= 4:  # noqa: PLR2004 - see above
        keyed = _number(key, 0, 4) + (_number(key, size - 4, 4) << 32) ^ _SECRET[0]
        mixed = size + (keyed ^ keyed >> 51) * _PRIME32_1 & _U64
        return _avalanche((mixed ^ mixed >> 47) * _PRIME64_2)
    if size:
        keyed = key[0] | key[size >> 1] << 8 | key[-1] << 16 | size << 24
        return _avalanche((keyed ^ _SECRET[0] & _U32) * _PRIME64_1)
    return 0


def _mixed(key: bytes, at: int, secret: int) -> int:
    first = _number(key, at, 8) ^ _SECRET[secret]
    return _folded(first, _number(key, at + 8, 8) ^ _SECRET[secret + 1])


def _folded(one: int, other: int) -> int:
    product = one * other
    return product & _U64 ^ product >> 64


def _number(key: bytes, at: int, size: int) -> int:
    return int.from_bytes(key[at : at + size], "little")


def _avalanche(value: int) -> int:
    value &= _U64
    value = (value ^ value >> 37) * _PRIME64_3 & _U64
    return value ^ value >> 32
