"""A broken local database: all calls get its error, and the next load opens a new one."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checksum import crc32c
from cairn.errors import BusyError, CairnError, CorruptError, DiskFullError, LocalDiskError
from cairn.format.manifest import SstFile
from cairn.rocks import RocksDb
from cairn.store.front.instance import ProviderInstance
from cairn.store.rows import committed, reads
from cairn.store.state import store_state

FAMILY = family(0, multi=False)
KEYS = [b"%032x" % number for number in random.Random(1).sample(range(1 << 60), 4000)]


def commit(
    rig: Rig, version: int, base: str | None, rows: list[tuple[int, int, bytes, bytes, int]]
) -> str:
    """Commit ``rows``, load the version, and return its id."""
    rig.write(rows)
    found: str = rig.commit(version, base, [FAMILY])["checkpoint_id"]
    rig.load(version, found)
    return found


def a_snapshot_and_a_version_above(rig: Rig) -> str:
    """Commit three versions with a snapshot of the second, and return the last one's id."""
    one = commit(rig, 1, None, [(1, 0, key, key * 3, 2) for key in KEYS])
    two = commit(rig, 2, one, [(1, 0, KEYS[0], b"new", 1)])
    rig.maintain(cleanup=False)
    return commit(rig, 3, two, [(1, 0, KEYS[1], b"newer", 1)])


