"""Reads of a session: what it has spilled, over what is committed.

Layer: store. Runs on the owner thread. Origins: docs/architecture.md#data-channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.rocks import OP_APPEND, OP_DELETE, RocksDb
from cairn.rocks.keys import scan_bounds

if TYPE_CHECKING:
    from cairn.store.spill import Spill

ORIGIN_ABSENT = 0
ORIGIN_COMMITTED = 1
ORIGIN_SPILL = 2
ORIGIN_DELETED = 3

_MAX_PAGE_ROWS = 16_384
_MAX_PAGE_BYTES = 4 << 20


@dataclass(frozen=True)
class ScanRequest:
    """One page to read: family, from, up to before, and the page's size."""

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


def read_keys(
    db: RocksDb, spill: Spill | None, cfs: list[int], keys: list[bytes]
) -> tuple[list[int], list[bytes | None]]:
    """Return origin and value of each key, in the order asked.

    Args:
        db: the committed state.
        spill: the session's own writes, or ``None``.
        cfs: a family a key.
        keys: as many.
    """
    families = set(cfs)
    if len(families) == 1:
        values = db.get_many(cfs[0], keys)
    else:
        values = [None] * len(keys)
        for cf in families:
            rows = [row for row, of in enumerate(cfs) if of == cf]
            found = db.get_many(cf, [keys[row] for row in rows])
            for row, value in zip(rows, found, strict=True):
                values[row] = value
    origins = [ORIGIN_ABSENT if value is None else ORIGIN_COMMITTED for value in values]
    if spill is not None:
        for row, (cf, key) in enumerate(zip(cfs, keys, strict=True)):
            origins[row], values[row] = _over(spill, cf, key, origins[row], values[row])
    return origins, values


def _over(
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


def read_page(db: RocksDb, spill: Spill | None, request: ScanRequest) -> ScanReply:
    """Return one page of a scan. It is empty only when nothing follows."""
    start, inclusive = request.start, request.inclusive
    limit_rows = max(1, min(request.limit_rows or _MAX_PAGE_ROWS, _MAX_PAGE_ROWS))
    limit_bytes = max(1, min(request.limit_bytes or _MAX_PAGE_BYTES, _MAX_PAGE_BYTES))
    multi = request.cf in db.multi_families
    while True:
        low, high = scan_bounds(
            request.cf, multi=multi, start=start, inclusive=inclusive, end=request.end
        )
        page = db.scan(request.cf, low, high, limit_rows=limit_rows, limit_bytes=limit_bytes)
        if spill is None:
            return ScanReply([ORIGIN_COMMITTED] * len(page.keys), page.keys, page.values, page.more)
        committed = dict(zip(page.keys, page.values, strict=True))
        horizon = page.keys[-1] if page.more else None
        touched: set[bytes] = set()
        first = start if start is None or inclusive else start + b"\x00"
        for keys, more in spill.ranges(request.cf, first, request.end, limit_rows):
            touched.update(keys)
            if more and (horizon is None or keys[-1] < horizon):
                horizon = keys[-1]
        reply = _merge(spill, request.cf, committed, touched, horizon, limit_bytes)
        if reply.keys or not reply.more:
            return reply
        start, inclusive = horizon, False  # all of this page was deleted: the next may have rows


def _merge(
    spill: Spill,
    cf: int,
    committed: dict[bytes, bytes],
    touched: set[bytes],
    horizon: bytes | None,
    limit_bytes: int,
) -> ScanReply:
    reply = ScanReply([], [], [], more=horizon is not None)
    size = 0
    for key in sorted(committed.keys() | touched):
        if horizon is not None and key > horizon:
            break
        if size > limit_bytes:
            reply.more = True
            break
        value: bytes | None = committed.get(key)
        origin = ORIGIN_COMMITTED
        if key in touched:
            origin, value = _over(spill, cf, key, ORIGIN_ABSENT, value)
        if value is not None and origin != ORIGIN_DELETED:
            reply.origins.append(origin)
            reply.keys.append(key)
            reply.values.append(value)
            size += len(key) + len(value)
    return reply


__all__ = [
    "ORIGIN_ABSENT",
    "ORIGIN_COMMITTED",
    "ORIGIN_DELETED",
    "ORIGIN_SPILL",
    "ScanReply",
    "ScanRequest",
    "read_keys",
    "read_page",
]
