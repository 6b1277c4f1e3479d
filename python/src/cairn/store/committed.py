"""CommittedRows: what a store's reads find: the database, and over it the runs that it lacks.

Layer: store. On the event loop. Each call sees one state; between two calls of a long read, runs
may be merged, written into the database, or added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.rocks.keys import scan_bounds
from cairn.store.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.rocks import RocksDb
    from cairn.store.runs import Run

_COUNT_PAGE_ROWS = 4096
_COUNT_PAGE_BYTES = 1 << 20


@dataclass(frozen=True)
class ScanRequest:
    """One page to read: a family, the first key, the key after the last, the page's size."""

    cf: int
    start: bytes | None
    inclusive: bool
    end: bytes | None
    limit_rows: int
    limit_bytes: int


@dataclass(frozen=True)
class CommittedPage:
    """Rows in ascending key order.

    Attributes:
        keys: the keys.
        values: their values.
        through: the page has all rows up to this key, and others may follow; ``None``: up to the
            end of the range.
    """

    keys: list[bytes]
    values: list[bytes]
    through: bytes | None


class CommittedRows:
    """See the module.

    Attributes:
        database: holds the older versions.
        runs: the versions after them.
    """

    def __init__(self, database: RocksDb) -> None:
        self.database = database
        self.runs = Runs()

    def get(self, cf: int, key: bytes) -> bytes | None:
        """Return the value of one key, as ``get_many`` does."""
        if not self.runs.runs:
            return self.database.get(cf, key)
        hit = self.runs.find(cf, key)
        if hit is None:
            return self.database.get(cf, key)
        op, value = hit
        if op != OP_APPEND:
            return value
        return (self.database.get(cf, key) or b"") + (value or b"")

    def get_many(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, ``None`` where absent; errors as those of ``RocksDb``."""
        if not self.runs:
            return self.database.get_many(cf, keys)
        hits = self.runs.find_now(cf, keys)
        values = [None if hit is None else hit[1] for hit in hits]
        rows = [row for row, hit in enumerate(hits) if hit is None or hit[0] == OP_APPEND]
        if rows:
            below = self.database.get_many(cf, [keys[row] for row in rows])
            for row, value in zip(rows, below, strict=True):
                appended = values[row]
                values[row] = value if appended is None else (value or b"") + appended
        return values

    def present(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is present; sorted keys are faster."""
        if not self.runs:
            return self.database.present(cf, keys)
        hits = self.runs.find_now(cf, keys)
        found = [hit is not None and hit[0] != OP_DELETE for hit in hits]
        rows = [row for row, hit in enumerate(hits) if hit is None]
        if rows:
            below = self.database.present(cf, [keys[row] for row in rows])
            for row, is_present in zip(rows, below, strict=True):
                found[row] = is_present
        return found

    def scan(self, request: ScanRequest) -> CommittedPage:
        """Return the next rows of a scan, within its limits; the last row may exceed the bytes.

        An empty page with ``through`` says only that the rows up to that key were deleted.

        Raises:
            CorruptError: a block in the range is corrupt.
        """
        cf = request.cf
        runs = self.runs.of_family(cf)
        if any(cf in run.dropped for run in runs):
            return CommittedPage([], [], None)
        low, high = scan_bounds(
            cf,
            multi=cf in self.database.multi_families,
            start=request.start,
            inclusive=request.inclusive,
            end=request.end,
        )
        page = self.database.scan(
            cf, low, high, limit_rows=request.limit_rows, limit_bytes=request.limit_bytes
        )
        through = page.keys[-1] if page.more else None
        if not runs:
            return CommittedPage(page.keys, page.values, through)
        return _merged(CommittedPage(page.keys, page.values, through), runs, request)

    def count_keys(self, cf: int) -> Iterator[int]:
        """Yield the number of keys counted so far, page by page; the last is the count.

        REQUIRES: no version is added meanwhile.
        """
        count = 0
        start: bytes | None = None
        while True:
            page = self.scan(
                ScanRequest(
                    cf,
                    start,
                    inclusive=start is None,
                    end=None,
                    limit_rows=_COUNT_PAGE_ROWS,
                    limit_bytes=_COUNT_PAGE_BYTES,
                )
            )
            count += len(page.keys)
            yield count
            if page.through is None:
                return
            start = page.through


def _merged(page: CommittedPage, runs: list[Run], request: ScanRequest) -> CommittedPage:
    """Return the rows of a page with the writes of runs over them."""
    start = request.start
    first = start if start is None or request.inclusive else start + b"\0"
    through = page.through
    rows = dict(zip(page.keys, page.values, strict=True))
    is_changed = False
    for run in runs:
        ops, names, written, more = run.writes_between(
            request.cf,
            first,
            request.end,
            limit_rows=request.limit_rows,
            limit_bytes=request.limit_bytes,
        )
        is_changed |= bool(ops)
        apply_writes(ops, names, written, rows)
        if more and (through is None or names[-1] < through):
            through = names[-1]
    if not is_changed:
        return page
    keys = sorted(rows) if through is None else sorted(key for key in rows if key <= through)
    values = [rows[key] for key in keys]
    count = count_within(values, request.limit_rows, request.limit_bytes)
    if count < len(keys):
        through = keys[count - 1]
    return CommittedPage(keys[:count], values[:count], through)


def apply_writes(
    ops: list[int], keys: list[bytes], values: list[bytes | None], rows: dict[bytes, bytes]
) -> None:
    """Apply puts, deletes and appends to the values of keys, in their order."""
    if ops.count(OP_PUT) == len(ops):
        rows.update(zip(keys, cast("list[bytes]", values), strict=True))
        return
    for op, key, value in zip(ops, keys, values, strict=True):
        if op == OP_DELETE:
            rows.pop(key, None)
        elif op == OP_PUT:
            rows[key] = value or b""
        else:
            rows[key] = rows.get(key, b"") + (value or b"")


def count_within(values: list[bytes], limit_rows: int, limit_bytes: int) -> int:
    """Return how many rows fit into a page, which ends after the row that reaches its bytes."""
    count = min(len(values), limit_rows)
    for row, size in enumerate(accumulate(map(len, values[:count])), start=1):
        if size >= limit_bytes:
            return row
    return count
