"""Loading a version: stay, go on from where the local state stands, or begin from a manifest.

Layer: store.  Spec: docs/checkpoint-format.md#changelog (base, lineage).
"""

from __future__ import annotations

import shutil
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.errors import RetryableError
from cairn.rocks import Delta
from cairn.store.changes import standing_upon
from cairn.store.version import StoreVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from concurrent.futures import Future

    from cairn.format.manifest import Manifest, SstFile
    from cairn.ids import VersionRef
    from cairn.store.durable import LoadedVersion
    from cairn.store.instance import ProviderInstance

_FETCH_AHEAD = 8
_FETCH_FIRST = 2  # until it is known how large they are
_MS = 1_000_000
# RocksDB reads a block of each file for its answer: not in every batch.
_ESTIMATE_NS = 30_000 * _MS


@dataclass(frozen=True)
class SnapshotChoice:
    """The one snapshot to begin from; its id is ``None`` where Spark does not know it."""

    version: int
    checkpoint_id: str | None


@dataclass(frozen=True)
class LoadRequest:
    """What is asked for; see docs/architecture.md#control-calls."""

    session: int
    version: int
    checkpoint_id: str | None
    load_empty: bool = False
    snapshot: SnapshotChoice | None = None


@dataclass
class LoadReport:
    """How a load went."""

    source: str = "local"
    changelogs_replayed: int = 0
    bytes_downloaded: int = 0
    from_snapshot_ns: int = 0
    replay_ns: int = 0
    snapshot_version: int = 0


def load(instance: ProviderInstance, request: LoadRequest) -> dict[str, Any]:
    """Make ``instance`` stand at the version asked for, applied, and return the answer.

    REQUIRES: the instance's lock.
    """
    clock = instance.services.clock
    began = clock.monotonic_ns()
    report = LoadReport()
    instance.services.owner.run(instance.local.check)
    if request.load_empty or request.version == 0:
        _load_empty(instance, request.version, report)
    elif not _stands_there(instance, request):
        instance.metrics.add("loads_count")
        _recover(instance, request, report)
    standing = instance.standing
    if standing is None:
        raise RetryableError("the load was overtaken", code="CAIRN_UNKNOWN_INSTANCE")
    # What was committed here may still be in the queue: point reads of the cache can wait for it.
    return {
        "version": standing.version,
        "checkpoint_id": standing.checkpoint_id,
        "counts": {str(cf): count for cf, count in standing.counts.items()},
        "column_families": [family.to_json() for family in standing.families],
        "max_cf_id": standing.max_cf_id,
        "data_bytes": _data_bytes(instance, is_new=report.source != "local"),
        "applied_through": instance.local.applied_through,
        "source": report.source,
        "changelogs_replayed": report.changelogs_replayed,
        "bytes_downloaded": report.bytes_downloaded,
        "load_ms": (clock.monotonic_ns() - began) // _MS,
        "from_snapshot_ms": report.from_snapshot_ns // _MS,
        "replay_ms": report.replay_ns // _MS,
        "snapshot_version": report.snapshot_version or instance.snapshots.newest_version,
    }


def _data_bytes(instance: ProviderInstance, *, is_new: bool) -> int:
    """Return an estimate of keys and values; RocksDB is asked when it is new, or old again."""
    clock, local = instance.services.clock, instance.local
    now = clock.monotonic_ns()
    if is_new or now - instance.data_bytes_at_ns > _ESTIMATE_NS:
        instance.data_bytes = instance.services.owner.run(
            lambda: local.db.estimated_data_bytes() + local.pending_bytes()
        )
        instance.data_bytes_at_ns = now
    return instance.data_bytes


def _stands_there(instance: ProviderInstance, request: LoadRequest) -> bool:
    standing = instance.standing
    if standing is None or request.snapshot is not None or not instance.local.is_open:
        return False
    if standing.version != request.version or standing.ref is None:
        return False
    # Without an id, in format 1, another attempt may have replaced the version: ask the object.
    return request.checkpoint_id is not None and request.checkpoint_id == standing.checkpoint_id


def _load_empty(instance: ProviderInstance, version: int, report: LoadReport) -> None:
    report.source = "empty"
    wanted = StoreVersion.empty(version)
    if instance.standing == wanted and instance.local.is_open:
        return
    _open_fresh(instance, wanted, report, from_manifest=False)


