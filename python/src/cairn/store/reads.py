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
from cairn.rocks.keys import scan_bounds

if TYPE_CHECKING:
    from collections.abc import Generator

    from cairn.clock import Clock
    from cairn.rocks import RocksDb, ScanPage
    from cairn.store.spill import Spill

# Of the values in one reply to GET; more only if a single value is larger.
_MAX_GET_BYTES = 16 << 20
_MAX_PAGE_ROWS = 16_384
_MAX_PAGE_BYTES = 4 << 20
_SLICE_NS = 2_000_000
_STRIDE_KEYS = 512
# A key costs a bisection per run of the spill: some 2 ms for a stride.
_SPILL_STRIDE_KEYS = 64
_MERGE_STRIDE_ROWS = 256


@dataclass(frozen=True)
class ScanRequest:
    """One page to read: a family, the first key, the key after the last, the page's size."""

    cf: int
    start: bytes | None
    inclusive: bool
    end: bytes | None
    limit_rows: int
    limit_bytes: int


@dataclass
class ScanReply:
    """Rows in ascending key order; ``more`` says that rows follow."""

    origins: list[int]
    keys: list[bytes]
    values: list[bytes]
    more: bool


class TimeSlice:
    """How long a read may occupy the event loop before other work runs.

    Args:
        clock: of the worker.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin another slice."""
        self._end_ns = self._clock.monotonic_ns() + _SLICE_NS

    @property
    def is_over(self) -> bool:
        """Whether to yield."""
        return self._clock.monotonic_ns() >= self._end_ns


def read_keys(
    db: RocksDb, spill: Spill, cfs: list[int], keys: list[bytes], clock: Clock
) -> Generator[None, None, tuple[list[int], list[bytes | None]]]:
    """Steps that return origin and value of each key, in the order of ``keys``.

    Stops after the row with which the values reach ``_MAX_GET_BYTES``.

    Args:
        db: the committed state.
        spill: the session's own writes.
        cfs: the family of each key.
        keys: to read.
        clock: for the length of a step.
    """
    if len(keys) == 1 and not spill:  # most requests
        values = db.get_many(cfs[0], keys)
        return [ORIGIN_ABSENT if values[0] is None else ORIGIN_COMMITTED], values
    time_slice = TimeSlice(clock)
    origins: list[int] = []
    values = []
    size = 0
    stride = 1  # grows while values are small
    while len(values) < len(keys) and size < _MAX_GET_BYTES:
        if time_slice.is_over:
            yield
            time_slice.begin()
        some = slice(len(values), len(values) + stride)
        found = _committed(db, cfs[some], keys[some])
        for cf, key, committed in zip(cfs[some], keys[some], found, strict=True):
            origin, value = (ORIGIN_ABSENT if committed is None else ORIGIN_COMMITTED), committed
            if spill:
                origin, value = _with_spill(spill, cf, key, origin, value)
            origins.append(origin)
            values.append(value)
            size += len(value or b"")
            if size >= _MAX_GET_BYTES:
                break
        most = _SPILL_STRIDE_KEYS if spill else _STRIDE_KEYS
        stride = 1 if size > _MAX_GET_BYTES // 8 else min(2 * stride, most)
    return origins, values


def _committed(db: RocksDb, cfs: list[int], keys: list[bytes]) -> list[bytes | None]:
    families = set(cfs)
    if len(families) == 1:
        return db.get_many(cfs[0], keys)
    values: list[bytes | None] = [None] * len(keys)
    for cf in families:
        rows = [row for row, of in enumerate(cfs) if of == cf]
        found = db.get_many(cf, [keys[row] for row in rows])
        for row, value in zip(rows, found, strict=True):
            values[row] = value
    return values


def _with_spill(
    spill: Spill, cf: int, key: bytes, origin: int, value: bytes | None
) -> tuple[int, bytes | None]:
    hit = spill.find(cf, key)
    if hit is None:
        return origin, value
    op, written = hit
    if op == OP_DELETE:
        return ORIGIN_DELETED, None
    if op == OP_APPEND:
        return ORIGIN_SPILL, (value or b"") + (written or b"")
    return ORIGIN_SPILL, written


def read_page(
    db: RocksDb, spill: Spill, request: ScanRequest, clock: Clock
) -> Generator[None, None, ScanReply]:
    """Steps that return one page of a scan. It is empty only when nothing follows."""
    limit_rows = max(1, min(request.limit_rows or _MAX_PAGE_ROWS, _MAX_PAGE_ROWS))
    limit_bytes = max(1, min(request.limit_bytes or _MAX_PAGE_BYTES, _MAX_PAGE_BYTES))
    if not spill:
        page = _scan(db, request, limit_rows, limit_bytes)
        return ScanReply([ORIGIN_COMMITTED] * len(page.keys), page.keys, page.values, page.more)
    merged = _MergedPage(spill, request.cf, limit_rows, limit_bytes)
    time_slice = TimeSlice(clock)
    # In strides: the session may have deleted most of what the page passes over.
    while True:
        stride = min(limit_rows, _MERGE_STRIDE_ROWS)
        page = _scan(db, request, stride, limit_bytes)
        horizon = page.keys[-1] if page.more else None
        touched: set[bytes] = set()
        start = request.start
        first = start if start is None or request.inclusive else start + b"\x00"
        for keys, more in spill.ranges(request.cf, first, request.end, stride):
            touched.update(keys)
            if more and (horizon is None or keys[-1] < horizon):
                horizon = keys[-1]
        is_full = merged.add(dict(zip(page.keys, page.values, strict=True)), touched, horizon)
        if is_full or horizon is None:
            return merged.reply
        request = replace(request, start=horizon, inclusive=False)
        if time_slice.is_over:
            yield
            time_slice.begin()


def _scan(db: RocksDb, request: ScanRequest, limit_rows: int, limit_bytes: int) -> ScanPage:
    low, high = scan_bounds(
        request.cf,
        multi=request.cf in db.multi_families,
        start=request.start,
        inclusive=request.inclusive,
        end=request.end,
    )
    return db.scan(request.cf, low, high, limit_rows=limit_rows, limit_bytes=limit_bytes)


class _MergedPage:
    """A page that grows stride by stride."""

    def __init__(self, spill: Spill, cf: int, limit_rows: int, limit_bytes: int) -> None:
        self._spill = spill
        self._cf = cf
        self._rows_left = limit_rows
        self._bytes_left = limit_bytes
        self.reply = ScanReply([], [], [], more=False)

    def add(
        self, committed: dict[bytes, bytes], touched: set[bytes], horizon: bytes | None
    ) -> bool:
        """Add the rows up to ``horizon``; return whether the page is full.

        Args:
            committed: the next committed rows.
            touched: the next keys that the session wrote.
            horizon: the last key up to which both are complete; ``None``: to the end.
        """
        reply = self.reply
        reply.more = horizon is not None
        for key in sorted(committed.keys() | touched):
            if horizon is not None and key > horizon:
                break
            value: bytes | None = committed.get(key)
            origin = ORIGIN_COMMITTED
            if key in touched:
                origin, value = _with_spill(self._spill, self._cf, key, ORIGIN_ABSENT, value)
            if value is None or origin == ORIGIN_DELETED:
                continue
            if self._is_full:
                reply.more = True
                break
            reply.origins.append(origin)
            reply.keys.append(key)
            reply.values.append(value)
            self._rows_left -= 1
            self._bytes_left -= len(key) + len(value)
        return self._is_full

    @property
    def _is_full(self) -> bool:
        return self._rows_left <= 0 or self._bytes_left <= 0
