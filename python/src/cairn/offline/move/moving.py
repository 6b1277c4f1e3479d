"""StoreMover: moves stores of a checkpoint one by one, and reads each back.

Layer: offline.move. What one store needs is in a ``Move`` and a ``StoreRef``, which other processes
get: a process of this machine, or a task of Spark. The result of a store is an object of the
target, so that the work of a process that was killed is not done again.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.transfers import UPLOAD_THREADS, TransferResources
from cairn.engine.directories import WorkerDirectories
from cairn.errors import CairnError, CorruptError
from cairn.ids import StoreId
from cairn.location import open_location
from cairn.offline.move.cairn_writer import CairnWriter
from cairn.offline.move.digest import Digest
from cairn.offline.move.forms import converter
from cairn.offline.move.hdfs_writer import HdfsWriter
from cairn.offline.move.rocksdb_writer import RocksDbWriter
from cairn.offline.move.target import TargetStore, target_family
from cairn.reader.batch import BatchView
from cairn.reader.spark.logs import ROW_CHECKSUM
from cairn.reader.stores.base import ReadLimits
from cairn.rocks import RocksMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from cairn.offline.move.target import StateWriter, TargetFamily, Written
    from cairn.reader.families import Family
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.spark.logs import StateConf
    from cairn.reader.spark.operators import Operator, OperatorStore
    from cairn.reader.stores.opening import StorePlace
    from cairn.storage.base import ObjectStore

_CACHE_BYTES = 32 << 20
_MEMTABLE_BYTES = 8 << 20
_TOKEN_BYTES = 8
_RESULT_BYTES_MAX = 1 << 24
REPORT_EVERY_S = 2.0
"""How often a store that is being moved tells how many rows it has."""


@dataclass(frozen=True, slots=True)
class Location:
    """A checkpoint location.

    Attributes:
        url: as it was given.
        options: how to reach it.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> ObjectStore:
        """Return its objects; the caller closes them."""
        return open_location(self.url, self.options)


@dataclass(frozen=True, slots=True)
class StoreRef:
    """One store of an operator in one partition."""

    operator: int
    store: str
    partition: int

    @property
    def id(self) -> StoreId:
        """What its objects name."""
        return StoreId(self.operator, self.partition, self.store)


@dataclass(frozen=True, slots=True)
class Move:
    """What all stores of a move have in common.

    Attributes:
        source: where the rows are.
        source_batch: at which batch.
        target: where they go; it may be the same place.
        batch: that of the version that is written.
        checkpoint_format: Spark's, of the target.
        conf: of the target's batch: its provider, codec, and so on.
        results: folder of the target with the results of stores.
        token: names this piece of work.
        memory_bytes: of the changes that one store's reader holds.
        local_dir: on the local disk; ``None``: the folder of temporary files.
    """

    source: Location
    source_batch: int
    target: Location
    batch: int
    checkpoint_format: int
    conf: StateConf
    results: str
    token: str
    memory_bytes: int
    local_dir: str | None = None

    @property
    def local_folder(self) -> Path:
        """The folder on the local disk, also if none was named."""
        return Path(self.local_dir or Path(tempfile.gettempdir(), f"cairn-offline-{os.getuid()}"))

    def mover(self) -> StoreMover:
        """Return what moves its stores, one by one; the caller closes it."""
        return StoreMover(self)


