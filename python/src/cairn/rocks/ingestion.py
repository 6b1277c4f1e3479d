"""Ingestion: sorted rows of committed versions on their way into RocksDB, as one SST file.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.

``write`` makes the whole file with numpy, in any thread, if the rows have fixed widths. All other
rows are added in slices on the event loop; then ``finish`` completes the file in any thread. At
last ``RocksDb.ingest`` makes the rows part of the database.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import SstFileWriter

from cairn.format.ops import OP_APPEND, OP_DROP_CF, OP_PUT
from cairn.rocks import keys as layout
from cairn.rocks.options import BLOCK_BYTES
from cairn.rocks.ranges import RangeRows
from cairn.rocks.sst import FixedRows, TableWriter, fixed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rocksdict import Options, Rdict

    from cairn.rocks.failures import Translation

SMALL_FILE_BYTES = 16 << 20
"""Files of at least so many bytes, before compression, need not be merged with others."""
# A call of numpy for so many rows takes less than 1 ms, and its arrays fit into the caches.
_PART_ROWS = 1 << 14
_PART_BYTES = 2 << 20


class Ingestion:
    """See the module. Created by ``RocksDb.new_ingestion``.

    Attributes:
        path: the file.
        dropped: families whose rows in the database must be deleted first.
        row_count: the number of rows, without the dropped families.
        rows_left: rows that were not added yet.
    """

    def __init__(
        self,
        path: Path,
        options: Options,
        rows: pa.RecordBatch,
        encoding: RowEncoding,
        translated: Translation,
    ) -> None:
        self.path = path
        self._options = options
        self._encoding = encoding
        self._translated = translated
        self._writer: SstFileWriter | None = None
        self._is_written = False
        is_drop = pc.equal(rows.column("op"), pa.scalar(OP_DROP_CF, pa.uint8()))
        self.dropped = cast("list[int]", rows.column("cf").filter(is_drop).to_pylist())
        self._rows = rows.filter(pc.invert(is_drop)) if self.dropped else rows
        self.row_count = self._rows.num_rows
        cfs = self._rows.column("cf").to_numpy()
        # Where each family ends, in descending order.
        self._ends = [self.row_count, *(np.flatnonzero(np.diff(cfs)) + 1).tolist()[::-1]]
        self._offset = 0

    @property
    def rows_left(self) -> int:
        """See the class."""
        return self.row_count - self._offset

    @property
    def row_bytes(self) -> int:
        """The mean size of a row, at least 1."""
        return max(1, self._rows.nbytes // max(1, self.row_count))

    @property
    def has_file(self) -> bool:
        """Whether there is a file to ingest: not if no row made an entry."""
        return self._writer is not None or self._is_written

    def write(self, is_wanted: Callable[[], bool]) -> bool:
        """Write and sync the whole file, if the rows of each family have fixed widths.

        Any thread, once, before all other methods; called by ``RocksDb.write``.

        Args:
            is_wanted: asked often; once it returns ``False``, the file is left incomplete.

        Returns:
            Whether no rows are left. If not, nothing was written: use ``add`` and ``finish``.

        Raises:
            DiskFullError: the local disk is full.
        """
        parts: list[FixedRows] = []
        for cf, rows in self._families():
            fixed = self._encoding.fixed(cf, rows)
            if fixed is None:
                return False
            parts.append(fixed)
        if parts and self._is_small:
            parts.insert(0, _below_all_keys())
        with self._translated:
            self._is_written = bool(parts) and _write_table(self.path, parts, is_wanted)
        self._offset = self.row_count
        return True

    def _families(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        start = 0
        for end in reversed(self._ends) if self.row_count else ():
            rows = self._rows.slice(start, end - start)
            yield cast("int", rows.column("cf")[0].as_py()), rows
            start = end

    @property
    def _is_small(self) -> bool:
        # RocksDB places a file that overlaps no other one in the lowest level and would never
        # merge it with others. Deletions of BELOW_ALL_KEYS make small files overlap.
        return self._rows.nbytes < SMALL_FILE_BYTES

    def add(self, row_count: int) -> int:
        """Add at most ``row_count`` of the rows that are left, at least one; return how many.

        On the event loop. REQUIRES: ``rows_left``.

        Raises:
            DiskFullError: the local disk is full.
            CorruptError: a list to be replaced cannot be read.
        """
        while self._ends[-1] <= self._offset:
            self._ends.pop()
        count = min(row_count, self._ends[-1] - self._offset)
        piece = self._rows.slice(self._offset, count)
        with self._translated:
            cf = cast("int", piece.column("cf")[0].as_py())
            for key, value in self._encoding.entries(cf, piece):
                writer = self._writer or self._opened()
                if value is None:
                    del writer[key]
                else:
                    writer[key] = value
        self._offset += count
        return count

    def _opened(self) -> SstFileWriter:
        writer = SstFileWriter(self._options)
        writer.open(str(self.path))
        if self._is_small:
            del writer[layout.BELOW_ALL_KEYS]
        self._writer = writer
        return writer

    def finish(self) -> None:
        """Complete the file and sync it. Any thread, once. REQUIRES: no rows are left.

        Raises:
            DiskFullError: the local disk is full.
        """
        if self._writer is None:
            return
        with self._translated:
            self._writer.finish()
            # RocksDB syncs the file again when it is ingested, on the event loop: make that short.
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class RowEncoding:
    """Turns sorted rows of one family into entries of RocksDB, in the order of their keys.

    Args:
        version: the newest version of the rows; part of the keys of list chunks.
        multi_families: ids of the families whose values are lists.
        database: has the lists that rows replace.
    """

    def __init__(
        self,
        version: int,
        multi_families: frozenset[int],
        database: Rdict,
    ) -> None:
        self._version = version
        self._multi_families = multi_families
        self._database = database

    def fixed(self, cf: int, rows: pa.RecordBatch) -> FixedRows | None:
        """Return the entries of rows, at least one; ``None`` if they have no fixed widths."""
        if cf in self._multi_families:
            return None
        return fixed_rows(layout.family_start(cf), rows)

    def entries(self, cf: int, rows: pa.RecordBatch) -> Iterable[tuple[bytes, bytes | None]]:
        """Return key and value of each entry; a value of ``None`` deletes the key."""
        if cf in self._multi_families:
            return self._chunks(cf, rows)
        prefix = layout.family_start(cf)
        keys, values = rows.column("key"), rows.column("value")
        if values.null_count == 0:
            fixed = _fixed_rows(prefix, keys, values)
            if fixed is not None:
                return fixed
        names = (prefix + key for key in cast("list[bytes]", keys.to_pylist()))
        return zip(names, cast("list[bytes | None]", values.to_pylist()), strict=True)

    def _chunks(self, cf: int, rows: pa.RecordBatch) -> Iterable[tuple[bytes, bytes | None]]:
        ops, keys, values = (rows.column(name).to_pylist() for name in ("op", "key", "value"))
        new_chunks = layout.chunk_keys(cf, cast("list[bytes]", keys), self._version)
        # Only a write that replaces the list must find its chunks.
        replaced = [key for op, key in zip(ops, keys, strict=True) if op != OP_APPEND]
        if not replaced:
            return zip(new_chunks, values, strict=True)
        chunks: dict[int, list[bytes]] = {}
        lists = layout.lists(cf, cast("list[bytes]", replaced))
        for place, chunk, _ in RangeRows(self._database, lists, keys_only=True):
            chunks.setdefault(place, []).append(chunk)
        written = zip(cast("list[int]", ops), new_chunks, values, strict=True)
        return _replaced(written, chunks)


def _replaced(
    rows: Iterable[tuple[int, bytes, bytes | None]], chunks: dict[int, list[bytes]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the entries of rows, of which some replace lists with these chunks."""
    place = 0
    for op, new_chunk, value in rows:
        if op != OP_APPEND:
            for chunk in chunks.get(place, ()):
                yield chunk, None
            place += 1
        if op in (OP_PUT, OP_APPEND):
            yield new_chunk, value