def rot(rig: Rig) -> None:
    """Flip bytes of each local SST, as a bad disk does."""
    directory = rig.local.db.directory
    for path in directory.glob("*.sst"):
        content = bytearray(path.read_bytes())
        for at in range(len(content) // 4, len(content) // 2, 97):
            content[at] ^= 0xFF
        with path.open("r+b") as file:
            file.write(content)


def get_all(rig: Rig) -> object:
    return rig.get(0, KEYS)


def scan_all(rig: Rig) -> object:
    return rig.contents(0, 3, page_rows=1000)


def find_all(rig: Rig) -> object:
    rig.write([(1, 0, key, b"the presence of this key is unknown", 0) for key in KEYS])
    return rig.commit(4, rig.state.require_version().checkpoint_id, [FAMILY])


@pytest.mark.parametrize("read", [get_all, scan_all, find_all])
def test_after_corruption_was_read_the_next_load_starts_from_the_objects(
    rig: Rig, read: Callable[[Rig], object]
) -> None:
    """Otherwise each retry of the task reads the same bytes, until the worker dies."""
    last = a_snapshot_and_a_version_above(rig)
    rot(rig)

    with pytest.raises(CorruptError, match="load the version again"):
        read(rig)
    answer = rig.load(3, last)

    assert (answer["source"], answer["changelogs_replayed"]) == ("snapshot", 1)
    assert answer["bytes_downloaded"] > len(KEYS) * 32
    assert rig.get(0, KEYS) == [b"new", b"newer", *(key * 3 for key in KEYS[2:])]


def test_files_that_were_corrupt_before_their_upload_are_gone_around(
    rig: Rig, tmp_path: Path
) -> None:
    """Their checksums hold, so each load opened the same blocks, and the way around was purged."""
    one = commit(rig, 1, None, [(1, 0, key, key * 3, 2) for key in KEYS])
    rig.until_written(1)
    rot(rig)
    two = commit(rig, 2, one, [(1, 0, KEYS[0], b"new", 1)])
    assert rig.maintain(cleanup=False)["snapshot_version"] == 2
    three = commit(rig, 3, two, [(1, 0, KEYS[1], b"newer", 1)])
    other = Rig(tmp_path / "other", rig.url, 2, {})

    for _ in range(2):
        assert other.load(3, three)["repairs"] == 0
        with pytest.raises(CorruptError):
            get_all(other)
    assert other.load(3, three)["repairs"] == 1

    assert other.get(0, KEYS) == [b"new", b"newer", *(key * 3 for key in KEYS[2:])]
    assert other.maintain(cleanup=False)["snapshot_version"] == 3
    other.crash()


@pytest.mark.parametrize("read", [get_all, scan_all, find_all])
def test_after_the_disk_failed_a_read_the_next_load_starts_from_the_objects(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, read: Callable[[Rig], object]
) -> None:
    """RocksDB reports a bad block of the disk as an error of I/O, not as corruption."""
    last = a_snapshot_and_a_version_above(rig)

    def fail(*_: object, **__: object) -> object:
        raise LocalDiskError("IO error: While pread: Input/output error")

    for name in ("get", "scan", "present"):
        monkeypatch.setattr(committed.CommittedRows, name, fail)
    monkeypatch.setattr(RocksDb, "get_many", fail)
    with pytest.raises(LocalDiskError):
        read(rig)
    monkeypatch.undo()
    answer = rig.load(3, last)

    assert answer["source"] == "snapshot"
    assert rig.get(0, KEYS) == [b"new", b"newer", *(key * 3 for key in KEYS[2:])]


def test_after_a_local_file_was_deleted_snapshots_succeed_again(rig: Rig) -> None:
    """A cleaner of /tmp deletes old files. Until the next load no snapshot would succeed."""
    last = a_snapshot_and_a_version_above(rig)
    last = commit(rig, 4, last, [(1, 0, KEYS[2], b"4", 1)])
    next(rig.local.db.directory.glob("*.sst")).unlink()

    with pytest.raises(LocalDiskError):
        rig.maintain(cleanup=False)
    answer = rig.load(4, last)

    assert answer["source"] == "snapshot"
    assert rig.maintain(cleanup=False)["snapshot_version"] == 4
    assert rig.get(0, KEYS[:3]) == [b"new", b"newer", b"4"]


def test_a_full_disk_at_the_begin_of_a_load_is_named_and_the_cache_gives_way(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder needs a block, too: the task would fail for ever beside a cache of gigabytes."""
    last = a_snapshot_and_a_version_above(rig)
    rig.local.give_up(CorruptError("so that the next load begins with a new folder"))
    given_way = []
    monkeypatch.setattr(rig.resources.transfers.cache, "give_way", lambda: given_way.append(1))
    mkdir = Path.mkdir

    def full(path: Path, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        if "i1" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        mkdir(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskFullError) as failure:
        rig.load(3, last)
    monkeypatch.undo()

    assert (failure.value.store, failure.value.version) == ("0/3/default", 3)
    assert given_way
    assert rig.load(3, last)["source"] == "snapshot"


def open_another_instance(rig: Rig, tmp_path: Path) -> ProviderInstance:
    """Serve the same store by a new instance, as a restarted query does; return the old one."""
    before = rig.instance
    rig.instance = ProviderInstance(
        rig.new_checkpoint("again"), tmp_path / "local" / "i2", rig.resources
    )
    return before


def test_no_other_instance_uses_a_corrupt_file(rig: Rig, tmp_path: Path) -> None:
    """The SST cache has a link to the same bytes."""
    last = a_snapshot_and_a_version_above(rig)
    rot(rig)
    with pytest.raises(CorruptError):
        get_all(rig)

    before = open_another_instance(rig, tmp_path)
    rig.load(3, last)

    assert rig.get(0, KEYS)[2:] == [key * 3 for key in KEYS[2:]]
    before.close()


def test_a_file_that_does_not_open_is_downloaded_again(rig: Rig, tmp_path: Path) -> None:
    """The instance that fails has no open database that could be broken."""
    last = a_snapshot_and_a_version_above(rig)
    directory = rig.local.db.directory
    for path in directory.glob("*.sst"):
        with path.open("r+b") as file:
            file.seek(-8, 2)
            file.write(b"no magic")

    before = open_another_instance(rig, tmp_path)
    rig.load(3, last)

    assert rig.get(0, KEYS)[2:] == [key * 3 for key in KEYS[2:]]
    before.close()


def fail_to_write(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the disk full for the next delta, and wait until its write fails."""

    def no_space(*_: object) -> None:
        raise DiskFullError("the local disk is full")

    one = commit(rig, 1, None, [(1, 0, b"a", b"1", 2)])
    rig.until_written(1)
    monkeypatch.setattr(rig.local.db, "ingest", no_space)
    rig.write([(1, 0, key, b"v" * 1000, 2) for key in KEYS])
    rig.commit(2, one, [FAMILY])
    with pytest.raises(DiskFullError):
        rig.until_written(2)


def test_a_read_after_the_failure_gets_its_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The delta that it would wait for is never applied."""
    fail_to_write(rig, monkeypatch)
    failures: list[CairnError | None] = []

    rig.event_loop.run(lambda: rig.local.when_readable(3, failures.append))

    assert isinstance(failures[0], DiskFullError)


def test_a_list_that_cannot_be_joined_breaks_the_database_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop would try it again for ever, and do no other work in between."""
    commit(rig, 1, None, [(1, 0, b"a", b"1", 2)])
    rig.until_written(1)

    def no_space() -> int:
        raise DiskFullError("the local disk is full")

    monkeypatch.setattr(rig.local.db, "join_one_long_list", no_space)

    rig.local.db.long_lists[0, b"a"] = None  # as a read of a list of many chunks
    rig.get(0, [b"a"])
    rig.event_loop.run(lambda: None)

    assert isinstance(rig.local.failure, DiskFullError)
    assert not rig.event_loop.run(rig.resources.scheduler.run_slice)
    assert not rig.resources.scheduler.with_long_lists


def test_a_write_that_finds_the_disk_full_makes_the_cache_give_way(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each new database would break, while the disk is full of files of closed ones."""
    gave_way = threading.Event()
    monkeypatch.setattr(rig.resources.transfers.cache, "give_way", gave_way.set)

    fail_to_write(rig, monkeypatch)

    assert gave_way.wait(20)


def test_a_spill_that_finds_the_disk_full_makes_the_cache_give_way(
    rig: Rig, tmp_path: Path
) -> None:
    """The next attempt of the task needs the space."""
    one = commit(rig, 1, None, [(1, 0, b"a", b"1", 2)])
    (tmp_path / "unused").write_bytes(b"sst")
    file = SstFile(f"sst/{'1' * 32}.sst", "000001.sst", 3, crc32c(b"sst"))
    cache = rig.resources.transfers.cache
    cache.adopt("s3://b", file, tmp_path / "unused")
    (tmp_path / "unused").unlink()
    session = rig.instance.open_session(rig.number)
    assert session is not None

    session.fail(DiskFullError("the local disk is full"))
    with pytest.raises(DiskFullError):
        rig.commit(2, one, [FAMILY])

    assert not cache.has("s3://b", file.object_name)


def test_deltas_of_a_broken_database_are_not_pending(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would delay the commits of all stores of the worker."""
    fail_to_write(rig, monkeypatch)

    assert rig.resources.pending.current == 0
    assert not rig.resources.scheduler.writing


def test_a_delta_after_the_failure_is_not_pending(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may break during a commit's PUT."""
    commit_changelog = StoreCheckpoint.commit

    def break_then_commit(*arguments: object) -> object:
        rig.event_loop.run(lambda: rig.local.give_up(DiskFullError("the local disk is full")))
        return commit_changelog(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreCheckpoint, "commit", break_then_commit)
    rig.write([(1, 0, b"a", b"1", 2)])

    last = rig.commit(1, None, [FAMILY])["checkpoint_id"]

    rig.event_loop.run(lambda: None)
    assert rig.resources.pending.current == 0
    assert rig.load(1, last)["source"] == "replay"
    assert rig.get(0, [b"a"]) == [b"1"]


def result_of(steps: Generator[None, None, object]) -> object:
    """Run the remaining steps, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("is_count", [False, True])
def test_a_read_in_progress_keeps_the_versions_in_memory(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, is_count: bool
) -> None:
    """Without them it would find the rows of an older version, and a commit would keep those."""
    one = commit(rig, 1, None, [(1, 0, KEYS[0], b"old", 2)])
    rig.until_written(1)
    commit(rig, 2, one, [(1, 0, key, b"new", 0) for key in KEYS])
    rig.until_applied(2)  # another thread sorts so many rows, and a read needs them
    monkeypatch.setattr(reads, "STEP_NS", 0)
    monkeypatch.setattr(committed, "COUNT_PAGE_ROWS", 100)
    local = rig.local
    steps: Generator[None, None, object] = (
        local.count_keys(2, 0) if is_count else rig.instance.get(9, 0, KEYS)
    )

    rig.event_loop.run(lambda: [next(steps) for _ in range(3)])
    rig.event_loop.run(lambda: local.give_up(DiskFullError("the local disk is full")))
    found: Any = rig.event_loop.run(lambda: result_of(steps))

    assert (found if is_count else found[1]) == (len(KEYS) if is_count else [b"new"] * len(KEYS))


def test_each_caller_receives_a_separate_error_object(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object that many reads raise would keep the stack frames of all of them alive."""
    fail_to_write(rig, monkeypatch)
    rig.number += 1  # the next session of the same task

    with pytest.raises(DiskFullError) as first:
        get_all(rig)
    with pytest.raises(DiskFullError) as second:
        get_all(rig)

    failure = rig.local.failure
    assert first.value is not second.value
    assert failure is not None
    assert failure.__traceback__ is None


def test_maintenance_of_a_broken_store_says_why(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message "commits came too fast" would mislead the reader."""
    fail_to_write(rig, monkeypatch)

    with pytest.raises(DiskFullError):
        rig.maintain(cleanup=False)


def test_a_commit_whose_database_breaks_after_the_put_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is durable: an error would make Spark repeat the task for nothing."""
    last = a_snapshot_and_a_version_above(rig)

    def broken() -> int:
        raise LocalDiskError("the database was given up")

    rig.write([(1, 0, KEYS[0], b"newest", 1)])
    monkeypatch.setattr(rig.state, "estimated_keys", broken)
    committed = rig.commit(4, last, [FAMILY])["checkpoint_id"]

    assert rig.load(4, committed)["version"] == 4
    rig.until_applied(4)
    assert rig.get(0, KEYS[:1]) == [b"newest"]


def test_a_commit_whose_rows_do_not_fit_into_memory_breaks_only_the_local_state(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is durable after its PUT: without its rows every read would be wrong."""
    last = a_snapshot_and_a_version_above(rig)

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    rig.write([(1, 0, KEYS[0], b"newest", 1)])
    monkeypatch.setattr(store_state, "Delta", no_memory)
    committed = rig.commit(4, last, [FAMILY])["checkpoint_id"]
    monkeypatch.undo()

    assert isinstance(rig.local.failure, BusyError)
    assert rig.load(4, committed)["source"] == "snapshot"
    assert rig.get(0, KEYS[:2]) == [b"newest", b"newer"]
