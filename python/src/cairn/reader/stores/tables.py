"""Tables: the rows of a RocksDB database, read from its SST files without opening it.

Layer: reader. Nothing is downloaded whole and nothing is written: blocks are read in ranges of
bytes, merged by key, and freed. Memory is a few MiB per sorted run, of which a database has some
ten.

A key may be in several runs, and several times in one. The newest entries count; merge operands
stand on what is under them. The caller joins them: only the store knows with which delimiter.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import UnsupportedStateError
from cairn.rocks.sst.decoding import DELETE, MERGE, PUT, SINGLE_DELETE, Entries
from cairn.rocks.sst.reading import TableReader
from cairn.store.rows.sorting import key_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from cairn.rocks.sst.reading import RangedFile
    from cairn.rocks.version_edits import LiveFile

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

ROWS = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("operands", pa.list_(pa.binary())),
    ]
)
"""Rows in ascending order of their keys, each key once.

``value`` is null if there are only merge operands. ``operands`` are the oldest first; null if there
are none.
"""
_PART_BYTES = 1 << 20
"""Read of a file by one request during a scan."""
_KINDS = frozenset({DELETE, PUT, MERGE, SINGLE_DELETE})


@dataclass(frozen=True, slots=True)
class Entry:
    """What a database has of one key; see ``ROWS``."""

    value: bytes | None
    operands: tuple[bytes, ...] = ()


class Tables:
    """See the module. Immutable; each scan has a state of its own.

    Args:
        runs: of ``sorted_runs``.
        open_file: opens a file for reading; it may be called often for one file.
    """

    def __init__(
        self, runs: Sequence[Sequence[LiveFile]], open_file: Callable[[LiveFile], RangedFile]
    ) -> None:
        self._runs = runs
        self._open_file = open_file

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of keys, as ``ROWS``; a batch may be empty.

        Args:
            start: the first key.
            end: the key above the last; ``None``: there is no limit.

        Raises:
            CorruptError: a file is damaged.
            MissingError: a file is gone.
            UnsupportedStateError: a file has something that neither Cairn nor Spark writes.
        """
        runs = [_Run(run, self._open_file, start, end) for run in self._runs]
        runs = [run for run in runs if run.files]
        while True:
            for run in runs:
                run.fill()
            if not any(len(run.buffer) for run in runs):
                return
            # All entries below this key are in the buffers.
            limits = [run.last_key() for run in runs if run.has_more]
            limit = min(limits) if limits else None
            parts = [run.take(limit) for run in runs]
            if not any(len(part) for part in parts):
                for run in runs:
                    if run.has_more and run.last_key() == limit:
                        run.extend()
                continue
            yield _merged(_without_deleted_ranges(runs, parts))

    def get(self, key: bytes) -> Entry | None:
        """Return what the database has of a key; ``None`` if nothing."""
        operands: list[bytes] = []
        for run in reversed(self._runs):
            of_run = _Run(run, self._open_file, key, key + b"\0")
            entries = of_run.all_entries()
            for kind, value in zip(
                entries.kinds.tolist(), entries.values.to_pylist(), strict=True
            ):
                if kind != MERGE:
                    return _entry(value if kind == PUT else None, operands)
                operands.append(value)
            if any(one.covers(key) for one in of_run.ranges):
                break
        return _entry(None, operands)


def _entry(value: bytes | None, newest_first: list[bytes]) -> Entry | None:
    if value is None and not newest_first:
        return None
    return Entry(value, tuple(reversed(newest_first)))


@dataclass(frozen=True, slots=True)
class _Range:
    """A deleted range, within the limits of its file."""

    start: bytes
    end: bytes
    includes_end: bool
    sequence: int

    def covers(self, key: bytes) -> bool:
        return self.start <= key and (key <= self.end if self.includes_end else key < self.end)

    def places(self, keys: pa.Array[Any]) -> tuple[int, int]:
        """Return the first and the end of the places in ``keys`` that it covers."""
        end = self.end + b"\0" if self.includes_end else self.end
        return _place(keys, self.start), _place(keys, end)


