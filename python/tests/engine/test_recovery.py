"""What a worker finds in the objects: snapshots, moved stores, corruption."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from client import APPEND, DELETE, PUT, EngineError, Store, WorkerProcess

from cairn.protocol import frames
from cairn.protocol.frames import CHANGES_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

CONF: dict[str, Any] = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 3, "orphanGraceMs": 0}


def fill(store: Store, versions: int) -> list[tuple[str | None, dict[bytes, bytes]]]:
    """Commit versions; return id and rows of each, version 0 first."""
    rows: dict[bytes, bytes] = {}
    done: list[tuple[str | None, dict[bytes, bytes]]] = [(None, {})]
    for version in range(store.version + 1, store.version + 1 + versions):
        writes: list[tuple[Any, ...]] = []
        for n in range(version, version + 300):
            key = b"%05d" % (n * 37 % 1000)
            if n % 7 == 0:
                rows.pop(key, None)
                writes.append((DELETE, 0, key, None))
            else:
                rows[key] = b"%d" % version * 5
                writes.append((PUT, 0, key, rows[key]))
        store.write([*writes, (APPEND, 1, b"L", b"%d," % version)])
        store.commit()
        done.append((store.checkpoint_id, dict(rows)))
        store.load(version, store.checkpoint_id)
    return done


def maintain(store: Store, **which: bool) -> dict[str, Any]:
    return store.worker.call(
        "maintain",
        instance=store.number,
        storage=None,
        **({"snapshot": True, "cleanup": True} | which),
    )


@dataclass(frozen=True)
class Versions:
    """A checkpoint that tests damage: the newest version's id and rows, of both families."""

    url: str
    checkpoint_id: str | None
    rows: dict[bytes, Any]
    lists: dict[bytes, Any]

    def copy(self, url: str) -> Versions:
        """Return a copy at another place."""
        shutil.copytree(self.url, url)
        return replace(self, url=url)


def versions_of(folder: Path, *, before_snapshot: int, after: int) -> Versions:
    """Commit versions, of which one has a snapshot, in a worker that ends then."""
    worker = WorkerProcess(folder / "local")
    try:
        store = Store(worker, 1, str(folder / "state" / "0" / "3"), conf=CONF)
        store.load(0)
        fill(store, before_snapshot)
        maintain(store)
        fill(store, after)
        return Versions(
            str(folder / "state" / "0" / "3"), store.checkpoint_id, store.scan(), store.scan(1)
        )
    finally:
        worker.close()


@pytest.fixture(scope="module")
def of_module(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Versions]:
    """Return the checkpoints that the tests copy, each made once."""
    folder = tmp_path_factory.mktemp("versions")
    return {
        "three": versions_of(folder / "three", before_snapshot=2, after=1),
        "five": versions_of(folder / "five", before_snapshot=5, after=0),
    }


@pytest.fixture
def three(of_module: dict[str, Versions], url: str) -> Versions:
    """Return three versions, the second with a snapshot."""
    return of_module["three"].copy(url)


def elsewhere(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path, checkpoint_format: int
) -> Store:
    """Return the store in a worker with a local directory of its own."""
    worker = spawn(local=tmp_path / "other")
    return Store(worker, 1, url, checkpoint_format=checkpoint_format, conf=CONF)


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_a_moved_store_is_loaded_from_snapshot_and_changelogs(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path, checkpoint_format: int
) -> None:
    """Another executor, another local directory: the same rows."""
    store = Store(spawn(), 1, url, checkpoint_format=checkpoint_format, conf=CONF)
    store.load(0)
    done = fill(store, 3)
    first = maintain(store)
    done += fill(store, 2)[1:]
    # The second fill() began with empty rows: the scans below compare the two workers.

    moved = elsewhere(spawn, url, tmp_path, checkpoint_format)
    checkpoint_id = done[5][0] if checkpoint_format == 2 else None
    answer = moved.load(5, checkpoint_id)

    assert first["snapshot_version"] == 3
    assert (answer["source"], answer["changelogs_replayed"]) == ("snapshot", 2)
    assert answer["snapshot_version"] == 3
    assert answer["checkpoint_id"] == done[5][0]
    assert moved.scan() == store.scan()
    assert moved.scan(1) == {b"L": b"1,2,3,4,5,"}
    assert answer["counts"] == {"0": len(moved.scan()), "1": 1}


