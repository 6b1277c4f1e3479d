"""HadoopStore: objects as files of any file system of Hadoop's, which the shim serves.

Layer: storage. The object ``a/b`` is the file ``<root>/a/b``. How it is written depends on how the
file system lets a file appear whole under its name:

    by rename   the bytes go to a temporary name in the same folder; one rename publishes them.
                The rename replaces (``put``) or fails if the name exists (``put_if_absent``).
                ``put_if_match`` writes a new name, and renames the old file away first, to a name
                made of its etag: of several callers one succeeds. Until its second rename the
                object is absent; if the caller ends there, the old and the new name are left, and
                ``moved_away`` finds the old one.
    by close    (object stores whose rename is a copy) the file is created under its name, replacing
                or not, and appears when it is closed. There is no ``put_if_match``.

    temporary name := "." name "." token ".tmp"     old name := "." name "." etag ".old"
    new name       := "." name "." etag "." token ".new"

``list`` deletes such names when it finds a file that is a day younger: ages are by the storage's
clock, because that of this machine may be wrong. Old and new names stay while the name is absent.

The clients of the file systems repeat requests that have failed; this module does not.
Spec: docs/adr/0035 and 0038.
"""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from cairn.checksum import crc32c_file
from cairn.clock import SYSTEM_ENTROPY
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CorruptError,
    MissingError,
    PreconditionFailedError,
    UnavailableError,
)
from cairn.protocol.files import PUBLISHES_BY_CLOSE
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
    too_large,
)
from cairn.storage.files import (
    TEMPORARY_SUFFIX,
    check_crc32c,
    check_size,
    translate_os_error,
    write_download,
)
from cairn.storage.hadoop.files import RemoteFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from cairn.protocol.files import FileStatus
    from cairn.storage.hadoop.connections import StorageConnections

    Found: TypeAlias = list[tuple[str, FileStatus]]
    Parts: TypeAlias = Callable[[], Iterable[memoryview]]
    """Returns the bytes of an object, each time from their start."""

_LOG = logging.getLogger(__name__)

FILE_SYSTEM = "file_system"
_OLD_SUFFIX = ".old"
_NEW_SUFFIX = ".new"
# Not the temporary files of other programs, such as Spark.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_REPLACEMENT = re.compile(r"\.(.+)\.([0-9a-f]{32}-[0-9a-f]+)\.(old|[0-9a-f]{16}\.new)")
_ABANDONED_AFTER = timedelta(days=1)
_CHUNK_BYTES = 1 << 20
_ALL = 1 << 62


