"""Reads of a session: its spill over the committed state.

Layer: store.  Spec: docs/protocol.md#data-channel (origin). Reads run on the event loop, in steps:
other work runs between two steps.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.protocol.frames import (
    ORIGIN_ABSENT,
    ORIGIN_COMMITTED,
    ORIGIN_DELETED,
    ORIGIN_SPILL,
)
from cairn.store.rows.committed import Page, ScanRequest
from cairn.store.rows.merge import Layers, page_bytes
from cairn.store.rows.writes import one_batch

if TYPE_CHECKING:
    from collections.abc import Generator

    from cairn.clock import Clock
    from cairn.rocks import RocksDb
    from cairn.store.rows.committed import CommittedRows
    from cairn.store.rows.runs import Hit, RowNumbers, Run, Runs

# Bound of the values in one reply to GET; only a single larger value may exceed it.
_MAX_GET_BYTES = 16 << 20
MAX_PAGE_ROWS = 16_384
_MAX_PAGE_BYTES = 4 << 20
MAX_RANGES_BYTES = 1 << 20
STEP_NS = 2_000_000
_STRIDE_KEYS = 512
# Rows that a step of a scan over runs reads of each of them.
_MERGE_STRIDE_ROWS = 8192
RANGES_PER_STEP = 256


@dataclass(frozen=True)
class RangesReply(Page):
    """A page of several ranges: those after ``through`` were not read.

    Attributes:
        is_spilled: for each range whether the session has spilled writes of it.
        read_count: the first ranges, of which all rows are here.
    """

    is_spilled: list[bool]
    read_count: int


def read_keys(
    rows: CommittedRows, spill: Runs, cf: int, keys: list[bytes], clock: Clock
) -> Generator[None, None, tuple[bytearray, list[bytes | None]]]:
    """Steps of some 2 ms that return origin and value of each key, in order; ``cf``: their family.

    Stops after the row at which the values reach ``_MAX_GET_BYTES``.
    """
    if len(keys) == 1 and not spill.runs:  # most requests
        one = rows.get(cf, keys[0])
        return bytearray((ORIGIN_ABSENT if one is None else ORIGIN_COMMITTED,)), [one]
    spilled = yield from spill.find_many(cf, keys)
    searched: Runs | None = None
    hits: dict[int, Hit] = {}
    step_end_ns = clock.monotonic_ns() + STEP_NS
    origins = bytearray()
    values: list[bytes | None] = []
    size = 0
    stride = 1  # grows while values are small
    while len(values) < len(keys) and size < _MAX_GET_BYTES:
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + STEP_NS
        while searched is not rows.runs:
            # Between two steps others may enter the database: it then has their appends.
            searched = rows.runs
            hits = yield from searched.find_many(cf, keys)
        some = range(len(values), min(len(values) + stride, len(keys)))
        found_at, found = _read_some(rows.database, cf, keys, some, (hits, spilled))
        size += sum(map(len, filter(None, found)))
        while size - len(found[-1] or b"") >= _MAX_GET_BYTES:
            size -= len(found.pop() or b"")
        origins += found_at[: len(found)]
        values += found
        stride = 1 if size > _MAX_GET_BYTES // 8 else min(2 * stride, _STRIDE_KEYS)
    return origins, values


def _read_some(
    database: RocksDb,
    cf: int,
    keys: list[bytes],
    some: range,
    writes: tuple[dict[int, Hit], dict[int, Hit]],
) -> tuple[bytearray, list[bytes | None]]:
    """Return origin and value of some keys.

    Args:
        database: holds the older versions.
        cf: the family of the keys.
        keys: of the whole request.
        some: the places of the keys to read.
        writes: those of the committed runs, and those of the spill, by place.
    """
    # What a write puts or deletes is not looked up below it.
    decided = {
        place
        for layer in writes
        for place in (some if layer else ())
        if place in layer and layer[place][0] != OP_APPEND
    }
    if not decided:
        found = database.get_many(cf, keys[some.start : some.stop])
    else:
        found = [None] * len(some)
        below = [place for place in some if place not in decided]
        read = database.get_many(cf, [keys[place] for place in below]) if below else []
        for place, value in zip(below, read, strict=True):
            found[place - some.start] = value
    committed, spilled = writes
    for place in some if committed else ():
        if place in committed:
            at = place - some.start
            _, found[at] = _over(committed[place], found[at])
    origins = bytearray([ORIGIN_ABSENT if one is None else ORIGIN_COMMITTED for one in found])
    for place in some if spilled else ():
        if place in spilled:
            at = place - some.start
            origins[at], found[at] = _over(spilled[place], found[at])
    return origins, found


def with_spill(
    spill: Runs, cf: int, key: bytes, committed: bytes | None
) -> tuple[int, bytes | None]:
    """Return origin and value of a key.

    Args:
        spill: the spill of the session that reads.
        cf: the key's family.
        key: the key.
        committed: its committed value.
    """
    return _over(spill.find(cf, key) if spill else None, committed)


def _over(hit: Hit | None, committed: bytes | None) -> tuple[int, bytes | None]:
    """Return origin and value of a key: its write in the spill over its committed value."""
    if hit is None:
        return ORIGIN_ABSENT if committed is None else ORIGIN_COMMITTED, committed
    op, written = hit
    if op == OP_DELETE:
        return ORIGIN_DELETED, None
    if op == OP_APPEND:
        return ORIGIN_SPILL, (committed or b"") + (written or b"")
    return ORIGIN_SPILL, written


def read_page(
    rows: CommittedRows, spill: Runs, request: ScanRequest, clock: Clock
) -> Generator[None, None, Page]:
    """Steps that return one page of a scan. It is empty only when nothing follows."""
    limit_rows = max(1, min(request.limit_rows or MAX_PAGE_ROWS, MAX_PAGE_ROWS))
    limit_bytes = max(1, min(request.limit_bytes or _MAX_PAGE_BYTES, _MAX_PAGE_BYTES))
    parts: list[pa.RecordBatch] = []
    count = size = 0
    step_end_ns = clock.monotonic_ns() + STEP_NS
    while True:
        # Over runs in strides: they may have deleted most of the rows in the range. The stride does
        # not become shorter with the rows that are left to find, of which each may have few.
        is_plain = not spill.concerns(request.cf) and not rows.runs.concerns(request.cf)
        stride_rows = min(limit_rows, _MERGE_STRIDE_ROWS)
        left_rows = limit_rows if is_plain else min(limit_rows - count, stride_rows)
        request = replace(request, limit_rows=left_rows, limit_bytes=limit_bytes - size)
        page = rows.scan(request, spill, stride_rows)
        parts.append(page.rows)
        count += page.rows.num_rows
        size += page_bytes(page.rows)
        is_full = count >= limit_rows or size >= limit_bytes or (is_plain and count)
        if page.through is None or is_full:
            return Page(one_batch(parts), page.through)
        request = replace(request, start=page.through, inclusive=False)
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + STEP_NS


class _RangeReader:
    """Reads the rows of ranges that ascend and do not overlap; see ``read_ranges``.

    Attributes:
        is_spilled: for each range whether the spill has writes of it.
        is_one_by_one: each range is read as a scan of its own: the family was dropped.
    """

    def __init__(
        self, rows: CommittedRows, spill: Runs, cf: int, ranges: list[tuple[bytes, bytes | None]]
    ) -> None:
        self._rows = rows
        self._spill = spill
        self._cf = cf
        self._ranges = ranges
        self._starts = [start for start, _ in ranges]
        # The rows of each run in each range.
        self._layers: list[tuple[Run, RowNumbers, RowNumbers]] = []
        self._committed_count = 0
        # The runs among them that are committed, of which others may have taken the place since.
        self._committed: Runs | None = None
        self.is_spilled = np.zeros(len(ranges), np.bool_)
        self.is_one_by_one = False

    def find_layers(self) -> Generator[None, None, None]:
        """Steps that find which runs have rows of which ranges, if that is not known.

        To be called in each step. Between two steps runs may be written into the database: an
        append that is there must not be applied again.
        """
        while self._committed is not self._rows.runs:
            self._committed = self._rows.runs
            starts, ends = self._starts, [end for _, end in self._ranges]
            runs = (*self._committed.runs, *self._spill.runs)
            self.is_one_by_one = any(self._cf in run.dropped for run in runs)
            self._layers = yield from self._committed.rows_of_ranges(self._cf, starts, ends)
            self._committed_count = len(self._layers)
            spilled = yield from self._spill.rows_of_ranges(self._cf, starts, ends)
            self._layers += spilled
            for _, firsts, lasts in spilled:
                self.is_spilled |= firsts < lasts

    def read(self, place: int, limits: tuple[int, int]) -> tuple[pa.RecordBatch, int, bool] | None:
        """Return the rows of some ranges, the range after them, and whether its last has more.

        Args:
            place: the first of the ranges.
            limits: rows and bytes of the page; its last row reaches them.

        Returns:
            ``None`` if the first range must be read as a scan of its own: it has too many rows in
            runs, or all rows that were found are deleted there.
        """
        last = min(len(self._ranges), place + RANGES_PER_STEP)
        while self._is_too_much(place, last):
            if last == place + 1:
                return None
            last = place + (last - place) // 2
        found = self._rows.database.read_ranges(self._cf, self._ranges[place:last], limits)
        following = place + found.count
        some = slice(place, following)
        through = found.keys[-1].as_py() if found.more else None
        writes: list[pa.RecordBatch] = []
        committed_count = 0
        for place_of_run, (run, firsts, lasts) in enumerate(self._layers):
            numbers = _numbers(firsts[some], lasts[some])
            if len(numbers):
                writes.append(run.rows_at(numbers, through))
                committed_count += place_of_run < self._committed_count
        layers = Layers(found.keys, found.values, writes, committed_count)
        rows, is_cut = layers.merged(limits)
        if is_cut:
            following = bisect_right(self._starts, rows.column("key")[-1].as_py())
        if found.more and not rows.num_rows:
            # A page that says that more follow must have a row.
            return None if following == place + 1 else (rows, following - 1, False)
        return rows, following, is_cut or found.more

    def _is_too_much(self, place: int, last: int) -> bool:
        some = slice(place, last)
        row_count = size = 0
        for run, firsts, lasts in self._layers:
            row_count += int((lasts[some] - firsts[some]).sum())
            size += run.page_bytes(firsts[some], lasts[some])
        return row_count > MAX_PAGE_ROWS // 4 or size > MAX_RANGES_BYTES


def _numbers(firsts: RowNumbers, lasts: RowNumbers) -> RowNumbers:
    """Return the numbers from each first one to before its last one."""
    counts = lasts - firsts
    ends = counts.cumsum()
    skipped: RowNumbers = np.repeat(firsts - ends + counts, counts)
    skipped += np.arange(len(skipped))
    return skipped


def read_ranges(
    rows: CommittedRows,
    spill: Runs,
    cf: int,
    ranges: list[tuple[bytes, bytes | None]],
    clock: Clock,
) -> Generator[None, None, RangesReply]:
    """Steps that return the rows of ranges that ascend and do not overlap."""
    reader = _RangeReader(rows, spill, cf, ranges)
    parts: list[pa.RecordBatch] = []
    count = size = place = 0
    more = False
    step_end_ns = clock.monotonic_ns() + STEP_NS
    while place < len(ranges) and not more and count < MAX_PAGE_ROWS and size < MAX_RANGES_BYTES:
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + STEP_NS
        yield from reader.find_layers()
        limits = (MAX_PAGE_ROWS - count, MAX_RANGES_BYTES - size)
        part = None if reader.is_one_by_one else reader.read(place, limits)
        if part is None:
            start, end = ranges[place]
            request = ScanRequest(cf, start, True, end, *limits)  # noqa: FBT003
            page = yield from read_page(rows, spill, request, clock)
            part = page.rows, place + 1, page.through is not None
        some, place, more = part
        parts.append(some)
        count += some.num_rows
        size += page_bytes(some)
    rows_read = one_batch(parts)
    is_all = not more and place == len(ranges)
    return RangesReply(
        rows_read,
        None if is_all else rows_read.column("key")[-1].as_py(),
        is_spilled=reader.is_spilled.tolist(),
        read_count=place - 1 if more else place,
    )
