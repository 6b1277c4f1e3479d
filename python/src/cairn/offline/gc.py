"""gc: deletes what failed attempts and former runs have left in a checkpoint.

Layer: offline.  Spec: docs/reader.md#gc, docs/checkpoint-format.md#deletion (orphans). What an
orphan is, and the order of deletion, are those of the sweeps of a running query; but all versions
that Spark's logs name stay.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

from cairn.checkpoint.orphans import SweepLimits, find_orphans, sweep_orphans
from cairn.checkpoint.pins import list_pins
from cairn.checkpoint.retention import KeptVersions
from cairn.errors import DataError
from cairn.format.manifest import ChangelogRef
from cairn.format.names import ManifestName, parse_name
from cairn.offline.hold import HeldCheckpoint, list_unheld
from cairn.offline.parallel import in_parallel
from cairn.offline.plan import Plan
from cairn.offline.record import Record, find_records
from cairn.offline.savepoint import DEAD_MS
from cairn.offline.savepoint_list import dead_pins, savepoint_ids
from cairn.offline.stores import PartitionStore, cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.verify import read_ids
from cairn.store.load.lineage import listed_snapshots
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cairn.clock import Clock
    from cairn.format.manifest import Manifest
    from cairn.reader.findings import Place
    from cairn.reader.verify import Ids, Progress
    from cairn.storage.base import ObjectInfo, ObjectStore

_LOG = logging.getLogger(__name__)
_THREADS = 8
_NO_PARTITION = "of a partition that no retained batch has"
_UNFINISHED = "a pin of a savepoint that was not finished, or is deleted"


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that nothing needs.

    Attributes:
        place: its store.
        object_name: its URL.
        size_bytes: its size; 0 for a pin.
        reason: why nothing needs it.
    """

    place: Place
    object_name: str
    size_bytes: int
    reason: str


class GcPlan(Plan):
    """The orphans of a checkpoint. ``apply`` looks again, and deletes what is one then.

    Args:
        checkpoint: at the query's checkpoint location.
        grace_ms: younger objects stay.
        clock: tells the time, if the storage does not.
        progress: called with the number of partitions that were listed, and of all.

    Attributes:
        orphans: what ``apply`` would delete.
        hold: of a command that runs, or was killed: then ``apply`` removes it.
    """

    def __init__(
        self, checkpoint: ObjectStore, *, grace_ms: int, clock: Clock, progress: Progress | None
    ) -> None:
        super().__init__(checkpoint, clock)
        self._grace_ms = grace_ms
        now_ms = int((checkpoint.server_time() or clock.now()).timestamp() * 1000)
        self._batches, self.hold = list_unheld(checkpoint)
        self.orphans = self._look(now_ms, progress, deletes=False)

    def apply(self, progress: Progress | None = None) -> tuple[Orphan, ...]:
        """Delete the orphans, while no driver runs on the checkpoint; return them.

        Raises:
            InUseError: a driver seems to run.
            CairnError: some are deleted; call it again.
        """
        if not self.orphans and self.hold is None:
            return ()
        with HeldCheckpoint(self._checkpoint, "gc", self._clock) as held:
            self._batches = held.batches
            record = Record(self._checkpoint, "gc", held.token, _as_steps(self.orphans))
            deleted = self._look(held.now_ms, progress, deletes=True)
            record.end(_as_steps(deleted))
        return deleted

    def _look(self, now_ms: int, progress: Progress | None, *, deletes: bool) -> tuple[Orphan, ...]:
        """Return the orphans of all stores at a time, and delete them if that is wanted."""
        committed = self._batches.committed
        if not committed:
            return ()
        # After the time was read: what is dead by then has no savepoint now.
        savepoints = savepoint_ids(self._checkpoint)
        look = _StoreLook(
            ids=read_ids(self._checkpoint, committed),
            savepoints=savepoints,
            kept_count=committed[-1] - committed[0] + 1,
            limits=SweepLimits(self._grace_ms, now_ms, self._batches.planned[-1], is_held=True),
            old_ms=now_ms - self._grace_ms,
            pins_old_ms=now_ms - max(self._grace_ms, DEAD_MS),
            deletes=deletes,
        )
        view = BatchView(self._checkpoint, committed[-1])
        stores = [(look.orphans, one) for one in cairn_stores(view)]
        stores += [(look.left, one) for one in _former_stores(view, self._clock)]
        found = in_parallel(lambda one: one[0](one[1]), stores, threads=_THREADS, progress=progress)
        return tuple(chain.from_iterable(found))


def _former_stores(view: BatchView, clock: Clock) -> Iterator[PartitionStore]:
    """Yield the stores of partitions that the query had, or began to have, by the records."""
    numbers = [
        number
        for record in find_records(view.objects, clock)
        if record.command == "repartition"
        for step in record.steps
        for number in (step.get("before"), step.get("partitions"))
        if isinstance(number, int)
    ]
    for operator in view.operators:
        for store in operator.stores:
            place = view.place(operator, store)
            for partition in range(operator.partitions, max(numbers, default=0)):
                yield PartitionStore(place, partition)


