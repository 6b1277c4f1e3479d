"""ObjectStore: what Cairn asks of the place where objects live.

Layer: storage. It knows keys and bytes, nothing of state. Implementations: ``memory`` (tests),
``local`` (files), ``s3``; each is one that passes ``python/tests/contract/test_object_store.py``.

Promises of every implementation:

- *Root.* One instance serves one root (a URL). Keys are relative to it, segments joined by ``/``.
- *Atomic.* A reader sees an object whole, as it was before or as it is after; never a part.
- *Durable.* When a writing call returns, the object outlives a crash of this machine.
- *Read after write.* What a call wrote, every later call of anyone sees, ``list`` included.
- *Own success is success.* A write whose answer was lost, and which a retry then finds done,
  returns as done. Where that cannot be found out, it is ``UnavailableError``: the write may have
  happened.
- *Thread-safe.* All methods may be called from any thread at once.
- *Cost.* On the ordinary way ``put*`` and ``get`` are one request each: no probing, no listing.

Every method may raise, besides what it names: ``UnavailableError`` (no answer, or "not now"),
``CredentialsExpiredError``, ``AccessError``, ``NoSuchBucketError``, ``ClosedError``, and
``InternalError`` for a key that ``check_key`` refuses. Nothing is left half-written by any of them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeAlias

from cairn.errors import ClosedError, InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

Payload: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"

_KEY_BYTES_MAX = 900
"""S3 allows 1,024 for root and key together; the rest is for the root."""
_SEGMENT_BYTES_MAX = 200
"""File systems allow 255 a name; the rest is for the temporary name's affixes."""
_SPARK_METADATA = "_metadata"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of an object.

    Attributes:
        key: relative to the store's root.
        size_bytes: the whole object's length.
        last_modified: by the storage's clock, in UTC.
        etag: as ``put`` and ``get`` give it; empty where a listing does not know it (local files).
    """

    key: str
    size_bytes: int
    last_modified: datetime
    etag: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object's bytes and the etag that names exactly these bytes for ``put_if_match``."""

    data: bytes
    etag: str


def check_key(key: str) -> str:
    """Return ``key`` if every implementation can store it.

    key     := segment ("/" segment)*
    segment := 1..200 bytes of UTF-8; no control character, no backslash, not beginning with "."

    Raises:
        InternalError: it is none; names are built by ``format.names``, not by users.
    """
    problem = None
    if len(key.encode("utf-8", "replace")) > _KEY_BYTES_MAX:
        problem = f"longer than {_KEY_BYTES_MAX} bytes"
    elif any(ord(char) < 32 or ord(char) == 127 or char == "\\" for char in key):  # noqa: PLR2004
        problem = "has a control character or a backslash"
    for segment in key.split("/"):
        if not segment or segment.startswith("."):
            problem = problem or "has a segment that is empty or begins with a dot"
        elif len(segment.encode("utf-8", "replace")) > _SEGMENT_BYTES_MAX:
            problem = problem or f"has a segment longer than {_SEGMENT_BYTES_MAX} bytes"
    if problem:
        message = f"object key {key[:80]!r} {problem}"
        raise InternalError(message)
    return key


def is_listed(key: str, prefix: str) -> bool:
    """Tell whether a listing of ``prefix`` shows ``key``.

    Hidden below the prefix's last ``/``: names beginning with a dot (temporary files, Hadoop's
    ``.crc``), Spark's ``_metadata``, and the empty objects ending in ``/`` by which some clients
    mark directories. A prefix inside ``_metadata/`` shows what is there.
    """
    if not key.startswith(prefix):
        return False
    segments = key[prefix.rfind("/") + 1 :].split("/")
    return all(name and name != _SPARK_METADATA and name[0] != "." for name in segments)


