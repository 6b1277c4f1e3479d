"""A worker's directories: created at its start, locked while it runs, removed after its end.

Layer: engine. The disk is shared with other users: the local directory is this user's alone, or it
is refused, and only what this user owns is used or removed (docs/adr/0033). The folders above it
are trusted, as Spark trusts them.

A worker that starts removes the directories of dead workers. SST caches are in *slots*: a worker
takes the first one that no other worker has, with the files that are in it. Files
in other slots are found too. A worker that ends cleanly leaves nothing, or its slot alone.

    <local_dir>/cairn-worker-<random>/   i<instance>/…
    <local_dir>/cairn-cache-<slot>/      <hex32>.sst…

The lock is one of the folder itself, which programs that clean up temporary folders respect. Where
the file system has no locks of folders, it is one of a file ``lock`` in it.

The folder of its socket is elsewhere (``socket_folder``): paths of local directories are too long.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import ConfigError
from cairn.rocks.failures import translate
from cairn.socket_folder import SocketFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "cairn-worker-"
_CACHE = "sst"
_CACHE_PREFIX = "cairn-cache-"
_UNUSED_CACHE_S = 7 * 86_400
"""A slot that no worker has had for so long is one of more workers than run here now."""
_LOCK = "lock"
# sockaddr_un has 108 bytes; some libraries add a final zero and a suffix of their own.
_MAX_SOCKET_PATH_BYTES = 100
# Who still creates files fails once their folder is gone.
_REMOVALS_MAX = 5


class WorkerDirectories:
    """A worker's place on the local disk.

    Args:
        local_dir: parent of the worker's directory; created if absent, with mode 0700.
        socket_dir: the parent of the socket's folder; a short path.
        keeps_cache: whether the SST cache outlives this worker.

    Raises:
        ConfigError: a folder cannot be written, the local directory is a link, another user owns it
            or may write into it, or the socket's path would be too long.
        DiskFullError: the disk is full; nothing is left behind.
    """

    def __init__(self, local_dir: Path, socket_dir: Path, *, keeps_cache: bool = False) -> None:
        self._local_dir = local_dir
        self._keeps_cache = keeps_cache
        undo = ExitStack()
        try:
            with undo:
                _claim(local_dir)
                self._socket = SocketFolder(socket_dir)
                undo.callback(self._socket.remove)
                _check_length(self.socket_path)
                with _alone(local_dir) as is_alone:
                    _remove_stale(local_dir, is_alone=is_alone)
                    self.root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=local_dir))
                    undo.callback(shutil.rmtree, self.root, ignore_errors=True)
                    lock = _lock(self.root)
                    slot = _take_slot(local_dir)
                    _remove_unused_slots(local_dir)
                self.cache_directory = self.root / _CACHE if slot is None else slot[0]
                self._locks = [lock] if slot is None else [lock, slot[1]]
                undo.pop_all()
        except (PermissionError, NotADirectoryError, FileNotFoundError) as failure:
            raise ConfigError(
                f"the engine cannot write under {local_dir} or {socket_dir}: {failure.strerror}",
                next_step="set spark.sql.streaming.stateStore.cairn.localDir to a writable folder",
            ) from failure
        except OSError as failure:
            raise translate(failure, str(local_dir)) from failure

    @property
    def socket_path(self) -> Path:
        """Where the worker's socket belongs."""
        return self._socket.socket_path

    def instance_directory(self, instance: int) -> Path:
        """Return the folder of an instance; not created."""
        return self.root / f"i{instance}"

    def other_caches(self) -> list[Path]:
        """Return the SST caches of other workers, running or not."""
        return [
            slot
            for slot in self._local_dir.glob(f"{_CACHE_PREFIX}*")
            if slot != self.cache_directory and _is_private(slot)
        ]

    def remove(self) -> None:
        """Remove everything, except a cache that is kept. Idempotent."""
        self._socket.remove()
        with suppress(OSError):  # the folder of a worker without a slot is gone
            if self._keeps_cache:
                os.utime(self.cache_directory)
            else:
                # At once, so that no other worker takes a slot that is being removed.
                self.cache_directory.rename(self.root / "removed-cache")
        _remove(self.root)

    def close(self) -> None:
        """Release the locks, as the end of the process does."""
        self._socket.close()
        for lock in self._locks:
            os.close(lock)


