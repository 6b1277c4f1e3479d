"""Files that appear whole or not at all, and what the operating system's errors mean.

Layer: storage. Serves the local store's objects and the downloads of all stores.

    temporary name := "." name "." token ".tmp"   ; beside the final one; its writer holds a flock
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from cairn.checksum import crc32c as checksum_of
from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import (
    AccessError,
    CairnError,
    ConditionalPutUnsupportedError,
    CorruptError,
    DiskFullError,
    ForeignObjectError,
    InternalError,
    MissingError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType

TEMPORARY_SUFFIX = ".tmp"

_KINDS: dict[int, tuple[type[CairnError], str, str | None]] = {
    errno.ENOSPC: (DiskFullError, "no space is left on the disk", "free space on it"),
    errno.EDQUOT: (DiskFullError, "the disk quota is used up", "free space or raise the quota"),
    errno.EFBIG: (DiskFullError, "the file system allows no file this large", None),
    errno.EACCES: (AccessError, "this user may not do that here", "check owner and permissions"),
    errno.EPERM: (AccessError, "this user may not do that here", "check owner and permissions"),
    errno.EROFS: (AccessError, "the file system is read-only", "mount it writable"),
    errno.ENOENT: (MissingError, "the file does not exist", None),
    errno.EEXIST: (ForeignObjectError, "a file stands where a directory belongs", None),
    errno.EISDIR: (ForeignObjectError, "a directory stands where a file belongs", None),
    errno.ENOTDIR: (ForeignObjectError, "a file stands where a directory belongs", None),
    errno.ENOTEMPTY: (ForeignObjectError, "a directory stands where a file belongs", None),
    errno.ENAMETOOLONG: (InternalError, "the name is too long for the file system", None),
}
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})


def translate_os_error(error: OSError, object_name: str) -> CairnError:
    """Return the error of ours that says what to do; anything unknown may pass (``retry``)."""
    kind, text, next_step = _KINDS.get(
        error.errno or 0, (UnavailableError, "the file system failed", None)
    )
    detail = error.strerror or type(error).__name__
    path = f" at {error.filename}" if error.filename else ""
    return kind(f"{text}: {detail}{path}", object_name=object_name, next_step=next_step)


def sync_directory(path: Path) -> None:
    """Make names that were added to or taken from a directory survive a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and its parents, durably; one that exists costs one look."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


class PendingFile:
    """A file being written under a temporary name; ``publish`` gives it its own.

    A context manager: what was not published is removed at its end. Methods raise ``OSError``; the
    caller translates, since it knows the object's name. One thread at a time.
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
        # A cleaner takes a temporary file for abandoned when this lock is free.
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append all of ``data``."""
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def write_at(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` from ``offset`` on; may be called by several threads at once."""
        rest = memoryview(data).cast("B")
        while rest:
            count = os.pwrite(self._descriptor, rest, offset)
            rest, offset = rest[count:], offset + count

    def sync(self) -> None:
        """Bring the content to the disk."""
        os.fsync(self._descriptor)

    def publish(self) -> None:
        """Take the final name, replacing what has it; durable on return. REQUIRES: ``sync``."""
        os.replace(self.temporary, self.path)  # noqa: PTH105 - the exact call is the promise
        sync_directory(self.path.parent)

    def publish_new(self) -> None:
        """Take the final name if nobody has it; durable on return. REQUIRES: ``sync``.

        Raises:
            FileExistsError: it is taken.
            ConditionalPutUnsupportedError: the file system has no hard links.
        """
        try:
            os.link(self.temporary, self.path)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            message = f"the file system has no hard links ({error.strerror})"
            raise ConditionalPutUnsupportedError(
                message,
                object_name=str(self.path),
                next_step="keep the checkpoint on a file system with hard links, or on S3",
            ) from error
        sync_directory(self.path.parent)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The name goes before the lock does, so that no cleaner ever meets a live one.
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)
        os.close(self._descriptor)


def read_source(path: Path) -> bytes:
    """Return a local file that is to be uploaded.

    Raises:
        MissingError, AccessError: as the operating system says.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise translate_os_error(error, str(path)) from error


def check_received(
    object_name: str, *, size: tuple[int, int], crc32c: tuple[int | None, int]
) -> None:
    """Compare what was named with what came.

    Args:
        object_name: for the error.
        size: expected and received bytes.
        crc32c: expected and received; expected ``None`` is not compared.

    Raises:
        CorruptError: they differ.
    """
    if size[0] != size[1]:
        message = f"the object has {size[1]} bytes where {size[0]} are named"
        raise CorruptError(message, object_name=object_name)
    if crc32c[0] is not None and crc32c[0] != crc32c[1]:
        message = f"the object's CRC32C is {crc32c[1]:08x} where {crc32c[0]:08x} is named"
        raise CorruptError(message, object_name=object_name)


def write_download(
    chunks: Iterable[bytes | memoryview],
    path: Path,
    *,
    size_bytes: int,
    crc32c: int | None,
    object_name: str,
) -> None:
    """Write, verify and publish a downloaded file; ``ObjectStore.download`` has the promise.

    Raises:
        CorruptError, DiskFullError, AccessError: no file is left.
    """
    try:
        with PendingFile(path) as pending:
            received, checksum = 0, 0
            for chunk in chunks:
                received += len(chunk)
                checksum = checksum_of(chunk, checksum)
                pending.write(chunk)
            check_received(object_name, size=(size_bytes, received), crc32c=(crc32c, checksum))
            pending.sync()
            pending.publish()
    except OSError as error:
        raise translate_os_error(error, object_name) from error
