"""ObjectStore: the contract between Cairn and the storage of its objects.

Layer: storage. It handles keys and bytes, and does not use state. Implementations: ``memory``
(tests), ``local`` (files), ``s3``, ``hadoop``; each passes
``python/tests/contract/test_object_store.py``.

Promises of every implementation:

- *Root.* One instance serves one root (a URL). Keys are relative to it, segments joined by ``/``.
- *Atomic.* A reader gets a whole object, either the old one or the new one; never a part.
- *Durable.* When a call that writes an object returns, the object survives a crash of this
  machine.
- *Read after write.* Every later call of any process sees a completed write, ``list`` included.
- *Own success is success.* A write whose answer was lost returns normally if a retry finds it done.
  If it cannot tell, it raises ``UnavailableError``: the write may have happened.
- *Thread-safe.* Several threads may call all methods at the same time.
- *Cost.* Without failures, ``put*`` and ``get`` cost one request each: no probing, no listing.

Every method may also raise ``UnavailableError`` (no answer, or a refusal for now),
``CredentialsExpiredError``, ``AccessError``, ``NoSuchBucketError``, ``ClosedError``, and
``InternalError`` for a key that ``check_key`` refuses. None of them leaves a partial object.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from cairn.errors import (
    AlreadyExistsError,
    ClosedError,
    CorruptError,
    InternalError,
    MissingError,
    PreconditionFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    import pyarrow as pa

Payload: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

MAX_GET_BYTES = 1 << 30
"""What ``get`` returns unless its caller knows a limit."""
_KEY_BYTES_MAX = 900
"""S3 allows 1,024 bytes for root and key together; the root may use the rest."""
_SEGMENT_BYTES_MAX = 200
"""File systems allow 255 bytes per name; the rest is for the affixes of a temporary name."""
_SPARK_METADATA = "_metadata"


def ignore() -> None:
    """Do nothing when an upload has moved."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object's entry in a listing.

    Attributes:
        key: relative to the store's root.
        size_bytes: length of the whole object.
        last_modified: time by the storage's clock, in UTC.
    """

    key: str
    size_bytes: int
    last_modified: datetime

    @property
    def modified_ms(self) -> int:
        """``last_modified`` in milliseconds since 1970."""
        return int(self.last_modified.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's bytes, and the etag that identifies these bytes for ``put_if_match``."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ObjectStart:
    """The first bytes of an object, and the length of the whole object."""

    data: bytes
    size_bytes: int

    @property
    def is_whole(self) -> bool:
        """Whether ``data`` is the whole object."""
        return len(self.data) == self.size_bytes


def check_key(key: str) -> str:
    """Return ``key`` if every implementation can store it.

    key     := segment ("/" segment)*
    segment := 1..200 bytes of UTF-8; no control character, no backslash, not beginning with "."

    Raises:
        InternalError: it cannot; ``format.names`` builds the keys, not users.
    """
    segments = key.split("/")
    problem = None
    if len(key.encode("utf-8", "replace")) > _KEY_BYTES_MAX:
        problem = f"is longer than {_KEY_BYTES_MAX} bytes"
    elif any(ord(char) < 32 or ord(char) == 127 or char == "\\" for char in key):  # noqa: PLR2004
        problem = "has a control character or a backslash"
    elif any(not segment or segment.startswith(".") for segment in segments):
        problem = "has a segment that is empty or begins with a dot"
    elif any(len(segment.encode("utf-8", "replace")) > _SEGMENT_BYTES_MAX for segment in segments):
        problem = f"has a segment longer than {_SEGMENT_BYTES_MAX} bytes"
    if problem:
        raise InternalError(f"object key {key[:80]!r} {problem}")
    return key


def is_listed(key: str, prefix: str) -> bool:
    """Return whether a listing of ``prefix`` shows ``key``.

    A listing hides, below the last ``/`` of the prefix: names that begin with a dot (temporary
    files, Hadoop's ``.crc``), Spark's ``_metadata``, and empty objects whose names end in ``/``
    (some clients mark directories so). A prefix inside ``_metadata/`` lists its content.
    """
    if not key.startswith(prefix):
        return False
    segments = key[prefix.rfind("/") + 1 :].split("/")
    return all(name and name != _SPARK_METADATA and name[0] != "." for name in segments)


def too_large(object_name: str, size_bytes: int, max_bytes: int) -> CorruptError:
    """Return the error for an object, or an answer, that is not read into memory."""
    return CorruptError(
        f"there are {size_bytes} bytes, over the limit of {max_bytes} for an object of this kind",
        object_name=object_name,
    )


class Tally:
    """The requests of several object stores, counted together. Thread-safe."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, api: str, requests: int) -> None:
        """Count requests of one kind."""
        with self._lock:
            self._counts[api] += requests

    def counts(self) -> dict[str, int]:
        """Return the number of requests, by S3's name of the call."""
        with self._lock:
            return dict(self._counts)


Other = TypeVar("Other", bound="ObjectStore")


class ObjectStore(ABC):
    """Objects under one root. The module's docstring has the promises of all methods.

    Attributes:
        cleans: whether a listing removes temporary files that a writer has abandoned. A reader,
            which changes nothing, sets it to false; roots of ``at`` inherit it.
        tally: counts the requests of this root beside ``request_counts``; ``None``: nobody wants
            it. Roots of ``at`` inherit it: it has the requests of all of them.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._counts: Counter[str] = Counter()
        self._counts_lock = threading.Lock()
        self._is_closed = False
        self.cleans = True
        self.tally: Tally | None = None

    @property
    def origin(self) -> str:
        """Name of this root among all roots of all storages: two roots never have the same."""
        return self.url

    @property
    def replaces_at_once(self) -> bool:
        """Whether an object is there, old or new, at any time of ``put_if_match``."""
        return True

    def moved_away(self, key: str) -> StoredObject | None:  # noqa: ARG002 - see the subclass
        """Return the object that a ``put_if_match`` has moved away and could not replace.

        For an object that is absent; the object itself if it is there by now. ``None`` if no
        replacement was cut off; see ``replaces_at_once``.

        Raises:
            CorruptError: it is not known which object had the name last.
        """
        return None

    @abstractmethod
    def at(self, url: str) -> ObjectStore:
        """Return the objects under another root of the same bucket or file system.

        It sends no request. The caller closes it.
        """

    @abstractmethod
    def put(self, key: str, data: Payload) -> None:
        """Create or replace an object.

        Of several concurrent writers, the last one's whole object remains.

        Raises:
            DiskFullError: local files only; the object is unchanged.
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: Payload) -> None:
        """Create an object; of concurrent callers exactly one succeeds.

        REQUIRES: the storage honours ``If-None-Match`` (see ``probe_conditional_put``).

        Raises:
            AlreadyExistsError: the key has the object of another call; it is unchanged.
            DiskFullError: as for ``put``.
        """

    @abstractmethod
    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Replace the object that ``get`` returned with ``etag``.

        On Hadoop's file systems the object is absent for a moment, and after a crash in that
        moment until it is created again.

        Raises:
            PreconditionFailedError: the object was changed or deleted; this call changed nothing.
            ConditionalPutUnsupportedError: see ``probe_replacement``.
            DiskFullError: as for ``put``.
        """

    @abstractmethod
    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """Create an object from a local file; a very large file in parts.

        On a storage whose ``probe_conditional_put`` failed, it may replace an object: the caller
        gives each object a new name.

        Where possible the storage verifies what it receives (S3: a CRC32C of each part). A failed
        upload leaves no object. On S3 it may leave parts of a multipart upload that it could not
        abort; a lifecycle rule of the bucket removes those.

        Args:
            key: key of the new object.
            path: the file must not change during the call.
            crc32c: expected checksum of the whole file, compared before the first request.
            moved: called after each part that was sent, if there are several.

        Returns:
            The time of the upload, by the storage's clock.

        Raises:
            AlreadyExistsError: the key has the object of another call; it is unchanged.
            CorruptError: the file's checksum is not ``crc32c``.
            MissingError: there is no such file.
        """

    @abstractmethod
    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object, in memory.

        Args:
            key: key of the object.
            max_bytes: a larger object is refused by its size, before its bytes are read.

        Raises:
            MissingError: there is no such object.
            CorruptError: it is larger than ``max_bytes``, or the bytes differ from the checksum
                that the storage has of them.
        """

    @abstractmethod
    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first ``length`` bytes of an object, or all if it is shorter; one request.

        The storage verifies no part of an object: the caller must be able to.

        Raises:
            MissingError: there is no such object.
            CorruptError: S3 only: the object is empty.
        """

    @abstractmethod
    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of an object from ``offset`` on; one request.

        The storage verifies no part of an object: the caller must be able to.

        Args:
            key: key of the object.
            offset: 0 or more, below the object's size.
            length: at least 1. If the object ends before, the result is shorter.

        Raises:
            MissingError: there is no such object.
            CorruptError: S3 only: the object ends at ``offset`` or before.
        """

    @abstractmethod
    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Download an object to a local file and verify it; a large object in ranges.

        The file appears under ``path`` whole, or not at all: temporary name in the same directory
        (created if absent), check of size and CRC32C, rename. Replaces an existing file. It is not
        synced: it is a copy, and after a crash of the machine it may hold anything.

        Args:
            key: key of the object.
            path: path of the file.
            size_bytes: expected length.
            crc32c: expected checksum.

        Raises:
            MissingError: there is no such object.
            CorruptError: size or checksum differ; no file is left.
            DiskFullError: no file is left.
        """

    def copy_within(
        self,
        source: ObjectStore,  # noqa: ARG002 - see the subclasses
        source_key: str,  # noqa: ARG002
        key: str,
        *,
        size_bytes: int,  # noqa: ARG002
    ) -> bool:
        """Create or replace an object with the bytes of another one, where the storage does that.

        ``copying.copy_object`` copies between any two stores.

        Args:
            source: has the other object.
            source_key: its key there.
            key: of the new object.
            size_bytes: its length; a large object is copied in parts.

        Returns:
            Whether it was copied; if not, this storage cannot.

        Raises:
            MissingError: there is no such object.
            DiskFullError: as for ``put``.
        """
        self._check_open()
        check_key(key)
        return False

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix`` that ``is_listed``, sorted by the key's UTF-8 bytes.

        Pages are fetched on demand. An object that is created or deleted during the listing may be
        missing; every other object is listed once. A root or prefix that does not exist is empty.

        Args:
            prefix: prefix of the keys; it may end within a segment. An empty one lists all.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in bulk; a key without an object is not an error.

        After an error some of them may be deleted; a repeated call deletes the rest.
        """

    @abstractmethod
    def probe_conditional_put(self) -> None:
        """Verify that ``put_if_absent`` and ``put_if_match`` keep their promises on this storage.

        Costs a few requests once; later calls return at once. It deletes the object that it wrote.
        The object's name begins with a dot, so listings hide it if the deletion fails.

        Raises:
            ConditionalPutUnsupportedError: the storage accepts a second create, or replaces an
                object whose etag differs.
        """

    def probe_replacement(self) -> None:
        """Verify that this storage has ``put_if_match``; costs nothing.

        Raises:
            ConditionalPutUnsupportedError: it has not.
        """
        self._check_open()

    def server_time(self) -> datetime | None:
        """Return the time by the storage's clock, in UTC; one request.

        ``None``: this storage does not say it without a write, or it has this machine's clock.
        """
        self._check_open()
        return None

    def renew(self, settings: Mapping[str, str]) -> None:  # noqa: B027 - few need it
        """Use other settings for the same objects from now on: credentials that were renewed.

        Requests in progress end with the former ones. It sends no request.

        Args:
            settings: as for ``open_store``.

        Raises:
            ConfigError, AccessError: they cannot be used; the former ones stay.
        """

    def prepare(self) -> None:
        """Expect requests soon: S3 opens its connections, in the background.

        It returns at once and sends no request. A failure shows in the next request.
        """
        self._check_open()

    def request_counts(self) -> dict[str, int]:
        """Return the number of requests of this instance, by S3's name of the call.

        Local files and memory count one per operation, under the same names. A repeated request
        counts each time.
        """
        with self._counts_lock:
            return dict(self._counts)

    def close(self) -> None:
        """Release the connections. Idempotent; every later call raises ``ClosedError``."""
        self._is_closed = True

    def object_url(self, key: str) -> str:
        """Return the object's name in errors: root and key."""
        return f"{self.url}/{key}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self, api: str, requests: int = 1) -> None:
        with self._counts_lock:
            self._counts[api] += requests
        if self.tally is not None:
            self.tally.add(api, requests)

    def _inherit(self, other: Other) -> Other:
        """Return another root with what roots of ``at`` inherit."""
        other.cleans, other.tally = self.cleans, self.tally
        return other

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the object store is closed", object_name=self.url)

    def _check_size(self, key: str, size_bytes: int, max_bytes: int) -> None:
        """Raise CorruptError if an object is larger than objects of its kind can be."""
        if size_bytes > max_bytes:
            raise too_large(self.object_url(key), size_bytes, max_bytes)

    def _already_exists(self, key: str) -> AlreadyExistsError:
        return AlreadyExistsError("the object exists already", object_name=self.object_url(key))

    def _missing(self, key: str) -> MissingError:
        return MissingError("the object does not exist", object_name=self.object_url(key))

    def _precondition_failed(self, key: str, *, is_missing: bool) -> PreconditionFailedError:
        message = "the object was deleted" if is_missing else "the object was changed"
        return PreconditionFailedError(message, object_name=self.object_url(key))
