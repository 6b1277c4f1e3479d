"""LocalStore: objects as files below a directory.

Layer: storage. The object ``a/b`` is the file ``<root>/a/b``. Every write goes to a temporary name
in the same directory, is synced, and then gets its final name by one system call:

    put             rename                         atomic replacement
    put_if_absent   link                           the file system's create-if-absent
    upload          link, or rename without links  new names only
    put_if_match    rename under the root's lock   compare and replace

``put`` and ``put_if_absent`` keep their promises between processes on every file system with POSIX
rename and link, network file systems included. ``put_if_match`` compares and replaces under an
exclusive ``flock`` on ``<root>/.cairn.lock``, which ``put`` and ``delete`` take shared. This
excludes other Cairn processes on this machine, and on other machines if the file system shares
locks (as NFS 4 does). It does not exclude programs that ignore the lock. On a file system that has
no ``flock`` it is refused, and nothing takes the lock.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cairn.checksum import crc32c as checksum_of
from cairn.clock import SYSTEM_CLOCK, SYSTEM_ENTROPY, Clock
from cairn.errors import ConditionalPutUnsupportedError
from cairn.storage.base import (
    MAX_GET_BYTES,
    ObjectInfo,
    ObjectStart,
    ObjectStore,
    Payload,
    StoredObject,
    check_key,
    ignore,
    is_listed,
)
from cairn.storage.files import (
    TEMPORARY_SUFFIX,
    PendingFile,
    check_crc32c,
    make_directory,
    sync_directory,
    translate_os_error,
    write_download,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Found: TypeAlias = list[tuple[str, os.stat_result]]

_LOCK_NAME = ".cairn.lock"
_NO_LOCKS = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP})
# Not the temporary files of other programs, such as Spark.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}" + re.escape(TEMPORARY_SUFFIX))
_CHUNK_BYTES = 1 << 20
_ABANDONED_AFTER = timedelta(hours=1)
"""The age protects files of other machines on file systems that do not share locks."""


def path_of_url(url: str) -> Path:
    """Return the directory of ``file:/a``, ``file:///a``, ``file://localhost/a`` or ``/a``.

    Nothing is percent-decoded or cut at ``?`` or ``#``, as in Hadoop's paths: both must name the
    same directory.
    """
    path = url.removeprefix("file:")
    if path.startswith("//") and path != url:
        path = "/" + path[2:].partition("/")[2]
    return Path(path)


class LocalStore(ObjectStore):
    """Objects in files. A write creates the directories that it needs, the root included."""

    def __init__(self, url: str, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(url)
        self._root = path_of_url(url).absolute()
        self._clock = clock
        self._can_sync = False
        self._is_probed = False
        self._has_locks = False

    @property
    def origin(self) -> str:
        """The directory."""
        return f"file:{self._root}"

    def at(self, url: str) -> LocalStore:
        """Return the objects below another directory."""
        return self._inherit(LocalStore(url, self._clock))

    def put(self, key: str, data: Payload) -> None:
        """Create or replace an object."""
        path = self._begin_write(key)
        with self._translated(key), PendingFile(path) as pending:
            pending.write(data)
            pending.sync()
            with self._locked(fcntl.LOCK_SH):
                pending.publish()

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Create an object."""
        path = self._begin_write(key)
        with self._translated(key), PendingFile(path) as pending:
            pending.write(data)
            self._publish_new(pending, key)

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Replace the object that has ``etag``; the module's docstring says what this excludes."""
        path = self._begin_write(key)
        with self._translated(key), PendingFile(path) as pending:
            pending.write(data)
            pending.sync()
            with self._locked(fcntl.LOCK_EX):
                try:
                    is_present = _has_etag(path, etag)
                except FileNotFoundError as error:
                    raise self._precondition_failed(key, is_missing=True) from error
                if not is_present:
                    raise self._precondition_failed(key, is_missing=False)
                pending.publish()

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """Create an object from a local file, by copying it."""
        target = self._begin_write(key)
        checksum = 0
        with self._translated(key), path.open("rb", buffering=0) as source:
            with PendingFile(target) as pending:
                for chunk in _chunks(source.fileno()):
                    pending.write(chunk)
                    moved()
                    checksum = checksum_of(chunk, checksum)
                check_crc32c(f"{path} for {self.object_url(key)}", crc32c, checksum)
                try:
                    self._publish_new(pending, key)
                except ConditionalPutUnsupportedError:
                    # No hard links here. Nobody else has the name: the caller gives each object a
                    # new one.
                    pending.publish()
            return datetime.fromtimestamp(target.stat().st_mtime, UTC)

    def copy_within(
        self, source: ObjectStore, source_key: str, key: str, *, size_bytes: int
    ) -> bool:
        """Copy a file of another folder."""
        if not isinstance(source, LocalStore):
            return super().copy_within(source, source_key, key, size_bytes=size_bytes)
        former = source._begin("GetObject", source_key)  # noqa: SLF001 - of the same class
        path = self._begin_write(key)
        with (
            source._reading(source_key),  # noqa: SLF001
            former.open("rb", buffering=0) as file,
            self._translated(key),
            PendingFile(path) as pending,
        ):
            for chunk in _chunks(file.fileno()):
                pending.write(chunk)
            pending.sync()
            with self._locked(fcntl.LOCK_SH):
                pending.publish()
        return True

    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object; a directory is not an object."""
        path = self._begin("GetObject", key)
        with self._reading(key):
            data = self._read(key, path, max_bytes)
        return StoredObject(data, _etag_of(data))

    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first bytes of an object."""
        path = self._begin("GetObject", key)
        with self._reading(key), path.open("rb") as source:
            return ObjectStart(source.read(length), os.fstat(source.fileno()).st_size)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of an object."""
        path = self._begin("GetObject", key)
        with self._reading(key), path.open("rb", buffering=0) as source:
            return os.pread(source.fileno(), length, offset)

    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Copy an object to another file."""
        source_path = self._begin("GetObject", key)
        with self._reading(key), source_path.open("rb", buffering=0) as source:
            write_download(
                _chunks(source.fileno()),
                path,
                size_bytes=size_bytes,
                crc32c=crc32c,
                object_name=self.object_url(key),
            )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix``; removes abandoned temporary files, if ``cleans``."""
        self._check_open()
        self._count("ListObjectsV2")
        found: Found = []
        with self._translated(prefix):
            self._walk(self._root / prefix.rpartition("/")[0], prefix, found)
        found.sort(key=lambda item: item[0])
        for key, stat in found:
            yield ObjectInfo(key, stat.st_size, datetime.fromtimestamp(stat.st_mtime, UTC))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, with the checksums that Hadoop keeps beside files; directories stay."""
        self._check_open()
        paths = [(key, self._root / check_key(key)) for key in keys]
        if not paths or not self._root.is_dir():
            return
        self._count("DeleteObjects")
        changed: set[Path] = set()
        with self._translated(""), self._locked(fcntl.LOCK_SH):
            for key, path in paths:
                # A directory is not an object.
                for one in (path, path.with_name(f".{path.name}.crc")):
                    with (
                        self._translated(key),
                        suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError),
                    ):
                        one.unlink()
                        changed.add(path.parent)
            for directory in changed:
                with suppress(FileNotFoundError):
                    sync_directory(directory)

    def probe_conditional_put(self) -> None:
        """Verify that the file system has hard links."""
        self._check_open()
        if self._is_probed:
            return
        path = self._root / f".cairn-probe-{SYSTEM_ENTROPY.token(8)}"
        with self._translated(path.name), PendingFile(path) as pending:
            pending.publish_new()
            path.unlink()
        self._is_probed = True

    def probe_replacement(self) -> None:
        """Verify that the file system has locks."""
        self._check_open()
        if self._has_locks:
            return
        with self._translated(_LOCK_NAME), self._locked(fcntl.LOCK_EX):
            self._has_locks = True

    def _read(self, key: str, path: Path, max_bytes: int) -> bytes:
        with path.open("rb") as source:
            size_bytes = os.fstat(source.fileno()).st_size
            self._check_size(key, size_bytes, max_bytes)
            # Not to its end: a device has none.
            return source.read(size_bytes)

    def _publish_new(self, pending: PendingFile, key: str) -> None:
        pending.sync()
        try:
            pending.publish_new()
        except FileExistsError:
            raise self._already_exists(key) from None

    def _begin(self, api: str, key: str) -> Path:
        self._check_open()
        path = self._root / check_key(key)
        self._count(api)
        return path

    def _begin_write(self, key: str) -> Path:
        path = self._begin("PutObject", key)
        if not self._can_sync:
            # Before an object appears: one whose directory cannot be synced is no commit.
            with self._translated(key):
                make_directory(self._root)
                sync_directory(self._root)
            self._can_sync = True
        return path

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise translate_os_error(error, self.object_url(key)) from error

    @contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        with self._translated(key):
            try:
                yield
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
                raise self._missing(key) from error

    @contextmanager
    def _locked(self, mode: int) -> Iterator[None]:
        make_directory(self._root)
        path = self._root / _LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except PermissionError:
            # Another user may have created it, e.g. root who ran a command. To read is enough.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._lock(descriptor, mode)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, mode: int) -> None:
        try:
            fcntl.flock(descriptor, mode)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            if mode == fcntl.LOCK_SH:
                return  # no replacement to be kept out
            raise ConditionalPutUnsupportedError(
                f"the file system has no locks ({error.strerror}), which checkpoint format 1 needs "
                "to replace the state of an earlier attempt",
                object_name=self.url,
                next_step="keep the checkpoint on a file system with flock, or start the query "
                "with a new checkpoint in format 2 (cairn.spark_conf())",
            ) from error

    def _walk(self, top: Path, prefix: str, found: Found) -> None:
        """Collect the files below ``top``; files that vanish meanwhile are left out."""
        try:
            entries = list(os.scandir(top))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = Path(entry.path)
            key = path.relative_to(self._root).as_posix()
            if entry.is_dir(follow_symlinks=False):
                if is_listed(key, prefix):
                    self._walk(path, prefix, found)
            elif is_listed(key, prefix) and entry.is_file():
                with suppress(FileNotFoundError):
                    found.append((key, entry.stat()))
            elif self.cleans and _TEMPORARY.fullmatch(entry.name):
                self._remove_if_abandoned(path)

    def _remove_if_abandoned(self, path: Path) -> None:
        with suppress(OSError):
            age = self._clock.now() - datetime.fromtimestamp(path.stat().st_mtime, UTC)
            if age < _ABANDONED_AFTER:
                return
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)


def _etag_of(data: bytes) -> str:
    return f"{_new_digest(data).hexdigest()}-{len(data)}"


def _has_etag(path: Path, etag: str) -> bool:
    """Return whether a file has the bytes of an etag; it may be larger than the memory."""
    digest, _, size_bytes = etag.partition("-")
    with path.open("rb") as source:
        if str(os.fstat(source.fileno()).st_size) != size_bytes:
            return False  # perhaps a huge file, which is not read
        return hashlib.file_digest(source, _new_digest).hexdigest() == digest


def _new_digest(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=16)


def _chunks(descriptor: int) -> Iterator[bytes]:
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        yield chunk
