"""CairnRows: the rows of one of Cairn's stores at one version, straight from its objects.

Layer: reader.stores.  Spec: docs/checkpoint-format.md. A version is a snapshot and the changelogs
after it. Plan and detours around damaged objects are those of the engine's loads; but no database
is opened, and nothing is stored: the SST files of the snapshot are read in ranges of bytes.

Rows come in the order of their keys. When an object turns out to be damaged in the middle of a
scan, the scan goes on behind its last key, on another way to the version, which has the same rows.
"""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.checkpoint.stored_versions import DAMAGES, RESTORE, StoredVersions
from cairn.clock import SYSTEM_CLOCK
from cairn.errors import AccessError, CairnError, CorruptError, DataError, FormatVersionError
from cairn.format import pin
from cairn.format.manifest import MAX_OBJECT_BYTES
from cairn.format.names import manifest_name
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.ids import VersionRef
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import Changes, ReadLimits, StoredFamily
from cairn.reader.stores.merging import (
    NO_ENTRIES,
    SortedStream,
    chosen,
    entries_of,
    merge,
    puts,
    with_operands,
    without_prefix,
)
from cairn.reader.stores.tables import Tables
from cairn.reader.stores.values import ValueForm, plain_values
from cairn.rocks import keys as layout
from cairn.rocks.sst.decoding import DELETE, MERGE, PUT, Entries
from cairn.rocks.version_edits import sorted_runs
from cairn.store.load.detours import Detours
from cairn.store.load.lineage import listed_snapshots, reading_of
from cairn.store.rows.sorting import key_order
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.checkpoint.reader_pins import ReaderPins
    from cairn.format.changelog import Changelog
    from cairn.format.header import ColumnFamily
    from cairn.format.manifest import Manifest
    from cairn.ids import CheckpointId
    from cairn.rocks.version_edits import LiveFile
    from cairn.storage.base import ObjectStore

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_THREADS = 8
_LONG_LINEAGE = 10
"""The default of ``minDeltasForSnapshot``: then a snapshot was due since."""
_KIND_OF_OP = np.zeros(256, np.uint8)
_KIND_OF_OP[[OP_PUT, OP_DELETE, OP_APPEND]] = PUT, DELETE, MERGE
_SAMPLED_ROWS = 1024
_KEPT_BYTES = 64 << 10
_GRACE_MS = 3_600_000
"""The default: a reader does not know the query's setting. Pins are renewed far more often."""
_NO_DELIMITER = b""
_ROW_CHECKSUM = "rowChecksum:"
_KEY_AND_VALUE = ("key", "value")


