"""Checkpoint: what a query's checkpoint has, and the way to the rows of its stores.

Layer: reader. The API that ``cairn.open_checkpoint`` opens. It only reads. It keeps the metadata of
the batches that were looked at, and no rows.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from cairn.checkpoint import spark_logs
from cairn.clock import SYSTEM_CLOCK
from cairn.errors import ConfigError, MissingError, NotThereError
from cairn.format.spark_log import COMMITS_PREFIX
from cairn.location import open_location
from cairn.reader.batch import BatchView
from cairn.reader.bisect import bisect
from cairn.reader.changes import ChangeFeed, Diff
from cairn.reader.cost import cost
from cairn.reader.equality import are_same_rows
from cairn.reader.report import Choice, make_report
from cairn.reader.spark.logs import list_batches
from cairn.reader.state import State
from cairn.reader.store_files import StoreFiles, count_files
from cairn.reader.stores.base import ReadLimits
from cairn.reader.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cairn.reader.bisect import Bisection
    from cairn.reader.cost import Cost
    from cairn.reader.families import Family
    from cairn.reader.findings import Finding
    from cairn.reader.prices import Prices
    from cairn.reader.report import Report
    from cairn.reader.request_rates import FileManager
    from cairn.storage.base import ObjectStore

Item = TypeVar("Item")


class Listing(tuple[Item, ...], Generic[Item]):
    """A tuple of records, which is shown as a table and becomes one.

    Works as a tuple in all other respects.
    """

    __slots__ = ()

    def to_table(self) -> pa.Table:
        """Return the records as an Arrow table with a column per field."""
        if not self:
            return pa.table({})
        first = self[0]
        if not is_dataclass(first):
            return pa.table({"value": list(self)})
        names = [field.name for field in fields(first)]
        columns = {name: [_plain(getattr(item, name)) for item in self] for name in names}
        return pa.table(columns)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "()"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One committed batch.

    Attributes:
        batch: its number; the version of its state is one more.
        watermark_ms: the watermark that the batch leaves to the next one.
        provider: whose files its state is in: ``cairn``, ``rocksdb`` or ``hdfs``.
        partitions: of its state.
        checkpoint_format: Spark's, 1 or 2.
    """

    batch: int
    watermark_ms: int
    provider: str
    partitions: int | None
    checkpoint_format: int


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """One stateful operator.

    Attributes:
        operator: its number.
        name: Spark's name of it; ``None`` before Spark 4.0.
        partitions: of each store.
        stores: their names.
        variables: of ``transformWithState``.
    """

    operator: int
    name: str | None
    partitions: int
    stores: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One kind of rows: a store, or a column family of one.

    Attributes:
        operator: its operator's number.
        store: Spark's name of the store.
        family: Spark's name of the column family.
        name: a short name, unique within the operator: a variable, a side of a join, or the store.
        is_list: whether a key has several rows.
        is_internal: whether the operator has it for itself, such as an index.
        columns: of the rows.
        problem: why the rows cannot be read: their types are not known; ``None``: they can.
    """

    operator: int
    store: str
    family: str
    name: str
    is_list: bool
    is_internal: bool
    columns: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A batch that changed the rows of a key.

    Attributes:
        batch: the batch.
        before: the rows that the key had before; ``None`` if that is not known.
        after: those that it has since; without a row if it is gone.
    """

    batch: int
    before: pa.Table | None
    after: pa.Table


