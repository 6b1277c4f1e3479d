"""Spark's logs beside the state: how far a query is, and what a refused repartition left there.

Layer: checkpoint. Spark writes the entry of a batch to ``offsets`` before the batch runs, and that
to ``commits`` after it. Only a person removes the newest ones, to roll a query back.
``take_back`` deletes what a repartition wrote; all else in the logs belongs to others.

    offsets/N := line "v" digits | line JSON {"conf": {name: value}, ...} | lines, one per source
    commits/N := line "v" digits | line JSON {"nextBatchWatermarkMs": int, ...}

A repartition copies the entry of the last committed batch B, with another number of partitions, to
``offsets/N``, where N follows the newest entry. If it was told to skip batches that failed (N is
above B + 1), it first writes commits for them, which have no state. Then Spark refuses the state of
Cairn. The query does not start again before the entry is gone.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.errors import CorruptError, RepartitionError
from cairn.ids import DEFAULT_STORE

if TYPE_CHECKING:
    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore

OFFSETS_PREFIX = "offsets/"
COMMITS_PREFIX = "commits/"
_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CAIRN = "io.cairn.spark.CairnStateStoreProvider"
_BATCH = re.compile(r"(0|[1-9][0-9]{0,17})")
_LINES_MIN = 2


def newest_batch(objects: ObjectStore, store: StoreId, prefix: str) -> int | None:
    """Return the newest batch in a log of the query that a store belongs to; one LIST.

    Args:
        objects: at the store's root.
        store: the store.
        prefix: ``OFFSETS_PREFIX`` or ``COMMITS_PREFIX``.

    Returns:
        ``None`` if the log has no entry, or if the root is not a place where Spark keeps a store.
    """
    name = "" if store.name == DEFAULT_STORE else f"/{store.name}"
    folder = f"/state/{store.operator}/{store.partition}{name}"
    if not objects.url.endswith(folder):
        return None
    with objects.at(objects.url.removesuffix(folder) or "/") as checkpoint:
        return max(_batches(checkpoint, prefix), default=None)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of a log: its name, its text, and the two parts of the text that have a meaning."""

    batch: int
    key: str
    text: str
    metadata: dict[str, Any]
    sources: str

    @property
    def partitions(self) -> str | None:
        """The number of partitions that the entry names."""
        return self._conf.get(_PARTITIONS)

    @property
    def provider(self) -> str | None:
        """The state store provider that the entry names."""
        return self._conf.get(_PROVIDER)

    def differs_only_in_partitions(self, other: LogEntry) -> bool:
        """Tell whether the entry is a copy of ``other`` with another number of partitions."""
        same = {**self.metadata, "conf": {**self._conf, _PARTITIONS: other.partitions}}
        return (
            self.partitions != other.partitions
            and same == other.metadata
            and self.sources == other.sources
        )

    @property
    def _conf(self) -> dict[str, str]:
        conf = self.metadata.get("conf")
        return conf if isinstance(conf, dict) else {}


