"""A storage that ignores If-None-Match: it takes snapshots too, and nothing that is needed is lost.

Checkpoint format 2 only: format 1 is refused there. Two writers of one version may both believe
that their manifest is the stored one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from checkpoint_kit import GRACE_MS, ModelVersion, World, attempt, changelog_ref, on_own_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import Clock
from cairn.config import EngineConf
from cairn.errors import ConditionalPutUnsupportedError
from cairn.format.manifest import ChangelogRef, Manifest, SstFile
from cairn.ids import StoreId
from cairn.storage.base import Payload
from cairn.storage.memory import MemoryBucket, MemoryStore

KEEP = 3
MINUTE_MS = 60_000


class UnconditionalStore(MemoryStore):
    """Ignores the conditions of PUTs."""

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Replace the object."""
        self.put(key, data)

    def probe_conditional_put(self) -> None:
        """Find that out."""
        raise ConditionalPutUnsupportedError("it ignores If-None-Match")


class UnconditionalWorld(World):
    """Its bucket ignores conditions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, checkpoint_format=2)

    def connect(self, clock: Clock | None = None) -> MemoryStore:
        """Return a store over the bucket."""
        bucket: MemoryBucket = self.bucket
        return UnconditionalStore("memory://bucket/state/0/3", bucket, clock or self.clock)


class Writer:
    """One executor that believes that it runs the store: snapshots and purges, by its own chain."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.previous: Manifest | None = None
        self.known: dict[str, SstFile] = {}

    def snapshot(
        self, model: ModelVersion, changelogs: list[ChangelogRef], *, has_compacted: bool = False
    ) -> None:
        """Take a snapshot of a version, on the base that the bucket has now.

        ``has_compacted``: no file of its database is one of the base.
        """
        base = model.base.ref
        if base is not None and (self.previous is None or self.previous.ref != base):
            # Loaded: the files of the base are on this writer's disk.
            self.previous = self.world.recovery().fetch_manifest(base)
            self.known = {file.local_name: file for file in self.previous.files}
        result = self.world.snapshot(
            model,
            changelogs=tuple(changelogs),
            previous=self.previous,
            known={} if has_compacted else self.known,
            instance=self.name,
        )
        assert result.won
        self.previous, self.known = result.manifest, dict(result.known)

    def purge(self, newest: ModelVersion, since: list[ChangelogRef]) -> None:
        """Purge as the writer of the newest manifest does, if its manifest is the newest base."""
        if self.previous is not None and self.previous.ref == newest.base.ref:
            kept = KeptVersions(newest.version, KEEP, tuple(since))
            self.previous = self.world.purge(self.previous, kept, self.world.clock.now()).manifest


@pytest.fixture
def bucket(tmp_path: Path) -> UnconditionalWorld:
    """A bucket that ignores conditions."""
    return UnconditionalWorld(tmp_path)


def test_a_snapshot_is_taken_and_loaded_without_a_list(bucket: UnconditionalWorld) -> None:
    """Without snapshots each load replays all changelogs from the first one."""
    one = bucket.commit(ModelVersion(), {b"a": b"1"}, attempt(1))
    Writer(bucket, "1").snapshot(one, [changelog_ref(one)])
    two = bucket.commit(on_own_snapshot(one), {b"b": b"2"}, attempt(2))
    objects = bucket.connect()
    assert two.ref is not None

    head = bucket.recovery(objects).fetch_head(2, two.ref.checkpoint_id)
    base = head.header.base.ref
    assert base is not None
    assert base == one.ref
    bucket.recovery(objects).materialize(
        bucket.recovery(objects).fetch_manifest(base), bucket.folder()
    )

    assert set(objects.request_counts()) == {"GetObject"}
    assert bucket.load(2, two.ref.checkpoint_id) == two.content


def test_no_sst_is_named_by_two_manifests(bucket: UnconditionalWorld) -> None:
    """Each of two writers deletes the files of its own snapshots; the other one may need them."""
    writer = Writer(bucket, "1")
    one = bucket.commit(ModelVersion(), {b"a": b"1"}, attempt(1))
    writer.snapshot(one, [changelog_ref(one)])
    first = writer.previous
    two = bucket.commit(on_own_snapshot(one), {b"a": b"1"}, attempt(2))
    writer.snapshot(two, [changelog_ref(two)])
    second = writer.previous

    assert first is not None
    assert second is not None
    names = [file.object_name for file in (*first.files, *second.files)]
    assert len(set(names)) == len(names) == 4


