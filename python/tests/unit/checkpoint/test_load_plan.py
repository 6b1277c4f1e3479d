"""Load plans: the shortest way, and never from a state that is not in the lineage."""

from __future__ import annotations

from checkpoint_kit import STORE, attempt

from cairn.checkpoint.plan import load_plan
from cairn.format.header import EMPTY_BASE, Base, ChangelogHeader
from cairn.ids import CheckpointId, VersionRef

REFS = {version: VersionRef(version, CheckpointId(f"u{version:032x}")) for version in range(1, 9)}
OTHER = VersionRef(7, CheckpointId("u" + "f" * 32))


def head(base: Base) -> ChangelogHeader:
    """Return the header of version 8."""
    return ChangelogHeader(
        store=STORE,
        ref=REFS[8],
        attempt=attempt(1),
        base=base,
        lineage=tuple(REFS[version] for version in range(base.version + 1, 9)),
        counts={},
        column_families=(),
        max_cf_id=0,
        written_at_ms=0,
    )


ON_SNAPSHOT = head(Base(5, REFS[5].checkpoint_id))


def test_state_at_the_version_stays() -> None:
    """Nothing to fetch."""
    plan = load_plan(ON_SNAPSHOT, REFS[8])

    assert (plan.source, plan.base, plan.replay) == ("local", None, ())


def test_state_in_the_lineage_goes_on() -> None:
    """Only what is newer is replayed."""
    plan = load_plan(ON_SNAPSHOT, REFS[7])

    assert (plan.source, plan.base, plan.replay) == ("replay", None, (REFS[8],))


def test_state_at_the_base_goes_on() -> None:
    """The manifest is not needed."""
    plan = load_plan(ON_SNAPSHOT, REFS[5])

    assert (plan.source, plan.replay) == ("replay", (REFS[6], REFS[7], REFS[8]))


def test_state_elsewhere_is_not_used() -> None:
    """Another attempt's version 7, an older one, and none at all begin from the base."""
    for local in (OTHER, REFS[4], None):
        plan = load_plan(ON_SNAPSHOT, local)

        assert plan.source == "snapshot"
        assert plan.base == ON_SNAPSHOT.base
        assert plan.replay == (REFS[6], REFS[7], REFS[8])


def test_first_versions_begin_from_nothing() -> None:
    """There is no manifest yet."""
    plan = load_plan(head(EMPTY_BASE), None)

    assert plan.source == "empty"
    assert len(plan.replay) == 8


def test_store_that_was_loaded_empty_forgets_what_was_before() -> None:
    """A state at version 5 is not the emptiness at version 5."""
    plan = load_plan(head(Base(5, None)), REFS[5])

    assert (plan.source, plan.replay) == ("empty", (REFS[6], REFS[7], REFS[8]))