class CairnRows:
    """See the module. Not thread-safe.

    Args:
        versions: of the store; ``close`` closes its objects.
        version: Spark's number; 0 is empty.
        checkpoint_id: Spark's id of the version; ``None`` in checkpoint format 1.
        limits: of the memory.
        pins: protect the version from retention, if the read takes long.

    Attributes:
        families: the column families by name.
        columns: the same, as the changelog describes them.

    Raises:
        MissingError, CorruptError: no way leads to the version; names the objects.
    """

    def __init__(
        self,
        versions: StoredVersions,
        version: int,
        checkpoint_id: str | None,
        limits: ReadLimits | None = None,
        pins: ReaderPins | None = None,
    ) -> None:
        self._pin = None if pins is None else pins.begin(PinnedVersions(versions))
        self._versions = versions
        self._version = version
        self._checkpoint_id = checkpoint_id
        self._limits = limits or ReadLimits()
        self._detours: Iterator[StoreVersion] | None = None
        self._has_listed = False
        self._manifest: Manifest | None = None
        self._changelogs: dict[VersionRef, Changelog] = {}
        self._base: tuple[VersionRef, Tables] | None = None
        self._way = StoreVersion.empty(version)
        if version:
            self._plan()
        self.columns = {family.name: family for family in self._way.families}
        self.families: Mapping[str, StoredFamily] = {
            family.name: StoredFamily(family.id, family.multi, family.internal)
            for family in self._way.families
        }

    @property
    def version(self) -> StoreVersion:
        """The version as its changelog describes it."""
        return self._way

    # -- the way to the version ----------------------------------------------------------------

    def _plan(self) -> None:
        try:
            head = self._versions.read(self._version, self._checkpoint_id)
        except DAMAGES as failure:
            self._go_around(failure)
            return
        self._changelogs[head.header.ref] = head
        self._take(replace(StoreVersion.of_header(head.header), version=self._version))

    def _shorten(self) -> None:
        """Take a newer snapshot than the changelog names, if many changelogs are to be read.

        A snapshot that was stored later is named by no changelog: a listing shows it.
        """
        way = self._way
        if self._has_listed or self._detours is not None or len(way.lineage) < _LONG_LINEAGE:
            return
        self._has_listed = True
        with suppress(AccessError):
            stored = listed_snapshots(self._versions.objects)
            for newest in sorted(stored.intersection(way.lineage), reverse=True):
                # A newer Cairn may have written it; the changelogs can be read.
                with suppress(FormatVersionError):
                    self._manifest = self._versions.fetch_manifest(newest)
                    self._take(way.rebased(newest) or way)
                    return

    def _take(self, way: StoreVersion) -> None:
        self._way = way
        if self._pin is not None:
            self._pin.reads(reading_of(way))

    def _go_around(self, failure: CairnError) -> None:
        """Take the next way that needs no damaged object.

        Raises:
            CairnError: ``failure``, if there is none.
        """
        if self._detours is None:
            detours = Detours(self._versions, self._version, self._checkpoint_id, failure)
            self._all_detours, self._detours = detours, iter(detours)
        else:
            self._all_detours.avoid(failure)
        way = next(self._detours, None)
        if way is None:
            first = self._all_detours.failure()
            if self._pin is not None:
                self._pin.explain(first)
            # An error of the storage, as of an SST file that is missing, names its object alone.
            raise first.with_context(
                store=str(self._versions.store),
                version=self._version,
                next_step=RESTORE if isinstance(first, DataError) else None,
            )
        self._take(way)

    # -- rows ------------------------------------------------------------------------------------

    @property
    def gone_around(self) -> tuple[CairnError, ...]:
        """What prevented the ways before the present one; see ``StoreRows``."""
        return () if self._detours is None else self._all_detours.failures

    def stored_count(self, family: str) -> int | None:
        """Return the count of the changelog; see ``StoreRows``."""
        return self._way.counts.get(self.families[family].family_id)

    def rows(self, family: str) -> Iterator[StoredRows]:
        """Yield the rows of a family in ascending order of their keys; see ``StoreRows``."""
        column = self.columns[family]
        after: bytes | None = None
        while True:
            try:
                for keys, values in self._scan(
                    column, b"" if after is None else after + b"\0", None
                ):
                    if len(keys):
                        # Rows that differ from their checksums are read again on the next way.
                        rows = _checked(column, keys, values)
                        after = keys[-1].as_py()
                        yield rows
            except DAMAGES as failure:
                self._go_around(failure)
            else:
                return

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of one key, or ``None``; see ``StoreRows``."""
        column = self.columns[family]
        while True:
            try:
                value = self._get(column, key)
                if value is None:
                    return None
                arrays = (pa.array([one], pa.binary()) for one in (key, value))
                plain: bytes = _checked(column, *arrays).values[0].as_py()
            except DAMAGES as failure:
                self._go_around(failure)
            else:
                return plain

    def writes(self, family: str) -> Iterator[Changes]:
        """Yield the writes of the version; see ``StoreRows``. One per key: the net change."""
        column, ref = self.columns[family], self._way.ref
        if ref is None or ref.version != self._version:
            return
        (changelog,) = self._fetch([ref])
        rows = _rows_within(changelog.table, column.id, b"", None)
        has_value = pc.is_valid(rows.column("value"))
        # Deletes have neither a value nor a checksum.
        for some in (rows.filter(pc.invert(has_value)), rows.filter(has_value)):
            if not some.num_rows:
                continue
            keys, values = some.column("key"), some.column("value")
            stored = (
                StoredRows(keys.cast(_LARGE), values.fill_null(b"").cast(_LARGE))
                if values.null_count
                else _checked(column, keys, values)
            )
            yield Changes(column.id, some.column("op").to_numpy(), stored.keys, stored.values)

    def rest(self) -> None:
        """Forget large changelogs; see ``StoreRows``."""
        kept = self._changelogs.items()
        self._changelogs = {ref: one for ref, one in kept if one.size_bytes <= _KEPT_BYTES}

    def close(self) -> None:
        """Free the memory, and close the objects. Idempotent."""
        self._changelogs.clear()
        self._base = None
        if self._pin is not None:
            self._pin.release()
        self._versions.objects.close()

    def __enter__(self) -> Self:
        """Return the rows."""
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory."""
        self.close()

    def _scan(
        self, column: ColumnFamily, start: bytes, end: bytes | None
    ) -> Iterator[tuple[pa.Array[Any], pa.Array[Any]]]:
        """Yield keys and values of a range, by the present way."""
        self._shorten()
        way = self._way
        changelogs = self._fetch(way.lineage)
        base = None if way.base.ref is None else self._tables_of(way.base.ref)
        for first, last in self._parts_of(column, changelogs, start, end):
            streams = [] if base is None else _base_streams(base, column, first, last)
            writes = [_writes(one, column.id, first, last) for one in changelogs]
            streams += [SortedStream(iter([one])) for one in writes if len(one)]
            for rows in merge(streams):
                yield with_operands(rows, _NO_DELIMITER)

    def _get(self, column: ColumnFamily, key: bytes) -> bytes | None:
        """Return the stored value of a key by the present way, the newest write first."""
        newest_first: list[bytes] = []
        self._shorten()
        for changelog in self._newest_first():
            rows = _rows_within(changelog.table, column.id, key, key + b"\0")
            for row in rows.to_pylist():  # one at most
                newest_first += [] if row["value"] is None else [row["value"]]
                if row["op"] != OP_APPEND:
                    return _whole(newest_first)
        if self._way.base.ref is not None:
            base = self._tables_of(self._way.base.ref)
            newest_first += reversed(_base_parts(base, column, key))
        return _whole(newest_first)

    def _newest_first(self) -> Iterator[Changelog]:
        """Yield the changelogs: the newest was read for its lineage, the others are if need be."""
        refs = self._way.lineage
        yield from self._fetch(refs[-1:])
        yield from reversed(self._fetch(refs[:-1]))

    def _fetch(self, refs: Sequence[VersionRef]) -> list[Changelog]:
        """Return changelogs; several are fetched at a time, and all are kept."""
        missing = [ref for ref in refs if ref not in self._changelogs]

        def read(ref: VersionRef) -> Changelog:
            return self._versions.read(ref.version, str(ref.checkpoint_id))

        with ThreadPoolExecutor(min(_THREADS, max(1, len(missing)))) as threads:
            for ref, found in zip(missing, threads.map(read, missing), strict=True):
                self._changelogs[ref] = found
        return [self._changelogs[ref] for ref in refs]

    def _tables_of(self, ref: VersionRef) -> Tables:
        """Return the tables of a snapshot; those of the last one are kept."""
        if self._base is None or self._base[0] != ref:
            self._base = ref, self._open_tables(ref)
        return self._base[1]

    def _open_tables(self, ref: VersionRef) -> Tables:
        manifest = self._manifest
        if manifest is None or manifest.ref != ref:
            manifest = self._versions.fetch_manifest(ref)
        objects = self._versions.objects
        files = {file.local_name: file for file in manifest.files}
        content = _rocksdb_manifest(objects, manifest)
        name = objects.object_url(manifest_name(ref))

        def open_file(file: LiveFile) -> _ObjectFile:
            stored = files.get(file.name)
            if stored is None or stored.size_bytes != file.size_bytes:
                raise CorruptError(
                    f"the manifest does not name the file {file.name}, which RocksDB needs",
                    object_name=name,
                )
            return _ObjectFile(objects, stored.object_name, stored.size_bytes)

        return Tables(sorted_runs(content, name), open_file)

    def _parts_of(
        self,
        column: ColumnFamily,
        changelogs: Sequence[Changelog],
        start: bytes,
        end: bytes | None,
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the parts of a range whose writes are within the memory, in order."""
        tables = [changelog.table for changelog in changelogs]
        size = sum(table.nbytes for table in tables)
        count = min(-(-size * _COPIES // self._limits.memory_bytes), _SAMPLED_ROWS)
        bounds = [start]
        if count > 1:
            bounds += _quantiles(tables, column.id, start, end, count)
        yield from zip(bounds, [*bounds[1:], end], strict=True)


_LARGE = pa.large_binary()
_COPIES = 4
"""The memory of writes that are sorted and merged, by that of the writes."""


@dataclass(frozen=True, slots=True)
class PinnedVersions:
    """The store of a reader's pin."""

    versions: StoredVersions

    @property
    def objects(self) -> ObjectStore:
        """The objects of the store."""
        return self.versions.objects

    @property
    def grace_ms(self) -> int:
        """The grace period."""
        return _GRACE_MS

    def pin_content(self, checkpoint_id: CheckpointId | None) -> bytes:
        """Return the bytes of the pin."""
        return pin.encode(
            self.versions.store,
            run_id="reader",
            instance=f"{socket.gethostname()}:{os.getpid()}",
            written_at_ms=int(SYSTEM_CLOCK.now().timestamp() * 1000),
            checkpoint_id=checkpoint_id,
        )


@dataclass(frozen=True, slots=True)
class _ObjectFile:
    """An object as a file of which parts are read."""

    objects: ObjectStore
    key: str
    size_bytes: int

    @property
    def name(self) -> str:
        return self.objects.object_url(self.key)

    def read(self, offset: int, length: int) -> bytes:
        return self.objects.get_range(self.key, offset, length)


def _checked(column: ColumnFamily, keys: pa.Array[Any], values: pa.Array[Any]) -> StoredRows:
    """Return rows without row checksums, which are verified.

    Raises:
        CorruptError: a row differs from its checksum.
    """
    large_keys, large_values = keys.cast(_LARGE), values.cast(_LARGE)
    if _ROW_CHECKSUM in column.key_encoder:
        form = ValueForm(column.multi, has_checksums=True, delimiter=_NO_DELIMITER)
        large_values = plain_values(large_keys, large_values, form)
    return StoredRows(large_keys, large_values)


def _rocksdb_manifest(objects: ObjectStore, manifest: Manifest) -> bytes:
    """Return RocksDB's list of files; that of a large state is an object of its own."""
    small = {file.local_name: file.content for file in manifest.small_files}
    name = small.get("CURRENT", b"").decode().removesuffix("\n")
    if name in small:
        return small[name]
    for file in manifest.files:
        if file.local_name == name:
            return objects.get(file.object_name, max_bytes=MAX_OBJECT_BYTES).data
    raise CorruptError(
        "the snapshot has no list of RocksDB's files",
        object_name=objects.object_url(manifest_name(manifest.ref)),
    )


def _base_streams(
    base: Tables, column: ColumnFamily, start: bytes, end: bytes | None
) -> list[SortedStream]:
    """Return the rows of a snapshot: of a list its head, and its chunks as appends."""
    prefix = layout.row_prefix(column.id, is_list=column.multi)
    bounds = layout.row_bounds(prefix, start=start, inclusive=True, end=end)
    rows = (
        puts(without_prefix(part.column("key"), len(prefix)), part.column("value"))
        for part in base.scan(*bounds)
    )
    if not column.multi:
        return [SortedStream(rows)]
    bounds = layout.chunk_bounds(column.id, start=start, inclusive=True, end=end)
    return [SortedStream(rows), SortedStream(joined_chunks(base.scan(*bounds)))]


def _base_parts(base: Tables, column: ColumnFamily, key: bytes) -> list[bytes]:
    """Return what a snapshot has of a key: the value; of a list its head and its chunks."""
    entry = base.get(layout.row_prefix(column.id, is_list=column.multi) + key)
    found = [] if entry is None or entry.value is None else [entry.value]
    if column.multi:
        bounds = layout.chunk_bounds(column.id, start=key, inclusive=True, end=key + b"\0")
        for part in joined_chunks(base.scan(*bounds)):
            found += cast("list[bytes]", part.values.to_pylist())
    return found


def _whole(newest_first: list[bytes]) -> bytes | None:
    """Return the value of which these are the parts; ``None`` if there is none."""
    return b"".join(reversed(newest_first)) if newest_first else None


def joined_chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[Entries]:
    """Yield the chunks of lists as appends; the chunks of one list become one."""
    names: list[bytes] = []
    parts: list[list[bytes]] = []
    for batch in batches:
        columns = (cast("list[bytes]", batch.column(name).to_pylist()) for name in _KEY_AND_VALUE)
        for name, value in zip(*columns, strict=True):
            key = layout.key_of_chunk(name)
            if names and names[-1] == key:
                parts[-1].append(value)
            else:
                names.append(key)
                parts.append([value])
        # More chunks of the last list may follow.
        if len(names) > 1:
            yield _appends(names[:-1], parts[:-1])
            del names[:-1], parts[:-1]
    if names:
        yield _appends(names, parts)


def _appends(names: list[bytes], parts: list[list[bytes]]) -> Entries:
    kinds = np.full(len(names), MERGE, np.uint8)
    values = [b"".join(one) for one in parts]
    return entries_of(pa.array(names, pa.binary()), pa.array(values, pa.binary()), kinds)


def _writes(changelog: Changelog, cf: int, start: bytes, end: bytes | None) -> Entries:
    """Return the writes of a version to one family in a range of keys, in their order."""
    rows = _rows_within(changelog.table, cf, start, end)
    if not rows.num_rows:
        return NO_ENTRIES
    keys, values = rows.column("key"), rows.column("value").fill_null(b"")
    entries = entries_of(keys, values, _KIND_OF_OP[rows.column("op").to_numpy()])
    sorting = key_order(pa.RecordBatch.from_arrays([rows.column("cf"), keys], names=["cf", "key"]))
    return entries if sorting.order is None else chosen(entries, sorting.order)


def _rows_within(table: pa.Table, cf: int, start: bytes, end: bytes | None) -> pa.RecordBatch:
    wanted = pc.equal(table["cf"], pa.scalar(cf, pa.uint16()))
    if start:
        wanted = pc.and_(wanted, pc.greater_equal(table["key"], pa.scalar(start, pa.binary())))
    if end is not None:
        wanted = pc.and_(wanted, pc.less(table["key"], pa.scalar(end, pa.binary())))
    found = table.filter(wanted).combine_chunks()
    batches = found.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _quantiles(
    tables: Sequence[pa.Table], cf: int, start: bytes, end: bytes | None, count: int
) -> list[bytes]:
    """Return ascending keys that divide the writes of a family into some ``count`` parts."""
    sample: list[bytes] = []
    for table in tables:
        keys = _rows_within(table, cf, start, end).column("key")
        places = np.unique(np.linspace(0, max(0, len(keys) - 1), _SAMPLED_ROWS, dtype=np.int64))
        sample += [keys[place].as_py() for place in places.tolist() if len(keys)]
    sample.sort()
    found = {sample[len(sample) * part // count] for part in range(1, count)} if sample else set()
    return sorted(key for key in found if key > start)
