"""Loading a version: keep the local state, replay missing changelogs, or start from a snapshot.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (base, lineage).
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.checkpoint.stored_versions import DAMAGES, Head
from cairn.errors import (
    AccessError,
    CancelledError,
    CorruptError,
    CredentialsExpiredError,
    DataError,
    FormatVersionError,
    MissingError,
    RetryableError,
    UnavailableError,
)
from cairn.format.header import counts_to_json
from cairn.format.names import manifest_name
from cairn.ids import VersionRef
from cairn.protocol.calls import LoadAnswer, LoadRequest, LoadSnapshotRequest
from cairn.storage.progress import Progress
from cairn.store.load.changelog_stream import ChangelogStream
from cairn.store.load.detours import Detours
from cairn.store.load.lineage import listed_snapshots, reading_of, ways_from
from cairn.store.state.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.checkpoint.reader_pins import ReaderPin
    from cairn.errors import CairnError
    from cairn.format.changelog import Changelog
    from cairn.format.manifest import Manifest
    from cairn.store.state.store_state import StoreState

_LOG = logging.getLogger(__name__)
_MS = 1_000_000
# With fewer changelogs, the request for a manifest that may not exist costs more than it saves.
_LONG_LINEAGE = 4


def load(state: StoreState, request: LoadRequest, progress: Progress | None = None) -> LoadAnswer:
    """Make the requested version current and return the answer. REQUIRES: the instance's lock.

    After an error of the storage, or ``CancelledError``, the next load uses what this one has
    downloaded and replayed.
    """
    progress = progress or Progress()
    progress.count_bytes = lambda size: state.metrics.add("downloaded_bytes", size)
    clock = state.resources.clock
    began = clock.monotonic_ns()
    answer = LoadAnswer()
    state.checkpoint.prepare()
    if state.chain.needs_load:
        state.forget_version()
    state.resources.event_loop.run(state.local.check)
    if isinstance(state.local.failure, CorruptError):
        state.repair.note_corrupt(state.local.failure)
    if request.load_empty or request.version == 0:
        answer.source = "empty"
        wanted = StoreVersion.empty(request.version)
        if state.version != wanted or not state.local.is_open:
            _open_empty(state, wanted)
    elif not _reach_locally(state, request):
        state.metrics.add("loads_count")
        state.root_check.reset()
        pin = state.resources.reader_pins.begin(state.checkpoint)
        try:
            _Loading(state, request, answer, progress, pin).recover()
        except DAMAGES as failure:
            pin.explain(failure)
            raise
        finally:
            pin.end()
    state.drop_download()
    version = state.require_version()
    answer.version = version.version
    answer.checkpoint_id = version.checkpoint_id
    answer.counts = counts_to_json(version.counts)
    answer.column_families = [family.to_json() for family in version.families]
    answer.max_cf_id = version.max_cf_id
    answer.data_bytes = state.data_bytes(is_new=answer.source != "local")
    # Committed deltas may still be in the queue: reads that need them wait.
    answer.applied_through = state.local.applied_through
    answer.snapshot_version = answer.snapshot_version or state.chain.newest_version
    answer.load_ms = (clock.monotonic_ns() - began) // _MS
    return answer


def _reach_locally(state: StoreState, request: LoadRequest) -> bool:
    """Make the requested version current without a request, if the database has its content."""
    current, id_ = state.version, request.checkpoint_id
    if current is None or isinstance(request, LoadSnapshotRequest) or not state.local.is_open:
        return False
    # Format 1 has no id, and another attempt may have replaced the version: read the object.
    if id_ is None or current.ref != VersionRef.named(request.version, id_):
        return False
    return _continue_to(state, current, request.version)


def _continue_to(state: StoreState, current: StoreVersion, version: int) -> bool:
    """Make ``version`` current, whose content is the current one; not if it is an earlier one."""
    if current.version < version:
        state.replay((), replace(current, version=version))
    # The versions of a database only ascend.
    return current.version <= version


@dataclass(slots=True)
class _Loading:
    """One load that needs the object store."""

    state: StoreState
    request: LoadRequest
    answer: LoadAnswer
    progress: Progress
    pin: ReaderPin

    def recover(self) -> None:
        """Make the requested version current."""
        if isinstance(self.request, LoadSnapshotRequest):
            self._load_from_snapshot(self.request)
            return
        try:
            # The header is enough to begin. The changelog itself is read with the others.
            head = self._read_header()
            try:
                if self._load_as_planned(head):
                    return
            except DataError:
                if head.changelog is not None:
                    raise
                # A header that is not verified may have named a wrong object.
            self._load_as_planned(self._whole_head())
        except DAMAGES as failure:
            self._load_around(failure)

    def _read_header(self) -> Head:
        request, read = self.request, self.state.checkpoint.read_header
        head = self.progress.run(lambda: read(request.version, request.checkpoint_id))
        self.answer.bytes_downloaded += head.bytes_read
        self.progress.note("has read the header of the changelog")
        return head

    def _whole_head(self) -> Head:
        request, read = self.request, self.state.checkpoint.read
        changelog = self.progress.run(lambda: read(request.version, request.checkpoint_id))
        self.answer.bytes_downloaded += changelog.size_bytes
        return Head(changelog.header, changelog, changelog.size_bytes)

    def _load_from_snapshot(self, request: LoadSnapshotRequest) -> None:
        """Load the version from exactly this snapshot; if nobody has stored it, from one before it.

        A damaged one is not avoided: it may have been requested to look at it.
        """
        state, head = self.state, self._whole_head()
        end = replace(StoreVersion.of_header(head.header), version=request.version)
        self.pin.reads(reading_of(end))
        ways = ways_from(state.checkpoint.recovery, end, request)
        while True:
            way = self.progress.run(lambda: next(ways))
            self.pin.reads(reading_of(way))
            manifest = None
            try:
                if way.base.ref is not None:
                    manifest = self._fetch_manifest(way.base.ref)
            except (MissingError, AccessError):
                continue  # S3 denies access to an absent object if it may not be listed
            with closing(self._replay_of(way.lineage, head)) as replay:
                self.answer.source = "replay"
                if manifest is None:
                    _open_empty(state, StoreVersion.empty(way.base.version))
                else:
                    self._open_snapshot(manifest)
                replay.run(way, self.answer)
            return

    def _load_around(self, failure: CairnError) -> None:
        """Load the version without the object of ``failure``; raise it if there is no way."""
        state, request = self.state, self.request
        detours = Detours(
            state.checkpoint.recovery, request.version, request.checkpoint_id, failure
        )
        ways = iter(detours)
        while (way := self.progress.run(lambda: next(ways, None))) is not None:
            self.pin.reads(reading_of(way))
            try:
                with closing(self._replay_of(way.lineage)) as replay:
                    self.answer.source = "replay"
                    self._open_base(way)
                    # Later loads should not need the detour. Set before the version is current:
                    # a snapshot may begin as soon as it is.
                    state.chain.want_snapshot()
                    state.chain.note_unusable(detours.passed_over(way))
                    replay.run(way, self.answer)
            except DAMAGES as other:
                detours.avoid(other)
                continue
            except RetryableError:
                # The next load must find the damage again: the version needs a new snapshot.
                state.forget_version()
                raise
            _LOG.warning(
                "version %d of %s is loaded in another way, from version %d: %s",
                way.version,
                state.checkpoint.store,
                way.base.version,
                failure,
            )
            self.answer.repairs += 1
            state.metrics.add("repairs_count")
            return
        raise detours.failure()

    def _load_as_planned(self, head: Head) -> bool:
        """Load the version that ``head`` describes; return whether the verified header is the same.

        If it is not, no version is current.
        """
        state, request = self.state, self.request
        wanted = replace(StoreVersion.of_header(head.header), version=request.version)
        current = state.version if state.local.is_open else None
        self.pin.reads(reading_of(wanted))
        missing = None if current is None else wanted.lineage_after(current)
        # The id must be certain: Spark's, or that of a verified header.
        is_certain = request.checkpoint_id is not None or head.changelog is not None
        if missing is None and is_certain and self._open_own_snapshot(wanted):
            return _continue_to(state, state.require_version(), wanted.version)
        listed = None
        if missing is None and is_certain:
            wanted, listed = self._on_listed_snapshot(wanted)
        if current is not None and missing == ():
            # Format 1: this instance has the attempt that wrote the object.
            return _continue_to(state, current, wanted.version)
        refs = wanted.lineage if missing is None else missing
        with closing(self._replay_of(refs, head)) as replay:
            self.answer.source = "replay"
            if listed is not None:
                self._open_snapshot(listed)
            elif missing is None:
                self._open_base(wanted)
            return replay.run(wanted, self.answer)

    def _replay_of(self, refs: tuple[VersionRef, ...], head: Head | None = None) -> _Replay:
        return _Replay(self.state, refs, self.progress, head)

    def _open_own_snapshot(self, wanted: StoreVersion) -> bool:
        """Open the snapshot of the version itself, if there is one; return whether that was done.

        Its changelog is older than that snapshot: it names the one before it and a long lineage.

        Raises:
            DataError, AccessError: there is one, and it is damaged.
        """
        own = None if wanted.ref is None else wanted.rebased(wanted.ref)
        # The last run may have ended with the snapshot that was due.
        least = min(_LONG_LINEAGE, self.state.checkpoint.conf.min_deltas_for_snapshot)
        if own is None or own.base.ref is None or len(wanted.lineage) < least:
            return False
        self.pin.reads(reading_of(own))
        try:
            manifest = self._fetch_manifest(own.base.ref)
        except (MissingError, AccessError):
            pass  # S3 denies access to an absent object if it may not be listed
        except FormatVersionError as failure:
            _LOG.warning("version %d is replayed without its snapshot: %s", wanted.version, failure)
        else:
            self._open_snapshot(manifest)
            return True
        self.pin.reads(reading_of(wanted))
        return False

    def _on_listed_snapshot(self, wanted: StoreVersion) -> tuple[StoreVersion, Manifest | None]:
        """Return the version with the newest snapshot of its lineage as its base, and that one.

        A snapshot that ends after the last commit of a run is named by no changelog. Without it the
        next run would upload the whole state again. Only if a snapshot was due: else there is none.

        Returns:
            ``wanted`` and ``None`` if there is none that is newer than its base.

        Raises:
            DataError, AccessError: there is one, and it is damaged.
        """
        state, checkpoint = self.state, self.state.checkpoint
        if len(wanted.lineage) < checkpoint.conf.min_deltas_for_snapshot:
            return wanted, None
        try:
            stored = self.progress.run(lambda: listed_snapshots(checkpoint.objects))
        except AccessError:
            return wanted, None
        stored -= state.chain.unusable | state.repair.rotten
        if wanted.base.ref not in (None, *stored):
            return wanted, None  # a detour notes that it is gone, and what leads around it stays
        # Not that of the version itself, which was looked for before.
        for ref in reversed(wanted.lineage[:-1]):
            rebased = wanted.rebased(ref) if ref in stored else None
            if rebased is None:
                continue
            self.pin.reads(reading_of(rebased))
            try:
                return rebased, self._fetch_manifest(ref)
            except FormatVersionError as failure:
                _LOG.warning("the load goes around a snapshot: %s", failure)
        self.pin.reads(reading_of(wanted))
        return wanted, None

    def _open_base(self, wanted: StoreVersion) -> None:
        if wanted.base.ref is None:
            _open_empty(self.state, StoreVersion.empty(wanted.base.version))
            return
        self._open_snapshot(self._fetch_manifest(wanted.base.ref))

    def _fetch_manifest(self, ref: VersionRef) -> Manifest:
        fetch = self.state.checkpoint.recovery.fetch_manifest
        return self.progress.run(lambda: fetch(ref))

    def _open_snapshot(self, manifest: Manifest) -> None:
        state, answer, progress = self.state, self.answer, self.progress
        clock = state.resources.clock
        began = clock.monotonic_ns()
        if manifest.ref in state.repair.rotten:
            raise CorruptError(
                "SST files of this snapshot are as they were uploaded, but have corrupt blocks",
                version=manifest.ref.version,
                object_name=state.checkpoint.objects.object_url(manifest_name(manifest.ref)),
                next_step="find out what changes bytes on the machine that uploaded them",
            )
        with state.new_database_directory() as directory:
            try:
                files = state.checkpoint.recovery.materialize(
                    manifest, directory, progress, state.kept_files
                )
            except (UnavailableError, AccessError, CredentialsExpiredError, CancelledError):
                state.keep_download(directory, manifest)
                raise
            answer.bytes_downloaded += files.bytes_downloaded
            version = StoreVersion.of_manifest(manifest)
            state.drop_download()
            state.open_database(directory, version, manifest, files.known)
        answer.source = "snapshot"
        answer.snapshot_version = manifest.ref.version
        answer.from_snapshot_ms = (clock.monotonic_ns() - began) // _MS


def _open_empty(state: StoreState, version: StoreVersion) -> None:
    with state.new_database_directory() as directory:
        state.open_database(directory, version)


class _HeaderChangedError(Exception):
    """The header that planned the load is not the verified one."""


class _Replay:
    """The changelogs of a load: their fetches begin at once, beside the download of SSTs."""

    def __init__(
        self,
        state: StoreState,
        refs: tuple[VersionRef, ...],
        progress: Progress,
        head: Head | None = None,
    ) -> None:
        self._state = state
        self._progress = progress
        self._planned = None if head is None else head.header
        self._last = None if head is None else head.changelog  # is not fetched again
        self._count = len(refs)
        resources = state.resources
        self._stream = ChangelogStream(
            refs if self._last is None else refs[:-1],
            lambda ref: state.checkpoint.read(ref.version, str(ref.checkpoint_id)),
            resources.transfers.downloads,
            resources.fetched,
            progress,
        )

    def run(self, wanted: StoreVersion, answer: LoadAnswer) -> bool:
        """Apply them and make ``wanted`` current; not if the head has another header."""
        clock = self._state.resources.clock
        began = clock.monotonic_ns()
        try:
            self._state.replay(self._changelogs(answer), wanted)
        except _HeaderChangedError:
            return False
        answer.replay_ms = (clock.monotonic_ns() - began) // _MS
        answer.changelogs_replayed = self._count
        return True

    def close(self) -> None:
        """Cancel the fetches."""
        self._stream.close()

    def _changelogs(self, answer: LoadAnswer) -> Iterator[Changelog]:
        planned = self._planned
        for number, changelog in enumerate(self._stream, 1):
            found = changelog.header
            if planned is not None and found.ref == planned.ref and found != planned:
                raise _HeaderChangedError
            answer.bytes_downloaded += changelog.size_bytes
            self._progress.count_bytes(changelog.size_bytes)
            yield changelog
            self._progress.note(f"has replayed {number} of {self._count} changelogs")
        if self._count and self._last is not None:
            yield self._last
