"""Committing a session: gather, count, encode, one PUT, then on to RocksDB.

Layer: store.  If it dies before the PUT: nothing happened.  After it: the version stands; the local
state is rebuilt from the objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.errors import ProtocolError, RetryableError
from cairn.rocks import Delta
from cairn.store import snapshot, writes
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    import pyarrow as pa

    from cairn.format.header import ColumnFamily
    from cairn.ids import Attempt
    from cairn.store.instance import ProviderInstance
    from cairn.store.session import StoreSession

MAX_PENDING_WAIT_S = 60.0
# A lineage this many times Spark's minDeltasForSnapshot: maintenance does not keep up.
_LINEAGE_FACTOR = 4
_MS = 1_000_000


@dataclass(frozen=True)
class CommitRequest:
    """What is asked for; see docs/architecture.md#control-calls."""

    session: int
    frames: int
    rows: int
    version: int
    base_checkpoint_id: str | None
    families: tuple[ColumnFamily, ...]
    max_cf_id: int
    attempt: Attempt
    snapshot: bool = False
    track_counts: bool = True
    are_distinct: bool = False


def commit(
    instance: ProviderInstance, session: StoreSession, request: CommitRequest
) -> dict[str, Any]:
    """Commit and return the answer. REQUIRES: the instance's lock."""
    clock = instance.services.clock
    base = instance.snapshots.rebased(_base_of(instance, request))
    began = clock.monotonic_ns()
    batches = session.complete(
        request.frames, request.rows, instance.durable.conf.frame_timeout_ms / 1000
    )
    arrived = clock.monotonic_ns()
    # Fewer copies at once; if the commit fails, the session has failed.
    session.forget_frames()
    rows = writes.gather(batches, are_distinct=request.are_distinct) if batches else None
    if rows is not None:
        rows, counts = _counted(instance, base, rows, request)
    else:
        counts = _kept_counts(base, request)
    draft = StoreVersion(
        version=request.version,
        ref=None,
        base=base.base,
        lineage=base.lineage,
        counts=counts,
        families=request.families,
        max_cf_id=request.max_cf_id,
    )
    changes = [] if rows is None else writes.as_changes(rows)
    encoded = clock.monotonic_ns()
    written = instance.durable.write(draft, changes, request.attempt)
    standing = written.standing
    # First its base: a snapshot may begin as soon as the store stands there.
    instance.snapshots.note_changelog(standing)
    instance.standing = standing
    instance.local.enqueue(Delta(request.version, changes, standing.multi_families))
    instance.data_bytes += sum(batch.nbytes for batch in changes)
    instance.metrics.add("commits_count")
    instance.metrics.add("changelog_bytes", written.size_bytes)
    is_long = (
        len(standing.lineage) > _LINEAGE_FACTOR * instance.durable.conf.min_deltas_for_snapshot
    )
    if is_long and not request.snapshot:
        instance.services.maintenance.submit(snapshot.snapshot_in_background, instance)
    return {
        "checkpoint_id": standing.checkpoint_id,
        "counts": {str(cf): count for cf, count in counts.items()},
        "changelog_bytes": written.size_bytes,
        "applied_through": instance.local.applied_through,
        "wait_ms": (arrived - began) / _MS,
        "encode_ms": (encoded - arrived) / _MS + written.encode_ms,
        "put_ms": written.put_ms,
        "snapshot_version": instance.snapshots.newest_version,
        "engine": instance.figures_now(),
    }


def _base_of(instance: ProviderInstance, request: CommitRequest) -> StoreVersion:
    standing = instance.standing
    if standing is None or not instance.local.is_open:
        raise RetryableError(
            "no version is loaded in this worker",
            code="CAIRN_UNKNOWN_INSTANCE",
            next_step="load the version again and repeat the writes",
        )
    if standing.version + 1 != request.version:
        raise ProtocolError(
            f"a commit of version {request.version} on a store that stands at {standing.version}"
        )
    asked = request.base_checkpoint_id
    if asked and standing.checkpoint_id and asked != standing.checkpoint_id:
        raise ProtocolError(
            f"a commit upon {asked}, but the store stands at {standing.checkpoint_id}"
        )
    return standing


def _counted(
    instance: ProviderInstance, base: StoreVersion, rows: pa.RecordBatch, request: CommitRequest
) -> tuple[pa.RecordBatch, dict[int, int]]:
    if not request.track_counts:
        return rows, {}
    asked = writes.unknown_keys(rows)
    if asked:
        # All deltas up to the base must be in RocksDB for it to know what exists there.
        present = instance.services.owner.run_stepwise(
            instance.local.find_present(base.version, asked)
        )
        rows = writes.with_presence(rows, present)
    counts = dict(base.counts)
    known_before = {family.id for family in base.families}
    for cf in (family.id for family in request.families):
        if cf in known_before and cf not in counts:
            # Earlier versions were committed without counting: count once.
            counts[cf] = instance.services.owner.run_stepwise(
                instance.local.count_keys(base.version, cf)
            )
    ids = [family.id for family in request.families]
    return rows, writes.counts_after(counts, rows, ids)


def _kept_counts(base: StoreVersion, request: CommitRequest) -> dict[int, int]:
    if not request.track_counts:
        return {}
    known_before = {family.id for family in base.families}
    return {
        family.id: base.counts.get(family.id, 0)
        for family in request.families
        if family.id in base.counts or family.id not in known_before
    }