@dataclass(frozen=True, slots=True)
class _StoreLook:
    """How one store is looked at.

    Attributes:
        ids: of the committed batches, by batch.
        savepoints: the ids of all savepoints; ``None``: not known.
        kept_count: how many versions stay: those of all batches that Spark's logs have.
        limits: of what is an orphan.
        old_ms: younger objects stay.
        pins_old_ms: younger pins may be of a savepoint that is being created.
        deletes: whether the orphans are deleted.
    """

    ids: Ids
    savepoints: frozenset[str] | None
    kept_count: int
    limits: SweepLimits
    old_ms: int
    pins_old_ms: int
    deletes: bool

    def orphans(self, store: PartitionStore) -> list[Orphan]:
        """Return the orphans of a store."""
        with store.open() as root:
            for damage in store.audit(self.ids, reads_content=False):
                # What looks like an orphan may be all that leads around it.
                _LOG.warning("in %s nothing is deleted: %s", root.url, damage)
                return []
            found = self._dead_pins(store, root)
            known = _known(store, root, self.kept_count)
            if known is None:
                return found
            look = sweep_orphans if self.deletes else find_orphans
            orphans = look(root, *known, self.limits)
            found += [
                Orphan(store.place, root.object_url(name), 0, "a pin that nobody renews")
                for name in orphans.pins
            ]
            return found + _orphans(store, root, (*orphans.manifests, *orphans.others))

    def left(self, store: PartitionStore) -> list[Orphan]:
        """Return the orphans of a store whose partition the query has no more.

        As long as a batch of the logs has it, or a pin is there, all of it stays.
        """
        has_all = len(self.ids) == self.kept_count  # else it is not known what a batch has
        if not has_all or any(
            one.has(store.id.operator, store.partition) for one in self.ids.values()
        ):
            return []
        with store.open() as root:
            found = self._dead_pins(store, root)
            dead = {one.object_name for one in found}
            # Before the objects: whoever stores a pin looks for them after that.
            pins = list_pins(root)
            if pins is None or any(
                pin.is_young(self.old_ms) and not dead.issuperset(map(root.object_url, pin.names))
                for pin in pins
            ):
                return found
            infos = [
                info
                for info in root.list("")
                if parse_name(info.key) is not None
                and info.modified_ms < self.old_ms
                and root.object_url(info.key) not in dead
            ]
            if self.deletes:
                for wanted in (True, False):  # manifests before what they name
                    root.delete([one.key for one in infos if _is_manifest(one) == wanted])
            return found + [
                Orphan(store.place, root.object_url(one.key), one.size_bytes, _NO_PARTITION)
                for one in infos
            ]

    def _dead_pins(self, store: PartitionStore, root: ObjectStore) -> list[Orphan]:
        """Return the pins of a store that belong to no savepoint; delete them if that is wanted."""
        if self.savepoints is None:
            return []
        dead = dead_pins(root, self.savepoints, self.pins_old_ms)
        if dead and self.deletes:
            root.delete(dead)
        return [Orphan(store.place, root.object_url(name), 0, _UNFINISHED) for name in dead]


def _is_manifest(info: ObjectInfo) -> bool:
    return isinstance(parse_name(info.key), ManifestName)


def _orphans(store: PartitionStore, root: ObjectStore, infos: Iterable[ObjectInfo]) -> list[Orphan]:
    return [
        Orphan(store.place, root.object_url(info.key), info.size_bytes, _reason(store, info))
        for info in infos
    ]


def _reason(store: PartitionStore, info: ObjectInfo) -> str:
    name = parse_name(info.key)
    version = getattr(name, "version", None)
    if version is None:
        return "no snapshot names this file"
    if version > store.version:
        return f"of version {version}, which no planned batch makes"
    return f"of version {version}, which no retained batch needs"


def _as_steps(orphans: Iterable[Orphan]) -> list[dict[str, object]]:
    return [{**asdict(one), "place": str(one.place)} for one in orphans]


def _known(
    store: PartitionStore, root: ObjectStore, count: int
) -> tuple[Manifest, KeptVersions] | None:
    """Return the newest manifest and the versions to keep; ``None``: delete nothing.

    Nothing is deleted without a snapshot, or if an object on the way to the version is damaged.
    """
    try:
        versions = store.versions(root)
        end = StoreVersion.of_header(versions.read(store.version, store.checkpoint_id).header)
        stored = listed_snapshots(root)
        newest = next((ref for ref in reversed(end.lineage) if ref in stored), None)
        end = end if newest is None else end.rebased(newest) or end
        if end.base.ref is None:
            return None
        manifest = versions.fetch_manifest(end.base.ref)
        recent = tuple(
            ChangelogRef(ref, versions.fetch_head(ref.version, ref.checkpoint_id).header.base)
            for ref in end.lineage
        )
    except DataError:
        return None
    return manifest, KeptVersions(store.version, count, recent)
