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
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from rocksdict import (
    Checkpoint,
    IngestExternalFileOptions,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from cairn.errors import ClosedError, LocalDiskError
from cairn.rocks import keys as layout
from cairn.rocks import pages
from cairn.rocks.failures import Translation, translate
from cairn.rocks.ingestion import Ingestion, RowEncoding
from cairn.rocks.options import (
    RocksMemory,
    compaction_options,
    database_options,
    file_options,
    write_options,
)
from cairn.rocks.pages import RangesPage, ScanPage
from cairn.rocks.ranges import MAX_SKIPPED, RangeRows, is_skipped_too_many, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_SORT_FROM_KEYS = 64
# Keys with fewer rows between them are answered by reading these rows.
_FEW_ROWS = 16
# Presence is found by reading values, unless those of the first keys have more bytes.
_SAMPLE_KEYS = 32
_SAMPLE_BYTES = 64 << 10
_READ_ATTEMPTS = 3
_LONG_LIST_CHUNKS = 32
"""A longer list is rewritten as a head alone in idle time: many chunks make reads slow."""
_LONG_LISTS_MAX = 4096


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
        self._chunked: dict[int, bool] = {}  # see `has_chunks`
        self._write_options = write_options()
        self._file_options = file_options()
        self._ingest_options = IngestExternalFileOptions()
        self._ingest_options.set_move_files(True)
        self._ingestions = 0
        self._was_read = self._is_read = False  # see `note_use`
        self._fills_cache = True  # see `_get`
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

    def _prefix(self, cf: int) -> bytes:
        """Return the first bytes of the keys of a family's rows; those of lists are heads."""
        return layout.row_prefix(cf, is_list=cf in self.multi_families)

    def has_chunks(self, cf: int) -> bool:
        """Return whether a family may have rows that are chunks of lists. Also in ``write``.

        Most lists are written at once and never grow: they have heads alone. REQUIRES: the values
        of the family are lists.
        """
        found = self._chunked.get(cf)
        if found is None:
            low, high = layout.chunk_bounds(cf, start=None, inclusive=True, end=None)
            with self._translated:
                first = self._first_names(low, high, 1)
            # Not known because of many deleted ones: asked again after the next ingestion.
            found = self._chunked[cf] = first is None or bool(first)
        return found

    def _first_names(self, low: bytes, high: bytes, limit: int) -> list[bytes] | None:
        """Return the RocksDB keys from one to before another, at most ``limit`` of them.

        ``None``: deleted rows before or between them are too many for a short search.
        """
        reading = self._read_options()
        reading.set_iterate_upper_bound(high)
        reading.set_max_skippable_internal_keys(MAX_SKIPPED)
        seeker = self._db.iter(reading)
        names: list[bytes] = []
        try:
            seeker.seek(low)
            while len(names) < limit and (name := key_of(seeker)) < high:
                names.append(name)
                seeker.next()
        except Exception as failure:
            if not is_skipped_too_many(failure):
                raise
            return None
        return names

    def _is_in_chunks(self, cf: int) -> bool:
        return cf in self.multi_families and self.has_chunks(cf)

    def get(self, cf: int, key: bytes) -> bytes | None:
        """Return the value of one key, as ``get_many`` does."""
        if self._is_in_chunks(cf):
            return self.get_many(cf, [key])[0]
        try:
            value = cast("bytes | None", self._get(self._prefix(cf) + key))
        except Exception as failure:
            raise translate(failure, self._name) from failure
        return value

    def get_many(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, ``None`` where absent; the parts of a list are joined.

        Args:
            cf: the family.
            keys: any order; many keys are looked up in sorted order, which halves the cost.

        Raises:
            CorruptError: a block with one of the keys is corrupt.
        """
        with self._translated:
            rows = self._get_rows(self._prefix(cf), keys)
            return self._with_chunks(cf, keys, rows) if self._is_in_chunks(cf) else rows

    def _get_rows(self, prefix: bytes, keys: list[bytes]) -> list[bytes | None]:
        if len(keys) == 1:
            return [cast("bytes | None", self._get(prefix + keys[0]))]
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
        return cast("list[bytes | None]", self._get(names))

    def _get(self, names: bytes | list[Any]) -> object:
        """Return what RocksDB has; blocks stay out of the cache while a part of that is lent."""
        fills_cache = not self._memory.is_lent
        if fills_cache is not self._fills_cache:
            # Reads of several keys ignore the options of a call (rocksdict 0.3.29).
            with suppress(RuntimeError):  # another thread is in a call, such as a flush: later
                self._db.set_read_options(ReadOptions() if fills_cache else _unfilled())
                self._fills_cache = fills_cache
        found: object = self._db.get(names)
        return found

    def _with_chunks(
        self, cf: int, keys: list[bytes], heads: list[bytes | None]
    ) -> list[bytes | None]:
        """Return whole lists, of which ``heads`` has the heads."""
        chunks: dict[int, list[bytes]] = {}
        for place, _, value in RangeRows(self._db, layout.chunks_of(cf, keys)):
            chunks.setdefault(place, []).append(value)
        for place, parts in chunks.items():
            heads[place] = self._join(cf, keys[place], heads[place], parts)
        return heads

    def _join(self, cf: int, key: bytes, head: bytes | None, chunks: list[bytes]) -> bytes:
        """Return a whole list."""
        if len(chunks) > _LONG_LIST_CHUNKS:
            self._note_long(cf, key)
        return b"".join(chunks) if head is None else b"".join((head, *chunks))

    def present(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is present; REQUIRES: they ascend."""
        return self._present(cf, keys, is_list=cf in self.multi_families)

    def present_lists(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return what ``present`` does for a family of lists. Also in ``write``."""
        return self._present(cf, keys, is_list=True)

    def _present(self, cf: int, keys: list[bytes], *, is_list: bool) -> list[bool]:
        if not keys:
            return []
        prefix = layout.row_prefix(cf, is_list=is_list)
        with self._translated:
            # An operator that writes keys in the order of time writes most behind all others.
            few = self._first_names(prefix + keys[0], prefix + keys[-1] + b"\0", _FEW_ROWS)
            if few is not None and len(few) < _FEW_ROWS:
                names = set(few)
                found = [prefix + key in names for key in keys]
            else:
                found = self._present_rows(prefix, keys)
            if is_list and self.has_chunks(cf):
                left = [place for place, is_found in enumerate(found) if not is_found]
                for place, _ in self.chunks(cf, [keys[place] for place in left]):
                    found[left[place]] = True
        return found

    def _present_rows(self, prefix: bytes, keys: list[bytes]) -> list[bool]:
        found: list[bool] = []
        size = 0
        while len(found) < min(_SAMPLE_KEYS, len(keys)) and size <= _SAMPLE_BYTES:
            # Each time as many keys as before: a few values may have more bytes than a commit.
            some = keys[len(found) : max(1, 2 * len(found))]
            sample = self._get_rows(prefix, some)
            found += [value is not None for value in sample]
            size += sum(map(len, filter(None, sample)))
        left = keys[len(found) :]
        if not left:
            return found
        if size <= _SAMPLE_BYTES:
            return found + [value is not None for value in self._get_rows(prefix, left)]
        # Long values are not worth a copy.
        is_found = [False] * len(left)
        names = [(prefix + key, prefix + key + b"\0") for key in left]
        for place, _, _ in RangeRows(self._db, names, self._read_options, keys_only=True):
            is_found[place] = True
        return found + is_found

    def chunks(self, cf: int, keys: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the index of its list, and the RocksDB key, of each chunk of some lists.

        REQUIRES: the keys ascend. Also in ``write``.
        """
        lists = layout.chunks_of(cf, keys)
        for place, name, _ in RangeRows(self._db, lists, self._read_options, keys_only=True):
            yield place, name

    def scan(
        self,
        cf: int,
        *,
        start: bytes | None = None,
        inclusive: bool = True,
        end: bytes | None = None,
        limit_rows: int,
        limit_bytes: int,
    ) -> ScanPage:
        """Return rows of a family in ascending key order.

        Args:
            cf: the family.
            start: first key, or ``None`` for the family's first.
            inclusive: whether the page may have ``start``.
            end: the key above the last, or ``None`` for the family's end.
            limit_rows: at most this number of rows, at least 1.
            limit_bytes: the page ends after the row with which its keys, or its values, reach it.

        Raises:
            CorruptError: a block in the range is corrupt; no page is returned.
            LocalDiskError: a list could not be read to its end.
        """
        prefix = self._prefix(cf)
        low, high = layout.row_bounds(prefix, start=start, inclusive=inclusive, end=end)
        with self._translated:
            rows = self._rows_between(low, high)
            keys, values = pages.read_rows(rows, len(prefix), limit_rows, limit_bytes)
            last = prefix + keys[-1] if keys else None
            page = ScanPage(keys, values, self._follows(last, low, high))
            if not self._is_in_chunks(cf):
                return page
            limits = limit_rows, limit_bytes
            low, high = layout.chunk_bounds(cf, start=start, inclusive=inclusive, end=end)
            chunks, more = self._read_chunks(low, high, limits)
            return pages.merged_page(page, chunks, limits, partial(self._join, cf), more=more)

    def _read_chunks(
        self, low: bytes, high: bytes, limits: tuple[int, int]
    ) -> tuple[dict[bytes, list[bytes]], bool]:
        """Return the chunks of the first whole lists, and whether more lists follow."""
        for _ in range(_READ_ATTEMPTS):
            chunks, last = pages.read_chunks(self._rows_between(low, high), *limits)
            following = self._following(last, low, high)
            if last is None or following is None or not layout.are_of_one_list(last, following):
                return chunks, following is not None
            # items() has ended within a list: an error that has passed, or a new chunk.
        raise LocalDiskError(
            "a list could not be read to its end",
            next_step="load the version again; the worker then starts from the object store",
        )

    def _rows_between(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the rows from one RocksDB key to before another, or to a corrupt block.

        REQUIRES: the caller holds ``high`` while it reads. The iterator points to its bytes, and
        rocksdict does not keep them (0.3.29): it would end anywhere.
        """
        reading = self._read_options()
        reading.set_iterate_upper_bound(high)
        rows = self._db.items(from_key=low, read_opt=reading)
        return cast("Iterator[tuple[bytes, bytes]]", rows)

    def _read_options(self) -> ReadOptions:
        """Return the options of reads in the order of keys.

        Those of a database that is larger than the block cache leave no blocks there: they would
        replace the filters, and a read of many keys would then read a whole filter for every 32.
        """
        if self._memory.is_lent or self.sst_bytes() > self._memory.cache_bytes:
            return _unfilled()
        return ReadOptions()

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
            limits: rows, or chunks of lists, at least 1; bytes of keys, and of values. The page
                ends after the row that reaches one of them.

        Raises:
            CorruptError: a block in a range is corrupt; no page is returned.
        """
        prefix = self._prefix(cf)
        count = len(ranges)
        bounds = [
            layout.row_bounds(prefix, start=start, inclusive=True, end=end) for start, end in ranges
        ]
        with self._translated:
            rows = RangeRows(self._db, bounds, self._read_options)
            read = pages.read_ranges(rows, count, limits, len(prefix))
            if self._is_in_chunks(cf):
                bounds = [
                    layout.chunk_bounds(cf, start=start, inclusive=True, end=end)
                    for start, end in ranges
                ]
                rows = RangeRows(self._db, bounds, self._read_options)
                chunks = pages.read_ranges(rows, count, limits, None)
                read = pages.merged_ranges(read, chunks, limits, partial(self._join, cf))
        keys, values = pa.array(read.keys, pa.binary()), pa.array(read.values, pa.binary())
        place, key = read.end
        return RangesPage(keys, values, more=bool(key), count=place + bool(key))

    def _follows(self, last: bytes | None, low: bytes, high: bytes) -> bool:
        return self._following(last, low, high) is not None

    def _following(self, last: bytes | None, low: bytes, high: bytes) -> bytes | None:
        """Return the RocksDB key behind ``last`` and below ``high``, if there is one."""
        # items() ends silently at a corrupt block; only an iterator's status shows the corruption.
        reading = self._read_options()
        reading.set_iterate_upper_bound(high)
        seeker = self._db.iter(reading)
        seeker.seek(low if last is None else last)
        if last is not None and key_of(seeker) == last:
            seeker.next()
        name = key_of(seeker)
        return name if name < high else None

    # -- writes --------------------------------------------------------------------------------

    def new_ingestion(
        self,
        rows: pa.RecordBatch,
        version: int,
        multi_families: frozenset[int],
        *,
        may_begin_lists: bool = True,
    ) -> Ingestion:
        """Return an ingestion of rows; one at a time.

        Args:
            rows: ``op, cf, key, value``, sorted by family and key, one per key; a dropped family
                has no other row.
            version: the newest version of these rows, above all that the database has.
            multi_families: ids of the families whose values are lists, at that version.
            may_begin_lists: whether there may be appends to absent lists.
        """
        self._ingestions += 1
        path = self.directory / f"incoming-{self._ingestions}.sst"
        encoding = RowEncoding(version, multi_families, self, may_begin_lists=may_begin_lists)
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
                    for is_list in (False, True):
                        prefix = layout.row_prefix(cf, is_list=is_list)
                        low, high = layout.row_bounds(prefix, start=None, inclusive=True, end=None)
                        batch.delete_range(low, high)
                self._db.write(batch, self._write_options)
            # Others may have lost their last chunk.
            self._chunked = dict.fromkeys(ingestion.chunked, True)
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
        """Rewrite one list that a read found long as a head alone; return its bytes, 0 if none.

        REQUIRES: no ingestion is in progress, and ``is_write_stopped`` is false.
        """
        if not self.long_lists:
            return 0
        cf, key = next(iter(self.long_lists))
        del self.long_lists[cf, key]
        with self._translated:
            found = list(RangeRows(self._db, layout.chunks_of(cf, [key])))
            # A later version may have dropped the family.
            name = layout.row_prefix(cf, is_list=True) + key
            head = cast("bytes | None", self._db.get(name))
            joined = b"".join((head or b"", *(value for _, _, value in found)))
            if found:
                batch = WriteBatch(raw_mode=True)
                for _, chunk, _ in found:
                    batch.delete(chunk)
                batch.put(name, joined)
                self._db.write(batch, self._write_options)
                self._chunked.pop(cf, None)
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


def _unfilled() -> ReadOptions:
    """Return the options of a read that leaves no block in the cache."""
    options = ReadOptions()
    options.fill_cache(False)  # type: ignore[call-arg] # noqa: FBT003 - the .pyi lacks it
    return options


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
