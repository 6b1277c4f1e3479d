"""Tally: how many writes of each op and presence a batch has, by family.

Layer: store. One pass over three small columns says whether writes are valid and plain, and how
they change the key counts. Arrow's functions would need several passes, and for a small batch each
call of them costs more than its rows.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import PRESENCE_ABSENT, PRESENCE_PRESENT, PRESENCE_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_PRESENCES = (PRESENCE_UNKNOWN, PRESENCE_PRESENT, PRESENCE_ABSENT)
_CF_BYTES = 2
# Up to here, bytes are counted faster than numpy's functions are called.
SMALL_ROWS = 4096


class Tally:
    """See the module. Immutable.

    Args:
        counts: rows by family, op and presence; none of them 0.
    """

    def __init__(self, counts: Mapping[tuple[int, int, int], int]) -> None:
        self._counts = counts
        ops = [op for _, op, _ in counts]
        self.lowest_op = min(ops, default=OP_PUT)
        self.highest_op = max(ops, default=0)

    def __add__(self, others: Tally) -> Tally:
        """Return the tally of both."""
        return Tally(Counter(self._counts) + Counter(others._counts))

    @property
    def row_count(self) -> int:
        """All rows."""
        return sum(self._counts.values())

    @property
    def expected_rows(self) -> int:
        """The rows, except deletes of absent keys, and except those of families with a drop.

        Spec: docs/protocol.md#what-a-commit-rests-on.
        """
        dropped = {cf for cf, op, _ in self._counts if op == OP_DROP_CF}
        return sum(
            rows
            for (cf, op, presence), rows in self._counts.items()
            if op == OP_DROP_CF
            or (cf not in dropped and (op != OP_DELETE or presence != PRESENCE_ABSENT))
        )

    @property
    def has_unknown(self) -> bool:
        """Whether the presence of a key is unknown; a drop has none."""
        return any(
            presence == PRESENCE_UNKNOWN and op != OP_DROP_CF for _, op, presence in self._counts
        )

    @property
    def is_plain(self) -> bool:
        """Whether the presence of each key is known, and no family is dropped."""
        return self.highest_op < OP_DROP_CF and not self.has_unknown

    @property
    def has_valid_presences(self) -> bool:
        """Whether each presence is one that the protocol has."""
        return all(presence in _PRESENCES for _, _, presence in self._counts)

    def families_with(self, wanted: int) -> set[int]:
        """Return the ids of the families that have rows with this op."""
        return {cf for cf, op, _ in self._counts if op == wanted}

    def changes(self) -> dict[int, int]:
        """Return how the number of keys changes, by family.

        REQUIRES: no key occurs twice; every presence is known.
        """
        changes: Counter[int] = Counter()
        for (cf, op, presence), rows in self._counts.items():
            if presence == PRESENCE_ABSENT and op in (OP_PUT, OP_APPEND):
                changes[cf] += rows
            elif presence == PRESENCE_PRESENT and op == OP_DELETE:
                changes[cf] -= rows
        return changes


def tally(rows: pa.RecordBatch) -> Tally:
    """Count the rows of a batch.

    Args:
        rows: have the columns op, cf and presence of ``WRITES_SCHEMA``.
    """
    count = rows.num_rows
    if not count:
        return Tally({})
    ops, cfs, presences = (
        _bytes(rows.column(name), count * width)
        for name, width in (("op", 1), ("cf", _CF_BYTES), ("presence", 1))
    )
    is_small = count <= SMALL_ROWS
    if is_small and ops == ops[:1] * count and cfs == cfs[:_CF_BYTES] * count:
        found = {presence: presences.count(presence) for presence in _PRESENCES}
        if sum(found.values()) == count:
            cf = int.from_bytes(cfs[:_CF_BYTES], "little")
            return Tally({(cf, ops[0], one): rows for one, rows in found.items() if rows})
    return _tally_all(ops, cfs, presences)


def _tally_all(ops: bytes, cfs: bytes, presences: bytes) -> Tally:
    """Count rows of any number of families."""
    codes: Any = np.frombuffer(presences, np.uint8).astype(np.uint16) << 8
    codes |= np.frombuffer(ops, np.uint8)
    families = np.frombuffer(cfs, np.uint16)
    counts: dict[tuple[int, int, int], int] = {}
    lowest, highest = int(families.min()), int(families.max())
    present = [lowest] if lowest == highest else np.flatnonzero(np.bincount(families)).tolist()
    for cf in present:
        rows = np.bincount(codes if lowest == highest else codes[families == cf])
        for code in np.flatnonzero(rows).tolist():
            counts[cf, code & 0xFF, code >> 8] = int(rows[code])
    return Tally(counts)


def _bytes(column: pa.Array[Any], size: int) -> bytes:
    """Return the values of a column of fixed width without nulls."""
    data = column.buffers()[1]
    assert data is not None  # noqa: S101 - the column has rows
    start = column.offset * (size // len(column))
    return bytes(memoryview(data)[start : start + size])
