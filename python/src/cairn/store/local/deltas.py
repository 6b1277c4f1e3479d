"""Delta: the writes of one committed version, not sorted; CommittedRun: those of versions, sorted.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (the rows are the changelog's).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.store.rows.runs import Run
from cairn.store.rows.writes import newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from cairn.ids import Version

# A word, and a place in the directory.
_INDEX_BYTES_PER_ROW = 12


@dataclass(frozen=True, eq=False)
class CommittedRun:
    """The writes of consecutive versions; the newest write of a key wins. Immutable.

    Attributes:
        run: the rows.
        first: the first version.
        last: the last version.
        multi_families: ids of the families whose values are lists, after the last version.
        may_begin_lists: whether there may be appends to absent lists.
        size_bytes: its memory.
        since_ns: when the first version arrived.
    """

    run: Run
    first: Version
    last: Version
    multi_families: frozenset[int]
    may_begin_lists: bool
    size_bytes: int
    since_ns: int


class Delta:
    """One version's rows ``op, cf, key, value``; of several of one key the last one counts.

    Args:
        version: the version of these writes.
        batches: the rows; kept, not copied.
        multi_families: ids of the families whose values are lists, after this version.
        since_ns: the time of its arrival.
        may_begin_lists: whether there may be appends to absent lists.

    Attributes:
        run: the sorted rows, if they were sorted alone.
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
        self.run: CommittedRun | None = None

    def sort(self) -> None:
        """Make ``run``. REQUIRES: there are rows."""
        self.run = merged([self])


def merged(parts: Sequence[Delta | CommittedRun]) -> CommittedRun:
    """Return the writes of consecutive versions, oldest first, as one run. Any thread.

    REQUIRES: there are rows.
    """
    batches: list[pa.RecordBatch] = []
    for part in parts:
        batches += part.batches if isinstance(part, Delta) else [part.run.rows]
    rows = newest(batches)
    oldest, youngest = parts[0], parts[-1]
    return CommittedRun(
        Run(rows),
        oldest.first,
        youngest.last,
        youngest.multi_families,
        any(part.may_begin_lists for part in parts),
        _memory_bytes(rows),
        oldest.since_ns,
    )


def _memory_bytes(rows: pa.RecordBatch) -> int:
    return rows.get_total_buffer_size() + _INDEX_BYTES_PER_ROW * rows.num_rows
