"""Committing a session: gather, count, encode, one PUT, then give the delta to the local state.

An empty commit in checkpoint format 2 writes nothing: its id names the version that has its
content, whose PUT was its commit point too.

Layer: store.  If the worker dies before the PUT, nothing was committed. If it dies later, the
version is durable, and a load rebuilds the local state from the objects.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cairn.errors import CairnError, ProtocolError
from cairn.format import changelog
from cairn.format.header import ChangelogHeader
from cairn.ids import CheckpointId, VersionRef
from cairn.protocol.calls import CommitAnswer
from cairn.protocol.frames import PRESENCE_ABSENT, PRESENCE_PRESENT
from cairn.store.local.local_state import nothing_loaded
from cairn.store.rows import writes
from cairn.store.state.version import StoreVersion
from cairn.store.write import expected
from cairn.store.write.written import WrittenRows, gather

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.protocol.calls import CommitRequest
    from cairn.store.rows.found_keys import FoundKeys
    from cairn.store.state.store_state import StoreState
    from cairn.store.write.session import StoreSession

# The rows of a smaller commit need no large buffers.
_LARGE_COMMIT_BYTES = 8 << 20


def commit(state: StoreState, session: StoreSession, request: CommitRequest) -> CommitAnswer:
    """Commit and return the answer. REQUIRES: the instance's lock."""
    clock, checkpoint = state.resources.clock, state.checkpoint
    base = state.chain.rebased(_base_of(state, request))
    began = clock.monotonic_ns()
    timeout_s = checkpoint.conf.frame_timeout_ms / 1000
    batches = session.complete(request.frames, request.rows, timeout_s)
    arrived = clock.monotonic_ns()
    expected.check_rows(request, session.tally)
    # This frees memory early; a commit that fails ends the session anyway.
    session.forget_frames()
    if sum(batch.get_total_buffer_size() for batch in batches) > _LARGE_COMMIT_BYTES:
        state.resources.release_memory_if_high()
    written = gather(batches, session.tally, are_distinct=request.are_distinct)
    expected.check_digest(request, written.batches)
    if not request.track_counts:
        counts: dict[int, int] = {}
    elif not written.batches:
        counts = _kept_counts(base, request)
    else:
        written, counts = _counted(state, base, written, request, session.found)
    delta = written.delta()
    encoded = stored = clock.monotonic_ns()
    changelog_bytes = 0
    if not delta and _is_empty(state, base, request, counts):
        version = replace(base, version=request.version)
    else:
        header = _header(state, base, request, counts)
        data = changelog.encode(header, written.changes())
        encoded = clock.monotonic_ns()
        checkpoint.commit(header, data)
        stored = clock.monotonic_ns()
        changelog_bytes = len(data)
        del data  # before the delta is copied to be sorted
        version = StoreVersion.of_header(header)
    state.advance(version, delta, may_begin_lists=not request.track_counts)
    state.metrics.add("commits_count")
    state.metrics.add("changelog_bytes", changelog_bytes)
    answer = CommitAnswer(
        checkpoint_id=str(version.checkpoint_id),
        counts=counts,
        changelog_bytes=changelog_bytes,
        wait_ns=arrived - began,
        encode_ns=encoded - arrived,
        put_ns=stored - encoded,
        snapshot_version=state.chain.newest_version,
        snapshot_bytes_left=state.upload_left()[1],
        lineage_versions=len(version.lineage),
    )
    if state.local.is_open:
        with suppress(CairnError):  # the event loop may give the database up meanwhile
            answer.estimated_keys = state.estimated_keys()
            answer.memtable_bytes = state.local.db.memtable_bytes()
            answer.sst_bytes = state.local.db.sst_bytes()
    return answer


def _is_empty(
    state: StoreState, base: StoreVersion, request: CommitRequest, counts: Mapping[int, int]
) -> bool:
    """Return whether a commit without writes needs no object.

    Spec: docs/checkpoint-format.md#checkpoint-ids.
    """
    return (
        state.checkpoint.has_checkpoint_ids
        and base.ref is not None
        and not request.snapshot
        and set(request.column_families) == set(base.families)
        and request.max_cf_id == base.max_cf_id
        and counts == dict(base.counts)
    )


def _base_of(state: StoreState, request: CommitRequest) -> StoreVersion:
    current = state.version
    if current is None or not state.local.is_open:
        raise nothing_loaded()
    if current.version + 1 != request.version:
        raise ProtocolError(
            f"a commit of version {request.version}, but version {current.version} is loaded"
        )
    expected = request.base_checkpoint_id
    if expected != current.checkpoint_id:
        raise ProtocolError(f"a commit on {expected}, but {current.checkpoint_id} is loaded")
    return current


def _header(
    state: StoreState, base: StoreVersion, request: CommitRequest, counts: Mapping[int, int]
) -> ChangelogHeader:
    ref = VersionRef(request.version, CheckpointId.new(state.resources.entropy))
    return ChangelogHeader(
        store=state.checkpoint.store,
        ref=ref,
        attempt=request.attempt,
        base=base.base,
        lineage=(*base.lineage, ref),
        counts=counts,
        column_families=request.column_families,
        max_cf_id=request.max_cf_id,
        written_at_ms=int(state.resources.clock.now().timestamp() * 1000),
    )


def _counted(
    state: StoreState,
    base: StoreVersion,
    written: WrittenRows,
    request: CommitRequest,
    found: FoundKeys,
) -> tuple[WrittenRows, dict[int, int]]:
    """Return the rows with every presence known, and the keys per family after them."""
    run_stepwise, local = state.resources.event_loop.run_stepwise, state.local
    if written.tally.has_unknown:
        (rows,) = written.batches  # such writes are gathered in one batch
        rows = writes.with_presences(rows, found.presences(writes.unknown_keys(rows)))
        keys_by_family = writes.unknown_keys(rows)
        if keys_by_family:
            # RocksDB must have all deltas up to the base before it can tell which keys exist.
            present = run_stepwise(local.find_present(base.version, keys_by_family))
            presences = np.where(present, PRESENCE_PRESENT, PRESENCE_ABSENT).astype(np.uint8)
            rows = writes.with_presences(rows, presences)
        written = WrittenRows.of(rows)
    counts = dict(base.counts)
    known_before = {family.id for family in base.families}
    ids = [family.id for family in request.column_families]
    for cf in ids:
        if cf in known_before and cf not in counts:
            # Earlier commits did not count the keys: count them once.
            counts[cf] = run_stepwise(local.count_keys(base.version, cf))
    return written, writes.counts_after(counts, written.tally, ids)


def _kept_counts(base: StoreVersion, request: CommitRequest) -> dict[int, int]:
    """Return the keys per family after a commit without writes."""
    known_before = {family.id for family in base.families}
    return {
        family.id: base.counts.get(family.id, 0)
        for family in request.column_families
        if family.id in base.counts or family.id not in known_before
    }
