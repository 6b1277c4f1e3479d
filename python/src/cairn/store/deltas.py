"""Delta: one committed version's writes on their way to a run; CommittedRun: those of versions.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (the rows are the changelog's).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.store.runs import Run
from cairn.store.writes import coalesce

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from cairn.ids import Version

_INDEX_BYTES_PER_ROW = 8


@dataclass(frozen=True, eq=False)
class CommittedRun:
    """The writes of consecutive versions; the newest write of a key wins. Immutable.

    Attributes:
        run: the rows.
        first: the first version.
        last: the last version.
        multi_families: ids of the families whose values are lists, after the last version.
        size_bytes: its memory.
        since_ns: when the first version arrived.
    """

    run: Run
    first: Version
    last: Version
    multi_families: frozenset[int]
    size_bytes: int
    since_ns: int


def merged(runs: Sequence[CommittedRun]) -> CommittedRun:
    """Return the writes of runs, oldest first, as one run. Any thread."""
    rows = coalesce([one.run.rows for one in runs])
    oldest, newest = runs[0], runs[-1]
    return CommittedRun(
        Run(rows),
        oldest.first,
        newest.last,
        newest.multi_families,
        _memory_bytes(rows),
        oldest.since_ns,
    )


def _memory_bytes(rows: pa.RecordBatch) -> int:
    return rows.nbytes + _INDEX_BYTES_PER_ROW * rows.num_rows


class Delta:
    """One version's rows ``op, cf, key, value``. One thread creates it, one sorts it.

    Args:
        version: the version of these writes.
        batches: the rows; kept, not copied.
        multi_families: ids of the families whose values are lists, after this version.
        since_ns: the time of its arrival.

    Attributes:
        ready: set once ``run`` or ``failure`` is.
        run: the sorted rows.
        failure: why they could not be sorted.
    """

    def __init__(
        self,
        version: Version,
        batches: Iterable[pa.RecordBatch],
        multi_families: frozenset[int],
        since_ns: int = 0,
    ) -> None:
        self.version = version
        self.multi_families = multi_families
        self.since_ns = since_ns
        self._batches = [batch for batch in batches if batch.num_rows]
        self.row_count = sum(batch.num_rows for batch in self._batches)
        self.size_bytes = sum(map(_memory_bytes, self._batches))
        self.ready = threading.Event()
        self.run: CommittedRun | None = None
        self.failure: Exception | None = None

    def sort(self) -> None:
        """Make ``run``. Any thread, once; never raises."""
        try:
            self.run = self._sorted()
        except Exception as failure:  # noqa: BLE001 - the store reports it
            self.failure = failure
        self._batches = []
        self.ready.set()

    def _sorted(self) -> CommittedRun | None:
        if not self._batches:
            return None
        rows = coalesce(self._batches, are_distinct=True)
        return CommittedRun(
            Run(rows),
            self.version,
            self.version,
            self.multi_families,
            _memory_bytes(rows),
            self.since_ns,
        )
