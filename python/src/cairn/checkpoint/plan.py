"""Load plans: what to fetch and replay so that a local state stands at a version.

Layer: checkpoint (pure).  Spec: docs/checkpoint-format.md#changelog (base, lineage).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cairn.format.header import Base, ChangelogHeader
    from cairn.ids import VersionRef


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How to get to ``replay[-1]``, or to where the local state stands if there is none.

    Attributes:
        source: ``local`` (stay), ``replay`` (go on from the local state), ``snapshot`` (begin
            from ``base``'s manifest), ``empty`` (begin from nothing).
        base: to begin from; ``None`` unless the source is ``snapshot`` or ``empty``.
        replay: changelogs to apply, ascending; the last is the head, which is fetched already.
    """

    source: Literal["local", "replay", "snapshot", "empty"]
    base: Base | None
    replay: tuple[VersionRef, ...]


def load_plan(head: ChangelogHeader, local: VersionRef | None) -> LoadPlan:
    """Return the shortest way to ``head.ref``.

    Args:
        head: of the changelog of the version asked for.
        local: the attempt's version that the local state holds exactly; ``None``: unusable.
    """
    if local == head.ref:
        return LoadPlan("local", None, ())
    if local is not None and local == head.base.ref:
        return LoadPlan("replay", None, head.lineage)
    if local is not None and local in head.lineage:
        after = head.lineage.index(local) + 1
        return LoadPlan("replay", None, head.lineage[after:])
    if head.base.checkpoint_id is None:
        return LoadPlan("empty", head.base, head.lineage)
    return LoadPlan("snapshot", head.base, head.lineage)
