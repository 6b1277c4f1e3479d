"""TableWriter: an SST file from FixedRows, as RocksDB's writer of external files makes it.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst. RocksDB's block-based table, format version 6.
Numbers are little-endian; ``varint`` has groups of 7 bits, the lowest first.

    file       := data_block+  filter  index  properties  metaindex  footer
    block      := body  u8 compression  u32 checksum     ; each of the first four parts of the file
    body       := bytes                                  ; compression 0
                | varint bytes  lz4 block                ; compression 4
    checksum   := hash(body compression) + (base xor offset of the block)
    hash(b)    := lower 32 bits of xxh3(b without its last byte), xor a constant times the last byte
    handle     := varint offset  varint bytes            ; a block's body
    index      := for each data block: its last key, handle
    properties := name, value; sorted
    metaindex  := the name of filter, index and properties: handle; sorted
    footer     := u8 checksum_type  3e 00 7a 00  u32 checksum  u32 base  u32 metaindex_bytes
                  zeros[24]  u32 format_version  u64 magic

The session id makes the file's blocks distinct from those of other files in a shared block cache.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import InternalError
from cairn.rocks.sst import bloom
from cairn.rocks.sst.blocks import TRAILER_BYTES, XXH3, Checksums, hash_of_block
from cairn.rocks.sst.bloom import BloomFilter
from cairn.rocks.sst.entries import Entries, varint
from cairn.rocks.sst.rows import ascends

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cairn.clock import Entropy
    from cairn.rocks.sst.rows import FixedRows

_FORMAT_VERSION = 6
MAGIC = 0x88E241B785F4CFF7
EXTENDED_MAGIC = b"\x3e\x00\x7a\x00"
_PLAIN, _LZ4 = b"\x00", b"\x04"
_FOOTER = struct.Struct("<B4sIII24xIQ")
_U32 = struct.Struct("<I")
_NO_FAMILY = 0x7FFFFFFF
_SESSION_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SESSION_LENGTH = 20


class TableWriter:
    """Writes one file. One thread at a time.

    Args:
        path: the file; created or replaced.
        block_bytes: about the size of a data block before compression.
        entropy: the source of the session id and of the base of the checksums.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path, block_bytes: int, entropy: Entropy = SYSTEM_ENTROPY) -> None:
        self._block_bytes = block_bytes
        self._session = _session_id(entropy)
        self._base = int(entropy.token(4), 16) or 1
        self._codec = pa.Codec("lz4_raw")
        self._filter = BloomFilter()
        self._index: list[tuple[bytes, bytes]] = []
        self._offset = 0
        self._delete_count = 0
        self._key_bytes = 0
        self._value_bytes = 0
        self._file = path.open("wb")

    def add(self, rows: FixedRows) -> None:
        """Add rows above all earlier ones; at least one.

        Raises:
            InternalError: the keys are not in ascending order; the file is useless.
            OSError: the file cannot be written; it is useless.
        """
        entries = Entries(rows)
        keys = entries.keys
        if not ascends(keys) or (self._index and keys[0].tobytes() <= self._index[-1][0]):
            raise InternalError("the rows of an SST file are not in ascending order")
        self._filter.add(keys)
        blocks = entries.blocks(self._block_bytes)
        start = 0
        written: list[bytes] = []
        for end, last_key in zip(blocks.ends, blocks.last_keys, strict=True):
            handle = self._block(blocks.data[start:end], written)
            self._index.append((last_key.tobytes(), handle))
            start = end
        self._file.write(b"".join(written))
        self._delete_count += rows.count - len(rows.values)
        self._key_bytes += keys.size + 8 * rows.count
        self._value_bytes += rows.values.size

    def finish(self) -> None:
        """Complete the file, sync and close it. Once. REQUIRES: there are rows.

        Raises:
            OSError: the file cannot be written; it is useless.
        """
        written: list[bytes] = []
        data_bytes = self._offset
        filter_block = self._filter.finish()
        filter_handle = self._block(filter_block, written, compress=False)
        index_block = _sorted_block(self._index, are_values_sized=False)
        index_handle = self._block(index_block, written)
        properties = self._properties(data_bytes, len(filter_block), len(index_block))
        properties_handle = self._block(_sorted_block(properties), written, compress=False)
        metaindex = _sorted_block(
            [
                (f"fullfilter.{bloom.NAME}".encode(), filter_handle),
                (b"rocksdb.index", index_handle),
                (b"rocksdb.properties", properties_handle),
            ]
        )
        self._block(metaindex, written, compress=False)
        written.append(self._footer(len(metaindex)))
        self._file.write(b"".join(written))
        self._file.flush()
        # RocksDB syncs the file again when it is ingested, on the event loop: make that short.
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file, complete or not."""
        self._file.close()

    def _block(
        self, data: bytes | memoryview, written: list[bytes], *, compress: bool = True
    ) -> bytes:
        """Append a block to the file's parts and return its handle."""
        body = self._packed(data) if compress else bytes(data) + _PLAIN
        checksum = (hash_of_block(body) + self._modifier()) & 0xFFFFFFFF
        written += (body, _U32.pack(checksum))
        handle = varint(self._offset) + varint(len(body) - 1)
        self._offset += len(body) + _U32.size
        return handle

    def _packed(self, data: bytes | memoryview) -> bytes:
        packed = varint(len(data)) + self._codec.compress(data, asbytes=True)
        # RocksDB's own rule: a block that compresses badly is not worth a decompression.
        return packed + _LZ4 if len(packed) <= len(data) // 8 * 7 else bytes(data) + _PLAIN

    def _modifier(self) -> int:
        """Return what the checksum of a block at this place of this file has in addition."""
        return Checksums(XXH3, self._base).modifier(self._offset)

    def _footer(self, metaindex_bytes: int) -> bytes:
        def footer(checksum: int) -> bytes:
            return _FOOTER.pack(
                XXH3,
                EXTENDED_MAGIC,
                checksum,
                self._base,
                metaindex_bytes,
                _FORMAT_VERSION,
                MAGIC,
            )

        return footer((hash_of_block(footer(0)) + self._modifier()) & 0xFFFFFFFF)

    def _properties(
        self, data_bytes: int, filter_bytes: int, index_bytes: int
    ) -> list[tuple[bytes, bytes]]:
        """Return those that RocksDB's writer of external files has."""
        numbers = {
            "column.family.id": _NO_FAMILY,
            "creation.time": 0,
            "data.size": data_bytes,
            "deleted.keys": self._delete_count,
            "filter.size": filter_bytes,
            "fixed.key.length": 0,
            "format.version": _FORMAT_VERSION,
            "index.key.is.user.key": 1,
            "index.size": index_bytes + TRAILER_BYTES,
            "index.value.is.delta.encoded": 1,
            "key.largest.seqno": 0,
            "merge.operands": 0,
            "num.data.blocks": len(self._index),
            "num.entries": self._filter.count,
            "num.filter_entries": self._filter.count,
            "num.range-deletions": 0,
            "oldest.key.time": 0,
            "original.file.number": 1,
            "raw.key.size": self._key_bytes,
            "raw.value.size": self._value_bytes,
            "tail.start.offset": data_bytes,
        }
        texts = {
            "block.based.table.index.type": "\0\0\0\0",
            "block.based.table.prefix.filtering": "0",
            "block.based.table.whole.key.filtering": "1",
            "comparator": "leveldb.BytewiseComparator",
            "compression": "LZ4",
            "creating.db.identity": "SST Writer",
            "creating.session.identity": self._session,
            "external_sst_file.global_seqno": "\0" * 8,
            "external_sst_file.version": "\2\0\0\0",
            "filter.policy": "bloomfilter",
            "merge.operator": "nullptr",
            "prefix.extractor.name": "nullptr",
            "property.collectors": "[]",
        }
        values = {name: varint(number) for name, number in numbers.items()}
        values |= {name: text.encode() for name, text in texts.items()}
        return sorted((f"rocksdb.{name}".encode(), value) for name, value in values.items())


def _session_id(entropy: Entropy) -> str:
    number = int(entropy.token(16), 16)
    digits = []
    for _ in range(_SESSION_LENGTH):
        number, digit = divmod(number, len(_SESSION_DIGITS))
        digits.append(_SESSION_DIGITS[digit])
    return "".join(digits)


def _sorted_block(pairs: Iterable[tuple[bytes, bytes]], *, are_values_sized: bool = True) -> bytes:
    """Return a block of sorted keys and values.

    Args:
        pairs: keys and values.
        are_values_sized: whether the size of a value precedes it; not in an index.
    """
    parts: list[bytes] = []
    restarts: list[int] = []
    size = 0
    for key, value in pairs:
        sizes = varint(0) + varint(len(key)) + (varint(len(value)) if are_values_sized else b"")
        entry = sizes + key + value
        restarts.append(size)
        parts.append(entry)
        size += len(entry)
    restarts.append(len(restarts))
    return b"".join(parts) + struct.pack(f"<{len(restarts)}I", *restarts)
