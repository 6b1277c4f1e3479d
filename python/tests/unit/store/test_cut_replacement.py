"""A process that ends between the two renames with which a file system of Hadoop's replaces a file.

The version has then no object under its plain name, and its batch may be committed: with the
attempt that was to be replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import STORE, Rig, family

from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.errors import CorruptError, FencedError, MissingError, UnavailableError
from cairn.protocol import files
from cairn.rocks import engine_description
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.store import HadoopStore
from harness.fake_shim import FILE_SYSTEM, FakeShim

FAMILY = family(0, multi=False)
ROOT = "/a/state/0/3"


class Cluster:
    """Executors over one file system."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.shim = FakeShim()
        self.connections = StorageConnections()
        for _ in range(8):
            self.shim.connect(self.connections)
        self.rigs: list[Rig] = []

    def store(self) -> HadoopStore:
        """Return the objects of the store."""
        settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": "5000"}
        return HadoopStore(f"hdfs://host:9000{ROOT}", settings, self.connections)

    def executor(self) -> Rig:
        """Start an executor."""
        cluster = self

        class OnHadoop(Rig):
            def new_checkpoint(self, writer: str) -> StoreCheckpoint:
                return StoreCheckpoint(
                    cluster.store(),
                    STORE,
                    1,
                    self.conf,
                    SnapshotWriter(self.run, writer, engine_description()),
                    self.resources.transfers,
                )

        conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 2, "orphanGraceMs": 0}
        rig = OnHadoop(self._tmp_path / f"local{len(self.rigs)}", "", 1, conf)
        self.rigs.append(rig)
        return rig

    def commit(self, version: int, value: bytes, attempt: int) -> None:
        """Commit a version on a new executor."""
        commit(self.executor(), version, value, attempt)

    def cut(
        self, version: int, value: bytes, attempt: int, *, before_first_rename: bool = False
    ) -> None:
        """Commit a version on an executor that dies before the second rename, or the first one."""
        path = f"{ROOT}/changelog/{version}.arrow"
        executor = self.executor()
        base = executor.load(version - 1, None)["checkpoint_id"]
        is_dead = [False]

        def die(kind: int, requested: str) -> None:
            # The first rename moves the old object away.
            has_moved = path not in self.shim.content
            is_dead[0] |= kind == files.FILE_RENAME and (
                requested.endswith(".old")
                if before_first_rename
                else requested == path and has_moved
            )
            if is_dead[0]:
                raise UnavailableError("the process has ended")

        self.shim.before = die
        with pytest.raises(UnavailableError):
            write(executor, version, base, value, attempt)
        self.shim.before = lambda _kind, _path: None
        assert before_first_rename == (path in self.shim.content)

    def commit_until_purged(self, version: int) -> None:
        """Commit the versions that follow, until one is not retained, and purge."""
        executor = self.executor()
        for later in range(version + 1, version + 8):
            commit(executor, later, b"%d" % later, later + 10)
            executor.maintain()

    def rows(self, version: int) -> dict[bytes, bytes]:
        """Return the rows of a version on a new executor."""
        executor = self.executor()
        executor.load(version, None)
        return executor.contents(0, version)

    def log_commits(self, *batches: int) -> None:
        """Write Spark's log of commits."""
        for batch in batches:
            self.shim.store(f"/a/commits/{batch}", b"v1\n{}")


def commit(rig: Rig, version: int, value: bytes, attempt: int) -> None:
    """Load the version before, and commit."""
    write(rig, version, rig.load(version - 1, None)["checkpoint_id"], value, attempt)


