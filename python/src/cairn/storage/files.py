"""Files that appear whole or not at all, and the translation of the operating system's errors.

Layer: storage. Used for the objects of the local store and the downloads of all stores.

    temporary name := "." name "." token ".tmp"   ; in the same directory; its writer holds a flock
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from cairn.checksum import crc32c as checksum_of
from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import (
    AccessError,
    CairnError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CorruptError,
    DiskFullError,
    FileSystemUnsupportedError,
    ForeignObjectError,
    MissingError,
    UnavailableError,
    open_files_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from cairn.storage.base import Payload

TEMPORARY_SUFFIX = ".tmp"
NO_LINK_ERRNOS: Final = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
"""The numbers of an OSError that mean that a file cannot have a hard link there."""
_NO_SYNC_ERRNOS = frozenset({errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP, errno.ENOSYS})
_OTHER_FILE_SYSTEM = "put the folder on another file system, or the checkpoint on S3 or HDFS"

_KINDS: dict[int, tuple[type[CairnError], str, str | None]] = {
    errno.ENOSPC: (DiskFullError, "no space is left on the disk", "free space on it"),
    errno.EDQUOT: (DiskFullError, "the disk quota is used up", "free space or raise the quota"),
    errno.EFBIG: (DiskFullError, "the file system allows no file this large", None),
    errno.EACCES: (AccessError, "this user lacks the permission", "check owner and permissions"),
    errno.EPERM: (AccessError, "this user lacks the permission", "check owner and permissions"),
    errno.EROFS: (AccessError, "the file system is read-only", "mount it writable"),
    errno.ENOENT: (MissingError, "the file does not exist", None),
    errno.EEXIST: (ForeignObjectError, "a file is in the place of a directory", None),
    errno.EISDIR: (ForeignObjectError, "a directory is in the place of a file", None),
    errno.ENOTDIR: (ForeignObjectError, "a file is in the place of a directory", None),
    errno.ENOTEMPTY: (ForeignObjectError, "a directory is in the place of a file", None),
    **dict.fromkeys(
        (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS),
        (FileSystemUnsupportedError, "the file system cannot do this", _OTHER_FILE_SYSTEM),
    ),
    errno.ENAMETOOLONG: (
        ConfigError,
        "the name is too long for the file system",
        "use a shorter checkpoint location",
    ),
}


def translate_os_error(error: OSError, object_name: str) -> CairnError:
    """Return ``error`` as an error of the tree; the kind of an unknown one is ``retry``."""
    open_files = open_files_error(error)
    if open_files is not None:
        return open_files.with_context(object_name=object_name)
    kind, text, next_step = _KINDS.get(
        error.errno or 0, (UnavailableError, "the file system failed", None)
    )
    detail = error.strerror or type(error).__name__
    path = f" at {error.filename}" if error.filename else ""
    return kind(f"{text}: {detail}{path}", object_name=object_name, next_step=next_step)


@contextmanager
def translated_os_errors(folder: str, *, if_full: str) -> Iterator[None]:
    """Translate the errors of a block that writes to the local disk.

    Args:
        folder: on that disk, for the error.
        if_full: the next step if the disk is full.
    """
    try:
        yield
    except OSError as error:
        failure = translate_os_error(error, folder)
        if isinstance(failure, DiskFullError):
            failure.next_step = if_full
        raise failure from error


def sync_directory(path: Path) -> None:
    """Make names that were added to or removed from a directory survive a crash.

    Raises:
        FileSystemUnsupportedError: the file system cannot.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync(descriptor, path, "directories")
    finally:
        os.close(descriptor)


def _sync(descriptor: int, path: Path, what: str) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC_ERRNOS:
            raise
        raise FileSystemUnsupportedError(
            f"the file system cannot sync {what} ({error.strerror}), so a crash of the machine "
            "could lose a version that was committed",
            object_name=str(path),
            next_step=_OTHER_FILE_SYSTEM,
        ) from error


