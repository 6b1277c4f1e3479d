"""Manifest: the object that completes a snapshot.

Layer: format (bytes only; ``checkpoint.upload`` stores it).
Spec: docs/checkpoint-format.md#manifest.

A JSON object with a CRC32C of itself: of the JSON without that field, keys sorted, separators ``,``
and ``:``, no other white space, UTF-8, non-ASCII characters not escaped.
"""

from __future__ import annotations

import base64
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cairn.checksum import crc32c
from cairn.errors import (
    CairnError,
    ConfigError,
    CorruptError,
    ForeignObjectError,
    FormatVersionError,
)
from cairn.format.fields import (
    JsonObject,
    as_int,
    as_list,
    as_object,
    as_text,
    dump_object,
    parse_object,
)
from cairn.format.header import (
    COLUMN_FAMILY_ID_MAX,
    Base,
    ColumnFamily,
    counts_from_json,
    counts_to_json,
    families_from_json,
    ref_from_json,
    store_from_json,
    version_ref,
)
from cairn.format.names import is_sst_name
from cairn.ids import CheckpointId, StoreId, VersionRef

if TYPE_CHECKING:
    from collections.abc import Mapping

_FORMAT_VERSION = 1
MAX_SMALL_BYTES = 1 << 20
"""A larger MANIFEST of RocksDB, which has two keys of each SST, is stored as a file."""
MAX_OBJECT_BYTES = 64 << 20
"""A partition of 500 GB in files of 16 MiB, with ten to twenty manifests retained: 24 to 36 MiB."""

_MAGIC = "CAIRN-MANIFEST"
_CRC_MAX = 2**32 - 1
_LOCAL_FILE = re.compile(r"[0-9]{6,20}\.sst|MANIFEST-[0-9]{6,20}")
_LOCAL_SMALL = re.compile(r"CURRENT|(?:MANIFEST|OPTIONS)-[0-9]{6,20}")
_RESTORE = "restore the object from the bucket's versions, or load a version with another base"


@dataclass(frozen=True, slots=True)
class SstFile:
    """A file of a snapshot that is an object of its own: an SST, or RocksDB's MANIFEST.

    Attributes:
        object_name: ``sst/<hex32>.sst``.
        local_name: RocksDB's name for it in this snapshot, ``000012.sst``.
        size_bytes: size of the whole file.
        crc32c: checksum of the whole file.
    """

    object_name: str
    local_name: str
    size_bytes: int
    crc32c: int

    @property
    def is_sst(self) -> bool:
        """Whether later snapshots may have the same file; RocksDB goes on to write its MANIFEST."""
        return self.local_name.endswith(".sst")


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A small file of RocksDB, stored in the manifest: CURRENT, its MANIFEST, OPTIONS."""

    local_name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ChangelogRef:
    """A changelog and the base that its header names."""

    ref: VersionRef
    base: Base


@dataclass(frozen=True, slots=True)
class Retained:
    """An earlier manifest that still exists, and the objects that it names."""

    ref: VersionRef
    objects: tuple[str, ...]
    changelogs: tuple[ChangelogRef, ...]


@dataclass(frozen=True, slots=True)
class Garbage:
    """An SST that no retained manifest names any more.

    ``dropped_at_ms``: when the last manifest that named it was deleted, by the storage's clock.
    """

    object_name: str
    dropped_at_ms: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A snapshot of ``ref``; the fields are those of the specification's table."""

    store: StoreId
    ref: VersionRef
    counts: Mapping[int, int]
    column_families: tuple[ColumnFamily, ...]
    max_cf_id: int
    written_at_ms: int
    writer_run_id: str
    writer_instance: str
    engine: Mapping[str, object]
    files: tuple[SstFile, ...]
    small_files: tuple[SmallFile, ...]
    changelogs: tuple[ChangelogRef, ...]
    retained: tuple[Retained, ...]
    garbage: tuple[Garbage, ...]
    swept_at_ms: int = 0

    def as_retained(self) -> Retained:
        """Return the entry for this manifest in a later one."""
        objects = tuple(file.object_name for file in self.files)
        return Retained(self.ref, objects, self.changelogs)


