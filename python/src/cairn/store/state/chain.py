"""Chain: the snapshot on which a database rests, and the changelogs since, for the next snapshot.

Layer: store. Each database that is opened has a chain of its own. So what a snapshot or a purge of
the former database still reports changes nothing for the new one. They run one at a time, beside
commits: ``_lock`` guards what both change. A manifest is replaced, never edited.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING

from cairn.checkpoint.retention import KeptVersions
from cairn.errors import InternalError
from cairn.format.manifest import ChangelogRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.checkpoint.pending_upload import PendingUpload
    from cairn.checkpoint.upload import SnapshotResult, SnapshotUploader
    from cairn.clock import Clock
    from cairn.format.header import Base
    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import Version, VersionRef
    from cairn.store.state.version import StoreVersion

_NS_PER_MS = 1_000_000


class Chain:
    """See the module.

    Args:
        clock: measures how old a manifest is.
        incarnation: names the database.
        manifest: of the snapshot in the database; ``None``: it is empty.
        known: the objects behind the database's SSTs.
        unusable: manifests that loads had to go around.

    Attributes:
        incarnation: names the database.
        needs_load: whether the next load starts from the objects: the snapshot is damaged.
    """

    def __init__(
        self,
        clock: Clock,
        incarnation: int,
        manifest: Manifest | None = None,
        known: Mapping[str, SstFile] | None = None,
        unusable: frozenset[VersionRef] = frozenset(),
    ) -> None:
        self.incarnation = incarnation
        self.needs_load = False
        self._clock = clock
        self._lock = threading.Lock()
        self._manifest = manifest
        self._is_ours = False  # this instance stored the manifest
        self._stored_ns = 0  # and when
        self._purged: Manifest | None = None  # the manifest after a purge
        self._known: Mapping[str, SstFile] = known or {}
        self._unusable = unusable
        self._upload: PendingUpload | None = None
        self._bases: dict[VersionRef, Base] = {}
        # Ascending, and above the base of the newest changelog.
        self._replayed: list[Version] = []
        self._is_wanted = False
        self._taken: VersionRef | None = None

    # -- the snapshot --------------------------------------------------------------------------

    @property
    def manifest(self) -> Manifest | None:
        """The newest one that was loaded or stored; the next snapshot may reuse its SSTs."""
        return self._manifest

    @property
    def newest_version(self) -> int:
        """The version of the newest manifest known, 0 if none."""
        manifest = self._manifest
        return 0 if manifest is None else manifest.ref.version

    @property
    def known(self) -> Mapping[str, SstFile]:
        """The objects behind the database's SSTs."""
        return self._known

    def rebased(self, version: StoreVersion) -> StoreVersion:
        """Return ``version`` with the newest manifest of its lineage as its base."""
        manifest = self._manifest
        return version if manifest is None else version.rebased(manifest.ref) or version

    def stored(self, result: SnapshotResult) -> None:
        """Use the manifest of a snapshot, or note that another writer has stored one."""
        if result.won:
            self._use(result.manifest, result.known, is_ours=True)
        else:
            self.note_taken(result.manifest.ref)

    def adopted(self, manifest: Manifest) -> None:
        """Use the manifest of another writer, whose files this database does not have."""
        self._use(manifest, {}, is_ours=False)

    def _use(self, manifest: Manifest, known: Mapping[str, SstFile], *, is_ours: bool) -> None:
        newest = manifest.ref.version
        with self._lock:
            self._manifest, self._is_ours = manifest, is_ours
            self._stored_ns = self._clock.monotonic_ns()
            self._known = known
            self._upload = None
            self._bases = {ref: base for ref, base in self._bases.items() if ref.version > newest}
            self._replayed = []
            self._is_wanted = False
            self._unusable &= {entry.ref for entry in manifest.retained}

    # -- the changelogs since ------------------------------------------------------------------

    def add(self, version: StoreVersion, *, is_replayed: bool = False) -> None:
        """Remember the base of a changelog that was replayed or committed."""
        # An empty commit has none. Its base may be newer than the one that its real version names.
        if version.ref is None or not version.has_changelog:
            return
        with self._lock:
            self._bases[version.ref] = version.base
            # Another executor may have stored the base.
            del self._replayed[: bisect_right(self._replayed, version.base.version)]
            if is_replayed:
                self._replayed.append(version.version)

    def changelogs(self, refs: tuple[VersionRef, ...]) -> tuple[ChangelogRef, ...]:
        """Return lineage entries with the base that each of them names.

        Raises:
            InternalError: this database neither committed nor replayed one of them.
        """
        with self._lock:
            missing = next((ref for ref in refs if ref not in self._bases), None)
            if missing is None:
                return tuple(ChangelogRef(ref, self._bases[ref]) for ref in refs)
        raise InternalError(f"the base of changelog {missing} is not known")

    @property
    def replayed_count(self) -> int:
        """Versions since the snapshot that were replayed: what earlier runs have left."""
        return len(self._replayed)

    def forget_replayed(self) -> None:
        """Let ``replayed_count`` begin with 0."""
        with self._lock:
            self._replayed = []

    # -- the next snapshot ---------------------------------------------------------------------

    @property
    def is_wanted(self) -> bool:
        """Whether a snapshot is due whatever the lineage."""
        return self._is_wanted

    def want_snapshot(self) -> None:
        """Note that a load found damaged objects, among them perhaps this version's snapshot."""
        with self._lock:
            self._is_wanted = True

    def note_taken(self, ref: VersionRef) -> None:
        """Let the next version have a snapshot: ``ref`` has a manifest that is not used."""
        with self._lock:
            self._taken = ref
            self._is_wanted = True

    def is_taken(self, ref: VersionRef) -> bool:
        """Return whether ``note_taken`` was called for this version last."""
        return self._taken == ref

    def upload_of(self, uploader: SnapshotUploader) -> PendingUpload:
        """Return what was uploaded since the snapshot, or a new upload; that may send requests."""
        with self._lock:
            kept = self._upload
        if kept is not None and not kept.is_lost:
            return kept
        new = uploader.new_pending()  # without the lock, which commits need
        with self._lock:
            self._upload = new
        return new

    def drop_upload(self) -> None:
        """Forget what was uploaded: its objects may be gone."""
        with self._lock:
            self._upload = None

    def upload_left(self) -> tuple[int, int]:
        """Return the number and size of the files that are still to be uploaded."""
        upload = self._upload
        return (0, 0) if upload is None else (upload.left_files, upload.left_bytes)

    def uploaded(self) -> tuple[str, int] | None:
        """Return a value that changes with each file that is uploaded; ``None`` before."""
        upload = self._upload
        count = 0 if upload is None else len(upload.files)
        return (upload.id, count) if upload is not None and count else None

    # -- retention -----------------------------------------------------------------------------

    @property
    def unusable(self) -> frozenset[VersionRef]:
        """Manifests that loads had to go around; older objects lead to their versions."""
        return self._unusable

    def note_unusable(self, refs: frozenset[VersionRef]) -> None:
        """Note manifests that a load has to go around."""
        with self._lock:
            self._unusable |= refs

    def kept(self, newest: int, count: int, recent: tuple[ChangelogRef, ...]) -> KeptVersions:
        """Return the versions that must stay loadable; see ``KeptVersions``."""
        return KeptVersions(newest, count, recent, self._unusable)

    def ours(self) -> Manifest | None:
        """Return the manifest if this instance has stored it: then it may delete objects.

        ``None`` if another writer stored the newest manifest: only that writer may delete.
        """
        with self._lock:
            return self._manifest if self._is_ours else None

    def age_of(self, manifest: Manifest) -> tuple[int, bool]:
        """Return how many ms ago this instance stored a manifest, and whether it was purged since.

        0 and false for one of another writer.
        """
        with self._lock:
            if not self._is_ours or manifest is not self._manifest:
                return 0, False
            age_ms = (self._clock.monotonic_ns() - self._stored_ns) // _NS_PER_MS
            return age_ms, manifest is self._purged

    def purged(self, before: Manifest, after: Manifest) -> None:
        """Replace the manifest by the purge's result, if the purge was one of it."""
        with self._lock:
            if self._manifest is before:
                self._manifest = self._purged = after
