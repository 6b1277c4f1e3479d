"""Ingestion: sorted rows of committed versions on their way into RocksDB, as one SST file.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.

A list that is written whole is a head, a row like those of other families. Appends to it are
chunks, which the next write of the whole list deletes.

``write`` makes the whole file with numpy, in any thread, if the rows have fixed widths, their keys
are short and no list has chunks. All other rows are added in slices on the event loop; then
``finish`` completes the file in any thread. At last ``RocksDb.ingest`` makes the rows part of the
database.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import SstFileWriter

from cairn.format.ops import OP_APPEND, OP_DROP_CF, OP_PUT
from cairn.rocks import keys as layout
from cairn.rocks.options import BLOCK_BYTES
from cairn.rocks.sst import FixedRows, TableWriter, fixed_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from rocksdict import Options

    from cairn.rocks.failures import Translation

SMALL_FILE_BYTES = 16 << 20
"""Files of at least so many bytes, before compression, need not be merged with others."""
# A call of numpy for so many rows takes less than 1 ms, and its arrays fit into the caches.
_PART_ROWS = 1 << 14
_PART_BYTES = 2 << 20
# rocksdict holds the GIL for the whole call, some 0.3 ms.
_PRESENCE_STRIDE = 512


class Ingestion:
    """See the module. Created by ``RocksDb.new_ingestion``.

    Attributes:
        path: the file.
        dropped: families whose rows in the database must be deleted first.
        row_count: the number of rows, without the dropped families.
        rows_left: rows that were not added yet; a list whose chunks may be deleted counts twice.
        chunked: families of which the file has chunks of lists.
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
        self.chunked: set[int] = set()
        self._sections: list[_Section] | None = None

    @property
    def rows_left(self) -> int:
        """See the class."""
        if self._sections is None:
            return self.row_count
        return sum(section.rows.num_rows for section in self._sections)

    def _begin(self) -> list[_Section]:
        """Return the sections that are left, in descending order of their keys."""
        if self._sections is None:
            self._sections = self._ordered_sections()[::-1]
        return self._sections

    def _ordered_sections(self) -> list[_Section]:
        """Return all rows in the order of their keys in RocksDB."""
        sections: list[_Section] = []
        heads: list[_Section] = []
        for cf, rows in self._families():
            if not self._encoding.is_list(cf):
                sections.append(_Section(cf, rows))
                continue
            lists = self._encoding.with_new_lists_put(cf, rows)
            is_append = pc.equal(lists.column("op"), pa.scalar(OP_APPEND, pa.uint8()))
            appends = lists.filter(is_append)
            whole = lists.filter(pc.invert(is_append)) if appends.num_rows else lists
            if appends.num_rows:
                self.chunked.add(cf)
            # The write of a whole list deletes its chunks.
            replaces = whole.num_rows and self._encoding.has_chunks(cf)
            in_chunks = lists if replaces else appends
            if in_chunks.num_rows:
                sections.append(_Section(cf, in_chunks, of_chunks=True))
            if whole.num_rows:
                heads.append(_Section(cf, whole))
        return sections + heads

    def _families(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        cfs = self._rows.column("cf").to_numpy()
        ends = [*(np.flatnonzero(np.diff(cfs)) + 1).tolist(), self.row_count]
        start = 0
        for end in ends if self.row_count else ():
            rows = self._rows.slice(start, end - start)
            yield cast("int", rows.column("cf")[0].as_py()), rows
            start = end

    @property
    def row_bytes(self) -> int:
        """The mean size of a row, at least 1."""
        return max(1, self._rows.nbytes // max(1, self.row_count))

    @property
    def has_file(self) -> bool:
        """Whether there is a file to ingest: not if no row made an entry."""
        return self._writer is not None or self._is_written

    def write(self, is_wanted: Callable[[], bool]) -> bool:
        """Write and sync the whole file, if all its rows can be made with numpy; see the module.

        Any thread, once, before all other methods; called by ``RocksDb.write``.

        Args:
            is_wanted: asked often; once it returns ``False``, the file is left incomplete.

        Returns:
            Whether no rows are left. If not, nothing was written: use ``add`` and ``finish``.

        Raises:
            DiskFullError: the local disk is full.
        """
        with self._translated:
            sections = self._begin()
            parts: list[FixedRows] = []
            for section in reversed(sections):
                fixed = self._encoding.fixed(section)
                if fixed is None:
                    return False
                parts.append(fixed)
            if parts and self._is_small:
                parts.insert(0, _below_all_keys())
            self._is_written = bool(parts) and _write_table(self.path, parts, is_wanted)
        sections.clear()
        return True

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
        with self._translated:
            sections = self._begin()
            section = sections[-1]
            count = min(row_count, section.rows.num_rows)
            for key, value in self._encoding.entries(section.first(count)):
                writer = self._writer or self._opened()
                if value is None:
                    del writer[key]
                else:
                    writer[key] = value
            sections.pop()
            if count < section.rows.num_rows:
                sections.append(section.after(count))
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


class StoredLists(Protocol):
    """The lists of a database; see ``RocksDb``.

    A family may be dropped in a later version than that of the rows, so these know it no more.
    """

    def has_chunks(self, cf: int) -> bool:
        """Return whether a family's lists may have chunks."""

    def present_lists(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is present; REQUIRES: they ascend."""

    def chunks(self, cf: int, keys: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the index of its list, and the RocksDB key, of each chunk of some lists."""


@dataclass(frozen=True)
class _Section:
    """Sorted rows of a family; ``of_chunks``: they make entries of chunks, not of heads."""

    cf: int
    rows: pa.RecordBatch
    of_chunks: bool = False

    def first(self, row_count: int) -> _Section:
        return replace(self, rows=self.rows.slice(0, row_count))

    def after(self, row_count: int) -> _Section:
        return replace(self, rows=self.rows.slice(row_count))


class RowEncoding:
    """Turns sorted rows of one family into entries of RocksDB, in the order of their keys.

    Args:
        version: the newest version of the rows; part of the keys of list chunks.
        multi_families: ids of the families whose values are lists.
        lists: those that rows replace.
        may_begin_lists: whether there may be appends to absent lists.
    """

    def __init__(
        self,
        version: int,
        multi_families: frozenset[int],
        lists: StoredLists,
        *,
        may_begin_lists: bool,
    ) -> None:
        self._version = version
        self._multi_families = multi_families
        self._lists = lists
        self._may_begin_lists = may_begin_lists

    def is_list(self, cf: int) -> bool:
        """Return whether the values of a family are lists."""
        return cf in self._multi_families

    def has_chunks(self, cf: int) -> bool:
        """Return whether stored lists of a family may have chunks."""
        return self._lists.has_chunks(cf)

    def with_new_lists_put(self, cf: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows of lists in which appends to absent lists are puts."""
        ops = rows.column("op").to_numpy()
        places = np.flatnonzero(ops == OP_APPEND)
        if not self._may_begin_lists or not len(places):
            return rows
        ops = ops.copy()
        keys = rows.column("key").take(cast("Any", places))
        for start in range(0, len(places), _PRESENCE_STRIDE):
            stride = cast("list[bytes]", keys.slice(start, _PRESENCE_STRIDE).to_pylist())
            is_new = np.invert(self._lists.present_lists(cf, stride))
            ops[places[start : start + _PRESENCE_STRIDE][is_new]] = OP_PUT
        return rows.set_column(0, rows.schema.field(0), pa.array(ops))

    def fixed(self, section: _Section) -> FixedRows | None:
        """Return the entries of rows, at least one; ``None`` if RocksDB's writer must make them."""
        return None if section.of_chunks else fixed_rows(self._prefix(section.cf), section.rows)

    def _prefix(self, cf: int) -> bytes:
        return layout.row_prefix(cf, is_list=self.is_list(cf))

    def entries(self, section: _Section) -> Iterable[tuple[bytes, bytes | None]]:
        """Return key and value of each entry; a value of ``None`` deletes the key."""
        if section.of_chunks:
            return self._chunks(section.cf, section.rows)
        prefix = self._prefix(section.cf)
        keys, values = section.rows.column("key"), section.rows.column("value")
        if values.null_count == 0:
            fixed = _fixed_rows(prefix, keys, values)
            if fixed is not None:
                return fixed
        names = (prefix + key for key in cast("list[bytes]", keys.to_pylist()))
        return zip(names, cast("list[bytes | None]", values.to_pylist()), strict=True)

    def _chunks(self, cf: int, rows: pa.RecordBatch) -> Iterable[tuple[bytes, bytes | None]]:
        ops, keys, values = (rows.column(name).to_pylist() for name in ("op", "key", "value"))
        new_chunks = layout.chunk_keys(cf, cast("list[bytes]", keys), self._version)
        replaced = [key for op, key in zip(ops, keys, strict=True) if op != OP_APPEND]
        if not replaced:
            return zip(new_chunks, values, strict=True)
        chunks: dict[int, list[bytes]] = {}
        for place, chunk in self._lists.chunks(cf, cast("list[bytes]", replaced)):
            chunks.setdefault(place, []).append(chunk)
        written = zip(cast("list[int]", ops), new_chunks, values, strict=True)
        return _replaced(written, chunks)


def _replaced(
    rows: Iterable[tuple[int, bytes, bytes | None]], chunks: dict[int, list[bytes]]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the entries of rows, of which some replace lists with these chunks."""
    place = 0
    for op, new_chunk, value in rows:
        if op == OP_APPEND:
            yield new_chunk, value
            continue
        for chunk in chunks.get(place, ()):
            yield chunk, None
        place += 1


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