def _write_table(path: Path, parts: list[FixedRows], is_wanted: Callable[[], bool]) -> bool:
    """Write a file; return whether it is complete."""
    with TableWriter(path, BLOCK_BYTES) as table:
        for part in parts:
            row_count = max(1, min(_PART_ROWS, _PART_BYTES // part.row_bytes))
            for rows in part.parts(row_count):
                if not is_wanted():
                    return False
                table.add(rows)
        table.finish()
    return True


def _below_all_keys() -> FixedRows:
    """Return the deletion of ``BELOW_ALL_KEYS``."""
    none = np.zeros((1, 0), np.uint8)
    return FixedRows(layout.BELOW_ALL_KEYS, none, none[:0], np.zeros(1, np.bool_))


def _fixed_rows(
    prefix: bytes, keys: pa.Array[Any], values: pa.Array[Any]
) -> Iterable[tuple[bytes, bytes]] | None:
    """Return the entries of rows whose keys, and whose values, have equal lengths.

    This makes the objects of a row in a third of the time of ``to_pylist``.
    """
    key_matrix, value_matrix = _matrix(keys), _matrix(values)
    if key_matrix is None or value_matrix is None:
        return None
    count, key_bytes = key_matrix.shape
    value_bytes = value_matrix.shape[1]
    first = len(prefix)
    entries = np.empty((count, first + key_bytes + value_bytes), np.uint8)
    entries[:, :first] = np.frombuffer(prefix, np.uint8)
    entries[:, first : first + key_bytes] = key_matrix
    entries[:, first + key_bytes :] = value_matrix
    return struct.iter_unpack(f"{first + key_bytes}s{value_bytes}s", entries.data)


def _matrix(column: pa.Array[Any]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]] | None:
    _, offsets, data = column.buffers()
    if offsets is None or data is None or not data.size:
        return None
    ends = np.frombuffer(memoryview(offsets), np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    width = int(ends[1] - ends[0])
    if not width or (np.diff(ends) != width).any():
        return None
    cells = np.frombuffer(memoryview(data), np.uint8)[ends[0] : ends[-1]]
    return cells.reshape(len(column), width)