@pytest.mark.parametrize("checkpoint_format", [1, 2])
def test_a_version_that_has_a_snapshot_is_loaded_from_it(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path, checkpoint_format: int
) -> None:
    """Its changelog is older than its snapshot and names all changelogs before it."""
    store = Store(spawn(), 1, url, checkpoint_format=checkpoint_format, conf=CONF)
    store.load(0)
    done = fill(store, 5)
    maintain(store)

    moved = elsewhere(spawn, url, tmp_path, checkpoint_format)
    answer = moved.load(5, done[5][0] if checkpoint_format == 2 else None)

    assert (answer["source"], answer["changelogs_replayed"]) == ("snapshot", 0)
    assert answer["snapshot_version"] == 5
    assert answer["checkpoint_id"] == done[5][0]
    assert answer["counts"] == {"0": len(done[5][1]), "1": 1}
    assert moved.scan() == done[5][1]
    assert moved.scan(1) == {b"L": b"1,2,3,4,5,"}
    # Later versions, snapshots and deletions continue from there.
    fill(moved, 3)
    report = maintain(moved)
    assert (report["snapshot_version"], report["reused_files"]) == (8, 1)
    third = Store(
        spawn(local=tmp_path / "third"), 1, url, checkpoint_format=checkpoint_format, conf=CONF
    )
    third.load(8, moved.checkpoint_id if checkpoint_format == 2 else None)
    assert third.scan() == moved.scan()
    assert third.scan(1) == {b"L": b"1,2,3,4,5,6,7,8,"}


@pytest.mark.parametrize("kind", ["sst", "snapshot"])
@pytest.mark.parametrize("harm", ["missing", "flipped"])
def test_a_version_is_replayed_if_its_own_snapshot_is_unusable(
    spawn: Callable[..., WorkerProcess],
    of_module: dict[str, Versions],
    url: str,
    kind: str,
    harm: str,
) -> None:
    """The lineage does not need that snapshot; an absent one is no damage, or was never taken."""
    five = of_module["five"].copy(url)
    for victim in Path(url, kind).iterdir():
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 0x40
        victim.unlink() if harm == "missing" else victim.write_bytes(bytes(content))

    moved = Store(spawn(), 1, url, conf=CONF)
    answer = moved.load(5, five.checkpoint_id)

    assert (answer["source"], answer["changelogs_replayed"]) == ("replay", 5)
    assert answer["repairs"] == (0 if (kind, harm) == ("snapshot", "missing") else 1)
    assert moved.scan() == five.rows
    assert moved.scan(1) == five.lists == {b"L": b"1,2,3,4,5,"}


def test_a_second_snapshot_uploads_only_new_files_and_purges(store: Store, url: str) -> None:
    """Snapshots are incremental; retention deletes old versions without a LIST."""
    store = Store(store.worker, 2, url, conf=CONF)
    store.load(0)
    done = fill(store, 3)
    maintain(store)
    done += fill(store, 6)[1:]

    report = maintain(store)

    assert report["snapshot_version"] == 9
    assert (report["uploaded_files"], report["reused_files"]) == (1, 1)
    kept = sorted(int(path.name.split("_")[0]) for path in Path(url, "changelog").iterdir())
    assert kept[-3:] == [7, 8, 9]
    assert 3 not in kept
    for version in (7, 8, 9):
        store.load(version, done[version][0])
    with pytest.raises(EngineError, match="CAIRN_MISSING"):
        store.load(2, done[2][0])


# While "wait" is there, a snapshot waits before it takes the rows from the database: "waits".
WAITING = """
import pathlib, time
from cairn.rocks import RocksDb
flush, folder = RocksDb.flush, pathlib.Path({folder!r})
def flush_late(db):
    while (folder / 'wait').exists():
        (folder / 'waits').touch()
        time.sleep(0.01)
    flush(db)
RocksDb.flush = flush_late
"""


def test_commits_continue_while_a_snapshot_delays_deltas(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path
) -> None:
    """A snapshot of version N has no rows of later versions."""
    worker = spawn(patch=WAITING.format(folder=str(tmp_path)), memory_bytes=64 << 20)
    store = Store(worker, 1, url, conf=CONF)
    store.load(0)
    checkpoint_id = fill(store, 2)[2][0]
    expected = store.scan()
    (tmp_path / "wait").touch()
    job = worker.begin(
        "maintain", wait_ms=0, instance=1, storage=None, snapshot=True, cleanup=False
    )
    deadline = time.monotonic() + 20
    while not (tmp_path / "waits").exists():
        assert time.monotonic() < deadline
    later = {b"later%d" % n: b"x" * (2 << 20) for n in range(3)}

    for key, value in later.items():
        store.write([(PUT, 0, key, value)])
        store.commit()
        store.load(store.version, store.checkpoint_id)

    assert "running" in job.wait(0)
    (tmp_path / "wait").unlink()
    assert job.wait(20_000)["ok"]["snapshot_version"] == 2
    other = elsewhere(spawn, url, tmp_path, 2)
    other.session_number += 1
    other.version = 2
    answer = other.worker.call(
        "load_snapshot",
        instance=other.number,
        session=other.session,
        version=2,
        checkpoint_id=checkpoint_id,
        load_empty=False,
        snapshot_version=2,
    )
    assert answer["changelogs_replayed"] == 0
    assert other.scan() == expected
    other.load(5, store.checkpoint_id)
    assert other.scan() == store.scan() == expected | later