@dataclass
class _Run:
    """The entries of one sorted run in a range, read in parts.

    Attributes:
        files: those that have a part of the range.
        buffer: entries that were read and not yet taken.
        has_more: whether entries may follow the buffer.
        ranges: the deleted ranges of the files that were opened.
    """

    run: Sequence[LiveFile]
    open_file: Callable[[LiveFile], RangedFile]
    start: bytes
    end: bytes | None
    files: list[LiveFile] = field(init=False)
    buffer: Entries = field(init=False)
    has_more: bool = field(init=False, default=True)
    ranges: list[_Range] = field(init=False, default_factory=list)
    _parts: Iterator[Entries] = field(init=False)

    def __post_init__(self) -> None:
        self.files = [
            file
            for file in self.run
            if file.largest >= self.start and (self.end is None or file.smallest < self.end)
        ]
        self.buffer = _NO_ENTRIES
        self._parts = self._read()

    def _read(self) -> Iterator[Entries]:
        for file in self.files:
            reader = TableReader(self.open_file(file))
            ranges = [
                _clipped(one.start, one.end, one.sequence, file) for one in reader.deleted_ranges
            ]
            self.ranges += ranges
            for entries in reader.scan(self.start, self.end, _PART_BYTES):
                first = _place(entries.keys, self.start)
                last = len(entries) if self.end is None else _place(entries.keys, self.end)
                part = entries.slice(first, last)
                _check_kinds(part, reader)
                yield _outside(ranges, part)

    def fill(self) -> None:
        """Read until the buffer has entries, or none are left."""
        while self.has_more and not len(self.buffer):
            self._read_on()

    def extend(self) -> None:
        """Read until the buffer has more entries than now, or none are left."""
        before = len(self.buffer)
        while self.has_more and len(self.buffer) == before:
            self._read_on()

    def all_entries(self) -> Entries:
        """Return all entries of the range. REQUIRES: it is small."""
        while self.has_more:
            self._read_on()
        return self.buffer

    def _read_on(self) -> None:
        part = next(self._parts, None)
        if part is None:
            self.has_more = False
        elif len(self.buffer):
            self.buffer = _joined([self.buffer, part])
        else:
            self.buffer = part

    def last_key(self) -> bytes:
        """Return the last key of the buffer. REQUIRES: it has entries."""
        key: bytes = self.buffer.keys[-1].as_py()
        return key

    def take(self, limit: bytes | None) -> Entries:
        """Remove and return the entries below a key; ``None``: all."""
        count = len(self.buffer)
        at = count if limit is None else _place(self.buffer.keys, limit)
        taken = self.buffer.slice(0, at)
        self.buffer = self.buffer.slice(at, count) if at < count else _NO_ENTRIES
        return taken


def _clipped(start: bytes, end: bytes, sequence: int, file: LiveFile) -> _Range:
    """Return a deleted range within its file: the files beside it have the other parts."""
    if end > file.largest:
        return _Range(max(start, file.smallest), file.largest, file.has_largest, sequence)
    return _Range(max(start, file.smallest), end, includes_end=False, sequence=sequence)


def _check_kinds(entries: Entries, reader: TableReader) -> None:
    for kind in np.unique(entries.kinds).tolist():
        if kind not in _KINDS:
            raise UnsupportedStateError(
                f"the SST file has entries of the kind {kind}, which neither Cairn nor Spark writes",
                object_name=reader.name,
            )


def _outside(ranges: Sequence[_Range], entries: Entries) -> Entries:
    """Return the entries without those that a deleted range of the same file deletes."""
    if not ranges or not len(entries):
        return entries
    is_kept = np.ones(len(entries), np.bool_)
    for one in ranges:
        first, end = one.places(entries.keys)
        is_kept[first:end] &= entries.sequences[first:end] >= one.sequence
    return entries if is_kept.all() else _chosen(entries, np.flatnonzero(is_kept))