def encode(manifest: Manifest) -> bytes:
    """Return the object's bytes, the same for equal manifests.

    Raises:
        ConfigError: they are over the limit: no reader would load them.
    """
    fields: dict[str, object] = {
        "magic": _MAGIC,
        "format": _FORMAT_VERSION,
        "store": asdict(manifest.store),
        "version": manifest.ref.version,
        "checkpoint_id": manifest.ref.checkpoint_id,
        "counts": counts_to_json(manifest.counts),
        "column_families": [family.to_json() for family in manifest.column_families],
        "max_cf_id": manifest.max_cf_id,
        "written_at_ms": manifest.written_at_ms,
        "writer": {"run_id": manifest.writer_run_id, "instance": manifest.writer_instance},
        "engine": manifest.engine,
        "files": [
            {
                "object": file.object_name,
                "local_name": file.local_name,
                "size_bytes": file.size_bytes,
                "crc32c": file.crc32c,
            }
            for file in manifest.files
        ],
        "small_files": [
            {
                "local_name": file.local_name,
                "base64": base64.b64encode(file.content).decode("ascii"),
                "crc32c": crc32c(file.content),
            }
            for file in manifest.small_files
        ],
        "changelogs": _changelogs_to_json(manifest.changelogs),
        "retained": [
            {
                "version": entry.ref.version,
                "checkpoint_id": entry.ref.checkpoint_id,
                "objects": list(entry.objects),
                "changelogs": _changelogs_to_json(entry.changelogs),
            }
            for entry in manifest.retained
        ],
        "garbage": [[entry.object_name, entry.dropped_at_ms] for entry in manifest.garbage],
    }
    if manifest.swept_at_ms:
        fields["swept_at_ms"] = manifest.swept_at_ms
    fields["crc32c"] = crc32c(dump_object(fields).encode())
    data = dump_object(fields).encode()
    if len(data) > MAX_OBJECT_BYTES:
        raise ConfigError(
            f"the manifest of a snapshot has {len(data)} bytes, over the limit of "
            f"{MAX_OBJECT_BYTES}: too many files for the snapshots that are retained",
            next_step="lower spark.sql.streaming.minBatchesToRetain, or start the query with a new "
            "checkpoint and more partitions",
        )
    return data


def decode(
    data: bytes,
    *,
    object_name: str,
    store: StoreId | None = None,
    ref: VersionRef | None = None,
) -> Manifest:
    """Return the manifest; unknown fields are ignored.

    Args:
        data: the whole object.
        object_name: name of the object in errors.
        store: the expected store; ``None`` accepts any.
        ref: the expected version; ``None`` accepts any.

    Raises:
        CorruptError: bytes contradict checksum or grammar, or the version is another one.
        FormatVersionError: a newer format.
        ForeignObjectError: not a manifest of Cairn, or another store's.
    """
    try:
        manifest = _decode(data)
        if store is not None and manifest.store != store:
            raise ForeignObjectError(f"it belongs to store {manifest.store}")
        if ref is not None and manifest.ref != ref:
            raise CorruptError(f"it holds {manifest.ref}")
    except CairnError as error:
        error.with_context(
            store=None if store is None else str(store),
            version=None if ref is None else ref.version,
            object_name=object_name,
            next_step=_RESTORE,
        )
        raise
    return manifest


def _decode(data: bytes) -> Manifest:
    if data and _MAGIC.encode() not in data and not data.startswith(b"{"):
        raise ForeignObjectError("not a manifest of Cairn")
    fields = dict(parse_object(data, "manifest"))
    checksum = fields.pop("crc32c", None)
    try:
        spelled = dump_object(fields).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptError("the manifest has values that JSON does not allow") from error
    if checksum != crc32c(spelled):
        if _MAGIC.encode() not in data:
            raise ForeignObjectError("not a manifest of Cairn")
        raise CorruptError("its content differs from its checksum")
    if fields.get("magic") != _MAGIC:
        raise ForeignObjectError("not a manifest of Cairn")
    if fields.get("format") != _FORMAT_VERSION:
        raise FormatVersionError(
            f"manifest format {fields.get('format')!r} is not {_FORMAT_VERSION}",
            next_step="use a release of Cairn that is as new as the one that wrote it",
        )
    return _from_fields(fields)


