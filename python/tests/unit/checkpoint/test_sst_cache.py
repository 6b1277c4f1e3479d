"""SstCache: bounded, shared by hard links, and correct after a restart."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cairn.checkpoint import sst_cache
from cairn.checkpoint.sst_cache import SstCache
from cairn.checksum import crc32c
from cairn.errors import DiskFullError, MissingError
from cairn.format.manifest import SstFile


def sst(digit: str, content: bytes) -> SstFile:
    """Return a file's description."""
    return SstFile(f"sst/{digit * 32}.sst", "000001.sst", len(content), crc32c(content))


ORIGIN = "https://one/bucket/state/0/0"
ONE, TWO, THREE = (sst(digit, digit.encode() * 100) for digit in "123")


def cached_bytes(folder: Path) -> int:
    """Return the size of all files of the cache."""
    return sum(path.stat().st_size for path in (folder / "cache").iterdir())


class Downloads:
    """Writes content, and counts the downloads."""

    def __init__(self, origin: str = ORIGIN) -> None:
        self.count = 0
        self.origin = origin

    def of(self, digit: str) -> object:
        """Return a download of the file that ``sst`` describes."""

        def download(path: Path) -> None:
            self.count += 1
            path.write_bytes(digit.encode() * 100)

        return download

    def fetch(self, cache: SstCache, digit: str, target: Path) -> int:
        """Fetch one file."""
        return cache.fetch_into(
            self.origin,
            sst(digit, digit.encode() * 100),
            target,
            self.of(digit),  # type: ignore[arg-type]
        )


def test_second_fetch_downloads_nothing(tmp_path: Path) -> None:
    """A second load on the same machine is cheap."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()

    first = downloads.fetch(cache, "1", tmp_path / "a")
    second = downloads.fetch(cache, "1", tmp_path / "b")

    assert (first, second, downloads.count) == (100, 0, 1)
    assert (tmp_path / "b").read_bytes() == b"1" * 100
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino


def test_a_file_that_cannot_be_read_is_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad block of the disk would fail each load on this machine, for ever."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()
    downloads.fetch(cache, "1", tmp_path / "a")
    cache.mark_unverified()

    def fail(_: Path) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sst_cache, "crc32c_file", fail)
    second = downloads.fetch(cache, "1", tmp_path / "b")

    assert (second, downloads.count) == (100, 2)
    assert (tmp_path / "b").read_bytes() == b"1" * 100


def test_least_recently_used_is_evicted_first_and_links_stay(tmp_path: Path) -> None:
    """The bound holds, and no database loses a file."""
    cache, downloads = SstCache(tmp_path / "cache", 250), Downloads()
    downloads.fetch(cache, "1", tmp_path / "a")
    downloads.fetch(cache, "2", tmp_path / "b")
    downloads.fetch(cache, "1", tmp_path / "c")

    downloads.fetch(cache, "3", tmp_path / "d")

    assert cached_bytes(tmp_path) == 200
    assert not cache.has(ORIGIN, TWO.object_name)
    assert cache.has(ORIGIN, ONE.object_name)
    assert (tmp_path / "b").read_bytes() == b"2" * 100


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    """Small stores upload thousands of small SSTs a day: each takes memory and an inode."""
    cache, downloads = SstCache(tmp_path / "cache", 1000, max_files=2), Downloads()
    for digit in "123":
        downloads.fetch(cache, digit, tmp_path / digit)

    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert not cache.has(ORIGIN, ONE.object_name)

    again = SstCache(tmp_path / "cache", 1000, max_files=1)

    assert len(list((tmp_path / "cache").iterdir())) == 1
    assert again.has(ORIGIN, THREE.object_name)


def test_file_over_the_bound_is_fetched_and_not_kept(tmp_path: Path) -> None:
    """A cache that is too small for one file must not fail a load."""
    cache, downloads = SstCache(tmp_path / "cache", 10), Downloads()

    downloads.fetch(cache, "1", tmp_path / "a")

    assert (tmp_path / "a").read_bytes() == b"1" * 100
    assert cached_bytes(tmp_path) == 0
    assert list((tmp_path / "cache").iterdir()) == []


def test_uploaded_file_needs_no_download(tmp_path: Path) -> None:
    """A file that was just uploaded is on this machine."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()
    (tmp_path / "source").write_bytes(b"1" * 100)

    cache.adopt(ORIGIN, ONE, tmp_path / "source")
    cache.adopt(ORIGIN, ONE, tmp_path / "source")
    (tmp_path / "source").unlink()

    assert downloads.fetch(cache, "1", tmp_path / "a") == 0
    assert cached_bytes(tmp_path) == 100


