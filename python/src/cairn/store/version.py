"""StoreVersion: a version of a store, and its lineage back to a manifest.

Layer: store. Plain values; no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.format.header import Base, ChangelogHeader, ColumnFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.format.manifest import Manifest
    from cairn.ids import VersionRef


@dataclass(frozen=True)
class StoreVersion:
    """What a version is, as its changelog's header says.

    Attributes:
        version: Spark's number.
        ref: with its attempt's id; ``None`` for emptiness, which has no object.
        base: the manifest that the lineage begins after, or emptiness.
        lineage: the changelogs after ``base`` up to ``ref``.
        counts: keys per family id; without the families that nobody counted.
        families: the column families.
        max_cf_id: highest id ever used.
    """

    version: int
    ref: VersionRef | None
    base: Base
    lineage: tuple[VersionRef, ...]
    counts: Mapping[int, int]
    families: tuple[ColumnFamily, ...]
    max_cf_id: int

    @property
    def checkpoint_id(self) -> str | None:
        """Return the id of the attempt, if it is not emptiness."""
        return None if self.ref is None else str(self.ref.checkpoint_id)

    @property
    def multi_families(self) -> frozenset[int]:
        """Return the ids of the families whose values are lists."""
        return frozenset(family.id for family in self.families if family.multi)

    @classmethod
    def empty(cls, version: int) -> StoreVersion:
        """Return an empty store at ``version``; id 0 is the family ``default``, always."""
        return cls(version, None, Base(version, None), (), {}, (), 0)

    @classmethod
    def of_header(cls, header: ChangelogHeader) -> StoreVersion:
        """Return what a changelog makes durable."""
        return cls(
            header.ref.version,
            header.ref,
            header.base,
            header.lineage,
            header.counts,
            header.column_families,
            header.max_cf_id,
        )

    @classmethod
    def of_manifest(cls, manifest: Manifest) -> StoreVersion:
        """Return what a snapshot makes whole."""
        return cls(
            manifest.ref.version,
            manifest.ref,
            Base(manifest.ref.version, manifest.ref.checkpoint_id),
            (),
            manifest.counts,
            manifest.column_families,
            manifest.max_cf_id,
        )

    def rest_after(self, at: StoreVersion) -> tuple[VersionRef, ...] | None:
        """Return what to replay for who stands ``at``; ``None`` if that is not our past."""
        if Base(at.version, None if at.ref is None else at.ref.checkpoint_id) == self.base:
            return self.lineage
        if at.ref is None or at.ref not in self.lineage:
            return None
        return self.lineage[self.lineage.index(at.ref) + 1 :]

    def rebased(self, snapshot: VersionRef) -> StoreVersion | None:
        """Return the version as it comes from ``snapshot``; ``None`` if not our past."""
        if snapshot not in self.lineage:
            return None
        rest = self.lineage[self.lineage.index(snapshot) + 1 :]
        return StoreVersion(
            self.version,
            self.ref,
            Base(snapshot.version, snapshot.checkpoint_id),
            rest,
            self.counts,
            self.families,
            self.max_cf_id,
        )