def _without_deleted_ranges(runs: Sequence[_Run], parts: Sequence[Entries]) -> list[Entries]:
    """Return the parts without the entries that a deleted range of a newer run deletes."""
    result: list[Entries] = []
    newer: list[_Range] = []
    for run, part in zip(reversed(runs), reversed(parts), strict=True):
        kept = part
        if len(part) and newer:
            is_kept = np.ones(len(part), np.bool_)
            for one in newer:
                first, end = one.places(part.keys)
                is_kept[first:end] = False
            if not is_kept.all():
                kept = _chosen(part, np.flatnonzero(is_kept))
        result.append(kept)
        newer += run.ranges
    return result[::-1]


def _merged(parts: Sequence[Entries]) -> pa.RecordBatch:
    """Return the rows of entries; ``parts`` come from the oldest run to the newest."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return _rows(_NO_ENTRIES)
    if any((part.kinds == MERGE).any() for part in parts):
        return _merged_one_by_one(parts)
    entries = parts[0] if len(parts) == 1 else _joined([_newest_last(part) for part in parts])
    if len(parts) == 1:
        repeats = _repeats(entries)
        if repeats.any():
            entries = _chosen(entries, np.flatnonzero(np.append(True, ~repeats)))
    else:
        of_one_family = pa.array(np.zeros(len(entries), np.uint8))
        rows = pa.RecordBatch.from_arrays([of_one_family, entries.keys], names=["cf", "key"])
        order = key_order(rows)
        newest = np.flatnonzero(order.is_last())
        entries = _chosen(entries, newest if order.order is None else order.order[newest])
    is_put = entries.kinds == PUT
    return _rows(entries if is_put.all() else _chosen(entries, np.flatnonzero(is_put)))


def _merged_one_by_one(parts: Sequence[Entries]) -> pa.RecordBatch:
    found: dict[bytes, tuple[bytes | None, list[bytes]]] = {}
    for part in parts:
        names, values, kinds = part.keys.to_pylist(), part.values.to_pylist(), part.kinds.tolist()
        # Of one key the newest is the first.
        for place in range(len(names) - 1, -1, -1):
            name, kind = names[place], kinds[place]
            if kind == PUT:
                found[name] = values[place], []
            elif kind == MERGE:
                found.setdefault(name, (None, []))[1].append(values[place])
            else:
                found[name] = None, []
    keys = sorted(name for name, (value, operands) in found.items() if value is not None or operands)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.binary()),
            pa.array([found[key][0] for key in keys], pa.binary()),
            pa.array([found[key][1] or None for key in keys], pa.list_(pa.binary())),
        ],
        schema=ROWS,
    )


def _newest_last(entries: Entries) -> Entries:
    """Return the entries of a run so that of one key the newest is the last."""
    if not _repeats(entries).any():
        return entries
    return _chosen(entries, np.arange(len(entries) - 1, -1, -1))


def _repeats(entries: Entries) -> NDArray[np.bool_]:
    """Return for each entry but the first whether it has the key of the one before it."""
    keys, count = entries.keys, len(entries)
    equal = pc.equal(keys.slice(0, count - 1), keys.slice(1))
    result: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False).astype(np.bool_)
    return result


def _rows(entries: Entries) -> pa.RecordBatch:
    none = pa.nulls(len(entries), ROWS.field("operands").type)
    return pa.RecordBatch.from_arrays([entries.keys, entries.values, none], schema=ROWS)


def _chosen(entries: Entries, places: NDArray[np.int64]) -> Entries:
    indices = pa.array(places)
    return Entries(
        entries.keys.take(indices),
        entries.values.take(indices),
        entries.kinds[places],
        entries.sequences[places],
    )


def _joined(parts: Sequence[Entries]) -> Entries:
    return Entries(
        pa.concat_arrays([part.keys for part in parts]),
        pa.concat_arrays([part.values for part in parts]),
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.sequences for part in parts]),
    )


_NO_ENTRIES = Entries(
    pa.array([], pa.binary()),
    pa.array([], pa.binary()),
    np.zeros(0, np.uint8),
    np.zeros(0, np.uint64),
)


def _place(keys: pa.Array[Any], key: bytes) -> int:
    """Return the first place whose key is not below ``key``."""
    return bisect_left(range(len(keys)), key, key=lambda place: keys[place].as_py())
