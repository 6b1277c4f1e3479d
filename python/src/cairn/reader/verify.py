"""Verify: whether a checkpoint is whole, by the rules that Spark and Cairn rely on.

Layer: reader.  Spec: docs/reader.md. It only reads. Each finding names its rule; ``findings`` says
what breaking a rule means and what mends it.

Of the newest batch all rows are read and decoded, and the bytes of all objects that a load needs
are compared with their checksums. Of older batches names and sizes of objects are compared, and
those parts of changelogs that small requests read; see ``audit``.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cairn.errors import AccessError, DataError, InUseError, MissingError, UnsupportedStateError
from cairn.format.fields import as_text, parse_object
from cairn.reader.audit import audit_cairn, audit_rocksdb
from cairn.reader.batch import BatchView
from cairn.reader.findings import Finding, Place
from cairn.reader.rows.partition_hash import partition_of
from cairn.reader.savepoints import check_savepoints
from cairn.reader.spark.logs import list_batches, read_commit, read_conf
from cairn.reader.state import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from cairn.errors import CairnError
    from cairn.format.spark_log import UniqueIds
    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.spark.logs import Batches
    from cairn.reader.stores.base import ReadLimits, StoreRows
    from cairn.reader.stores.opening import StorePlace
    from cairn.storage.base import ObjectStore

    Progress = Callable[[int, int], None]
    Ids = Mapping[int, "BatchIds"]

_THREADS = 4
_QUERY_ID = "metadata"
_ID_BYTES_MAX = 1 << 16


def verify(
    objects: ObjectStore, location: str, limits: ReadLimits, progress: Progress | None = None
) -> Iterator[Finding]:
    """Yield the findings, those of the logs first.

    Args:
        objects: at the checkpoint's location.
        location: the checkpoint's location.
        limits: of the memory of reads.
        progress: called with the number of partitions of stores that were read, and of all.

    Raises:
        MissingError: there is no query at this location.
        CairnError: the storage does not answer.
    """
    batches = list_batches(objects)
    yield from check_logs(objects, batches)
    yield from check_savepoints(objects)
    if not batches.committed:
        return
    newest = batches.committed[-1]
    try:
        view = BatchView(objects, newest)
        families = [one for operator in view.operators for one in view.families(operator)]
    except DataError as failure:
        yield Finding("operator-metadata", failure.message, failure.object_name, batch=newest)
        return
    yield from check_schema_paths(location, view)
    commits = read_ids(objects, batches.committed)
    yield from check_stores(StoresCheck(view, commits, limits, newest), families, progress)


@dataclass(frozen=True, slots=True)
class BatchIds:
    """What a committed batch has stored of each store.

    Attributes:
        unique_ids: Spark's checkpoint ids of the stores; ``None`` in format 1.
        partitions: of each store, in format 1; ``None``: not known.
    """

    unique_ids: UniqueIds | None
    partitions: int | None

    def has(self, operator: int, partition: int) -> bool:
        """Return whether the batch has a partition: a repartition changes their number."""
        if self.unique_ids is None:
            return self.partitions is None or partition < self.partitions
        of_operator = self.unique_ids.get(operator)
        return of_operator is None or partition < len(of_operator)


class PartitionRows(Protocol):
    """Gets the rows of one partition of a store while they are checked. Used by one thread."""

    def add(self, state: State, rows: StoredRows, decoded: pa.RecordBatch) -> None:
        """Take some rows of a family, as they are stored and as ``State.decode`` has them."""

    def end(self) -> None:
        """Take note that all rows of the partition came; it is not called after a failure."""


class NoRows:
    """Nobody wants the rows."""

    def add(self, state: State, rows: StoredRows, decoded: pa.RecordBatch) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class StoresCheck:
    """How the stores of a batch are checked.

    Attributes:
        view: of the batch.
        ids: of the committed batches, by batch.
        limits: of the memory of reads.
        observe: returns what gets the rows of a partition; threads call it with the families of
            the store, and the partition.
        newest: the newest committed batch, when the check began.
    """

    view: BatchView
    ids: Ids
    limits: ReadLimits
    newest: int
    observe: Callable[[Sequence[Family], int], PartitionRows] = lambda *_: NoRows()


def check_stores(
    check: StoresCheck, families: Sequence[Family], progress: Progress | None = None
) -> Iterator[Finding]:
    """Yield the findings of stores: their types, their rows at a batch, and their objects.

    Args:
        check: how.
        families: those whose rows are read. The objects are those of their stores.
        progress: see ``verify``.
    """
    for family in families:
        if (failure := family.failure) is not None:
            yield Finding(
                "operator-metadata",
                failure.message,
                failure.object_name,
                Place(family.operator.id, store=family.store.name),
                check.view.batch,
            )
    todo = [
        (of_store, partition)
        for of_store in _by_store(families)
        for partition in range(of_store[0].partitions)
    ]
    with ThreadPoolExecutor(_THREADS) as threads:
        runs = [
            threads.submit(_all_of_store, check, of_store, partition)
            for of_store, partition in todo
        ]
        try:
            for done, run in enumerate(runs, 1):
                yield from run.result()
                if progress is not None:
                    progress(done, len(todo))
        finally:
            threads.shutdown(cancel_futures=True)


def check_logs(objects: ObjectStore, batches: Batches) -> Iterator[Finding]:
    """Yield the findings of Spark's logs; two GETs per batch.

    Args:
        objects: at the checkpoint's location.
        batches: those of the logs.
    """
    yield from _query_id(objects)
    yield from _logs(objects, batches)


def _query_id(objects: ObjectStore) -> Iterator[Finding]:
    name = objects.object_url(_QUERY_ID)
    try:
        data = objects.get(_QUERY_ID, max_bytes=_ID_BYTES_MAX).data
        as_text(parse_object(data, "the query's metadata").get("id"), "id")
    except DataError as failure:
        yield Finding("query-id", failure.message, name)


def _logs(objects: ObjectStore, batches: Batches) -> Iterator[Finding]:
    for log, numbers in (("offsets", batches.planned), ("commits", batches.all_commits)):
        for before, after in pairwise(numbers):
            for missing in range(before + 1, after):
                yield Finding(
                    "log-hole",
                    f"{log} has the batches {before} and {after}, but not this one",
                    objects.object_url(f"{log}/{missing}"),
                    batch=missing,
                )
    planned = set(batches.planned)
    for batch in batches.all_commits:
        # Spark deletes the old entries of offsets before those of commits.
        if batch not in planned and planned and batch > min(planned):
            yield Finding(
                "commit-without-plan",
                "it is committed, but was not planned",
                objects.object_url(f"offsets/{batch}"),
                batch=batch,
            )
    entries = [
        found
        for read, numbers in ((read_conf, batches.planned), (read_commit, batches.all_commits))
        for batch in numbers
        for found in _entry(partial(read, objects, batch), batch)
    ]
    held = {found.batch for found in entries if found.rule == "held"}
    newest = max(batches.all_commits, default=-1)
    ahead = [batch for batch in batches.planned if batch > newest and batch not in held]
    if len(ahead) > 1:
        yield Finding(
            "planned-ahead",
            f"the batches {ahead[0]} to {ahead[-1]} are planned and not committed",
            objects.object_url(f"offsets/{ahead[-1]}"),
            batch=ahead[-1],
        )
    yield from entries


def _entry(read: Callable[[], object], batch: int) -> Iterator[Finding]:
    try:
        read()
    except MissingError:
        pass  # deleted since the listing
    except InUseError as held:
        yield Finding("held", held.message, held.object_name, batch=batch)
    except DataError as failure:
        yield Finding("log-entry", failure.message, failure.object_name, batch=batch)


def check_schema_paths(location: str, view: BatchView) -> Iterator[Finding]:
    """Yield the stores whose schemas are in another place than the checkpoint."""
    for operator in view.operators:
        for store in operator.stores:
            for path in store.schema_paths:
                if not _is_below(path, location):
                    yield Finding(
                        "schema-elsewhere",
                        f"the metadata name {path}",
                        place=Place(operator.id, store=store.name),
                    )


def _is_below(path: str, location: str) -> bool:
    """Return whether a path of Spark's is in the checkpoint, whatever their schemes are."""

    def plain(url: str) -> str:
        scheme, has_scheme, rest = url.partition(":")
        return (rest if has_scheme and "/" not in scheme else url).strip("/")

    folders = {plain(location)}
    if "://" not in location:  # a local folder: Spark has stored its absolute path
        folder = Path(location.removeprefix("file:"))
        folders |= {plain(os.path.normpath(folder.absolute())), plain(str(folder.resolve()))}
    return plain(path).startswith(tuple(f"{folder}/" for folder in folders))


