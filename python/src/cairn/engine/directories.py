"""A worker's directories: created at its start, locked while it runs, removed after its end.

Layer: engine. A worker that starts removes the directories of dead workers, except their SST
caches: it moves those files into its own cache, which verifies each before its first use. A worker
that ends cleanly leaves nothing.

    <local_dir>/cairn-worker-<random>/   lock  socket-dir  i<instance>/…  sst/…
    <local_dir>/cairn-sst-<random>/      the SST cache of a dead worker, until another one starts
    <socket_dir>/s                       the Unix socket; in a new folder if socket_dir is not 0700
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.errors import ConfigError
from cairn.rocks.failures import translate

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "cairn-worker-"
_LEFT_PREFIX = "cairn-sst-"
_CACHE = "sst"
_LOCK = "lock"
_SOCKET_NOTE = "socket-dir"
# sockaddr_un has 108 bytes; some libraries add a final zero and a suffix of their own.
_MAX_SOCKET_PATH_BYTES = 100


class WorkerDirectories:
    """A worker's place on the local disk.

    Args:
        local_dir: parent of the worker's directory; created if absent.
        socket_dir: the parent of the socket's folder; a short path.

    Raises:
        ConfigError: a folder cannot be written, or the socket's path would be too long.
        DiskFullError: the disk is full; nothing is left behind.
    """

    def __init__(self, local_dir: Path, socket_dir: Path) -> None:
        try:
            local_dir.mkdir(parents=True, exist_ok=True)
            socket_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(local_dir):
                _remove_stale(local_dir)
                self.root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=local_dir))
                self._lock = _lock(self.root)
                _take_over(local_dir, self.cache_directory)
            self._socket_folder = _private(socket_dir)
            (self.root / _SOCKET_NOTE).write_text(str(self._socket_folder), encoding="utf-8")
        except (PermissionError, NotADirectoryError, FileNotFoundError) as failure:
            raise ConfigError(
                f"the engine cannot write under {local_dir} or {socket_dir}: {failure.strerror}",
                next_step="set spark.sql.streaming.stateStore.cairn.localDir to a writable folder",
            ) from failure
        except OSError as failure:
            raise translate(failure, str(local_dir)) from failure
        self.socket_path = self._socket_folder / "s"
        if len(os.fsencode(self.socket_path)) > _MAX_SOCKET_PATH_BYTES:
            self.remove()
            raise ConfigError(
                f"the path of the engine's socket is too long: {self.socket_path}",
                next_step="set java.io.tmpdir of the executors to a short path",
            )

    def instance_directory(self, instance: int) -> Path:
        """Return the folder of an instance; not created."""
        return self.root / f"i{instance}"

    @property
    def cache_directory(self) -> Path:
        """Return the folder of the SST cache; not created."""
        return self.root / _CACHE

    def remove(self) -> None:
        """Remove everything. Idempotent."""
        shutil.rmtree(self._socket_folder, ignore_errors=True)
        shutil.rmtree(self.root, ignore_errors=True)


def _private(folder: Path) -> Path:
    others = stat.S_IRWXG | stat.S_IRWXO
    if folder.stat().st_mode & others == 0 and not any(folder.iterdir()):
        return folder
    return Path(tempfile.mkdtemp(prefix="cairn-", dir=folder))


@contextmanager
def _alone(local_dir: Path) -> Iterator[None]:
    """Let one worker start at a time: a worker without a locked lock file counts as dead."""
    descriptor = os.open(local_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # NFS cannot lock directories: two concurrent starts may collide
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lock(root: Path) -> int:
    descriptor = os.open(root / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    # The kernel releases the lock however the process ends: a free lock means a dead worker.
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _remove_stale(local_dir: Path) -> None:
    """Remove the directories of dead workers, except their SST caches. REQUIRES: ``_alone``."""
    for root in local_dir.glob(f"{_PREFIX}*"):
        try:
            # Without a lock file: its worker died right after its start.
            descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            _remove_root(root)
        finally:
            os.close(descriptor)


def _remove_root(root: Path) -> None:
    try:
        noted = Path((root / _SOCKET_NOTE).read_text(encoding="utf-8"))
    except OSError:
        noted = None
    if noted is not None and noted.name.startswith("cairn-"):
        shutil.rmtree(noted, ignore_errors=True)
    with suppress(OSError):  # it had no cache yet
        (root / _CACHE).rename(root.with_name(_LEFT_PREFIX + root.name.removeprefix(_PREFIX)))
    shutil.rmtree(root, ignore_errors=True)


def _take_over(local_dir: Path, cache: Path) -> None:
    """Move all SSTs that dead workers left into the new worker's cache."""
    for left in local_dir.glob(f"{_LEFT_PREFIX}*"):
        cache.mkdir(exist_ok=True)
        for path in list(left.iterdir()):
            with suppress(OSError):  # a file that cannot be moved is downloaded when it is needed
                path.replace(cache / path.name)
        shutil.rmtree(left, ignore_errors=True)
