"""BatchView: the metadata of one committed batch: settings, ids, operators, families.

Layer: reader.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cairn.errors import DataError, NotThereError
from cairn.format.spark_log import COMMITS_PREFIX
from cairn.reader.families import Family, families_of, unread_family
from cairn.reader.spark.logs import ROW_CHECKSUM, read_commit, read_conf
from cairn.reader.spark.operators import read_operator, read_operators
from cairn.reader.spark.schema_files import read_families
from cairn.reader.stores.opening import StorePlace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cairn.format.spark_log import CommitEntry
    from cairn.reader.spark.logs import Provider, StateConf
    from cairn.reader.spark.operators import Operator, OperatorStore
    from cairn.storage.base import ObjectStore


class BatchView:
    """The metadata of one committed batch: settings, ids, operators, families.

    Args:
        objects: at the checkpoint's location.
        batch: a committed one.
    """

    def __init__(self, objects: ObjectStore, batch: int) -> None:
        self.objects = objects
        self.batch = batch
        self.conf: StateConf = read_conf(objects, batch)
        self.commit: CommitEntry = read_commit(objects, batch)
        self._operators: tuple[Operator, ...] | None = None
        self._by_number: dict[int, Operator | None] = {}
        self._families: dict[int, tuple[Family, ...]] = {}
        self._lock = threading.Lock()

    @property
    def provider(self) -> Provider:
        """Whose files the state is in."""
        return self.conf.provider

    @property
    def checkpoint_format(self) -> int:
        """Spark's checkpoint format, 1 or 2."""
        return 1 if self.commit.unique_ids is None else 2

    @property
    def committed_ms(self) -> int | None:
        """When its commit was stored, by the storage's clock; ``None``: it is gone. Costs a LIST.

        It tells a batch from one that had its number before the query went back.
        """
        key = f"{COMMITS_PREFIX}{self.batch}"
        listed = self.objects.list(COMMITS_PREFIX)
        return next((info.modified_ms for info in listed if info.key == key), None)

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The stateful operators."""
        with self._lock:
            if self._operators is None:
                ids = self.commit.unique_ids
                self._operators = read_operators(
                    self.objects, self.batch, self.conf.partitions, max(ids) + 1 if ids else None
                )
            return self._operators

    def operator(self, number: int) -> Operator:
        """Return an operator; nothing is read of the others.

        Raises:
            NotThereError: there is none with this number.
        """
        with self._lock:
            if self._operators is not None:
                self._by_number |= {one.id: one for one in self._operators}
            if number not in self._by_number:
                self._by_number[number] = read_operator(
                    self.objects, number, self.batch, self.conf.partitions
                )
            found = self._by_number[number]
        if found is not None:
            return found
        numbers = ", ".join(str(one.id) for one in self.operators) or "none"
        raise NotThereError(
            f"there is no operator {number} at batch {self.batch}; there are: {numbers}",
            object_name=self.objects.object_url(f"state/{number}"),
            next_step="choose one of these; `cairn ls` lists them",
        )

    def families(self, operator: Operator) -> tuple[Family, ...]:
        """Return all kinds of rows of an operator, also those that cannot be read."""
        with self._lock:
            found = self._families.get(operator.id)
        if found is None:
            found = tuple(self._read_families(operator))
            if all(one.failure is None for one in found):  # else someone may restore the object
                with self._lock:
                    self._families[operator.id] = found
        return found

    def _read_families(self, operator: Operator) -> Iterable[Family]:
        for store in operator.stores:
            place = self.place(operator, store)
            try:
                schemas = read_families(self.objects, operator, store)
            except DataError as failure:
                yield unread_family(operator, store, place, failure)
                continue
            yield from families_of(self.conf, operator, store, schemas, place)

    def partitions(self, operator: Operator) -> int:
        """Return how many partitions of an operator have stores: one, if its rows have no key."""
        return self.families(operator)[0].partitions

    def place(self, operator: Operator, store: OperatorStore) -> StorePlace:
        """Return where the files of a store are."""
        ids = self.commit.unique_ids
        return StorePlace(
            objects=self.objects,
            provider=self.provider,
            operator=operator.id,
            store=store.name,
            version=self.batch + 1,
            unique_ids=None if ids is None else ids.get(operator.id, ()),
            list_delimiter=self.conf.list_delimiter,
            has_row_checksums=self.conf.flag(ROW_CHECKSUM),
        )