def test_files_survive_a_restart(tmp_path: Path) -> None:
    """The next process on this machine downloads less."""
    downloads = Downloads()
    downloads.fetch(SstCache(tmp_path / "cache", 1000), "1", tmp_path / "a")

    cache = SstCache(tmp_path / "cache", 1000)

    assert cached_bytes(tmp_path) == 100
    assert downloads.fetch(cache, "1", tmp_path / "b") == 0


def test_partial_downloads_are_removed_at_start(tmp_path: Path) -> None:
    """An interrupted download leaves a temporary file."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ".tmp-123").write_bytes(b"half")

    SstCache(tmp_path / "cache", 1000)

    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("content", [b"1" * 99, b"1" * 99 + b"2", b""])
def test_file_corrupt_on_disk_is_fetched_again(tmp_path: Path, content: bytes) -> None:
    """RocksDB would notice only when it reads that block, or never."""
    downloads = Downloads()
    downloads.fetch(SstCache(tmp_path / "cache", 1000), "1", tmp_path / "a")
    (tmp_path / "a").unlink()
    next((tmp_path / "cache").iterdir()).write_bytes(content)

    cache = SstCache(tmp_path / "cache", 1000)

    assert downloads.fetch(cache, "1", tmp_path / "b") == 100
    assert (tmp_path / "b").read_bytes() == b"1" * 100
    assert cached_bytes(tmp_path) == 100


def test_file_deleted_by_another_program_is_fetched_again(tmp_path: Path) -> None:
    """Another program may clean the disk."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()
    downloads.fetch(cache, "1", tmp_path / "a")
    next((tmp_path / "cache").iterdir()).unlink()

    assert downloads.fetch(cache, "1", tmp_path / "b") == 100
    assert cached_bytes(tmp_path) == 100