def test_a_forced_snapshot_is_there_when_commit_returns(store: Store, url: str) -> None:
    """Spark's coordinator requests it when a store lags."""
    store.write([(PUT, 0, b"a", b"1")])

    answer = store.commit(snapshot=True)

    assert answer["snapshot_version"] == 1
    assert [path.name.split("_")[0] for path in Path(url, "snapshot").iterdir()] == ["1"]


def damage(victim: Path, harm: str) -> None:
    """Delete an object, cut it, or flip a bit of it."""
    whole = victim.read_bytes()
    if harm == "missing":
        victim.unlink()
        return
    content = bytearray(whole)
    content[len(whole) // 2] ^= 0x40
    victim.write_bytes(whole[: len(whole) // 2] if harm == "cut" else bytes(content))


def newest(url: str, kind: str) -> Path:
    return max(Path(url, kind).iterdir(), key=lambda path: path.name)


HARMS = pytest.mark.parametrize("harm", ["missing", "cut", "flipped"])


@HARMS
def test_a_corrupt_changelog_is_named_and_no_older_state_is_loaded(
    spawn: Callable[..., WorkerProcess], three: Versions, url: str, harm: str
) -> None:
    """An error with the object's name; once the object is restored, the same version loads."""
    victim = newest(url, "changelog")
    whole = victim.read_bytes()
    damage(victim, harm)

    again = Store(spawn(), 1, url, conf=CONF)
    with pytest.raises(EngineError) as failed:
        again.load(3, three.checkpoint_id)

    assert failed.value.kind == "corrupt"
    assert victim.name in failed.value.fields["object"]
    assert failed.value.fields["store"] == "0/3/default"
    assert failed.value.fields["version"] == 3
    assert failed.value.fields["next"]
    victim.write_bytes(whole)
    again.load(3, three.checkpoint_id)
    assert again.scan() == three.rows


@HARMS
@pytest.mark.parametrize("kind", ["sst", "snapshot"])
def test_a_corrupt_snapshot_is_avoided(
    spawn: Callable[..., WorkerProcess], three: Versions, url: str, kind: str, harm: str
) -> None:
    """The changelogs from the empty store on lead to the same version."""
    damage(newest(url, kind), harm)

    again = Store(spawn(), 1, url, conf=CONF)
    answer = again.load(3, three.checkpoint_id)

    assert (answer["repairs"], answer["source"], answer["changelogs_replayed"]) == (1, "replay", 3)
    assert again.scan() == three.rows


@HARMS
@pytest.mark.parametrize("kind", ["sst", "snapshot"])
def test_without_another_way_all_needed_objects_are_named(
    spawn: Callable[..., WorkerProcess], three: Versions, url: str, kind: str, harm: str
) -> None:
    """It is enough to restore one of them."""
    victim = newest(url, kind)
    whole = victim.read_bytes()
    damage(victim, harm)
    first = min(Path(url, "changelog").iterdir(), key=lambda path: path.name)
    damage(first, harm)

    again = Store(spawn(), 1, url, conf=CONF)
    with pytest.raises(EngineError) as failed:
        again.load(3, three.checkpoint_id)

    assert failed.value.kind == "corrupt"
    assert victim.name in failed.value.fields["object"]
    assert first.name in str(failed.value)
    assert failed.value.fields["next"]
    victim.write_bytes(whole)
    again.load(3, three.checkpoint_id)
    assert again.scan() == three.rows


def test_a_version_loaded_empty_commits_as_its_successor(store: Store, url: str) -> None:
    """Spark's offline repartition: the former content is not read."""
    store.write([(PUT, 0, b"old", b"1")])
    store.commit()
    other = Store(store.worker, 2, url)
    answer = other.load(7, None, load_empty=True)
    other.write([(PUT, 0, b"new", b"1")])
    other.checkpoint_id = None
    other.commit()

    again = Store(store.worker, 3, url)
    loaded = again.load(8, other.checkpoint_id)

    assert answer["source"] == "empty"
    assert loaded["counts"] == {"0": 1, "1": 0}
    assert again.scan() == {b"new": b"1"}


def test_a_load_in_format_1_compares_the_objects_id(worker: WorkerProcess, url: str) -> None:
    """Another executor may have committed the same version meanwhile."""
    mine = Store(worker, 1, url, checkpoint_format=1)
    other = Store(worker, 2, url, checkpoint_format=1)
    for store, value, attempt in ((mine, b"mine", 1), (other, b"other", 2)):
        store.load(0)
        store.attempt = store.attempt | {"task_attempt": attempt}
        store.write([(PUT, 0, b"k", value)])
        store.commit()

    answer = mine.load(1)

    assert answer["checkpoint_id"] == other.checkpoint_id
    assert mine.scan() == {b"k": b"other"}


def test_a_zombie_is_fenced_in_format_1(worker: WorkerProcess, url: str) -> None:
    """Its commit fails, and its instance keeps its version."""
    zombie = Store(worker, 1, url, checkpoint_format=1)
    winner = Store(worker, 2, url, checkpoint_format=1)
    for store, attempt in ((winner, 2), (zombie, 1)):
        store.load(0)
        store.attempt = store.attempt | {"task_attempt": attempt}
        store.write([(PUT, 0, b"k", b"%d" % attempt)])
    winner.commit()

    with pytest.raises(EngineError, match="CAIRN_FENCED"):
        zombie.commit()

    zombie.load(1)
    assert zombie.scan() == {b"k": b"2"}


def test_replay_from_a_chosen_snapshot(store: Store, url: str) -> None:
    """The state reader's snapshotStartBatchId."""
    store = Store(store.worker, 2, url, conf=CONF | {"minBatchesToRetain": 100})
    store.load(0)
    done = fill(store, 2)
    maintain(store)
    done += fill(store, 2)[1:]
    maintain(store)
    done += fill(store, 1)[1:]
    rows = store.scan()

    reader = Store(store.worker, 3, url, conf=CONF)
    reader.session_number += 1
    chosen = {
        "instance": 3,
        "session": reader.session,
        "version": 5,
        "checkpoint_id": done[5][0],
        "load_empty": False,
    }
    answer = reader.worker.call(
        "load_snapshot", **chosen, snapshot_version=2, snapshot_checkpoint_id=None
    )
    reader.version = 5

    assert (answer["snapshot_version"], answer["changelogs_replayed"]) == (2, 3)
    assert reader.scan() == rows
    with pytest.raises(EngineError, match="CAIRN_MISSING"):
        reader.worker.call(
            "load_snapshot", **chosen, snapshot_version=3, snapshot_checkpoint_id="u" + "0" * 32
        )


def test_the_change_feed_pages_through_each_version(store: Store, url: str) -> None:
    """The state reader's readChangeFeed loads no version."""
    done = fill(store, 3)
    store = Store(store.worker, 2, url)

    found = store.worker.call(
        "changes", instance=2, start_version=2, end_version=3, end_checkpoint_id=done[3][0]
    )

    assert found["version"] == 3
    assert [family["id"] for family in found["column_families"]] == [0, 1]
    assert found["versions"] == [[2, done[2][0]], [3, done[3][0]]]
    rows: list[Any] = []
    more = True
    while more:
        request: dict[str, list[Any]] = {
            "version": [2],
            "checkpoint_id": [(done[2][0] or "").encode()],
            "from_row": [len(rows)],
            "limit_rows": [100],
        }
        batch = pa.RecordBatch.from_pydict(request, schema=CHANGES_SCHEMA)
        store.channel.send(frames.CHANGES, store.session, batch.serialize(), rows=1)
        header, payload = store.channel.receive()
        rows += frames.decode_rows(payload, frames.CHANGES_REPLY_SCHEMA).to_pylist()
        more = bool(header.flags & frames.FLAG_MORE)
    assert len(rows) == 301
    assert rows[-1] == {"op": APPEND, "cf": 1, "key": b"L", "value": b"2,"}


def test_a_removed_checkpoint_is_missing_not_empty(store: Store, url: str) -> None:
    """Somebody removed the state folder: the query must not start with empty state."""
    done = fill(store, 1)
    shutil.rmtree(url)

    with pytest.raises(EngineError, match="CAIRN_MISSING"):
        Store(store.worker, 2, url).load(1, done[1][0])
