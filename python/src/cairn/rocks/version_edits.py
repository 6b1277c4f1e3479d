"""RocksDB's MANIFEST: which SST files a database has, read from its log of version edits.

Layer: rocks. Only reads. Numbers are little-endian; ``varint`` has groups of 7 bits, the lowest
first; ``slice := varint bytes  byte[bytes]``.

    MANIFEST := block*                                ; of 32 KiB; the last one may be shorter
    block    := record*  zeros
    record   := u32 checksum  u16 bytes  u8 type  [ u32 log_number ]  byte[bytes]
    type     := 1 whole | 2 first | 3 middle | 4 last part of an edit; plus 4: with log_number
    edit     := ( varint tag  field )*
    new file := varint level  varint number  varint file_bytes  slice smallest  slice largest
                varint smallest_sequence  varint largest_sequence  ( varint tag  slice )*  varint 1
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checksum import masked_crc32c
from cairn.errors import CorruptError, UnsupportedStateError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK_BYTES = 32 << 10
_HEADER_BYTES = 7
_LOG_NUMBER_BYTES = 4
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_WITH_LOG_NUMBER = 4
_SEQUENCE_BYTES = 8
_MAX_VARINT_BITS = 70

_COMPARATOR = 1
_COMPACT_CURSOR = 5
_DELETED_FILE = 6
_NEW_FILE_4 = 103
_COLUMN_FAMILY = 200
_COLUMN_FAMILY_ADD = 201
_COLUMN_FAMILY_DROP = 202
_NUMBERS = frozenset({2, 3, 4, 9, 10, 203, 300})
"""Tags with one number that no reader of files needs."""
_MAY_BE_IGNORED = 1 << 13
"""Tags with this bit have a slice."""
_END_OF_FILE_FIELDS = 1
_EPOCH = 13
_TAIL = 15
_PATH_ID = 65
_NEEDS_KNOWLEDGE = 1 << 6
"""A reader that does not know a field with this bit cannot read the file."""
_END_OF_RANGE = b"\x0f" + 7 * b"\xff"
"""The last bytes of a largest key that is the end of a deleted range."""
_BYTEWISE = b"leveldb.BytewiseComparator"


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One SST file of a database.

    Attributes:
        level: 0 has the newest rows; a key is in one file at most of each level above it.
        number: RocksDB's number of the file, from which its name is made.
        size_bytes: its length.
        smallest: the lowest key, without sequence number.
        largest: the highest key, likewise.
        has_largest: whether that key may be in the file: if not, it ends a deleted range.
        age: orders the files of level 0: a newer file has a higher one.
        tail_bytes: what is behind its rows: filter, index and the like; 0: not known.
    """

    level: int
    number: int
    size_bytes: int
    smallest: bytes
    largest: bytes
    has_largest: bool
    age: tuple[int, int, int, int]
    tail_bytes: int = 0

    @property
    def name(self) -> str:
        """The file's name in the database's directory."""
        return f"{self.number:06d}.sst"


def sorted_runs(manifest: bytes, object_name: str) -> list[list[LiveFile]]:
    """Return the files of a database as sorted runs, the one with the oldest rows first.

    The keys of a run ascend from file to file. Of a key in several runs, the last run has the
    newest entries.

    Args:
        manifest: the content of the MANIFEST file.
        object_name: its name, for errors.

    Raises:
        CorruptError: it is damaged or cut off.
        UnsupportedStateError: it has something that neither Cairn nor Spark uses.
    """
    files: dict[tuple[int, int], LiveFile] = {}
    try:
        for edit in _edits(manifest):
            _Edit(edit).apply(files)
    except _BadEditError as problem:
        raise CorruptError(
            f"RocksDB's list of files cannot be read: {problem}", object_name=object_name
        ) from problem
    except UnsupportedStateError as problem:
        raise problem.with_context(object_name=object_name) from None
    deep = sorted({file.level for file in files.values() if file.level}, reverse=True)
    runs = [
        sorted(
            (file for file in files.values() if file.level == level), key=lambda file: file.smallest
        )
        for level in deep
    ]
    newest = (file for file in files.values() if not file.level)
    return [*runs, *([file] for file in sorted(newest, key=lambda file: file.age))]


class _BadEditError(Exception):
    """The bytes are not those of a log of version edits."""