def test_nothing_is_swept(bucket: UnconditionalWorld) -> None:
    """A manifest that another writer replaced names files that the chain does not know."""
    conf = EngineConf.from_mapping({"orphanGraceMs": 1})
    one = bucket.commit(ModelVersion(), {b"a": b"1"}, attempt(1))
    ours, theirs = Writer(bucket, "1"), Writer(bucket, "2")
    ours.snapshot(one, [changelog_ref(one)])
    theirs.snapshot(one, [changelog_ref(one)])
    bucket.clock.advance(10 * GRACE_MS)
    bucket.objects.put("changelog/9.arrow", b"the youngest object is the listing's clock")
    store = StoreCheckpoint(
        bucket.objects,
        StoreId(0, 3),
        2,
        conf,
        SnapshotWriter("run", "1", {"name": "test"}),
        bucket.transfers(None),
    )
    assert ours.previous is not None

    deleted = store.sweep(ours.previous, KeptVersions(1, KEEP, ()))

    assert deleted == 0
    assert one.ref is not None
    assert bucket.load(1, one.ref.checkpoint_id) == one.content


def test_the_files_of_the_stored_manifest_outlive_the_purge_of_the_other_writer(
    bucket: UnconditionalWorld,
) -> None:
    """Its manifest was replaced, and its chain does not know that the stored one reuses a file."""
    ours, theirs = Writer(bucket, "1"), Writer(bucket, "2")
    one = bucket.commit(ModelVersion(), {b"\x00": b"1", b"\x01": b"1"}, attempt(1))
    ours.snapshot(one, [changelog_ref(one)])
    newest = bucket.commit(on_own_snapshot(one), {b"\x00": b"2"}, attempt(2))
    since = [changelog_ref(newest)]
    theirs.snapshot(newest, since, has_compacted=True)
    ours.snapshot(newest, since)
    newest, since = on_own_snapshot(newest), []
    for number in range(3, 3 + KEEP):
        newest = bucket.commit(newest, {b"\x00": b"%d" % number}, attempt(number))
        since.append(changelog_ref(newest))

    for _ in range(2):
        theirs.purge(newest, since)
        bucket.clock.advance(GRACE_MS + MINUTE_MS)
    theirs.purge(newest, since)

    assert newest.ref is not None
    assert bucket.load(newest.version, newest.ref.checkpoint_id) == newest.content


ACTIONS = st.lists(
    st.sampled_from(
        [
            *["commit"] * 3,
            *["snapshot 0", "snapshot 1", "snapshot 0+1", "snapshot 1+0"],
            *["purge 0", "purge 1", "wait"],
        ]
    ),
    min_size=20,
    max_size=60,
)


@settings(max_examples=60)
@given(actions=ACTIONS)
def test_two_writers_lose_no_version_that_is_kept(actions: list[str]) -> None:
    """Whatever both upload, replace and delete: the newest versions load on a fresh machine."""
    with tempfile.TemporaryDirectory(prefix="cairn-unconditional-") as folder:
        world = UnconditionalWorld(Path(folder))
        writers = [Writer(world, "1"), Writer(world, "2")]
        newest = ModelVersion()
        versions: list[ModelVersion] = []
        since: list[ChangelogRef] = []
        for action in actions:
            what, _, number = action.partition(" ")
            if what == "commit" or not versions:
                at = newest.version + 1
                # One of the two files of a snapshot never changes.
                writes = {b"\x01": b"kept"} if at == 1 else {bytes([at % 3 * 2]): b"%d" % at}
                newest = world.commit(newest, writes, attempt(at))
                versions.append(newest)
                since.append(changelog_ref(newest))
            elif what == "snapshot" and since:
                # Of both, the one that is stored last replaces the manifest of the other.
                for index in map(int, number.split("+")):
                    writers[index].snapshot(newest, since)
                newest, since = on_own_snapshot(newest), []
            elif what == "purge":
                writers[int(number)].purge(newest, since)
            elif what == "wait":
                world.clock.advance(GRACE_MS + MINUTE_MS)

        for model in versions[-KEEP:]:
            assert model.ref is not None
            assert world.load(model.ref.version, model.ref.checkpoint_id) == model.content
