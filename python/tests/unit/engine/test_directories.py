"""Workers on one local disk: their directories, and the slots of their SST caches."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cairn.engine.directories import WorkerDirectories
from cairn.errors import ConfigError, DiskFullError

Flock = Callable[[int, int], None]


def test_a_worker_that_is_starting_does_not_count_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory exists and is not locked yet: the other would remove it."""
    is_created, may_continue = threading.Event(), threading.Event()
    second_waits = threading.Event()
    flock = fcntl.flock
    started: list[WorkerDirectories] = []

    def noted(descriptor: int, operation: int) -> None:
        locked = Path(f"/proc/self/fd/{descriptor}").readlink()
        if is_created.is_set():
            if locked == tmp_path / "local" and operation == fcntl.LOCK_EX:
                second_waits.set()
        elif locked.name.startswith("cairn-worker-"):
            is_created.set()
            assert may_continue.wait(20)
        flock(descriptor, operation)

    def start() -> None:
        started.append(WorkerDirectories(tmp_path / "local", tmp_path / "sockets"))

    monkeypatch.setattr(fcntl, "flock", noted)
    first, second = threading.Thread(target=start), threading.Thread(target=start)
    first.start()
    assert is_created.wait(20)
    second.start()
    assert second_waits.wait(20)
    local = os.open(tmp_path / "local", os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        flock(local, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(local)
    may_continue.set()
    first.join(20)
    second.join(20)

    assert len(started) == 2
    for one in started:
        assert one.root.exists()
        one.close()
        one.remove()


def start(tmp_path: Path, *, keeps_cache: bool = True) -> WorkerDirectories:
    """Start a worker."""
    return WorkerDirectories(tmp_path / "local", tmp_path / "sockets", keeps_cache=keeps_cache)


def lock_of_files(descriptor: int, operation: int, flock: Flock = fcntl.flock) -> None:
    """Lock files, but no folders, as NFS does."""
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EBADF, "Bad file descriptor")
    flock(descriptor, operation)


def end(worker: WorkerDirectories) -> None:
    """End a worker in order."""
    worker.remove()
    worker.close()


def names(tmp_path: Path) -> list[str]:
    """Return the directories on the local disk, without the random part."""
    return sorted(
        "cairn-worker" if path.name.startswith("cairn-worker") else path.name
        for path in (tmp_path / "local").iterdir()
    )


def test_a_cache_outlives_its_worker(tmp_path: Path) -> None:
    """A restart of the query must not download what the disk has."""
    worker = start(tmp_path)
    (worker.cache_directory / "file").write_text("cached")
    end(worker)
    left = names(tmp_path)

    again = start(tmp_path)

    assert left == ["cairn-cache-0"]
    assert (again.cache_directory / "file").read_text() == "cached"
    end(again)


def test_a_cache_in_spark_s_directory_ends_with_its_worker(tmp_path: Path) -> None:
    """A worker that ends cleanly leaves nothing there."""
    end(start(tmp_path, keeps_cache=False))

    assert names(tmp_path) == []


def test_after_a_kill_the_next_worker_has_the_same_slot(tmp_path: Path) -> None:
    """The kernel releases the locks; the directory of the dead worker is removed."""
    for keeps_cache in (True, False):
        worker = start(tmp_path, keeps_cache=keeps_cache)
        (worker.cache_directory / "file").write_text("cached")
        worker.close()

        again = start(tmp_path, keeps_cache=keeps_cache)

        assert names(tmp_path) == ["cairn-cache-0", "cairn-worker"]
        assert (again.cache_directory / "file").read_text() == "cached"
        end(again)


def test_running_workers_have_different_slots_and_find_each_other(tmp_path: Path) -> None:
    """One process owns a cache; the files of the others are found, running or not."""
    first, second, third = (start(tmp_path) for _ in range(3))
    end(second)

    again = start(tmp_path)

    assert again.cache_directory == second.cache_directory
    assert sorted(again.other_caches()) == sorted([first.cache_directory, third.cache_directory])
    for worker in (first, third, again):
        end(worker)
    assert names(tmp_path) == ["cairn-cache-0", "cairn-cache-1", "cairn-cache-2"]


def test_a_slot_unused_for_a_week_is_removed(tmp_path: Path) -> None:
    """More workers ran here once: their caches would fill the disk for ever."""
    first, second, third = (start(tmp_path) for _ in range(3))
    long_ago = time.time() - 8 * 86_400
    for worker in (first, second, third):
        end(worker)
    for worker in (first, second):
        os.utime(worker.cache_directory, (long_ago, long_ago))

    again = start(tmp_path)

    assert again.cache_directory == first.cache_directory
    assert names(tmp_path) == ["cairn-cache-0", "cairn-cache-2", "cairn-worker"]
    end(again)


def test_another_user_s_slot_is_not_used(tmp_path: Path) -> None:
    """Its files could be anyone's; a checksum is no signature."""
    (tmp_path / "local" / "cairn-cache-0").mkdir(parents=True)
    (tmp_path / "local" / "cairn-cache-0").chmod(0o777)
    (tmp_path / "local" / "cairn-cache-1").symlink_to(tmp_path)

    worker = start(tmp_path)

    assert worker.cache_directory.parent == worker.root
    assert worker.other_caches() == []
    end(worker)
    assert names(tmp_path) == ["cairn-cache-0", "cairn-cache-1"]


def test_the_local_directory_is_created_for_this_user_alone(tmp_path: Path) -> None:
    """Also under a umask that opens new folders to everyone."""
    before = os.umask(0)
    try:
        worker = WorkerDirectories(tmp_path / "above" / "local", tmp_path / "sockets")
    finally:
        os.umask(before)

    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "above" / "local").stat().st_mode & 0o777 == 0o700
    end(worker)


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_local_directory_that_others_may_write_into_is_refused(tmp_path: Path, mode: int) -> None:
    """In a shared /tmp another user can create it first."""
    (tmp_path / "local").mkdir()
    (tmp_path / "local").chmod(mode)

    with pytest.raises(ConfigError, match=rf"local is not used.*\(mode {mode:04o}\)") as refused:
        start(tmp_path)

    assert names(tmp_path) == []
    assert "cairn.localDir" in str(refused.value)


