"""A full disk: CAIRN_DISK_FULL, no partial object, and with free space everything works again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from client import PUT, EngineError, Store, WorkerProcess

from harness.small_disk import SmallDisk, small_disk

DISK_MIB = 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of some MiB, or a folder whose writers can be stopped."""
    with small_disk(tmp_path / "disk", DISK_MIB) as mounted:
        yield mounted


def rows(version: int) -> list[tuple[int, int, bytes, bytes, int]]:
    return [(PUT, 0, b"%d-%d" % (version, n), b"%d" % version * 100, 2) for n in range(50)]


def commit(store: Store, version: int) -> str | None:
    store.write(rows(version))
    store.commit()
    return store.checkpoint_id


def objects(url: Path) -> set[str]:
    return {str(path.relative_to(url)) for path in url.rglob("*") if path.is_file()}


def test_a_full_disk_of_objects_fails_the_commit_and_nothing_else(
    spawn: Callable[..., WorkerProcess], disk: SmallDisk, tmp_path: Path
) -> None:
    """The previous version stays the newest; a partial object never counts as a version."""
    url = disk.path / "state" / "0" / "3"
    worker, other = spawn(), spawn(local=tmp_path / "other")
    store = Store(worker, 1, str(url))
    store.load(0)
    first = commit(store, 1)
    before = objects(url)
    store.load(1, first)
    disk.fill(worker.pid)

    with pytest.raises(EngineError, match="CAIRN_DISK_FULL") as failure:
        commit(store, 2)

    assert failure.value.kind == "retry"
    assert failure.value.fields["next"]
    assert objects(url) == before
    beside = Store(other, 1, str(url))
    assert beside.load(1, first)["counts"]["0"] == 50
    disk.free(worker.pid)
    store.load(1, first)
    second = commit(store, 2)
    assert beside.load(2, second)["counts"]["0"] == 100
    assert len(beside.scan()) == 100


def test_a_full_local_disk_fails_what_needs_it_and_the_next_load_works(
    spawn: Callable[..., WorkerProcess], disk: SmallDisk, url: str
) -> None:
    """Committed versions are in the object store: RocksDB's directory can be rebuilt."""
    worker = spawn(local=disk.path / "local")
    store = Store(worker, 1, url, conf={"minDeltasForSnapshot": "1"})
    store.load(0)
    first = commit(store, 1)
    store.load(1, first)
    second = commit(store, 2)
    store.load(2, second)
    store.get([b"1-1"])
    disk.fill(worker.pid)

    with pytest.raises(EngineError, match="CAIRN_DISK_FULL"):
        worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)
    later = Store(worker, 2, url)
    with pytest.raises(EngineError, match="CAIRN_DISK_FULL"):
        later.load(1, first)
    assert not any(name.startswith("snapshot/") for name in objects(Path(url)))

    disk.free(worker.pid)
    assert later.load(1, first)["counts"]["0"] == 50
    assert len(later.scan()) == 50
    store.load(2, second)
    assert len(store.scan()) == 100
    third = commit(store, 3)
    assert store.load(3, third)["counts"]["0"] == 150
    report = worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)
    assert report["snapshot_version"] == 3
