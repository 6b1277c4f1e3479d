"""Writes as Arrow data: of a session, coalesced to one op per key.

Layer: store.
Spec: docs/protocol.md#data-channel (WRITES), docs/checkpoint-format.md#changelog.

Everything here works on whole columns. Python touches single rows only where several writes append
to one key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import BatchTooLargeError, ProtocolError
from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import PRESENCE_ABSENT, PRESENCE_UNKNOWN, WRITES_SCHEMA
from cairn.store.rows.sorting import KeyOrder, key_order, take
from cairn.store.rows.tally import tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cairn.store.rows.found_keys import Presences
    from cairn.store.rows.sorting import Flags
    from cairn.store.rows.tally import Tally

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

# Arrow counts the bytes of a column in 32 bits. docs/semantics.md (limits)
MAX_COLUMN_BYTES = (1 << 31) - 1


def check_writes(batch: pa.RecordBatch) -> Tally:
    """Refuse rows that are not valid writes, before they can reach a changelog; count them.

    Raises:
        ProtocolError: an op or presence is unknown, or an op has no value or an unexpected one.
    """
    counted = tally(batch)
    if counted.lowest_op < OP_PUT or counted.highest_op > OP_DROP_CF:
        raise ProtocolError(f"writes with unknown ops: {counted.lowest_op}..{counted.highest_op}")
    if not counted.has_valid_presences:
        raise ProtocolError("writes with an unknown presence")
    value = batch.column("value")
    if value.null_count or counted.highest_op != OP_PUT:
        op = batch.column("op")
        valued = pc.or_(pc.equal(op, OP_PUT), pc.equal(op, OP_APPEND))
        if pc.any(pc.not_equal(valued, value.is_valid())).as_py():
            raise ProtocolError("a put or append without a value, or another op with one")
    return counted


def coalesce(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the writes with one op per key, sorted by family and key.

    The last write of a key wins. Appends after a put or an append are concatenated; an append after
    a delete is a put. A drop removes all writes of its family.

    Args:
        batches: have ``WRITES_SCHEMA`` or ``CHANGELOG_SCHEMA``, in the order of the writes; at
            least one.
    """
    rows = one_batch(batches)
    if _has_drops(rows):
        rows = _without_dropped(rows)
    return _fold(rows, key_order(rows)) if rows.num_rows else rows


