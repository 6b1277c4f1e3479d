"""Snapshots: incremental, whole or invisible; and loading them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_kit import (
    GRACE_MS,
    TRANSFERS,
    Crash,
    Stand,
    World,
    attempt,
    commit,
    crash_at,
    on_snapshot,
    ref_of,
    write_directory,
)

from cairn.checkpoint import faults
from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.upload import SnapshotContent
from cairn.errors import (
    BusyError,
    ConditionalPutUnsupportedError,
    CorruptError,
    DataError,
    ForeignObjectError,
    InternalError,
    MissingError,
)
from cairn.format.names import manifest_name
from cairn.ids import CheckpointId, StoreId


def two_versions(world: World) -> tuple[Stand, Stand]:
    """Commit two versions: keys 0..9, then one more."""
    form = world.checkpoint_format
    rows = {bytes([key]): b"v" for key in range(10)}
    one, _ = commit(world.objects, Stand(), dict(rows), attempt(1), checkpoint_format=form)
    two, _ = commit(world.objects, one, {b"\x0a": b"w"}, attempt(2), checkpoint_format=form)
    return one, two


def test_snapshot_and_what_follows_it_load(world: World) -> None:
    """Manifest, SSTs, then changelogs above the base."""
    one, two = two_versions(world)
    world.snapshot(two, changelogs=(ref_of(one), ref_of(two)))
    three, _ = commit(
        world.objects,
        on_snapshot(two),
        {b"\x00": None},
        attempt(3),
        checkpoint_format=world.checkpoint_format,
    )
    world.objects.delete([name for name in world.names("changelog/") if "/1" in name])

    assert three.ref is not None
    assert world.load(3, three.ref.checkpoint_id) == three.content


def test_load_costs_gets_only(world: World) -> None:
    """No LIST, no HEAD: changelog, manifest, SSTs."""
    one, two = two_versions(world)
    world.snapshot(two, changelogs=(ref_of(one), ref_of(two)))
    three, _ = commit(
        world.objects,
        on_snapshot(two),
        {b"\x00": None},
        attempt(3),
        checkpoint_format=world.checkpoint_format,
    )
    objects = world.connect()
    recovery = world.recovery(objects)
    assert three.ref is not None

    head = recovery.fetch_head(3, three.ref.checkpoint_id)
    base = head.header.base.ref
    assert base is not None
    loaded = recovery.materialize(recovery.fetch_manifest(base), world.folder())

    assert objects.request_counts() == {"GetObject": 4}
    assert loaded.bytes_downloaded > 0
    assert len(loaded.known) == 2


def test_second_snapshot_uploads_new_ssts_only(world: World) -> None:
    """What the object store has is not sent again."""
    one, two = two_versions(world)
    first = world.snapshot(one, changelogs=(ref_of(one),))
    grown = replace(two, content={**one.content})

    second = world.snapshot(
        grown, changelogs=(ref_of(two),), previous=first.manifest, known=first.known
    )

    assert (first.uploaded_files, first.reused_files) == (2, 0)
    assert (second.uploaded_files, second.reused_files, second.won) == (0, 2, True)
    assert second.manifest.retained == (first.manifest.as_retained(),)
    assert len(world.names("sst/")) == 2
    assert second.store_time is None


def test_known_ssts_that_the_previous_manifest_lacks_are_sent_again(world: World) -> None:
    """Another writer's clean-up may have deleted them."""
    one, two = two_versions(world)
    first = world.snapshot(one, changelogs=(ref_of(one),))
    stranger = replace(first.manifest, files=())

    second = world.snapshot(two, changelogs=(ref_of(two),), previous=stranger, known=first.known)

    assert (second.uploaded_files, second.reused_files) == (2, 0)


def test_two_executors_that_snapshot_one_version(world: World) -> None:
    """The first manifest stands, the loser goes on from it and reuses nothing."""
    one, _ = two_versions(world)
    winner = world.snapshot(one, changelogs=(ref_of(one),), instance="1")

    loser = world.snapshot(one, changelogs=(ref_of(one),), instance="2")

    assert winner.won
    assert not loser.won
    assert loser.manifest == winner.manifest
    assert loser.known == {}
    assert one.ref is not None
    target = world.folder()
    recovery = world.recovery()
    recovery.materialize(recovery.fetch_manifest(one.ref), target)