class HadoopStore(ObjectStore):
    """Objects in files that the shim reads and writes.

    Args:
        url: ``scheme://authority/path`` or ``scheme:/path``; the authority may be empty.
        settings: ``file_system``, the number of the file system in the shim, and ``timeout_ms``.
        connections: storage connections to the shim.

    Raises:
        ConfigError: a setting is absent or no number.
    """

    def __init__(
        self,
        url: str,
        settings: Mapping[str, str],
        connections: StorageConnections,
    ) -> None:
        super().__init__(url)
        scheme, _, rest = self.url.partition(":")
        authority, path = "", rest
        if rest.startswith("//"):
            authority, _, path = rest.removeprefix("//").partition("/")
        self._root = f"/{path.strip('/')}".rstrip("/")
        self._prefix = f"{scheme}://{authority}"
        self._connections = connections
        self.renew(settings)
        self._publishing = 0

    def renew(self, settings: Mapping[str, str]) -> None:
        """Use the file system that the shim has opened with the credentials of now."""
        try:
            self._files = RemoteFiles(
                self._connections,
                int(settings[FILE_SYSTEM]),
                int(settings["timeout_ms"]),
                self._prefix,
            )
        except (KeyError, ValueError) as error:
            raise ConfigError("the settings of a file system are malformed") from error
        self._settings = settings

    @property
    def replaces_at_once(self) -> bool:
        """It does not: see the module."""
        return False

    def at(self, url: str) -> HadoopStore:
        """Return the objects below another folder of the file system."""
        return self._inherit(HadoopStore(url, self._settings, self._connections))

    def put(self, key: str, data: Payload) -> None:
        """Create or replace an object."""
        path = self._begin("PutObject", key)
        self._publish(key, path, lambda: [_view(data)], replaces=True)

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Create an object."""
        path = self._begin("PutObject", key)
        self._publish(key, path, lambda: [_view(data)], replaces=False)

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Replace the object that has ``etag``; it is absent between two renames."""
        path = self._begin("PutObject", key)
        self._check_replacement()
        try:
            is_present = self._has_etag(path, etag)
        except MissingError as error:
            raise self._precondition_failed(key, is_missing=True) from error
        if not is_present:
            raise self._precondition_failed(key, is_missing=False)
        new = _hidden(path, f"{etag}.{SYSTEM_ENTROPY.token(8)}{_NEW_SUFFIX}")
        old = _hidden(path, etag + _OLD_SUFFIX)
        try:
            self._files.write(new, [_view(data)], replaces=True)
        except MissingError as error:
            # A caller that has finished meanwhile has deleted it while it was written.
            raise self._precondition_failed(key, is_missing=False) from error
        except CairnError:
            self._discard(new)
            raise
        try:
            self._rename_away(key, path, old, etag)
            try:
                self._rename(new, path, lambda: [_view(data)], replaces=False)
            except AlreadyExistsError as error:
                raise self._precondition_failed(key, is_missing=False) from error
        except PreconditionFailedError:
            self._discard(new)  # another object has the name
            raise
        except CairnError:
            self._undo_replacement(path, old, new)
            raise
        self._discard_rivals(path, etag)

    def _undo_replacement(self, path: str, old: str, new: str) -> None:
        """Move the old object back, as far as that is possible, after an error of any step.

        The new name stays unless the object is there: it is the sign that the old one is needed.
        """
        with suppress(CairnError):
            self._files.rename(old, path, replaces=False)
        with suppress(CairnError):
            self._files.status(path)
            self._discard(new)

    def moved_away(self, key: str) -> StoredObject | None:
        """Return what a replacement that was cut off has moved away from a name."""
        path = self._begin("ListObjectsV2", key)
        folder, _, _ = path.rpartition("/")
        names = {f"{folder}/{name}" for name, _ in self._files.list(folder)}
        if path in names:
            return self._read(path, MAX_GET_BYTES)  # it is there again
        olds = [name for name in _cut_off(names).get(path, ()) if name.endswith(_OLD_SUFFIX)]
        if not olds:
            return None
        if len(olds) > 1:
            raise CorruptError(
                f"the object is gone, and {len(olds)} replacements of it were cut off: there are "
                + ", ".join(sorted(name.rpartition("/")[2] for name in olds)),
                object_name=self.object_url(key),
                next_step="rename the one that was written last to the object's name",
            )
        _LOG.warning(
            "%s is absent, because its replacement was cut off: what was to be replaced is read, "
            "from %s",
            self.object_url(key),
            olds[0],
        )
        return self._read(olds[0], MAX_GET_BYTES)

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """Create an object from a local file, in chunks of 1 MiB."""
        target = self._begin("PutObject", key)
        try:
            check_crc32c(f"{path} for {self.object_url(key)}", crc32c, crc32c_file(path))
            self._publish(key, target, lambda: _chunks(path, moved), replaces=False)
        except OSError as error:
            raise translate_os_error(error, str(path)) from error
        return _time(self._files.status(target))

    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object."""
        return self._read(self._begin("GetObject", key), max_bytes)

    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first bytes of an object."""
        path = self._begin("GetObject", key)
        return self._files.read(
            path, length, lambda status, parts: ObjectStart(b"".join(parts), status.size_bytes)
        )

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of an object."""
        path = self._begin("GetObject", key)
        return self._files.read(path, length, lambda _, parts: b"".join(parts), offset=offset)

    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Download an object, in one stream."""
        source = self._begin("GetObject", key)

        def save(status: FileStatus, parts: Iterator[bytes]) -> None:
            check_size(self.object_url(key), size_bytes, status.size_bytes)
            write_download(
                parts,
                path,
                size_bytes=size_bytes,
                crc32c=crc32c,
                object_name=self.object_url(key),
            )

        self._files.read(source, _ALL, save)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix``; deletes abandoned hidden names, if ``cleans``."""
        self._check_open()
        self._count("ListObjectsV2")
        folder = prefix.rpartition("/")[0]
        above = f"{folder}/" if folder else ""
        root = f"{self._root}/{folder}".rstrip("/") or "/"
        # Once each: abfs without a hierarchical namespace lists a folder twice.
        found = list({above + path: status for path, status in self._files.list(root)}.items())
        if self.cleans:
            self._delete_abandoned(found)
        for key, status in sorted(found):
            if is_listed(key, prefix):
                yield ObjectInfo(key, status.size_bytes, _time(status))

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, and what replacements of them have left; folders stay."""
        self._check_open()
        paths = [self._path(key) for key in keys]
        if paths:
            self._count("DeleteObjects")
            # Before: else a load would take what is left for the object; see `moved_away`.
            left = [] if self._publishes_by_close() else self._left_by_replacements(paths)
            self._files.delete([*left, *paths])

    def probe_conditional_put(self) -> None:
        """Create a file twice: the second time it must be refused."""
        self._check_open()
        if self._files.file_system in self._connections.probed:
            return
        path = f"{self._root}/.cairn-probe-{SYSTEM_ENTROPY.token(8)}"
        try:
            self._publish(path, path, list, replaces=False)
            with suppress(AlreadyExistsError):
                self._publish(path, path, list, replaces=False)
                raise ConditionalPutUnsupportedError(
                    "the file system replaces a file where it should refuse to: two attempts could "
                    "overwrite each other",
                    object_name=self.url,
                    next_step="keep the checkpoint on another file system, or on S3",
                )
        finally:
            self._discard(path)
        self._connections.probed.add(self._files.file_system)

    def probe_replacement(self) -> None:
        """Refuse a file system that has no ``put_if_match``."""
        self._check_open()
        self._check_replacement()

    def _check_replacement(self) -> None:
        if self._publishes_by_close():
            raise ConditionalPutUnsupportedError(
                "this file system has no atomic rename, which checkpoint format 1 needs to replace "
                "the state of an earlier attempt",
                object_name=self.url,
                next_step="start the query with a new checkpoint in format 2 (cairn.spark_conf())",
            )

    def _publishes_by_close(self) -> bool:
        if not self._publishing:
            self._publishing = self._files.publishing()
        return self._publishing == PUBLISHES_BY_CLOSE

    def _publish(self, key: str, path: str, parts: Parts, *, replaces: bool) -> None:
        try:
            if self._publishes_by_close():
                self._files.write(path, parts(), replaces=replaces)
                return
            temporary = _hidden(path, SYSTEM_ENTROPY.token(8) + TEMPORARY_SUFFIX)
            try:
                self._files.write(temporary, parts(), replaces=True)
                self._rename(temporary, path, parts, replaces=replaces)
            except CairnError:
                self._discard(temporary)
                raise
        except AlreadyExistsError as error:
            raise self._already_exists(key) from error

    def _rename(self, temporary: str, path: str, parts: Parts, *, replaces: bool) -> None:
        """Publish a temporary file with these ``parts``; own success is success.

        The temporary name is this call's alone. If it is gone, the rename was done, or somebody has
        deleted it: the bytes under the object's name tell which.
        """
        try:
            self._files.rename(temporary, path, replaces=replaces)
        except (AlreadyExistsError, MissingError, UnavailableError) as error:
            try:
                self._files.status(temporary)
            except MissingError:
                self._require_published(path, parts, error)
                return
            except CairnError:
                raise self._unknown(path) from error
            raise

    def _require_published(self, path: str, parts: Parts, error: CairnError) -> None:
        try:
            is_ours = self._has(path, parts)
        except CairnError:
            raise self._unknown(path) from error
        if not is_ours:
            raise self._unknown(path) from error

    def _has(self, path: str, parts: Parts) -> bool:
        size = sum(map(len, parts()))
        if self._files.status(path).size_bytes != size:
            return False  # perhaps a huge file, which is not read
        found = self._files.read(path, size, lambda _, chunks: _digest_of(chunks))
        return found == _digest_of(parts())

    def _unknown(self, path: str) -> UnavailableError:
        return UnavailableError(
            "the outcome of a write is unknown",
            object_name=self._files.prefix + path,
            next_step="let Spark retry the task",
        )

    def _rename_away(self, key: str, path: str, old: str, etag: str) -> None:
        """Make the name of the object with ``etag`` free; one of several callers succeeds.

        The old name stays, so that no later caller with this etag can rename the next object.
        """
        try:
            self._files.rename(path, old, replaces=False)
        except AlreadyExistsError as error:
            raise self._precondition_failed(key, is_missing=False) from error
        except MissingError as error:
            raise self._precondition_failed(key, is_missing=True) from error
        # Not the time: some file systems change it when they rename a file.
        if self._digest(old) != etag.partition("-")[0]:
            # Replaced by a writer that ignores etags, between the check and the rename.
            self._files.rename(old, path, replaces=False)
            raise self._precondition_failed(key, is_missing=False)

    def _has_etag(self, path: str, etag: str) -> bool:
        """Return whether a file has the time and the bytes of an etag."""
        digest, _, time = etag.partition("-")
        if f"{self._files.status(path).modified_ms:x}" != time:
            return False  # perhaps a huge file, which is not read
        return self._digest(path) == digest

    def _digest(self, path: str) -> str:
        """Return the digest of a file, which may be larger than the memory."""
        return self._files.read(path, _ALL, lambda _, parts: _digest_of(parts)).hex()

    def _read(self, path: str, max_bytes: int) -> StoredObject:
        """Return a whole file, of at most ``max_bytes``."""

        def use(status: FileStatus, parts: Iterator[bytes]) -> StoredObject:
            if status.size_bytes > max_bytes:
                raise too_large(self._files.prefix + path, status.size_bytes, max_bytes)
            return _stored_object(status, parts)

        return self._files.read(path, _ALL, use)

    def _discard_rivals(self, path: str, etag: str) -> None:
        """Delete what other processes left that began the same replacement: this one is whole."""
        old = _hidden(path, etag + _OLD_SUFFIX)
        with suppress(CairnError):
            found = self._left_by_replacements([path])
            rivals = [one for one in found if f".{etag}." in one and one != old]
            if rivals:
                self._files.delete(rivals)

    def _left_by_replacements(self, paths: Sequence[str]) -> Iterator[str]:
        """Yield the old and new names of these objects; one listing per folder."""
        by_folder: dict[str, set[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition("/")
            by_folder.setdefault(folder, set()).add(name)
        for folder, names in by_folder.items():
            for name, _ in self._files.list(folder):
                match = _REPLACEMENT.fullmatch(name)
                if match and match[1] in names:
                    yield f"{folder}/{name}"

    def _discard(self, path: str) -> None:
        # What stays has a hidden name, and is deleted by a later listing.
        with suppress(CairnError):
            self._files.delete([path])

    def _delete_abandoned(self, found: Found) -> None:
        newest = max((_time(status) for _, status in found), default=None)
        if newest is None:
            return
        oldest = newest - _ABANDONED_AFTER
        cut_off = _cut_off({key for key, _ in found})
        needed = {name for names in cut_off.values() for name in names}
        abandoned = [
            f"{self._root}/{key}"
            for key, status in found
            if _time(status) < oldest and _is_hidden(key) and key not in needed
        ]
        if abandoned:
            with suppress(CairnError):
                self._files.delete(abandoned)

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _begin(self, api: str, key: str) -> str:
        self._check_open()
        path = self._path(key)
        self._count(api)
        return path


def _is_hidden(path: str) -> bool:
    name = path.rpartition("/")[2]
    return bool(_TEMPORARY.fullmatch(name) or _REPLACEMENT.fullmatch(name))


def _cut_off(paths: Collection[str]) -> dict[str, list[str]]:
    """Return the old and new names of replacements that were cut off, by the absent object."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in paths:
        folder, slash, name = path.rpartition("/")
        match = _REPLACEMENT.fullmatch(name)
        if match and folder + slash + match[1] not in paths:
            found.setdefault((folder + slash + match[1], match[2]), []).append(path)
    result: dict[str, list[str]] = {}
    for (path, _), names in found.items():
        # Only an old one: the replacement was finished. Only new ones: it had not begun.
        if len({name.endswith(_OLD_SUFFIX) for name in names}) > 1:
            result.setdefault(path, []).extend(names)
    return result


def _hidden(path: str, suffix: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{suffix}"


def _digest_of(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _view(data: Payload) -> memoryview:
    return memoryview(data).cast("B")


def _chunks(path: Path, sent: Callable[[], None]) -> Iterator[memoryview]:
    with path.open("rb", buffering=0) as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield memoryview(chunk)
            sent()


def _time(status: FileStatus) -> datetime:
    return datetime.fromtimestamp(status.modified_ms / 1000, UTC)


def _stored_object(status: FileStatus, parts: Iterator[bytes]) -> StoredObject:
    data = b"".join(parts)
    # With the time, so that equal bytes that were written again are another object.
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return StoredObject(data, f"{digest}-{status.modified_ms:x}")
