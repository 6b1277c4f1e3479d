"""CommittedRows: what a store's reads find: the database, and over it the runs that it lacks.

Layer: store. On the event loop. Each call sees one state; between two calls of a long read, runs
may be merged, written into the database, or added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.store.rows.merge import Layers
from cairn.store.rows.runs import NO_RUNS, Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cairn.rocks import RocksDb
    from cairn.store.rows.deltas import CommittedRun

# Rows of each run that are merged at once, at least.
_MIN_MERGED_ROWS = 256
# Rows of the database that are merged at once: each costs as much as five of a run.
_MAX_DATABASE_ROWS = 2048
COUNT_PAGE_ROWS = 4096
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

    @property
    def first(self) -> bytes | None:
        """The first key that may be in the page."""
        return self.start if self.start is None or self.inclusive else self.start + b"\0"


@dataclass(frozen=True)
class Page:
    """Rows of one family in ascending key order.

    Attributes:
        rows: as ``SCAN_REPLY_SCHEMA`` has them.
        through: they are all rows up to this key, and others may follow; ``None``: up to the end
            of the range.
    """

    rows: pa.RecordBatch
    through: bytes | None


class CommittedRows:
    """See the module.

    Attributes:
        database: holds the older versions.
        newer: the versions after them, ascending.
        runs: these, as reads search them.
    """

    def __init__(self, database: RocksDb) -> None:
        self.database = database
        self.newer: tuple[CommittedRun, ...] = ()
        self.runs = NO_RUNS

    def add(self, run: CommittedRun) -> None:
        """Add the next versions."""
        self._set((*self.newer, run))

    def replace(self, former: Sequence[CommittedRun], *now: CommittedRun) -> None:
        """Put runs, or none, into the place of ``former``, which follow each other."""
        start = self.newer.index(former[0])
        self._set((*self.newer[:start], *now, *self.newer[start + len(former) :]))

    def _set(self, newer: tuple[CommittedRun, ...]) -> None:
        self.newer = newer
        self.runs = Runs(newer)

    def get(self, cf: int, key: bytes) -> bytes | None:
        """Return the value of one key, ``None`` where absent; errors as those of ``RocksDb``."""
        if not self.runs.runs:
            return self.database.get(cf, key)
        hit = self.runs.find(cf, key)
        if hit is None:
            return self.database.get(cf, key)
        op, value = hit
        if op != OP_APPEND:
            return value
        return (self.database.get(cf, key) or b"") + (value or b"")

    def present(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is present; REQUIRES: they ascend."""
        if not self.runs:
            return self.database.present(cf, keys)
        hits = self.runs.find_now(cf, keys)
        found = [place in hits and hits[place][0] != OP_DELETE for place in range(len(keys))]
        rows = [place for place in range(len(keys)) if place not in hits]
        if rows:
            below = self.database.present(cf, [keys[row] for row in rows])
            for row, is_present in zip(rows, below, strict=True):
                found[row] = is_present
        return found

    def scan(self, request: ScanRequest, spill: Runs = NO_RUNS, stride_rows: int = 0) -> Page:
        """Return the next rows of a scan, within its limits; the last row may exceed the bytes.

        An empty page with ``through`` says only that the rows up to that key were deleted.

        Args:
            request: what to read.
            spill: the writes of the session that reads.
            stride_rows: over runs, rows that are read of these together, at most; 0: as many as
                are wanted.

        Raises:
            CorruptError: a block in the range is corrupt.
        """
        cf, limits = request.cf, (request.limit_rows, request.limit_bytes)
        runs = self.runs.of_family(cf)
        committed_count = len(runs)
        runs += spill.of_family(cf)
        drops = [index for index, run in enumerate(runs) if cf in run.dropped]
        if drops:
            runs = runs[drops[-1] + 1 :]
            committed_count = max(0, committed_count - drops[-1] - 1)
        stride_rows = stride_rows or request.limit_rows
        parts = []
        through: bytes | None = None
        # What a run has behind the last key of another one is read again for the next rows.
        limit_rows = max(_MIN_MERGED_ROWS, stride_rows // max(1, len(runs)))
        for run in runs:
            first, stop, more = run.first_rows(
                cf,
                request.first,
                request.end,
                limit_rows=limit_rows,
                limit_bytes=request.limit_bytes,
            )
            parts.append((run, first, stop))
            if more and (through is None or run.key(stop - 1) < through):
                through = run.key(stop - 1)
        keys: list[bytes] = []
        values: list[bytes] = []
        if not drops:
            # Runs of many deletes reach less far than as many rows of the database.
            most = min(stride_rows, _MAX_DATABASE_ROWS) if runs else request.limit_rows
            keys, values, more = self._scan_database(request, through, most)
            through = keys[-1] if more else through
        if not runs:
            return Page(Layers(_column(keys), _column(values)).merged(limits)[0], through)
        if through is not None:
            parts = [(run, first, run.rows_up_to(cf, through, stop)) for run, first, stop in parts]
        writes = [run.rows.slice(first, stop - first) for run, first, stop in parts]
        layers = Layers(_column(keys), _column(values), writes, committed_count)
        rows, is_cut = layers.merged(limits)
        if is_cut:
            through = rows.column("key")[-1].as_py()
        return Page(rows, through)

    def _scan_database(
        self, request: ScanRequest, through: bytes | None, limit_rows: int
    ) -> tuple[list[bytes], list[bytes], bool]:
        """Return keys and values up to ``through``, and whether more follow up to there."""
        page = self.database.scan(
            request.cf,
            start=request.start,
            inclusive=request.inclusive,
            end=request.end if through is None else through + b"\0",
            limit_rows=limit_rows,
            limit_bytes=request.limit_bytes,
        )
        return page.keys, page.values, page.more

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
                    limit_rows=COUNT_PAGE_ROWS,
                    limit_bytes=_COUNT_PAGE_BYTES,
                )
            )
            count += page.rows.num_rows
            yield count
            if page.through is None:
                return
            start = page.through


def _column(cells: list[bytes]) -> pa.Array[Any]:
    return pa.array(cells, pa.binary())
