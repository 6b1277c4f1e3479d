"""Executors that have the same store: Spark moves a partition, and perhaps moves it back."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from rig import STORE, Rig, family

from cairn.checkpoint.faults import FaultPoint, no_fault
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import FakeClock
from cairn.errors import AccessError
from cairn.format import manifest
from cairn.storage.base import ObjectStart
from cairn.storage.memory import MemoryBucket, MemoryStore
from cairn.store.snapshot import lineage_bound, purge

FAMILY = family(0, multi=False)
_GRACE_S = 60
KEYS = [b"%032x" % number for number in random.Random(1).sample(range(1 << 60), 3000)]


class MovedStore:
    """A store with its rows, which several executors serve in turn."""

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.ids: list[str | None] = [None]
        self.rows: dict[bytes, bytes] = {}

    def executor(self, name: str) -> Rig:
        """Start an executor."""
        # Without a grace period, so that a purge deletes at once what it drops.
        conf = {"minDeltasForSnapshot": 10, "minBatchesToRetain": 2, "orphanGraceMs": 0}
        return Rig(self._tmp_path / name, str(self._tmp_path / "objects"), 2, conf)

    def commit(self, rig: Rig, rows: dict[bytes, bytes]) -> None:
        """Commit the next version on an executor, which loads the one before."""
        version = len(self.ids)
        rig.load(version - 1, self.ids[-1])
        rig.write([(1, 0, key, value, 0) for key, value in rows.items()])
        answer = rig.commit(version, self.ids[-1], [FAMILY])
        self.ids.append(answer["checkpoint_id"])
        self.rows.update(rows)

    def commit_one_row(self, rig: Rig, times: int) -> None:
        """Commit versions of one row."""
        for _ in range(times):
            version = len(self.ids)
            self.commit(rig, {KEYS[version]: b"version %d" % version})


def take_snapshot(rig: Rig) -> None:
    """Take a snapshot of the newest version."""
    lineage_bound.take_now(rig.state, 20)


def purge_now(rig: Rig) -> None:
    """Delete what no kept version needs."""
    with rig.state.snapshots.lock:
        purge.purge(rig.state, None)


def serve_in_turns(store: MovedStore) -> tuple[Rig, Rig]:
    """Commit nine versions; the first executor has a snapshot of 3, the second one of 8."""
    first, second = store.executor("first"), store.executor("second")
    store.commit(first, {key: key * 4 for key in KEYS})
    store.commit_one_row(first, 2)
    take_snapshot(first)  # of 3
    store.commit_one_row(first, 1)
    store.commit_one_row(second, 4)
    second.until_written(8)
    second.compact()
    take_snapshot(second)  # of 8: none of the files of 3
    store.commit_one_row(first, 1)  # on version 4, which it has: it does not load 8
    return first, second


def test_an_executor_that_comes_back_finds_the_files_of_its_snapshot(tmp_path: Path) -> None:
    """Its snapshot shares files with one that the other executor has deleted since."""
    store = MovedStore(tmp_path)
    first, second = serve_in_turns(store)
    take_snapshot(first)  # of 9: the files of 3
    store.commit_one_row(second, 3)
    purge_now(second)  # the manifest of 3, but not its files, which that of 9 needs
    store.commit_one_row(second, 1)
    store.commit_one_row(first, 1)
    take_snapshot(first)  # of 14
    store.commit_one_row(first, 2)
    purge_now(first)

    third = store.executor("third")
    for version in (15, 16):
        third.load(version, store.ids[version])
    found = third.contents(0, 16, page_rows=1000)

    assert found == store.rows
    for rig in (first, second, third):
        rig.crash()


def test_an_executor_whose_upload_is_slow_stores_no_snapshot_with_deleted_files(
    tmp_path: Path,
) -> None:
    """The other one deletes them before the manifest is stored, so no listing shows that."""
    store = MovedStore(tmp_path)
    first, second = serve_in_turns(store)

    def meanwhile(point: str) -> None:
        if point == FaultPoint.SNAPSHOT_BEFORE_SST:
            first.fault = no_fault
            store.commit_one_row(second, 3)
            purge_now(second)  # the manifest of 3
            take_snapshot(second)
            purge_now(second)  # its files

    first.fault = meanwhile
    lineage_bound.take_now(first.state, 20)  # of 9: without the files of 3
    assert first.state.snapshots.failure is None
    store.commit_one_row(first, 2)
    assert first.state.require_version().base.version == 9
    take_snapshot(first)  # of 14
    store.commit_one_row(first, 1)

    third = store.executor("third")
    answer = third.load(15, store.ids[15])
    found = third.contents(0, 15, page_rows=1000)

    assert answer["repairs"] == 0
    assert found == store.rows
    for rig in (first, second, third):
        rig.crash()


class Moves:
    """A store that moves to another executor after each snapshot.

    Args:
        tmp_path: the executors' disks.
    """

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.clock = FakeClock()
        self.bucket = MemoryBucket()
        self.ids: list[str | None] = [None]

    def objects(self) -> MemoryStore:
        """Return the store's objects."""
        return MemoryStore("memory://bucket/state", self.bucket, self.clock)

    def executor(self) -> Rig:
        """Start an executor."""
        moves = self

        class OnClock(Rig):
            def new_checkpoint(self, writer: str) -> StoreCheckpoint:
                return StoreCheckpoint(
                    moves.objects(),
                    STORE,
                    2,
                    self.conf,
                    SnapshotWriter("run", writer, {}),
                    self.resources.transfers,
                )

        conf = {
            "minDeltasForSnapshot": 5,
            "minBatchesToRetain": 2,
            "orphanGraceMs": _GRACE_S * 1000,
        }
        return OnClock(self._tmp_path / f"l{len(self.ids)}", "", 2, conf)

    def serve(self, rig: Rig) -> int:
        """Commit some versions, and maintain the store; return how many objects were deleted."""
        for _ in range(5):
            version = len(self.ids)
            rig.load(version - 1, self.ids[-1])
            rig.write([(1, 0, key, b"%d" % version, 0) for key in KEYS[:100]])
            answer = rig.commit(version, self.ids[-1], [FAMILY])
            self.ids.append(answer["checkpoint_id"])
        rig.until_written(version)
        rig.compact()
        return int(rig.maintain()["deleted_objects"])

    def newest_manifest(self) -> manifest.Manifest:
        """Return the manifest of the newest version."""
        name = f"snapshot/{len(self.ids) - 1}_{self.ids[-1]}.json"
        return manifest.decode(self.objects().get(name).data, object_name=name)