def _edits(manifest: bytes) -> Iterator[bytes]:
    """Yield the edits, each as one piece."""
    parts: list[bytes] = []
    for kind, data in _records(manifest):
        if kind in (_WHOLE, _FIRST) and parts:
            raise _BadEditError("an edit has no end")
        if kind in (_MIDDLE, _LAST) and not parts:
            raise _BadEditError("an edit has no beginning")
        parts.append(data)
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts)
            parts = []
    if parts:
        raise _BadEditError("it ends within an edit")


def _records(manifest: bytes) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(manifest), _BLOCK_BYTES):
        block = memoryview(manifest)[start : start + _BLOCK_BYTES]
        at = 0
        while len(block) - at >= _HEADER_BYTES:
            checksum = int.from_bytes(block[at : at + 4], "little")
            size = int.from_bytes(block[at + 4 : at + 6], "little")
            kind = block[at + 6]
            if not kind and not size and not checksum:
                break  # the rest of the block is filled up
            head = _HEADER_BYTES
            if kind > _LAST:
                kind -= _WITH_LOG_NUMBER
                head += _LOG_NUMBER_BYTES
            end = at + head + size
            if kind > _LAST or not kind or end > len(block):
                raise _BadEditError(f"there is no record at byte {start + at}")
            if masked_crc32c(block[at + 6 : end]) != checksum:
                raise _BadEditError(f"the record at byte {start + at} has another checksum")
            yield kind, bytes(block[at + head : end])
            at = end


class _Edit:
    """Reads the fields of one edit from its beginning to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def apply(self, files: dict[tuple[int, int], LiveFile]) -> None:
        """Add the new files to ``files`` and remove the deleted ones."""
        while self._at < len(self._data):
            tag = self.number()
            if tag == _NEW_FILE_4:
                file = self._new_file()
                files[file.level, file.number] = file
            elif tag == _DELETED_FILE:
                level, number = self.number(), self.number()
                if files.pop((level, number), None) is None:
                    raise _BadEditError(f"it deletes file {number}, which it does not have")
            else:
                self._pass_over(tag)

    def _pass_over(self, tag: int) -> None:
        """Read a field that names no file."""
        if tag in _NUMBERS:
            self.number()
        elif tag == _COLUMN_FAMILY:
            if self.number():
                raise UnsupportedStateError("the database has several column families")
        elif tag == _COMPARATOR:
            if (name := self._slice()) != _BYTEWISE:
                raise UnsupportedStateError(f"the keys are in another order: {name!r}")
        elif tag == _COMPACT_CURSOR:
            self.number()
            self._slice()
        elif tag & _MAY_BE_IGNORED:
            self._slice()
        else:
            raise UnsupportedStateError(
                f"RocksDB's list of files has an entry of the unknown kind {tag}",
                next_step="read it with a newer Cairn",
            )

    def _new_file(self) -> LiveFile:
        level, number, size_bytes = self.number(), self.number(), self.number()
        smallest, largest = self._internal_key(), self._internal_key()
        smallest_sequence, largest_sequence = self.number(), self.number()
        epoch = tail_bytes = 0
        while (field := self.number()) != _END_OF_FILE_FIELDS:
            value = self._slice()
            if field == _EPOCH:
                epoch = _Edit(value).number()
            elif field == _TAIL:
                tail_bytes = _Edit(value).number()
            elif field == _PATH_ID and not any(value):
                continue
            elif field & _NEEDS_KNOWLEDGE:
                raise UnsupportedStateError(f"an SST file has the unknown property {field}")
        age = (epoch, largest_sequence, smallest_sequence, number)
        return LiveFile(
            level,
            number,
            size_bytes,
            smallest[:-_SEQUENCE_BYTES],
            largest[:-_SEQUENCE_BYTES],
            largest[-_SEQUENCE_BYTES:] != _END_OF_RANGE,
            age,
            tail_bytes,
        )

    def _internal_key(self) -> bytes:
        key = self._slice()
        if len(key) < _SEQUENCE_BYTES:
            raise _BadEditError("a key has no sequence number")
        return key

    def number(self) -> int:
        """Read a number."""
        result = shift = 0
        while True:
            if self._at >= len(self._data) or shift > _MAX_VARINT_BITS:
                raise _BadEditError("an edit ends within a number")
            byte = self._data[self._at]
            self._at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the last group of bits
                return result
            shift += 7

    def _slice(self) -> bytes:
        size = self.number()
        end = self._at + size
        if end > len(self._data):
            raise _BadEditError("an edit ends within a field")
        result = self._data[self._at : end]
        self._at = end
        return result
