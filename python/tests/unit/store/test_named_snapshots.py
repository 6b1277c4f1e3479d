"""Loads from a version that the state reader names by snapshotStartBatchId."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Rig, family

from cairn.errors import AccessError, CorruptError, MissingError
from cairn.format.manifest import Manifest
from cairn.ids import VersionRef

FAMILY = family(0, multi=False)
VERSIONS = 9
# The newest snapshot up to each version; 0: the empty state.
BASES = {1: 0, 2: 0, 3: 3, 4: 3, 5: 3, 6: 6, 7: 6, 8: 6, 9: 6}
Ids = list[str | None]


def fill(rig: Rig, versions: int, snapshots: set[int]) -> Ids:
    """Commit versions of one more key each; return their ids."""
    rig.load(0, None)
    ids: Ids = [None]
    for number in range(1, versions + 1):
        rig.write([(1, 0, b"%d" % number, b"v" * 100, 2)])
        ids.append(rig.commit(number, ids[-1], [FAMILY])["checkpoint_id"])
        rig.load(number, ids[-1])
        if number in snapshots:
            rig.maintain()
    return ids


def snapshots(rig: Rig) -> list[int]:
    """Return the versions that have a snapshot."""
    names = [one.key for one in rig.state.checkpoint.objects.list("snapshot/")]
    return sorted(int(name[9:].partition("_")[0]) for name in names)


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Rig, Ids]]:
    """Return a store of which every third version has a snapshot; not the newest one."""
    conf = {"minDeltasForSnapshot": 3, "minBatchesToRetain": 100}
    rig = Rig(tmp_path / "local", str(tmp_path / "objects"), request.param, conf)
    ids = fill(rig, VERSIONS, {3, 6})
    assert snapshots(rig) == [3, 6]
    yield rig, ids
    rig.crash()


def test_a_version_without_a_snapshot_is_reached_by_its_lineage(store: tuple[Rig, Ids]) -> None:
    """Spark's provider forces a snapshot where families change, so users request these versions.

    No later snapshot than the requested one is used: that may be the one in question.
    """
    rig, ids = store
    for end in range(1, VERSIONS + 1):
        for version in range(1, end + 1):
            for snapshot_id in (None, ids[version]):
                answer = rig.load_snapshot(end, ids[end], version, snapshot_id)

                assert len(rig.contents(0, end)) == end
                assert answer["version"] == end
                assert answer["changelogs_replayed"] == end - BASES[version], (version, end)
                assert answer["source"] == ("snapshot" if BASES[version] else "replay")


def test_a_snapshot_that_is_gone_is_passed_over_and_a_damaged_one_is_not(
    store: tuple[Rig, Ids], tmp_path: Path
) -> None:
    """Nobody can tell whether a version ever had a snapshot; one that is there is the one meant."""
    rig, ids = store
    later, earlier = (tmp_path / "objects/snapshot" / f"{n}_{ids[n]}.json" for n in (6, 3))
    later.unlink()

    assert rig.load_snapshot(9, ids[9], 6, ids[6])["changelogs_replayed"] == 6
    whole = earlier.read_bytes()
    earlier.write_bytes(whole[:-1])
    with pytest.raises(CorruptError, match="snapshot/3_"):
        rig.load_snapshot(9, ids[9], 6, ids[6])
    earlier.write_bytes(whole)
    for path in (tmp_path / "objects/sst").iterdir():
        path.unlink()
    reader = Rig(tmp_path / "other", rig.url, rig.checkpoint_format, {})
    try:
        with pytest.raises(MissingError, match=r"object=.*sst/"):
            reader.load_snapshot(9, ids[9], 3, ids[3])
    finally:
        reader.crash()
    earlier.unlink()
    assert rig.load_snapshot(9, ids[9], 6, ids[6])["changelogs_replayed"] == 9
    assert len(rig.contents(0, 9)) == 9


def test_a_reader_that_may_not_list_the_bucket_passes_over_an_absent_snapshot(
    store: tuple[Rig, Ids], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 denies access to an absent object then."""
    rig, ids = store
    recovery = rig.state.checkpoint.recovery
    fetch = recovery.fetch_manifest

    def denied(ref: VersionRef) -> Manifest:
        if ref.version not in (3, 6):
            raise AccessError("the policy denies it", object_name=str(ref))
        return fetch(ref)

    monkeypatch.setattr(recovery, "fetch_manifest", denied)

    assert rig.load_snapshot(9, ids[9], 4, ids[4])["changelogs_replayed"] == 6
    assert len(rig.contents(0, 9)) == 9


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_a_version_to_which_nothing_leads_is_an_error_of_a_snapshot(
    tmp_path: Path, checkpoint_format: int
) -> None:
    """It was purged, or is another attempt's: never the rows of another version."""
    conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 2}
    rig = Rig(tmp_path / "local", str(tmp_path / "objects"), checkpoint_format, conf)
    ids = fill(rig, 12, set(range(13)))
    oldest = snapshots(rig)[0]
    assert oldest > 2

    try:
        for version, id_ in ((1, None), (oldest - 1, ids[oldest - 1]), (11, "u" + "f" * 32)):
            with pytest.raises(MissingError, match=f"version {version} to 12") as failure:
                rig.load_snapshot(12, ids[12], version, id_)
            assert "/snapshot/" in str(failure.value.object_name)
        for version in range(oldest, 13):
            assert rig.load_snapshot(12, ids[12], version, ids[version])["version"] == 12
            assert len(rig.contents(0, 12)) == 12
    finally:
        rig.crash()
