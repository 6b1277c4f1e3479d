"""The folder of a socket: locked while its process runs, removed after its end.

Layer: socket_folder (imports nothing of Cairn). Workers have one, and commands that start a JVM. It
is beside other programs' files, so its name begins with ``cairn-socket-``. The next process with
the same parent removes the folders of dead ones: a free lock means a dead process, however it
ended, also if it ended right after it had created the folder.

    <parent>/cairn-socket-<random>/   s
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_PREFIX = "cairn-socket-"
_SOCKET = "s"


class SocketFolder:
    """A new folder with mode 0700 for one socket.

    Args:
        parent: created if absent, with mode 0700.

    Attributes:
        socket_path: where the socket belongs.

    Raises:
        OSError: the parent cannot be written.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(parent)
        made = None
        while made is None:
            made = _make(parent)
        self._folder, self._lock = made
        self.socket_path = self._folder / _SOCKET

    def remove(self) -> None:
        """Remove the socket and the folder. Idempotent."""
        _remove(self._folder)

    def close(self) -> None:
        """Release the lock, as the end of the process does."""
        os.close(self._lock)


def _make(parent: Path) -> tuple[Path, int] | None:
    """Return a new folder and its lock; ``None`` if another process has taken it for a dead one."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        lock = _open(folder)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:  # a file system without locks of folders: none is ever taken for a dead one
        return folder, lock
    # The folder may be gone: another process may have had the lock in between.
    with suppress(FileNotFoundError):
        if os.path.samestat(folder.lstat(), os.fstat(lock)):
            return folder, lock
    os.close(lock)
    return None


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            lock = _open(folder)
        except OSError:  # a link, another user's, or just removed
            continue
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_uid == os.geteuid():
                _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a socket and its folder; a folder with anything else in it stays."""
    with suppress(OSError):
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK((folder / _SOCKET).lstat().st_mode):
                (folder / _SOCKET).unlink()
        folder.rmdir()


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
