"""Snapshots: incremental, complete or invisible; and their loading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_kit import (
    GRACE_MS,
    Crash,
    ModelVersion,
    World,
    attempt,
    changelog_ref,
    crash_at,
    on_own_snapshot,
    read_directory,
    write_directory,
)

from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.upload import SnapshotContent, SnapshotResult, SnapshotUploader
from cairn.errors import (
    CorruptError,
    DataError,
    ForeignObjectError,
    InternalError,
    MissingError,
)
from cairn.format import manifest
from cairn.format.manifest import SmallFile
from cairn.format.names import manifest_name
from cairn.ids import CheckpointId, StoreId


def two_versions(world: World) -> tuple[ModelVersion, ModelVersion]:
    """Commit two versions: keys 0..9, then one more."""
    rows = {bytes([key]): b"v" for key in range(10)}
    one = world.commit(ModelVersion(), dict(rows), attempt(1))
    two = world.commit(one, {b"\x0a": b"w"}, attempt(2))
    return one, two


def test_snapshot_and_the_changelogs_after_it_load(world: World) -> None:
    """A load reads the manifest, the SSTs, and the changelogs above the base."""
    one, two = two_versions(world)
    world.snapshot(two, changelogs=(changelog_ref(one), changelog_ref(two)))
    three = world.commit(
        on_own_snapshot(two),
        {b"\x00": None},
        attempt(3),
    )
    world.objects.delete([name for name in world.names("changelog/") if "/1" in name])

    assert three.ref is not None
    assert world.load(3, three.ref.checkpoint_id) == three.content


def test_load_costs_gets_only(world: World) -> None:
    """No LIST, no HEAD: changelog, manifest, SSTs."""
    one, two = two_versions(world)
    world.snapshot(two, changelogs=(changelog_ref(one), changelog_ref(two)))
    three = world.commit(
        on_own_snapshot(two),
        {b"\x00": None},
        attempt(3),
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
    """SSTs that the object store has are not uploaded again."""
    one, two = two_versions(world)
    first = world.snapshot(one, changelogs=(changelog_ref(one),))
    grown = replace(two, content={**one.content})

    second = world.snapshot(
        grown, changelogs=(changelog_ref(two),), previous=first.manifest, known=first.known
    )

    assert (first.uploaded_files, first.reused_files) == (2, 0)
    assert (second.uploaded_files, second.reused_files, second.won) == (0, 2, True)
    assert second.manifest.retained == (first.manifest.as_retained(),)
    assert len(world.names("sst/")) == 2
    assert second.store_time is None


def test_known_ssts_that_the_previous_manifest_lacks_are_uploaded_again(world: World) -> None:
    """The purge of another writer may have deleted them."""
    one, two = two_versions(world)
    first = world.snapshot(one, changelogs=(changelog_ref(one),))
    other = replace(first.manifest, files=())

    second = world.snapshot(
        two, changelogs=(changelog_ref(two),), previous=other, known=first.known
    )

    assert (second.uploaded_files, second.reused_files) == (2, 0)


def test_a_snapshot_whose_base_was_deleted_has_files_of_its_own(world: World) -> None:
    """The writer that deleted the base deletes its SSTs later."""
    one, two = two_versions(world)
    first = world.snapshot(one, changelogs=(changelog_ref(one),))
    grown = replace(two, content=one.content)
    world.objects.delete([manifest_name(first.manifest.ref)])

    result = world.snapshot(
        grown, changelogs=(changelog_ref(two),), previous=first.manifest, known=first.known
    )

    assert result.won
    assert (result.uploaded_files, result.reused_files) == (2, 0)
    before = {file.object_name for file in first.manifest.files}
    assert before.isdisjoint(file.object_name for file in result.manifest.files)
    assert {file.object_name for file in result.manifest.files} <= set(world.names("sst/"))


def test_a_base_that_this_writer_stored_lately_is_not_looked_at(world: World) -> None:
    """Most snapshots are like this one, and a request per snapshot would be for nothing."""
    one, two = two_versions(world)
    three = world.commit(two, {b"\x0b": b"x"}, attempt(3))
    uploader = world.uploader()
    results: list[SnapshotResult] = []
    sent: list[int] = []
    for model in (one, two, three):
        directory = world.folder("checkpoint")
        write_directory(directory, one.content)  # so that all files are reused
        before = world.objects.request_counts().get("GetObject", 0)
        result = uploader.upload(
            directory,
            _content(model),
            known=results[-1].known if results else {},
            previous=results[-1].manifest if results else None,
            pending=uploader.new_pending(),
        )
        sent.append(world.objects.request_counts().get("GetObject", 0) - before)
        results.append(result)
        world.clock.advance(GRACE_MS / 1000 * 0.3 * len(results))

    assert [result.reused_files for result in results] == [0, 2, 2]
    assert sent == [0, 0, 1]


def test_two_executors_take_a_snapshot_of_one_version(world: World) -> None:
    """The first manifest stays."""
    one, _ = two_versions(world)
    winner = world.snapshot(one, changelogs=(changelog_ref(one),), instance="1")

    loser = world.snapshot(one, changelogs=(changelog_ref(one),), instance="2")

    assert winner.won
    assert not loser.won
    assert loser.known == {}
    assert one.ref is not None
    target = world.folder()
    recovery = world.recovery()
    assert recovery.fetch_manifest(one.ref) == winner.manifest
    recovery.materialize(winner.manifest, target)


@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.SNAPSHOT_BEFORE_SST,
        FaultPoint.SNAPSHOT_AFTER_SST,
        FaultPoint.SNAPSHOT_BEFORE_MANIFEST,
    ],
)
def test_crash_before_the_manifest_leaves_no_snapshot(world: World, point: str) -> None:
    """A partial snapshot is invisible, and the next one succeeds."""
    one, _ = two_versions(world)

    with pytest.raises(Crash):
        world.snapshot(one, changelogs=(changelog_ref(one),), fault=crash_at(point))

    assert world.names("snapshot/") == []
    assert one.ref is not None
    assert world.load(1, one.ref.checkpoint_id) == one.content
    assert world.snapshot(one, changelogs=(changelog_ref(one),)).won


def test_crash_after_the_manifest_leaves_the_snapshot(world: World) -> None:
    """The writer does not know the outcome; the next writer finds the manifest."""
    one, _ = two_versions(world)

    with pytest.raises(Crash):
        world.snapshot(
            one,
            changelogs=(changelog_ref(one),),
            fault=crash_at(FaultPoint.SNAPSHOT_AFTER_MANIFEST),
        )

    assert one.ref is not None
    assert world.recovery().fetch_manifest(one.ref).ref == one.ref


def test_a_manifest_over_the_limit_is_not_read(world: World) -> None:
    """Its JSON takes many times its size: the worker would be killed, at each load again."""
    one, _ = two_versions(world)
    first = world.snapshot(one, changelogs=(changelog_ref(one),)).manifest
    name, data = manifest_name(first.ref), manifest.encode(first)
    world.objects.put(name, data.ljust(manifest.MAX_OBJECT_BYTES))
    assert world.recovery().fetch_manifest(first.ref) == first

    world.objects.put(name, data.ljust(manifest.MAX_OBJECT_BYTES + 1))

    with pytest.raises(CorruptError, match=f"over the limit of {manifest.MAX_OBJECT_BYTES}"):
        world.recovery().fetch_manifest(first.ref)
    assert not world.snapshot(one, changelogs=(changelog_ref(one),), instance="2").won


def test_directory_without_current_is_not_a_checkpoint(world: World) -> None:
    """RocksDB did not complete the directory."""
    one, _ = two_versions(world)
    assert one.ref is not None
    empty = world.folder()
    empty.mkdir()

    with pytest.raises(InternalError):
        upload(world.uploader(), empty, _content(one))


def upload(uploader: SnapshotUploader, directory: Path, content: SnapshotContent) -> SnapshotResult:
    """Upload a first snapshot."""
    pending = uploader.new_pending()
    return uploader.upload(directory, content, known={}, previous=None, pending=pending)


def _content(model: ModelVersion) -> SnapshotContent:
    assert model.ref is not None
    return SnapshotContent(model.ref, {}, (), 0, (changelog_ref(model),))


def test_uploaded_ssts_are_added_to_the_cache(world: World, tmp_path: Path) -> None:
    """A load right after a snapshot downloads nothing."""
    one, _ = two_versions(world)
    cache = SstCache(tmp_path / "shared", 1 << 20)
    directory = world.folder("checkpoint")
    write_directory(directory, one.content)
    result = upload(world.uploader(cache=cache), directory, _content(one))
    recovery = world.recovery(cache=cache)

    assert recovery.materialize(result.manifest, world.folder()).bytes_downloaded == 0


def test_a_large_manifest_of_rocksdb_is_an_object_of_its_own(world: World, tmp_path: Path) -> None:
    """It has two keys of each SST: with keys of megabytes no manifest had room for it."""
    one, two = two_versions(world)
    cache = SstCache(tmp_path / "shared", 1 << 30)
    uploader = world.uploader(cache=cache)
    results: list[SnapshotResult] = []
    contents = [bytes(manifest.MAX_SMALL_BYTES + 1), bytes(manifest.MAX_SMALL_BYTES) + b"more"]
    for number, content in enumerate(contents):
        directory = world.folder("checkpoint")
        write_directory(directory, one.content)
        (directory / "MANIFEST-000001").write_bytes(content)
        before = results[-1] if results else None
        results.append(
            uploader.upload(
                directory,
                _content((one, two)[number]),
                known=before.known if before else {},
                previous=before.manifest if before else None,
                pending=uploader.new_pending(),
            )
        )
    first, second = results

    assert len(manifest.encode(second.manifest)) < 10_000
    # RocksDB goes on to write the file of that name, so no other snapshot has it.
    assert (first.uploaded_files, second.uploaded_files, second.reused_files) == (3, 1, 2)
    assert all(name.endswith(".sst") for name in second.known)
    recovery = world.recovery(cache=cache)
    for result, content in zip(results, contents, strict=True):
        folder = world.folder()
        read = manifest.decode(manifest.encode(result.manifest), object_name="m")
        loaded = recovery.materialize(read, folder)
        assert read_directory(folder) == one.content
        assert (folder / "MANIFEST-000001").read_bytes() == content
        assert loaded.known.keys() == result.known.keys()
        (folder / "MANIFEST-000001").write_bytes(b"RocksDB writes it")
    again = world.folder()
    recovery.materialize(second.manifest, again)
    assert (again / "MANIFEST-000001").read_bytes() == contents[1]


def test_a_hostile_manifest_does_not_write_into_the_cache(world: World, tmp_path: Path) -> None:
    """SSTs are hard links into it: a small file of the same name would change the cached file."""
    one, two = two_versions(world)
    result = world.snapshot(two, changelogs=(changelog_ref(one), changelog_ref(two)))
    cache = SstCache(tmp_path / "shared", 1 << 20)
    recovery = world.recovery(cache=cache)
    recovery.materialize(result.manifest, world.folder())
    cached = {path: path.read_bytes() for path in (tmp_path / "shared").iterdir()}
    sst = result.manifest.files[0]
    small = (*result.manifest.small_files, SmallFile(sst.local_name, b"other rows"))

    with pytest.raises(CorruptError, match=rf"two files named {sst.local_name}.*snapshot/2_"):
        recovery.materialize(replace(result.manifest, small_files=small), world.folder())

    assert {path: path.read_bytes() for path in cached} == cached


def test_missing_objects_are_named(world: World) -> None:
    """The error has store, version, object and next step; no empty or older state is loaded."""
    one, two = two_versions(world)
    result = world.snapshot(two, changelogs=(changelog_ref(one), changelog_ref(two)))
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
    """A lineage with a gap is not replayed."""
    one, two = two_versions(world)
    assert one.ref is not None
    assert two.ref is not None
    world.objects.delete([name for name in world.names("changelog/") if "/1" in name])

    with pytest.raises(MissingError, match="version 1"):
        world.load(2, two.ref.checkpoint_id)


def test_version_that_was_never_committed_is_missing(world: World) -> None:
    """It must not load as an empty store."""
    with pytest.raises(MissingError):
        world.recovery().fetch_head(7, None)
    with pytest.raises(MissingError):
        world.recovery().fetch_head(7, CheckpointId("u" + "7" * 32))


def test_every_object_cut_at_every_64th_byte_fails_the_load(world: World) -> None:
    """Changelog, manifest and SST: an error, never other rows."""
    one, _ = two_versions(world)
    world.snapshot(one, changelogs=(changelog_ref(one),))
    two = world.commit(
        on_own_snapshot(one),
        {b"x": b"y"},
        attempt(5),
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
    result = world.snapshot(one, changelogs=(changelog_ref(one),))
    name = result.manifest.files[1].object_name
    data = bytearray(world.objects.get(name).data)
    data[-1] ^= 1
    world.objects.put(name, bytes(data))

    with pytest.raises(CorruptError, match="sst/"):
        world.recovery().materialize(result.manifest, world.folder())


def test_sst_corrupted_in_transit_is_downloaded_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored object is intact, so nothing has to be restored."""
    one, _ = two_versions(world)
    result = world.snapshot(one, changelogs=(changelog_ref(one),))
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


def test_corrupt_plain_object_does_not_hide_an_intact_copy(tmp_path: Path) -> None:
    """Format 1: the requested attempt may have a copy under its own name."""
    world = World(tmp_path, 1)
    lost = world.commit(ModelVersion(), {b"a": b"1"}, attempt(1))
    world.commit(ModelVersion(), {b"a": b"2"}, attempt(2))
    world.objects.put("changelog/1.arrow", b"\xff\xff\xff\xff")

    assert lost.ref is not None
    assert world.load(1, lost.ref.checkpoint_id) == {b"a": b"1"}
    with pytest.raises(CorruptError):
        world.load(1, None)


def test_changelog_of_another_store_is_refused(world: World) -> None:
    """A folder copied to another partition would load the wrong state."""
    one, _ = two_versions(world)
    assert one.ref is not None

    with pytest.raises(ForeignObjectError):
        world.recovery(store=StoreId(0, 4)).fetch_head(1, one.ref.checkpoint_id)
