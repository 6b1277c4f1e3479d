"""HdfsWriter: one version of a store of Spark's HDFS-backed provider.

Layer: offline.move.  Grammar: ``cairn.reader.stores.hdfs``, which reads it.

It is stored as ``<version>.snapshot``, from which Spark loads the version without any delta.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from cairn.errors import UnsupportedStateError
from cairn.offline.move.block_streams import CompressedFile, codec_of_conf
from cairn.offline.move.row_checksums import joined, lengths, numbers, row_checksums
from cairn.offline.move.target import Written, make_room
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import ROW_CHECKSUM
from cairn.reader.stores.columns import cells
from cairn.storage.files import translate_os_error

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.offline.move.target import TargetStore
    from cairn.storage.base import ObjectStore

_END = (-1).to_bytes(4, "big", signed=True)
_LENGTH_BYTES = 4


class HdfsWriter:
    """See the module and ``StateWriter``.

    Args:
        objects: at the checkpoint's location.
        target: what is written.
        folder: a folder of this writer alone; created, and deleted by ``close``.

    Raises:
        UnsupportedStateError: the provider has no such store.
        DiskFullError: the local disk is full.
    """

    def __init__(self, objects: ObjectStore, target: TargetStore, folder: Path) -> None:
        _check(target)
        self._objects = objects
        self._target = target
        self._key = f"{target.store.folder}/{target.version}.snapshot"
        self._family = target.families[0].name
        self._has_checksums = target.conf.flag(ROW_CHECKSUM)
        self._keys = 0
        self._folder = folder
        self._path = folder / "snapshot"
        codec = codec_of_conf(target.conf)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = CompressedFile(self._path, codec)
        except OSError as error:
            raise translate_os_error(error, str(folder)) from error

    def add(self, family: str, rows: StoredRows) -> None:  # noqa: ARG002 - there is only one
        """Take some rows; see ``StateWriter``."""
        if not len(rows.keys):
            return
        if self._has_checksums:
            checksums = row_checksums(rows.keys, rows.values)
            rows = StoredRows(rows.keys, joined(checksums, rows.values))
        self._write(_records(rows))
        self._keys += len(rows.keys)

    def finish(self) -> Written:
        """Store the version; see ``StateWriter``."""
        self._write(_END)
        try:
            self._file.finish()
        except OSError as error:
            raise translate_os_error(error, str(self._path)) from error
        make_room(self._objects, self._target, self._key)
        self._objects.upload(self._key, self._path, crc32c=self._file.crc32c)
        return Written(None, {self._family: self._keys}, self._file.size_bytes)

    def close(self) -> None:
        """Delete what is on the local disk; idempotent."""
        self._file.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _write(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise translate_os_error(error, str(self._path)) from error


def _check(target: TargetStore) -> None:
    """Raise an error for a store that the provider cannot have."""
    names = ", ".join(family.name for family in target.families[:5])
    problem = None
    if target.checkpoint_format != 1:
        problem = f"it has no checkpoint format {target.checkpoint_format}"
    elif target.has_families or len(target.families) != 1:
        problem = f"it has no column families, and the store has {names}"
    elif target.families[0].form.is_list:
        problem = "it has no lists"
    elif target.families[0].form.encoding != "unsaferow":
        problem = f"its rows are UnsafeRows, not {target.families[0].form.encoding}"
    elif not target.families[0].form.is_bare:
        problem = "its rows are without a version and the layout of a key encoder"
    if problem:
        raise UnsupportedStateError(
            f"Spark's HDFS-backed provider cannot have this store: {problem}",
            store=str(target.store),
            next_step="choose the provider cairn or rocksdb",
        )


def _records(rows: StoredRows) -> memoryview:
    """Return the records of some rows, at least one."""
    key_sizes, value_sizes = lengths(rows.keys), lengths(rows.values)
    if (key_sizes == key_sizes[0]).all() and (value_sizes == value_sizes[0]).all():
        return _even_records(rows, int(key_sizes[0]), int(value_sizes[0]))
    parts = (numbers(key_sizes, ">i4"), rows.keys, numbers(value_sizes, ">i4"), rows.values)
    data, ends = cells(joined(*parts))
    return data[int(ends[0]) : int(ends[-1])]


def _even_records(rows: StoredRows, key_bytes: int, value_bytes: int) -> memoryview:
    """Return the records of rows that have one size."""
    value_at = 2 * _LENGTH_BYTES + key_bytes
    table = np.empty((len(rows.keys), value_at + value_bytes), np.uint8)
    head = key_bytes.to_bytes(_LENGTH_BYTES, "big")
    table[:, :_LENGTH_BYTES] = np.frombuffer(head, np.uint8)
    table[:, _LENGTH_BYTES : value_at - _LENGTH_BYTES] = _matrix(rows.keys, key_bytes)
    head = value_bytes.to_bytes(_LENGTH_BYTES, "big")
    table[:, value_at - _LENGTH_BYTES : value_at] = np.frombuffer(head, np.uint8)
    table[:, value_at:] = _matrix(rows.values, value_bytes)
    return table.reshape(-1).data


def _matrix(column: pa.Array[Any], width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    data, ends = cells(column)
    body = np.frombuffer(data, np.uint8)[int(ends[0]) : int(ends[-1])]
    return body.reshape(len(column), width)
