"""Retention: what may be deleted, computed from a manifest's chain without listing.

Layer: checkpoint (pure).  Spec: docs/checkpoint-format.md#deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.format.manifest import Garbage, Manifest, Retained

if TYPE_CHECKING:
    from cairn.format.header import Base
    from cairn.format.manifest import ChangelogRef
    from cairn.ids import Version, VersionRef

KEPT_VERSIONS_MIN = 2
"""The newest version's batch may not be committed: then the one before is loaded again."""


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """Which versions must stay loadable, and what is known of them besides the newest manifest.

    Attributes:
        newest_version: committed, as far as this writer knows.
        count: so many newest versions; at least ``KEPT_VERSIONS_MIN`` are kept.
        recent: changelogs above the newest manifest's version, with their bases.
    """

    newest_version: Version
    count: int
    recent: tuple[ChangelogRef, ...]

    @property
    def first(self) -> Version:
        """The oldest version to keep."""
        return max(1, self.newest_version - max(self.count, KEPT_VERSIONS_MIN) + 1)


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What to delete, in this order, and what is then left.

    Attributes:
        manifests: oldest first.
        changelogs: ascending.
        ssts: names.
        remaining: the newest manifest with its chain as it is afterwards; ``previous`` of the next
            snapshot. It exists nowhere else: the object itself is never written again.
    """

    manifests: tuple[VersionRef, ...]
    changelogs: tuple[VersionRef, ...]
    ssts: tuple[str, ...]
    remaining: Manifest

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.manifests or self.changelogs or self.ssts)

    @property
    def object_count(self) -> int:
        """How many objects go."""
        return len(self.manifests) + len(self.changelogs) + len(self.ssts)


def floor_of(manifest: Manifest, kept: KeptVersions) -> Base | None:
    """Return the lowest base of a kept version; ``None`` if it cannot be known.

    Args:
        manifest: the newest one, with its chain.
        kept: which versions.
    """
    bases: dict[Version, Base] = {}
    for entry in (*_changelogs(manifest), *kept.recent):
        if entry.ref.version >= kept.first:
            other = bases.get(entry.ref.version, entry.base)
            bases[entry.ref.version] = min(other, entry.base, key=_version_of)
    if kept.first not in bases:
        return None
    return min(bases.values(), key=_version_of)


def plan_retention(
    manifest: Manifest, kept: KeptVersions, *, now_ms: int, grace_ms: int
) -> DeletionPlan:
    """Return what no kept version needs.

    Args:
        manifest: the newest one, which this writer stored or loaded, with its chain.
        kept: which versions.
        now_ms: by the storage's clock.
        grace_ms: how long an SST outlives the last manifest that named it.
    """
    floor = floor_of(manifest, kept)
    chain = (*manifest.retained, manifest.as_retained())
    is_ours = floor is not None and (
        floor.checkpoint_id is None or floor.ref in {entry.ref for entry in chain}
    )
    # A floor outside the chain: another writer's manifest, whose chain is not ours to cut.
    cut = floor.version if floor is not None and is_ours else 0
    stays = tuple(entry for entry in manifest.retained if entry.ref.version >= cut)
    gone = tuple(entry for entry in manifest.retained if entry.ref.version < cut)
    named = {name for entry in stays for name in entry.objects}
    named.update(file.object_name for file in manifest.files)
    garbage = {entry.object_name: entry.dropped_at_ms for entry in manifest.garbage}
    for entry in gone:
        for name in entry.objects:
            garbage.setdefault(name, now_ms)
    due = {
        name
        for name, dropped_at_ms in garbage.items()
        if name not in named and now_ms - dropped_at_ms >= grace_ms
    }
    remaining = replace(
        manifest,
        changelogs=_above(manifest.changelogs, cut),
        retained=tuple(
            Retained(entry.ref, entry.objects, _above(entry.changelogs, cut)) for entry in stays
        ),
        garbage=tuple(
            Garbage(name, dropped_at_ms)
            for name, dropped_at_ms in sorted(garbage.items())
            if name not in named and name not in due
        ),
    )
    changelogs = {entry.ref for entry in _changelogs(manifest) if entry.ref.version <= cut}
    return DeletionPlan(
        manifests=tuple(sorted(entry.ref for entry in gone)),
        changelogs=tuple(sorted(changelogs)),
        ssts=tuple(sorted(due)),
        remaining=remaining,
    )


def _version_of(base: Base) -> Version:
    return base.version


def _changelogs(manifest: Manifest) -> tuple[ChangelogRef, ...]:
    earlier = (entry for retained in manifest.retained for entry in retained.changelogs)
    return (*earlier, *manifest.changelogs)


def _above(changelogs: tuple[ChangelogRef, ...], cut: Version) -> tuple[ChangelogRef, ...]:
    return tuple(entry for entry in changelogs if entry.ref.version > cut)