class Checkpoint:
    """The checkpoint of a query; ``cairn.open_checkpoint`` opens it.

    Attributes:
        location: as it was given.
        objects: those of the checkpoint.
        limits: of the memory of reads.
    """

    def __init__(self, location: str, objects: ObjectStore, limits: ReadLimits) -> None:
        self.location = location
        self.objects = objects
        self.limits = limits
        self._views: dict[int, BatchView] = {}

    # -- what there is ---------------------------------------------------------------------------

    @property
    def batches(self) -> Listing[int]:
        """The committed batches, ascending; the logs are listed each time.

        The state of the older ones may be gone: the logs keep more batches than the stores.
        """
        return Listing(list_batches(self.objects).committed)

    def view(self, batch: int | None = None) -> BatchView:
        """Return the metadata of a batch.

        Args:
            batch: a committed one; ``None``: the newest.

        Raises:
            NotThereError: the batch is not committed, or the logs do not have it any more.
        """
        number = self._newest() if batch is None else batch
        if number not in self._views:
            try:
                self._views[number] = BatchView(self.objects, number)
            except MissingError as failure:
                committed = self.batches
                if number in committed:
                    raise
                shown = f"{committed[0]} to {committed[-1]}" if committed else "none"
                raise NotThereError(
                    f"batch {number} is not committed; committed are: {shown}",
                    object_name=failure.object_name,
                    next_step="choose one of these; `cairn ls` lists them",
                ) from failure
        return self._views[number]

    def _newest(self) -> int:
        commits = spark_logs.batches(self.objects, COMMITS_PREFIX)
        # Almost always it has its entry in the offset log, too: that log need not be listed.
        with suppress(MissingError):
            for newest in commits[-1:]:
                if newest not in self._views:
                    self._views[newest] = BatchView(self.objects, newest)
                return newest
        committed = self.batches
        if not committed:
            raise NotThereError(
                "the query has not committed a batch yet",
                object_name=self.objects.object_url("commits/"),
                next_step="wait for its first batch",
            )
        return committed[-1]

    def describe_batches(self, batches: Iterable[int] | None = None) -> Listing[BatchInfo]:
        """Return facts about batches, by default all committed ones; two GETs per batch."""
        numbers = self.batches if batches is None else batches
        return Listing(self._describe(self.view(number)) for number in numbers)

    @staticmethod
    def _describe(view: BatchView) -> BatchInfo:
        return BatchInfo(
            batch=view.batch,
            watermark_ms=view.commit.watermark_ms,
            provider=view.provider,
            partitions=view.conf.partitions,
            checkpoint_format=view.checkpoint_format,
        )

    @property
    def providers(self) -> Listing[str]:
        """Whose files the state is in, at the newest batch."""
        return Listing([self.view().provider])

    @property
    def operators(self) -> Listing[OperatorInfo]:
        """The stateful operators at the newest batch."""
        return self.operators_at()

    def operators_at(self, batch: int | None = None) -> Listing[OperatorInfo]:
        """Return the stateful operators at a batch; ``None``: the newest."""
        return Listing(
            OperatorInfo(
                operator=one.id,
                name=one.name,
                partitions=one.partitions,
                stores=tuple(store.name for store in one.stores),
                variables=tuple(variable.name for variable in one.variables),
            )
            for one in self.view(batch).operators
        )

    @property
    def stores(self) -> Listing[StoreInfo]:
        """The stores and families of all operators at the newest batch."""
        return self.stores_at()

    def stores_at(self, batch: int | None = None) -> Listing[StoreInfo]:
        """Return the stores and families of all operators at a batch; ``None``: the newest."""
        view = self.view(batch)
        return Listing(
            StoreInfo(
                operator=operator.id,
                store=family.store.name,
                family=family.family,
                name=family.name,
                is_list=family.is_list,
                is_internal=family.is_internal,
                columns=tuple(column.name for column in family.columns),
                problem=None if family.failure is None else str(family.failure),
            )
            for operator in view.operators
            for family in view.families(operator)
        )

    def files_at(self, batch: int | None = None) -> Listing[StoreFiles]:
        """Return the objects of the stores per partition, those of all retained batches.

        Costs one LIST per 1,000 objects on S3.

        Args:
            batch: whose operators and stores these are; ``None``: the newest.
        """
        return Listing(
            files
            for operator in self.view(batch).operators
            for files in count_files(self.objects, operator)
        )

    # -- rows ------------------------------------------------------------------------------------

    def state(
        self,
        operator: int = 0,
        store: str | None = None,
        family: str | None = None,
        batch: int | None = None,
    ) -> State:
        """Return the rows of a store, or of a column family, at a batch.

        Args:
            operator: the operator's number.
            store: Spark's name of the store, or a short name: ``left`` and ``right`` of a join, a
                variable of ``transformWithState``. ``None``: the operator's only one.
            family: Spark's name of the column family, if the store has several.
            batch: a committed batch; ``None``: the newest.

        Raises:
            NotThereError: there is no such batch, operator or store.
            ConfigError: several fit: name one of them.
            DataError: the types of the rows cannot be read, or are not known; names them.
        """
        view = self.view(batch)
        of_operator = view.families(view.operator(operator))
        found = _choose(of_operator, store, family)
        if len(found) == 1:
            return self.state_of(found[0], view.batch)
        names = ", ".join(one.name for one in (found or of_operator))
        if found:
            raise ConfigError(
                f"operator {operator} has several kinds of rows: {names}",
                object_name=self.location,
                next_step="name one of them as the store",
            )
        for one in of_operator:
            if one.failure is not None and one.schema is None:  # it may have rows of this name
                raise one.failure.with_traceback(None)
        raise NotThereError(
            f"operator {operator} has no rows named {family or store!r}; it has: {names}",
            object_name=self.location,
            next_step="choose one of these",
        )

    def state_of(self, family: Family, batch: int) -> State:
        """Return the rows of a family of this batch."""
        return State(self.view(batch), family, self.limits)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> Iterator[Finding]:
        """Yield what is wrong with the checkpoint; see ``docs/reader.md``.

        Reads the whole state of the newest batch; of the others names, sizes and small objects.

        Args:
            progress: called with the number of partitions of stores that were read, and of all.
        """
        return verify(self.objects, self.location, self.limits, progress)

    def cost(
        self,
        *,
        prices: Prices | None = None,
        interval_s: float | None = None,
        file_manager: FileManager | None = None,
    ) -> Cost:
        """Return what the checkpoint costs per month on S3, where it goes, what would lower it.

        Objects, bytes, commits per batch and the time between batches are measured; requests are
        estimated. All objects are listed, and at most 400 are looked into.

        Args:
            prices: ``None``: the example that the package has, ``reader.prices.default_prices()``.
            interval_s: time between two batches, at least a microsecond; ``None``: by Spark's log.
            file_manager: whose requests Spark's own files need: ``cairn``, ``rename`` (Spark's
                default) or ``abortable`` (spark-hadoop-cloud). ``None``: ``cairn`` with Cairn's
                provider, else ``rename``.

        Raises:
            NotThereError: there is no committed batch.
            ConfigError: an argument is malformed, or the log does not say the time.
        """
        return cost(
            self.objects,
            self.view(),
            prices=prices,
            interval_s=interval_s,
            file_manager=file_manager,
        )

    def report(
        self,
        *,
        batch: int | None = None,
        operator: int | None = None,
        store: str | None = None,
        is_quick: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Return how large the state is, where it is uneven, how it has grown, and its findings.

        Reads all rows of the stores at the batch, unless ``is_quick``, and some small objects per
        batch. ``cairn report`` shows it as a page.

        Args:
            batch: a committed batch; ``None``: the newest.
            operator: the operator's number; ``None``: all.
            store: Spark's name of a store, or a short name, as for ``state``; ``None``: all.
            is_quick: whether no rows are read.
            progress: called with the number of partitions of stores that were read, and of all.

        Raises:
            NotThereError: there is no such batch, operator or store.
        """
        choice = Choice(batch, operator, store, is_quick)
        return make_report(self.objects, self.location, self.limits, choice, progress)

    def diff(
        self,
        before: int,
        after: int,
        *,
        operator: int = 0,
        store: str | None = None,
        family: str | None = None,
    ) -> Diff:
        """Return how the state of one batch differs from that of another.

        Args:
            before: a committed batch.
            after: another one, later or earlier.
            operator: see ``state``, as for the others.
            store: see ``state``.
            family: see ``state``.

        Raises:
            NotThereError, ConfigError: as for ``state``.
        """
        states = [
            self.state(operator=operator, store=store, family=family, batch=batch)
            for batch in (before, after)
        ]
        return Diff(*states)

    def changes(
        self,
        batches: tuple[int, int],
        *,
        operator: int = 0,
        store: str | None = None,
        family: str | None = None,
    ) -> ChangeFeed:
        """Return what each of several batches has written: per batch and key the net change.

        Only the writes are read, and no state. A key that was written with the value that it had
        is there, too; ``diff`` leaves it out.

        Args:
            batches: the first and the last; those between them that are committed.
            operator: see ``state``, as for the others.
            store: see ``state``.
            family: see ``state``.

        Raises:
            MissingError, ConfigError: as for ``state``; and no batch of these is committed.
        """
        first, last = batches
        numbers = [batch for batch in self.batches if first <= batch <= last]
        if not numbers:
            raise NotThereError(
                f"no batch from {first} to {last} is committed",
                object_name=self.objects.object_url("commits/"),
                next_step="choose others; `cairn ls` lists them",
            )
        return ChangeFeed(
            [
                self.state(operator=operator, store=store, family=family, batch=batch)
                for batch in numbers
            ]
        )

    def history(
        self,
        key: Mapping[str, Any],
        *,
        operator: int = 0,
        store: str | None = None,
        family: str | None = None,
        batches: tuple[int, int] | None = None,
    ) -> Iterator[KeyChange]:
        """Yield the batches that changed the rows of a key, ascending.

        The first one that is read counts as a change if it has the key: what was before is not
        known. Batches whose state is gone are passed over.

        Args:
            key: see ``State.get``.
            operator: see ``state``, as for the others.
            store: see ``state``.
            family: see ``state``.
            batches: the first and the last; ``None``: all whose state is there.

        Raises:
            MissingError, NotThereError: no batch could be read; this is the error of the last one.
            ConfigError, DataError: as for ``state`` and ``State.get``.
        """
        first, last = batches or (0, sys.maxsize)
        before: pa.Table | None = None
        failure: MissingError | NotThereError | None = None
        for batch in self.batches:
            if not first <= batch <= last:
                continue
            try:
                state = self.state(operator=operator, store=store, family=family, batch=batch)
                rows = state.get(key)
            except (MissingError, NotThereError) as problem:
                if before is not None:
                    raise
                failure = problem
                continue
            if rows.num_rows if before is None else not are_same_rows(rows, before):
                yield KeyChange(batch, before, rows)
            before = rows
        if before is None and failure is not None:
            raise failure

    def bisect(
        self,
        condition: Callable[[int], bool | None],
        *,
        is_monotonic: bool = True,
        batches: tuple[int, int] | None = None,
    ) -> Bisection:
        """Return the first batch at which a condition is true.

        Batches whose state is gone, which ``condition`` says by the error of the read, are passed
        over if they are older than those that it can read.

        Args:
            condition: of a batch; ``None`` counts as false. It reads the state as it likes:
                ``lambda batch: ck.state(batch=batch).count_keys() > 1000``.
            is_monotonic: the condition stays true once it is: a binary search, which looks at the
                newest batch first. If not, batches are looked at from the oldest on.
            batches: the first and the last that count; ``None``: all.
        """
        first, last = batches or (0, sys.maxsize)
        numbers = [batch for batch in self.batches if first <= batch <= last]
        return bisect(numbers, condition, is_monotonic=is_monotonic)

    def follow(self, *, after: int | None = None, poll_s: float = 1.0) -> Iterator[BatchInfo]:
        """Yield each batch as the running query commits it; never ends by itself.

        Args:
            after: begin behind this batch; ``None``: behind the newest of now.
            poll_s: how often the log of commits is listed.
        """
        seen = max(self.batches, default=-1) if after is None else after
        while True:
            for batch in self.batches:
                if batch > seen:
                    yield self._describe(self.view(batch))
                    self._views.pop(batch, None)
                    seen = batch
            SYSTEM_CLOCK.sleep(poll_s)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.objects.close()

    def __enter__(self) -> Self:
        """Return the checkpoint."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def __repr__(self) -> str:
        return f"Checkpoint({self.location!r})"


def _choose(
    families: tuple[Family, ...], store: str | None, family: str | None
) -> tuple[Family, ...]:
    """Return the families that the names mean: all, if they name none."""
    found = families
    if family is not None:
        found = tuple(one for one in found if family in (one.family, one.name))
    if store is not None:
        named = tuple(one for one in found if store == one.name)
        found = named or tuple(one for one in found if store == one.store.name)
    visible = tuple(one for one in found if not one.is_internal)
    return visible if len(found) > 1 and visible else found


def open_at(location: str, storage_options: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint at a location; see ``cairn.open_checkpoint``."""
    objects = open_location(location, storage_options)
    objects.cleans = False
    return Checkpoint(location, objects, ReadLimits())