@dataclass(frozen=True, slots=True)
class UnfinishedRepartition:
    """What a repartition has written, and what taking it back deletes.

    Attributes:
        entry: its entry of the offset log.
        base: the entry of the last batch with state.
        skipped: the commits that it wrote for failed batches, newest first.
    """

    entry: LogEntry
    base: LogEntry
    skipped: tuple[LogEntry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects to delete, in this order: until the last one is gone, it can be repeated."""
        return (*(commit.key for commit in self.skipped), self.entry.key)


def find_unfinished_repartition(checkpoint: ObjectStore) -> UnfinishedRepartition | None:
    """Return the repartition that the logs of a checkpoint show, or ``None`` if there is none.

    Changes nothing. A batch of the query that has failed is not a repartition: Spark runs it again.

    Args:
        checkpoint: at the query's checkpoint location.

    Raises:
        RepartitionError: this is not the checkpoint of a query; or there is a repartition that
            Spark itself can finish; or its entry differs from what a repartition writes.
        CorruptError: an entry is not readable.
    """
    offsets = _batches(checkpoint, OFFSETS_PREFIX)
    commits = _batches(checkpoint, COMMITS_PREFIX)
    if not offsets:
        raise RepartitionError(
            "there is no offset log here, or the folder does not exist",
            object_name=checkpoint.object_url(OFFSETS_PREFIX),
            next_step="name the query's checkpointLocation, the folder that has 'offsets'; a path"
            " without a scheme is a local folder, so write hdfs://... for one of fs.defaultFS",
        )
    without_state = _without_state(checkpoint, commits)
    if len(offsets) == 1 or (commits and commits[-1] >= offsets[-1]):
        if without_state:
            keys = " and ".join(entry.key for entry in without_state)
            raise RepartitionError(
                "this batch is committed without state, but the batches before it have state: a"
                " repartition has skipped it, and has written nothing else",
                object_name=checkpoint.object_url(without_state[0].key),
                next_step=f"stop the query and delete {keys}; it then runs these batches again",
            )
        return None
    last = _read(checkpoint, OFFSETS_PREFIX, offsets[-1])
    before = _read(checkpoint, OFFSETS_PREFIX, offsets[-2])
    if last.partitions is None or last.partitions == before.partitions:
        return None
    if last.provider != _CAIRN:
        raise RepartitionError(
            f"the state belongs to {last.provider}, not to Cairn",
            object_name=checkpoint.object_url(last.key),
            next_step=f"repartition to {last.partitions} partitions again; Spark finishes it",
        )
    copied = _copied(checkpoint, last, offsets[:-1])
    if copied is None:
        raise RepartitionError(
            "the entry has another number of partitions than the one before, but it is not a copy"
            " of an entry with state",
            object_name=checkpoint.object_url(last.key),
            next_step="compare it with those before it; delete nothing before you have a copy",
        )
    base = _with_state(checkpoint, copied, offsets, without_state)
    return UnfinishedRepartition(last, base, _skipped(checkpoint, base, last, commits))


def take_back(checkpoint: ObjectStore, found: UnfinishedRepartition) -> None:
    """Delete what a repartition has written. If it fails in between, find and take back again.

    REQUIRES: no driver uses the checkpoint.
    """
    for key in found.keys:
        checkpoint.delete([key])


def _batches(checkpoint: ObjectStore, prefix: str) -> list[int]:
    names = (info.key.removeprefix(prefix) for info in checkpoint.list(prefix))
    return sorted(int(name) for name in names if _BATCH.fullmatch(name))


def _without_state(checkpoint: ObjectStore, commits: list[int]) -> list[LogEntry]:
    """Return the newest commits that are empty, newest first, if an older one is not empty.

    If all are empty, the query writes no others: that of format 1 without a watermark.
    """
    empty: list[LogEntry] = []
    for batch in reversed(commits):
        entry = _read(checkpoint, COMMITS_PREFIX, batch)
        if any(entry.metadata.values()):
            return empty
        empty.append(entry)
    return []


def _copied(checkpoint: ObjectStore, last: LogEntry, offsets: list[int]) -> LogEntry | None:
    """Return the newest entry of which ``last`` is a copy; normally the one before it."""
    for batch in reversed(offsets):
        entry = _read(checkpoint, OFFSETS_PREFIX, batch)
        if last.differs_only_in_partitions(entry):
            return entry
    return None


def _with_state(
    checkpoint: ObjectStore, copied: LogEntry, offsets: list[int], without_state: list[LogEntry]
) -> LogEntry:
    """Return the entry of the last batch with state: an earlier repartition may have skipped some.

    Raises:
        RepartitionError: Spark has deleted that entry.
    """
    if copied.batch not in {entry.batch for entry in without_state}:
        return copied
    older = [batch for batch in offsets if batch < without_state[-1].batch]
    if not older:
        raise RepartitionError(
            "repartitions have skipped this batch, and no entry of a batch with state is left",
            object_name=checkpoint.object_url(copied.key),
            next_step="compare the logs; delete nothing before you have a copy",
        )
    return _read(checkpoint, OFFSETS_PREFIX, older[-1])


def _skipped(
    checkpoint: ObjectStore, base: LogEntry, last: LogEntry, commits: list[int]
) -> tuple[LogEntry, ...]:
    """Return the commits without state between the two batches, newest first."""
    between = [batch for batch in reversed(commits) if base.batch < batch < last.batch]
    entries = tuple(_read(checkpoint, COMMITS_PREFIX, batch) for batch in between)
    for entry in entries:
        if any(entry.metadata.values()):
            raise RepartitionError(
                "this batch is committed with content, but the repartition begins before it",
                object_name=checkpoint.object_url(entry.key),
                next_step="compare the logs; delete nothing before you have a copy",
            )
    return entries


def _read(checkpoint: ObjectStore, prefix: str, batch: int) -> LogEntry:
    key = f"{prefix}{batch}"
    data = checkpoint.get(key).data
    try:
        text = data.decode()
        lines = text.split("\n", _LINES_MIN)
        metadata = json.loads(lines[1])
    except (ValueError, IndexError) as error:
        raise CorruptError(
            "Spark's log entry cannot be read",
            object_name=checkpoint.object_url(key),
            next_step="restore it from the bucket's versions or a backup",
        ) from error
    if not isinstance(metadata, dict) or not lines[0].startswith("v"):
        raise CorruptError(
            "Spark's log entry has no metadata", object_name=checkpoint.object_url(key)
        )
    return LogEntry(batch, key, text, metadata, "\n".join(lines[_LINES_MIN:]))
