"""Loading a version: keep the local state, replay missing changelogs, or start from a snapshot.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (base, lineage).
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from cairn.checkpoint.recovery import Head
from cairn.errors import AccessError, DataError, MissingError
from cairn.format.header import counts_to_json
from cairn.ids import VersionRef
from cairn.protocol.calls import LoadAnswer, LoadRequest, LoadSnapshotRequest
from cairn.store.changelog_stream import ChangelogStream
from cairn.store.changes import on_snapshot
from cairn.store.detours import DAMAGES, Detours
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.errors import CairnError
    from cairn.format.changelog import Changelog
    from cairn.store.state import StoreState

_LOG = logging.getLogger(__name__)
_MS = 1_000_000
# With fewer changelogs, the request for a manifest that may not exist costs more than it saves.
_LONG_LINEAGE = 4


def load(state: StoreState, request: LoadRequest) -> LoadAnswer:
    """Make the requested version current and return the answer. REQUIRES: the instance's lock."""
    clock = state.resources.clock
    began = clock.monotonic_ns()
    answer = LoadAnswer()
    state.checkpoint.prepare()
    state.resources.event_loop.run(state.local.check)
    if request.load_empty or request.version == 0:
        answer.source = "empty"
        wanted = StoreVersion.empty(request.version)
        if state.version != wanted or not state.local.is_open:
            _open_empty(state, wanted)
    elif not _reach_locally(state, request):
        state.metrics.add("loads_count")
        _recover(state, request, answer)
    version = state.require_version()
    answer.version = version.version
    answer.checkpoint_id = version.checkpoint_id
    answer.counts = counts_to_json(version.counts)
    answer.column_families = [family.to_json() for family in version.families]
    answer.max_cf_id = version.max_cf_id
    answer.data_bytes = state.data_bytes(is_new=answer.source != "local")
    # Committed deltas may still be in the queue: reads that need them wait.
    answer.applied_through = state.local.applied_through
    answer.snapshot_version = answer.snapshot_version or state.snapshots.newest_version
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


def _recover(state: StoreState, request: LoadRequest, answer: LoadAnswer) -> None:
    if isinstance(request, LoadSnapshotRequest):
        _load_as_planned(state, request, _whole_head(state, request, answer), answer)
        return  # it requested exactly this snapshot: there is no other way
    try:
        # The header is enough to begin. The changelog itself is read with the others.
        head = state.checkpoint.read_header(request.version, request.checkpoint_id)
        answer.bytes_downloaded += head.bytes_read
        try:
            if _load_as_planned(state, request, head, answer):
                return
        except DataError:
            if head.changelog is not None:
                raise
            # A header that is not verified may have named a wrong object.
        _load_as_planned(state, request, _whole_head(state, request, answer), answer)
    except DAMAGES as failure:
        _load_around(state, request, failure, answer)


def _whole_head(state: StoreState, request: LoadRequest, answer: LoadAnswer) -> Head:
    changelog = state.checkpoint.read(request.version, request.checkpoint_id)
    answer.bytes_downloaded += changelog.size_bytes
    return Head(changelog.header, changelog, changelog.size_bytes)


def _load_around(
    state: StoreState, request: LoadRequest, failure: CairnError, answer: LoadAnswer
) -> None:
    """Load the version without the object of ``failure``; raise it if there is no way."""
    detours = Detours(state.checkpoint, request.version, request.checkpoint_id, failure)
    for way in detours:
        try:
            with closing(_Replay(state, way.lineage)) as replay:
                answer.source = "replay"
                _open_base(state, way, answer)
                replay.run(way, answer)
        except DAMAGES as other:
            detours.avoid(other)
            continue
        _LOG.warning(
            "version %d of %s is loaded in another way, from version %d: %s",
            way.version,
            state.checkpoint.store,
            way.base.version,
            failure,
        )
        answer.repairs += 1
        state.metrics.add("repairs_count")
        # Later loads should not need the detour.
        state.snapshots.is_wanted = True
        return
    raise detours.failure()


