"""TableReader: one SST file, read in ranges of bytes from wherever it is stored.

Layer: rocks. RocksDB's block-based tables of format versions 2 to 6, whoever wrote them. Grammar:
``table.py`` for format 6; the footer of older formats is

    footer := u8 checksum_type  handle of metaindex  handle of index  zeros  ; 41 bytes
              u32 format_version  u64 magic
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.rocks.sst import blocks
from cairn.rocks.sst.blocks import (
    TRAILER_BYTES,
    BadBlockError,
    Checksums,
    Handle,
    handle_at,
    unpacked,
    varint,
)
from cairn.rocks.sst.bloom import NAME as FILTER
from cairn.rocks.sst.decoding import Entries, decoded
from cairn.rocks.sst.filters import may_have
from cairn.rocks.sst.table import EXTENDED_MAGIC, MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FOOTER_BYTES = 53
_OLDEST_FORMAT, _BASED_FORMAT, _NEWEST_FORMAT = 2, 6, 6
_HANDLES = slice(1, 41)
_TAIL = struct.Struct("<IQ")
_BASED = struct.Struct("<4sIII")
_FIRST_READ_BYTES = 64 << 10
_MAX_FIRST_READ_BYTES = 64 << 20
_PREFIX = b"rocksdb."
_FILTER = f"fullfilter.{FILTER}".encode()
_DICTIONARY = b"rocksdb.compression_dict"
_BINARY_SEARCH = bytes(4)
_WHOLE_KEYS, _YES = b"block.based.table.whole.key.filtering", b"1"
_SEQUENCE_BYTES = 8
_PARTED_BYTES = 4 << 20


class RangedFile(Protocol):
    """A file whose parts can be read."""

    @property
    def name(self) -> str:
        """Its name, for errors."""

    @property
    def size_bytes(self) -> int:
        """Its length."""

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file; at most as many as asked for."""


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """Deletes the keys from ``start`` to before ``end`` that are older than ``sequence``."""

    start: bytes
    end: bytes
    sequence: int


class _Index:
    """Where the data blocks of a file are: some 40 bytes for each of what may be a million.

    Args:
        found: for each block a key that is not below its last one, and its handle.
        size_bytes: of the file.

    Raises:
        BadBlockError: the blocks or their keys do not follow each other, or the keys are too long.
    """

    def __init__(self, found: Iterable[tuple[bytes, Handle]], size_bytes: int) -> None:
        self._offsets, self._ends, self._key_ends = array("Q"), array("Q"), array("Q", [0])
        self._keys = bytearray()
        end, last_key = 0, b""
        for key, handle in found:
            if not (end <= handle.offset and handle.size >= 0 and handle.end <= size_bytes):
                raise BadBlockError("a data block is outside the file, or in another one")
            if key < last_key:
                raise BadBlockError("the keys of the index do not ascend")
            if len(self._keys) + len(key) > blocks.MAX_BLOCK_BYTES:
                raise BadBlockError("the keys of the index are too long")
            end, last_key = handle.end, key
            self._offsets.append(handle.offset)
            self._ends.append(handle.end)
            self._keys += key
            self._key_ends.append(len(self._keys))

    def _last_key(self, place: int) -> bytes:
        return bytes(self._keys[self._key_ends[place] : self._key_ends[place + 1]])

    def place_of(self, key: bytes) -> int:
        """Return the place of the first block that may have a key, or that is behind it."""
        return bisect_left(range(len(self._ends)), key, key=self._last_key)

    def parts(self, first: int, last: int, part_bytes: int) -> Iterator[list[Handle]]:
        """Yield the blocks from one place to another: in each part one, or as many as fit."""
        while first <= last:
            limit = self._offsets[first] + part_bytes
            until = max(first + 1, bisect_right(self._ends, limit, first, last + 1))
            yield [
                Handle(offset, end - offset - TRAILER_BYTES)
                for offset, end in zip(
                    self._offsets[first:until], self._ends[first:until], strict=True
                )
            ]
            first = until

    def __len__(self) -> int:
        return len(self._ends)