def write(rig: Rig, version: int, base: str | None, value: bytes, attempt: int) -> None:
    """Commit one row on the loaded version."""
    rig.write([(1, 0, b"%d" % version, value, 0)])
    rig.commit(version, base, [FAMILY], attempt)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a cluster without executors."""
    made = Cluster(tmp_path)
    yield made
    for rig in made.rigs:
        rig.crash()
    made.connections.close()


def test_a_committed_version_loads_after_its_replacement_was_cut_off(cluster: Cluster) -> None:
    """Nothing lost its bytes, but the query did not start."""
    cluster.commit(1, b"1", 1)
    cluster.commit(2, b"first", 2)
    cluster.cut(2, b"twin", 3)
    cluster.log_commits(0, 1)

    assert cluster.rows(2) == {b"1": b"1", b"2": b"first"}


def test_the_query_goes_on_from_such_a_version(cluster: Cluster) -> None:
    """Snapshots, purges and later loads meet the version that has no plain name."""
    cluster.commit(1, b"1", 1)
    cluster.commit(2, b"first", 2)
    cluster.cut(2, b"twin", 3)
    cluster.log_commits(0, 1)
    executor = cluster.executor()
    for version in range(3, 5):
        commit(executor, version, b"%d" % version, version + 1)
    assert executor.maintain()["snapshot_version"] >= 3  # a commit may have begun it already
    for version in range(5, 8):
        commit(executor, version, b"%d" % version, version + 1)

    assert executor.maintain()["deleted_objects"] > 0

    expected = {b"%d" % version: b"%d" % version for version in range(1, 8)} | {b"2": b"first"}
    assert cluster.rows(7) == expected
    with pytest.raises(MissingError):
        cluster.rows(2)


def test_the_batch_may_run_again(cluster: Cluster) -> None:
    """If it was not committed, its next attempt has the version."""
    cluster.commit(1, b"1", 1)
    cluster.commit(2, b"first", 2)
    cluster.cut(2, b"twin", 3)

    cluster.commit(2, b"again", 4)

    assert cluster.rows(2) == {b"1": b"1", b"2": b"again"}


def test_no_attempt_takes_the_name_of_a_version_whose_batch_is_committed(cluster: Cluster) -> None:
    """The name is free, so nothing was replaced: a zombie changed the version in silence."""
    cluster.commit(1, b"one", 2)
    cluster.cut(1, b"two", 3)
    cluster.log_commits(0)

    for attempt in (1, 4):
        with pytest.raises(FencedError, match="batch 0 is committed"):
            cluster.commit(1, b"late", attempt)

    assert cluster.rows(1) == {b"1": b"one"}


def test_of_several_attempts_the_one_that_had_the_name_last_is_read(cluster: Cluster) -> None:
    """Each attempt that was replaced has left a copy under its id."""
    cluster.commit(1, b"1", 1)
    for attempt in (2, 3, 3):
        cluster.commit(2, b"%d" % attempt, attempt)
    cluster.cut(2, b"twin", 5)
    cluster.log_commits(0, 1)

    assert cluster.rows(2) == {b"1": b"1", b"2": b"3"}


def test_what_a_cut_replacement_has_moved_away_is_verified(cluster: Cluster) -> None:
    """An older copy is not taken for it."""
    cluster.commit(1, b"1", 1)
    for attempt in (2, 3):
        cluster.commit(2, b"%d" % attempt, attempt)
    cluster.cut(2, b"twin", 4)
    for path in [path for path in cluster.shim.content if path.endswith(".old")]:
        cluster.shim.store(path, cluster.shim.content[path][:-9])

    with pytest.raises(CorruptError):
        cluster.rows(2)


def test_a_lost_version_is_missing_although_it_replaced_another_one(cluster: Cluster) -> None:
    """The copy of the attempt before is an older state: nobody asked for it."""
    cluster.commit(1, b"first", 1)
    cluster.commit(1, b"second", 2)
    cluster.log_commits(0)
    del cluster.shim.content[f"{ROOT}/changelog/1.arrow"]

    with pytest.raises(MissingError):
        cluster.rows(1)


def test_a_lost_version_is_missing_although_a_rival_died_before_it(cluster: Cluster) -> None:
    """What the rival has left is no sign that the replacement was cut off: another one did it."""
    cluster.commit(1, b"first", 1)
    path = f"{ROOT}/changelog/1.arrow"
    cluster.cut(1, b"rival", 2, before_first_rename=True)
    assert path in cluster.shim.content
    assert [name for name in cluster.shim.content if name.endswith(".new")]
    cluster.commit(1, b"second", 3)
    cluster.log_commits(0)
    del cluster.shim.content[path]

    with pytest.raises(MissingError):
        cluster.rows(1)


def test_a_purged_version_is_missing_although_attempts_of_it_were_replaced(
    cluster: Cluster,
) -> None:
    """What the purge leaves must not pass for a version whose replacement was cut off."""
    for attempt in (1, 2):
        cluster.commit(1, b"%d" % attempt, attempt)
    cluster.commit_until_purged(1)
    assert f"{ROOT}/changelog/1.arrow" not in cluster.shim.content

    with pytest.raises(MissingError):
        cluster.rows(1)


def test_a_purged_version_is_missing_although_a_replacement_of_it_was_cut_off(
    cluster: Cluster,
) -> None:
    """The batch ran again, and its version is purged before the hidden files are a day old."""
    cluster.commit(1, b"first", 1)
    cluster.cut(1, b"cut", 2)
    cluster.commit(1, b"again", 3)
    cluster.commit_until_purged(1)
    assert f"{ROOT}/changelog/1.arrow" not in cluster.shim.content

    with pytest.raises(MissingError):
        cluster.rows(1)


@pytest.mark.parametrize("where", ["first rename", "read of what was moved", "second rename"])
def test_a_replacement_that_fails_loses_nothing(cluster: Cluster, where: str) -> None:
    """Its process lives on, and deletes what it has begun. The batch is that of its twin."""
    path = f"{ROOT}/changelog/1.arrow"
    cluster.commit(1, b"first", 1)
    executor = cluster.executor()
    executor.load(0, None)

    def before(kind: int, requested: str) -> None:
        is_moved = path not in cluster.shim.content
        if (
            where == "read of what was moved"
            and kind == files.FILE_READ
            and requested.endswith(".old")
        ) or (
            # Also that which moves the old object back.
            where == "second rename"
            and kind == files.FILE_RENAME
            and requested == path
            and is_moved
        ):
            raise UnavailableError("no answer")

    def after(kind: int, requested: str) -> None:
        if where == "first rename" and kind == files.FILE_RENAME and requested.endswith(".old"):
            raise UnavailableError("no answer")

    cluster.shim.before, cluster.shim.after = before, after
    with pytest.raises(UnavailableError):
        write(executor, 1, None, b"twin", 2)
    cluster.shim.before = cluster.shim.after = lambda _kind, _path: None
    cluster.log_commits(0)

    assert cluster.rows(1) == {b"1": b"first"}


def test_a_purge_deletes_what_is_hidden_of_a_version(cluster: Cluster) -> None:
    """No name is there that a later listing would find."""
    cluster.commit(1, b"first", 1)
    cluster.cut(1, b"twin", 2)
    cluster.log_commits(0)
    cluster.commit_until_purged(1)

    assert not [name for name in cluster.shim.hidden() if "/.1.arrow" in name]
    with pytest.raises(MissingError):
        cluster.rows(1)


def test_two_cut_replacements_of_one_version_are_named(cluster: Cluster) -> None:
    """Which one had the name last is not known."""
    cluster.commit(1, b"first", 1)
    cluster.cut(1, b"cut", 2)
    cluster.commit(1, b"third", 3)
    cluster.cut(1, b"twin", 4)
    cluster.log_commits(0)

    with pytest.raises(CorruptError, match=r"2 replacements .* \.1\.arrow\..*\.old") as raised:
        cluster.rows(1)

    assert "written last" in str(raised.value)


def test_a_late_twin_is_refused_there_too(cluster: Cluster) -> None:
    """The log of commits is beside the state on each file system."""
    cluster.commit(1, b"1", 1)
    cluster.log_commits(0)

    with pytest.raises(FencedError):
        cluster.commit(1, b"twin", 2)

    assert cluster.rows(1) == {b"1": b"1"}
