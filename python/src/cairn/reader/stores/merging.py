"""Merging of sorted streams of entries by key: the newest entry of each key counts.

Layer: reader. A stream is a sorted run of a database, or the writes of one version. A few parts of
each stream are in memory at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.rocks.sst.decoding import MERGE, PUT, Entries, spans
from cairn.store.rows.sorting import BinaryColumn, key_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_STEP_ROWS = 1 << 17
"""About as many are merged at a time."""

ROWS = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("operands", pa.list_(pa.binary())),
    ]
)
"""Rows in ascending order of their keys, each key once.

``value`` is null if there are only merge operands. ``operands`` are the oldest first; null if there
are none. The caller joins them: only the store knows with which delimiter.
"""


class SortedStream:
    """Entries in ascending order of their keys, of which some are in memory.

    Args:
        parts: the entries; of one key the newest comes first.

    Attributes:
        buffer: entries that were read and not yet taken.
        has_more: whether entries may follow the buffer.
    """

    def __init__(self, parts: Iterator[Entries]) -> None:
        self._parts = parts
        self.buffer = NO_ENTRIES
        self.has_more = True

    def read_on(self) -> None:
        """Add the next part to the buffer."""
        part = next(self._parts, None)
        if part is None:
            self.has_more = False
        else:
            self.buffer = joined([self.buffer, part]) if len(self.buffer) else part

    def fill(self) -> None:
        """Read until the buffer has entries, or none are left."""
        while self.has_more and not len(self.buffer):
            self.read_on()

    def last_key(self) -> bytes:
        """Return the last key of the buffer. REQUIRES: it has entries."""
        key: bytes = self.buffer.keys[-1].as_py()
        return key

    def count_below(self, limit: bytes | None) -> int:
        """Return how many entries of the buffer are below a key; ``None``: all."""
        return len(self.buffer) if limit is None else place_of(self.buffer.keys, limit)

    def take(self, limit: bytes | None) -> Entries:
        """Remove and return the entries below a key; ``None``: all."""
        count, at = len(self.buffer), self.count_below(limit)
        taken = self.buffer.slice(0, at)
        self.buffer = self.buffer.slice(at, count) if at < count else NO_ENTRIES
        return taken


def merge(
    streams: Sequence[SortedStream],
    admit: Callable[[list[Entries]], list[Entries]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of streams, as ``ROWS``; a batch may be empty.

    Args:
        streams: from the oldest entries to the newest.
        admit: removes entries, given those of one range of keys, by stream.
    """
    while True:
        for stream in streams:
            stream.fill()
        if not any(len(stream.buffer) for stream in streams):
            return
        # All entries below this key are in the buffers.
        limits = [stream.last_key() for stream in streams if stream.has_more]
        limit = _with_few_rows(streams, min(limits) if limits else None)
        parts = [stream.take(limit) for stream in streams]
        if any(len(part) for part in parts):
            yield _merged(parts if admit is None else admit(parts))
        else:
            for stream in streams:
                if stream.has_more and stream.last_key() == limit:
                    stream.read_on()


def _with_few_rows(streams: Sequence[SortedStream], limit: bytes | None) -> bytes | None:
    """Return the limit, or a lower one above fewer entries: they are copied several times.

    Some entry is below the lower one, so each step takes some.
    """
    counts = [stream.count_below(limit) for stream in streams]
    most = max(range(len(streams)), key=counts.__getitem__)
    place = counts[most] * _STEP_ROWS // max(sum(counts), 1)
    if place >= counts[most]:
        return limit
    keys = streams[most].buffer.keys
    lower: bytes = keys[place].as_py()
    return limit if lower == keys[0].as_py() else lower


def _merged(parts: Sequence[Entries]) -> pa.RecordBatch:
    parts = [part for part in parts if len(part)]
    if not parts:
        return _rows(NO_ENTRIES)
    if any((part.kinds == MERGE).any() for part in parts):
        return _merged_one_by_one(parts)
    if len(parts) == 1:
        entries, repeats = parts[0], _repeats(parts[0])
        if repeats.any():
            entries = chosen(entries, np.flatnonzero(np.append(True, ~repeats)))
    else:
        entries = joined([_newest_last(part) for part in parts])
        of_one_family = pa.array(np.zeros(len(entries), np.uint8))
        rows = pa.RecordBatch.from_arrays([of_one_family, entries.keys], names=["cf", "key"])
        sorting = key_order(rows)
        newest = np.flatnonzero(sorting.is_last())
        entries = chosen(entries, newest if sorting.order is None else sorting.order[newest])
    is_put = entries.kinds == PUT
    return _rows(entries if is_put.all() else chosen(entries, np.flatnonzero(is_put)))