def read_ids(objects: ObjectStore, batches: Sequence[int]) -> Ids:
    """Return what batches have stored; without those whose entries cannot be read.

    A GET per batch, and a second one in checkpoint format 1.
    """
    found = {}
    for batch in batches:
        try:
            unique_ids = read_commit(objects, batch).unique_ids
            partitions = None if unique_ids is not None else read_conf(objects, batch).partitions
            found[batch] = BatchIds(unique_ids, partitions)
        except DataError:
            continue  # another rule finds it
    return found


def versions_of(place: StorePlace, partition: int, ids: Ids) -> Iterator[tuple[int, str | None]]:
    """Yield the versions of a partition that batches have stored, with Spark's ids.

    Raises:
        MissingError: the commit log lacks an id.
    """
    for batch, one in ids.items():
        if one.has(place.operator, partition):
            yield batch + 1, place.at_batch(batch, one.unique_ids).id_of(partition)


def _by_store(families: Sequence[Family]) -> list[list[Family]]:
    stores: dict[tuple[int, str], list[Family]] = {}
    for family in families:
        stores.setdefault((family.operator.id, family.store.name), []).append(family)
    return list(stores.values())


def _has_gone_on(check: StoresCheck) -> bool:
    """Return whether the query has committed newer batches: retention may have passed old ones."""
    return list_batches(check.view.objects).committed[-1:] > (check.newest,)