def test_a_local_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner can replace everything in it, whatever its mode is."""
    (tmp_path / "local").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    with pytest.raises(ConfigError, match=rf"belongs to the user with id {os.getuid()}"):
        start(tmp_path)


def test_a_link_in_place_of_the_local_directory_is_refused(tmp_path: Path) -> None:
    """It may lead to a directory of this user's own, whose content would be removed."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "local").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError, match="symbolic link to"):
        start(tmp_path)

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_live_worker_needs_no_file_that_others_may_delete(tmp_path: Path) -> None:
    """Programs that clean up /tmp delete old files, but respect the lock of a folder."""
    worker = start(tmp_path)

    assert [path for path in worker.root.rglob("*") if path.is_file()] == []
    again = start(tmp_path)

    assert worker.root.exists()
    assert worker.cache_directory != again.cache_directory
    end(worker)
    end(again)


@pytest.mark.parametrize("is_alive", [True, False])
def test_without_locks_of_folders_a_file_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_alive: bool
) -> None:
    """NFS locks files only."""
    monkeypatch.setattr(fcntl, "flock", lock_of_files)
    worker = start(tmp_path)
    if not is_alive:
        worker.close()

    again = start(tmp_path)

    assert worker.root.exists() == is_alive
    assert (worker.cache_directory != again.cache_directory) == is_alive
    if is_alive:
        end(worker)
    end(again)


def test_a_worker_killed_before_it_had_a_lock_counts_as_dead(tmp_path: Path) -> None:
    """Its folder would stay for ever: no worker starts beside this one, so it is no new one."""
    root = tmp_path / "local" / "cairn-worker-dead"
    root.mkdir(parents=True, mode=0o700)

    worker = start(tmp_path)

    assert not root.exists()
    end(worker)


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts the worker again and again; each start would leave two folders.

    Without locks of folders it creates a file.
    """
    open_file = os.open

    def without_space(path: str | Path, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if Path(path).name == "lock":
            raise OSError(errno.ENOSPC, "no room")
        return open_file(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(fcntl, "flock", lock_of_files)
    monkeypatch.setattr(os, "open", without_space)

    with pytest.raises(DiskFullError):
        start(tmp_path)

    assert not list((tmp_path / "local").glob("cairn-worker-*"))
    assert not list((tmp_path / "sockets").iterdir())


def test_what_another_user_put_into_the_local_directory_stays(tmp_path: Path) -> None:
    """It was left from a time when others could write into it: it is neither read nor removed."""
    planted = tmp_path / "local" / "cairn-worker-planted"
    planted.mkdir(parents=True)
    planted.chmod(0o777)
    (planted / "lock").touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "local" / "cairn-worker-link").symlink_to(tmp_path / "elsewhere")

    end(start(tmp_path))

    assert (planted / "lock").exists()
    assert (tmp_path / "elsewhere" / "lock").exists()


def test_a_file_created_during_the_removal_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker ends while its threads write; its folder would stay on the disk."""
    worker = WorkerDirectories(tmp_path / "local", tmp_path / "sockets")
    folder = worker.instance_directory(1)
    folder.mkdir()
    rmdir = os.rmdir

    def write_then_remove(path: str | Path, **options: int | None) -> None:
        if Path(path).name == folder.name and not written:
            written.append(folder)
            (folder / "incoming-1.sst").write_bytes(b"rows")
        rmdir(path, **options)

    written: list[Path] = []
    monkeypatch.setattr(os, "rmdir", write_then_remove)
    worker.remove()

    assert written
    assert not worker.root.exists()
    worker.close()
