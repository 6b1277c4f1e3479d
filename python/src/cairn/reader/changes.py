"""Differences between the states of two batches: keys added, removed and changed.

Layer: reader. Keys and values are compared as stored bytes. First each side is read once, and of a
row only its hashes are kept, 32 bytes; then the rows that differ are found by another read. So
memory grows by 32 bytes per row of one partition, and by a hash per key that differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from cairn.checksum import xxh3_128
from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.state import State

    Hashes = NDArray[np.void]

CHANGE = "change"
ADDED, REMOVED, CHANGED_FROM, CHANGED_TO = "added", "removed", "changed_from", "changed_to"
# numpy gives results in the byte order of the machine; the bytes of a hash must stay as they are.
_HASH = np.dtype([("high", np.uint64), ("low", np.uint64)])


class Diff:
    """How one state differs from another. Any Arrow tool takes it as a stream.

    A key that only one of the states has gives its rows there, as ``removed`` or ``added``. A key
    with another value gives the rows of both, as ``changed_from`` and ``changed_to``.

    Attributes:
        schema: the column ``change``, and those of the states.

    Raises:
        ConfigError: the states are not stored in the same form.
    """

    def __init__(self, before: State, after: State) -> None:
        if before.stored_as != after.stored_as:
            raise ConfigError(
                "the two states are stored in different forms, and cannot be compared byte by byte",
                next_step="compare batches of one provider with the same number of partitions",
            )
        self._before = before
        self._after = after
        of_rows = pa.unify_schemas([after.schema, before.schema], promote_options="permissive")
        self.schema = pa.schema([pa.field(CHANGE, pa.string(), nullable=False), *of_rows])

    def reader(self) -> pa.RecordBatchReader:
        """Return the changes as a stream, by partition; their order within one is not defined.

        Raises:
            DataError: while it is read: an object is damaged or gone; names it.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._batches())

    def to_table(self) -> pa.Table:
        """Return all changes as an Arrow table, in memory."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the changes as a capsule of Arrow's C stream interface."""
        reader: Any = self.reader()
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for partition in range(self._after.partitions):
            old = _hashes(self._before.stored_rows(partition))
            new = _hashes(self._after.stored_rows(partition))
            removed, added, changed = _differing(old, new)
            sides = (
                (self._before, {REMOVED: removed, CHANGED_FROM: changed}),
                (self._after, {ADDED: added, CHANGED_TO: changed}),
            )
            for state, hashes in sides:
                if any(hashes.values()):
                    yield from self._of_side(state, partition, hashes)

    def _of_side(
        self, state: State, partition: int, hashes: dict[str, set[bytes]]
    ) -> Iterator[pa.RecordBatch]:
        for rows in state.stored_rows(partition):
            names = [xxh3_128(key) for key in cast("list[bytes]", rows.keys.to_pylist())]
            for change, wanted in hashes.items():
                places = [place for place, name in enumerate(names) if name in wanted]
                if places:
                    found = state.decode(rows.take(places), partition)
                    yield self._with_change(found, change)

    def _with_change(self, rows: pa.RecordBatch, change: str) -> pa.RecordBatch:
        count = rows.num_rows
        arrays: list[Any] = [pa.array([change] * count, pa.string())]
        for field in list(self.schema)[1:]:
            if field.name in rows.schema.names:
                arrays.append(rows.column(field.name).cast(field.type))
            else:
                arrays.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _hashes(batches: Iterator[StoredRows]) -> tuple[Hashes, Hashes]:
    """Return the hashes of all keys, and of their values."""
    keys, values = bytearray(), bytearray()
    for rows in batches:
        keys += b"".join(map(xxh3_128, cast("list[bytes]", rows.keys.to_pylist())))
        values += b"".join(map(xxh3_128, cast("list[bytes]", rows.values.to_pylist())))
    return np.frombuffer(bytes(keys), _HASH), np.frombuffer(bytes(values), _HASH)


def _differing(
    before: tuple[Hashes, Hashes], after: tuple[Hashes, Hashes]
) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Return the hashes of the keys that are in ``before`` alone, in ``after`` alone, or differ."""
    common, in_old, in_new = np.intersect1d(
        before[0], after[0], assume_unique=True, return_indices=True
    )
    is_same = before[1][in_old] == after[1][in_new]
    removed = np.setdiff1d(before[0], common, assume_unique=True)
    added = np.setdiff1d(after[0], common, assume_unique=True)
    return _set(removed), _set(added), _set(common[~is_same])


def _set(hashes: Hashes) -> set[bytes]:
    return {one.tobytes() for one in hashes}
