"""Blocks of SST files: checksum and compression; entries of the small blocks, one by one.

Layer: rocks. RocksDB's block-based tables of format versions 2 to 6. Grammar: ``table.py``, and

    checksum of crc32c, xxhash, xxhash64 := over body compression; the lower 32 bits
    body  := bytes                                           ; compression 0
           | snappy block                                    ; 1
           | varint bytes  lz4 block                         ; 4, 5
           | varint bytes  zstd frame                        ; 7
    block := entry+  u32 restart[restarts]  u32 restarts     ; of keys and values
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from cairn.checksum import masked_crc32c, xxh3
from cairn.errors import UnsupportedStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAILER_BYTES = 5
MAX_BLOCK_BYTES = 256 << 20
"""A larger block is taken for damage. RocksDB ends a block after some KiB, or one large row."""
_LZ4_RATIO, _LZ4_SPARE_BYTES = 255, 64
"""No more can come out of a compressed byte."""
_LAST_BYTE_FACTOR = 0x6B9083D9
_U32 = 0xFFFFFFFF
_NUMBER_BYTES = 4
_HASH_INDEX = 1 << 31
"""A bit of the number of restarts: there is a hash index behind the restarts."""

_PLAIN, _SNAPPY = 0, 1
_LZ4 = (4, 5)
_SIZED_CODECS: dict[int, Any] = {4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_NO_CHECKSUM, _CRC32C, _XXHASH, _XXHASH64, XXH3 = range(5)


class BadBlockError(Exception):
    """The bytes are not a block; the caller knows the file's name."""


@dataclass(frozen=True, slots=True)
class Handle:
    """Where the body of a block is in its file."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The end of the block with its trailer."""
        return self.offset + self.size + TRAILER_BYTES


@dataclass(frozen=True, slots=True)
class Checksums:
    """How the blocks of one file are checked.

    Attributes:
        kind: RocksDB's number of the checksum.
        base: the file's part of each checksum; 0: there is none.
    """

    kind: int
    base: int = 0

    def check(self, block: memoryview, offset: int) -> None:
        """Verify a block with its trailer.

        Args:
            block: body, compression and checksum.
            offset: the block's place in its file.

        Raises:
            BadBlockError: the checksum is another one.
            UnsupportedStateError: the kind of checksum is not known.
        """
        stored = int.from_bytes(block[-_NUMBER_BYTES:], "little")
        body = block[:-_NUMBER_BYTES]
        if self.kind == _NO_CHECKSUM:
            return
        if self.kind == _CRC32C:
            found = masked_crc32c(body)
        elif self.kind == _XXHASH:
            found = xxhash.xxh32_intdigest(body)
        elif self.kind == _XXHASH64:
            found = xxhash.xxh64_intdigest(body)
        elif self.kind == XXH3:
            found = hash_of_block(bytes(body))
        else:
            raise UnsupportedStateError(f"blocks have a checksum of the unknown kind {self.kind}")
        if (found + self.modifier(offset)) & _U32 != stored:
            raise BadBlockError(f"the block at byte {offset} has another checksum")

    def modifier(self, offset: int) -> int:
        """Return what the checksum of the block at this place has in addition."""
        return self.base and self.base ^ ((offset + (offset >> 32)) & _U32)


def hash_of_block(body: bytes) -> int:
    """Return RocksDB's XXH3 checksum of a body with its compression; 32 bits."""
    return (xxh3(body[:-1]) ^ body[-1] * _LAST_BYTE_FACTOR) & _U32


def unpacked(block: memoryview) -> memoryview:
    """Return the content of a verified block.

    Args:
        block: body, compression and checksum.

    Raises:
        BadBlockError: the body is not what the compression makes.
        UnsupportedStateError: the compression is not known.
    """
    body, compression = block[:-TRAILER_BYTES], block[-TRAILER_BYTES]
    if compression == _PLAIN:
        return body
    if compression == _SNAPPY:
        size, _ = varint(body, 0)
        codec, packed = pa.Codec("snappy"), body
    elif compression in _SIZED_CODECS:
        size, start = varint(body, 0)
        codec, packed = pa.Codec(_SIZED_CODECS[compression]), body[start:]
    else:
        raise UnsupportedStateError(f"blocks have the unknown compression {compression}")
    is_too_much = compression in _LZ4 and size > _LZ4_RATIO * len(packed) + _LZ4_SPARE_BYTES
    if size > MAX_BLOCK_BYTES or is_too_much:
        raise BadBlockError(f"a block of {size} bytes")
    try:
        result = memoryview(codec.decompress(packed, size, asbytes=True))
    except (OSError, ValueError) as problem:
        raise BadBlockError(f"a block cannot be decompressed: {problem}") from problem
    if len(result) != size:
        raise BadBlockError("a block has another size than it says")
    return result


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it.

    Raises:
        BadBlockError: there is none.
    """
    result = shift = 0
    while at < len(data) and shift < 64:  # noqa: PLR2004 - RocksDB's largest numbers
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last group of bits
            return result, at
        shift += 7
    raise BadBlockError("a block ends within a number")


def handle_at(data: memoryview, at: int = 0) -> tuple[Handle, int]:
    """Return the handle at a place, and the place behind it."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return Handle(offset, size), at


def restarts_at(block: memoryview) -> tuple[int, int]:
    """Return where the restarts of a block begin, and how many there are.

    Raises:
        BadBlockError: there is no room for them.
        UnsupportedStateError: the block has a hash index.
    """
    count = int.from_bytes(block[-_NUMBER_BYTES:], "little")
    if count & _HASH_INDEX:
        raise UnsupportedStateError("data blocks have hash indexes")
    start = len(block) - _NUMBER_BYTES * (count + 1)
    if start < 0:
        raise BadBlockError("a block is shorter than its restarts")
    return start, count


def entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the keys and values of a small block: metaindex, properties, deleted ranges."""
    end, _ = restarts_at(block)
    body = block[:end]
    at, key = 0, b""
    while at < end:
        shared, at = varint(body, at)
        unshared, at = varint(body, at)
        size, at = varint(body, at)
        key_end = at + unshared
        if shared > len(key) or key_end + size > end:
            raise BadBlockError("an entry does not fit into its block")
        key = key[:shared] + bytes(body[at:key_end])
        at = key_end + size
        yield key, body[key_end:at]


def index_entries(block: memoryview, *, are_values_sized: bool) -> Iterator[tuple[bytes, Handle]]:
    """Yield for each data block a key that is not below its last one, and its handle.

    Args:
        block: the content of the index block.
        are_values_sized: as RocksDB wrote it before its format version 4; otherwise an entry that
            shares bytes of the key before it has only the difference of the sizes.
    """
    end, _ = restarts_at(block)
    body = block[:end]
    at, key, handle = 0, b"", Handle(0, 0)
    while at < end:
        shared, at = varint(body, at)
        unshared, at = varint(body, at)
        if are_values_sized:
            _, at = varint(body, at)
        if shared > len(key) or at + unshared > end:
            raise BadBlockError("an entry does not fit into the index")
        key = key[:shared] + bytes(body[at : at + unshared])
        at += unshared
        if are_values_sized or not shared:
            handle, at = handle_at(body, at)
        else:
            zigzag, at = varint(body, at)
            handle = Handle(handle.end, handle.size + (zigzag >> 1 ^ -(zigzag & 1)))
        yield key, handle
