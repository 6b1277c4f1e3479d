"""SnapshotState: what a store knows about manifests, for its next snapshot and purge.

Layer: store. Snapshots and purges run one at a time, concurrently with loads and commits. ``_lock``
guards the fields that both change; a manifest is replaced, never edited.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cairn.checkpoint.purge import PurgeSchedule
from cairn.errors import CairnError, InternalError
from cairn.format.manifest import ChangelogRef

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future
    from datetime import datetime

    from cairn.checkpoint.pending_upload import PendingUpload
    from cairn.checkpoint.upload import SnapshotResult, SnapshotUploader
    from cairn.clock import Clock
    from cairn.format.header import Base
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import Version, VersionRef
    from cairn.store.version import StoreVersion


_NS_PER_MS = 1_000_000


@dataclass(frozen=True)
class SnapshotDone:
    """What a snapshot did: nothing, if none was due.

    Attributes:
        uploaded_files: files that were uploaded.
        uploaded_bytes: their size.
        reused_files: files that the object store had.
        duration_ms: how long it took.
        store_time: the time of the last upload, by the storage's clock; ``None`` if this writer
            uploaded no SST, or did not store the manifest.
        deleted_objects: objects that were deleted before.
        is_stored: whether this writer stored the manifest: a clean-up follows.
        is_sweep_due: whether that sweeps, too.
    """

    uploaded_files: int = 0
    uploaded_bytes: int = 0
    reused_files: int = 0
    duration_ms: int = 0
    store_time: datetime | None = None
    deleted_objects: int = 0
    is_stored: bool = False
    is_sweep_due: bool = False


class Purgeable(NamedTuple):
    """What a purge begins with.

    Attributes:
        manifest: the newest one, which this instance has stored.
        is_garbage_young: whether an earlier purge found its garbage too young.
        age_ms: how long ago it was stored.
    """

    manifest: Manifest
    is_garbage_young: bool
    age_ms: int


class SnapshotState:
    """See the module.

    Attributes:
        running: held during a snapshot or purge.
        failure: why the last snapshot failed; ``None`` if it did not.
        purges: when the next purge is due.
        manifest: the newest one that was loaded or stored; the next snapshot may reuse its SSTs.
        is_wanted: whether a snapshot is due whatever the lineage: a load found damaged objects,
            among them perhaps the snapshot of the loaded version; or that version has a manifest
            that is not used.
        taken: the version that has a manifest that is not used, if one was found.
        needs_load: whether the next load starts from the objects: a snapshot's base is damaged.
        unusable: manifests that loads had to go around.
        cleaned: the clean-up after the last snapshot; its result is the number of deleted objects.
        rotten: manifests whose SSTs were corrupt before they were uploaded: their checksums hold.
    """

    def __init__(self, clock: Clock, *, grace_ms: int) -> None:
        self.running = threading.Lock()
        self.purges = PurgeSchedule(clock, grace_ms)
        self.manifest: Manifest | None = None
        self.is_wanted = False
        self.taken: VersionRef | None = None
        self.needs_load = False
        self.cleaned: Future[int] | None = None
        self.unusable: frozenset[VersionRef] = frozenset()
        self.rotten: frozenset[VersionRef] = frozenset()
        self._opened: VersionRef | None = None  # the manifest of the open database
        self._corrupt: VersionRef | None = None  # that of the last one with corrupt blocks
        self._noted: CairnError | None = None
        self.failure: CairnError | None = None
        self._run: Future[SnapshotDone] | None = None
        self._run_lock = threading.Lock()
        self._pending: PendingUpload | None = None
        self._lock = threading.Lock()
        self._is_ours = False  # this instance stored `manifest`
        self._stored_ns = 0  # and when
        self._clock = clock
        self._purged: Manifest | None = None  # `manifest` after a purge
        self._known: Mapping[str, SstFile] = {}
        self._incarnation = -1  # the database that `_known` describes
        self._bases: dict[VersionRef, Base] = {}
        # Ascending, and above the base of the newest changelog.
        self._replayed: list[Version] = []

    def opened(
        self, incarnation: int, manifest: Manifest | None, known: Mapping[str, SstFile]
    ) -> None:
        """Begin with a new database: empty, or restored from ``manifest``."""
        with self._lock:
            self.manifest, self._is_ours = manifest, False
            self._opened = None if manifest is None else manifest.ref
            self.is_wanted = self.needs_load = False
            self.taken = None
            self._known, self._incarnation = known, incarnation
            self._pending = None
            self._bases = {}
            self._replayed = []

    def note_unusable(self, refs: frozenset[VersionRef]) -> None:
        """Note manifests that a load has to go around."""
        with self._lock:
            self.unusable |= refs

    def note_corrupt(self, failure: CairnError) -> None:
        """Note that the open database has corrupt blocks; once per failure.

        The local disk may have changed them: the next load verifies all files. If its database has
        some again, they are in the objects.
        """
        if failure is self._noted:
            return
        self._noted = failure
        if self._opened is not None and self._opened == self._corrupt:
            self.rotten |= {self._opened}
        self._corrupt = self._opened

    def begin(self, start: Callable[[], Future[SnapshotDone]]) -> tuple[Future[SnapshotDone], bool]:
        """Return the running snapshot, or that of ``start``; and whether it is a new one."""
        with self._run_lock:
            if self._run is not None and not self._run.done():
                return self._run, False
            self._run = start()
            return self._run, True

    def pending(self, incarnation: int, uploader: SnapshotUploader) -> PendingUpload:
        """Return what a database has uploaded since its last snapshot."""
        with self._lock:
            kept = self._pending if incarnation == self._incarnation else None
        if kept is not None and not kept.is_lost:
            return kept
        # Without the lock, which commits need: it may send requests.
        new = uploader.new_pending()
        with self._lock:
            if incarnation == self._incarnation:
                self._pending = new
        return new  # of another database: its result will be ignored

    @property
    def run(self) -> Future[SnapshotDone] | None:
        """Return the running snapshot."""
        run = self._run
        return None if run is None or run.done() else run

    def drop_pending(self) -> None:
        """Forget what was uploaded: its objects may be gone."""
        with self._lock:
            self._pending = None

    def left(self) -> tuple[int, int]:
        """Return the number and size of the files that the running snapshot has to upload."""
        pending = self._pending
        if pending is None or self.run is None:
            return 0, 0
        return pending.left_files, pending.left_bytes

    def uploaded(self) -> tuple[str, int] | None:
        """Return a value that changes with each file that is uploaded; ``None`` before."""
        pending = self._pending
        count = 0 if pending is None else len(pending.files)
        return (pending.id, count) if pending is not None and count else None

    def add_changelog(self, version: StoreVersion, *, is_replayed: bool = False) -> None:
        """Remember the base of a changelog that was replayed or committed."""
        # An empty commit has none. Its base may be newer than the one that its real version names.
        if version.ref is not None and version.has_changelog:
            with self._lock:
                self._bases[version.ref] = version.base
                # Another executor may have stored the base.
                del self._replayed[: bisect_right(self._replayed, version.base.version)]
                if is_replayed:
                    self._replayed.append(version.version)

    @property
    def replayed_count(self) -> int:
        """Versions since the last snapshot that were replayed: what earlier runs have left."""
        return len(self._replayed)

    def forget_replayed(self) -> None:
        """Let ``replayed_count`` begin with 0."""
        with self._lock:
            self._replayed = []

    def stored(self, result: SnapshotResult, incarnation: int) -> None:
        """Remember the result of an upload, unless another database was opened meanwhile."""
        if result.won:
            self._use(result.manifest, result.known, incarnation, is_ours=True)
        else:
            self.found_other(result.manifest.ref, incarnation)

    def adopted(self, manifest: Manifest, incarnation: int) -> None:
        """Use the manifest of another writer, whose files this database does not have."""
        self._use(manifest, {}, incarnation, is_ours=False)

    def _use(
        self,
        manifest: Manifest,
        known: Mapping[str, SstFile],
        incarnation: int,
        *,
        is_ours: bool,
    ) -> None:
        newest = manifest.ref.version
        with self._lock:
            if incarnation != self._incarnation:
                return
            self.manifest, self._is_ours = manifest, is_ours
            self._stored_ns = self._clock.monotonic_ns()
            self.is_wanted = False
            self._replayed = []
            self._known = known
            self._pending = None
            self._bases = {ref: base for ref, base in self._bases.items() if ref.version > newest}
            self.unusable &= {entry.ref for entry in manifest.retained}

    def found_other(self, ref: VersionRef, incarnation: int) -> None:
        """Let the next version have a snapshot: ``ref`` has a manifest that is not used."""
        with self._lock:
            if incarnation == self._incarnation:
                self.taken = ref
                self.is_wanted = True

    def purged(self, before: Manifest, after: Manifest) -> None:
        """Replace the manifest by the purge's result, unless it was replaced meanwhile."""
        with self._lock:
            if self.manifest is before:
                self.manifest = self._purged = after

    def purgeable(self) -> Purgeable | None:
        """Return what a purge begins with.

        ``None`` if another writer stored the newest manifest: then only that writer may delete.
        """
        with self._lock:
            if self.manifest is None or not self._is_ours:
                return None
            age_ms = (self._clock.monotonic_ns() - self._stored_ns) // _NS_PER_MS
            return Purgeable(self.manifest, self.manifest is self._purged, age_ms)

    def known(self, incarnation: int) -> Mapping[str, SstFile]:
        """Return the objects behind the local SSTs of a database."""
        with self._lock:
            return self._known if incarnation == self._incarnation else {}

    def changelogs(self, refs: tuple[VersionRef, ...]) -> tuple[ChangelogRef, ...]:
        """Return lineage entries with the base that each of them names.

        Raises:
            InternalError: this instance neither committed nor replayed one of them.
        """
        with self._lock:
            missing = next((ref for ref in refs if ref not in self._bases), None)
            if missing is None:
                return tuple(ChangelogRef(ref, self._bases[ref]) for ref in refs)
        raise InternalError(f"the base of changelog {missing} is not known")

    def rebased(self, version: StoreVersion) -> StoreVersion:
        """Return ``version`` with the newest manifest of its lineage as its base."""
        manifest = self.manifest
        return version if manifest is None else version.rebased(manifest.ref) or version

    @property
    def newest_version(self) -> int:
        """Return the version of the newest manifest known, 0 if none."""
        manifest = self.manifest
        return 0 if manifest is None else manifest.ref.version
