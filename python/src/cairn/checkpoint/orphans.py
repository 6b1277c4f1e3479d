"""Orphans: objects that nobody names, found by listing, at most daily.

Layer: checkpoint.  Spec: docs/checkpoint-format.md#deletion (orphans).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checkpoint import faults
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.retention import floor_of
from cairn.errors import DataError
from cairn.format import manifest as manifest_format
from cairn.format.names import (
    CHANGELOG_PREFIX,
    SNAPSHOT_PREFIX,
    SST_PREFIX,
    ChangelogName,
    ManifestName,
    SstName,
    parse_name,
)
from cairn.ids import VersionRef

if TYPE_CHECKING:
    from cairn.checkpoint.retention import KeptVersions
    from cairn.clock import Clock, Entropy
    from cairn.format.manifest import Manifest
    from cairn.storage.base import ObjectInfo, ObjectStore

SWEEP_INTERVAL_MS = 86_400_000
_NS_A_MS = 1_000_000


class SweepSchedule:
    """When a store's next sweep is due: daily, the first at a random time of the first day.

    Partitions start together; sweeping together would be one burst of LISTs.
    """

    def __init__(
        self, clock: Clock, entropy: Entropy, *, interval_ms: int = SWEEP_INTERVAL_MS
    ) -> None:
        self._clock = clock
        self._interval_ns = interval_ms * _NS_A_MS
        self._due_ns = clock.monotonic_ns() + int(self._interval_ns * entropy.jitter())

    def is_due(self) -> bool:
        """Tell whether to sweep now; says so once an interval."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._due_ns:
            return False
        self._due_ns = now_ns + self._interval_ns
        return True


def sweep_orphans(
    objects: ObjectStore,
    manifest: Manifest,
    kept: KeptVersions,
    *,
    grace_ms: int,
    fault: FaultHook = no_fault,
) -> int:
    """Delete objects older than the grace period that nobody names; return how many.

    Ages are by the storage's clock: "now" is the youngest object of the listing. Names that are
    not ours are left alone. Three LISTs, and one GET for each manifest that the chain lacks.

    Args:
        objects: at the store's root.
        manifest: the newest one that this writer stored or loaded, with its chain.
        kept: which versions must stay loadable.
        grace_ms: what is younger stays.
        fault: called at each named point.
    """
    # SSTs first: what is uploaded, or named, after this listing is not in it.
    ssts = list(objects.list(SST_PREFIX))
    changelogs = list(objects.list(CHANGELOG_PREFIX))
    manifests = list(objects.list(SNAPSHOT_PREFIX))
    times_ms = [_modified_ms(info) for info in (*ssts, *changelogs, *manifests)]
    oldest_kept_ms = max(times_ms, default=0) - grace_ms
    floor = floor_of(manifest, kept)
    floor_version = 0 if floor is None else floor.version
    named = _named(objects, manifest, manifests)
    doomed_manifests: list[str] = []
    doomed: list[str] = []
    for info in manifests:
        name = parse_name(info.key)
        if isinstance(name, ManifestName) and name.version < floor_version:
            doomed_manifests.extend(_if_old(info, oldest_kept_ms))
    for info in changelogs:
        name = parse_name(info.key)
        if isinstance(name, ChangelogName) and name.version <= floor_version:
            doomed.extend(_if_old(info, oldest_kept_ms))
    for info in ssts:
        is_sst = isinstance(parse_name(info.key), SstName)
        if is_sst and named is not None and info.key not in named:
            doomed.extend(_if_old(info, oldest_kept_ms))
    fault(faults.SWEEP_BEFORE_DELETE)
    if doomed_manifests:
        objects.delete(doomed_manifests)
    if doomed:
        objects.delete(doomed)
    return len(doomed_manifests) + len(doomed)


def _named(objects: ObjectStore, newest: Manifest, listed: list[ObjectInfo]) -> set[str] | None:
    """Return the SSTs that a manifest names; ``None`` if one of them cannot be read."""
    chain = (*newest.retained, newest.as_retained())
    named = {name for entry in chain for name in entry.objects}
    named.update(entry.object_name for entry in newest.garbage)  # retention's to delete
    known = {entry.ref for entry in chain}
    for info in listed:
        name = parse_name(info.key)
        if not isinstance(name, ManifestName):
            continue
        ref = VersionRef(name.version, name.checkpoint_id)
        if ref in known:
            continue
        try:
            data = objects.get(info.key).data
            other = manifest_format.decode(data, object_name=objects.object_url(info.key))
        except DataError:
            return None
        named.update(file.object_name for file in other.files)
    return named


def _if_old(info: ObjectInfo, oldest_kept_ms: int) -> list[str]:
    return [info.key] if _modified_ms(info) < oldest_kept_ms else []


def _modified_ms(info: ObjectInfo) -> int:
    return int(info.last_modified.timestamp() * 1000)