@pytest.mark.parametrize(
    "point",
    [faults.SNAPSHOT_BEFORE_SST, faults.SNAPSHOT_AFTER_SST, faults.SNAPSHOT_BEFORE_MANIFEST],
)
def test_crash_before_the_manifest_leaves_no_snapshot(world: World, point: str) -> None:
    """Half a snapshot is invisible, and the next one stands."""
    one, _ = two_versions(world)

    with pytest.raises(Crash):
        world.snapshot(one, changelogs=(ref_of(one),), fault=crash_at(point))

    assert world.names("snapshot/") == []
    assert one.ref is not None
    assert world.load(1, one.ref.checkpoint_id) == one.content
    assert world.snapshot(one, changelogs=(ref_of(one),)).won


def test_crash_after_the_manifest_leaves_it_whole(world: World) -> None:
    """The writer does not know; whoever comes next finds it."""
    one, _ = two_versions(world)

    with pytest.raises(Crash):
        world.snapshot(
            one, changelogs=(ref_of(one),), fault=crash_at(faults.SNAPSHOT_AFTER_MANIFEST)
        )

    assert one.ref is not None
    assert world.recovery().fetch_manifest(one.ref).ref == one.ref


def test_slow_upload_gives_up_before_the_sweep_may_meet_it(world: World) -> None:
    """Half of the grace period is the limit; no manifest names what a sweep may take."""
    one, _ = two_versions(world)

    def linger(point: str) -> None:
        if point == faults.SNAPSHOT_AFTER_SST:
            world.clock.advance(GRACE_MS / 1000)

    with pytest.raises(BusyError) as raised:
        world.snapshot(one, changelogs=(ref_of(one),), fault=linger)

    assert raised.value.version == 1
    assert world.names("snapshot/") == []


def test_directory_without_current_is_no_checkpoint(world: World) -> None:
    """A directory that RocksDB did not finish."""
    one, _ = two_versions(world)
    assert one.ref is not None
    empty = world.folder()
    empty.mkdir()

    with pytest.raises(InternalError):
        world.uploader().upload(
            empty,
            _content(one),
            known={},
            previous=None,
        )


def _content(stand: Stand) -> SnapshotContent:
    assert stand.ref is not None
    return SnapshotContent(stand.ref, {}, (), 0, (ref_of(stand),))


def test_uploaded_ssts_are_adopted(world: World, tmp_path: Path) -> None:
    """A reset right after a snapshot downloads nothing."""
    one, _ = two_versions(world)
    cache = SstCache(tmp_path / "shared", 1 << 20)
    uploader = world.uploader()
    uploader._cache = cache
    directory = world.folder("checkpoint")
    write_directory(directory, one.content)
    result = uploader.upload(directory, _content(one), known={}, previous=None)
    recovery = Recovery(
        world.objects,
        StoreId(0, 3),
        checkpoint_format=world.checkpoint_format,
        cache=cache,
        transfers=TRANSFERS,
    )

    assert recovery.materialize(result.manifest, world.folder()).bytes_downloaded == 0


def test_missing_objects_are_named(world: World) -> None:
    """Never an empty or older state: the error says store, version, object and next step."""
    one, two = two_versions(world)
    result = world.snapshot(two, changelogs=(ref_of(one), ref_of(two)))
    assert two.ref is not None
    lost_sst = result.manifest.files[0].object_name
    recovery = world.recovery()
    world.objects.delete([lost_sst])

    with pytest.raises(MissingError) as sst:
        recovery.materialize(result.manifest, world.folder())
    world.objects.delete([manifest_name(two.ref)])
    with pytest.raises(MissingError) as manifest:
        recovery.fetch_manifest(two.ref)
    world.objects.delete(world.names("changelog/"))
    with pytest.raises(MissingError) as changelog:
        recovery.fetch_head(2, two.ref.checkpoint_id)

    for raised, name in ((sst, lost_sst), (manifest, "snapshot/2_"), (changelog, "changelog/2")):
        text = str(raised.value)
        assert "[CAIRN_MISSING]" in text
        assert "store=0/3/default, version=2, object=memory://bucket/state/0/3/" in text
        assert name in text
        assert "Next: restore the object" in text


def test_missing_changelog_in_the_middle_is_named(world: World) -> None:
    """A lineage with a hole is not replayed."""
    one, two = two_versions(world)
    assert one.ref is not None
    assert two.ref is not None
    world.objects.delete([name for name in world.names("changelog/") if "/1" in name])

    with pytest.raises(MissingError, match="version 1"):
        world.load(2, two.ref.checkpoint_id)


