"""Stores of Spark's RocksDB provider, of both checkpoint formats.

Layer: reader.stores. ``snapshot_zip``, ``changelog``, ``values`` have the grammars.

    <v>.zip  <v>.changelog            ; checkpoint format 1
    <v>_<id>.zip  <v>_<id>.changelog  ; 2: with the id of the attempt
    SSTs/<name>.sst                   ; files of RocksDB, which several snapshots share
    key := i16le family  key          ; in a store with column families

Version v is a snapshot of it, or an older snapshot and each changelog after it up to v. With ids
the changelog's lineage says which: of several attempts at a version, one counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import DEFAULT_FAMILY, Changes, ReadLimits, StoredFamily
from cairn.reader.stores.changelog import Changelog, LineageItem
from cairn.reader.stores.checksums import without_checksums
from cairn.reader.stores.columns import cells, joined, segments
from cairn.reader.stores.files import StoreFiles
from cairn.reader.stores.overlay import LayeredRows, LayeredStore
from cairn.reader.stores.records import OP_DELETE_RANGE, Records, read_records
from cairn.reader.stores.snapshot_zip import ZIP_BYTES_MAX, SstObject, ZippedSnapshot
from cairn.reader.stores.tables import Tables
from cairn.reader.stores.values import ValueForm, plain_values
from cairn.rocks.version_edits import sorted_runs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from cairn.reader.stores.columns import Column, Flags
    from cairn.rocks.version_edits import LiveFile
    from cairn.storage.base import ObjectStore

pc: Any = pyarrow.compute

_NAME = re.compile(r"(0|[1-9][0-9]{0,18})\.zip")
_FAMILY_BYTES = 2
_LARGE = pa.large_binary()


class RocksDbRows(LayeredStore):
    """The rows of one store at one version. Not thread-safe.

    Of the snapshot, ``get`` reads a few blocks.
    """

    def __init__(
        self,
        objects: ObjectStore,
        folder: str,
        version: int,
        *,
        checkpoint_id: str | None = None,
        list_families: Collection[str] = (),
        list_delimiter: bytes = b"",
        has_row_checksums: bool = False,
        limits: ReadLimits | None = None,
    ) -> None:
        """Find the files of a version, and read which families its snapshot has.

        Args:
            objects: where the checkpoint is.
            folder: the store's folder, relative to the root of ``objects``.
            version: the state version.
            checkpoint_id: of the attempt that the commit log names; ``None``: checkpoint format 1.
            list_families: names of the families whose values are lists.
            list_delimiter: between elements: a comma with Spark's merge operator 1, nothing with 2.
            has_row_checksums: what the query's configuration says.
            limits: of memory.

        Raises:
            MissingError: the version is not there, or a file between it and the snapshot before.
            CorruptError: a snapshot or a lineage is damaged.
        """
        self._limits = limits or ReadLimits()
        self._has_row_checksums = has_row_checksums
        self._list_delimiter = list_delimiter
        self._files = StoreFiles(objects, folder)
        self._version = version
        item = None if checkpoint_id is None else LineageItem(version, checkpoint_id)
        self._own_changelog = f"{version}.changelog" if item is None else _changelog_of(item)
        plan = plan_version(self._files, version, checkpoint_id)
        self._snapshot = plan.snapshot
        self._changelogs = plan.changelogs
        snapshot = None
        if plan.snapshot is not None:
            data = self._files.get(plan.snapshot, max_bytes=ZIP_BYTES_MAX)
            with self._files.naming(plan.snapshot):
                snapshot = ZippedSnapshot.parse(data, list_families)
        self._has_families = bool(snapshot and snapshot.families)
        self.families: Mapping[str, StoredFamily] = (
            snapshot.families
            if snapshot and snapshot.families
            else {DEFAULT_FAMILY: StoredFamily(0, is_list=DEFAULT_FAMILY in list_families)}
        )
        self._by_id = {family.family_id: family for family in self.families.values()}
        self._tables = self._open_tables(snapshot)
        self.layers = LayeredRows(self._base_rows, self._base_get, self._changes, self._limits)

    def _open_tables(self, snapshot: ZippedSnapshot | None) -> Tables:
        if snapshot is None or self._snapshot is None:
            return Tables([], _no_file)
        url = self._files.url(self._snapshot)

        def open_file(file: LiveFile) -> _SstFile:
            stored = snapshot.ssts.get(file.name)
            if stored is None:
                raise CorruptError(
                    f"the snapshot's metadata lack the file {file.name} of its MANIFEST",
                    object_name=url,
                )
            return _SstFile(self._files, stored)

        return Tables(sorted_runs(snapshot.manifest, url), open_file)

    def _prefix(self, family: int) -> bytes:
        return family.to_bytes(_FAMILY_BYTES, "little") if self._has_families else b""

    def _form(self, family: int) -> ValueForm:
        is_list = bool(self._by_id[family].is_list)
        return ValueForm(is_list, self._has_row_checksums, self._list_delimiter)

    def _base_rows(self, family: int) -> Iterator[StoredRows]:
        if self._snapshot is None:
            return
        prefix, form = self._prefix(family), self._form(family)
        with self._files.naming(self._snapshot):
            for batch in self._tables.scan(prefix, _after(prefix)):
                if not batch.num_rows:
                    continue
                keys = batch.column("key").cast(_LARGE)
                values = _joined_values(keys, batch, form)
                yield StoredRows(_from(keys, len(prefix)), values)

    def _base_get(self, family: int, key: bytes) -> bytes | None:
        stored_key = self._prefix(family) + key
        entry = self._tables.get(stored_key)
        if entry is None or self._snapshot is None:
            return None
        parts = [part for part in (entry.value, *entry.operands) if part is not None]
        keys, values = pa.array([stored_key] * len(parts), _LARGE), pa.array(parts, _LARGE)
        with self._files.naming(self._snapshot):
            if entry.operands:
                _check_list(self._form(family))
            plain: list[Any] = plain_values(keys, values, self._form(family)).to_pylist()
        return b"".join(plain)

    def writes(self, family: str) -> Iterator[Changes]:
        """Yield the writes of the version; see ``StoreRows``."""
        if self._own_changelog not in self._files:
            raise self._files.missing(self._own_changelog, version=self._version)
        number = self.families[family].family_id
        changes = self._changes_in([self._own_changelog])
        return (one for one in changes if one.family == number)

    def _changes(self) -> Iterator[Changes]:
        return self._changes_in(self._changelogs)

    def _changes_in(self, changelogs: Sequence[str]) -> Iterator[Changes]:
        for name in changelogs:
            with self._files.naming(name):
                changelog = Changelog.open(self._files.content(name))
                if changelog.is_tagged != self._has_families:
                    raise CorruptError(
                        "the changelog and the snapshot before it disagree about column families"
                        if self._snapshot
                        else "no snapshot before the changelog names its column families"
                    )
                for records in read_records(
                    changelog.records,
                    is_tagged=changelog.is_tagged,
                    record_bytes=self._limits.row_bytes,
                ):
                    yield from self._changes_of(records)

    def _changes_of(self, records: Records) -> Iterator[Changes]:
        if self._has_row_checksums:
            records = without_checksums(records, records.ops == OP_DELETE)
        if not self._has_families:
            yield self._family_changes(0, records)
            return
        if (records.key_ends - records.key_starts < _FAMILY_BYTES).any():
            raise CorruptError("a key is too short for the id of its column family")
        data = np.frombuffer(records.data, np.uint8)
        ids = data[records.key_starts].astype(np.int64) | (
            data[records.key_starts + 1].astype(np.int64) << 8
        )
        for family in np.unique(ids).tolist():
            if family not in self._by_id:
                raise CorruptError(f"a key has the unknown column family {family}")
            yield self._family_changes(family, records.where(ids == family))

    def _family_changes(self, family: int, records: Records) -> Changes:
        keys, values, ops = records.keys(), records.values(), records.ops
        form = self._form(family)
        if (ops == OP_APPEND).any():
            _check_list(form)
        values = _plain_where((ops != OP_DELETE) & (ops != OP_DELETE_RANGE), keys, values, form)
        prefix = self._prefix(family)
        is_range = ops == OP_DELETE_RANGE
        if is_range.any():
            # The end of a range is the key of a row, with its checksum.
            values = _plain_where(is_range, keys, values, replace(form, is_list=False))
            values = _without_prefix_where(is_range, values, prefix)
        return Changes(family, ops, _from(keys, len(prefix)), values)


@dataclass(frozen=True, slots=True)
class _SstFile:
    """An SST file in the store's folder, for ``Tables``."""

    files: StoreFiles
    stored: SstObject

    @property
    def name(self) -> str:
        return self.files.url(f"SSTs/{self.stored.name}")

    @property
    def size_bytes(self) -> int:
        return self.stored.size_bytes

    def read(self, offset: int, length: int) -> bytes:
        return self.files.get_range(f"SSTs/{self.stored.name}", offset, length)


