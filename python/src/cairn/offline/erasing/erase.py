"""erase: the rows of a key leave every store, family and retained version.

Layer: offline.erasing.  Spec: docs/moving.md#erase-a-persons-keys. A batch without input has the
state without them. Once it is committed, all older objects of the stores that had the key are
deleted, so that no earlier version of these stores can be read.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from cairn.errors import (
    CairnError,
    ConfigError,
    CorruptError,
    DataError,
    InUseError,
    NotThereError,
)
from cairn.format.names import CHANGELOG_PREFIX, ChangelogName, ManifestName, parse_name
from cairn.ids import StoreId
from cairn.offline import savepoint
from cairn.offline.appended_batch import AppendedBatch, find_appended, require_own
from cairn.offline.erasing.matching import KeyMatcher, WithoutKey, has_key, name_of
from cairn.offline.erasing.scanning import StoreScan, scan
from cairn.offline.move.committing import free_plain_name
from cairn.offline.move.editing import EditMove, unchanged_stores
from cairn.offline.move.moving import StoreRef
from cairn.offline.move.running import run_move
from cairn.offline.move.totals import checkpoint_ids
from cairn.offline.parallel import in_parallel
from cairn.offline.plan import CommittedPlan
from cairn.offline.record import FOLDER
from cairn.offline.stores import PartitionStore, cairn_stores
from cairn.reader.savepoints import read_savepoint, savepoint_names
from cairn.reader.spark.logs import STRICT_DISTRIBUTION
from cairn.reader.stores.base import ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from cairn.clock import Clock
    from cairn.offline.move.moving import Location, Moved
    from cairn.offline.move.running import MoveProgress
    from cairn.offline.record import Record
    from cairn.reader.families import Family

COMMAND: Final = "erase"
_THREADS = 4
_READ_BYTES_MAX = 64 << 20
_RECORD_BYTES_MAX = 1 << 30
_DELETIONS = "deletions.json"


@dataclass(frozen=True, slots=True)
class ErasedStore:
    """One store that is written anew, and whose older objects are deleted.

    Attributes:
        operator: its operator's number.
        store: Spark's name of it.
        partition: its partition.
        keys: of the last version, by family: those that are removed.
        objects: how many objects of all versions have the key.
    """

    operator: int
    store: str
    partition: int
    keys: Mapping[str, int]
    objects: int


class ErasePlan(CommittedPlan):
    """What is erased; ``apply`` does it. Close it, or use it in a ``with`` statement.

    Making the plan reads all objects of the stores that may have the key.

    Args:
        checkpoint: the query's checkpoint.
        key: values by the names of key columns.
        clock: tells the time.
        operator: the number of the only operator that is looked at; ``None``: all.
        convert: makes a value of a type from one of the command line.
        progress: called with how many stores were read, and of how many.

    Attributes:
        batch: the last committed one.
        stores: those that have the key, in their last version or in an object of any version.
        savepoints: their names, that need objects of these stores; they have to be deleted, but
            those that a killed process was allowed to delete.
        families: of the families that have such a key: operator and name.
        others: of the families that have such columns in their values alone, and are left as they
            are.
        is_committed: the batch without the key is there already; older objects are left to delete.

    Raises:
        NotThereError: no family has such a key, or no batch is committed.
        ConfigError: a value is not of its column's type.
        UnsupportedStateError: it is the state of Spark's own provider.
        DataError: the state cannot be read.
    """

    def __init__(
        self,
        checkpoint: Location,
        key: Mapping[str, Any],
        clock: Clock,
        *,
        operator: int | None = None,
        convert: Callable[[Any, pa.DataType], Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if not key:
            raise ConfigError("the key names no column", next_step="name at least one")
        super().__init__(checkpoint, clock)
        with self._closed_on_failure():
            require_own(self._view, "of which nothing is erased here")
            operators = (
                self._view.operators if operator is None else (self._view.operator(operator),)
            )
            every = [one for each in operators for one in self._view.families(each)]
            for family in every:
                if family.failure is not None:
                    raise family.failure.with_traceback(None)
            matched = [one for one in every if has_key(one, list(key))]
            if not matched:
                raise self._no_family(key, every)
            self._matchers = {name_of(one): KeyMatcher(one, key, convert) for one in matched}
            self._hash = self._hash_of(key)
            self._operator = operator
            self.families = tuple((one.operator.id, one.name) for one in matched)
            self.others = tuple(
                (one.operator.id, one.name)
                for one in every
                if one not in matched and {*key} & {column.name for column in one.columns}
            )
            self._unfinished = find_appended(
                self._view, COMMAND, self._work, clock, self._first_store
            )
            self.is_committed = self._unfinished is not None
            self._scans = () if self.is_committed else tuple(self._scan(matched, progress))
            self.stores = tuple(map(_as_erased, self._scans))
            self.savepoints = tuple(self._savepoints())

    def apply(
        self,
        *,
        deletes_savepoints: bool = False,
        session: Any = None,  # noqa: ANN401 - pyspark is no dependency
        processes: int | None = None,
        local_dir: Path | None = None,
        progress: Callable[[MoveProgress], None] | None = None,
    ) -> tuple[ErasedStore, ...]:
        """Erase the key; return what was done.

        If it is cut off before the batch is committed, nothing has happened for the query; after
        that the same command deletes what is left.

        Args:
            deletes_savepoints: ``savepoints`` are deleted; otherwise they are an error.
            session: a ``SparkSession``: each store is a task of it. Its executors need Cairn, and
                the rights to read and write the checkpoint. ``None``: processes of this machine.
            processes: how many; ``None``: one per processor.
            local_dir: on the local disk, as large as the stores that are written at a time;
                ``None``: the folder of temporary files.
            progress: called after each store, and every few seconds.

        Raises:
            ConfigError: savepoints need the objects, and may not be deleted.
            InUseError: a driver seems to use the checkpoint, or its last batch is not committed.
            CorruptError: the state cannot be read, or other rows differ when they are read back.
            CairnError: call it again.
        """
        if self._unfinished is not None:
            return self._delete(self._unfinished, deletes_savepoints=deletes_savepoints)
        if not self.stores:
            return ()
        if not deletes_savepoints:
            self._refuse(self.savepoints)
        refs = [StoreRef(one.operator, one.store, one.partition) for one in self.stores]
        # What was noted for an earlier attempt may not be all that is there now.
        with AppendedBatch(
            self._checkpoint, self._view, COMMAND, self._work, self._clock, starts_anew=True
        ) as batch:
            record = batch.record
            self._require_savepoints()
            self._note_deletions(record)
            move = EditMove(
                source=self._location,
                source_batch=self.batch,
                target=self._location,
                batch=batch.number,
                checkpoint_format=self._view.checkpoint_format,
                conf=self._view.conf,
                results=f"{record.results}/stores",
                token=record.name,
                memory_bytes=ReadLimits().memory_bytes,
                local_dir=None if local_dir is None else str(local_dir),
                edit=WithoutKey({name: one.key for name, one in self._matchers.items()}),
            )
            moved = run_move(move, refs, session=session, processes=processes, progress=progress)
            self._require_others(moved)
            others = unchanged_stores(self._view, frozenset(moved), COMMAND, self._clock)
            batch.finish(
                conf={},
                unique_ids=checkpoint_ids(moved | others, self._view.checkpoint_format),
                checkpoint_format=self._view.checkpoint_format,
                done=(),
                ends=False,
            )
        return self._delete(record, deletes_savepoints=deletes_savepoints)

    @property
    def _work(self) -> dict[str, object]:
        return {"key_sha256": self._hash, "operator": self._operator}

    def _hash_of(self, key: Mapping[str, Any]) -> str:
        """Return what names the key in records: nobody reads it there, who does not know it."""
        query = self._checkpoint.get("metadata", max_bytes=_READ_BYTES_MAX).data
        text = json.dumps(key, sort_keys=True, default=str)
        return hashlib.sha256(query + text.encode()).hexdigest()

    def _no_family(self, key: Mapping[str, Any], families: list[Family]) -> CairnError:
        names = "; ".join(
            f"{one.operator.id}/{one.name}: {', '.join(c.name for c in one.columns if c.is_key)}"
            for one in families
            if not one.is_internal
        )
        return NotThereError(
            f"no store has a key with the columns {', '.join(key)}; there are {names or 'none'}",
            object_name=self._checkpoint.url,
            next_step="name some of these columns",
        )

    # -- what has the key ------------------------------------------------------------------------

    def _scan(
        self, matched: list[Family], progress: Callable[[int, int], None] | None
    ) -> Iterator[StoreScan]:
        """Yield the stores that have the key."""
        stores = [one for one in cairn_stores(self._view) if self._may_have(one, matched)]
        look = partial(self._scan_one, limits=ReadLimits(ReadLimits().memory_bytes // _THREADS))
        for found in in_parallel(look, stores, threads=_THREADS, progress=progress):
            if found.has_key:
                yield found

    def _may_have(self, store: PartitionStore, matched: list[Family]) -> bool:
        operator = store.id.operator
        names = [name_of(one) for one in matched if one.operator.id == operator]
        if (operator, store.id.name) not in {name[:2] for name in names}:
            return False
        if not self._view.conf.flag(STRICT_DISTRIBUTION):
            return True
        # All families of an operator have the rows of a key in one partition.
        known = {self._matchers[name].partition() for name in names} - {None}
        return not known or store.partition in known

    def _scan_one(self, store: PartitionStore, *, limits: ReadLimits) -> StoreScan:
        operator = self._view.operator(store.id.operator)
        families = [one for one in self._view.families(operator) if one.store.name == store.id.name]
        matchers = {
            family: one
            for (number, name, family), one in self._matchers.items()
            if (number, name) == (store.id.operator, store.id.name)
        }
        return scan(store, families, matchers, limits)

    def _savepoints(self) -> Iterator[str]:
        """Yield the savepoints that need objects of the stores, but those that may be deleted."""
        if self._unfinished is None:
            yield from self._needing({one.store.id for one in self._scans})
            return
        noted = self._noted(self._unfinished)
        ids = {StoreId(one["operator"], one["partition"], one["store"]) for one in noted["stores"]}
        batch = self._unfinished.steps[0]["batch"]
        assert isinstance(batch, int)  # noqa: S101 - ``find_appended`` has looked
        for name in self._needing(ids, before=batch):
            if name not in noted["savepoints"]:
                yield name

    def _needing(self, ids: set[StoreId], before: int | None = None) -> Iterator[str]:
        """Yield the savepoints that need objects of stores, or are damaged.

        Args:
            ids: of the stores.
            before: only savepoints of earlier batches; ``None``: all.
        """
        for name in savepoint_names(self._checkpoint):
            try:
                found = read_savepoint(self._checkpoint, name)
            except CorruptError:
                yield name
                continue
            is_earlier = before is None or found.batch < before
            if is_earlier and ids & {one.store for one in found.stores}:
                yield name

    def _refuse(self, savepoints: Sequence[str]) -> None:
        """Raise an error if there are any."""
        if savepoints:
            raise ConfigError(
                f"these savepoints have the key, or need objects that have it: "
                f"{', '.join(savepoints)}",
                object_name=self._checkpoint.url,
                next_step="let them be deleted, too: --savepoints",
            )

    def _require_savepoints(self) -> None:
        """Require that there is no savepoint of which the plan does not know. None is created now.

        Raises:
            InUseError: there is one.
        """
        if new := set(self._savepoints()) - set(self.savepoints):
            raise InUseError(
                f"the savepoint {min(new)} was created meanwhile",
                object_name=self._checkpoint.url,
                next_step="repeat the command",
            )

    def _require_others(self, moved: Mapping[StoreRef, Moved]) -> None:
        """Require that each store has all rows that are not meant, and no others."""
        for one in self._scans:
            id_ = one.store.id
            written = moved[StoreRef(id_.operator, id_.name, id_.partition)]
            for name, family in one.families.items():
                if (written.keys[name], written.digests[name]) != (family.others, family.digest):
                    raise CorruptError(
                        f"family {name!r} has {written.keys[name]} keys, and not the "
                        f"{family.others} others that it had before, or other rows",
                        store=str(id_),
                        version=self.batch + 2,
                        next_step="repeat the command; if it fails again, report it",
                    )

    # -- older objects ---------------------------------------------------------------------------

    def _note_deletions(self, record: Record) -> None:
        """Store which objects are deleted once the batch is committed: all that are there now.

        No name that is noted is used again: those of checkpoint format 1 that a driver may use have
        an id then.
        """
        folders = [f"{one.store.id.folder}/" for one in self._scans]
        for one in self._scans:
            self._free_names(one.store)
        keys = [info.key for folder in folders for info in self._checkpoint.list(folder)]
        copies = [
            info.key
            for info in self._checkpoint.list(f"{FOLDER}/")
            if "/removed/" in info.key
            and any(info.key.partition("/removed/")[2].startswith(folder) for folder in folders)
        ]
        noted = {
            "keys": sorted(keys, key=_order) + copies,
            "savepoints": list(self.savepoints),
            "stores": [asdict(one) for one in self.stores],
        }
        key = f"{record.results}/{_DELETIONS}"
        self._checkpoint.put(key, json.dumps(noted).encode())

    def _free_names(self, store: PartitionStore) -> None:
        """Rename the changelogs of versions that were given up, which have no id in their names."""
        with store.open() as root:
            for info in list(root.list(CHANGELOG_PREFIX)):
                name = parse_name(info.key)
                if not isinstance(name, ChangelogName) or name.checkpoint_id is not None:
                    continue
                if name.version > store.version:
                    try:
                        free_plain_name(root, store.id, name.version)
                    except DataError:
                        root.delete([info.key])  # nobody can read it, and it may have the key

    def _delete(self, record: Record, *, deletes_savepoints: bool) -> tuple[ErasedStore, ...]:
        """Delete what was noted, and end the record. REQUIRES: the batch is committed.

        Raises:
            ConfigError: savepoints that were created since need the objects, and may not be
                deleted.
        """
        noted = self._noted(record)
        self._unfinished = record
        later = list(self._savepoints())
        if not deletes_savepoints:
            self._refuse(later)
        savepoints = [*noted["savepoints"], *later]
        there = set(savepoint_names(self._checkpoint))
        for name in savepoints:
            if name in there:
                savepoint.delete(self._checkpoint, name)
        self._checkpoint.delete(noted["keys"])
        stores = tuple(ErasedStore(**one) for one in noted["stores"])
        record.end(
            [
                *(asdict(one) for one in stores),
                {"deleted_objects": len(noted["keys"]), "savepoints": savepoints},
            ]
        )
        return stores

    def _noted(self, record: Record) -> dict[str, Any]:
        """Return what a record's deletions are."""
        key = f"{record.results}/{_DELETIONS}"
        found = json.loads(self._checkpoint.get(key, max_bytes=_RECORD_BYTES_MAX).data)
        return cast("dict[str, Any]", found)

    def _first_store(self, record: Record) -> StoreId:
        """Return one of the stores that a record's batch writes."""
        first = self._noted(record)["stores"][0]
        return StoreId(first["operator"], first["partition"], first["store"])


def _order(key: str) -> tuple[bool, str]:
    """Return what sorts manifests first: one that is listed is whole."""
    name = "/".join(key.rsplit("/", 2)[-2:])
    return not isinstance(parse_name(name), ManifestName), key


def _as_erased(found: StoreScan) -> ErasedStore:
    id_ = found.store.id
    keys = {name: one.keys for name, one in found.families.items() if one.keys}
    return ErasedStore(id_.operator, id_.name, id_.partition, keys, found.objects)