def _all_of_store(check: StoresCheck, families: Sequence[Family], partition: int) -> list[Finding]:
    """Return the findings of one partition of a store."""
    return list(_of_store(check, families, partition))


def _of_store(check: StoresCheck, families: Sequence[Family], partition: int) -> Iterator[Finding]:
    place, view = families[0].place, check.view
    around: list[Finding] = []
    where = Place(place.operator, partition, place.store)
    observed = check.observe(families, partition)
    try:
        readable = [family for family in families if family.failure is None]
        with place.open(partition, families[0].list_families, check.limits) as store:
            for family in readable:
                state = State(view, family, check.limits)
                yield from _rows(state, family, store, where, observed)
            around = [_of_object(one, check, where) for one in store.gone_around]
        observed.end()
    except DataError as failure:
        rule = "state-unreadable" if view.batch == check.newest else "batch-unreadable"
        if isinstance(failure, UnsupportedStateError):
            rule = "state-unsupported"
        elif isinstance(failure, MissingError) and _has_gone_on(check):
            rule = "query-went-on"
        yield Finding(rule, failure.message, failure.object_name, where, view.batch)
    yield from around
    known = {(one.rule, one.object_name) for one in around}
    for finding in _audit(check, place, partition, where):
        if (finding.rule, finding.object_name) in known:
            continue
        if finding.rule == "batch-unreadable" and _has_gone_on(check):
            finding = replace(finding, rule="query-went-on")  # noqa: PLW2901 - the same one
        yield finding


def _of_object(failure: CairnError, check: StoresCheck, where: Place) -> Finding:
    """Return the finding of an object without which the state could be read."""
    message = f"{failure.message}; the state was read without it"
    rule = "object-damaged"
    if isinstance(failure, (MissingError, AccessError)):
        rule = "query-went-on" if _has_gone_on(check) else "object-missing"
    return Finding(rule, message, failure.object_name, where, check.view.batch)


def _audit(
    check: StoresCheck, place: StorePlace, partition: int, where: Place
) -> Iterator[Finding]:
    """Yield the findings of the objects of one partition of a store."""
    try:
        if place.provider == "cairn":
            versions = dict(versions_of(place, partition, check.ids))
            yield from audit_cairn(place, partition, versions)
        elif place.provider == "rocksdb":
            yield from audit_rocksdb(place, partition)
    except DataError as failure:
        yield Finding("object-damaged", failure.message, failure.object_name, where)


def _rows(
    state: State, family: Family, store: StoreRows, where: Place, observed: PartitionRows
) -> Iterator[Finding]:
    """Yield the findings of the rows of a family: all are read."""
    partition = where.partition
    if family.family not in store.families or partition is None:
        return
    count = misplaced = 0
    hashed = [column.name for column in family.columns if column.is_hashed]
    for rows in store.rows(family.family):
        count += len(rows.keys)
        decoded = state.decode(rows, partition)
        observed.add(state, rows, decoded)
        if hashed and decoded.num_rows:
            columns = [decoded.column(name) for name in hashed]
            misplaced += int(
                np.count_nonzero(partition_of(columns, family.operator.partitions) != partition)
            )
    if misplaced:
        yield Finding(
            "wrong-partition",
            f"{misplaced} rows of {family.name} belong to other partitions",
            place=where,
            batch=state.batch,
        )
    said = store.stored_count(family.family)
    if said is not None and said != count:
        yield Finding(
            "row-count",
            f"{family.name} has {count} keys, its changelog says {said}",
            place=where,
            batch=state.batch,
        )
