"""One RocksDB database: an instance's committed state on the local disk.

Layer: rocks.  Spec: docs/checkpoint-format.md#sst.

Threads: ``flush`` and ``checkpoint`` may run beside the others; all else belongs to the worker's
owner thread. The WAL is off, so a directory that was not closed holds less than it was told.
"""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import pyarrow.compute as pc
from rocksdict import Checkpoint, Rdict, RdictIter, ReadOptions, WriteBatch

from cairn.errors import ClosedError
from cairn.format.ops import OP_APPEND, OP_DROP_CF, OP_PUT
from cairn.rocks import keys as layout
from cairn.rocks.failures import translate
from cairn.rocks.lists import LONG_LIST_CHUNKS, chunks_of, has_list, read_list_page
from cairn.rocks.options import RocksMemory, database_options, delta_write_options

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

_SCAN_STRIDE_ROWS = 512
_SORT_FROM_KEYS = 64
_LONG_LISTS_REMEMBERED = 4096


@dataclass(frozen=True)
class ScanPage:
    """Rows of one family in ascending key order; ``more`` says that rows follow."""

    keys: list[bytes]
    values: list[bytes]
    more: bool


class RocksDb:
    """An open database. See the module for threads.

    Args:
        directory: where it lives; made if ``create``, else a restored local checkpoint.
        memory: what the worker's databases share.
        create: whether the database begins empty.
        multi_families: ids of families whose values are lists.

    Raises:
        CorruptError: the directory is no whole database; nothing is left open.
        DiskFullError: no room.
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
        # INVARIANT: no close while a flush or checkpoint runs in another thread.
        self._uses = threading.Condition()
        self._use_count = 0
        self._closed = False
        # Keys whose lists were found long, waiting for the owner's idle time.
        self._long_lists: dict[tuple[int, bytes], None] = {}
        self._write_options = delta_write_options()
        memory.database_count += 1
        try:
            self._db = Rdict(self._name, database_options(memory, create=create))
            self._db.set_write_options(self._write_options)
        except Exception as failure:
            memory.database_count -= 1
            raise translate(failure, self._name) from failure

    # -- reads ---------------------------------------------------------------------------------

    def get_many(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key, ``None`` where absent; a list's chunks come joined.

        Args:
            cf: the family.
            keys: in any order; many are looked up in sorted order, which halves the cost.

        Raises:
            CorruptError: a block that holds a key is corrupt.
        """
        try:
            if cf in self.multi_families:
                return self._get_lists(cf, keys)
            prefix = layout.family_start(cf)
            if len(keys) == 1:
                return [cast("bytes | None", self._db.get(prefix + keys[0]))]
            if len(keys) < _SORT_FROM_KEYS:
                return cast("list[bytes | None]", self._db.get([prefix + key for key in keys]))
            order = sorted(range(len(keys)), key=keys.__getitem__)
            found = cast(
                "list[bytes | None]", self._db.get([prefix + keys[index] for index in order])
            )
            result: list[bytes | None] = [None] * len(keys)
            for index, value in zip(order, found, strict=True):
                result[index] = value
        except Exception as failure:
            raise translate(failure, self._name) from failure
        return result

    def present(self, cf: int, keys: list[bytes]) -> list[bool]:
        """Return for each key whether it is there. Ask with sorted keys."""
        if cf in self.multi_families:
            try:
                seeker = self._db.iter()
                return [has_list(seeker, layout.list_start(cf, key)) for key in keys]
            except Exception as failure:
                raise translate(failure, self._name) from failure
        return [value is not None for value in self.get_many(cf, keys)]

    def scan(
        self, cf: int, low: bytes, high: bytes, *, limit_rows: int, limit_bytes: int
    ) -> ScanPage:
        """Return rows of a family between two bounds, as ``keys.scan_bounds`` makes them.

        Args:
            cf: the family.
            low: first RocksDB key.
            high: the RocksDB key above the last.
            limit_rows: at most so many rows, at least 1.
            limit_bytes: stop after the row that reaches it.

        Raises:
            CorruptError: a block on the way is corrupt; no page is returned.
        """
        try:
            reading = ReadOptions()
            reading.set_iterate_upper_bound(high)
            rows = cast(
                "Iterator[tuple[bytes, bytes]]", self._db.items(from_key=low, read_opt=reading)
            )
            if cf in self.multi_families:
                lists = read_list_page(rows, limit_rows, limit_bytes)
                for key, chunks in zip(lists.keys, lists.chunks, strict=True):
                    self._note_length(cf, key, len(chunks))
                more = self._follows(lists.last, low, high)
                return ScanPage(lists.keys, [b"".join(chunks) for chunks in lists.chunks], more)
            page: list[tuple[bytes, bytes]] = []
            size = 0
            while len(page) < limit_rows and size < limit_bytes:
                stride = list(islice(rows, min(_SCAN_STRIDE_ROWS, limit_rows - len(page))))
                if not stride:
                    break
                page += stride
                size += sum(map(len, (value for _, value in stride))) + 16 * len(stride)
            last = page[-1][0] if page else None
            more = self._follows(last, low, high)
        except Exception as failure:
            raise translate(failure, self._name) from failure
        return ScanPage([key[layout.CF_BYTES :] for key, _ in page], [v for _, v in page], more)

    def count_keys(self, cf: int) -> Iterator[int]:
        """Yield the number of keys counted so far, stride by stride; the last is the count."""
        count = 0
        low, high = layout.family_start(cf), layout.family_end(cf)
        while True:
            page = self.scan(cf, low, high, limit_rows=4096, limit_bytes=1 << 20)
            count += len(page.keys)
            yield count
            if not page.more:
                return
            low, _ = layout.scan_bounds(
                cf,
                multi=cf in self.multi_families,
                start=page.keys[-1],
                inclusive=False,
                end=None,
            )

    def _follows(self, last: bytes | None, low: bytes, high: bytes) -> bool:
        # items() ends silently at a corrupt block; only an iterator's status tells it from the end.
        check = self._db.iter()
        check.seek(low if last is None else last)
        if last is not None and check.valid() and check.key() == last:
            check.next()
        if check.valid():
            following: bytes = check.key()
            return following < high
        check.status()
        return False

    def _get_lists(self, cf: int, keys: list[bytes]) -> list[bytes | None]:
        seeker = self._db.iter()
        result: list[bytes | None] = []
        for key in keys:
            start = layout.list_start(cf, key)
            chunks = [value for _, value in chunks_of(seeker, start)]
            self._note_length(cf, key, len(chunks))
            result.append(b"".join(chunks) if chunks else None)
        return result

    # -- writes --------------------------------------------------------------------------------

    def apply(self, rows: pa.RecordBatch, version: int) -> None:
        """Write a piece of a delta, all of it or nothing.

        Args:
            rows: ``op, cf, key, value``; sorted rows are written some twenty times faster.
            version: the delta's version, which names the chunks of lists.

        Raises:
            DiskFullError: no room; nothing of this piece was written.
        """
        batch = WriteBatch(raw_mode=True)
        ops, cfs, keys, values = rows.columns
        try:
            cf_range: Any = pc.min_max(cfs).as_py()
            cf = cf_range["min"]
            if (
                cf == cf_range["max"]
                and cf not in self.multi_families
                and cast("int", pc.max(ops).as_py()) < OP_APPEND
            ):
                self._fill(
                    batch,
                    layout.family_start(cf),
                    cast("list[bytes]", keys.to_pylist()),
                    values,
                )
            else:
                self._fill_mixed(batch, version, rows)
            self._db.write(batch, self._write_options)
        except Exception as failure:
            raise translate(failure, self._name) from failure

    def is_write_stopped(self) -> bool:
        """Whether a write would now wait for a flush: then let it be, and come back."""
        if not self._property("rocksdb.is-write-stopped"):
            return False
        # After a failed flush it never ends by itself: write, and hear why.
        return not self.is_broken()

    def is_broken(self) -> bool:
        """Whether a flush or compaction failed: writes fail from then on, until it is made anew."""
        return bool(self._property("rocksdb.background-errors"))

    @staticmethod
    def _fill(batch: WriteBatch, prefix: bytes, keys: list[bytes], values: pa.Array[Any]) -> None:
        put = batch.put
        if values.null_count == 0:
            for key, value in zip(keys, values.to_pylist(), strict=True):
                put(prefix + key, value)
            return
        delete = batch.delete
        for key, value in zip(keys, values.to_pylist(), strict=True):
            if value is None:
                delete(prefix + key)
            else:
                put(prefix + key, value)

    def _fill_mixed(self, batch: WriteBatch, version: int, rows: pa.RecordBatch) -> None:
        seeker: RdictIter | None = None
        columns = (column.to_pylist() for column in rows.columns)
        for op, cf, key, value in zip(*columns, strict=True):
            if op == OP_DROP_CF:
                batch.delete_range(layout.family_start(cf), layout.family_end(cf))
            elif cf not in self.multi_families:
                if value is None:
                    batch.delete(layout.family_start(cf) + key)
                else:
                    batch.put(layout.family_start(cf) + key, value)
            else:
                start = layout.list_start(cf, key)
                if op != OP_APPEND:
                    # An append reads nothing; only what replaces a list has to find its chunks.
                    seeker = seeker or self._db.iter()
                    for chunk, _ in chunks_of(seeker, start):
                        batch.delete(chunk)
                if op in (OP_PUT, OP_APPEND):
                    batch.put(layout.chunk_key(start, version), value)

    @property
    def has_long_lists(self) -> bool:
        """Whether ``join_one_long_list`` has work."""
        return bool(self._long_lists)

    def _note_length(self, cf: int, key: bytes, chunk_count: int) -> None:
        if chunk_count > LONG_LIST_CHUNKS and len(self._long_lists) < _LONG_LISTS_REMEMBERED:
            self._long_lists[cf, key] = None

    def join_one_long_list(self) -> bool:
        """Rewrite one list that a read found long as one chunk; return whether there was one."""
        if not self._long_lists:
            return False
        cf, key = next(iter(self._long_lists))
        del self._long_lists[cf, key]
        try:
            start = layout.list_start(cf, key)
            chunks = list(chunks_of(self._db.iter(), start))
            if len(chunks) > 1:
                batch = WriteBatch(raw_mode=True)
                for chunk, _ in chunks[:-1]:
                    batch.delete(chunk)
                # Under the newest chunk's name: later deltas still sort behind it.
                batch.put(chunks[-1][0], b"".join(value for _, value in chunks))
                self._db.write(batch, self._write_options)
        except Exception as failure:
            raise translate(failure, self._name) from failure
        return True

    # -- directory -----------------------------------------------------------------------------

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self._uses:
            if self._closed:
                raise ClosedError("the local database is closed", object_name=self._name)
            self._use_count += 1
        try:
            yield
        finally:
            with self._uses:
                self._use_count -= 1
                self._uses.notify_all()

    def flush(self) -> None:
        """Write all memtables to SSTs. Any thread; rocksdict gives up the GIL meanwhile."""
        with self._in_use():
            try:
                self._db.flush(wait=True)
            except Exception as failure:
                raise translate(failure, self._name) from failure

    def checkpoint(self, directory: Path) -> None:
        """Make ``directory``, which must not exist, a local checkpoint: hard links, some 2 ms.

        Any thread. REQUIRES: ``flush`` before, and no write since: it would be flushed here,
        holding the GIL.
        """
        with self._in_use():
            try:
                maker = Checkpoint(self._db)
                maker.create_checkpoint(str(directory))
                del maker  # alive, it would keep the database's lock after close
            except Exception as failure:
                shutil.rmtree(directory, ignore_errors=True)
                raise translate(failure, self._name) from failure

    def close(self) -> None:
        """Close, after the flushes and checkpoints under way. Idempotent."""
        with self._uses:
            if self._closed:
                return
            self._closed = True
            while self._use_count:
                self._uses.wait()
        self._memory.database_count -= 1
        try:
            self._db.close()
        except Exception as failure:
            raise translate(failure, self._name) from failure

    # -- figures -------------------------------------------------------------------------------

    def memtable_bytes(self) -> int:
        """Return what the memtables hold in memory."""
        return self._property("rocksdb.cur-size-all-mem-tables")

    def sst_bytes(self) -> int:
        """Return the size of the live SSTs."""
        return self._property("rocksdb.live-sst-files-size")

    def estimated_key_count(self) -> int:
        """Return RocksDB's estimate of the number of its keys; chunks count each."""
        return self._property("rocksdb.estimate-num-keys")

    def estimated_data_bytes(self) -> int:
        """Return an estimate of keys and values together, not compressed."""
        raw = 0
        text = self._db.property_value("rocksdb.aggregated-table-properties") or ""
        for part in text.split(";"):
            name, _, value = part.strip().partition("=")
            if name in ("raw key size", "raw value size"):
                raw += int(float(value))
        return raw + self._property("rocksdb.cur-size-active-mem-table")

    def _property(self, name: str) -> int:
        try:
            return int(self._db.property_int_value(name) or 0)
        except Exception as failure:
            raise translate(failure, self._name) from failure
