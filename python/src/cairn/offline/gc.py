"""gc: deletes what failed attempts and former runs have left in a checkpoint.

Layer: offline.  Spec: docs/reader.md#gc, docs/checkpoint-format.md#deletion (orphans). What an
orphan is, and the order of deletion, are those of the sweeps of a running query; but all versions
that Spark's logs name stay.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cairn.checkpoint.orphans import SweepLimits, find_orphans, sweep_orphans
from cairn.checkpoint.retention import KeptVersions
from cairn.errors import DataError, MissingError
from cairn.format.manifest import ChangelogRef
from cairn.format.names import SNAPSHOT_PREFIX, ManifestName, parse_name
from cairn.ids import VersionRef
from cairn.offline.hold import HeldCheckpoint, list_unheld
from cairn.offline.plan import Plan
from cairn.offline.record import Record
from cairn.offline.savepoint import DEAD_MS
from cairn.offline.savepoint_list import dead_pins, savepoint_ids
from cairn.offline.stores import cairn_stores
from cairn.reader.batch import BatchView
from cairn.reader.verify import read_ids
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from cairn.checkpoint.stored_versions import StoredVersions
    from cairn.clock import Clock
    from cairn.format.header import ChangelogHeader
    from cairn.format.manifest import Manifest
    from cairn.offline.stores import PartitionStore
    from cairn.reader.findings import Place
    from cairn.reader.verify import Ids
    from cairn.storage.base import ObjectInfo, ObjectStore

    Progress = Callable[[int, int], None]

_LOG = logging.getLogger(__name__)
_THREADS = 8
_MS = 1_000
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
        grace_s: younger objects stay, in seconds.
        clock: tells the time, if the storage does not.
        progress: called with the number of partitions that were listed, and of all.

    Attributes:
        orphans: what ``apply`` would delete.
        hold: of a command that runs, or was killed: then ``apply`` removes it.
    """

    def __init__(
        self, checkpoint: ObjectStore, *, grace_s: int, clock: Clock, progress: Progress | None
    ) -> None:
        super().__init__(checkpoint, clock)
        self._grace_ms = grace_s * _MS
        self._ids: Ids = {}
        self._savepoints: frozenset[str] | None = None
        now_ms = int((checkpoint.server_time() or clock.now()).timestamp() * _MS)
        self._batches, self.hold = list_unheld(checkpoint)
        self.orphans = tuple(self._each_store(lambda store: self._find(store, now_ms), progress))

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
            deleted = tuple(
                self._each_store(lambda store: self._sweep(store, held.now_ms), progress)
            )
            record.end(_as_steps(deleted))
        return deleted

    def _each_store(
        self,
        look: Callable[[PartitionStore], list[Orphan]],
        progress: Progress | None,
    ) -> Iterable[Orphan]:
        committed = self._batches.committed
        if not committed:
            return
        # After the time was read: what is dead by then has no savepoint now.
        self._savepoints = savepoint_ids(self._checkpoint)
        stores = list(cairn_stores(BatchView(self._checkpoint, committed[-1])))
        self._ids = read_ids(self._checkpoint, committed)
        with ThreadPoolExecutor(_THREADS) as threads:
            runs: list[Future[list[Orphan]]] = [threads.submit(look, store) for store in stores]
            try:
                for done, run in enumerate(runs, 1):
                    yield from run.result()
                    if progress is not None:
                        progress(done, len(runs))
            finally:
                threads.shutdown(cancel_futures=True)

    def _find(self, store: PartitionStore, now_ms: int) -> list[Orphan]:
        with store.open() as root:
            if self._is_damaged(store, root):
                return []
            dead = [
                Orphan(store.place, root.object_url(name), 0, _UNFINISHED)
                for name in self._dead_pins(root, now_ms)
            ]
            known = _known(store, root, self._kept_count())
            if known is None:
                return dead
            manifest, kept = known
            found = find_orphans(root, manifest, kept, self._limits(now_ms))
            pins = [
                Orphan(store.place, root.object_url(name), 0, "a pin that nobody renews")
                for name in found.pins
            ]
            return dead + pins + _orphans(store, root, (*found.manifests, *found.others))

    def _sweep(self, store: PartitionStore, now_ms: int) -> list[Orphan]:
        with store.open() as root:
            if self._is_damaged(store, root):
                return []
            names = self._dead_pins(root, now_ms)
            if names:
                root.delete(names)
            dead = [Orphan(store.place, root.object_url(name), 0, _UNFINISHED) for name in names]
            known = _known(store, root, self._kept_count())
            if known is None:
                return dead
            manifest, kept = known
            deleted = sweep_orphans(root, manifest, kept, self._limits(now_ms))
            return dead + _orphans(store, root, deleted)

    def _is_damaged(self, store: PartitionStore, root: ObjectStore) -> bool:
        """Return whether what looks like an orphan may be all that leads around an object."""
        for found in store.audit(self._ids):
            _LOG.warning("in %s nothing is deleted: %s", root.url, found)
            return True
        return False

    def _dead_pins(self, root: ObjectStore, now_ms: int) -> list[str]:
        if self._savepoints is None:
            return []
        return dead_pins(root, self._savepoints, now_ms - max(self._grace_ms, DEAD_MS))

    def _kept_count(self) -> int:
        """Return how many versions stay: those of all batches that Spark's logs have."""
        committed = self._batches.committed
        return committed[-1] - committed[0] + 1

    def _limits(self, now_ms: int) -> SweepLimits:
        planned = self._batches.planned[-1]
        return SweepLimits(self._grace_ms, now_ms, planned, is_held=True)


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
        end = _newest_version(store, versions)
        end, manifest = _with_newest_manifest(versions, root, end)
        if manifest is None:
            return None
        recent = tuple(
            ChangelogRef(ref, StoreVersion.of_header(_header(versions, ref)).base)
            for ref in end.lineage
        )
    except DataError:
        return None
    return manifest, KeptVersions(store.version, count, recent)


def _newest_version(store: PartitionStore, versions: StoredVersions) -> StoreVersion:
    return StoreVersion.of_header(versions.read(store.version, store.checkpoint_id).header)


def _header(versions: StoredVersions, ref: VersionRef) -> ChangelogHeader:
    return versions.fetch_head(ref.version, ref.checkpoint_id).header


def _with_newest_manifest(
    versions: StoredVersions, root: ObjectStore, end: StoreVersion
) -> tuple[StoreVersion, Manifest | None]:
    """Return the version with its newest stored snapshot as its base, and that one."""
    names = (parse_name(info.key) for info in root.list(SNAPSHOT_PREFIX))
    stored = {
        VersionRef(name.version, name.checkpoint_id)
        for name in names
        if isinstance(name, ManifestName)
    }
    ways = (end.rebased(ref) for ref in reversed(end.lineage) if ref in stored)
    end = next((way for way in ways if way is not None), end)
    if end.base.ref is None:
        return end, None
    try:
        return end, versions.fetch_manifest(end.base.ref)
    except MissingError:
        return end, None