def _claim(local_dir: Path) -> None:
    """Create the local directory, or verify that no other user can change what is in it."""
    _make_parents(local_dir)
    with suppress(FileExistsError):
        local_dir.mkdir(mode=0o700)
    status = local_dir.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        problem = f"it is a symbolic link to {local_dir.readlink()}"
    elif not stat.S_ISDIR(status.st_mode):
        problem = "it is not a directory"
    elif status.st_uid != os.geteuid():
        problem = f"it belongs to the user with id {status.st_uid}, not to {os.geteuid()}"
    elif mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"other users may write into it (mode {mode:04o})"
    else:
        return
    raise ConfigError(
        f"the local directory {local_dir} is not used: {problem}",
        next_step="set spark.sql.streaming.stateStore.cairn.localDir to a folder that does not "
        f"exist, such as {local_dir}/cairn, or that only this user may write into",
    )


def _make_parents(path: Path) -> None:
    """Create the missing folders above ``path``; the umask must not open them to other users."""
    if not path.parent.exists():
        _make_parents(path.parent)
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o755)


def _check_length(socket_path: Path) -> None:
    if len(os.fsencode(socket_path)) > _MAX_SOCKET_PATH_BYTES:
        raise ConfigError(
            f"the path of the engine's socket is too long: {socket_path}",
            next_step="set java.io.tmpdir of the executors to a short path",
        )


@contextmanager
def _alone(local_dir: Path) -> Iterator[bool]:
    """Let one worker start at a time: a worker whose folder is not locked counts as dead.

    Yields false on a file system that cannot lock directories (NFS): two starts may collide.
    """
    descriptor = os.open(local_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_alone = False
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            is_alone = True
        yield is_alone
    finally:
        os.close(descriptor)


def _lock(root: Path, *, creates: bool = True) -> int:
    """Lock a directory; return what holds the lock until it is closed.

    Args:
        root: the directory.
        creates: whether to create the lock file that is needed without locks of folders.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: it is gone, or there is no lock file.
    """
    # The kernel releases the lock however the process ends: a free lock means a dead worker.
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    if _try_lock(descriptor):
        return descriptor
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if creates else 0)
    descriptor = os.open(root / _LOCK, flags, 0o600)
    if _try_lock(descriptor):
        return descriptor
    raise OSError(errno.ENOLCK, "the file system has no locks", str(root))


def _try_lock(descriptor: int) -> bool:
    """Lock what is open, or close it; return false if the file system has no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise
        return False
    return True


def _remove_stale(local_dir: Path, *, is_alone: bool) -> None:
    """Remove the directories of dead workers, except their SST caches. REQUIRES: ``_alone``."""
    for root in filter(_is_private, local_dir.glob(f"{_PREFIX}*")):
        # Without a lock file: its worker died right after its start, or starts now.
        with suppress(OSError):
            lock = _lock(root, creates=is_alone)
            _remove(root)
            os.close(lock)


def _remove(root: Path) -> None:
    """Remove a folder in which threads, or processes that a dead one has left, still write."""
    for _ in range(_REMOVALS_MAX):
        shutil.rmtree(root, ignore_errors=True)
        if not root.exists():
            break


def _take_slot(local_dir: Path) -> tuple[Path, int] | None:
    """Lock the first slot that no other worker has; return it with its lock. REQUIRES: ``_alone``.

    Workers that start again in the same number have the same slots.

    Returns:
        ``None`` if a slot is not this user's alone: another user's files must not be used.
    """
    for number in itertools.count():
        slot = local_dir / f"{_CACHE_PREFIX}{number}"
        with suppress(FileExistsError):
            slot.mkdir(mode=0o700)
        if not _is_private(slot):
            break
        with suppress(BlockingIOError):
            return slot, _lock(slot)
    return None


def _is_private(folder: Path) -> bool:
    """Whether this is a directory of this user's, and no link, that no other user can enter."""
    with suppress(OSError):
        status = folder.lstat()
        is_open_to_others = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        is_ours = status.st_uid == os.geteuid() and not is_open_to_others
        return is_ours and stat.S_ISDIR(status.st_mode)
    return False


def _remove_unused_slots(local_dir: Path) -> None:
    """Remove slots that no worker has had for a week. REQUIRES: ``_alone``."""
    for slot in local_dir.glob(f"{_CACHE_PREFIX}*"):
        with suppress(OSError):
            if not _is_private(slot):
                continue
            # Of the last file that was added or removed, or of the end of the last worker.
            used_at = slot.stat().st_mtime
            if SYSTEM_CLOCK.now().timestamp() - used_at < _UNUSED_CACHE_S:
                continue
            lock = _lock(slot)
            shutil.rmtree(slot, ignore_errors=True)
            os.close(lock)
