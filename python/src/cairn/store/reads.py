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
from cairn.store.committed import ScanRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from cairn.clock import Clock
    from cairn.store.committed import CommittedPage, CommittedRows
    from cairn.store.runs import Hit, Runs

# Bound of the values in one reply to GET; only a single larger value may exceed it.
_MAX_GET_BYTES = 16 << 20
_MAX_PAGE_ROWS = 16_384
_MAX_PAGE_BYTES = 4 << 20
_MAX_RANGES_BYTES = 1 << 20
_STEP_NS = 2_000_000
_STRIDE_KEYS = 512
# Each key costs one bisection per large run of the spill: some 2 ms for a stride.
_SPILL_STRIDE_KEYS = 64
_MERGE_STRIDE_ROWS = 256


@dataclass
class ScanReply:
    """Rows in ascending key order; ``more`` says that rows follow."""

    origins: list[int]
    keys: list[bytes]
    values: list[bytes]
    more: bool


def read_keys(
    rows: CommittedRows, spill: Runs, cfs: list[int], keys: list[bytes], clock: Clock
) -> Generator[None, None, tuple[list[int], list[bytes | None]]]:
    """Steps of some 2 ms that return origin and value of each key, in order; ``cfs``: its family.

    Stops after the row at which the values reach ``_MAX_GET_BYTES``.
    """
    if len(keys) == 1 and not spill.runs:  # most requests
        values = rows.get_many(cfs[0], keys)
        return [ORIGIN_ABSENT if values[0] is None else ORIGIN_COMMITTED], values
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    origins: list[int] = []
    values = []
    size = 0
    stride = 1  # grows while values are small
    most = _STRIDE_KEYS if spill.suits_bulk(_STRIDE_KEYS) else _SPILL_STRIDE_KEYS
    while len(values) < len(keys) and size < _MAX_GET_BYTES:
        if clock.monotonic_ns() >= step_end_ns:
            yield
            step_end_ns = clock.monotonic_ns() + _STEP_NS
        some = slice(len(values), len(values) + stride)
        found_at, found = _read(rows, spill, cfs[some], keys[some])
        sizes = [len(value or b"") for value in found]
        while size + sum(sizes) - sizes[-1] >= _MAX_GET_BYTES:
            sizes.pop()
        origins += found_at[: len(sizes)]
        values += found[: len(sizes)]
        size += sum(sizes)
        stride = 1 if size > _MAX_GET_BYTES // 8 else min(2 * stride, most)
    return origins, values


def _read(
    rows: CommittedRows, spill: Runs, cfs: list[int], keys: list[bytes]
) -> tuple[list[int], list[bytes | None]]:
    """Return origin and value of each key."""
    families = set(cfs)
    if len(families) == 1:
        return _read_family(rows, spill, cfs[0], keys)
    origins = [ORIGIN_ABSENT] * len(keys)
    values: list[bytes | None] = [None] * len(keys)
    for cf in families:
        places = [place for place, of in enumerate(cfs) if of == cf]
        found_at, found = _read_family(rows, spill, cf, [keys[place] for place in places])
        for place, origin, value in zip(places, found_at, found, strict=True):
            origins[place], values[place] = origin, value
    return origins, values


def _read_family(
    rows: CommittedRows, spill: Runs, cf: int, keys: list[bytes]
) -> tuple[list[int], list[bytes | None]]:
    hits = spill.find_many(cf, keys) if spill.runs else []
    if not any(hits):
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
    # Over a spill in strides: the session may have deleted most of the rows in the range.
    stride_rows = min(limit_rows, _MERGE_STRIDE_ROWS) if spill else limit_rows
    request = replace(request, limit_rows=stride_rows, limit_bytes=limit_bytes)
    reply, size = ScanReply([], [], [], more=False), 0
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    while True:
        page = rows.scan(request)
        if spill:
            merged, through = _with_spilled(page, spill, request)
            for origin, key, value in merged:
                if len(reply.keys) >= limit_rows or size >= limit_bytes:
                    reply.more = True
                    return reply
                reply.origins.append(origin)
                reply.keys.append(key)
                reply.values.append(value)
                size += len(key) + len(value)
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
) -> Generator[None, None, ScanReply]:
    """Steps that return the rows of ranges that ascend and do not overlap.

    ``more`` says that the range of the last row may have more rows, and that those after it were
    not read.
    """
    reply, size = ScanReply([], [], [], more=False), 0
    step_end_ns = clock.monotonic_ns() + _STEP_NS
    seeker = None
    for place, (start, end) in enumerate(ranges, start=1):
        if clock.monotonic_ns() >= step_end_ns:
            seeker = None  # it must not outlive the database, which another load may close
            yield
            step_end_ns = clock.monotonic_ns() + _STEP_NS
        request = ScanRequest(
            cf,
            start,
            inclusive=True,
            end=end,
            limit_rows=_MAX_PAGE_ROWS - len(reply.keys),
            limit_bytes=_MAX_RANGES_BYTES - size,
        )
        if rows.is_merged(cf, start, end) or spill.concern_range(cf, start, end):
            seeker = None
            page = yield from read_page(rows, spill, request, clock)
            origins, keys, values, more = page.origins, page.keys, page.values, page.more
        else:
            seeker = seeker or rows.database.seeker()
            found = rows.database.read_range(
                seeker, cf, start, end, (request.limit_rows, request.limit_bytes)
            )
            origins, keys, values = [ORIGIN_COMMITTED] * len(found.keys), found.keys, found.values
            more = found.more
        reply.origins += origins
        reply.keys += keys
        reply.values += values
        size += sum(map(len, values))
        if more or size >= _MAX_RANGES_BYTES or len(reply.keys) >= _MAX_PAGE_ROWS:
            reply.more = more or place < len(ranges)
            return reply
    return reply


def _with_spilled(
    page: CommittedPage, spill: Runs, request: ScanRequest
) -> tuple[Iterator[tuple[int, bytes, bytes]], bytes | None]:
    """Return the next rows, all up to a last key, and that key; ``None``: up to the end."""
    horizon = page.through
    written: set[bytes] = set()
    start = request.start
    first = start if start is None or request.inclusive else start + b"\x00"
    for run in spill.runs:
        keys, more = run.between(request.cf, first, request.end, request.limit_rows)
        written.update(keys)
        if more and (horizon is None or keys[-1] < horizon):
            horizon = keys[-1]
    committed = dict(zip(page.keys, page.values, strict=True))

    def rows() -> Iterator[tuple[int, bytes, bytes]]:
        for key in sorted(committed.keys() | written):
            if horizon is not None and key > horizon:
                return
            origin, value = ORIGIN_COMMITTED, committed.get(key)
            if key in written:
                origin, value = with_spill(spill, request.cf, key, value)
            if value is not None:
                yield origin, key, value

    return rows(), horizon
