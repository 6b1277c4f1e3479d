"""UnsafeRows taken apart and put together by whole columns, without looking at their values.

Layer: offline.move.  Grammar: ``cairn.reader.rows.unsafe_row`` and ``row_writer``.

A value in the tail of a row does not depend on its place: it is copied as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.errors import CorruptError
from cairn.reader.rows.spans import Places, Spans
from cairn.reader.rows.types import Boolean, CalendarInterval, Decimal, Fixed, Void
from cairn.reader.rows.unsafe_row import bitset_bytes, fixed_bytes
from cairn.reader.stores.columns import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cairn.reader.rows.spans import Flags, Int64s
    from cairn.reader.rows.types import Field, Type
    from cairn.reader.stores.columns import Column

_WORD = 8
_LARGE_WORDS = 2
"""A decimal of over 18 digits, and an interval, have so many words in the tail, also if null."""


@dataclass(frozen=True)
class Cells:
    """One column of some rows.

    Attributes:
        is_null: of each row.
        words: of each row: the value, or for one in the tail its size.
        data: the buffer that has the tails.
        tails: where in ``data`` the value of each row begins; ``None``: the words have the values.
        tail_words: how many words of the tail it takes.
    """

    is_null: Flags
    words: NDArray[np.uint64]
    data: NDArray[np.uint8]
    tails: Int64s | None
    tail_words: Int64s


def take_apart(rows: Spans, fields: Sequence[Field], where: str) -> list[Cells]:
    """Return the columns of rows.

    Args:
        rows: UnsafeRows.
        fields: of the rows.
        where: what the rows are, for errors.

    Raises:
        CorruptError: a row is too short, or a value is not within its row.
    """
    rows.require(fixed_bytes(len(fields)), where)
    bitset = bitset_bytes(len(fields))
    places = rows.places
    result = []
    for index, field in enumerate(fields):
        is_null = places.bits(index, 0)
        words = places.load("<u8", bitset + _WORD * index)
        if _is_in_word(field.type):
            words[is_null] = 0
            none = np.zeros(len(rows), np.int64)
            result.append(Cells(is_null, words, rows.data, None, none))
        else:
            name = f"{where}, column '{field.name}'"
            result.append(_in_tail(rows, is_null, words, field.type, name))
    return result


def _is_in_word(of: Type) -> bool:
    return isinstance(of, Void | Boolean | Fixed) or (isinstance(of, Decimal) and of.is_long)


def _in_tail(rows: Spans, is_null: Flags, words: NDArray[np.uint64], of: Type, where: str) -> Cells:
    sizes = words & np.uint64(0xFFFFFFFF)
    tails = rows.starts + (words >> np.uint64(32)).astype(np.int64)
    if isinstance(of, Decimal | CalendarInterval):
        tail_words = np.full(len(rows), _LARGE_WORDS)
        # One that was never written has no place in the tail, or one that is zero.
        is_absent = is_null & (words >> np.uint64(32) == 0)
        tails[is_absent] = -1
        sizes[is_null] = 2 * _WORD if isinstance(of, CalendarInterval) else 0
        is_used = ~is_absent
    else:
        tail_words = (sizes.astype(np.int64) + _WORD - 1) // _WORD
        tail_words[is_null] = 0
        sizes[is_null] = 0
        is_used = ~is_null
    ends = tails + _WORD * tail_words
    if bool(((tails < rows.starts) | (ends > rows.ends))[is_used].any()):
        raise CorruptError(f"{where}: a value lies outside its row")
    return Cells(is_null, sizes, rows.data, tails, tail_words)


def put_together(cells: Sequence[Cells], count: int) -> Column:
    """Return the rows that have some columns, as Spark's UnsafeProjection writes them.

    Args:
        cells: the columns.
        count: of the rows.
    """
    bitset = bitset_bytes(len(cells))
    head = fixed_bytes(len(cells))
    sizes = np.full(count, head)
    for one in cells:
        sizes += _WORD * one.tail_words
    ends = np.zeros(count + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    data = np.zeros(int(ends[-1]), np.uint8)
    result = column(ends, data)
    if not count:
        return result
    rows = Places.of(data, ends[:-1])
    for word in range(0, bitset, _WORD):
        bits = np.zeros(count, np.uint64)
        for index, one in enumerate(cells[8 * word : 8 * (word + _WORD)]):
            bits |= one.is_null.astype(np.uint64) << np.uint64(index)
        _store(rows.shifted(word), bits)
    offsets = np.full(count, head)
    for index, one in enumerate(cells):
        words = one.words
        if one.tails is not None:
            # The word of a null is 0, but for those that have a place in the tail.
            has_place = ~one.is_null | (one.tail_words > 0)
            words = words | np.where(has_place, offsets, 0).astype(np.uint64) << np.uint64(32)
            _copy_tails(one, Places(data, ends[:-1] + offsets, None))
            offsets = offsets + _WORD * one.tail_words
        _store(rows.shifted(bitset + _WORD * index), words)
    return result


def _copy_tails(cells: Cells, to: Places) -> None:
    """Copy the values of a column, word by word of all rows at once."""
    assert cells.tails is not None  # noqa: S101 - for mypy
    rows = np.flatnonzero((cells.tail_words > 0) & (cells.tails >= 0))
    if not len(rows):
        return
    counts = cells.tail_words[rows]
    owners = np.repeat(rows, counts)
    first = np.cumsum(counts) - counts
    steps = _WORD * (np.arange(len(owners)) - np.repeat(first, counts))
    copied = Places(cells.data, cells.tails[owners] + steps, None).load("<u8")
    _store(Places(to.data, to.at[owners] + steps, None), copied)


def _store(places: Places, words: NDArray[Any]) -> None:
    """Write a number at each place."""
    window = np.ndarray(len(places.data) - _WORD + 1, "<u8", places.data, 0, (1,))
    window[places.at] = words
