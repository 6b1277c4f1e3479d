"""Tables: the rows of a RocksDB database, read from its SST files without opening it.

Layer: reader. Nothing is downloaded whole and nothing is written: blocks are read in ranges of
bytes, merged by key, and freed. Memory is a few MiB per sorted run, of which a database has some
ten.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cairn.errors import UnsupportedStateError
from cairn.reader.stores.merging import SortedStream, chosen, merge, place_of
from cairn.rocks.sst.decoding import DELETE, MERGE, PUT, SINGLE_DELETE, Entries
from cairn.rocks.sst.reading import TableReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from cairn.rocks.sst.reading import RangedFile
    from cairn.rocks.version_edits import LiveFile

_PART_BYTES = 1 << 20
"""Read of a file by one request during a scan."""
_THREADS = 16
_OPEN_FILES = 16
"""Files of which a part was read, and whose ends are kept. Most databases have fewer runs."""
_KINDS = frozenset({DELETE, PUT, MERGE, SINGLE_DELETE})


@dataclass(frozen=True, slots=True)
class Entry:
    """What a database has of one key; see ``merging.ROWS``."""

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
        self._kept = lru_cache(_OPEN_FILES)(
            lambda file: TableReader(open_file(file), file.tail_bytes)
        )

    def _part(self, run: Sequence[LiveFile], start: bytes, end: bytes | None) -> _Run:
        """Return a run in a range of keys.

        A file that is read whole is read once: it is not kept, and needs no filter.
        """

        def table(file: LiveFile) -> TableReader:
            is_whole = start <= file.smallest and (end is None or file.largest < end)
            return TableReader(self._open_file(file)) if is_whole else self._kept(file)

        return _Run(run, table, start, end)

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of keys, as ``merging.ROWS``; a batch may be empty.

        Args:
            start: the first key.
            end: the key above the last; ``None``: there is no limit.

        Raises:
            CorruptError: a file is damaged.
            MissingError: a file is gone.
            UnsupportedStateError: a file has something that neither Cairn nor Spark writes.
        """
        runs = [self._part(run, start, end) for run in self._runs]
        runs = [run for run in runs if run.files]
        streams = [SortedStream(run.entries()) for run in runs]
        return merge(streams, lambda parts: _without_deleted_ranges(runs, parts))

    def get(self, key: bytes) -> Entry | None:
        """Return what the database has of a key; ``None`` if nothing. Raises as ``scan``.

        Reads the end of each file whose range has the key, several at a time, and a block of those
        whose filter does not exclude it, until one has the row.
        """
        operands: list[bytes] = []
        runs = [_Run(run, self._kept, key, key + b"\0") for run in self._runs]
        files = [file for run in runs for file in run.files]
        with ThreadPoolExecutor(min(_THREADS, max(1, len(files)))) as threads:
            list(threads.map(self._kept, files))
        for run in reversed(runs):
            for part in run.entries():
                values = cast("list[bytes]", part.values.to_pylist())
                for kind, value in zip(part.kinds.tolist(), values, strict=True):
                    if kind != MERGE:
                        return _entry(value if kind == PUT else None, operands)
                    operands.append(value)
            if any(one.covers(key) for one in run.ranges):
                break
        return _entry(None, operands)


def _entry(value: bytes | None, newest_first: list[bytes]) -> Entry | None:
    if value is None and not newest_first:
        return None
    return Entry(value, tuple(reversed(newest_first)))


@dataclass(frozen=True, slots=True)
class _Range:
    """A deleted range, within the limits of its file: from ``start`` to before ``end``."""

    start: bytes
    end: bytes
    sequence: int

    def covers(self, key: bytes) -> bool:
        return self.start <= key < self.end

    def places(self, keys: pa.Array[Any]) -> slice:
        """Return the places in ascending ``keys`` that it covers."""
        return slice(place_of(keys, self.start), place_of(keys, self.end))


class _Run:
    """One sorted run in a range of keys.

    Attributes:
        files: those that have a part of the range.
        ranges: the deleted ranges of the files that were opened so far: of all files with a key up
            to the last one that was read.
    """

    def __init__(
        self,
        files: Sequence[LiveFile],
        table: Callable[[LiveFile], TableReader],
        start: bytes,
        end: bytes | None,
    ) -> None:
        self.files = [
            file for file in files if file.largest >= start and (end is None or file.smallest < end)
        ]
        self.ranges: list[_Range] = []
        self._table = table
        self._start = start
        self._end = end

    def entries(self) -> Iterator[Entries]:
        """Yield the entries of the range that no deleted range of the same file deletes."""
        for file in self.files:
            reader = self._table(file)
            ranges = [
                _clipped(one.start, one.end, one.sequence, file) for one in reader.deleted_ranges
            ]
            self.ranges += ranges
            if self._end == self._start + b"\0" and not reader.may_have(self._start):
                continue
            for entries in reader.scan(self._start, self._end, _PART_BYTES):
                first = place_of(entries.keys, self._start)
                last = len(entries)
                if self._end is not None:
                    last = place_of(entries.keys, self._end)
                part = entries.slice(first, last)
                _check_kinds(part, reader.name)
                yield _outside(ranges, part)


def _clipped(start: bytes, end: bytes, sequence: int, file: LiveFile) -> _Range:
    """Return a deleted range within its file: the files beside it have the other parts."""
    last = file.largest + b"\0" if file.has_largest else file.largest
    return _Range(max(start, file.smallest), min(end, last), sequence)


def _check_kinds(entries: Entries, name: str) -> None:
    for kind in np.unique(entries.kinds).tolist():
        if kind not in _KINDS:
            raise UnsupportedStateError(
                f"the SST file has entries of kind {kind}, which neither Cairn nor Spark writes",
                object_name=name,
            )


def _outside(ranges: Sequence[_Range], entries: Entries) -> Entries:
    """Return the entries without the older ones in deleted ranges of the same file."""
    if not ranges or not len(entries):
        return entries
    is_kept = np.ones(len(entries), np.bool_)
    for one in ranges:
        places = one.places(entries.keys)
        is_kept[places] &= entries.sequences[places] >= one.sequence
    return entries if is_kept.all() else chosen(entries, np.flatnonzero(is_kept))


def _without_deleted_ranges(runs: Sequence[_Run], parts: Sequence[Entries]) -> list[Entries]:
    """Return the parts without the entries that a deleted range of a newer run deletes."""
    result: list[Entries] = []
    newer: list[_Range] = []
    for run, part in zip(reversed(runs), reversed(parts), strict=True):
        kept = part
        if len(part) and newer:
            is_kept = np.ones(len(part), np.bool_)
            for one in newer:
                is_kept[one.places(part.keys)] = False
            if not is_kept.all():
                kept = chosen(part, np.flatnonzero(is_kept))
        result.append(kept)
        newer += run.ranges
    return result[::-1]
