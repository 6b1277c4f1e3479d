"""Delta: the writes of one committed version, not sorted; CommittedRun: those of versions, sorted.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (the rows are the changelog's).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.store.rows.runs import Run
from cairn.store.rows.writes import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from cairn.ids import Version

# A word, and a place in the directory.
_INDEX_BYTES_PER_ROW = 12


class Delta:
    """One version's rows ``op, cf, key, value``, one per key.

    Args:
        version: the version of these writes.
        batches: the rows; kept, not copied.
        multi_families: ids of the families whose values are lists, after this version.
        since_ns: the time of its arrival.
        may_begin_lists: whether there may be appends to absent lists.
    """

    def __init__(
        self,
        version: Version,
        batches: Iterable[pa.RecordBatch],
        multi_families: frozenset[int],
        since_ns: int = 0,
        *,
        may_begin_lists: bool = True,
    ) -> None:
        self.first = self.last = version
        self.multi_families = multi_families
        self.may_begin_lists = may_begin_lists
        self.since_ns = since_ns
        self.batches = [batch for batch in batches if batch.num_rows]
        self.row_count = sum(batch.num_rows for batch in self.batches)
        self.size_bytes = sum(map(_memory_bytes, self.batches))


class CommittedRun(Run):
    """The writes of consecutive versions; the newest write of a key wins.

    Args:
        parts: the deltas and runs of these versions, oldest first. REQUIRES: there are rows.

    Attributes:
        first: the first version.
        last: the last version.
        multi_families: ids of the families whose values are lists, after the last version.
        may_begin_lists: whether there may be appends to absent lists.
        size_bytes: its memory.
        since_ns: when the first version arrived.
    """

    def __init__(self, parts: Sequence[Delta | CommittedRun]) -> None:
        batches: list[pa.RecordBatch] = []
        for part in parts:
            batches += part.batches if isinstance(part, Delta) else [part.rows]
        super().__init__(newest(batches))
        oldest, youngest = parts[0], parts[-1]
        self.first: Version = oldest.first
        self.last: Version = youngest.last
        self.multi_families: frozenset[int] = youngest.multi_families
        self.may_begin_lists: bool = any(part.may_begin_lists for part in parts)
        self.size_bytes = _memory_bytes(self.rows)
        self.since_ns: int = oldest.since_ns

    def spans(self, version: Version) -> bool:
        """Return whether it has writes up to ``version`` and writes above it."""
        return self.first <= version < self.last


def _memory_bytes(rows: pa.RecordBatch) -> int:
    return rows.get_total_buffer_size() + _INDEX_BYTES_PER_ROW * rows.num_rows
