"""SstCache: SST files on this machine's disk, by the object that they were downloaded from.

Layer: checkpoint. SSTs are never rewritten, so a file that has the size and checksum of a manifest
can replace the object. A checksum is no signature: a file counts only for the storage, bucket and
object from which it came (its name is a hash of them), and only if this user owns it.

RocksDB's directories get hard links: they keep their files when the cache evicts one. A file that
was written to since (its time differs) is verified again. One process owns a cache's directory; all
methods are thread-safe. A cache may take a file from the directory of another one, by a hard link:
only the owner of a directory removes files.

A full disk ends no query as long as the cache has files that nothing else needs.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import stat
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cairn.checksum import crc32c_file
from cairn.errors import DISK_FULL_ERRNOS, DiskFullError, open_files_error
from cairn.format.names import SST_PREFIX, is_sst_name
from cairn.storage.files import NO_LINK_ERRNOS, translate_os_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from cairn.format.manifest import SstFile

_LOG = logging.getLogger(__name__)
# Each takes some 300 bytes of memory. Small stores upload small SSTs, which nobody needs any more
# after the next compaction: the bound on bytes alone would keep those of many days.
_MAX_FILES = 32_768


@dataclass(slots=True)
class _Entry:
    size_bytes: int
    is_verified: bool
    modified_ns: int
    """Of the file when it was verified."""


@dataclass(slots=True)
class _ObjectLock:
    lock: threading.Lock = field(default_factory=threading.Lock)
    user_count: int = 0


class SstCache:
    """Files with bounds on their size and number; the least recently used are evicted first.

    The directory may have files of an earlier process: each is verified before its first use.

    Args:
        directory: created if absent; unfinished downloads in it are removed.
        max_bytes: 0 keeps nothing.
        find_others: returns the directories of other caches on this disk, now.
        max_files: more files are evicted, too.
    """

    def __init__(
        self,
        directory: Path,
        max_bytes: int,
        find_others: Callable[[], Iterable[Path]] = tuple,
        *,
        max_files: int = _MAX_FILES,
    ) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._find_others = find_others
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._object_locks: dict[str, _ObjectLock] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._add_existing_files()

    def has(self, origin: str, object_name: str) -> bool:
        """Tell whether the cache has a file of that object."""
        with self._lock:
            return _file_name(origin, object_name) in self._entries

    def fetch_into(
        self, origin: str, file: SstFile, target: Path, download: Callable[[Path], None]
    ) -> int:
        """Create ``target`` with the file's content; download it if the cache lacks it.

        If several threads need one object, one of them downloads it. If the disk is full, the cache
        gives way, and there is a second try.

        Args:
            origin: ``ObjectStore.origin`` of the store that has the object.
            file: the SST, as in the manifest.
            target: must not exist.
            download: writes the verified object to the given path; its errors are passed on.

        Returns:
            Bytes downloaded: 0 or the file's size.

        Raises:
            DiskFullError: the disk is full without the files that only the cache has.
        """
        name = _file_name(origin, file.object_name)
        with self._locked(name):
            try:
                return self._fetch_into(name, file, target, download)
            except DiskFullError:
                self.give_way()
                # Also if nothing was removed: another thread may have done it.
                return self._fetch_into(name, file, target, download)

    def _fetch_into(
        self, name: str, file: SstFile, target: Path, download: Callable[[Path], None]
    ) -> int:
        if self._link_cached(name, file, target):
            return 0
        if self._take_from_others(name, file) and self._link_cached(name, file, target):
            return 0
        path = self._directory / name
        download(path)
        try:
            _link_or_copy(path, target)
        finally:
            self._add(name, file)  # also if the load was cancelled, and its directory is gone
        return file.size_bytes

    def give_way(self) -> None:
        """Remove the files that only the cache has: the disk is full. Never raises."""
        freed_bytes = 0
        with self._lock:
            for name, entry in list(self._entries.items()):
                with suppress(OSError):
                    # The other links are those of databases, or of another cache.
                    if (self._directory / name).lstat().st_nlink == 1:
                        self._remove(name)
                        freed_bytes += entry.size_bytes
        if freed_bytes:
            _LOG.warning(
                "the local disk is full: %d MiB of cached SSTs were removed", freed_bytes >> 20
            )

    def adopt(self, origin: str, file: SstFile, source: Path) -> None:
        """Add a file that was just uploaded to ``origin``, by a hard link; ``source`` stays."""
        name = _file_name(origin, file.object_name)
        with self._locked(name):
            if self.has(origin, file.object_name) or file.size_bytes > self._max_bytes:
                return
            path = self._directory / name
            path.unlink(missing_ok=True)
            _link_or_copy(source, path)
            self._add(name, file)

    def mark_unverified(self) -> None:
        """Verify every file again before its next use: the local disk has corrupted data."""
        with self._lock:
            for entry in self._entries.values():
                entry.is_verified = False

    def _link_cached(self, name: str, file: SstFile, target: Path) -> bool:
        with self._lock:
            entry = self._entries.get(name)
        if entry is None:
            return False
        path = self._directory / name
        with suppress(FileNotFoundError):  # another program has deleted it
            if self._is_whole(path, entry, file):
                _link_or_copy(path, target)
                with suppress(FileNotFoundError):  # evicted meanwhile; the target keeps its link
                    os.utime(path)  # keeps the order of use for the next process
                    entry.modified_ns = path.lstat().st_mtime_ns
                with self._lock:
                    if name in self._entries:
                        self._entries.move_to_end(name)
                return True
        with self._lock:
            self._remove(name)
        return False

    @staticmethod
    def _is_whole(path: Path, entry: _Entry, file: SstFile) -> bool:
        """Whether a cached file is that of the manifest; one that cannot be read is not."""
        try:
            status = path.lstat()
            if not entry.is_verified or entry.modified_ns != status.st_mtime_ns:
                entry.is_verified = (
                    _is_own_file(status)
                    and status.st_size == file.size_bytes
                    and crc32c_file(path) == file.crc32c
                )
                entry.modified_ns = status.st_mtime_ns
        except OSError as error:
            if open_files_error(error) is not None:
                raise  # it says nothing about the file
            _LOG.warning("the cached SST %s cannot be read, it is fetched again: %s", path, error)
            return False
        return entry.is_verified and entry.size_bytes == file.size_bytes

    def _take_from_others(self, name: str, file: SstFile) -> bool:
        """Add a file of another cache, to be verified; return whether there was one."""
        if file.size_bytes > self._max_bytes:
            return False
        path = self._directory / name
        for directory in self._find_others():
            with suppress(OSError):  # it has no such file, or has just evicted it
                if not _is_own_file((directory / name).lstat()):
                    continue
                path.unlink(missing_ok=True)
                os.link(directory / name, path)
                self._add(name, file, is_verified=False)
                return True
        return False

    def _add(self, name: str, file: SstFile, *, is_verified: bool = True) -> None:
        with suppress(FileNotFoundError):
            modified_ns = (self._directory / name).lstat().st_mtime_ns
            with self._lock:
                self._entries[name] = _Entry(file.size_bytes, is_verified, modified_ns)
                self._bytes += file.size_bytes
                self._evict()

    def _add_existing_files(self) -> None:
        found: list[tuple[int, str, int]] = []
        for path in self._directory.iterdir():
            status = path.lstat()
            if is_sst_name(SST_PREFIX + path.name) and _is_own_file(status):
                found.append((status.st_mtime_ns, path.name, status.st_size))
            elif path.name.startswith(".") or path.is_symlink():
                path.unlink()  # left by an interrupted download
        for modified_ns, name, size_bytes in sorted(found):
            self._entries[name] = _Entry(size_bytes, is_verified=False, modified_ns=modified_ns)
            self._bytes += size_bytes
        self._evict()

    def _evict(self) -> None:
        while self._entries and (
            self._bytes > self._max_bytes or len(self._entries) > self._max_files
        ):
            self._remove(next(iter(self._entries)))

    def _remove(self, name: str) -> None:
        """REQUIRES: the lock is held, or the constructor runs."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._bytes -= entry.size_bytes
            (self._directory / name).unlink(missing_ok=True)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Exclude other threads from one file."""
        with self._lock:
            own = self._object_locks.setdefault(name, _ObjectLock())
            own.user_count += 1
        try:
            with own.lock:
                yield
        finally:
            with self._lock:
                own.user_count -= 1
                if not own.user_count:
                    del self._object_locks[name]


def _file_name(origin: str, object_name: str) -> str:
    """Return the name of an object's file: a bucket must not provide the files of another one."""
    text = f"{origin}\0{object_name}".encode()
    return hashlib.blake2b(text, digest_size=16).hexdigest() + ".sst"


def _is_own_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _link_or_copy(source: Path, target: Path) -> None:
    """Link; copy where the file system has no links, or across file systems."""
    try:
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in NO_LINK_ERRNOS:
                raise
            _copy(source, target)
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        raise translate_os_error(error, str(target)) from error


def _copy(source: Path, target: Path) -> None:
    """Copy to ``target``, which must not exist; a copy that fails leaves no file."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "File exists", str(target))
    try:
        shutil.copyfile(source, target)
    except OSError:
        target.unlink(missing_ok=True)
        raise
