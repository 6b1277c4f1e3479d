"""Stores of Spark's HDFS-backed provider.

Layer: reader.stores.

    <v>.snapshot  := compressed( plain )     ; the rows of version v (``records`` has the grammar)
    <v>.delta     := compressed( plain )     ; what version v changed; the last write of a key wins
    put           := key  value              ; UnsafeRows; with row checksums
                   | key  crc value          ; crc32c of key and value
    delete        := key  | crc key          ; crc32c of the key

Version v is the newest snapshot up to v, and each delta after it up to v; version 0 is empty.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cairn.errors import CorruptError
from cairn.format.ops import OP_PUT
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import DEFAULT_FAMILY, Changes, ReadLimits, StoredFamily
from cairn.reader.stores.checksums import without_checksums
from cairn.reader.stores.files import StoreFiles
from cairn.reader.stores.overlay import LayeredRows, LayeredStore, find
from cairn.reader.stores.records import Records, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.reader.stores.columns import Positions
    from cairn.storage.base import ObjectStore

_NAME = re.compile(r"([0-9]{1,19})\.(snapshot|delta)")
_FAMILY = StoredFamily(0, is_list=False)
_WORD_BYTES = 8


class HdfsRows(LayeredStore):
    """The rows of one store at one version. Not thread-safe.

    The snapshot has no index: ``get`` reads it whole.
    """

    families: Mapping[str, StoredFamily] = {DEFAULT_FAMILY: _FAMILY}

    def __init__(
        self,
        objects: ObjectStore,
        folder: str,
        version: int,
        *,
        has_row_checksums: bool = False,
        limits: ReadLimits | None = None,
    ) -> None:
        """Find the files of a version; their rows are read later.

        Args:
            objects: where the checkpoint is.
            folder: the store's folder, relative to the root of ``objects``.
            version: the state version.
            has_row_checksums: what the query's configuration says.
            limits: of memory and objects.

        Raises:
            MissingError: the version is not there, or a delta is missing between it and the newest
                snapshot before it.
        """
        self._limits = limits or ReadLimits()
        self._has_row_checksums = has_row_checksums
        self._files = StoreFiles(objects, folder)
        self._version = version
        self._snapshot, self._deltas = choose_files(self._files, version)
        self.layers = LayeredRows(self._base_rows, self._base_get, self._changes, self._limits)

    def _base_rows(self, family: int) -> Iterator[StoredRows]:  # noqa: ARG002 - there is only one
        """Yield the rows of the snapshot."""
        if self._snapshot is None:
            return
        for records in self._records(self._snapshot):
            if (records.ops != OP_PUT).any():
                raise CorruptError(
                    "a snapshot has deletes", object_name=self._files.url(self._snapshot)
                )
            yield StoredRows(records.keys(), records.values())

    def _base_get(self, family: int, key: bytes) -> bytes | None:
        """Return the value that a key has in the snapshot, or ``None``."""
        return find(self._base_rows(family), key)

    def writes(self, family: str) -> Iterator[Changes]:  # noqa: ARG002 - there is only one
        """Yield the writes of the version; see ``StoreRows``."""
        delta = f"{self._version}.delta"
        if delta not in self._files:
            raise self._files.missing(delta, version=self._version)
        return self._changes_in([delta])

    def _changes(self) -> Iterator[Changes]:
        return self._changes_in(self._deltas)

    def _changes_in(self, deltas: Sequence[str]) -> Iterator[Changes]:
        for delta in deltas:
            for records in self._records(delta):
                yield Changes(_FAMILY.family_id, records.ops, records.keys(), records.values())

    def _records(self, name: str) -> Iterator[Records]:
        chunks = self._files.content(name)
        with self._files.naming(name):
            for records in read_records(
                chunks, is_tagged=False, record_bytes=self._limits.row_bytes
            ):
                if self._has_row_checksums:
                    every = np.ones(len(records.ops), np.bool_)
                    yield _whole_words(without_checksums(records, every))
                else:
                    yield _whole_words(records)


def choose_files(files: StoreFiles, version: int) -> tuple[str | None, list[str]]:
    """Return the newest snapshot up to ``version``, and the deltas after it."""
    base = 0
    for name in files:
        match = _NAME.fullmatch(name)
        # Spark writes no leading zeros: such a name is of something else.
        if match and match[2] == "snapshot" and str(int(match[1])) == match[1]:
            base = max(base, int(match[1]) if int(match[1]) <= version else 0)
    deltas: list[str] = []
    for one in range(base + 1, version + 1):
        deltas.append(f"{one}.delta")
        if deltas[-1] not in files:
            raise files.missing(deltas[-1], version=version)
    return f"{base}.snapshot" if base else None, deltas


def _whole_words(records: Records) -> Records:
    """Cut keys and values to whole words: session windows of old versions added bytes to them."""

    def cut(starts: Positions, ends: Positions) -> Positions:
        return starts + (ends - starts) // _WORD_BYTES * _WORD_BYTES

    return replace(
        records,
        key_ends=cut(records.key_starts, records.key_ends),
        value_ends=cut(records.value_starts, records.value_ends),
    )