def _merged_one_by_one(parts: Sequence[Entries]) -> pa.RecordBatch:
    found: dict[bytes, tuple[bytes | None, list[bytes]]] = {}
    for part in parts:
        names = cast("list[bytes]", part.keys.to_pylist())
        values = cast("list[bytes]", part.values.to_pylist())
        kinds = part.kinds.tolist()
        # Of one key the newest is the first.
        for place in range(len(names) - 1, -1, -1):
            name, kind = names[place], kinds[place]
            if kind == PUT:
                found[name] = values[place], []
            elif kind == MERGE:
                found.setdefault(name, (None, []))[1].append(values[place])
            else:
                found[name] = None, []
    keys = sorted(
        name for name, (value, operands) in found.items() if value is not None or operands
    )
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array([found[key][0] for key in keys], pa.binary()),
            pa.array([found[key][1] or None for key in keys], pa.list_(pa.binary())),
        ],
        schema=ROWS,
    )


def with_operands(rows: pa.RecordBatch, delimiter: bytes) -> tuple[pa.Array[Any], pa.Array[Any]]:
    """Return the keys of ``ROWS`` and their values, to which the operands are appended.

    Args:
        rows: the rows.
        delimiter: what stands between a value and an operand, and between two operands.
    """
    keys, values, operands = rows.column("key"), rows.column("value"), rows.column("operands")
    if operands.null_count == rows.num_rows:
        return keys, values
    whole = []
    for value, appended in zip(values.to_pylist(), operands.to_pylist(), strict=True):
        parts = [*([] if value is None else [value]), *(appended or [])]
        whole.append(delimiter.join(cast("list[bytes]", parts)))
    return keys, pa.array(whole, pa.binary())


def _newest_last(entries: Entries) -> Entries:
    """Return the entries of a run so that of one key the newest is the last."""
    if not _repeats(entries).any():
        return entries
    return chosen(entries, np.arange(len(entries) - 1, -1, -1))


def _repeats(entries: Entries) -> NDArray[np.bool_]:
    """Return for each entry but the first whether it has the key of the one before it."""
    keys, count = entries.keys, len(entries)
    equal = pc.equal(keys.slice(0, count - 1), keys.slice(1))
    result: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False).astype(np.bool_)
    return result


def _rows(entries: Entries) -> pa.RecordBatch:
    none = pa.nulls(len(entries), ROWS.field("operands").type)
    return pa.RecordBatch.from_arrays([entries.keys, entries.values, none], schema=ROWS)


def chosen(entries: Entries, places: NDArray[np.int64]) -> Entries:
    """Return the entries at these places, in their order."""
    indices: Any = pa.array(places)
    return Entries(
        entries.keys.take(indices),
        entries.values.take(indices),
        entries.kinds[places],
        entries.sequences[places],
    )


def joined(parts: Sequence[Entries]) -> Entries:
    """Return all entries of ``parts``, in their order."""
    return Entries(
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.sequences for part in parts]),
    )


def entries_of(keys: pa.Array[Any], values: pa.Array[Any], kinds: NDArray[np.uint8]) -> Entries:
    """Return entries without sequence numbers; their order says which are newer."""
    return Entries(keys, values, kinds, np.zeros(len(keys), np.uint64))


def puts(keys: pa.Array[Any], values: pa.Array[Any]) -> Entries:
    """Return rows as entries."""
    return entries_of(keys, values, np.full(len(keys), PUT, np.uint8))


def without_prefix(keys: pa.Array[Any], size: int) -> pa.Array[Any]:
    """Return keys without their first bytes. REQUIRES: each has as many."""
    column = BinaryColumn(keys)
    starts = column.offsets.astype(np.int64)
    return spans(column.data, starts[:-1] + size, np.diff(starts) - size)


NO_ENTRIES = puts(pa.array([], pa.binary()), pa.array([], pa.binary()))


def place_of(keys: pa.Array[Any], key: bytes) -> int:
    """Return the first place in ascending ``keys`` whose key is not below ``key``."""
    return bisect_left(range(len(keys)), key, key=lambda place: keys[place].as_py())
