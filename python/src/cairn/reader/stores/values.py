"""Values of Spark's RocksDB stores: row checksums verified and removed, lists in one form.

Layer: reader.stores. Little-endian.

    stored  := block ( delimiter block )*          ; of a list; a single value has one block
    block   := bytes                               ; without row checksums
             | u32 crc  i32 length  bytes[length]  ; with them: crc32c of stored key and bytes
    bytes   := element ( delimiter element )*      ; of a list
    element := i32 length  row[length]
    result  := element*                            ; of a list, or the bytes of a single value

The delimiter is a comma or nothing: it depends on the query's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cairn.checksum import crc32c
from cairn.errors import CorruptError
from cairn.reader.stores.columns import cells, joined, segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cairn.reader.stores.columns import Column, Positions

_LENGTH_BYTES = 4
_HEADER_BYTES = 8
_FEW = 64
"""So many lists are walked one by one: longer ones than most, where numpy has little to do."""


@dataclass(frozen=True, slots=True)
class ValueForm:
    """How the values of a family are stored.

    Attributes:
        is_list: whether a value may have several elements.
        has_checksums: whether the query writes row checksums.
        delimiter: between the elements of a list: a comma, or nothing.
    """

    is_list: bool
    has_checksums: bool
    delimiter: bytes

    @property
    def is_plain(self) -> bool:
        """Whether values are stored as they are read."""
        return not self.has_checksums and not (self.is_list and self.delimiter)


def plain_values(keys: Column, values: Column, form: ValueForm) -> Column:
    """Return the values without checksums and delimiters.

    Args:
        keys: as stored, with the prefix of the family: the checksums cover them.
        values: as stored; or operands of merges, which have the same form.
        form: of the family.

    Raises:
        CorruptError: a checksum, a length or a delimiter is wrong.
    """
    if form.is_plain or not len(values):
        return values
    delimiter = form.delimiter if form.is_list else b""
    data, offsets = cells(values)
    pieces = _Pieces(np.arange(len(values)), offsets[:-1], offsets[1:])
    if form.has_checksums:
        pieces = _split(data, pieces, delimiter, header_bytes=_HEADER_BYTES)
        if not form.is_list and len(pieces.owners) != len(values):
            raise CorruptError("a value has several row checksums")
        _verify(keys, data, pieces)
        pieces = _Pieces(pieces.owners, pieces.starts + _HEADER_BYTES, pieces.ends)
    if delimiter:
        pieces = _split(data, pieces, delimiter, header_bytes=_LENGTH_BYTES)
    starts = np.flatnonzero(np.diff(pieces.owners, prepend=-1))
    if len(starts) != len(values):
        raise CorruptError("a value is empty")
    return joined(segments(data, pieces.starts, pieces.ends), starts)


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of values, ascending.

    Attributes:
        owners: the index of the value that each is of.
        starts, ends: where it lies in the data of the values.
    """

    owners: Positions
    starts: Positions
    ends: Positions


def _split(data: memoryview, whole: _Pieces, delimiter: bytes, *, header_bytes: int) -> _Pieces:
    """Return the parts of each piece: a header that ends with a length, and that many bytes.

    All pieces are split at once, part after part; the last few, which are long, one by one.
    """
    view = np.frombuffer(data, np.uint8)
    positions, ends = whole.starts.copy(), whole.ends
    active = np.arange(len(positions))
    found: list[tuple[Positions, Positions, Positions]] = []
    while len(active) > _FEW:
        starts, limits = positions[active], ends[active]
        if (starts + header_bytes > limits).any():
            raise _bad_length()
        part_ends = starts + header_bytes + _lengths(view, starts + header_bytes - _LENGTH_BYTES)
        if ((part_ends < starts + header_bytes) | (part_ends > limits)).any():
            raise _bad_length()
        found.append((active, starts, part_ends))
        is_open = part_ends < limits
        active, part_ends = active[is_open], part_ends[is_open]
        if delimiter and len(active):
            if (view[part_ends] != delimiter[0]).any():
                raise _bad_delimiter()
            part_ends = part_ends + 1
        positions[active] = part_ends
    found += [
        _walked(data, piece, (int(positions[piece]), int(ends[piece])), delimiter, header_bytes)
        for piece in active.tolist()
    ]
    pieces, starts, part_ends = (np.concatenate(one) for one in zip(*found, strict=True))
    order = np.argsort(starts, kind="stable")
    return _Pieces(whole.owners[pieces[order]], starts[order], part_ends[order])


def _walked(
    data: memoryview, piece: int, bounds: tuple[int, int], delimiter: bytes, header_bytes: int
) -> tuple[Positions, Positions, Positions]:
    starts: list[int] = []
    ends: list[int] = []
    position, limit = bounds
    while True:
        body = position + header_bytes
        if body > limit:
            raise _bad_length()
        length = int.from_bytes(data[body - _LENGTH_BYTES : body], "little", signed=True)
        if not 0 <= length <= limit - body:
            raise _bad_length()
        starts.append(position)
        position = body + length
        ends.append(position)
        if position == limit:
            break
        if delimiter:
            if data[position] != delimiter[0]:
                raise _bad_delimiter()
            position += 1
    return np.full(len(starts), piece), np.array(starts), np.array(ends)


def _lengths(view: NDArray[np.uint8], starts: Positions) -> Positions:
    four = view[starts[:, None] + np.arange(_LENGTH_BYTES)]
    lengths: Positions = four.view("<i4").ravel().astype(np.int64)
    return lengths


def _verify(keys: Column, data: memoryview, blocks: _Pieces) -> None:
    """Compare the checksum of each block."""
    key_data, key_offsets = cells(keys)
    places = key_offsets.tolist()
    bounds = zip(blocks.owners.tolist(), blocks.starts.tolist(), blocks.ends.tolist(), strict=True)
    for owner, start, end in bounds:
        of_key = crc32c(key_data[places[owner] : places[owner + 1]])
        actual = crc32c(data[start + _HEADER_BYTES : end], of_key)
        if actual != int.from_bytes(data[start : start + _LENGTH_BYTES], "little"):
            raise CorruptError("a row differs from its checksum")


def _bad_length() -> CorruptError:
    return CorruptError("a value has a length that goes beyond it")


def _bad_delimiter() -> CorruptError:
    return CorruptError("a list has another delimiter than its query's configuration says")