class TableReader:
    """See the module. One thread at a time.

    One request reads the end of the file, with all but the data blocks, and the rest of a small
    file. The index is decoded once it is needed: that of a large file takes longer than a request.

    Args:
        file: the file.
        tail_bytes: what the data blocks leave at the end of the file, which is then in memory; 0:
            not known, or the filter is not needed: a large index is read by a request of its own.

    Attributes:
        name: the file's name, for errors.
        deleted_ranges: those of the file.

    Raises:
        CorruptError: the file is damaged.
        UnsupportedStateError: it has a form that neither Cairn nor Spark makes.
    """

    def __init__(self, file: RangedFile, tail_bytes: int = 0) -> None:
        self._file = file
        self.name = file.name
        self._data_blocks: _Index | None = None
        with self._named():
            self._open(min(max(tail_bytes, _FIRST_READ_BYTES), _MAX_FIRST_READ_BYTES))

    def _open(self, tail_bytes: int) -> None:
        size = self._file.size_bytes
        if size < _FOOTER_BYTES:
            raise BadBlockError("the file is shorter than a footer")
        self._tail_at = size
        start = max(0, size - tail_bytes)
        self._tail = self._read(start, size)
        self._tail_at = start
        footer = self._tail[-_FOOTER_BYTES:]
        version, magic = _TAIL.unpack(footer[_HANDLES.stop :])
        if magic != MAGIC:
            raise BadBlockError("it does not end as an SST file does")
        if not _OLDEST_FORMAT <= version <= _NEWEST_FORMAT:
            raise UnsupportedStateError(f"the SST file has format {version}")
        self._index: Handle | None = None
        if version < _BASED_FORMAT:
            self._checksums = Checksums(footer[0])
            metaindex, at = handle_at(memoryview(footer)[_HANDLES])
            self._index, _ = handle_at(memoryview(footer)[_HANDLES], at)
        else:
            metaindex = self._based_footer(footer)
        parts = dict(blocks.entries(self._block(metaindex)))
        if self._index is None:
            self._index = _handle_of(parts, b"rocksdb.index")
        self._properties = properties = {
            key.removeprefix(_PREFIX): bytes(value)
            for key, value in blocks.entries(self._block(_handle_of(parts, b"rocksdb.properties")))
        }
        if properties.get(b"block.based.table.index.type", _BINARY_SEARCH) != _BINARY_SEARCH:
            raise UnsupportedStateError("the SST file has an index of several levels")
        if _DICTIONARY in parts:
            raise UnsupportedStateError("the SST file is compressed with a dictionary")
        has_filter = _FILTER in parts and properties.get(_WHOLE_KEYS) == _YES
        self._filter = _handle_of(parts, _FILTER) if has_filter else None
        self.deleted_ranges = self._read_deleted_ranges(parts.get(b"rocksdb.range_del"))

    def _based_footer(self, footer: bytes) -> Handle:
        kind = footer[0]
        extended, checksum, base, metaindex_bytes = _BASED.unpack_from(footer, 1)
        if extended != EXTENDED_MAGIC:
            raise BadBlockError("the footer is damaged")
        self._checksums = Checksums(kind, base)
        footer_at = self._file.size_bytes - _FOOTER_BYTES
        if kind == blocks.XXH3:
            blank = footer[:5] + bytes(4) + footer[9:]
            found = blocks.hash_of_block(blank) + self._checksums.modifier(footer_at)
            if found & 0xFFFFFFFF != checksum:
                raise BadBlockError("the footer has another checksum")
        return Handle(footer_at - TRAILER_BYTES - metaindex_bytes, metaindex_bytes)

    def _index_of_blocks(self) -> _Index:
        if self._data_blocks is None:
            assert self._index is not None  # noqa: S101 - the constructor has found it
            is_user_key = self._has(b"index.key.is.user.key")
            found = blocks.index_entries(
                self._block(self._index),
                are_values_sized=not self._has(b"index.value.is.delta.encoded"),
            )
            index = _Index(
                ((key if is_user_key else key[:-_SEQUENCE_BYTES], handle) for key, handle in found),
                self._file.size_bytes,
            )
            count = self._properties.get(b"num.data.blocks")
            if count is not None and varint(memoryview(count), 0)[0] != len(index):
                raise BadBlockError("the index has another number of data blocks than the file")
            self._data_blocks = index
        return self._data_blocks

    def _has(self, name: bytes) -> bool:
        value = self._properties.get(name)
        return value is not None and bool(varint(memoryview(value), 0)[0])

    def may_have(self, key: bytes) -> bool:
        """Return whether the file may have entries of a key, by its filter; of ranges it has not.

        Raises:
            CorruptError: the filter is damaged.
        """
        if self._filter is None or not key:  # RocksDB's filters lack the empty key
            return True
        with self._named():
            return may_have(self._block(self._filter), key)

    def _read_deleted_ranges(self, handle: memoryview | None) -> list[DeletedRange]:
        if handle is None:
            return []
        return [
            DeletedRange(
                key[:-_SEQUENCE_BYTES],
                bytes(end),
                int.from_bytes(key[-_SEQUENCE_BYTES + 1 :], "little"),
            )
            for key, end in blocks.entries(self._block(handle_at(handle)[0]))
        ]

    def scan(self, start: bytes, end: bytes | None, part_bytes: int) -> Iterator[Entries]:
        """Yield the entries of the blocks that may have keys of a range, in order.

        Some are outside the range. Of one key, all entries may be in two parts.

        Args:
            start: the first key.
            end: the key above the last; ``None``: there is no limit.
            part_bytes: about the stored bytes that are read and decoded at a time.
        """
        with self._named():
            index = self._index_of_blocks()
        first, last = index.place_of(start), len(index) - 1
        if end is not None:
            last = min(last, index.place_of(end))
        for handles in index.parts(first, last, part_bytes):
            with self._named():
                yield from self._decoded(handles)

    def _decoded(self, handles: Sequence[Handle]) -> Iterator[Entries]:
        """Yield the entries of blocks that follow each other in the file, read by one request."""
        for contents in self._contents(handles):
            entries = decoded(contents)
            contents.clear()  # a caller with many files waits long between two parts
            yield entries

    def _contents(self, handles: Sequence[Handle]) -> Iterator[list[memoryview]]:
        """Yield what the blocks contain, some MiB at a time."""
        begin, end = handles[0].offset, handles[-1].end
        data = memoryview(self._read(begin, end))
        contents: list[memoryview] = []
        size = 0
        for handle in handles:
            content = self._content(data[handle.offset - begin : handle.end - begin], handle)
            if contents and size + len(content) > _PARTED_BYTES:
                yield contents
                contents, size = [], 0
            contents.append(content)
            size += len(content)
        yield contents

    def _block(self, handle: Handle) -> memoryview:
        return self._content(memoryview(self._read(handle.offset, handle.end)), handle)

    def _content(self, block: memoryview, handle: Handle) -> memoryview:
        self._checksums.check(block, handle.offset)
        return unpacked(block)

    def _read(self, begin: int, end: int) -> bytes:
        if not 0 <= begin < end <= self._file.size_bytes:
            raise BadBlockError("a block is outside the file")
        if begin >= self._tail_at:
            return self._tail[begin - self._tail_at : end - self._tail_at]
        data = self._file.read(begin, end - begin)
        if len(data) != end - begin:
            raise BadBlockError("the file is shorter than it was")
        return data

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except BadBlockError as problem:
            raise CorruptError(
                f"an SST file of RocksDB is damaged: {problem}", object_name=self._file.name
            ) from problem
        except UnsupportedStateError as problem:
            raise problem.with_context(object_name=self._file.name) from None


def _handle_of(parts: dict[bytes, memoryview], name: bytes) -> Handle:
    if name not in parts:
        raise BadBlockError(f"the file has no part {name.decode()}")
    return handle_at(parts[name])[0]