def _no_file(file: LiveFile) -> _SstFile:
    raise CorruptError(f"a store without a snapshot has the file {file.name}")


@dataclass(frozen=True, slots=True)
class VersionPlan:
    """The files of a version: its base, and the changelogs above it in order."""

    snapshot: str | None
    changelogs: list[str]


def plan_version(files: StoreFiles, version: int, checkpoint_id: str | None) -> VersionPlan:
    """Choose the files of a version.

    Raises:
        MissingError: one of them does not exist.
    """
    if not version:
        return VersionPlan(None, [])
    if checkpoint_id is not None:
        return _plan_by_lineage(files, LineageItem(version, checkpoint_id))
    numbers = (int(match[1]) for match in map(_NAME.fullmatch, files) if match)
    base = max((number for number in numbers if number <= version), default=0)
    changelogs: list[str] = []
    for one in range(base + 1, version + 1):
        changelogs.append(f"{one}.changelog")
        if changelogs[-1] not in files:
            raise files.missing(changelogs[-1], version=version)
    # Spark makes no snapshot of version 0.
    return VersionPlan(f"{base}.zip" if base else None, changelogs)


def _plan_by_lineage(files: StoreFiles, newest: LineageItem) -> VersionPlan:
    """Follow lineages until one has a version with a snapshot, or begins with version 1.

    A changelog has the versions since the snapshot that its writer knew. That snapshot may never
    have been stored: then the oldest of these versions says what was before it.
    """
    chain = [newest]
    while True:
        for place in range(len(chain) - 1, -1, -1):
            if _zip_of(chain[place]) in files:
                later = [_changelog_of(item) for item in chain[place + 1 :]]
                return _checked(files, VersionPlan(_zip_of(chain[place]), later), newest.version)
        oldest = chain[0]
        if oldest.version == 1:
            plan = VersionPlan(None, [_changelog_of(item) for item in chain])
            return _checked(files, plan, newest.version)
        name = _changelog_of(oldest)
        if name not in files:
            raise files.missing(name, version=newest.version)
        before = _lineage_of(files, name)
        if not before or before[-1].version != oldest.version - 1:
            raise CorruptError(
                "the changelog's lineage does not end before its version",
                object_name=files.url(name),
            )
        chain = [*before, *chain]


