"""WrittenRows: the writes of a commit, one row per key.

Layer: store.  Spec: docs/checkpoint-format.md#changelog, docs/protocol.md#data-channel (WRITES).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.format.ops import OP_APPEND
from cairn.store.rows import writes
from cairn.store.rows.tally import tally

if TYPE_CHECKING:
    import pyarrow as pa

    from cairn.store.rows.tally import Tally


@dataclass(frozen=True)
class WrittenRows:
    """See the module.

    Attributes:
        batches: have ``WRITES_SCHEMA``, and rows.
        tally: that of all batches.
    """

    batches: list[pa.RecordBatch]
    tally: Tally

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> WrittenRows:
        """Return the writes of one batch; it may have no rows."""
        return cls([rows] if rows.num_rows else [], tally(rows))

    def changes(self) -> list[pa.RecordBatch]:
        """Return the rows as a changelog has them."""
        return [writes.as_changes(rows) for rows in self.batches]

    def delta(self) -> list[pa.RecordBatch]:
        """Return the rows as the local state takes them."""
        if self.tally.highest_op < OP_APPEND:
            return self.changes()
        return [writes.as_changes(writes.with_new_lists_put(rows)) for rows in self.batches]


def gather(batches: list[pa.RecordBatch], counted: Tally, *, are_distinct: bool) -> WrittenRows:
    """Return the writes of a commit.

    If a presence is unknown, a family is dropped, or the session has spilled, they are one sorted
    batch. Otherwise they stay as they are, so that the PUT begins early.

    Args:
        batches: the writes in their order. This call empties the list; REQUIRES: nothing else
            refers to them.
        counted: their tally.
        are_distinct: whether no key occurs twice.

    Raises:
        ProtocolError: a key of a family with appends occurs twice although ``are_distinct``.
        BatchTooLargeError: a column is too large.
    """
    if not counted.row_count:
        return WrittenRows([], counted)
    if not are_distinct or not counted.is_plain:
        return WrittenRows.of(writes.one_per_key(batches))
    parts = [rows for rows in batches if rows.num_rows]
    batches.clear()
    writes.check_size(parts)
    writes.check_lists(parts, counted.families_with(OP_APPEND))
    return WrittenRows(parts, counted)
