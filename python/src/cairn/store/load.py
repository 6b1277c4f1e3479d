"""Loading a version: keep the local state, replay missing changelogs, or start from a snapshot.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (base, lineage).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cairn.format.header import counts_to_json
from cairn.protocol.calls import LoadAnswer, LoadRequest, LoadSnapshotRequest
from cairn.store.changes import on_snapshot
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from cairn.format.changelog import Changelog
    from cairn.ids import VersionRef
    from cairn.store.state import StoreState

_MAX_FETCHES = 8
_FIRST_FETCHES = 2  # until the size of a changelog is known
_MS = 1_000_000


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
    elif not _is_current(state, request):
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


def _is_current(state: StoreState, request: LoadRequest) -> bool:
    current = state.version
    if current is None or isinstance(request, LoadSnapshotRequest) or not state.local.is_open:
        return False
    if current.version != request.version or current.ref is None:
        return False
    # Format 1 has no id, and another attempt may have replaced the version: read the object.
    return request.checkpoint_id is not None and request.checkpoint_id == current.checkpoint_id


def _recover(state: StoreState, request: LoadRequest, answer: LoadAnswer) -> None:
    checkpoint = state.checkpoint
    head = checkpoint.read(request.version, request.checkpoint_id)
    answer.bytes_downloaded += head.size_bytes
    wanted = StoreVersion.of_header(head.header)
    current = state.version if state.local.is_open else None
    if isinstance(request, LoadSnapshotRequest):
        wanted = on_snapshot(checkpoint, wanted, request)
        current = None
    if current is not None:
        if current.ref == wanted.ref:
            return  # format 1: this instance has the attempt that wrote the object
        missing = wanted.lineage_after(current)
        if missing is not None:
            answer.source = "replay"
            _replay(state, wanted, missing, head, answer)
            return
    if wanted.base.ref is None:
        answer.source = "replay"
        _open_empty(state, StoreVersion.empty(wanted.base.version))
    else:
        answer.source = "snapshot"
        began = state.resources.clock.monotonic_ns()
        _open_snapshot(state, wanted.base.ref, answer)
        answer.from_snapshot_ms = (state.resources.clock.monotonic_ns() - began) // _MS
    _replay(state, wanted, wanted.lineage, head, answer)


def _open_empty(state: StoreState, version: StoreVersion) -> None:
    with state.new_database_directory() as directory:
        state.open_database(directory, version)


def _open_snapshot(state: StoreState, ref: VersionRef, answer: LoadAnswer) -> None:
    recovery = state.checkpoint.recovery
    with state.new_database_directory() as directory:
        manifest = recovery.fetch_manifest(ref)
        files = recovery.materialize(manifest, directory)
        answer.bytes_downloaded += files.bytes_downloaded
        answer.snapshot_version = ref.version
        state.open_database(directory, StoreVersion.of_manifest(manifest), manifest, files.known)


def _replay(
    state: StoreState,
    wanted: StoreVersion,
    refs: tuple[VersionRef, ...],
    head: Changelog,
    answer: LoadAnswer,
) -> None:
    began = state.resources.clock.monotonic_ns()
    state.replay(_fetched(state, refs, head, answer), wanted)
    answer.replay_ms = (state.resources.clock.monotonic_ns() - began) // _MS
    answer.changelogs_replayed = len(refs)


def _fetched(
    state: StoreState, refs: tuple[VersionRef, ...], head: Changelog, answer: LoadAnswer
) -> Iterator[Changelog]:
    """Yield changelogs in order, the last of them ``head``; fetch the next few in the background.

    Fetches as many as fit into the bound of pending deltas if all are as large as the largest yet.
    """
    limit_bytes = state.resources.pending.limit_bytes
    read, submit = state.checkpoint.read, state.resources.transfers.downloads.submit
    most = _FIRST_FETCHES
    largest_bytes = 1
    fetches: deque[Future[Changelog]] = deque()
    left = deque(refs[:-1])
    try:
        while left or fetches:
            while left and len(fetches) < most:
                ref = left.popleft()
                fetches.append(submit(read, ref.version, ref.checkpoint_id))
            changelog = fetches.popleft().result()
            answer.bytes_downloaded += changelog.size_bytes
            largest_bytes = max(largest_bytes, changelog.table.nbytes)
            most = max(1, min(2 * most, _MAX_FETCHES, limit_bytes // largest_bytes))
            yield changelog
        if refs:
            yield head
    finally:
        for fetch in fetches:
            fetch.cancel()