def _checked(files: StoreFiles, plan: VersionPlan, version: int) -> VersionPlan:
    for name in plan.changelogs:
        if name not in files:
            raise files.missing(name, version=version)
    return plan


def _lineage_of(files: StoreFiles, name: str) -> tuple[LineageItem, ...]:
    with files.naming(name):
        return Changelog.open(files.start(name)).lineage


def _zip_of(item: LineageItem) -> str:
    return f"{item.version}_{item.checkpoint_id}.zip"


def _changelog_of(item: LineageItem) -> str:
    return f"{item.version}_{item.checkpoint_id}.changelog"


def _after(prefix: bytes) -> bytes | None:
    """Return the first key above all keys with a prefix; ``None``: there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _from(rows: Column, start: int) -> Column:
    """Return the rows without their first bytes."""
    if not start:
        return rows
    data, offsets = cells(rows)
    return segments(data, offsets[:-1] + start, offsets[1:])


def _check_list(form: ValueForm) -> None:
    if not form.is_list:
        raise CorruptError("a key has merge operands, but its column family has no lists")


def _plain_where(flags: Flags, keys: Column, values: Column, form: ValueForm) -> Column:
    """Return ``plain_values`` of some rows, and the values of the others as they are."""
    if flags.all() or form.is_plain:
        return plain_values(keys, values, form)
    mask = pa.array(flags)
    return _replaced(values, flags, plain_values(keys.filter(mask), values.filter(mask), form))


def _replaced(values: Column, flags: Flags, others: Column) -> Column:
    """Return the values with ``others`` in the flagged places."""
    both = pa.concat_arrays([values, others])
    places = np.arange(len(values))
    places[flags] = len(values) + np.arange(len(others))
    return both.take(places)


def _without_prefix_where(flags: Flags, values: Column, prefix: bytes) -> Column:
    ends = values.filter(pa.array(flags))
    if not pc.all(pc.starts_with(ends, prefix)).as_py():
        raise UnsupportedStateError(
            "the changelog deletes a range that goes beyond its column family",
            next_step="read it with Spark's statestore source",
        )
    return _replaced(values, flags, _from(ends, len(prefix)))


def _joined_values(keys: Column, batch: pa.RecordBatch, form: ValueForm) -> Column:
    """Return the values of a batch of ``Tables``, with their operands at their ends."""
    values, operands = batch.column("value").cast(_LARGE), batch.column("operands")
    if operands.null_count == len(operands):
        return plain_values(keys, values, form)
    _check_list(form)
    has_value = pc.is_valid(values)
    owners = np.concatenate(
        [
            np.flatnonzero(has_value.to_numpy(zero_copy_only=False)),
            pc.list_parent_indices(operands).to_numpy(),
        ]
    )
    parts = pa.concat_arrays([values.filter(has_value), pc.list_flatten(operands).cast(_LARGE)])
    plain = plain_values(keys.take(owners), parts, form)
    # Stable: of each key the value first, then the operands, the oldest first.
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    return joined(plain.take(order), starts)
