"""Reads an SST file of RocksDB without RocksDB, and checks each checksum."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from cairn.checksum import xxh3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOOTER_BYTES = 53
TRAILER_BYTES = 5
_XXH3 = 4
_LZ4 = 4
_CODEC = pa.Codec("lz4_raw")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the place after it."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return result, at


@dataclass(frozen=True)
class Handle:
    """The place of a block's body in the file."""

    offset: int
    size: int


@dataclass(frozen=True)
class Entry:
    """One row of a data block; ``shared`` is the length of its prefix of the key before it."""

    key: bytes
    kind: int
    value: bytes
    shared: int


class SstFile:
    """A file of format version 6.

    Attributes:
        meta: the handles of filter, index and properties, by their names.
        properties: values by name.
        index: the key and handle of each data block.
    """

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        footer_at = len(self.data) - FOOTER_BYTES
        footer = self.data[footer_at:]
        self.checksum_type = footer[0]
        checksum, self.base, size = struct.unpack_from("<III", footer, 5)
        version, magic = struct.unpack_from("<IQ", footer, 41)
        assert (footer[1:5], version, magic) == (b"\x3e\x00\x7a\x00", 6, 0x88E241B785F4CFF7)
        assert footer[17:41] == bytes(24)
        assert self.checksum_type == _XXH3
        cleared = footer[:5] + bytes(4) + footer[9:]
        assert checksum == self.checksum(cleared, footer_at)
        metaindex = self.block(Handle(footer_at - TRAILER_BYTES - size, size))
        self.meta = {key.decode(): Handle(*_handle(value)) for key, value, _ in _pairs(metaindex)}
        properties = self.block(self.meta["rocksdb.properties"])
        self.properties = {key.decode(): value for key, value, _ in _pairs(properties)}
        index = self.block(self.meta["rocksdb.index"])
        self.index = [
            (key, Handle(*_handle(value))) for key, value, _ in _pairs(index, sized=False)
        ]

    def checksum(self, data: bytes, at: int) -> int:
        """Return the checksum of a block at this offset, with its type."""
        checksum = xxh3(data[:-1]) ^ data[-1] * 0x6B9083D9
        return int((checksum & 0xFFFFFFFF) + (self.base ^ (at & 0xFFFFFFFF))) & 0xFFFFFFFF

    def block(self, handle: Handle) -> bytes:
        """Return a block, decompressed."""
        end = handle.offset + handle.size
        body = self.data[handle.offset : end]
        (checksum,) = struct.unpack_from("<I", self.data, end + 1)
        assert checksum == self.checksum(self.data[handle.offset : end + 1], handle.offset)
        if self.data[end] != _LZ4:
            assert self.data[end] == 0
            return body
        size, start = varint(body, 0)
        return bytes(_CODEC.decompress(body[start:], size, asbytes=True))

    def entries(self) -> Iterator[list[Entry]]:
        """Yield the entries of each data block."""
        for _, handle in self.index:
            block = self.block(handle)
            entries, starts = [], []
            for at, (key, value, shared) in zip(_places(block), _pairs(block), strict=True):
                assert key[-7:] == bytes(7)
                entries.append(Entry(key[:-8], key[-8], value, shared))
                starts += [at] if not shared else []
            assert restarts(block) == starts
            yield entries

    def number(self, name: str) -> int:
        """Return a property that is a varint."""
        return varint(self.properties["rocksdb." + name], 0)[0]


def restarts(block: bytes) -> list[int]:
    """Return the restarts of a block."""
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    return list(struct.unpack_from(f"<{count}I", block, len(block) - 4 - 4 * count))


def _handle(value: bytes) -> tuple[int, int]:
    offset, at = varint(value, 0)
    size, end = varint(value, at)
    assert end == len(value)
    return offset, size


def _places(block: bytes) -> list[int]:
    return [at for at, _, _, _ in _walk(block, sized=True)]


def _pairs(block: bytes, *, sized: bool = True) -> Iterator[tuple[bytes, bytes, int]]:
    for _, key, value, shared in _walk(block, sized=sized):
        yield key, value, shared


def _walk(block: bytes, *, sized: bool) -> Iterator[tuple[int, bytes, bytes, int]]:
    (count,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * count
    at, key = 0, b""
    while at < end:
        begin = at
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        size = 0
        if sized:
            size, at = varint(block, at)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        if not sized:
            _, after = varint(block, at)
            _, after = varint(block, after)
            size = after - at
        yield begin, key, block[at : at + size], shared
        at += size
    assert at == end
