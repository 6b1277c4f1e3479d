"""Spark's offset log and commit log: what an entry says.

Layer: format (no I/O).  Spec: docs/spark-formats.md#logs-of-the-query. Spark writes the entry of a
batch to ``offsets`` before the batch runs, and that to ``commits`` after it. The name of an entry
is the number of its batch.

    offsets := "v1" line metadata line*          ; one line per source; "-": it has no offset
             | "v2" line metadata line*          ; since Spark 4.2; source id ":" offset
    commits := ("v1" | "v2" | "v3") [ line ]     ; the line is JSON; old files may lack it

``metadata`` is JSON, or empty in the files of Spark 2.1 and earlier. A field of JSON that is
absent has Spark's default.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from cairn.errors import CorruptError, FormatVersionError
from cairn.format import hold
from cairn.format.fields import JsonObject, as_int, as_list, as_object, as_text, parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSETS_PREFIX = "offsets/"
COMMITS_PREFIX = "commits/"
PARTITIONS = "spark.sql.shuffle.partitions"
"""Setting of a query: the number of partitions of each store."""
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
"""Setting of a query: the class that keeps its state."""
OWN_PROVIDER = "io.cairn.spark.CairnStateStoreProvider"
CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
"""Setting of a query: 2 if its commit log has ids of the state. An old Spark does not store it."""

_BATCH = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_OPERATOR = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_VERSION = re.compile(r"v([1-9][0-9]{0,8})", re.ASCII)
# Spark's are UUIDs; other providers have their own.
_UNIQUE_ID = re.compile(r"[!-.0-\[\]-~]{1,128}", re.ASCII)
_OFFSETS_VERSION_MAX = 2
_COMMITS_VERSION_MAX = 3
# The version in which each entry has ids, and after which an entry may have none.
_WITH_IDS = 2
_IDS = "stateUniqueIds"

UniqueIds: TypeAlias = "Mapping[int, tuple[tuple[str, ...], ...]]"
"""Checkpoint ids of a batch, by operator: one tuple per partition, with one id per store."""


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """What the offset log says of a batch: how Spark has planned it.

    Attributes:
        version: format of the entry, 1 or 2.
        watermark_ms: the watermark of the batch; 0 without one.
        timestamp_ms: the time at which Spark planned the batch.
        conf: the settings that the query keeps for its life, by their names. An old Spark did not
            store all of them.
        sources: the lines of the sources, as they are.
        metadata: all fields of the entry, those above included.
    """

    version: int
    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[str, ...]
    metadata: JsonObject

    def with_conf(self, changes: Mapping[str, str | None]) -> OffsetEntry:
        """Return the entry with other settings; ``None`` removes one."""
        conf = {name: value for name, value in self.conf.items() if name not in changes}
        conf |= {name: value for name, value in changes.items() if value is not None}
        if conf == self.conf:
            return self
        return replace(self, conf=conf, metadata={**self.metadata, "conf": conf})


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """What the commit log says of a batch: that it is complete, and which state it left.

    Attributes:
        version: format of the entry, 1 to 3.
        watermark_ms: the watermark of the next batch; 0 without one.
        unique_ids: in checkpoint format 2 the checkpoint ids of the batch, by operator: one tuple
            per partition, with one id per store. ``None`` in format 1.
        metadata: all fields of the entry, those above included.
    """

    version: int
    watermark_ms: int
    unique_ids: UniqueIds | None
    metadata: JsonObject

    def with_ids(self, ids: UniqueIds | None) -> CommitEntry:
        """Return the entry with other ids; ``None``: of checkpoint format 1."""
        metadata = {name: value for name, value in self.metadata.items() if name != _IDS}
        version = self.version
        if ids is not None:
            metadata[_IDS] = {
                str(operator): [list(stores) for stores in partitions]
                for operator, partitions in ids.items()
            }
            version = max(version, _WITH_IDS)
        elif version == _WITH_IDS:
            version = 1
        return CommitEntry(version, self.watermark_ms, ids, metadata)


def batch_of(name: str) -> int | None:
    """Return the batch whose entry has this name in a log; ``None`` for another file."""
    return int(name) if _BATCH.fullmatch(name) else None


def parse_offsets(data: bytes) -> OffsetEntry:
    """Return an entry of the offset log.

    Raises:
        CorruptError: the bytes are not one, or end early.
        FormatVersionError: its version is newer than 2.
        InUseError: a command of Cairn's has put a hold in its place.
    """
    held = hold.parse(data)
    if held is not None:
        raise held.error()
    version, lines = _version_and_lines(data, "offset log", _OFFSETS_VERSION_MAX)
    if not lines:
        raise CorruptError("the entry of the offset log ends after its first line")
    metadata = _metadata(lines, "the metadata of the offset log")
    conf = as_object(metadata.get("conf", {}), "conf in the offset log")
    return OffsetEntry(
        version=version,
        watermark_ms=_milliseconds(metadata, "batchWatermarkMs"),
        timestamp_ms=_milliseconds(metadata, "batchTimestampMs"),
        conf={name: as_text(value, f"conf {name}") for name, value in conf.items()},
        sources=tuple(lines[1:]),
        metadata=metadata,
    )


def parse_commit(data: bytes) -> CommitEntry:
    """Return an entry of the commit log.

    Raises:
        CorruptError: the bytes are not one.
        FormatVersionError: its version is newer than 3.
    """
    version, lines = _version_and_lines(data, "commit log", _COMMITS_VERSION_MAX)
    metadata = _metadata(lines, "the entry of the commit log")
    return CommitEntry(
        version=version,
        watermark_ms=_milliseconds(metadata, "nextBatchWatermarkMs"),
        unique_ids=_unique_ids(version, metadata),
        metadata=metadata,
    )


def encode_offsets(entry: OffsetEntry) -> bytes:
    """Return the bytes of an entry of the offset log, in Spark's spelling.

    All fields come from ``metadata``: change the settings by ``with_conf``.
    """
    metadata = _dumped(entry.metadata) if entry.metadata else ""
    return "\n".join((f"v{entry.version}", metadata, *entry.sources)).encode()


def encode_commit(entry: CommitEntry) -> bytes:
    """Return the bytes of an entry of the commit log, in Spark's spelling.

    All fields come from ``metadata``: change the ids by ``with_ids``.
    """
    return f"v{entry.version}\n{_dumped(entry.metadata)}".encode()


def _dumped(metadata: JsonObject) -> str:
    return json.dumps(metadata, separators=(",", ":"), ensure_ascii=False)


def _version_and_lines(data: bytes, log: str, newest: int) -> tuple[int, list[str]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CorruptError(f"the entry of the {log} is not UTF-8") from error
    first, *lines = text.split("\n")
    found = _VERSION.fullmatch(first.strip())
    if found is None:
        raise CorruptError(f"the entry of the {log} does not begin with its version")
    version = int(found[1])
    if version > newest:
        raise FormatVersionError(
            f"version {version} of the {log} is newer than {newest}",
            next_step="use a release of Cairn that knows the Spark that wrote it",
        )
    if lines and not lines[-1]:
        del lines[-1]  # the last line has an end, too
    return version, lines


def _metadata(lines: list[str], what: str) -> JsonObject:
    text = lines[0].strip() if lines else ""
    return parse_object(text, what) if text else {}


def _milliseconds(metadata: JsonObject, name: str) -> int:
    return as_int(metadata.get(name, 0), name, least=-(2**63))


def _unique_ids(version: int, metadata: JsonObject) -> UniqueIds | None:
    # Spark 4.0 writes the field into entries of version 1 too, where it is empty.
    if version < _WITH_IDS or (version > _WITH_IDS and _IDS not in metadata):
        return None
    ids: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator, partitions in as_object(metadata.get(_IDS, {}), _IDS).items():
        if not _OPERATOR.fullmatch(operator):
            raise CorruptError(f"{_IDS} has a key that is not an operator's number")
        ids[int(operator)] = tuple(
            tuple(map(_unique_id, as_list(stores, "checkpoint ids")))
            for stores in as_list(partitions, "checkpoint ids of an operator")
        )
    return ids


def _unique_id(value: object) -> str:
    text = as_text(value, "a checkpoint id")
    if not _UNIQUE_ID.fullmatch(text):
        raise CorruptError("a checkpoint id cannot be a part of a file's name")
    return text
