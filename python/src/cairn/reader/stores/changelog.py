"""Changelogs of Spark's RocksDB provider: the writes of one version.

Layer: reader.stores. Big-endian. Keys and values are those of RocksDB, byte by byte.

    file    := compressed( plain                         ; 1
                         | text "v2" tagged              ; 2, of a store with column families
                         | text "v3" lineage plain       ; 3 and 4, of checkpoint format 2
                         | text "v4" lineage tagged )    ; (``records`` has plain and tagged)
    text    := u16 length  UTF-8[length]
    lineage := text JSON [ {"version": n, "checkpointUniqueId": id}, ... ]

A changelog of version 1 has no header: it begins with the length of a key, whose first two bytes
are nearly always zero, or with the end mark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Self

from cairn.errors import CorruptError, FormatVersionError
from cairn.format.fields import as_int, as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT_LENGTH_BYTES = 2
_LINEAGE = "the changelog's lineage"
_MARK = b"\x00\x02v"
_MARK_BYTES = len(_MARK) + 1
_FIRST = 1
_TAGGED = frozenset({2, 4})
_WITH_LINEAGE = frozenset({3, 4})
_KNOWN = frozenset({2, 3, 4})


@dataclass(frozen=True, slots=True, order=True)
class LineageItem:
    """One version that a later one is made of, and the id of the attempt that wrote it."""

    version: int
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class Changelog:
    """The header of a changelog, and the content after it, which can be read once.

    Attributes:
        is_tagged: which grammar the records have; also whether keys begin with a family's id.
        lineage: the versions before its own, since a snapshot; empty without checkpoint ids.
        records: the decompressed bytes of the records.
    """

    is_tagged: bool
    lineage: tuple[LineageItem, ...]
    records: Iterator[bytes]

    @classmethod
    def open(cls, chunks: Iterator[bytes]) -> Self:
        """Read the header.

        Raises:
            CorruptError: the header is cut or cannot be parsed.
            FormatVersionError: it has a version that this release does not know.
        """
        start = _Start(chunks)
        number = _FIRST
        mark = start.peek(_MARK_BYTES)
        if mark.startswith(_MARK) and len(mark) == _MARK_BYTES:
            # They could be the length of a key, 160 KB, which Spark takes for a header, too.
            number = mark[-1] - ord("0")
            if number not in _KNOWN:
                raise FormatVersionError(
                    f"the changelog has the unknown version {mark[len(_MARK) - 1 :]!r}",
                    next_step="use a newer release of Cairn",
                )
            start.take(_MARK_BYTES)
        lineage = _lineage(start.text()) if number in _WITH_LINEAGE else ()
        return cls(number in _TAGGED, lineage, start.rest())


class _Start:
    """The first bytes of a stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""

    def peek(self, count: int) -> bytes:
        """Return the next ``count`` bytes, or all if there are fewer."""
        while len(self._held) < count and (chunk := next(self._chunks, None)) is not None:
            self._held += chunk
        return self._held[:count]

    def take(self, count: int) -> bytes:
        taken = self.peek(count)
        if len(taken) < count:
            raise CorruptError("the changelog ends within its header")
        self._held = self._held[count:]
        return taken

    def text(self) -> bytes:
        return self.take(int.from_bytes(self.take(_TEXT_LENGTH_BYTES), "big"))

    def rest(self) -> Iterator[bytes]:
        return chain((self._held,), self._chunks)


def _lineage(text: bytes) -> tuple[LineageItem, ...]:
    """Return the lineage, in ascending order of its versions."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{_LINEAGE} is not JSON") from error
    lineage: list[LineageItem] = []
    for item in as_list(parsed, _LINEAGE):
        fields = as_object(item, f"an entry of {_LINEAGE}")
        version = as_int(fields.get("version"), f"a version of {_LINEAGE}", least=1)
        checkpoint_id = as_text(fields.get("checkpointUniqueId"), f"an id of {_LINEAGE}")
        lineage.append(LineageItem(version, checkpoint_id))
    lineage.sort()
    versions = [item.version for item in lineage]
    if lineage and versions != list(range(versions[0], versions[0] + len(versions))):
        raise CorruptError("the changelog's lineage has a gap")
    return tuple(lineage)
