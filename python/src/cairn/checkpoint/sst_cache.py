"""SstCache: SST files on this machine's disk, by object name.

Layer: checkpoint. SSTs are never rewritten, so a file that matches the size and checksum in a
manifest is as good as the object. Directories of RocksDB get hard links: evicting a file here
takes nothing from them. One process owns a cache's directory; all methods are thread-safe.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checksum import crc32c_file
from cairn.errors import DiskFullError
from cairn.format.names import SST_PREFIX, is_sst_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cairn.format.manifest import SstFile


@dataclass(slots=True)
class _Entry:
    size_bytes: int
    is_verified: bool


class _Turn:
    """Who works on an object, and who waits for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.user_count = 0


class SstCache:
    """Files of at most ``max_bytes`` together; the least recently used go first.

    Survives its process: what is found in the directory, a dead worker's files moved into it, is
    used once its checksum was computed.

    Args:
        directory: made on demand; files in it that are no SSTs of ours are removed.
        max_bytes: 0 keeps nothing.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._in_work: dict[str, _Turn] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._find()

    @property
    def current_bytes(self) -> int:
        """Bytes of the files held now."""
        with self._lock:
            return self._bytes

    def __contains__(self, object_name: str) -> bool:
        with self._lock:
            return object_name in self._entries

    def fetch_into(self, file: SstFile, target: Path, download: Callable[[Path], None]) -> int:
        """Make ``target`` the file's content, downloading it if it is not here.

        Of several threads that want one object, one downloads.

        Args:
            file: which.
            target: must not be there.
            download: brings the object, verified, to the path that it is given; its errors pass.

        Returns:
            Bytes downloaded: 0 or the file's size.
        """
        with self._alone(file.object_name):
            if self._link(file, target):
                return 0
            path = self._path(file.object_name)
            download(path)
            self._hand_out(path, target)
            self._hold(file)
            return file.size_bytes

    def adopt(self, file: SstFile, source: Path) -> None:
        """Hold a file that was just uploaded, by a hard link; ``source`` stays."""
        with self._alone(file.object_name):
            if file.object_name in self or file.size_bytes > self._max_bytes:
                return
            path = self._path(file.object_name)
            path.unlink(missing_ok=True)
            self._hand_out(source, path)
            self._hold(file)

    def distrust(self) -> None:
        """Check every file again before its next use: the local disk was found to lose bits."""
        with self._lock:
            for entry in self._entries.values():
                entry.is_verified = False

    def _link(self, file: SstFile, target: Path) -> bool:
        with self._lock:
            entry = self._entries.get(file.object_name)
        if entry is None:
            return False
        path = self._path(file.object_name)
        try:
            if not entry.is_verified:
                is_whole = path.stat().st_size == file.size_bytes
                entry.is_verified = is_whole and crc32c_file(path) == file.crc32c
            if entry.is_verified and entry.size_bytes == file.size_bytes:
                self._hand_out(path, target)
                with suppress(FileNotFoundError):  # evicted since; the target has its link
                    os.utime(path)  # the order of use outlives the process
                with self._lock:
                    if file.object_name in self._entries:
                        self._entries.move_to_end(file.object_name)
                return True
        except FileNotFoundError:
            pass  # Somebody tidied up under us: it is as if it had never been here.
        with self._lock:
            self._drop(file.object_name)
        return False

    def _hold(self, file: SstFile) -> None:
        with self._lock:
            self._entries[file.object_name] = _Entry(file.size_bytes, is_verified=True)
            self._bytes += file.size_bytes
            self._evict()

    def _find(self) -> None:
        found: list[tuple[float, str, int]] = []
        for path in self._directory.iterdir():
            name = SST_PREFIX + path.name
            if is_sst_name(name) and path.is_file() and not path.is_symlink():
                status = path.stat()
                found.append((status.st_mtime, name, status.st_size))
            elif path.is_file() or path.is_symlink():
                path.unlink()  # the remains of a download that did not end
        for _, name, size_bytes in sorted(found):
            self._entries[name] = _Entry(size_bytes, is_verified=False)
            self._bytes += size_bytes
        self._evict()

    def _evict(self) -> None:
        while self._bytes > self._max_bytes and self._entries:
            self._drop(next(iter(self._entries)))

    def _drop(self, object_name: str) -> None:
        """REQUIRES: the lock, or nobody else yet."""
        entry = self._entries.pop(object_name, None)
        if entry is not None:
            self._bytes -= entry.size_bytes
            self._path(object_name).unlink(missing_ok=True)

    def _path(self, object_name: str) -> Path:
        return self._directory / object_name.removeprefix(SST_PREFIX)

    @contextmanager
    def _alone(self, object_name: str) -> Iterator[None]:
        """Keep other threads from the same object."""
        with self._lock:
            turn = self._in_work.setdefault(object_name, _Turn())
            turn.user_count += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.user_count -= 1
                if not turn.user_count:
                    del self._in_work[object_name]

    @staticmethod
    def _hand_out(source: Path, target: Path) -> None:
        """Link, or copy where the file system has no links or not across this border."""
        try:
            try:
                os.link(source, target)
            except OSError as error:
                if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK}:
                    raise
                _copy(source, target)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise
            raise DiskFullError(
                "no room for an SST file", object_name=str(target), next_step="free some disk"
            ) from error


def _copy(source: Path, target: Path) -> None:
    """Copy to ``target``, which must not be there; nothing is left of a copy that fails."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, "File exists", str(target))
    try:
        shutil.copyfile(source, target)
    except OSError:
        target.unlink(missing_ok=True)
        raise