def newest(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return ``coalesce`` of the batches; needs less memory if there are only puts and deletes."""
    if any(cast("int", batch.column("op").to_numpy().max()) > OP_DELETE for batch in batches):
        return coalesce(batches)
    names = one_batch([batch.select(["cf", "key"]) for batch in batches])
    sorting = key_order(names)
    is_last = np.flatnonzero(sorting.is_last())
    return take(batches, is_last if sorting.order is None else sorting.order[is_last])


def one_per_key(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the writes of a commit as ``coalesce``.

    Args:
        batches: as for ``coalesce``. This call empties the list, so that the sort needs one copy
            less at its peak; REQUIRES: nothing else refers to them.
    """
    rows = one_batch(batches)
    batches.clear()
    return coalesce([rows])


def check_lists(batches: Sequence[pa.RecordBatch], families: Iterable[int]) -> None:
    """Refuse keys that occur twice in families with appends.

    Both writes would become the list's chunk of this version, and one would be lost.

    Raises:
        ProtocolError: a key occurs twice.
    """
    for cf in families:
        of_family = [
            batch.column("key").filter(pc.equal(batch.column("cf"), cf)) for batch in batches
        ]
        keys: Any = pa.chunked_array(of_family, pa.binary())
        if pc.count_distinct(keys).as_py() != len(keys):
            raise ProtocolError(f"a commit without a spill writes a key of family {cf} twice")


def _has_drops(rows: pa.RecordBatch) -> bool:
    return bool(rows.num_rows and pc.max(rows.column("op")).as_py() == OP_DROP_CF)


def check_size(batches: Sequence[pa.RecordBatch]) -> None:
    """Refuse more writes than one batch can have.

    Raises:
        BatchTooLargeError: keys or values have too many bytes together.
    """
    for name in {"key", "value"}.intersection(batches[0].schema.names):
        size = sum(batch.column(name).nbytes for batch in batches)
        if size > MAX_COLUMN_BYTES:
            raise BatchTooLargeError(
                f"one batch writes {size} bytes of {name}s to this partition, over the limit of "
                f"{MAX_COLUMN_BYTES}",
                next_step="make batches smaller (maxFilesPerTrigger, maxOffsetsPerTrigger), or "
                "use a new checkpoint with more spark.sql.shuffle.partitions",
            )


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, which have one schema; at least one batch.

    Raises:
        BatchTooLargeError: as ``check_size``.
    """
    if len(batches) == 1:
        return batches[0]
    check_size(batches)
    schema = batches[0].schema
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema)


def _without_dropped(rows: pa.RecordBatch) -> pa.RecordBatch:
    is_drop = pc.equal(rows.column("op"), OP_DROP_CF)
    dropped = pc.unique(rows.column("cf").filter(is_drop))
    kept = rows.filter(pc.invert(pc.is_in(rows.column("cf"), value_set=dropped)))
    count = len(dropped)
    columns = [
        pa.array([OP_DROP_CF] * count, pa.uint8()),
        dropped,
        pa.array([b""] * count, pa.binary()),
        pa.nulls(count, pa.binary()),
        pa.array([PRESENCE_UNKNOWN] * count, pa.uint8()),
    ]
    drops = pa.record_batch(columns[: len(rows.schema)], schema=rows.schema)
    return one_batch([kept, drops])


def _fold(rows: pa.RecordBatch, sorting: KeyOrder) -> pa.RecordBatch:
    """Return the sorted rows with all writes of a key reduced to one; at least one row."""
    order, is_last = sorting.order, sorting.is_last()
    if is_last.all():
        return rows if order is None else take([rows], order)
    if OP_APPEND not in pc.unique(rows.column("op")).to_pylist():
        return take([rows], np.flatnonzero(is_last) if order is None else order[is_last])
    rows = rows if order is None else take([rows], order)
    continues = np.append(False, sorting.repeats)
    grows = is_last & continues & (rows.column("op").to_numpy() == OP_APPEND)
    kept = rows.filter(pa.array(is_last))
    if not grows.any():
        return kept
    # Only into the rows that stay: beside their parts, the joined lists could overflow a column.
    ops, values = _folded_appends(rows, continues, grows)
    columns = kept.columns
    mask = pa.array(grows[is_last])
    columns[0] = pc.replace_with_mask(columns[0], mask, ops)
    columns[3] = pc.replace_with_mask(columns[3], mask, values)
    return pa.record_batch(columns, schema=rows.schema)


def _folded_appends(
    rows: pa.RecordBatch, continues: Flags, grows: Flags
) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return op and value of the keys of the rows in ``grows``, with all writes of the key."""
    ops: Any = rows.column("op")
    values: Any = rows.column("value")
    new_ops: list[int] = []
    new_values: list[bytes] = []
    for last in np.flatnonzero(grows).tolist():
        parts: list[bytes] = []
        row, op = last, OP_APPEND
        while True:
            op = ops[row].as_py()
            if op == OP_DELETE:
                op = OP_PUT
                break
            parts.append(values[row].as_py())
            if op == OP_PUT or not continues[row]:
                break
            row -= 1
        new_ops.append(op)
        new_values.append(b"".join(reversed(parts)))
    return pa.array(new_ops, pa.uint8()), pa.array(new_values, pa.binary())


def unknown_keys(rows: pa.RecordBatch) -> list[tuple[int, pa.Array[Any]]]:
    """Return, per family, the keys of the writes whose presence is unknown; sorted as ``rows``."""
    cfs, keys = rows.select(["cf", "key"]).filter(_is_unknown(rows)).columns
    families = pc.unique(cfs).to_pylist()
    if len(families) == 1:
        return [(families[0], keys)]
    return [(cf, keys.filter(pc.equal(cfs, cf))) for cf in families]


def with_presences(rows: pa.RecordBatch, presences: Presences) -> pa.RecordBatch:
    """Fill in the presences of ``unknown_keys``, in their order; some may stay unknown."""
    columns = rows.columns
    columns[4] = pc.replace_with_mask(columns[4], _is_unknown(rows), pa.array(presences))
    return pa.record_batch(columns, schema=WRITES_SCHEMA)


def with_new_lists_put(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in which appends to keys that are known to be absent are puts.

    They are the whole lists. A changelog has them as appends, as Spark's change feed does.
    """
    is_new = pc.and_(
        pc.equal(rows.column("op"), OP_APPEND), pc.equal(rows.column("presence"), PRESENCE_ABSENT)
    )
    columns = rows.columns
    columns[0] = pc.if_else(is_new, pa.scalar(OP_PUT, pa.uint8()), columns[0])
    return pa.record_batch(columns, schema=WRITES_SCHEMA)


def _is_unknown(rows: pa.RecordBatch) -> pa.BooleanArray:
    unknown: pa.BooleanArray = pc.and_(
        pc.equal(rows.column("presence"), PRESENCE_UNKNOWN),
        pc.not_equal(rows.column("op"), OP_DROP_CF),
    )
    return unknown


def counts_after(
    counts: Mapping[int, int], written: Tally, families: Sequence[int]
) -> dict[int, int]:
    """Return the keys per family after these writes.

    Args:
        counts: the keys per family before the writes.
        written: that of the writes, as ``Tally.changes`` requires.
        families: the ids that exist after the writes; others are left out.

    Raises:
        ProtocolError: a family has fewer keys than were deleted as present.
    """
    after = {cf: counts.get(cf, 0) for cf in families}
    for cf, change in written.changes().items():
        if cf in after:
            after[cf] += change
    lowest = min(after, key=after.__getitem__, default=None)
    if lowest is not None and after[lowest] < 0:
        # No reader takes such a count: the version would be durable and could not be loaded.
        raise ProtocolError(
            f"family {lowest} would have {after[lowest]} keys: the writes delete keys as present "
            "that are absent"
        )
    return after


def as_changes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows as a changelog has them: without presence."""
    return rows.select(CHANGELOG_SCHEMA.names)
