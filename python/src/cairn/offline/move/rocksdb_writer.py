"""RocksDbWriter: one version of a store of Spark's RocksDB provider.

Layer: offline.move.  Grammar: ``cairn.reader.stores.rocksdb`` and ``snapshot_zip``, which read it.

    <version>[_<id>].zip             from which Spark loads the version without any changelog
    <version>[_<id>].zip.crc         checksum of its bytes, in checkpoint format 2
    SSTs/<name in the zip>-<uuid>.sst    each of one snapshot

The zip is stored last. Rows come in any order: some are sorted in memory, as a run of the database.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

import numpy as np
import pyarrow as pa

from cairn.checkpoint.transfers import UPLOAD_THREADS
from cairn.checksum import crc32c, crc32c_file
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import InternalError
from cairn.offline.move.row_checksums import joined
from cairn.offline.move.sorted_rows import in_key_order
from cairn.offline.move.stored_values import stored_values
from cairn.offline.move.target import Written, make_room
from cairn.reader.spark.logs import ROW_CHECKSUM, TABLE_FORMAT
from cairn.reader.stores.base import DEFAULT_FAMILY
from cairn.reader.stores.columns import byte_count, concatenated
from cairn.reader.stores.values import ValueForm
from cairn.rocks import SparkDatabase
from cairn.storage.files import translate_os_error

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.clock import Clock, Entropy
    from cairn.offline.move.target import TargetStore
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.stores.columns import Column
    from cairn.storage.base import ObjectStore

RUN_BYTES = 64 << 20
"""What is sorted in memory at a time, which takes some four times as much."""
_FAMILY_BYTES = 2
_UUID_BYTES = 16
_BINARY = pa.binary()
_COUNTS_ROWS = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"


class RocksDbWriter:
    """See the module and ``StateWriter``.

    Args:
        objects: at the checkpoint's location.
        target: what is written.
        folder: a folder of this writer alone; created, and deleted by ``close``.
        clock: says when a checksum was made.
        entropy: names files and the attempt.

    Raises:
        DiskFullError: the local disk is full.
    """

    def __init__(
        self,
        objects: ObjectStore,
        target: TargetStore,
        folder: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        if any(family.form.is_bare for family in target.families):
            raise InternalError("rows of Spark's RocksDB have a version")
        self._objects = objects
        self._target = target
        self._clock = clock
        self._entropy = entropy
        self._delimiter = target.conf.list_delimiter
        has_checksums = target.conf.flag(ROW_CHECKSUM)
        self._forms = {
            family.name: ValueForm(family.form.is_list, has_checksums, self._delimiter)
            for family in target.families
        }
        self._ids = _ids_of(target)
        self._keys: Counter[str] = Counter({family.name: 0 for family in target.families})
        self._rows: list[tuple[Column, Column]] = []
        self._bytes = 0
        self._folder = folder
        try:
            shutil.rmtree(folder, ignore_errors=True)
            self._database = SparkDatabase(folder, target.conf.number(TABLE_FORMAT))
        except OSError as error:
            raise translate_os_error(error, str(folder)) from error

    def add(self, family: str, rows: StoredRows) -> None:
        """Take some rows; see ``StateWriter``."""
        keys = rows.keys
        if self._target.has_families:
            prefix = self._ids[family].to_bytes(_FAMILY_BYTES, "little")
            keys = joined(pa.scalar(prefix, pa.large_binary()), keys)
        values = stored_values(keys, rows.values, self._forms[family])
        self._keys[family] += len(keys)
        self._rows.append((keys, values))
        self._bytes += byte_count(keys) + byte_count(values)
        if self._bytes >= RUN_BYTES:
            self._end_run()

    def finish(self) -> Written:
        """Store the version; see ``StateWriter``."""
        self._end_run()
        # RocksDB itself leaves an empty delimiter out, and takes a comma when it reads that.
        operator = f"{{id=StringAppendOperator;delimiter={self._delimiter.decode()};}}"
        files = self._database.finish(f"merge_operator={operator}")
        try:
            with ThreadPoolExecutor(UPLOAD_THREADS) as threads:
                tables = list(threads.map(self._upload, sorted(files.glob("*.sst"))))
            data = _zipped(files, self._metadata(tables))
        except OSError as error:
            raise translate_os_error(error, str(files)) from error
        name, checkpoint_id = f"{self._target.store.folder}/{self._target.version}", None
        stored_bytes = len(data) + sum(table["sizeBytes"] for table in tables)
        if self._target.checkpoint_format == 1:
            make_room(self._objects, self._target, f"{name}.zip")
        else:
            checkpoint_id = self._new_uuid()
            name = f"{name}_{checkpoint_id}"
            self._objects.put(f"{name}.zip.crc", self._checksum_of(data))
        self._objects.put(f"{name}.zip", data)
        return Written(checkpoint_id, dict(self._keys), stored_bytes)

    def close(self) -> None:
        """Delete what is on the local disk; idempotent."""
        self._rows = []
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _end_run(self) -> None:
        """Sort the rows in memory and give them to the database."""
        if not any(len(keys) for keys, _ in self._rows):
            return
        keys, values = (
            concatenated([part.cast(_BINARY) for part in parts])
            for parts in zip(*self._rows, strict=True)
        )
        self._rows, self._bytes = [], 0
        one_family = pa.array(np.zeros(len(keys), np.uint8))
        names = ["cf", "key", "value"]
        rows = in_key_order(pa.RecordBatch.from_arrays([one_family, keys, values], names))
        self._database.add(rows.column("key"), rows.column("value"))

    def _upload(self, path: Path) -> dict[str, Any]:
        """Upload an SST file and return its entry in the metadata."""
        name = f"{path.stem}-{self._new_uuid()}.sst"
        key = f"{self._target.store.folder}/SSTs/{name}"
        self._objects.upload(key, path, crc32c=crc32c_file(path))
        size_bytes = path.stat().st_size
        return {"localFileName": path.name, "dfsSstFileName": name, "sizeBytes": size_bytes}

    def _metadata(self, tables: list[dict[str, Any]]) -> bytes:
        families = self._target.families if self._target.has_families else ()
        is_internal = dict.fromkeys(self._ids, False)
        is_internal |= {family.name: family.is_internal for family in families}
        internal = sum(count for name, count in self._keys.items() if is_internal.get(name))
        counts = {"numKeys": self._keys.total() - internal, "numInternalKeys": internal}
        if self._target.conf.entry.conf.get(_COUNTS_ROWS, "true").lower() == "false":
            counts = dict.fromkeys(counts, -1)
        metadata = {
            "sstFiles": tables,
            **counts,
            "columnFamilyMapping": self._ids,
            "columnFamilyTypeMap": is_internal,
            "maxColumnFamilyId": max(self._ids.values(), default=0),
        }
        return b"v1\n" + json.dumps(metadata, separators=(",", ":")).encode()

    def _checksum_of(self, data: bytes) -> bytes:
        value = crc32c(data)
        fields = {
            "algorithm": "CRC32C",
            "value": value - (1 << 32) if value >> 31 else value,
            "mainFileSize": len(data),
            "timestampMs": int(self._clock.now().timestamp() * 1000),
            "creator": {"executorId": "cairn", "taskInfo": ""},
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    def _new_uuid(self) -> str:
        return str(UUID(hex=self._entropy.token(_UUID_BYTES), version=4))


def _ids_of(target: TargetStore) -> dict[str, int]:
    """Return the number of each family: from 1, as Spark creates them; none without families."""
    if not target.has_families:
        return {}
    names = (DEFAULT_FAMILY, *(family.name for family in target.families))
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=1)}


def _zipped(files: Path, metadata: bytes) -> bytes:
    """Return a zip of the small files of a database."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files.iterdir()):
            if path.suffix != ".sst":
                archive.write(path, path.name)
        archive.writestr("metadata", metadata)
    return target.getvalue()
