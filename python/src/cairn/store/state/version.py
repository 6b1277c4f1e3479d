"""StoreVersion: a version of a store, and its lineage back to a manifest.

Layer: store. Plain values; no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cairn.format.header import Base, ChangelogHeader, ColumnFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.format.manifest import Manifest
    from cairn.ids import VersionRef


@dataclass(frozen=True)
class StoreVersion:
    """A version as the header of its changelog describes it.

    Attributes:
        version: Spark's number.
        ref: the real version, whose changelog is the last one of this version: an earlier one after
            empty commits; ``None`` for an empty store, which has no object.
        base: the manifest after which the lineage begins, or the empty state.
        lineage: the changelogs after ``base`` up to ``ref``.
        counts: keys per family id; a family whose keys were not counted is absent.
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
        """Return Spark's id of this version; ``None`` for an empty store."""
        return None if self.ref is None else self.ref.id_at(self.version)

    @property
    def has_changelog(self) -> bool:
        """Whether the version has an object of its own: it is neither empty nor an empty commit."""
        return self.ref is not None and self.ref.version == self.version

    @property
    def content(self) -> Base:
        """Return the real version, or the empty state; versions of equal content have its rows."""
        ref = self.ref
        return Base(self.version, None) if ref is None else Base(ref.version, ref.checkpoint_id)

    def was_written_on(self, earlier: StoreVersion) -> bool:
        """Return whether the changelog of this version has the changes of ``earlier``'s rows.

        REQUIRES: ``has_changelog``.
        """
        before = self.lineage[-2] if len(self.lineage) > 1 else self.base.ref
        return before == earlier.ref and (before is not None or self.base == earlier.content)

    @property
    def multi_families(self) -> frozenset[int]:
        """Return the ids of the families whose values are lists."""
        return frozenset(family.id for family in self.families if family.multi)

    @classmethod
    def empty(cls, version: int) -> StoreVersion:
        """Return an empty store at ``version``; id 0 is always the family ``default``."""
        return cls(version, None, Base(version, None), (), {}, (), 0)

    @classmethod
    def of_header(cls, header: ChangelogHeader) -> StoreVersion:
        """Return the version that a changelog makes durable."""
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
        """Return the version that a snapshot holds."""
        return cls(
            manifest.ref.version,
            manifest.ref,
            Base(manifest.ref.version, manifest.ref.checkpoint_id),
            (),
            manifest.counts,
            manifest.column_families,
            manifest.max_cf_id,
        )

    def lineage_after(self, earlier: StoreVersion) -> tuple[VersionRef, ...] | None:
        """Return the changelogs to replay on ``earlier``; ``None`` if that is impossible.

        It is possible if ``earlier`` is in this lineage, and if the versions of a database only
        ascend: ``earlier`` may be an empty commit where this lineage has a changelog.
        """
        ref = earlier.ref
        if earlier.content == self.base:
            missing = self.lineage
        elif ref is None or ref not in self.lineage:
            return None
        else:
            missing = self.lineage[self.lineage.index(ref) + 1 :]
        is_behind = missing[0].version > earlier.version if missing else True
        return missing if is_behind and earlier.version <= self.version else None

    def rebased(self, snapshot: VersionRef) -> StoreVersion | None:
        """Return this version with ``snapshot`` as its base; ``None`` if not in its lineage."""
        if snapshot not in self.lineage:
            return None
        return replace(
            self,
            base=Base(snapshot.version, snapshot.checkpoint_id),
            lineage=self.lineage[self.lineage.index(snapshot) + 1 :],
        )