def test_failed_download_leaves_nothing(tmp_path: Path) -> None:
    """The next fetch starts from the beginning."""
    cache = SstCache(tmp_path / "cache", 1000)

    def fail(_path: Path) -> None:
        raise MissingError("deleted")

    with pytest.raises(MissingError):
        cache.fetch_into(ORIGIN, ONE, tmp_path / "a", fail)

    assert not (tmp_path / "a").exists()
    assert cached_bytes(tmp_path) == 0
    assert Downloads().fetch(cache, "1", tmp_path / "a") == 100


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EXDEV, None),
        (errno.EOPNOTSUPP, None),
        (errno.ENOSYS, None),
        (errno.ENOSPC, DiskFullError),
    ],
)
def test_link_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception] | None
) -> None:
    """Across file systems, and on one without links, the file is copied; a full disk is named."""
    cache = SstCache(tmp_path / "cache", 1000)

    def refuse(_source: Path, _target: Path) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr(os, "link", refuse)

    if error is None:
        Downloads().fetch(cache, "1", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == b"1" * 100
    else:
        with pytest.raises(error):
            Downloads().fetch(cache, "1", tmp_path / "a")
        assert not (tmp_path / "a").exists()


class SmallDisk(Downloads):
    """Downloads to a disk that has space for some files; a file counts once, with all its links."""

    def __init__(self, folder: Path, max_files: int) -> None:
        super().__init__()
        self._folder = folder
        self._max_files = max_files

    def of(self, digit: str) -> object:
        """Return a download that fails on the full disk."""

        def download(path: Path) -> None:
            self.count += 1
            files = {one.stat().st_ino for one in self._folder.rglob("*") if one.is_file()}
            if len(files) >= self._max_files:
                raise DiskFullError("no space is left on the disk")
            path.write_bytes(digit.encode() * 100)

        return download


def test_the_cache_gives_way_on_a_full_disk(tmp_path: Path) -> None:
    """The files of other loads may be downloaded again; those of open databases take no space."""
    cache, disk = SstCache(tmp_path / "cache", 1000), SmallDisk(tmp_path, 2)
    disk.fetch(cache, "1", tmp_path / "a")
    disk.fetch(cache, "2", tmp_path / "b")
    (tmp_path / "b").unlink()  # its database is closed

    fetched = disk.fetch(cache, "3", tmp_path / "c")

    assert fetched == 100
    assert (tmp_path / "c").read_bytes() == b"3" * 100
    assert cache.has(ORIGIN, ONE.object_name)
    assert not cache.has(ORIGIN, TWO.object_name)
    assert cached_bytes(tmp_path) == 200


def test_a_disk_that_databases_fill_is_full(tmp_path: Path) -> None:
    """Then only a person can help, and the cache keeps what costs no space."""
    cache, disk = SstCache(tmp_path / "cache", 1000), SmallDisk(tmp_path, 1)
    disk.fetch(cache, "1", tmp_path / "a")

    with pytest.raises(DiskFullError):
        disk.fetch(cache, "2", tmp_path / "b")

    assert not (tmp_path / "b").exists()
    assert disk.fetch(cache, "1", tmp_path / "c") == 0


def test_a_file_evicted_during_a_fetch_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load of another store may evict it at that moment; this load must not fail."""
    cache, downloads = SstCache(tmp_path / "cache", 150), Downloads()
    downloads.fetch(cache, "1", tmp_path / "a")
    utime = os.utime

    def evict_first(path: Path) -> None:
        monkeypatch.undo()
        downloads.fetch(cache, "2", tmp_path / "b")
        utime(path)

    monkeypatch.setattr(os, "utime", evict_first)

    assert downloads.fetch(cache, "1", tmp_path / "c") == 0
    assert (tmp_path / "c").read_bytes() == b"1" * 100
    assert not cache.has(ORIGIN, ONE.object_name)


def test_two_threads_download_once(tmp_path: Path) -> None:
    """Two instances of a store may load concurrently."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()

    with ThreadPoolExecutor(8) as threads:
        fetched = list(
            threads.map(lambda n: downloads.fetch(cache, "1", tmp_path / f"t{n}"), range(32))
        )

    assert sum(fetched) == 100
    assert downloads.count == 1
    assert cached_bytes(tmp_path) == 100


def test_a_file_of_another_cache_is_taken_and_verified(tmp_path: Path) -> None:
    """After a restart a store may be on another worker of the machine than before."""
    downloads = Downloads()
    downloads.fetch(SstCache(tmp_path / "other", 1000), "1", tmp_path / "a")
    cache = SstCache(tmp_path / "cache", 1000, lambda: [tmp_path / "empty", tmp_path / "other"])

    first = downloads.fetch(cache, "1", tmp_path / "b")
    next((tmp_path / "other").iterdir()).unlink()
    second = downloads.fetch(cache, "1", tmp_path / "c")

    assert (first, second, downloads.count) == (0, 0, 1)
    assert (tmp_path / "c").read_bytes() == b"1" * 100
    assert cached_bytes(tmp_path) == 100


@pytest.mark.parametrize("content", [b"1" * 99, b"1" * 99 + b"2", b""])
def test_a_corrupt_file_of_another_cache_is_downloaded(tmp_path: Path, content: bytes) -> None:
    """A crash of the machine may have left anything; only the other cache may remove its file."""
    Downloads().fetch(SstCache(tmp_path / "other", 1000), "1", tmp_path / "first")
    (tmp_path / "first").unlink()
    other = next((tmp_path / "other").iterdir())
    other.write_bytes(content)
    cache, downloads = SstCache(tmp_path / "cache", 1000, lambda: [tmp_path / "other"]), Downloads()

    assert downloads.fetch(cache, "1", tmp_path / "a") == 100
    assert (tmp_path / "a").read_bytes() == b"1" * 100
    assert other.read_bytes() == content
    assert cached_bytes(tmp_path) == 100


def test_the_bound_holds_for_files_of_other_caches(tmp_path: Path) -> None:
    """Each worker has its share of the disk."""
    downloads = Downloads()
    other = SstCache(tmp_path / "other", 1000)
    for digit in "123":
        downloads.fetch(other, digit, tmp_path / f"a{digit}")
    cache = SstCache(tmp_path / "cache", 250, lambda: [tmp_path / "other"])

    for digit in "123":
        downloads.fetch(cache, digit, tmp_path / f"b{digit}")

    assert downloads.count == 3
    assert cached_bytes(tmp_path) == 200


def test_another_bucket_s_object_of_the_same_name_is_not_used(tmp_path: Path) -> None:
    """Whoever may write to one bucket must not provide the rows of another one."""
    cache = SstCache(tmp_path / "cache", 1000)
    Downloads("https://one/theirs/state/0/0").fetch(cache, "1", tmp_path / "theirs")
    ours = Downloads()

    assert ours.fetch(cache, "1", tmp_path / "ours") == 100
    assert ours.fetch(cache, "1", tmp_path / "again") == 0


def test_a_file_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the right size and checksum, and anyone can compute those."""
    downloads = Downloads()
    downloads.fetch(SstCache(tmp_path / "cache", 1000), "1", tmp_path / "a")
    downloads.fetch(SstCache(tmp_path / "other", 1000), "1", tmp_path / "b")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    cache = SstCache(tmp_path / "cache", 1000, lambda: [tmp_path / "other"])

    assert downloads.fetch(cache, "1", tmp_path / "c") == 100


def test_a_file_written_to_in_place_is_verified_again(tmp_path: Path) -> None:
    """A database has a link to the file: what it writes there would be in every later load."""
    cache, downloads = SstCache(tmp_path / "cache", 1000), Downloads()
    downloads.fetch(cache, "1", tmp_path / "a")
    downloads.fetch(cache, "1", tmp_path / "b")
    (tmp_path / "a").write_bytes(b"x" * 100)
    os.utime(tmp_path / "a", (1, 1))  # the clock of a file system is coarse

    assert downloads.fetch(cache, "1", tmp_path / "c") == 100
    assert (tmp_path / "c").read_bytes() == b"1" * 100
