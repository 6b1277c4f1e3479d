"""Savepoint: the object that names a batch whose state is kept, and what that needs.

Layer: format (no I/O).  Spec: docs/checkpoint-format.md#savepoint.

    savepoint      := "cairn-savepoints/" savepoint_name ".json"
    savepoint_name := 1..100 of A-Z a-z 0-9 "-" "_" ".", not beginning with "."
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checksum import crc32c
from cairn.errors import ConfigError, CorruptError, DataError, FormatVersionError
from cairn.format.fields import (
    as_int,
    as_list,
    as_object,
    as_text,
    dump_object,
    parse_object,
)
from cairn.format.header import Base, ref_from_json, store_from_json
from cairn.ids import CheckpointId

if TYPE_CHECKING:
    from cairn.ids import StoreId, VersionRef

FORMAT_VERSION = 1
MAX_OBJECT_BYTES = 1 << 28
PREFIX = "cairn-savepoints/"

_MAGIC = "CAIRN-SAVEPOINT"
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}", re.ASCII)
_ID = re.compile(r"[0-9a-f]{16}")
# None leads out of the checkpoint.
_SEGMENT = r"[^/.\x00-\x1f\\][^/\x00-\x1f\\]*"
_KEY = re.compile(rf"{_SEGMENT}(/{_SEGMENT})*")
_STORE_NAME = re.compile(_SEGMENT)
_CHECKPOINT_FORMAT_MAX = 2


@dataclass(frozen=True, slots=True, order=True)
class SavedFile:
    """One of Spark's files, as it was.

    Attributes:
        key: relative to the checkpoint's location.
        data: its bytes.
    """

    key: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SavedStore:
    """One store of the batch.

    Attributes:
        store: which one.
        ref: its real version, with the id of the attempt in both checkpoint formats.
        base: where its lineage begins.
    """

    store: StoreId
    ref: VersionRef
    base: Base


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A batch that is kept.

    Attributes:
        name: chosen by a person.
        savepoint_id: in the names of its pins.
        batch: Spark's number.
        checkpoint_format: Spark's, 1 or 2.
        created_at_ms: by the creator's clock.
        files: Spark's files that the batch needs, by their keys.
        stores: all stores of the batch.
    """

    name: str
    savepoint_id: str
    batch: int
    checkpoint_format: int
    created_at_ms: int
    files: tuple[SavedFile, ...]
    stores: tuple[SavedStore, ...]

    @property
    def key(self) -> str:
        """The object's name, relative to the checkpoint's location."""
        return key_of(self.name)


def checked_name(name: str) -> str:
    """Return ``name`` if a savepoint may have it.

    Raises:
        ConfigError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:120]!r} is no name of a savepoint",
            next_step="choose 1 to 100 letters, digits, '-', '_' and '.', not beginning with '.'",
        )
    return name


def key_of(name: str) -> str:
    """Return the name of a savepoint's object, relative to the checkpoint's location."""
    return f"{PREFIX}{checked_name(name)}{_SUFFIX}"


def name_of(key: str) -> str | None:
    """Return the name of the savepoint whose object this is; ``None``: of none."""
    name = key.removeprefix(PREFIX).removesuffix(_SUFFIX)
    return name if f"{PREFIX}{name}{_SUFFIX}" == key and _NAME.fullmatch(name) else None


def encode(savepoint: Savepoint) -> bytes:
    """Return the object's bytes, the same for equal savepoints."""
    fields: dict[str, object] = {
        "magic": _MAGIC,
        "format": FORMAT_VERSION,
        "name": savepoint.name,
        "savepoint_id": savepoint.savepoint_id,
        "batch": savepoint.batch,
        "checkpoint_format": savepoint.checkpoint_format,
        "created_at_ms": savepoint.created_at_ms,
        "files": [{"key": one.key} | _content(one.data) for one in sorted(savepoint.files)],
        "stores": [
            {
                "operator": one.store.operator,
                "partition": one.store.partition,
                "name": one.store.name,
                "version": one.ref.version,
                "checkpoint_id": one.ref.checkpoint_id,
                "base": one.base.version,
                "base_checkpoint_id": one.base.checkpoint_id,
            }
            for one in sorted(savepoint.stores, key=lambda one: one.store)
        ],
    }
    fields["crc32c"] = crc32c(dump_object(fields).encode())
    return dump_object(fields).encode()


def parse(data: bytes, *, object_name: str) -> Savepoint:
    """Return the savepoint; unknown fields are ignored.

    Args:
        data: the whole object.
        object_name: its name in errors.

    Raises:
        CorruptError: the bytes contradict checksum or grammar.
        FormatVersionError: a newer format.
    """
    try:
        return _parse(data)
    except DataError as error:
        error.with_context(
            object_name=object_name,
            next_step="restore the object from the bucket's versions or a backup",
        )
        raise


def _parse(data: bytes) -> Savepoint:
    fields = dict(parse_object(data, "the savepoint"))
    checksum = fields.pop("crc32c", None)
    try:
        spelled = dump_object(fields).encode()
    except (ValueError, RecursionError) as error:
        raise CorruptError("the savepoint has values that JSON does not allow") from error
    if fields.get("magic") != _MAGIC or checksum != crc32c(spelled):
        raise CorruptError("it is no savepoint, or its content differs from its checksum")
    if fields.get("format") != FORMAT_VERSION:
        raise FormatVersionError(
            f"savepoint format {fields.get('format')!r} is not {FORMAT_VERSION}",
            next_step="use a release of Cairn that is as new as the one that wrote it",
        )
    id_ = as_text(fields.get("savepoint_id"), "savepoint_id")
    name = as_text(fields.get("name"), "name")
    if not _ID.fullmatch(id_) or not _NAME.fullmatch(name):
        raise CorruptError("the savepoint has a name or an id that none has")
    return Savepoint(
        name=name,
        savepoint_id=id_,
        batch=as_int(fields.get("batch"), "batch"),
        checkpoint_format=as_int(
            fields.get("checkpoint_format"),
            "checkpoint_format",
            least=1,
            most=_CHECKPOINT_FORMAT_MAX,
        ),
        created_at_ms=as_int(fields.get("created_at_ms"), "created_at_ms"),
        files=tuple(_file(one) for one in as_list(fields.get("files"), "files")),
        stores=tuple(_store(one) for one in as_list(fields.get("stores"), "stores")),
    )


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _file(value: object) -> SavedFile:
    fields = as_object(value, "file")
    key = as_text(fields.get("key"), "key")
    if not _KEY.fullmatch(key):
        raise CorruptError("the savepoint names a file that is none of a checkpoint")
    if "text" in fields:
        try:
            return SavedFile(key, as_text(fields["text"], "text").encode())
        except UnicodeEncodeError as error:
            raise CorruptError(f"the text of {key} is not Unicode") from error
    try:
        data = base64.b64decode(as_text(fields.get("base64"), "base64"), validate=True)
    except ValueError as error:
        raise CorruptError(f"the content of {key} is not base64") from error
    return SavedFile(key, data)


def _store(value: object) -> SavedStore:
    fields = as_object(value, "store")
    ref = ref_from_json(fields)
    base_id = fields.get("base_checkpoint_id")
    base = Base(
        as_int(fields.get("base"), "base", most=ref.version),
        None if base_id is None else CheckpointId.parse(as_text(base_id, "base_checkpoint_id")),
    )
    store = store_from_json(fields)
    if not _STORE_NAME.fullmatch(store.name):
        raise CorruptError("the savepoint names a store that is none of a checkpoint")
    return SavedStore(store, ref, base)
