"""A committed version's writes on their way into RocksDB, taken off in slices.

Layer: rocks.  Spec: docs/checkpoint-format.md#changelog (the rows are the changelog's).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

# DO NOT RENUMBER: persisted in changelogs.
OP_PUT = 1
OP_DELETE = 2
OP_APPEND = 3
OP_DROP_CF = 4


class Delta:
    """One version's rows ``op, cf, key, value``, at most one a key, in the order to apply.

    Sorted by family and key they enter RocksDB some twenty times faster; nothing else rests on it.
    Not thread-safe: built by one thread, handed over, then taken by the owner alone.

    Args:
        version: the version that these writes make.
        batches: the rows; kept, not copied.
        multi_families: ids of the families whose values are lists, after this version.
    """

    def __init__(
        self, version: int, batches: Iterable[pa.RecordBatch], multi_families: frozenset[int]
    ) -> None:
        self.version = version
        self.multi_families = multi_families
        self._batches = deque(batch for batch in batches if batch.num_rows)
        self._offset = 0
        self.is_begun = False
        self.rows_left = sum(batch.num_rows for batch in self._batches)
        self.bytes_left = sum(batch.nbytes for batch in self._batches)

    def take(self, row_count: int) -> pa.RecordBatch | None:
        """Return at most ``row_count`` rows not taken yet, or ``None`` when all are."""
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
            self.bytes_left -= batch.nbytes
        return piece
