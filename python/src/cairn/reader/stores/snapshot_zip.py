r"""Snapshots of Spark's RocksDB provider: the small files of a database, and the others' names.

Layer: reader.stores.

    <version>[_<id>].zip := zip of CURRENT, MANIFEST-<n>, OPTIONS-<n>, empty logs, metadata
    metadata := "v1\n" JSON
    JSON     := { "sstFiles": [ {"localFileName", "dfsSstFileName", "sizeBytes"}, ... ],
                  "columnFamilyMapping": {name: id},           ; since Spark 4.0
                  "columnFamilyTypeMap": {name: is internal},  ; likewise
                  ... }

Write-ahead logs of old versions are not read: Spark flushes before it makes a snapshot.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from cairn.errors import CorruptError, FormatVersionError
from cairn.format.fields import (
    JsonObject,
    as_flag,
    as_int,
    as_list,
    as_object,
    as_text,
    parse_object,
)
from cairn.reader.stores.base import StoredFamily

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

ZIP_BYTES_MAX = 256 << 20
"""Of a zip, and of each file in it. RocksDB's MANIFEST grows while a database is open."""
_METADATA_VERSION = b"v1\n"
_METADATA = "the snapshot's metadata"
_FAMILY_ID_MAX = 2**15 - 1
_CURRENT = re.compile(rb"(MANIFEST-[0-9]{1,20})\n?")
_SST_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,199}")


@dataclass(frozen=True, slots=True)
class SstObject:
    """Where the bytes of one file of the database are.

    Attributes:
        name: of the object; of an SST below ``SSTs/``.
        size_bytes: its length.
    """

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ZippedSnapshot:
    """What a snapshot says about its version.

    Attributes:
        manifest: content of RocksDB's MANIFEST file.
        ssts: the SST files, by their names in the database.
        logs: write-ahead logs, which only an old Spark stored; below ``logs/``.
        families: the column families by name; none if the store does not use them.
    """

    manifest: bytes
    ssts: Mapping[str, SstObject]
    families: Mapping[str, StoredFamily]
    logs: tuple[SstObject, ...] = ()

    @classmethod
    def parse(cls, data: bytes, list_families: Collection[str]) -> Self:
        """Read a zip.

        Raises:
            CorruptError: it is damaged, or lacks something.
            FormatVersionError: its metadata have an unknown version.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                metadata = _member(archive, "metadata")
                current = _CURRENT.fullmatch(_member(archive, "CURRENT"))
                if current is None:
                    raise CorruptError("the snapshot's file CURRENT names no MANIFEST")
                manifest = _member(archive, current[1].decode())
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            raise CorruptError(f"the snapshot is no whole zip file ({error})") from error
        except (NotImplementedError, RuntimeError) as error:
            raise CorruptError(
                f"the snapshot is a zip that Spark does not write ({error})"
            ) from error
        if not metadata.startswith(_METADATA_VERSION):
            raise FormatVersionError(
                f"{_METADATA} have the unknown version {metadata[:16]!r}",
                next_step="use a newer release of Cairn",
            )
        fields = parse_object(metadata[len(_METADATA_VERSION) :], _METADATA)
        families = _families(fields, list_families)
        return cls(manifest, _ssts(fields), families, _logs(fields))


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise CorruptError(f"the snapshot has no file {name}") from None
    # zipfile reads no more than this.
    if info.file_size > ZIP_BYTES_MAX:
        raise CorruptError(f"the snapshot's file {name} has {info.file_size} bytes")
    return archive.read(info)


def _ssts(fields: JsonObject) -> dict[str, SstObject]:
    ssts: dict[str, SstObject] = {}
    for item in as_list(fields.get("sstFiles"), f"the list of files in {_METADATA}"):
        file = as_object(item, f"a file in {_METADATA}")
        local = as_text(file.get("localFileName"), f"a local name in {_METADATA}")
        name = as_text(file.get("dfsSstFileName"), f"a stored name in {_METADATA}")
        if not _SST_NAME.fullmatch(name):
            raise CorruptError(f"{_METADATA} name the file {name[:80]!r}")
        ssts[local] = SstObject(name, as_int(file.get("sizeBytes"), f"a size in {_METADATA}"))
    return ssts


def _logs(fields: JsonObject) -> tuple[SstObject, ...]:
    logs: list[SstObject] = []
    for item in as_list(fields.get("logFiles", []), f"the list of logs in {_METADATA}"):
        file = as_object(item, f"a log in {_METADATA}")
        name = as_text(file.get("dfsLogFileName"), f"a stored name in {_METADATA}")
        if not _SST_NAME.fullmatch(name):
            raise CorruptError(f"{_METADATA} name the file {name[:80]!r}")
        logs.append(SstObject(name, as_int(file.get("sizeBytes"), f"a size in {_METADATA}")))
    return tuple(logs)


def _families(fields: JsonObject, list_families: Collection[str]) -> dict[str, StoredFamily]:
    types = as_object(fields.get("columnFamilyTypeMap", {}), f"the types in {_METADATA}")
    families: dict[str, StoredFamily] = {}
    what = f"the column families in {_METADATA}"
    for name, number in as_object(fields.get("columnFamilyMapping", {}), what).items():
        families[name] = StoredFamily(
            as_int(number, f"the id of a column family in {_METADATA}", most=_FAMILY_ID_MAX),
            is_list=name in list_families,
            is_internal=as_flag(types.get(name, False), f"a type in {_METADATA}"),
        )
    if len({family.family_id for family in families.values()}) != len(families):
        raise CorruptError(f"{_METADATA} have two column families with one id")
    return families
