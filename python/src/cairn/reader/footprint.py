"""Footprint: the objects of a checkpoint by what they are for, as listings show them.

Layer: reader. One LIST per 1,000 objects on S3, and one per operator. Nothing of it is estimated.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from cairn.format.names import ChangelogName, ManifestName, SstName, parse_name
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX
from cairn.ids import DEFAULT_STORE

if TYPE_CHECKING:
    from collections.abc import Collection

    from cairn.reader.batch import BatchView
    from cairn.storage.base import ObjectInfo, ObjectStore

Kind: TypeAlias = Literal["commits", "snapshots", "ssts", "logs", "other"]

_STORE_OBJECT = re.compile(r"state/([0-9]+)/([0-9]+)/(.+)", re.ASCII)
_SPARK_FILE = re.compile(
    r"([0-9]+)(?:_[^/.]+)?\.(delta|changelog|snapshot|zip)(?:\.crc)?", re.ASCII
)
_SOURCE_ENTRY = re.compile(r"sources/[0-9]+/([0-9]+)(?:\.compact)?", re.ASCII)
_SPARK_SSTS = "SSTs/"
_CHECKSUM, _ZIP = ".crc", ".zip"
# Spark's own files that are in no store: of operators, and beside the logs.
_OPERATOR_FILE = re.compile(r"state/[0-9]+/(?:[0-9]+/)?(?:[^/]+/)?_(?:metadata|stateSchema)/.+")
_LOGS = (OFFSETS_PREFIX, COMMITS_PREFIX, "sources/")
_QUERY_ID = "metadata"
_SAMPLED: Final = 200


@dataclass(slots=True)
class Footprint:
    """What the listings show.

    Attributes:
        objects: their number, by kind.
        bytes: their size, by kind.
        commits: objects of commits whose versions are those of the counted batches.
        checksums: files with the checksums of these.
        all_commits: of all versions.
        snapshots: of these versions.
        all_snapshots: of all versions.
        source_entries: of the logs of sources, of the counted batches.
        writers: stores that have an object of a commit of these versions.
        sampled: 200 to 400 of these objects, or all if there are fewer, spread evenly, for a closer
            look.
    """

    objects: Counter[Kind] = field(default_factory=Counter)
    bytes: Counter[Kind] = field(default_factory=Counter)
    commits: int = 0
    checksums: int = 0
    all_commits: int = 0
    snapshots: int = 0
    all_snapshots: int = 0
    source_entries: int = 0
    writers: set[tuple[str, str, str]] = field(default_factory=set)
    sampled: list[ObjectInfo] = field(default_factory=list)


def measure(objects: ObjectStore, view: BatchView, batches: Collection[int]) -> Footprint:
    """List a checkpoint.

    Args:
        objects: at the checkpoint's location.
        view: the newest batch.
        batches: the counted ones: those that are committed.
    """
    counting = _Counting(view, frozenset(batches))
    for info in objects.list(""):
        counting.add(info)
    for operator in view.operators:
        # Listings hide this folder of Spark's from all other listings.
        for info in objects.list(f"state/{operator.id}/_metadata/"):
            counting.add(info)
    return counting.end()


class _Counting:
    def __init__(self, view: BatchView, batches: frozenset[int]) -> None:
        self._is_cairn = view.provider == "cairn"
        self._stores = {(str(one.id), store.name) for one in view.operators for store in one.stores}
        self._batches = batches
        self._result = Footprint()
        self._zips = Footprint()
        self._has_changelogs = False
        self._stride, self._seen = 1, 0

    def add(self, info: ObjectInfo) -> None:
        """Count an object."""
        kind, version = self._kind(info.key)
        result = self._result
        if kind == "commits" and info.key.removesuffix(_CHECKSUM).endswith(_ZIP):
            result = self._zips
        result.objects[kind] += 1
        result.bytes[kind] += info.size_bytes
        is_counted = version is not None and version - 1 in self._batches
        if info.key.endswith(_CHECKSUM):
            result.checksums += kind == "commits" and is_counted
        elif kind == "snapshots":
            result.all_snapshots += 1
            result.snapshots += is_counted
        elif kind == "commits":
            result.all_commits += 1
            if not is_counted:
                return
            result.commits += 1
            result.writers.add(self._store(info.key))
            self._sample(info)
        elif (match := _SOURCE_ENTRY.fullmatch(info.key)) and int(match[1]) in self._batches:
            result.source_entries += 1

    def end(self) -> Footprint:
        """Return what was counted: of stores with changelogs, Spark's zip files are snapshots."""
        result, zips = self._result, self._zips
        kind: Kind = "snapshots" if self._has_changelogs else "commits"
        result.objects[kind] += zips.objects["commits"]
        result.bytes[kind] += zips.bytes["commits"]
        if self._has_changelogs:
            result.snapshots += zips.commits
            result.all_snapshots += zips.all_commits
        else:
            result.commits += zips.commits
            result.checksums += zips.checksums
            result.writers |= zips.writers
        return result

    def _kind(self, key: str) -> tuple[Kind, int | None]:
        """Return what an object is for, and its version if it has one."""
        if key == _QUERY_ID or key.startswith(_LOGS) or _OPERATOR_FILE.fullmatch(key):
            return "logs", None
        match = _STORE_OBJECT.fullmatch(key)
        if match is None:
            return "other", None
        name = match[3]
        store, _, rest = name.partition("/")
        if (match[1], store) in self._stores and store != DEFAULT_STORE:
            name = rest
        return self._kind_of_cairn(name) if self._is_cairn else self._kind_of_spark(name)

    @staticmethod
    def _kind_of_cairn(name: str) -> tuple[Kind, int | None]:
        parsed = parse_name(name)
        if isinstance(parsed, ChangelogName):
            return "commits", parsed.version
        if isinstance(parsed, ManifestName):
            return "snapshots", parsed.version
        return ("ssts", None) if isinstance(parsed, SstName) else ("other", None)

    def _kind_of_spark(self, name: str) -> tuple[Kind, int | None]:
        if name.startswith(_SPARK_SSTS):
            return "ssts", None
        match = _SPARK_FILE.fullmatch(name)
        if match is None:
            return "other", None
        self._has_changelogs |= match[2] == "changelog"
        return ("snapshots" if match[2] == "snapshot" else "commits"), int(match[1])

    def _store(self, key: str) -> tuple[str, str, str]:
        _, operator, partition, rest = key.split("/", 3)
        store = rest.partition("/")[0]
        is_named = (operator, store) in self._stores
        return operator, partition, store if is_named else DEFAULT_STORE

    def _sample(self, info: ObjectInfo) -> None:
        """Keep every n-th object; n doubles when there are too many."""
        if info.key.endswith(_ZIP):
            return
        sampled = self._result.sampled
        if self._seen % self._stride == 0:
            sampled.append(info)
            if len(sampled) >= 2 * _SAMPLED:
                del sampled[1::2]
                self._stride *= 2
        self._seen += 1
