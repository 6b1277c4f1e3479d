"""Standing: the version at which an instance's local state stands, and its way back to a manifest.

Layer: store. Plain values; no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class VersionRef(NamedTuple):
    """A version by one attempt. Version 0, and a version loaded empty, have the id ``""``."""

    version: int
    checkpoint_id: str

    @property
    def is_empty(self) -> bool:
        """Whether it stands for emptiness and not for an object."""
        return not self.checkpoint_id


@dataclass(frozen=True)
class Standing:
    """What a version is, as its changelog's header says.

    Attributes:
        ref: the version itself.
        base: the manifest that the lineage begins after, or emptiness.
        lineage: the changelogs after ``base`` up to ``ref``.
        counts: keys per family id; without the families that nobody counted.
        families: the column families, as the format page describes them.
        max_cf_id: highest id ever used.
    """

    ref: VersionRef
    base: VersionRef
    lineage: tuple[VersionRef, ...]
    counts: Mapping[int, int]
    families: tuple[dict[str, Any], ...]
    max_cf_id: int

    @property
    def multi_families(self) -> frozenset[int]:
        """Return the ids of the families whose values are lists."""
        return frozenset(family["id"] for family in self.families if family["multi"])

    def rest_after(self, at: VersionRef) -> tuple[VersionRef, ...] | None:
        """Return the changelogs to replay for who stands ``at``; ``None`` if that is not our past."""
        if at == self.base:
            return self.lineage
        for index, ref in enumerate(self.lineage):
            if ref == at:
                return self.lineage[index + 1 :]
        return None


def empty_at(version: int) -> Standing:
    """Return the standing of an empty store at ``version``."""
    ref = VersionRef(version, "")
    return Standing(ref, ref, (), {}, (), 0)  # id 0 is the family `default`, always