def test_a_store_that_moves_after_each_snapshot_is_purged(tmp_path: Path) -> None:
    """No executor stores a second snapshot, with the chain that its purge has shortened."""
    moves = Moves(tmp_path)
    counts: list[tuple[int, int, int]] = []
    for _ in range(6):
        rig = moves.executor()
        moves.serve(rig)
        rig.crash()
        names = [info.key.partition("/")[0] for info in moves.objects().list("")]
        retained = len(moves.newest_manifest().retained)
        counts.append((names.count("snapshot"), names.count("sst"), retained))
        moves.clock.advance(_GRACE_S)

    assert counts[2:] == [(2, 3, 1)] * 4


def test_an_executor_that_stores_no_snapshot_itself_does_not_wait_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replays what the other one commits, however long; that is not what a short run left."""
    store = MovedStore(tmp_path)
    first, second = store.executor("first"), store.executor("second")
    waits: list[int] = []
    for _ in range(25):
        store.commit_one_row(first, 2)
        store.commit_one_row(second, 2)
        take_snapshot(first)
        assert not lineage_bound.is_overdue(second.state)
        with monkeypatch.context() as patched:
            patched.setattr(lineage_bound, "take_now", lambda *_: waits.append(len(store.ids)))
            store.commit_one_row(second, 1)

    assert second.state.lineage_length() < 10
    assert waits == []
    for rig in (first, second):
        rig.crash()


def test_a_refused_look_at_the_last_snapshot_does_not_mean_that_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service of the credentials may fail for one request: the manifest is still there."""
    moves = Moves(tmp_path)
    rig = moves.executor()
    moves.serve(rig)
    rig.crash()
    rig = moves.executor()
    rig.load(len(moves.ids) - 1, moves.ids[-1])
    objects = rig.state.checkpoint.objects
    get_start = objects.get_start

    def refuse_manifests(key: str, length: int) -> ObjectStart:
        if key.startswith("snapshot/"):
            raise AccessError("no credentials", object_name=key)
        return get_start(key, length)

    monkeypatch.setattr(objects, "get_start", refuse_manifests)
    moves.serve(rig)
    rig.crash()

    assert [entry.ref.version for entry in moves.newest_manifest().retained] == [5]


def test_a_snapshot_does_not_need_the_purge_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps the executor may not delete objects."""
    moves = Moves(tmp_path)
    for _ in range(2):
        rig = moves.executor()
        moves.serve(rig)
        rig.crash()
    rig = moves.executor()
    rig.load(len(moves.ids) - 1, moves.ids[-1])

    def refuse(_: object) -> None:
        raise AccessError("DeleteObject is not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(rig.state.checkpoint.objects, "delete", refuse)
        with pytest.raises(AccessError):
            moves.serve(rig)

    assert [entry.ref.version for entry in moves.newest_manifest().retained] == [5, 10]
    assert rig.maintain()["deleted_objects"] > 0
    rig.crash()