def make_directory(path: Path) -> None:
    """Create a directory and its parents, durably; a directory that exists costs one stat call."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


class PendingFile:
    """A file that is written under a temporary name; ``publish`` gives it its final name.

    A context manager: its end removes a file that was not published. Methods raise ``OSError``; the
    caller translates it, because it knows the object's name. One thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        token = SYSTEM_ENTROPY.token(8)
        self.temporary = path.with_name(f".{path.name}.{token}{TEMPORARY_SUFFIX}")
        self._descriptor = -1

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self.temporary, flags, 0o666)
        except FileNotFoundError:
            make_directory(self.path.parent)
            self._descriptor = os.open(self.temporary, flags, 0o666)
        # The cleaner removes only temporary files whose lock is free.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def write(self, data: Payload) -> None:
        """Append all of ``data``."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def write_at(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset``. Thread-safe."""
        rest = memoryview(data).cast("B")
        while rest:
            count = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[count:], offset + count

    def sync(self) -> None:
        """Write the content to the disk.

        Raises:
            FileSystemUnsupportedError: the file system cannot.
        """
        _sync(self._descriptor, self.path, "files")

    def publish(self) -> None:
        """Take the final name, replacing another file; durable on return. REQUIRES: ``sync``."""
        self.publish_unsynced()
        sync_directory(self.path.parent)

    def publish_unsynced(self) -> None:
        """Take the final name, replacing another file; a crash of the machine may undo it."""
        os.replace(self.temporary, self.path)  # noqa: PTH105 - the promise depends on this call

    def publish_new(self) -> None:
        """Take the final name if it is free; durable on return. REQUIRES: ``sync``.

        Raises:
            FileExistsError: it is not free.
            ConditionalPutUnsupportedError: the file system has no hard links.
        """
        try:
            os.link(self.temporary, self.path)
        except FileExistsError:
            # On NFS the answer to a first attempt was lost, and the client repeated it.
            if not self._is_linked():
                raise
        except OSError as error:
            if error.errno not in NO_LINK_ERRNOS:
                raise
            raise ConditionalPutUnsupportedError(
                f"the file system has no hard links ({error.strerror})",
                object_name=str(self.path),
                next_step="keep the checkpoint on a file system with hard links, or on S3",
            ) from error
        sync_directory(self.path.parent)

    def _is_linked(self) -> bool:
        try:
            return self.path.samefile(self.temporary)
        except FileNotFoundError:  # somebody has deleted it meanwhile
            return False

    def __exit__(self, *_: object) -> None:
        # Remove the name before releasing the lock, so that the cleaner never removes a live file.
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)
        os.close(self._descriptor)


def check_size(object_name: str, expected_bytes: int, received_bytes: int) -> None:
    """Raise CorruptError if the sizes differ."""
    if expected_bytes != received_bytes:
        message = f"the object has {received_bytes} bytes instead of {expected_bytes}"
        raise CorruptError(message, object_name=object_name)


def check_crc32c(object_name: str, expected: int, received: int) -> None:
    """Raise CorruptError if the checksums differ."""
    if expected != received:
        message = f"the object's CRC32C is {received:08x} instead of {expected:08x}"
        raise CorruptError(message, object_name=object_name)


def write_download(
    chunks: Iterable[bytes | memoryview],
    path: Path,
    *,
    size_bytes: int,
    crc32c: int,
    object_name: str,
) -> None:
    """Write, verify and publish a downloaded file, as ``ObjectStore.download`` promises.

    Raises:
        CorruptError, DiskFullError, AccessError: no file is left.
    """
    try:
        with PendingFile(path) as pending:
            received, checksum = 0, 0
            for chunk in chunks:
                received += len(chunk)
                if received > size_bytes:
                    # A larger object could fill the disk.
                    break
                checksum = checksum_of(chunk, checksum)
                pending.write(chunk)
            check_size(object_name, size_bytes, received)
            check_crc32c(object_name, crc32c, checksum)
            pending.publish_unsynced()
    except OSError as error:
        raise translate_os_error(error, object_name) from error
