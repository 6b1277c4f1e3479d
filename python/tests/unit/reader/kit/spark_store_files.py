"""Writes the files of Spark's state store providers, for tests: small, plain, and as documented."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from rocksdict import Checkpoint, Options, Rdict, WriteOptions

from cairn.checksum import crc32c
from cairn.reader.stores.base import StoreRows
from cairn.storage.base import ObjectStore

Op = Literal["put", "append", "delete", "delete range"]
Change = tuple[Op, bytes, bytes]
"""A delete has no value, the value of a range is its end."""

_TAGS: Mapping[Op, int] = {"put": 0x01, "append": 0x11, "delete": 0x10, "delete range": 0x20}
_NOTHING = struct.pack(">i", -1)


def row(number: int, words: int = 2) -> bytes:
    """Return bytes of the length of an UnsafeRow."""
    return struct.pack("<qq", 0, number)[: 8 * words].ljust(8 * words, b"\x01")


def sized(data: bytes) -> bytes:
    """Return the bytes behind their length."""
    return struct.pack(">i", len(data)) + data


def plain(changes: Iterable[Change]) -> bytes:
    """Return the records of a delta, a snapshot, or a changelog without column families."""
    body = b""
    for op, key, value in changes:
        assert op in {"put", "delete"}
        body += sized(key) + (sized(value) if op == "put" else _NOTHING)
    return body + _NOTHING


def tagged(changes: Iterable[Change]) -> bytes:
    """Return the records of a changelog of a store with column families."""
    body = b""
    for op, key, value in changes:
        body += bytes([_TAGS[op]]) + sized(key) + (_NOTHING if op == "delete" else sized(value))
    return body + b"\0"


def text(data: str) -> bytes:
    """Return a text behind its length."""
    return struct.pack(">H", len(data.encode())) + data.encode()


def lineage(items: Iterable[tuple[int, str]]) -> bytes:
    """Return the lineage in the header of a changelog."""
    return text(json.dumps([{"version": v, "checkpointUniqueId": one} for v, one in items]))


def compressed(data: bytes) -> bytes:
    """Return the content of a file as it is stored."""
    return pa.Codec("zstd").compress(data, asbytes=True)


def element(data: bytes) -> bytes:
    """Return one element of a list."""
    return struct.pack("<i", len(data)) + data


def short_checksum(key: bytes, value: bytes | None = None) -> bytes:
    """Return a value, or the key of a delete, behind its row checksum."""
    data = key if value is None else value
    return struct.pack("<I", crc32c(b"" if value is None else value, crc32c(key))) + data


def long_checksum(key: bytes, value: bytes) -> bytes:
    """Return a value behind its row checksum and its length."""
    return struct.pack("<Ii", crc32c(value, crc32c(key)), len(value)) + value


def put_file_checksum(objects: ObjectStore, key: str, **changed: object) -> None:
    """Store the checksum of a file beside it, as Spark does; ``changed`` replaces fields."""
    data = objects.get(key).data
    checksum = crc32c(data)
    fields = {
        "algorithm": "CRC32C",
        "value": checksum - (1 << 32) if checksum >> 31 else checksum,
        "mainFileSize": len(data),
    }
    objects.put(f"{key}.crc", json.dumps(fields | changed).encode())


class RocksSnapshots:
    """Writes snapshots of one store.

    Args:
        objects: where the store is.
        folder: the store's folder.
        work: a local folder.
    """

    def __init__(self, objects: ObjectStore, folder: str, work: Path) -> None:
        self._objects = objects
        self._folder = folder
        self._work = work
        self._count = 0

    def put(
        self,
        name: str,
        rows: Mapping[bytes, bytes],
        families: Mapping[str, int] | None = None,
        **changed: object,
    ) -> None:
        """Store a snapshot.

        Args:
            name: of the zip.
            rows: of the database, with the prefixes of families.
            families: their ids by name.
            changed: fields of the metadata, or content of files, instead of the right ones.
        """
        self._count += 1
        database = self._work / f"db{self._count}"
        files = _database_files(database, rows)
        ssts = {one: f"{Path(name).stem}-{one}" for one in files if one.endswith(".sst")}
        for one, stored in ssts.items():
            self._objects.put(f"{self._folder}/SSTs/{stored}", files[one])
        metadata: dict[str, object] = {
            "sstFiles": [
                {
                    "localFileName": one,
                    "dfsSstFileName": stored,
                    "sizeBytes": len(files[one]),
                }
                for one, stored in ssts.items()
            ],
            "numKeys": len(rows),
        }
        if families is not None:
            internal = {one: one.startswith("$") for one in families}
            metadata |= {"columnFamilyMapping": families, "columnFamilyTypeMap": internal}
        metadata |= {field: value for field, value in changed.items() if field in metadata}
        members = {one: data for one, data in files.items() if not one.endswith(".sst")}
        members["metadata"] = b"v1\n" + json.dumps(metadata).encode()
        self._objects.put(f"{self._folder}/{name}", zipped(members))


def zipped(members: Mapping[str, bytes]) -> bytes:
    """Return a zip of files."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


def _database_files(folder: Path, rows: Mapping[bytes, bytes]) -> dict[str, bytes]:
    database = Rdict(str(folder), Options(raw_mode=True))
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign,assignment] # a property; the .pyi errs
    try:
        for key, value in rows.items():
            database.put(key, value, write_opt=options)
        database.flush()
        copy = folder.with_name(f"{folder.name}-copy")
        checkpoint: Any = Checkpoint(database)
        checkpoint.create_checkpoint(str(copy))
    finally:
        database.close()
    ours = {"rocksdict-config.json", "LOCK", "IDENTITY"}
    return {one.name: one.read_bytes() for one in copy.iterdir() if one.name not in ours}


def rows_of(store: StoreRows, family: str = "default") -> dict[bytes, bytes]:
    """Return the rows of a family; each key must come once."""
    rows: dict[bytes, bytes] = {}
    for batch in store.rows(family):
        keys: list[Any] = batch.keys.to_pylist()
        for key, value in zip(keys, batch.values.to_pylist(), strict=True):
            assert key not in rows
            rows[key] = value or b""
    return rows