def _load_as_planned(
    state: StoreState, request: LoadRequest, head: Head, answer: LoadAnswer
) -> bool:
    """Load the version that ``head`` describes; return whether the verified header is the same.

    If it is not, no version is current.
    """
    wanted = replace(StoreVersion.of_header(head.header), version=request.version)
    current = state.version if state.local.is_open else None
    if isinstance(request, LoadSnapshotRequest):
        wanted = on_snapshot(state.checkpoint, wanted, request)
        current = None
    missing = None if current is None else wanted.lineage_after(current)
    # The id must be certain: Spark's, or that of a verified header.
    is_certain = request.checkpoint_id is not None or head.changelog is not None
    is_free = missing is None and not isinstance(request, LoadSnapshotRequest)
    if is_free and is_certain and _open_own_snapshot(state, wanted, answer):
        return _continue_to(state, state.require_version(), wanted.version)
    if current is not None and missing == ():
        # Format 1: this instance has the attempt that wrote the object.
        return _continue_to(state, current, wanted.version)
    refs = wanted.lineage if missing is None else missing
    with closing(_Replay(state, refs, head)) as replay:
        answer.source = "replay"
        if missing is None:
            _open_base(state, wanted, answer)
        return replay.run(wanted, answer)


def _open_own_snapshot(state: StoreState, wanted: StoreVersion, answer: LoadAnswer) -> bool:
    """Open the snapshot of the version itself, if there is one; return whether that was done.

    Its changelog is older than that snapshot: it names the one before it and a long lineage.
    """
    if wanted.ref is None or len(wanted.lineage) < _LONG_LINEAGE:
        return False
    try:
        _open_snapshot(state, wanted.ref, answer)
    except (MissingError, AccessError):
        return False  # S3 denies access to an absent object if it may not be listed
    except DataError as failure:
        _LOG.warning("version %d is replayed without its snapshot: %s", wanted.version, failure)
        return False
    return True


def _open_base(state: StoreState, wanted: StoreVersion, answer: LoadAnswer) -> None:
    if wanted.base.ref is None:
        _open_empty(state, StoreVersion.empty(wanted.base.version))
        return
    _open_snapshot(state, wanted.base.ref, answer)


def _open_empty(state: StoreState, version: StoreVersion) -> None:
    with state.new_database_directory() as directory:
        state.open_database(directory, version)


def _open_snapshot(state: StoreState, ref: VersionRef, answer: LoadAnswer) -> None:
    clock, recovery = state.resources.clock, state.checkpoint.recovery
    began = clock.monotonic_ns()
    with state.new_database_directory() as directory:
        manifest = recovery.fetch_manifest(ref)
        files = recovery.materialize(manifest, directory)
        answer.bytes_downloaded += files.bytes_downloaded
        state.open_database(directory, StoreVersion.of_manifest(manifest), manifest, files.known)
    answer.source = "snapshot"
    answer.snapshot_version = ref.version
    answer.from_snapshot_ms = (clock.monotonic_ns() - began) // _MS


class _HeaderChangedError(Exception):
    """The header that planned the load is not the verified one."""


class _Replay:
    """The changelogs of a load: their fetches begin at once, beside the download of SSTs."""

    def __init__(
        self, state: StoreState, refs: tuple[VersionRef, ...], head: Head | None = None
    ) -> None:
        self._state = state
        self._planned = None if head is None else head.header
        self._last = None if head is None else head.changelog  # is not fetched again
        self._count = len(refs)
        read = state.checkpoint.read
        resources = state.resources
        self._stream = ChangelogStream(
            refs if self._last is None else refs[:-1],
            lambda ref: read(ref.version, str(ref.checkpoint_id)),
            resources.transfers.downloads,
            resources.fetched,
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
        for changelog in self._stream:
            found = changelog.header
            if planned is not None and found.ref == planned.ref and found != planned:
                raise _HeaderChangedError
            answer.bytes_downloaded += changelog.size_bytes
            yield changelog
        if self._count and self._last is not None:
            yield self._last
