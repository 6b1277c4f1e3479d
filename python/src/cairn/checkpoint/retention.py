"""Retention: which objects may be deleted, computed from a manifest's chain.

Layer: checkpoint (pure).  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from cairn.checkpoint.pins import NO_READS
from cairn.format.manifest import Garbage, Manifest, Retained

if TYPE_CHECKING:
    from collections.abc import Collection

    from cairn.checkpoint.pins import PinnedReads
    from cairn.format.header import Base
    from cairn.format.manifest import ChangelogRef
    from cairn.ids import Version, VersionRef

KEPT_VERSIONS_MIN = 2
"""If the batch of the newest version is uncommitted, Spark loads the previous version again."""


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions that must stay loadable, and the changelogs after the newest manifest.

    Attributes:
        newest_version: the newest committed version that this writer knows; perhaps an empty
            commit, which has no changelog.
        count: number of newest versions to keep; at least ``KEPT_VERSIONS_MIN`` are kept.
        recent: changelogs above the newest manifest's version, with their bases.
        unusable: manifests that a load had to go around; older objects lead to their versions.
    """

    newest_version: Version
    count: int
    recent: tuple[ChangelogRef, ...]
    unusable: frozenset[VersionRef] = frozenset()

    @property
    def first(self) -> Version:
        """The oldest version to keep."""
        return max(1, self.newest_version - max(self.count, KEPT_VERSIONS_MIN) + 1)


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What to delete, in this order, and what then remains.

    Attributes:
        manifests: oldest first.
        changelogs: ascending.
        ssts: names.
        remaining: the newest manifest with its chain after the deletion; ``previous`` of the next
            snapshot. It exists only in memory: the stored manifest is never written again.
    """

    manifests: tuple[VersionRef, ...]
    changelogs: tuple[VersionRef, ...]
    ssts: tuple[str, ...]
    remaining: Manifest

    @property
    def object_count(self) -> int:
        """How many objects the plan deletes."""
        return len(self.manifests) + len(self.changelogs) + len(self.ssts)


def _lowest_kept_base(manifest: Manifest, kept: KeptVersions) -> Base | None:
    """Return the lowest base of a kept version; ``None`` if it is not known.

    An empty commit is loaded from its real version. The chain has a changelog for each version
    between its oldest and its newest one that is not an empty commit, so the real version of the
    first kept one is the newest changelog up to it. Pins of readers may leave a gap, but below it.

    Args:
        manifest: the newest one, with its chain.
        kept: the versions to keep.
    """
    entries = (*_changelogs(manifest), *kept.recent)
    upto_first = [entry.ref.version for entry in entries if entry.ref.version <= kept.first]
    if not upto_first:
        return None
    first = max(upto_first)
    bases = (entry.base for entry in entries if entry.ref.version >= first)
    return min(bases, key=attrgetter("version"))


def floor_of(manifest: Manifest, kept: KeptVersions) -> Version:
    """Return the version below which no kept version needs a manifest; 0 if that is not known.

    Nor does one need a changelog up to and including it. Args: as for ``plan_retention``.
    """
    lowest = _lowest_kept_base(manifest, kept)
    # A base outside the chain is another writer's manifest, and this writer must not cut its chain;
    # or a load went around it to an older one.
    chain_refs = {manifest.ref, *(entry.ref for entry in manifest.retained)} - kept.unusable
    is_usable = lowest is not None and (lowest.ref is None or lowest.ref in chain_refs)
    return lowest.version if lowest is not None and is_usable else 0


def plan_retention(
    manifest: Manifest,
    kept: KeptVersions,
    *,
    now_ms: int,
    grace_ms: int,
    reads: PinnedReads = NO_READS,
    shared: Collection[str] = (),
) -> DeletionPlan:
    """Return the objects that no kept version and no pinned read needs.

    Args:
        manifest: the newest one, which this writer stored or loaded, with its chain.
        kept: the versions to keep.
        now_ms: the time, by the storage's clock.
        grace_ms: how long an SST outlives the last manifest that named it.
        reads: what pins of readers protect.
        shared: SSTs that manifests outside the chain name; they stay garbage.
    """
    cut = floor_of(manifest, kept)

    def keeps_manifest(entry: Retained) -> bool:
        return entry.ref.version >= cut or reads.need_manifest(entry.ref.version)

    def keeps_changelog(entry: ChangelogRef) -> bool:
        return entry.ref.version > cut or reads.need_changelog(entry.ref.version)

    retained: list[Retained] = []
    dropped: list[Retained] = []
    changelogs: tuple[ChangelogRef, ...] = ()  # since the last manifest that stays
    for entry in manifest.retained:
        changelogs += tuple(filter(keeps_changelog, entry.changelogs))
        if keeps_manifest(entry):
            retained.append(Retained(entry.ref, entry.objects, changelogs))
            changelogs = ()
        else:
            dropped.append(entry)
    changelogs += tuple(filter(keeps_changelog, manifest.changelogs))
    named = {name for entry in retained for name in entry.objects}
    named.update(file.object_name for file in manifest.files)
    garbage = {entry.object_name: entry.dropped_at_ms for entry in manifest.garbage}
    for entry in dropped:
        for name in entry.objects:
            garbage.setdefault(name, now_ms)
    due = {
        name
        for name, dropped_at_ms in garbage.items()
        if name not in named and name not in shared and now_ms - dropped_at_ms >= grace_ms
    }
    remaining = replace(
        manifest,
        changelogs=changelogs,
        retained=tuple(retained),
        garbage=tuple(
            Garbage(name, dropped_at_ms)
            for name, dropped_at_ms in sorted(garbage.items())
            if name not in named and name not in due
        ),
    )
    deleted = {entry.ref for entry in _changelogs(manifest) if not keeps_changelog(entry)}
    return DeletionPlan(
        manifests=tuple(sorted(entry.ref for entry in dropped)),
        changelogs=tuple(sorted(deleted)),
        ssts=tuple(sorted(due)),
        remaining=remaining,
    )


def _changelogs(manifest: Manifest) -> tuple[ChangelogRef, ...]:
    earlier = (entry for retained in manifest.retained for entry in retained.changelogs)
    return (*earlier, *manifest.changelogs)