def _recover(instance: ProviderInstance, request: LoadRequest, report: LoadReport) -> None:
    durable = instance.durable
    target = durable.read(request.version, request.checkpoint_id)
    report.bytes_downloaded += target.object_bytes
    wanted = target.standing
    standing = instance.standing
    if request.snapshot is not None:
        wanted = standing_upon(
            durable, target.standing, request.snapshot.version, request.snapshot.checkpoint_id
        )
        standing = None
    if standing is not None and instance.local.is_open:
        if standing.ref == wanted.ref:
            return  # format 1: the object's id is ours, so our state is that version
        rest = wanted.rest_after(standing)
        if rest is not None:
            report.source = "replay"
            _replay(instance, wanted, rest, target, report)
            return
    begin = instance.services.clock.monotonic_ns()
    if wanted.base.ref is None:
        report.source = "replay"
        start = StoreVersion.empty(wanted.base.version)
        _open_fresh(instance, start, report, from_manifest=False)
    else:
        report.source = "snapshot"
        _open_fresh(instance, wanted, report, from_manifest=True)
        report.from_snapshot_ns = instance.services.clock.monotonic_ns() - begin
    _replay(instance, wanted, wanted.lineage, target, report)


def _open_fresh(
    instance: ProviderInstance, wanted: StoreVersion, report: LoadReport, *, from_manifest: bool
) -> None:
    """Open a new directory: empty, or made of the manifest that ``wanted`` has as base."""
    directory = instance.fresh_directory("d")
    before, start = instance.current_directory, wanted
    if before is not None and not instance.local.is_open:
        # Broken, perhaps by a full disk: it must not stand in the way of its successor.
        instance.services.owner.run(instance.local.close)
        shutil.rmtree(before, ignore_errors=True)
    manifest: Manifest | None = None
    known: Mapping[str, SstFile] = {}
    try:
        if from_manifest:
            manifest, restored = instance.durable.materialize(wanted.base, directory)
            known = restored.known
            report.bytes_downloaded += restored.bytes_downloaded
            report.snapshot_version = wanted.base.version
            start = StoreVersion.of_manifest(manifest)
        instance.standing = None
        instance.services.owner.run(instance.local.close)
        instance.services.owner.run(
            lambda: instance.local.open(
                directory,
                start.version,
                start.multi_families,
                create=not from_manifest,
            )
        )
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    instance.current_directory = directory
    instance.standing = start
    instance.snapshots.opened(instance.local.incarnation, manifest, known)
    if before is not None:
        # Closed: nothing of it is used again but the cache's own links.
        instance.services.in_background(lambda: shutil.rmtree(before, ignore_errors=True))


def _replay(
    instance: ProviderInstance,
    wanted: StoreVersion,
    rest: tuple[VersionRef, ...],
    target: LoadedVersion,
    report: LoadReport,
) -> None:
    """Apply the changelogs of ``rest`` to what is open, and stand at ``wanted``."""
    clock = instance.services.clock
    began = clock.monotonic_ns()
    instance.standing = None  # until the last one is in: between two versions nobody stands
    for changelog in _fetched(instance, rest, target, report):
        at = changelog.standing
        instance.snapshots.note_changelog(at)
        instance.local.enqueue(Delta(at.version, changelog.batches, at.multi_families))
        if instance.services.pending.current > instance.services.pending.limit_bytes:
            instance.services.owner.run_stepwise(instance.local.until_applied(at.version))
    instance.services.owner.run_stepwise(instance.local.until_applied(wanted.version))
    instance.standing = wanted
    report.replay_ns = clock.monotonic_ns() - began
    report.changelogs_replayed = len(rest)


def _fetched(
    instance: ProviderInstance,
    refs: tuple[VersionRef, ...],
    target: LoadedVersion,
    report: LoadReport,
) -> Iterator[LoadedVersion]:
    """Yield changelogs in order; the next few are under way meanwhile.

    As many as would fit the bound of deltas that wait, were all as large as the largest so far.
    """
    limit_bytes = instance.services.pending.limit_bytes
    most = _FETCH_FIRST
    largest_bytes = 1
    waiting: deque[Future[LoadedVersion]] = deque()
    submit = instance.services.downloads.submit
    ahead = iter(refs)
    done = False
    try:
        while not done or waiting:
            while not done and len(waiting) < most:
                ref = next(ahead, None)
                if ref is None or ref == target.standing.ref:
                    done = True
                else:
                    waiting.append(submit(instance.durable.read, ref.version, ref.checkpoint_id))
            if waiting:
                changelog = waiting.popleft().result()
                report.bytes_downloaded += changelog.object_bytes
                largest_bytes = max(largest_bytes, changelog.row_bytes)
                most = max(1, min(2 * most, _FETCH_AHEAD, limit_bytes // largest_bytes))
                yield changelog
        if refs:
            yield target
    finally:
        for future in waiting:
            future.cancel()
