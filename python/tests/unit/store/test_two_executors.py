"""Two executors that have the same store: Spark moves a partition, and moves it back."""

from __future__ import annotations

import random
from pathlib import Path

from rig import Rig, family

from cairn.checkpoint.faults import FaultPoint
from cairn.store import snapshot

FAMILY = family(0, multi=False)
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
    snapshot.take_now(rig.state, 20)


def purge(rig: Rig) -> None:
    """Delete what no kept version needs."""
    with rig.state.snapshots.running:
        snapshot.purge(rig.state, None)


def test_an_executor_that_comes_back_finds_the_files_of_its_snapshot(tmp_path: Path) -> None:
    """Its snapshot shares files with one that the other executor has deleted since."""
    store = MovedStore(tmp_path)
    first, second = store.executor("first"), store.executor("second")
    store.commit(first, {key: key * 4 for key in KEYS})
    store.commit_one_row(first, 2)
    take_snapshot(first)  # of 3
    store.commit_one_row(first, 1)
    store.commit_one_row(second, 4)
    second.until_written(8)
    second.local.db._db.compact_range(None, None)  # as RocksDB does by itself later
    take_snapshot(second)  # of 8: none of the files of 3
    store.commit_one_row(first, 1)  # on version 4, which it has: it does not load 8
    take_snapshot(first)  # of 9: the files of 3
    store.commit_one_row(second, 3)
    purge(second)  # the manifest of 3, but not its files, which that of 9 needs
    store.commit_one_row(second, 1)
    store.commit_one_row(first, 1)
    take_snapshot(first)  # of 14
    store.commit_one_row(first, 2)
    purge(first)

    third = store.executor("third")
    for version in (15, 16):
        third.load(version, store.ids[version])
    found = third.contents(0, 16, page_rows=1000)

    assert found == store.rows
    for rig in (first, second, third):
        rig.crash()


def test_an_executor_that_stood_still_stores_no_snapshot_with_deleted_files(tmp_path: Path) -> None:
    """The other one deletes them before the manifest is stored, so no listing shows that."""
    store = MovedStore(tmp_path)
    first, second = store.executor("first"), store.executor("second")
    store.commit(first, {key: key * 4 for key in KEYS})
    store.commit_one_row(first, 2)
    take_snapshot(first)  # of 3
    store.commit_one_row(first, 1)
    store.commit_one_row(second, 4)
    second.until_written(8)
    second.local.db._db.compact_range(None, None)
    take_snapshot(second)  # of 8: none of the files of 3
    store.commit_one_row(first, 1)

    def meanwhile(point: str) -> None:
        if point == FaultPoint.SNAPSHOT_BEFORE_MANIFEST:
            store.commit_one_row(second, 3)
            purge(second)  # the manifest of 3
            take_snapshot(second)
            purge(second)  # its files

    uploader = first.state.checkpoint.uploader
    uploader._fault = meanwhile
    snapshot.take_now(first.state, 20)  # of 9: the files of 3
    uploader._fault = lambda _: None
    assert first.state.snapshots.failure is not None
    assert "snapshot of version 3 was deleted" in first.state.snapshots.failure.message
    # Not from the local disk: the next commit must not have the lost base.
    assert first.load(9, store.ids[9])["source"] == "snapshot"
    assert first.state.require_version().base.version == 8
    store.commit_one_row(first, 2)
    take_snapshot(first)  # of 14
    store.commit_one_row(first, 1)

    third = store.executor("third")
    answer = third.load(15, store.ids[15])
    found = third.contents(0, 15, page_rows=1000)

    assert answer["repairs"] == 0
    assert found == store.rows
    for rig in (first, second, third):
        rig.crash()
