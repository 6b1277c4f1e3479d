"""Pages of rows: read from RocksDB's iterators, and heads of lists merged with their chunks.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.  A limit of bytes holds for the keys of a page
and for its values: a row counts with the longer of the two.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from cairn.rocks import keys as layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    Join = Callable[[bytes, bytes | None, list[bytes]], bytes]
    """Returns a whole list, by its key, head and chunks."""

_FIRST_STRIDE_ROWS = 16
"""Rows of a page that are read before their size is known."""
_STRIDE_ROWS = 512
_ROW_OVERHEAD_BYTES = 16


@dataclass(frozen=True)
class ScanPage:
    """Rows of one family in ascending key order; ``more`` says that rows follow."""

    keys: list[bytes]
    values: list[bytes]
    more: bool


@dataclass(frozen=True)
class RangesPage:
    """Rows of ranges of one family in ascending key order.

    Attributes:
        keys: their keys.
        values: their values.
        more: whether the last range that was read may have more rows.
        count: the number of ranges that were read, the first ones.
    """

    keys: pa.Array[Any]
    values: pa.Array[Any]
    more: bool
    count: int


@dataclass(frozen=True)
class RangesRead:
    """The first rows of ranges.

    Attributes:
        places: of each row the index of its range.
        keys: their keys.
        values: their values.
        end: all rows before it were read: the index of a range, and a key; ``b""``: its first.
    """

    places: list[int]
    keys: list[bytes]
    values: list[bytes]
    end: tuple[int, bytes]


def read_rows(
    rows: Iterator[tuple[bytes, bytes]], prefix_bytes: int, limit_rows: int, limit_bytes: int
) -> tuple[list[bytes], list[bytes]]:
    """Return keys, without their first bytes, and values, up to the limits of ``RocksDb.scan``."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    stride_rows = _FIRST_STRIDE_ROWS
    small_bytes = limit_bytes // _STRIDE_ROWS
    while len(keys) < limit_rows and size < limit_bytes:
        names: list[bytes] = []
        cells: list[bytes] = []
        for name, value in islice(rows, min(stride_rows, limit_rows - len(keys))):
            names.append(name[prefix_bytes:])
            cells.append(value)
            if len(value) > small_bytes or len(name) > small_bytes:
                break  # the rows behind a large one may be large, too
        if not names:
            break
        stride_size = max(sum(map(len, names)), sum(map(len, cells)))
        stride_size += _ROW_OVERHEAD_BYTES * len(cells)
        if size + stride_size > limit_bytes:
            wanted = _count_within(names, cells, limit_bytes - size)
            names, cells = names[:wanted], cells[:wanted]
        keys += names
        values += cells
        size += stride_size
        # About as many as will reach the limit: those behind it are read again.
        stride_rows = min(_STRIDE_ROWS, 1 + (limit_bytes - size) * len(keys) // size)
    return keys, values


def read_chunks(
    rows: Iterator[tuple[bytes, bytes]], limit_rows: int, limit_bytes: int
) -> tuple[dict[bytes, list[bytes]], bytes | None]:
    """Return the chunks of the first lists, by key, and the RocksDB key of the last chunk."""
    lists: dict[bytes, list[bytes]] = {}
    current, last, size = b"", None, 0
    chunks: list[bytes] = []
    for name, value in rows:
        of_list = name[: -layout.VERSION_BYTES]
        if of_list != current:
            if len(lists) >= limit_rows or size >= limit_bytes:
                break
            current = of_list
            chunks = lists[layout.key_of_chunk(name)] = []
            size += len(name)
        chunks.append(value)
        size += len(value) + _ROW_OVERHEAD_BYTES
        last = name
    return lists, last


def merged_page(
    heads: ScanPage,
    chunks: Mapping[bytes, list[bytes]],
    limits: tuple[int, int],
    join: Join,
    *,
    more: bool,
) -> ScanPage:
    """Return a page of whole lists.

    Args:
        heads: rows of heads.
        chunks: by key, ascending: the chunks of the first lists that have some.
        limits: rows and bytes of the page.
        join: see ``Join``.
        more: whether more lists have chunks.
    """
    ends = [heads.keys[-1]] if heads.more else []
    if more:
        ends.append(list(chunks)[-1])
    lists = _joined(dict(zip(heads.keys, heads.values, strict=True)), chunks, join)
    keys = sorted(lists)
    if ends:
        keys = keys[: bisect_right(keys, min(ends))]
    values = [lists[key] for key in keys]
    count = min(_count_within(keys, values, limits[1]), limits[0])
    return ScanPage(keys[:count], values[:count], bool(ends) or count < len(keys))


def read_ranges(
    rows: Iterable[tuple[int, bytes, bytes]],
    range_count: int,
    limits: tuple[int, int],
    prefix_bytes: int | None,
) -> RangesRead:
    """Read rows of ranges, or the chunks of whole lists.

    Args:
        rows: of ``RangeRows``.
        range_count: the number of ranges.
        limits: rows or chunks, bytes; reading ends after the row that reaches one.
        prefix_bytes: the bytes of a RocksDB key before the key; ``None``: the rows are chunks.
    """
    # Names that are equal but for these last bytes are the chunks of one list.
    name_end = -layout.VERSION_BYTES
    limit_rows, bytes_left = limits
    places: list[int] = []
    names: list[bytes] = []
    values: list[bytes] = []
    end_place, is_cut = range_count, False
    for place, name, value in rows:
        is_full = len(names) >= limit_rows or bytes_left <= 0
        if is_full and not (prefix_bytes is None and name[:name_end] == names[-1][:name_end]):
            end_place, is_cut = place, place == places[-1]
            break
        places.append(place)
        names.append(name)
        values.append(value)
        bytes_left -= max(len(name) - (prefix_bytes or 0), len(value))
    if prefix_bytes is None:
        keys = [layout.key_of_chunk(name) for name in names]
    else:
        keys = [name[prefix_bytes:] for name in names]
    return RangesRead(places, keys, values, (end_place, keys[-1] + b"\0" if is_cut else b""))


def merged_ranges(
    heads: RangesRead, chunks: RangesRead, limits: tuple[int, int], join: Join
) -> RangesRead:
    """Return whole lists; arguments as for ``merged_page``. The ranges do not overlap."""
    parts: dict[bytes, list[bytes]] = {}
    for key, value in zip(chunks.keys, chunks.values, strict=True):
        parts.setdefault(key, []).append(value)
    lists = _joined(dict(zip(heads.keys, heads.values, strict=True)), parts, join)
    places = dict(zip(heads.keys, heads.places, strict=True))
    places.update(zip(chunks.keys, chunks.places, strict=True))
    end = min(heads.end, chunks.end)
    keys = sorted(key for key in lists if (places[key], key) < end)
    values = [lists[key] for key in keys]
    count = min(_count_within(keys, values, limits[1], row_bytes=0), limits[0])
    if count < len(keys):
        keys, values = keys[:count], values[:count]
        end = places[keys[-1]], keys[-1] + b"\0"
    return RangesRead([places[key] for key in keys], keys, values, end)


def _joined(
    heads: dict[bytes, bytes], chunks: Mapping[bytes, list[bytes]], join: Join
) -> dict[bytes, bytes]:
    """Put whole lists into ``heads`` and return it."""
    for key, parts in chunks.items():
        heads[key] = join(key, heads.get(key), parts)
    return heads


def _count_within(
    keys: Sequence[bytes],
    values: Sequence[bytes],
    limit_bytes: int,
    row_bytes: int = _ROW_OVERHEAD_BYTES,
) -> int:
    """Return the number of the first rows that reach a limit together, or of all.

    Args:
        keys: one per row.
        values: the same.
        limit_bytes: the limit.
        row_bytes: what a row counts besides its key or value.
    """
    for count, (key, value) in enumerate(zip(keys, values, strict=True), start=1):
        limit_bytes -= max(len(key), len(value)) + row_bytes
        if limit_bytes <= 0:
            return count
    return len(values)
