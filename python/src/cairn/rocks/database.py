"""One RocksDB database: an instance's committed state on the local disk.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.

Rows enter as SST files (``Ingestion``). Memtables have only deletes of whole families and joined
lists; the WAL is off, so a directory that was not closed lacks the last of them.

Threads: a database is opened in any thread, and then belongs to the worker's event loop. Only
``write``, ``flush`` and ``checkpoint`` may run in other threads, and ``close`` after the event loop
has called ``retire``.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute
from rocksdict import (
    Checkpoint,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from cairn.errors import ClosedError
from cairn.rocks import keys as layout
from cairn.rocks.failures import Translation, translate
from cairn.rocks.ingestion import Ingestion, RowEncoding
from cairn.rocks.options import (
    RocksMemory,
    compaction_options,
    database_options,
    file_options,
    write_options,
)
from cairn.rocks.ranges import RangeRows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    Column = pa.Array[Any]

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_FIRST_STRIDE_ROWS = 16
"""Rows of a page that are read before their size is known."""
_STRIDE_ROWS = 512
_ROW_OVERHEAD_BYTES = 16
_SORT_FROM_KEYS = 64
_FEW_CHUNKS = 16
_LONG_LIST_CHUNKS = 32
"""A longer list is rewritten as one chunk in idle time: many chunks make reads slow."""
_LONG_LISTS_MAX = 4096


@dataclass(frozen=True)
class ScanPage:
    """Rows of one family in ascending key order; ``more`` says that rows follow."""

    keys: list[bytes]
    values: list[bytes]
    more: bool


@dataclass(frozen=True)
class RangesPage:
    """Rows of ranges of one family in ascending key order.

    Attributes:
        keys: their keys.
        values: their values.
        more: whether the last range that was read may have more rows.
        count: the number of ranges that were read, the first ones.
    """

    keys: Column
    values: Column
    more: bool
    count: int


class RocksDb:
    """An open database. The module's docstring says which threads may use it.

    Args:
        directory: the database's directory; created if ``create``, else a local checkpoint.
        memory: shared by the worker's databases.
        create: whether the database begins empty.
        multi_families: ids of families whose values are lists.

    Attributes:
        long_lists: keys whose lists a read found long; ``join_one_long_list`` joins them.

    Raises:
        CorruptError: the directory is not a whole database; no database is open.
        DiskFullError: the local disk is full.
    """

    def __init__(
        self,
        directory: Path,
        memory: RocksMemory,
        *,
        create: bool,
        multi_families: frozenset[int] = frozenset(),
    ) -> None:
        self.directory = directory
        self.multi_families = multi_families
        self._memory = memory
        self._name = str(directory)
        self._translated = Translation(self._name)
        # INVARIANT: no close during a write, flush or checkpoint of another thread.
        self._uses = threading.Condition()
        self._use_count = 0
        self._retired: Rdict | None = None
        self._is_closed = False
        self.long_lists: dict[tuple[int, bytes], None] = {}
        self._write_options = write_options()
        self._file_options = file_options()
        self._ingest_options = IngestExternalFileOptions()
        self._ingest_options.set_move_files(True)
        self._ingestions = 0
        self._was_read = self._is_read = False  # see `note_use`
        memory.count_database(1)
        try:
            with self._translated:
                # Those of the process that made the checkpoint. Nobody needs them: the options are
                # given below. rocksdict would parse them with the GIL held, 1 ms of some 5.
                for stored in directory.glob("OPTIONS-*"):
                    stored.unlink()
                options = database_options(memory, create=create)
                # Named, because rocksdict would give an unnamed family the options of the
                # directory's OPTIONS file, and a block cache of its own.
                self._db = Rdict(self._name, options, column_families={"default": options})
                self._db.set_write_options(self._write_options)
        except Exception:
            memory.count_database(-1)
            raise

    # -- reads ---------------------------------------------------------------------------------

    def get(self, cf: int, key: bytes) -> bytes | None:
        """Return the value of one key, as ``get_many`` does."""
        if cf in self.multi_families:
            return self.get_many(cf, [key])[0]
        try:
            value: bytes | None = self._db.get(layout.family_start(cf) + key)
        except Exception as failure:
            raise translate(failure, self._name) from failure
        return value

    def get_many(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, ``None`` where absent; the chunks of a list are joined.

        Args:
            cf: the family.
            keys: any order; many keys are looked up in sorted order, which halves the cost.

        Raises:
            CorruptError: a block with one of the keys is corrupt.
        """
        with self._translated:
            if cf in self.multi_families:
                return self._get_lists(cf, keys)
            prefix = layout.family_start(cf)
            if len(keys) == 1:
                return [cast("bytes | None", self._db.get(prefix + keys[0]))]
            if len(keys) < _SORT_FROM_KEYS or keys == sorted(keys):
                return self._multi_get([prefix + key for key in keys])
            order = sorted(range(len(keys)), key=keys.__getitem__)
            found = self._multi_get([prefix + keys[index] for index in order])
            result: list[bytes | None] = [None] * len(keys)
            for index, value in zip(order, found, strict=True):
                result[index] = value
        return result

    def _multi_get(self, names: list[Any]) -> list[bytes | None]:
        """Return the value of each RocksDB key, ``None`` where absent."""
        return cast("list[bytes | None]", self._db.get(names))

    def present(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is present; REQUIRES: they ascend."""
        if cf not in self.multi_families:
            return [value is not None for value in self.get_many(cf, keys)]
        with self._translated:
            few = self._few_lists(cf, keys[0], keys[-1]) if keys else ()
            if few is not None:
                return [key in few for key in keys]
            found = [False] * len(keys)
            lists = layout.lists(cf, keys)
            for place, _, _ in RangeRows(self._db, lists, self._read_options(), keys_only=True):
                found[place] = True
        return found

    def _few_lists(self, cf: int, first: bytes, last: bytes) -> Collection[bytes] | None:
        """Return the keys of all lists from one key to another; ``None``: they are many.

        An operator that writes keys in the order of time writes most of them behind all others.
        """
        seeker = self._db.iter(self._read_options())
        seeker.seek(layout.list_start(cf, first))
        end = layout.list_end(cf, last)
        chunks: list[bytes] = []
        while (chunk := cast("bytes | None", seeker.key())) is not None and chunk < end:
            if len(chunks) == _FEW_CHUNKS:
                return None
            chunks.append(chunk)
            seeker.next()
        seeker.status()
        return set(layout.keys_of_chunks(chunks))

    def scan(
        self, cf: int, low: bytes, high: bytes, *, limit_rows: int, limit_bytes: int
    ) -> ScanPage:
        """Return rows of a family between two bounds of ``keys.scan_bounds``.

        Args:
            cf: the family.
            low: first RocksDB key.
            high: the RocksDB key above the last.
            limit_rows: at most this number of rows, at least 1.
            limit_bytes: the page ends after the row that reaches it.

        Raises:
            CorruptError: a block in the range is corrupt; no page is returned.
        """
        with self._translated:
            reading = self._read_options()
            reading.set_iterate_upper_bound(high)
            rows = cast(
                "Iterator[tuple[bytes, bytes]]", self._db.items(from_key=low, read_opt=reading)
            )
            if cf in self.multi_families:
                keys, values, last = self._read_lists(cf, rows, limit_rows, limit_bytes)
            else:
                keys, values, last = _read_rows(rows, limit_rows, limit_bytes)
            return ScanPage(keys, values, self._follows(last, low, high))

    def _read_options(self) -> ReadOptions:
        """Return the options of reads in the order of keys.

        Those of a database that is larger than the block cache leave no blocks there: they would
        replace the filters, and a read of many keys would then read a whole filter for every 32.
        """
        options = ReadOptions()
        if self.sst_bytes() > self._memory.cache_bytes:
            options.fill_cache(False)  # type: ignore[call-arg] # noqa: FBT003 - the .pyi lacks it
        return options

    def read_ranges(
        self,
        cf: int,
        ranges: Sequence[tuple[bytes, bytes | None]],
        limits: tuple[int, int],
    ) -> RangesPage:
        """Return the rows of short ranges of a family.

        Args:
            cf: the family.
            ranges: first key, and the key above the last, ``None``: the family's end; they ascend
                and do not overlap.
            limits: rows, or chunks of lists, at least 1; bytes of values. The page ends after the
                row that reaches one of them.

        Raises:
            CorruptError: a block in a range is corrupt; no page is returned.
        """
        multi = cf in self.multi_families
        bounds = [
            layout.scan_bounds(cf, multi=multi, start=start, inclusive=True, end=end)
            for start, end in ranges
        ]
        # Entries that are equal but for these last bytes are the chunks of one list.
        name_end = -layout.VERSION_BYTES
        limit_rows, bytes_left = limits
        names: list[bytes] = []
        values: list[bytes] = []
        last, is_cut = 0, False
        with self._translated:
            for place, key, value in RangeRows(self._db, bounds, self._read_options()):
                is_full = len(names) >= limit_rows or bytes_left <= 0
                if is_full and not (multi and key[:name_end] == names[-1][:name_end]):
                    is_cut = place == last
                    break
                names.append(key)
                values.append(value)
                bytes_left -= len(value)
                last = place
            else:
                place = len(ranges)
        column: Column = pa.array(values, pa.binary())
        if multi:
            keys: Column = pa.array(layout.keys_of_chunks(names), pa.binary())
            keys, column = self._lists(cf, keys, column)
        else:
            keys = pa.array([key[layout.CF_BYTES :] for key in names], pa.binary())
        return RangesPage(keys, column, is_cut, place + is_cut)

    def _lists(self, cf: int, keys: Column, chunks: Column) -> tuple[Column, Column]:
        """Return each key once, and its chunks as one value."""
        count = len(keys)
        is_first = np.ones(count, np.bool_)
        is_first[1:] = pc.not_equal(keys[:-1], keys[1:]).to_numpy(zero_copy_only=False)
        if is_first.all():
            return keys, chunks
        firsts = np.flatnonzero(is_first)
        for place in np.flatnonzero(np.diff(firsts, append=count) > _LONG_LIST_CHUNKS).tolist():
            self._note_long(cf, keys[firsts[place]].as_py())
        # The chunks of a list lie behind each other: the offsets that part them are left out.
        _, offsets, data = chunks.buffers()
        ends = np.frombuffer(cast("Any", offsets), np.int32)[np.append(firsts, count)]
        joined = [None, pa.py_buffer(ends.data), data]
        lists = pa.Array.from_buffers(pa.binary(), len(firsts), joined)
        return keys.filter(pa.array(is_first)), lists

    def _joined(self, cf: int, keys: list[bytes], lists: list[list[bytes]]) -> list[bytes]:
        """Return the lists of keys, of which ``lists`` has the chunks."""
        for key, parts in zip(keys, lists, strict=True):
            if len(parts) > _LONG_LIST_CHUNKS:
                self._note_long(cf, key)
        return [b"".join(parts) for parts in lists]

    def _follows(self, last: bytes | None, low: bytes, high: bytes) -> bool:
        # items() ends silently at a corrupt block; only an iterator's status shows the corruption.
        check = self._db.iter(self._read_options())
        check.seek(low if last is None else last)
        if last is not None and check.valid() and check.key() == last:
            check.next()
        if check.valid():
            following: bytes = check.key()
            return following < high
        check.status()
        return False

    def _get_lists(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        parts: list[list[bytes]] = [[] for _ in keys]
        for place, _, value in RangeRows(self._db, layout.lists(cf, keys)):
            parts[place].append(value)
        found = self._joined(cf, keys, parts)
        return [value if chunks else None for value, chunks in zip(found, parts, strict=True)]

    def _read_lists(
        self, cf: int, rows: Iterator[tuple[bytes, bytes]], limit_rows: int, limit_bytes: int
    ) -> tuple[list[bytes], list[bytes], bytes | None]:
        """Return keys, whole lists, and the RocksDB key of the last chunk."""
        keys: list[bytes] = []
        lists: list[list[bytes]] = []
        current, last, size = b"", None, 0
        for rocks_key, value in rows:
            group = rocks_key[: -layout.CHUNK_SUFFIX_BYTES]
            if last is None or group != current:
                if len(keys) >= limit_rows or size >= limit_bytes:
                    break
                current = group
                keys.append(layout.key_of_chunk(rocks_key))
                lists.append([])
            lists[-1].append(value)
            size += len(value) + _ROW_OVERHEAD_BYTES
            last = rocks_key
        return keys, self._joined(cf, keys, lists), last

    # -- writes --------------------------------------------------------------------------------

    def new_ingestion(
        self, rows: pa.RecordBatch, version: int, multi_families: frozenset[int]
    ) -> Ingestion:
        """Return an ingestion of rows; one at a time.

        Args:
            rows: ``op, cf, key, value``, sorted by family and key, one per key; a dropped family
                has no other row.
            version: the newest version of these rows, above all that the database has.
            multi_families: ids of the families whose values are lists, at that version.
        """
        self._ingestions += 1
        path = self.directory / f"incoming-{self._ingestions}.sst"
        encoding = RowEncoding(version, multi_families, self._db)
        return Ingestion(path, self._file_options, rows, encoding, self._translated)

    def write(self, ingestion: Ingestion, is_wanted: Callable[[], bool]) -> bool:
        """Write the file of an ingestion if that is possible at once; see ``Ingestion.write``.

        Any thread; ``close`` waits for it.

        Raises:
            ClosedError: ``retire`` was called before.
        """
        with self._in_use():
            return ingestion.write(is_wanted)

    def note_use(self, *, is_read: bool) -> None:
        """Take whether reads have searched the files since the last call.

        Two equal answers in a row decide whether files are merged early; at first they are not.
        Any thread, one call at a time; ``close`` waits for it. A change of the options holds the
        GIL for 2 to 12 ms.

        Raises:
            ClosedError: ``retire`` was called before.
            DiskFullError: the local disk is full.
        """
        was_read, self._was_read = self._was_read, is_read
        # A single answer may be due to a refill of the shim's cache.
        if is_read == was_read and is_read != self._is_read:
            with self._in_use(), self._translated:
                self._db.set_options(compaction_options(is_read=is_read))
            self._is_read = is_read

    def ingest(self, ingestion: Ingestion) -> None:
        """Make the rows of a finished ingestion part of the database.

        Raises:
            DiskFullError: the local disk is full; perhaps families were dropped already.
        """
        with self._translated:
            if ingestion.dropped:
                batch = WriteBatch(raw_mode=True)
                for cf in ingestion.dropped:
                    batch.delete_range(layout.family_start(cf), layout.family_end(cf))
                self._db.write(batch, self._write_options)
            if ingestion.has_file:
                self._db.ingest_external_file([str(ingestion.path)], self._ingest_options)

    def is_write_stopped(self) -> bool:
        """Whether a write would now wait for a flush; the caller should write later."""
        if not self._property("rocksdb.is-write-stopped"):
            return False
        # After a failed flush the stop never ends, and every write raises the cause.
        return not self.is_broken()

    def is_broken(self) -> bool:
        """Whether a flush or compaction failed: all writes fail until the database is recreated."""
        return bool(self._property("rocksdb.background-errors"))

    def _note_long(self, cf: int, key: bytes) -> None:
        if len(self.long_lists) < _LONG_LISTS_MAX:
            self.long_lists[cf, key] = None

    def join_one_long_list(self) -> int:
        """Rewrite one list that a read found long as one chunk; return its bytes, 0 if none.

        REQUIRES: no ingestion is in progress, and ``is_write_stopped`` is false.
        """
        if not self.long_lists:
            return 0
        cf, key = next(iter(self.long_lists))
        del self.long_lists[cf, key]
        with self._translated:
            found = list(RangeRows(self._db, layout.lists(cf, [key])))
            joined = b"".join(value for _, _, value in found)
            if len(found) > 1:
                batch = WriteBatch(raw_mode=True)
                for _, chunk, _ in found[:-1]:
                    batch.delete(chunk)
                # Under the newest chunk's key: chunks of later deltas still sort after it.
                batch.put(found[-1][1], joined)
                self._db.write(batch, self._write_options)
        return max(1, len(joined))

    # -- directory -----------------------------------------------------------------------------

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._uses:
            if self._retired is not None:
                raise _closed(self._name)
            self._use_count += 1
        try:
            yield
        finally:
            with self._uses:
                self._use_count -= 1
                self._uses.notify_all()

    def flush(self) -> None:
        """Write all memtables to SSTs. Any thread; rocksdict releases the GIL."""
        with self._in_use(), self._translated:
            self._db.flush(wait=True)

    def checkpoint(self, directory: Path) -> None:
        """Create a local checkpoint in ``directory``, which must not exist: hard links, about 2 ms.

        Any thread. REQUIRES: ``flush`` before, and no write since: RocksDB would flush it here with
        the GIL held.
        """
        with self._in_use(), self._translated:
            try:
                maker = Checkpoint(self._db)
                maker.create_checkpoint(str(directory))
                del maker  # it would keep the database's lock after close
            except Exception:
                shutil.rmtree(directory, ignore_errors=True)
                raise

    def retire(self) -> None:
        """Refuse all later calls but ``close``. On the event loop; idempotent."""
        with self._uses:
            if self._retired is None:
                self._retired, self._db = self._db, cast("Rdict", _Retired(self._name))

    def close(self) -> None:
        """Wait for running writes, flushes and checkpoints, then close. Any thread; idempotent.

        It takes as long as a flush. rocksdict releases the GIL. REQUIRES: no call of the event loop
        is in progress: it has called ``retire``, or this is its thread.
        """
        self.retire()
        with self._uses:
            if self._is_closed:
                return
            self._is_closed = True
            while self._use_count:
                self._uses.wait()
        self._memory.count_database(-1)
        with self._translated:
            if self._retired is not None:
                self._retired.close()

    # -- metrics -------------------------------------------------------------------------------

    def memtable_bytes(self) -> int:
        """Return the memory of the memtables."""
        return self._property("rocksdb.cur-size-all-mem-tables")

    def sst_bytes(self) -> int:
        """Return the size of the live SSTs."""
        return self._property("rocksdb.live-sst-files-size")

    def estimated_key_count(self) -> int:
        """Return RocksDB's estimate of the number of its keys; each chunk of a list counts."""
        return self._property("rocksdb.estimate-num-keys")

    def data_estimate(self) -> tuple[int, int]:
        """Return estimates of all entries: the bytes of keys and values, uncompressed; the number.

        A key that was written again counts again until a compaction.
        """
        raw = count = 0
        text = self._db.property_value("rocksdb.aggregated-table-properties") or ""
        for part in text.split(";"):
            name, _, value = part.strip().partition("=")
            if name in ("raw key size", "raw value size"):
                raw += int(float(value))
            elif name == "# entries":
                count = int(float(value))
        return raw + self._property("rocksdb.cur-size-active-mem-table"), count

    def _property(self, name: str) -> int:
        with self._translated:
            return int(self._db.property_int_value(name) or 0)


def _closed(name: str) -> ClosedError:
    return ClosedError("the local database is closed", object_name=name)


class _Retired:
    """Stands for the database after ``RocksDb.retire``: every use raises ``ClosedError``.

    A read in steps may have its next step after a load has replaced the database. That step must
    not reach rocksdict while another thread closes the database.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, _: str) -> object:
        raise _closed(self._name)


def _read_rows(
    rows: Iterator[tuple[bytes, bytes]], limit_rows: int, limit_bytes: int
) -> tuple[list[bytes], list[bytes], bytes | None]:
    """Return keys, values, and the RocksDB key of the last row."""
    keys: list[bytes] = []
    values: list[bytes] = []
    last, size = None, 0
    stride_rows = _FIRST_STRIDE_ROWS
    while len(keys) < limit_rows and size < limit_bytes:
        stride = list(islice(rows, min(stride_rows, limit_rows - len(keys))))
        if not stride:
            break
        names, cells = zip(*stride, strict=True)
        stride_size = sum(map(len, cells)) + _ROW_OVERHEAD_BYTES * len(cells)
        if size + stride_size > limit_bytes:
            wanted = _count_within(cells, limit_bytes - size)
            names, cells = names[:wanted], cells[:wanted]
        keys += [name[layout.CF_BYTES :] for name in names]
        values += cells
        last = names[-1]
        size += stride_size
        # About as many as will reach the limit: those behind it are read again.
        stride_rows = min(_STRIDE_ROWS, 1 + (limit_bytes - size) * len(keys) // size)
    return keys, values, last


def _count_within(values: Sequence[bytes], limit_bytes: int) -> int:
    """Return the number of the first values that reach a limit together, or of all."""
    for count, value in enumerate(values, start=1):
        limit_bytes -= len(value) + _ROW_OVERHEAD_BYTES
        if limit_bytes <= 0:
            return count
    return len(values)
