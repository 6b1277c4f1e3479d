"""StoreVersion: the shortest way to a version, never from a state outside its lineage."""

from __future__ import annotations

from dataclasses import replace

from cairn.format.header import Base
from cairn.ids import CheckpointId, VersionRef
from cairn.store.state.version import StoreVersion

REFS = {version: VersionRef(version, CheckpointId(f"u{version:032x}")) for version in range(1, 9)}
OTHER = VersionRef(7, CheckpointId("u" + "f" * 32))


def head(base: Base) -> StoreVersion:
    """Return version 8 on ``base``."""
    lineage = tuple(REFS[version] for version in range(base.version + 1, 9))
    return StoreVersion(8, REFS[8], base, lineage, {}, (), 0)


def at(ref: VersionRef) -> StoreVersion:
    """Return a local state of exactly ``ref``."""
    return replace(StoreVersion.empty(ref.version), ref=ref)


ON_SNAPSHOT = head(Base(5, REFS[5].checkpoint_id))


def test_state_at_the_version_stays() -> None:
    """Nothing to fetch."""
    assert ON_SNAPSHOT.lineage_after(at(REFS[8])) == ()


def test_state_in_the_lineage_is_continued() -> None:
    """Only newer versions are replayed."""
    assert ON_SNAPSHOT.lineage_after(at(REFS[7])) == (REFS[8],)


def test_state_at_the_base_is_continued() -> None:
    """The manifest is not needed."""
    assert ON_SNAPSHOT.lineage_after(at(REFS[5])) == (REFS[6], REFS[7], REFS[8])


def test_state_outside_the_lineage_is_not_used() -> None:
    """If the local state has another attempt, is older or empty, a load starts at the base."""
    for local in (at(OTHER), at(REFS[4]), StoreVersion.empty(0), StoreVersion.empty(5)):
        assert ON_SNAPSHOT.lineage_after(local) is None


def test_the_first_versions_are_based_on_the_empty_state() -> None:
    """There is no manifest yet."""
    missing = head(Base(0, None)).lineage_after(StoreVersion.empty(0))

    assert missing is not None
    assert len(missing) == 8


def test_store_that_was_loaded_empty_has_no_earlier_rows() -> None:
    """A state at version 5 is not the empty store at version 5."""
    loaded_empty = head(Base(5, None))

    assert loaded_empty.lineage_after(at(REFS[5])) is None
    assert loaded_empty.lineage_after(StoreVersion.empty(5)) == (REFS[6], REFS[7], REFS[8])