class ObjectStore(ABC):
    """Objects under one root. The module's docstring has the promises that hold for all methods."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._counts: Counter[str] = Counter()
        self._counts_lock = threading.Lock()
        self._is_closed = False

    @abstractmethod
    def put(self, key: str, data: Payload) -> str:
        """Create or replace an object and return its etag.

        The last of several concurrent writers wins, whole.

        Raises:
            DiskFullError: local files only; the object is as it was before.
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: Payload) -> str:
        """Create an object and return its etag; of concurrent callers exactly one succeeds.

        REQUIRES: the storage honours ``If-None-Match``; ``probe_conditional_put`` finds out.

        Raises:
            AlreadyExistsError: another call's object stands there, unchanged.
            DiskFullError: as for ``put``.
        """

    @abstractmethod
    def put_if_match(self, key: str, data: Payload, etag: str) -> str:
        """Replace the object that ``get`` returned with ``etag``; return the new one's etag.

        Raises:
            PreconditionFailedError: the object has changed or is gone; it was not touched.
            DiskFullError: as for ``put``.
        """

    @abstractmethod
    def upload(self, key: str, path: Path, *, crc32c: int | None = None) -> ObjectInfo:
        """Create an object from a local file; large ones in parts, several at a time.

        The storage checks what arrives where it can (S3: a CRC32C of each part). An upload that
        fails leaves no object, and on S3 at most parts of a multipart upload that it could not
        abort (a lifecycle rule of the bucket removes those).

        Args:
            key: as ever.
            path: must not change meanwhile.
            crc32c: of the whole file as its writer knows it; compared before anything is sent.

        Raises:
            AlreadyExistsError: another call's object stands there, unchanged.
            CorruptError: the file is not what ``crc32c`` says.
            MissingError: there is no such file.
        """

    @abstractmethod
    def get(self, key: str) -> Fetched:
        """Return a whole object; for those that fit in memory.

        Raises:
            MissingError: there is none.
            CorruptError: the bytes differ from the checksum that the storage keeps of them.
        """

    @abstractmethod
    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int | None = None) -> None:
        """Bring an object to a local file, verified; large ones in ranges, several at a time.

        The file appears under ``path`` whole and on disk, or not at all: a temporary name in the
        same directory (made on demand), size and CRC32C checked, fsync, rename. Replaces a file
        that is there.

        Args:
            key: as ever.
            path: where to.
            size_bytes: what the object's namer says of its length.
            crc32c: what it says of its content; ``None`` checks the length alone.

        Raises:
            MissingError: there is no such object.
            CorruptError: size or checksum differ; names the object; no file is left.
            DiskFullError: no file is left.
        """

    @abstractmethod
    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield what ``is_listed`` shows under ``prefix``, by key in the order of its UTF-8 bytes.

        Pages are fetched as they are asked for. Objects that come or go meanwhile may or may not
        be seen; all others are, once. A root or prefix that does not exist yields nothing.

        Args:
            prefix: of the key, not necessarily ending at a ``/``; empty for all.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in bulk; those that are not there are done already.

        After an error any part of them may be deleted; calling again finishes.
        """

    @abstractmethod
    def probe_conditional_put(self) -> None:
        """Find out that ``put_if_absent`` and ``put_if_match`` keep their promises here.

        Costs a few requests, once.

        Later calls on this instance return at once. What it wrote is gone afterwards; its name
        begins with a dot, so that no listing shows it even if it is not.

        Raises:
            ConditionalPutUnsupportedError: the storage takes a second put for a first one, or
                replaces whatever stands there.
        """

    def request_counts(self) -> dict[str, int]:
        """Return how many requests this instance has made, by S3's name of the call.

        Local files and memory count one per operation, by the same names. A request that was
        answered at last counts once for each time that it was sent.
        """
        with self._counts_lock:
            return dict(self._counts)

    def close(self) -> None:
        """Give back connections. Idempotent; every later call raises ``ClosedError``."""
        self._is_closed = True

    def object_url(self, key: str) -> str:
        """Return what errors call the object: root and key."""
        return f"{self.url}/{key}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _count(self, api: str, requests: int = 1) -> None:
        with self._counts_lock:
            self._counts[api] += requests

    def _check_open(self) -> None:
        if self._is_closed:
            message = "the object store is closed"
            raise ClosedError(message, object_name=self.url)