def _from_fields(fields: JsonObject) -> Manifest:
    writer = as_object(fields.get("writer"), "writer")
    manifest = Manifest(
        store=store_from_json(fields.get("store")),
        ref=ref_from_json(fields, least=0),
        counts=counts_from_json(fields.get("counts")),
        column_families=families_from_json(fields.get("column_families")),
        max_cf_id=as_int(fields.get("max_cf_id"), "max_cf_id", most=COLUMN_FAMILY_ID_MAX),
        written_at_ms=as_int(fields.get("written_at_ms"), "written_at_ms"),
        writer_run_id=as_text(writer.get("run_id"), "run_id"),
        writer_instance=as_text(writer.get("instance"), "instance"),
        engine=as_object(fields.get("engine"), "engine"),
        files=tuple(_sst_file(item) for item in as_list(fields.get("files"), "files")),
        small_files=tuple(
            _small_file(item) for item in as_list(fields.get("small_files"), "small_files")
        ),
        changelogs=_changelogs_from_json(fields.get("changelogs")),
        retained=tuple(_retained(item) for item in as_list(fields.get("retained"), "retained")),
        garbage=tuple(_garbage(item) for item in as_list(fields.get("garbage"), "garbage")),
        swept_at_ms=as_int(fields.get("swept_at_ms", 0), "swept_at_ms"),
    )
    names = [file.local_name for file in manifest.files]
    names += [file.local_name for file in manifest.small_files]
    if len(set(names)) != len(names):
        raise CorruptError("two of its files have the same local name")
    small = {file.local_name: file.content for file in manifest.small_files}
    current = small.get("CURRENT", b"").decode("ascii", "replace")
    # RocksDB opens the file that CURRENT names.
    if names and (current.removesuffix("\n") not in names or not current.startswith("MANIFEST-")):
        raise CorruptError("CURRENT does not name one of its files")
    return manifest


def _sst_file(value: object) -> SstFile:
    fields = as_object(value, "file")
    return SstFile(
        object_name=_sst_name(fields.get("object")),
        local_name=_local_name(fields.get("local_name"), _LOCAL_FILE),
        size_bytes=as_int(fields.get("size_bytes"), "size_bytes"),
        crc32c=as_int(fields.get("crc32c"), "crc32c", most=_CRC_MAX),
    )


def _small_file(value: object) -> SmallFile:
    fields = as_object(value, "small file")
    local_name = _local_name(fields.get("local_name"), _LOCAL_SMALL)
    try:
        content = base64.b64decode(as_text(fields.get("base64"), "base64"), validate=True)
    except ValueError as error:  # of a text that is not ASCII; otherwise binascii.Error
        raise CorruptError(f"small file {local_name} is not base64") from error
    if crc32c(content) != as_int(fields.get("crc32c"), "crc32c", most=_CRC_MAX):
        raise CorruptError(f"small file {local_name} differs from its checksum")
    return SmallFile(local_name, content)


def _retained(value: object) -> Retained:
    fields = as_object(value, "retained")
    objects = tuple(_sst_name(item) for item in as_list(fields.get("objects"), "objects"))
    ref = ref_from_json(fields, least=0)
    return Retained(ref, objects, _changelogs_from_json(fields.get("changelogs")))


def _garbage(value: object) -> Garbage:
    pair = as_list(value, "garbage")
    if len(pair) != 2:  # noqa: PLR2004 -- a pair
        raise CorruptError("garbage has an entry that is not a pair")
    return Garbage(_sst_name(pair[0]), as_int(pair[1], "dropped_at_ms"))


def _changelogs_to_json(changelogs: tuple[ChangelogRef, ...]) -> list[list[object]]:
    return [
        [ref.version, ref.checkpoint_id, base.version, base.checkpoint_id or ""]
        for ref, base in ((entry.ref, entry.base) for entry in changelogs)
    ]


def _changelogs_from_json(value: object) -> tuple[ChangelogRef, ...]:
    entries: list[ChangelogRef] = []
    for item in as_list(value, "changelogs"):
        parts = as_list(item, "changelog")
        if len(parts) != 4:  # noqa: PLR2004 -- version, id, base version, base id
            raise CorruptError("changelogs have an entry that does not have four parts")
        ref = version_ref(parts[0], parts[1])
        base_id = as_text(parts[3], "base id")
        base = Base(
            as_int(parts[2], "base version", most=ref.version - 1),
            CheckpointId.parse(base_id) if base_id else None,
        )
        entries.append(ChangelogRef(ref, base))
    return tuple(entries)


def _sst_name(value: object) -> str:
    name = as_text(value, "SST name")
    if not is_sst_name(name):
        raise CorruptError(f"{name[:80]!r} is not the name of an SST")
    return name


def _local_name(value: object, form: re.Pattern[str]) -> str:
    """Return a file name of RocksDB; no other file may be made in a database's directory."""
    name = as_text(value, "local_name")
    if not form.fullmatch(name):
        raise CorruptError(f"{name[:80]!r} is not a file name of RocksDB")
    return name
