"""StorePlace: where the files of a store are, and the class that reads them.

Layer: reader.stores.
"""

from __future__ import annotations

import atexit
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.checkpoint.reader_pins import ReaderPins
from cairn.checkpoint.stored_versions import StoredVersions
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY
from cairn.errors import MissingError
from cairn.ids import StoreId
from cairn.reader.stores.cairn import CairnRows
from cairn.reader.stores.hdfs import HdfsRows
from cairn.reader.stores.rocksdb import RocksDbRows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from cairn.reader.spark.logs import Provider
    from cairn.reader.stores.base import ReadLimits, StoreRows
    from cairn.storage.base import ObjectStore

_STORES_OF_A_JOIN = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
"""In the order in which the commit log has their ids."""


@functools.cache
def _reader_pins() -> ReaderPins:
    """Return the pins of this process; their thread ends with it.

    So do the pins of reads that nobody has closed: the query may have ended, and sweep no more.
    """
    pins = ReaderPins(SYSTEM_CLOCK, SYSTEM_ENTROPY)
    pins.start()
    atexit.register(pins.end_all)
    return pins


def in_order_of_ids(stores: Collection[str]) -> list[str]:
    """Return the stores of an operator in the order in which the commit log has their ids."""
    order = _STORES_OF_A_JOIN.index
    return sorted(stores, key=order) if len(stores) > 1 else list(stores)


@dataclass(frozen=True, slots=True)
class StorePlace:
    """One store of an operator at one version, in all its partitions.

    Attributes:
        objects: at the checkpoint's location.
        provider: whose files these are.
        operator: its operator's number.
        store: Spark's name of the store.
        version: of the state.
        unique_ids: of checkpoint format 2, by partition: one id per store; ``None`` in format 1.
        list_delimiter: of lists in Spark's RocksDB.
        has_row_checksums: whether Spark's providers have stored a checksum per row.
    """

    objects: ObjectStore
    provider: Provider
    operator: int
    store: str
    version: int
    unique_ids: tuple[tuple[str, ...], ...] | None
    list_delimiter: bytes
    has_row_checksums: bool

    def folder(self, partition: int) -> str:
        """Return the folder of a partition, relative to the checkpoint."""
        return StoreId(self.operator, partition, self.store).folder

    def open(self, partition: int, list_families: Collection[str], limits: ReadLimits) -> StoreRows:
        """Return the rows of a partition; the caller closes them.

        Args:
            partition: its number.
            list_families: families of Spark's stores whose values are lists.
            limits: of the memory.

        Raises:
            DataError: the version cannot be read; names the object.
        """
        folder = self.folder(partition)
        id_ = self.id_of(partition)
        if self.provider == "hdfs":
            return HdfsRows(
                self.objects,
                folder,
                self.version,
                has_row_checksums=self.has_row_checksums,
                limits=limits,
            )
        if self.provider == "rocksdb":
            return RocksDbRows(
                self.objects,
                folder,
                self.version,
                checkpoint_id=id_,
                list_families=list_families,
                list_delimiter=self.list_delimiter,
                has_row_checksums=self.has_row_checksums,
                limits=limits,
            )
        root = self.objects.at(self.objects.object_url(folder))
        store = StoreId(self.operator, partition, self.store)
        versions = StoredVersions(root, store, 1 if self.unique_ids is None else 2)
        try:
            return CairnRows(versions, self.version, id_, limits, _reader_pins())
        except BaseException:
            root.close()
            raise

    def at_batch(
        self, batch: int, unique_ids: Mapping[int, tuple[tuple[str, ...], ...]] | None
    ) -> StorePlace:
        """Return the store at another batch.

        Args:
            batch: the batch.
            unique_ids: those of all operators at that batch, by the operator's number.
        """
        ids = None if unique_ids is None else unique_ids.get(self.operator, ())
        return replace(self, version=batch + 1, unique_ids=ids)

    def id_of(self, partition: int) -> str | None:
        """Return Spark's id of the version; ``None`` in checkpoint format 1.

        Raises:
            MissingError: the commit log has none.
        """
        if self.unique_ids is None:
            return None
        if partition < len(self.unique_ids):
            ids = self.unique_ids[partition]
            if len(ids) == 1:
                return ids[0]
            if self.store in _STORES_OF_A_JOIN[: len(ids)]:
                return ids[_STORES_OF_A_JOIN.index(self.store)]
        raise MissingError(
            f"the commit log has no id of the store {self.operator}/{partition}/{self.store}",
            version=self.version,
            object_name=self.objects.object_url(f"commits/{self.version - 1}"),
            next_step="restore the entry from the bucket's versions or a backup",
        )
