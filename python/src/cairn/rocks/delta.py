"""Delta: a committed version's writes, which are written to RocksDB in slices.

Layer: rocks.  Spec: docs/checkpoint-format.md#changelog (the rows are the changelog's).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

# Arrow's type hints lack plain numbers as operands, and the results.
pc: Any = pyarrow.compute


def sorted_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with columns ``cf`` and ``key`` sorted by them, stably."""
    if rows.num_rows < 2 or _ascends(rows):  # noqa: PLR2004 - nothing to sort
        return rows
    if pc.min(rows.column("cf")).as_py() == pc.max(rows.column("cf")).as_py():
        return rows.take(pc.array_sort_indices(rows.column("key")))
    return rows.take(pc.sort_indices(rows, [("cf", "ascending"), ("key", "ascending")]))


def _ascends(rows: pa.RecordBatch) -> bool:
    count = rows.num_rows
    cf, key = rows.column("cf"), rows.column("key")
    rises = pc.less(key.slice(0, count - 1), key.slice(1))
    if pc.min(cf).as_py() != pc.max(cf).as_py():
        before, after = cf.slice(0, count - 1), cf.slice(1)
        rises = pc.or_(pc.less(before, after), pc.and_(pc.equal(before, after), rises))
    return bool(pc.all(rises).as_py())


class Delta:
    """One version's rows ``op, cf, key, value``, at most one per key.

    RocksDB writes rows sorted by family and key about twenty times faster; nothing else depends on
    the order. Not thread-safe: one thread builds it, one sorts it, and when it is ``ready``, only
    the event loop takes rows.

    Args:
        version: the version of these writes.
        batches: the rows; kept, not copied.
        multi_families: ids of the families whose values are lists, after this version.
    """

    def __init__(
        self, version: int, batches: Iterable[pa.RecordBatch], multi_families: frozenset[int]
    ) -> None:
        self.version = version
        self.multi_families = multi_families
        self._batches = deque(batch for batch in batches if batch.num_rows)
        self._sizes = deque(batch.nbytes for batch in self._batches)  # sorting does not change them
        self._offset = 0
        self.is_begun = False
        self.ready = threading.Event()
        self.ready.set()
        self.rows_left = sum(batch.num_rows for batch in self._batches)
        self.bytes_left = sum(self._sizes)

    def sort(self) -> None:
        """Sort each batch separately. REQUIRES: no row was taken yet."""
        self._batches = deque(map(sorted_rows, self._batches))

    @property
    def row_bytes(self) -> int:
        """The mean size of the rows that ``take`` returns next; 0 if all are taken."""
        return self._sizes[0] // self._batches[0].num_rows if self._batches else 0

    def take(self, row_count: int) -> pa.RecordBatch | None:
        """Return at most ``row_count`` of the remaining rows, or ``None`` if there are none."""
        if not self._batches:
            return None
        batch = self._batches[0]
        self.is_begun = True
        piece = batch.slice(self._offset, row_count)
        self._offset += piece.num_rows
        self.rows_left -= piece.num_rows
        if self._offset >= batch.num_rows:
            self._batches.popleft()
            self._offset = 0
            self.bytes_left -= self._sizes.popleft()
        return piece
