"""Reads of a session: its spill over the committed state.

Layer: store.  Spec: docs/protocol.md#data-channel (origin). Reads run on the event loop, in steps:
other work runs between two steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.protocol.frames import (
    ORIGIN_ABSENT,
    ORIGIN_COMMITTED,
    ORIGIN_DELETED,
    ORIGIN_SPILL,
)
from cairn.store.committed import ScanRequest, apply_writes, count_within
from cairn.store.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Generator

    from cairn.clock import Clock
    from cairn.store.committed import CommittedPage, CommittedRows
    from cairn.store.runs import Hit

# Bound of the values in one reply to GET; only a single larger value may exceed it.
_MAX_GET_BYTES = 16 << 20
_MAX_PAGE_ROWS = 16_384
_MAX_PAGE_BYTES = 4 << 20
_MAX_RANGES_BYTES = 1 << 20
_STEP_NS = 2_000_000
_STRIDE_KEYS = 512
# Rows of each run that a step of a scan over a spill reads: at most, and at least.
_MERGE_STRIDE_ROWS = 2048
_MIN_MERGED_ROWS = 256
_RANGES_PER_STEP = 128
_NOTHING_SPILLED = Runs()


@dataclass
class ScanReply:
    """Rows in ascending key order; ``more`` says that rows follow."""

    origins: list[int]
    keys: list[bytes]
    values: list[bytes]
    more: bool


@dataclass
class RangesReply(ScanReply):
    """``more`` says that the range of the last row may have more, and later ones were not read.

    Attributes:
        is_spilled: for each range whether the session has spilled writes of it.
        read_count: the first ranges, of which all rows are here.
    """

    is_spilled: list[bool]
    read_count: int


def read_keys(
    rows: CommittedRows, spill: Runs, cfs: list[int], keys: list[bytes], clock: Clock
) -> Generator[None, None, tuple[list[int], list[bytes | None]]]:
    """Steps of some 2 ms that return origin and value of each key, in order; ``cfs``: its family.

    Stops after the row at which the values reach ``_MAX_GET_BYTES``.
    """
    if len(keys) == 1 and not spill.runs:  # most requests
        values = rows.get_many(cfs[0], keys)
        return [ORIGIN_ABSENT if values[0] is None else ORIGIN_COMMITTED], values
    hits = (yield from _find_spilled(spill, cfs, keys)) if spill.runs else None
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    origins: list[int] = []
    values = []
    size = 0
    stride = 1  # grows while values are small
    while len(values) < len(keys) and size < _MAX_GET_BYTES:
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + _STEP_NS
        some = slice(len(values), len(values) + stride)
        found_at, found = _read(rows, hits and hits[some], cfs[some], keys[some])
        sizes = [len(value or b"") for value in found]
        while size + sum(sizes) - sizes[-1] >= _MAX_GET_BYTES:
            sizes.pop()
        origins += found_at[: len(sizes)]
        values += found[: len(sizes)]
        size += sum(sizes)
        stride = 1 if size > _MAX_GET_BYTES // 8 else min(2 * stride, _STRIDE_KEYS)
    return origins, values


def _find_spilled(
    spill: Runs, cfs: list[int], keys: list[bytes]
) -> Generator[None, None, list[Hit | None]]:
    """Steps that return the spilled write of each key.

    All keys at once: to find few keys in a large run costs as much as to find many.
    """
    families = set(cfs)
    if len(families) == 1:
        return (yield from spill.find_many(cfs[0], keys))
    hits: list[Hit | None] = [None] * len(keys)
    for cf in families:
        places = [place for place, of in enumerate(cfs) if of == cf]
        found = yield from spill.find_many(cf, [keys[place] for place in places])
        for place, hit in zip(places, found, strict=True):
            hits[place] = hit
    return hits


def _read(
    rows: CommittedRows, hits: list[Hit | None] | None, cfs: list[int], keys: list[bytes]
) -> tuple[list[int], list[bytes | None]]:
    """Return origin and value of each key; ``hits``: their spilled writes, if there are any."""
    families = set(cfs)
    if len(families) == 1:
        return _read_family(rows, hits, cfs[0], keys)
    origins = [ORIGIN_ABSENT] * len(keys)
    values: list[bytes | None] = [None] * len(keys)
    for cf in families:
        places = [place for place, of in enumerate(cfs) if of == cf]
        found_at, found = _read_family(
            rows, hits and [hits[place] for place in places], cf, [keys[place] for place in places]
        )
        for place, origin, value in zip(places, found_at, found, strict=True):
            origins[place], values[place] = origin, value
    return origins, values


def _read_family(
    rows: CommittedRows, hits: list[Hit | None] | None, cf: int, keys: list[bytes]
) -> tuple[list[int], list[bytes | None]]:
    if hits is None or not any(hits):
        values = rows.get_many(cf, keys)
        return [ORIGIN_ABSENT if one is None else ORIGIN_COMMITTED for one in values], values
    # What the spill puts or deletes is not looked up below it.
    places = [place for place, hit in enumerate(hits) if hit is None or hit[0] == OP_APPEND]
    below = rows.get_many(cf, [keys[place] for place in places]) if places else []
    committed: list[bytes | None] = [None] * len(keys)
    for place, value in zip(places, below, strict=True):
        committed[place] = value
    answers = [_over(hit, value) for hit, value in zip(hits, committed, strict=True)]
    return [origin for origin, _ in answers], [value for _, value in answers]


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
) -> Generator[None, None, ScanReply]:
    """Steps that return one page of a scan. It is empty only when nothing follows."""
    limit_rows = max(1, min(request.limit_rows or _MAX_PAGE_ROWS, _MAX_PAGE_ROWS))
    limit_bytes = max(1, min(request.limit_bytes or _MAX_PAGE_BYTES, _MAX_PAGE_BYTES))
    if not spill.concerns(request.cf):
        spill = _NOTHING_SPILLED
    # Over a spill in strides: the session may have deleted most of the rows in the range.
    stride_rows = min(limit_rows, _MERGE_STRIDE_ROWS) if spill else limit_rows
    request = replace(request, limit_rows=stride_rows, limit_bytes=limit_bytes)
    reply, size = ScanReply([], [], [], more=False), 0
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    while True:
        page = rows.scan(request)
        if spill:
            merged, through = _with_spilled(page, spill, request)
            count = count_within(merged.values, limit_rows - len(reply.keys), limit_bytes - size)
            reply.origins += merged.origins[:count]
            reply.keys += merged.keys[:count]
            reply.values += merged.values[:count]
            size += sum(map(len, merged.values[:count]))
            if count < len(merged.keys):
                reply.more = True
                return reply
            is_full = len(reply.keys) >= limit_rows or size >= limit_bytes
        else:
            origins, through = [ORIGIN_COMMITTED] * len(page.keys), page.through
            reply = ScanReply(origins, page.keys, page.values, more=False)
            is_full = bool(page.keys)
        reply.more = through is not None
        if through is None or is_full:
            return reply
        request = replace(request, start=through, inclusive=False)
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + _STEP_NS


def read_ranges(
    rows: CommittedRows,
    spill: Runs,
    cf: int,
    ranges: list[tuple[bytes, bytes | None]],
    clock: Clock,
) -> Generator[None, None, RangesReply]:
    """Steps that return the rows of ranges that ascend and do not overlap."""
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    is_spilled = yield from spill.concern_ranges(cf, starts, ends)
    is_merged = yield from _are_merged(rows, cf, starts, ends)
    is_merged = [one or other for one, other in zip(is_merged, is_spilled, strict=True)]
    reply, size = RangesReply([], [], [], more=False, is_spilled=is_spilled, read_count=0), 0
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    seeker = None
    place = 0
    while place < len(ranges):
        if clock.monotonic_ns() >= step_end_ns:
            seeker = None  # it must not outlive the database, which another load may close
            yield
            step_end_ns = clock.monotonic_ns() + _STEP_NS
        limits = (_MAX_PAGE_ROWS - len(reply.keys), _MAX_RANGES_BYTES - size)
        if is_merged[place]:
            seeker = None
            request = ScanRequest(cf, starts[place], True, ends[place], *limits)  # noqa: FBT003
            page = yield from read_page(rows, spill, request, clock)
            origins, keys, values, more = page.origins, page.keys, page.values, page.more
            place += 1
        else:
            seeker = seeker or rows.database.seeker()
            last = place + 1
            while last < min(len(ranges), place + _RANGES_PER_STEP) and not is_merged[last]:
                last += 1
            found, place = rows.database.read_ranges(seeker, cf, ranges, (place, last), limits)
            origins, keys, values = [ORIGIN_COMMITTED] * len(found.keys), found.keys, found.values
            more = found.more
        reply.origins += origins
        reply.keys += keys
        reply.values += values
        size += sum(map(len, values))
        reply.read_count = place - 1 if more else place
        if more or size >= _MAX_RANGES_BYTES or len(reply.keys) >= _MAX_PAGE_ROWS:
            reply.more = more or place < len(ranges)
            return reply
    return reply


def _are_merged(
    rows: CommittedRows, cf: int, starts: list[bytes], ends: list[bytes | None]
) -> Generator[None, None, list[bool]]:
    """Steps that return which ranges are more than a read of the database: runs, lists."""
    if cf in rows.database.multi_families:
        return [True] * len(starts)
    return (yield from rows.runs.concern_ranges(cf, starts, ends))


def _with_spilled(
    page: CommittedPage, spill: Runs, request: ScanRequest
) -> tuple[ScanReply, bytes | None]:
    """Return the next rows, all up to a last key, and that key; ``None``: up to the end."""
    horizon = page.through
    start = request.start
    first = start if start is None or request.inclusive else start + b"\x00"
    rows: dict[bytes, bytes] = dict(zip(page.keys, page.values, strict=True))
    written: set[bytes] = set()
    runs = spill.of_family(request.cf)
    # What a run has behind the last key of another one is read again for the next rows.
    limit_rows = max(_MIN_MERGED_ROWS, request.limit_rows // len(runs))
    for run in runs:
        if request.cf in run.dropped:
            rows.clear()
            written.clear()
            continue
        ops, keys, values, more = run.writes_between(
            request.cf,
            first,
            request.end,
            limit_rows=limit_rows,
            limit_bytes=request.limit_bytes,
        )
        apply_writes(ops, keys, values, rows)
        written.update(keys)
        if more and (horizon is None or keys[-1] < horizon):
            horizon = keys[-1]
    keys = sorted(rows) if horizon is None else sorted(key for key in rows if key <= horizon)
    origins = [ORIGIN_SPILL if key in written else ORIGIN_COMMITTED for key in keys]
    return ScanReply(origins, keys, [rows[key] for key in keys], more=False), horizon