@dataclass(frozen=True, slots=True)
class Moved:
    """A store that was moved, and read back.

    Attributes:
        store: which one.
        checkpoint_id: of the version, for Spark's commit log; ``None`` in checkpoint format 1.
        keys: their number, by family.
        digests: of the rows in the form of the source, by family, as hexadecimal numbers.
        stored_bytes: size of the objects.
    """

    store: StoreRef
    checkpoint_id: str | None
    keys: Mapping[str, int]
    digests: Mapping[str, str]
    stored_bytes: int

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Return what ``as_json`` made."""
        found = json.loads(data)
        return cls(**{**found, "store": StoreRef(**found["store"])})

    def as_json(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self)).encode()


def key_of_result(results: str, store: StoreRef) -> str:
    """Return the object with the result of a store; ``results``: see ``Move``."""
    return f"{results}/{store.operator}-{store.partition}-{store.store}.json"


def read_results(
    target: ObjectStore, results: str, known: Iterable[StoreRef] = ()
) -> dict[StoreRef, Moved]:
    """Return the results that are there; a LIST, and a GET per store.

    Args:
        target: where the stores go.
        results: see ``Move``.
        known: stores whose results are not wanted.
    """
    left_out = {key_of_result(results, store) for store in known}
    keys = [info.key for info in target.list(f"{results}/") if info.key not in left_out]
    with ThreadPoolExecutor(16) as threads:
        found = threads.map(lambda key: target.get(key, max_bytes=_RESULT_BYTES_MAX).data, keys)
        return {one.store: one for one in map(Moved.from_json, found)}


@dataclass(frozen=True, slots=True)
class FamilyRows:
    """How the rows of a family pass."""

    family: Family
    target: TargetFamily
    to_target: Callable[[StoredRows], StoredRows]
    to_source: Callable[[StoredRows], StoredRows]


class StoreMover:
    """See the module. Not thread-safe.

    Args:
        move: what all stores have in common.

    Attributes:
        on_rows: called now and then with how many rows of the present store have been read.
    """

    def __init__(self, move: Move) -> None:
        self._move = move
        self._limits = ReadLimits(move.memory_bytes)
        self.on_rows: Callable[[int], None] | None = None
        self._count = 0
        with ExitStack() as opened:
            temporary = Path(tempfile.gettempdir())
            self._directories = WorkerDirectories(move.local_folder, temporary)
            opened.callback(self._directories.remove)
            self._source = opened.enter_context(move.source.open())
            self._target = opened.enter_context(move.target.open())
            uploads = opened.enter_context(ThreadPoolExecutor(UPLOAD_THREADS, "cairn-upload"))
            self._resources = TransferResources(
                cache=SstCache(self._directories.cache_directory, 0),
                downloads=uploads,
                uploads=uploads,
            )
            self._memory = RocksMemory(_CACHE_BYTES, _MEMTABLE_BYTES)
            self._view = BatchView(self._source, move.source_batch)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Free the disk, and close the connections."""
        self._opened.close()

    def __enter__(self) -> Self:
        """Return the mover."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def move(self, ref: StoreRef) -> Moved:
        """Write a store, read it back, and store the result.

        Raises:
            CorruptError: the source cannot be read, or the target does not have its rows.
            UnsupportedStateError: the target's provider has no such state.
            CairnError: others of the storages; each names the store and its version.
        """
        try:
            operator, place, rows = self._look(ref)
            return self._write(ref, operator, place, rows, self._read(place, ref, rows))
        except CairnError as failure:
            version = self._move.source_batch + 1
            raise failure.with_context(store=str(ref.id), version=version) from failure.__cause__

    def _look(self, ref: StoreRef) -> tuple[Operator, StorePlace, list[FamilyRows]]:
        """Return what a store is of, where it is at the source, and its families."""
        operator = self._view.operator(ref.operator)
        store = next(one for one in operator.stores if one.name == ref.store)
        place = self._view.place(operator, store)
        return operator, place, list(self._families(operator, store))

    def _write(
        self,
        ref: StoreRef,
        operator: Operator,
        place: StorePlace,
        rows: list[FamilyRows],
        source: Iterable[tuple[FamilyRows, StoredRows]],
    ) -> Moved:
        """Write rows of the source to a store, read it back, and store the result."""
        target = TargetStore(
            provider=self._move.conf.provider,
            store=ref.id,
            version=self._move.batch + 1,
            checkpoint_format=self._move.checkpoint_format,
            has_families=operator.has_families,
            families=tuple(one.target for one in rows),
            conf=self._move.conf,
        )
        digests = {one.family.family: Digest() for one in rows}
        with self._writer(target, ref) as writer:
            for one, some in self._counted(source):
                digests[one.family.family].add(some)
                writer.add(one.target.name, one.to_target(some))
            written = writer.finish()
        moved = Moved(
            store=ref,
            checkpoint_id=written.checkpoint_id,
            keys={name: digest.rows for name, digest in digests.items()},
            digests={name: f"{digest.value:016x}" for name, digest in digests.items()},
            stored_bytes=written.stored_bytes,
        )
        self._require_same(moved, place, rows, written)
        self._target.put(key_of_result(self._move.results, ref), moved.as_json())
        return moved

    def _counted(
        self, source: Iterable[tuple[FamilyRows, StoredRows]]
    ) -> Iterator[tuple[FamilyRows, StoredRows]]:
        """Yield the rows, and tell now and then how many there were."""
        count, told = 0, time.monotonic()
        for one, some in source:
            yield one, some
            count += len(some.keys)
            if self.on_rows is not None and time.monotonic() - told > REPORT_EVERY_S:
                self.on_rows(count)
                told = time.monotonic()

    def _families(self, operator: Operator, store: OperatorStore) -> Iterator[FamilyRows]:
        for family in self._view.families(operator):
            if family.store.name == store.name:
                target = target_family(family, self._move.conf.provider)
                schema = target.schema
                yield FamilyRows(
                    family,
                    target,
                    converter(family.form, target.form, schema),
                    converter(target.form, family.form, schema),
                )

    def _read(
        self, place: StorePlace, ref: StoreRef, rows: Iterable[FamilyRows]
    ) -> Iterator[tuple[FamilyRows, StoredRows]]:
        lists = frozenset(one.family.family for one in rows if one.family.is_list)
        with place.open(ref.partition, lists, self._limits) as store:
            for one in rows:
                if one.family.family in store.families:  # else there is no row of it yet
                    for some in store.rows(one.family.family):
                        yield one, some

    def _require_same(
        self, moved: Moved, source: StorePlace, rows: list[FamilyRows], written: Written
    ) -> None:
        """Read the target, and compare its rows with those that were read from the source."""
        ids = None
        if written.checkpoint_id is not None:
            before: tuple[tuple[str, ...], ...] = ((),) * moved.store.partition
            ids = (*before, (written.checkpoint_id,))
        conf = self._move.conf
        place = replace(
            source,
            objects=self._target,
            provider=conf.provider,
            version=self._move.batch + 1,
            unique_ids=ids,
            list_delimiter=conf.list_delimiter,
            has_row_checksums=conf.flag(ROW_CHECKSUM),
        )
        digests = {one.family.family: Digest() for one in rows}
        for one, some in self._read(place, moved.store, rows):
            digests[one.family.family].add(one.to_source(some))
        for name, digest in digests.items():
            if (digest.rows, f"{digest.value:016x}") != (moved.keys[name], moved.digests[name]):
                raise CorruptError(
                    f"family {name!r} was written with {moved.keys[name]} keys, and read back with "
                    f"{digest.rows}, or with other rows",
                    store=str(moved.store.id),
                    version=self._move.batch + 1,
                    object_name=self._target.object_url(moved.store.id.folder),
                    next_step="repeat the command; if it fails again, report it",
                )

    def _writer(self, target: TargetStore, ref: StoreRef) -> StateWriter:
        self._count += 1
        directory = self._directories.instance_directory(self._count)
        provider = target.provider
        if provider == "hdfs":
            return HdfsWriter(self._target, target, directory)
        if provider == "rocksdb":
            return RocksDbWriter(self._target, target, directory)
        root = self._target.at(self._target.object_url(ref.id.folder))
        return CairnWriter(
            root, target, directory, self._memory, self._resources, work=self._move.token
        )