def test_version_that_was_never_committed_is_missing(world: World) -> None:
    """Not an empty store."""
    with pytest.raises(MissingError):
        world.recovery().fetch_head(7, None)
    with pytest.raises(MissingError):
        world.recovery().fetch_head(7, CheckpointId("u" + "7" * 32))


def test_every_object_cut_at_every_64th_byte_fails_the_load(world: World) -> None:
    """Changelog, manifest and SST alike: an error, never other rows."""
    one, _ = two_versions(world)
    world.snapshot(one, changelogs=(ref_of(one),))
    two, _ = commit(
        world.objects,
        on_snapshot(one),
        {b"x": b"y"},
        attempt(5),
        checkpoint_format=world.checkpoint_format,
    )
    assert two.ref is not None
    head = f"changelog/2{'' if world.checkpoint_format == 1 else '_' + two.ref.checkpoint_id}.arrow"
    for name in [head, *world.names("snapshot/"), *world.names("sst/")]:
        whole = world.objects.get(name).data
        for length in range(0, len(whole), 64):
            world.objects.put(name, whole[:length])
            with pytest.raises(DataError) as raised:
                world.load(2, two.ref.checkpoint_id)
            assert name in str(raised.value)
        world.objects.put(name, whole)

    assert world.load(2, two.ref.checkpoint_id) == two.content


def test_sst_with_a_flipped_byte_is_refused(world: World) -> None:
    """RocksDB's scans end silently at a corrupt block."""
    one, _ = two_versions(world)
    result = world.snapshot(one, changelogs=(ref_of(one),))
    name = result.manifest.files[1].object_name
    data = bytearray(world.objects.get(name).data)
    data[-1] ^= 1
    world.objects.put(name, bytes(data))

    with pytest.raises(CorruptError, match="sst/"):
        world.recovery().materialize(result.manifest, world.folder())


def test_snapshot_to_a_store_that_overwrites_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two attempts' manifests of one version the later would replace the one that is used."""
    one, _ = two_versions(world)
    before = world.names()

    def overwrites() -> None:
        raise ConditionalPutUnsupportedError("it overwrites")

    monkeypatch.setattr(world.objects, "probe_conditional_put", overwrites)

    with pytest.raises(ConditionalPutUnsupportedError):
        world.snapshot(one, changelogs=(ref_of(one),))

    assert world.names() == before


def test_sst_corrupt_on_its_way_is_asked_for_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is whole: nobody has to restore anything."""
    one, _ = two_versions(world)
    result = world.snapshot(one, changelogs=(ref_of(one),))
    objects = world.connect()
    download = objects.download
    corrupt: list[str] = []

    def download_corrupt_once(key: str, path: Path, **more: int) -> None:
        if key not in corrupt:
            corrupt.append(key)
            raise CorruptError("the checksum differs")
        download(key, path, **more)

    monkeypatch.setattr(objects, "download", download_corrupt_once)

    world.recovery(objects).materialize(result.manifest, world.folder())

    assert sorted(corrupt) == sorted(file.object_name for file in result.manifest.files)


def test_corrupt_plain_object_hides_no_whole_copy(tmp_path: Path) -> None:
    """Format 1: the attempt asked for may stand under its own name."""
    world = World(tmp_path, 1)
    lost, _ = commit(world.objects, Stand(), {b"a": b"1"}, attempt(1), checkpoint_format=1)
    commit(world.objects, Stand(), {b"a": b"2"}, attempt(2), checkpoint_format=1)
    world.objects.put("changelog/1.arrow", b"\xff\xff\xff\xff")

    assert lost.ref is not None
    assert world.load(1, lost.ref.checkpoint_id) == {b"a": b"1"}
    with pytest.raises(CorruptError):
        world.load(1, None)


def test_changelog_of_another_store_is_refused(world: World) -> None:
    """A folder copied to another partition."""
    one, _ = two_versions(world)
    assert one.ref is not None
    recovery = Recovery(
        world.objects,
        StoreId(0, 4),
        checkpoint_format=world.checkpoint_format,
        cache=SstCache(world.folder(), 0),
        transfers=TRANSFERS,
    )

    with pytest.raises(ForeignObjectError):
        recovery.fetch_head(1, one.ref.checkpoint_id)
