"""MemoryStore: objects in this process, for tests.

Layer: storage. ``memory://<name>/<path>``: all stores of one name share their objects until the end
of the process; ``MemoryBucket()`` is private. Passes the same contract suite as local files and S3.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.checksum import crc32c as checksum_of
from cairn.clock import SYSTEM_CLOCK, Clock
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
from cairn.storage.files import check_crc32c, translate_os_error, write_download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Entry:
    data: bytes
    etag: str
    last_modified: datetime


class MemoryBucket:
    """The objects that stores of one name share. ``lock`` guards ``entries``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, _Entry] = {}


_BUCKETS: dict[str, MemoryBucket] = {}


class MemoryStore(ObjectStore):
    """Objects in a dictionary."""

    def __init__(
        self, url: str, bucket: MemoryBucket | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(url)
        name, _, root = url.removeprefix("memory://").strip("/").partition("/")
        self._root = f"{root}/" if root else ""
        self._bucket = bucket or _BUCKETS.setdefault(name, MemoryBucket())
        self._clock = clock

    def at(self, url: str) -> MemoryStore:
        """Return the objects under another root."""
        return self._inherit(MemoryStore(url, self._bucket, self._clock))

    def put(self, key: str, data: Payload) -> None:
        """Create or replace an object."""
        entry, full = self._entry(data), self._begin("PutObject", key)
        with self._bucket.lock:
            self._bucket.entries[full] = entry

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Create an object."""
        entry, full = self._entry(data), self._begin("PutObject", key)
        with self._bucket.lock:
            if full in self._bucket.entries:
                raise self._already_exists(key)
            self._bucket.entries[full] = entry

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Replace the object that has ``etag``."""
        entry, full = self._entry(data), self._begin("PutObject", key)
        with self._bucket.lock:
            present = self._bucket.entries.get(full)
            if present is None or present.etag != etag:
                raise self._precondition_failed(key, is_missing=present is None)
            self._bucket.entries[full] = entry

    def upload(
        self,
        key: str,
        path: Path,
        *,
        crc32c: int,
        moved: Callable[[], None] = ignore,  # noqa: ARG002 - it is stored at once
    ) -> datetime:
        """Create an object from a local file."""
        self._check_open()
        try:
            data = path.read_bytes()
        except OSError as error:
            raise translate_os_error(error, str(path)) from error
        check_crc32c(f"{path} for {self.object_url(key)}", crc32c, checksum_of(data))
        self.put_if_absent(key, data)
        return self._clock.now()

    def copy_within(
        self, source: ObjectStore, source_key: str, key: str, *, size_bytes: int
    ) -> bool:
        """Copy an object of any bucket in memory."""
        if not isinstance(source, MemoryStore):
            return super().copy_within(source, source_key, key, size_bytes=size_bytes)
        self.put(key, source.get(source_key).data)
        return True

    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object."""
        full = self._begin("GetObject", key)
        with self._bucket.lock:
            present = self._bucket.entries.get(full)
        if present is None:
            raise self._missing(key)
        self._check_size(key, len(present.data), max_bytes)
        return StoredObject(present.data, present.etag)

    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first bytes of an object."""
        data = self.get(key).data
        return ObjectStart(data[:length], len(data))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of an object."""
        return self.get(key).data[offset : offset + length]

    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Write an object to a local file."""
        data = self.get(key).data
        write_download(
            [data], path, size_bytes=size_bytes, crc32c=crc32c, object_name=self.object_url(key)
        )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix`` at the time of the first item."""
        self._check_open()
        self._count("ListObjectsV2")
        with self._bucket.lock:
            found = sorted(self._bucket.entries.items())
        for full, entry in found:
            key = full.removeprefix(self._root)
            if full.startswith(self._root) and is_listed(key, prefix):
                yield ObjectInfo(key, len(entry.data), entry.last_modified)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        self._check_open()
        names = [self._root + check_key(key) for key in keys]
        if not names:
            return
        self._count("DeleteObjects")
        with self._bucket.lock:
            for name in names:
                self._bucket.entries.pop(name, None)

    def probe_conditional_put(self) -> None:
        """Return at once: the lock keeps the promise."""
        self._check_open()

    def _begin(self, api: str, key: str) -> str:
        self._check_open()
        full = self._root + check_key(key)
        self._count(api)
        return full

    def _entry(self, data: Payload) -> _Entry:
        content = bytes(data)
        etag = hashlib.blake2b(content, digest_size=16).hexdigest()
        return _Entry(content, etag, self._clock.now())
