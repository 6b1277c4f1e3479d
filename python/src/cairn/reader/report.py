"""Report: what a state consists of, where it is large or uneven, and how it has grown.

Layer: reader. ``cairn report`` draws it.

    over the batches    listings, Spark's logs, and counts in the headers of Cairn's changelogs
    of one batch        one read of all its rows, in which they are also checked as by ``verify``

A quick report reads no rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import DataError, NotThereError
from cairn.format.spark_log import COMMITS_PREFIX
from cairn.reader.batch import BatchView
from cairn.reader.family_rows import FamilyFigures, Marks, StoresScan
from cairn.reader.spark.logs import list_batches
from cairn.reader.store_files import list_objects
from cairn.reader.verify import BatchIds, StoresCheck, check_logs, check_schema_paths, check_stores
from cairn.reader.version_figures import figures_of_cairn, figures_of_hdfs
from cairn.storage.base import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from cairn.reader.families import Family
    from cairn.reader.findings import Finding
    from cairn.reader.spark.logs import Batches, Provider
    from cairn.reader.store_files import Kind, StoreObject
    from cairn.reader.stores.base import ReadLimits
    from cairn.reader.version_figures import Figures, Ids, Partition, VersionFigures
    from cairn.storage.base import ObjectStore

    Progress: TypeAlias = Callable[[int, int], None]

_THREADS = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """What the report is about.

    Attributes:
        batch: a committed one; ``None``: the newest.
        operator: its number; ``None``: all.
        store: Spark's name of a store, or the short name of rows; ``None``: all.
        is_quick: whether no rows are read.
    """

    batch: int | None = None
    operator: int | None = None
    store: str | None = None
    is_quick: bool = False


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """One committed batch that the logs have.

    Attributes:
        batch: its number.
        planned_at_ms: when Spark planned it; ``None``: its entry cannot be read.
        watermark_ms: the watermark that it leaves; 0 without one; ``None``: as above.
        commits: partitions of stores that have stored changes.
        change_bytes: size of these.
        snapshots: partitions of stores with a snapshot of the batch.
        snapshot_bytes: size of the objects of these; without tables, which snapshots share.
        load_bytes: objects that a load of all partitions reads; ``None``: not known.
        keys: of the families that are not internal, by operator and name; ``None``: not known.
    """

    batch: int
    planned_at_ms: int | None
    watermark_ms: int | None
    commits: int
    change_bytes: int
    snapshots: int
    snapshot_bytes: int
    load_bytes: int | None
    keys: Mapping[tuple[int, str], int] | None


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """One partition of a store.

    Attributes:
        operator: its operator's number.
        store: Spark's name of the store.
        partition: its number.
        objects: of all retained batches.
        stored_bytes: their size.
        keys: of the families that are not internal; ``None``: not known.
        row_bytes: keys and values of all families; ``None``: they were not read.
    """

    operator: int
    store: str
    partition: int
    objects: int
    stored_bytes: int
    keys: int | None
    row_bytes: int | None


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """The objects of the stores by what they have, of all retained batches.

    Attributes:
        changes: changelogs and delta files.
        snapshots: snapshots; without the tables that they name.
        tables: SST files.
        others: all others.
    """

    changes: int = 0
    snapshots: int = 0
    tables: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class Reads:
    """What the report has needed.

    Attributes:
        requests: their numbers, by S3's name of the call.
        seconds: of time.
        is_quick: whether no rows were read.
        measured_batches: batches of which keys or sizes were found without reading rows.
    """

    requests: Mapping[str, int]
    seconds: float
    is_quick: bool
    measured_batches: int


@dataclass(frozen=True, slots=True)
class Report:
    """What a checkpoint consists of at a batch.

    Attributes:
        location: as it was given.
        made_at: when the report was begun.
        batch: the batch whose rows it is about.
        watermark_ms: the watermark that the batch leaves; 0 without one.
        batch_ms: when Spark planned the batch.
        provider: whose files the state is in: ``cairn``, ``rocksdb`` or ``hdfs``.
        checkpoint_format: Spark's, 1 or 2.
        operators: names of the operators that it is about, by number; ``None`` before Spark 4.0.
        batches: those that are committed, ascending.
        partitions: of all stores that it is about, by operator, store and number.
        families: by operator and store.
        stored: objects by what they have.
        findings: as of ``Checkpoint.verify``, of the logs and of the rows and objects that the
            report is about; of a quick one of the logs alone.
        reads: what it has needed.
    """

    location: str
    made_at: datetime
    batch: int
    watermark_ms: int
    batch_ms: int
    provider: str
    checkpoint_format: int
    operators: Mapping[int, str | None]
    batches: tuple[BatchFigures, ...]
    partitions: tuple[PartitionFigures, ...]
    families: tuple[FamilyFigures, ...]
    stored: StoredBytes
    findings: tuple[Finding, ...]
    reads: Reads


def make_report(
    objects: ObjectStore,
    location: str,
    limits: ReadLimits,
    choice: Choice,
    progress: Progress | None = None,
) -> Report:
    """Return the report of a checkpoint.

    A partition whose rows cannot be read is a finding, and has no figures of rows.

    Args:
        objects: at the checkpoint's location.
        location: the checkpoint's location.
        limits: of the memory of reads.
        choice: what it is about.
        progress: called with the number of partitions of stores that were read, and of all.

    Raises:
        NotThereError: there is no such batch, operator or store.
        DataError: the metadata of the batch cannot be read.
    """
    with objects.at(objects.url) as root:
        root.tally = Tally()
        return _Making(root, location, limits, choice).report(progress)


class _Making:
    def __init__(
        self, objects: ObjectStore, location: str, limits: ReadLimits, choice: Choice
    ) -> None:
        self._began_ns = SYSTEM_CLOCK.monotonic_ns()
        self._made_at = SYSTEM_CLOCK.now()
        self._objects = objects
        self._location = location
        self._limits = limits
        self._is_quick = choice.is_quick
        self._logs = list_batches(objects)
        self._view = BatchView(objects, _chosen_batch(objects, self._logs, choice.batch))
        self._families = _chosen_families(self._view, choice, location)
        self._views = self._read_views()

    def _read_views(self) -> dict[int, BatchView]:
        """Return the metadata of all committed batches; without those that cannot be read."""

        def read(batch: int) -> BatchView | None:
            try:
                return BatchView(self._objects, batch)
            except DataError:
                return None  # a finding, or deleted since the listing

        with ThreadPoolExecutor(_THREADS) as threads:
            views = [one for one in threads.map(read, self._logs.committed) if one is not None]
        return {one.batch: one for one in views}

    def report(self, progress: Progress | None) -> Report:
        view = self._view
        listed = _Listed(self._objects, view, self._families)
        figures = self._figures(listed)
        marks = Marks(view.commit.watermark_ms, view.conf.entry.timestamp_ms)
        scan = StoresScan(self._families, marks)
        findings = [*check_logs(self._objects, self._logs)]
        findings += check_schema_paths(self._location, view)
        if not self._is_quick:
            stored = {
                batch: BatchIds(one.commit.unique_ids, one.conf.partitions)
                for batch, one in self._views.items()
            }
            findings += check_stores(
                StoresCheck(view, stored, self._limits, self._logs.committed[-1], scan.begin),
                self._families,
                progress,
            )
        now = figures.get(view.batch, {})
        families = self._quick_families(now) if self._is_quick else tuple(scan.figures())
        tally = self._objects.tally
        return Report(
            location=self._location,
            made_at=self._made_at,
            batch=view.batch,
            watermark_ms=view.commit.watermark_ms,
            batch_ms=view.conf.entry.timestamp_ms,
            provider=view.provider,
            checkpoint_format=view.checkpoint_format,
            operators={one.operator.id: one.operator.name for one in self._families},
            batches=tuple(self._batch(batch, listed, figures) for batch in self._logs.committed),
            partitions=tuple(self._partitions(listed, scan, now)),
            families=families,
            stored=listed.stored(),
            findings=tuple(findings),
            reads=Reads(
                requests={} if tally is None else tally.counts(),
                seconds=(SYSTEM_CLOCK.monotonic_ns() - self._began_ns) / 1e9,
                is_quick=self._is_quick,
                measured_batches=len(figures),
            ),
        )

    def _ids(self) -> Ids:
        return {batch: one.commit.unique_ids for batch, one in self._views.items()}

    def _figures(self, listed: _Listed) -> Figures:
        stores = _first_of_each_store(self._families)
        if self._view.provider == "cairn":
            places = [(one.place, one.partitions) for one in stores]
            return figures_of_cairn(places, self._ids(), listed.sizes, self._view.batch)
        if self._view.provider == "hdfs":
            partitions = [
                (*_store_of(one), number) for one in stores for number in range(one.partitions)
            ]
            return figures_of_hdfs(partitions, self._logs.committed, listed.sizes)
        return {}

    def _quick_families(self, now: Mapping[Partition, VersionFigures]) -> tuple[FamilyFigures, ...]:
        return tuple(
            FamilyFigures(
                operator=one.operator.id,
                store=one.store.name,
                family=one.family,
                name=one.name,
                is_list=one.is_list,
                is_internal=one.is_internal,
                keys=_keys_of(one, now),
            )
            for one in self._families
        )

    def _batch(self, batch: int, listed: _Listed, figures: Figures) -> BatchFigures:
        view, now = self._views.get(batch), figures.get(batch, {})
        version = batch + 1
        keys = {
            (one.operator.id, one.name): _keys_of(one, now)
            for one in self._families
            if not one.is_internal
        }
        known = {name: count for name, count in keys.items() if count is not None}
        sizes = [one.load_bytes for one in now.values() if one.load_bytes is not None]
        return BatchFigures(
            batch=batch,
            planned_at_ms=None if view is None else view.conf.entry.timestamp_ms,
            watermark_ms=None if view is None else view.commit.watermark_ms,
            commits=len(listed.writers["changes", version]),
            change_bytes=listed.bytes_of["changes", version],
            snapshots=len(listed.writers["snapshot", version]),
            snapshot_bytes=listed.bytes_of["snapshot", version],
            load_bytes=sum(sizes) if now and len(sizes) == len(now) else None,
            keys=known if len(known) == len(keys) else None,
        )

    def _partitions(
        self, listed: _Listed, scan: StoresScan, now: Mapping[Partition, VersionFigures]
    ) -> Iterator[PartitionFigures]:
        for store in _first_of_each_store(self._families):
            of_store = [
                one.family
                for one in self._families
                if _store_of(one) == _store_of(store) and not one.is_internal
            ]
            for number in range(store.partitions):
                name = (*_store_of(store), number)
                rows, counted = scan.partitions.get(name), now.get(name)
                keys = None if rows is None else rows.keys
                if self._is_quick and counted is not None and counted.keys is not None:
                    keys = sum(counted.keys.get(family, 0) for family in of_store)
                yield PartitionFigures(
                    *name,
                    objects=len(listed.sizes.get(name, ())),
                    stored_bytes=sum(listed.sizes.get(name, {}).values()),
                    keys=keys,
                    row_bytes=None if rows is None else rows.row_bytes,
                )


class _Listed:
    """The objects of stores.

    Attributes:
        sizes: of the objects of each partition, by their names.
        writers: partitions with objects of a kind and version.
        bytes_of: size of the objects of a kind and version.
    """

    def __init__(self, objects: ObjectStore, view: BatchView, families: Sequence[Family]) -> None:
        self.sizes: dict[Partition, dict[str, int]] = {}
        self.writers: defaultdict[tuple[Kind, int], set[Partition]] = defaultdict(set)
        self.bytes_of: Counter[tuple[Kind, int]] = Counter()
        self._by_kind: Counter[Kind] = Counter()
        stores = {_store_of(one) for one in families}
        for operator in view.operators:
            if operator.id in {number for number, _ in stores}:
                for one in list_objects(objects, operator):
                    if (operator.id, one.store) in stores:
                        self._add((operator.id, one.store, one.partition), one, view.provider)

    def _add(self, place: Partition, one: StoreObject, provider: Provider) -> None:
        kind, version = one.role(provider)
        self.sizes.setdefault(place, {})[one.name] = one.size_bytes
        self._by_kind[kind] += one.size_bytes
        if version is not None:
            self.bytes_of[kind, version] += one.size_bytes
            self.writers[kind, version].add(place)

    def stored(self) -> StoredBytes:
        return StoredBytes(
            changes=self._by_kind["changes"],
            snapshots=self._by_kind["snapshot"],
            tables=self._by_kind["table"],
            others=self._by_kind["other"],
        )


def _chosen_batch(objects: ObjectStore, logs: Batches, batch: int | None) -> int:
    if not logs.committed:
        raise NotThereError(
            "the query has not committed a batch yet",
            object_name=objects.object_url(COMMITS_PREFIX),
            next_step="wait for its first batch",
        )
    if batch is None:
        return logs.committed[-1]
    if batch not in logs.committed:
        raise NotThereError(
            f"batch {batch} is not committed; committed are: {logs.committed[0]} to "
            f"{logs.committed[-1]}",
            object_name=objects.object_url(f"{COMMITS_PREFIX}{batch}"),
            next_step="choose one of these; `cairn ls` lists them",
        )
    return batch


def _chosen_families(view: BatchView, choice: Choice, location: str) -> tuple[Family, ...]:
    operators = view.operators if choice.operator is None else (view.operator(choice.operator),)
    there = [one for operator in operators for one in view.families(operator)]
    found = tuple(one for one in there if choice.store in (None, one.store.name, one.name))
    if found or choice.store is None:
        return found
    names = ", ".join(f"{one.operator.id}/{one.name}" for one in there)
    raise NotThereError(
        f"no store is named {choice.store!r}; there are, as operator and name: {names or 'none'}",
        object_name=location,
        next_step="choose one of these",
    )


def _store_of(family: Family) -> tuple[int, str]:
    return family.operator.id, family.store.name


def _first_of_each_store(families: Sequence[Family]) -> list[Family]:
    return list({_store_of(one): one for one in reversed(families)}.values())[::-1]


def _keys_of(family: Family, now: Mapping[Partition, VersionFigures]) -> int | None:
    """Return the keys of a family in all partitions, if they are known."""
    of_store = [one.keys for (*store, _), one in now.items() if tuple(store) == _store_of(family)]
    known = [keys.get(family.family, 0) for keys in of_store if keys is not None]
    return sum(known) if known and len(known) == len(of_store) else None
