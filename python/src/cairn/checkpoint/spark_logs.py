"""Spark's logs beside the state: how far a query is, and what a refused repartition left there.

Layer: checkpoint. Spark writes the entry of a batch to ``offsets`` before the batch runs, and that
to ``commits`` after it. Only a person removes the newest ones, to roll a query back.
``take_back`` deletes what a repartition wrote; all else in the logs belongs to others.
``format.spark_log`` has the bytes of an entry.

A repartition copies the entry of the last committed batch B, with another number of partitions, to
``offsets/N``, where N follows the newest entry. If it was told to skip batches that failed (N is
above B + 1), it first writes commits for them, which have no state. Then Spark refuses the state of
Cairn. The query does not start again before the entry is gone.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import DataError, InUseError, RepartitionError
from cairn.format.spark_log import (
    COMMITS_PREFIX,
    OFFSETS_PREFIX,
    OWN_PROVIDER,
    PARTITIONS,
    PROVIDER,
    CommitEntry,
    OffsetEntry,
    batch_of,
    parse_commit,
    parse_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.ids import StoreId
    from cairn.storage.base import ObjectStore

_ENTRY_BYTES_MAX = 64 << 20
"""A source with a hundred thousand partitions has some megabytes of offsets."""


def newest_batch(objects: ObjectStore, store: StoreId, prefix: str) -> int | None:
    """Return the newest batch in a log of the query that a store belongs to; one LIST.

    Args:
        objects: at the store's root.
        store: the store.
        prefix: ``OFFSETS_PREFIX`` or ``COMMITS_PREFIX``.

    Returns:
        ``None`` if the log has no entry, or if the root is not a place where Spark keeps a store.
    """
    folder = f"/{store.folder}"
    if not objects.url.endswith(folder):
        return None
    with objects.at(objects.url.removesuffix(folder) or "/") as checkpoint:
        return max(batches(checkpoint, prefix), default=None)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """An entry of the offset log: its name, its text, and what the text says."""

    batch: int
    key: str
    text: str
    entry: OffsetEntry

    @property
    def partitions(self) -> str | None:
        """The number of partitions that the entry names."""
        return self.entry.conf.get(PARTITIONS)

    @property
    def provider(self) -> str | None:
        """The state store provider that the entry names."""
        return self.entry.conf.get(PROVIDER)

    def differs_only_in_partitions(self, other: PlannedBatch) -> bool:
        """Tell whether the entry is a copy of ``other`` with another number of partitions."""
        conf = {**self.entry.conf, PARTITIONS: other.partitions}
        return (
            self.partitions != other.partitions
            and {**self.entry.metadata, "conf": conf} == other.entry.metadata
            and self.entry.sources == other.entry.sources
        )


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """An entry of the commit log: its name, its text, and what the text says."""

    batch: int
    key: str
    text: str
    entry: CommitEntry

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored about the batch but that it is complete."""
        return not any(self.entry.metadata.values())


@dataclass(frozen=True, slots=True)
class UnfinishedRepartition:
    """What a repartition has written, and what taking it back deletes.

    Attributes:
        entry: its entry of the offset log.
        base: the entry of the last batch with state.
        skipped: the commits that it wrote for failed batches, newest first.
    """

    entry: PlannedBatch
    base: PlannedBatch
    skipped: tuple[CommittedBatch, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects to delete, in this order: until the last one is gone, it can be repeated."""
        return (*(commit.key for commit in self.skipped), self.entry.key)


def batches(checkpoint: ObjectStore, prefix: str) -> list[int]:
    """Return the batches that a log has entries of, ascending; one LIST.

    Args:
        checkpoint: at the query's checkpoint location.
        prefix: ``OFFSETS_PREFIX`` or ``COMMITS_PREFIX``.
    """
    found = (batch_of(info.key.removeprefix(prefix)) for info in checkpoint.list(prefix))
    return sorted(batch for batch in found if batch is not None)


def read_planned(checkpoint: ObjectStore, batch: int) -> PlannedBatch:
    """Return the entry of a batch in the offset log; one GET.

    Raises:
        MissingError: the log has no such entry.
        CorruptError: the entry is not readable, or larger than any that Spark writes.
        FormatVersionError: it is of a newer version.
    """
    key = f"{OFFSETS_PREFIX}{batch}"
    data = checkpoint.get(key, max_bytes=_ENTRY_BYTES_MAX).data
    with _named(checkpoint, key):
        entry = parse_offsets(data)
    return PlannedBatch(batch, key, data.decode(), entry)


def read_committed(checkpoint: ObjectStore, batch: int) -> CommittedBatch:
    """Return the entry of a batch in the commit log; one GET. Raises as ``read_planned``."""
    key = f"{COMMITS_PREFIX}{batch}"
    data = checkpoint.get(key, max_bytes=_ENTRY_BYTES_MAX).data
    with _named(checkpoint, key):
        entry = parse_commit(data)
    return CommittedBatch(batch, key, data.decode(), entry)


@contextmanager
def _named(checkpoint: ObjectStore, key: str) -> Iterator[None]:
    try:
        yield
    except InUseError as error:
        raise error.with_context(object_name=checkpoint.object_url(key)) from None
    except DataError as error:
        raise error.with_context(
            object_name=checkpoint.object_url(key),
            next_step="restore it from the bucket's versions or a backup",
        ) from error.__cause__


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
    offsets = batches(checkpoint, OFFSETS_PREFIX)
    commits = batches(checkpoint, COMMITS_PREFIX)
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
    last = read_planned(checkpoint, offsets[-1])
    before = read_planned(checkpoint, offsets[-2])
    if last.partitions is None or last.partitions == before.partitions:
        return None
    if last.provider != OWN_PROVIDER:
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


def _without_state(checkpoint: ObjectStore, commits: list[int]) -> list[CommittedBatch]:
    """Return the newest commits that are empty, newest first, if an older one is not empty.

    If all are empty, the query writes no others: that of format 1 without a watermark.
    """
    empty: list[CommittedBatch] = []
    for batch in reversed(commits):
        entry = read_committed(checkpoint, batch)
        if not entry.is_empty:
            return empty
        empty.append(entry)
    return []


def _copied(checkpoint: ObjectStore, last: PlannedBatch, offsets: list[int]) -> PlannedBatch | None:
    """Return the newest entry of which ``last`` is a copy; normally the one before it."""
    for batch in reversed(offsets):
        entry = read_planned(checkpoint, batch)
        if last.differs_only_in_partitions(entry):
            return entry
    return None


def _with_state(
    checkpoint: ObjectStore,
    copied: PlannedBatch,
    offsets: list[int],
    without_state: list[CommittedBatch],
) -> PlannedBatch:
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
    return read_planned(checkpoint, older[-1])


def _skipped(
    checkpoint: ObjectStore, base: PlannedBatch, last: PlannedBatch, commits: list[int]
) -> tuple[CommittedBatch, ...]:
    """Return the commits without state between the two batches, newest first."""
    between = [batch for batch in reversed(commits) if base.batch < batch < last.batch]
    entries = tuple(read_committed(checkpoint, batch) for batch in between)
    for entry in entries:
        if not entry.is_empty:
            raise RepartitionError(
                "this batch is committed with content, but the repartition begins before it",
                object_name=checkpoint.object_url(entry.key),
                next_step="compare the logs; delete nothing before you have a copy",
            )
    return entries
