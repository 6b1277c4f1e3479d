"""The storage of a checkpoint folder, and how workers reach it: uploads may be slow or fail."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from cairn.errors import UnavailableError
from cairn.storage.base import StoredObject, ignore
from cairn.storage.memory import MemoryBucket, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime
    from pathlib import Path

    from cairn.clock import Clock
    from cairn.storage.base import Payload

_LONG_S = 20


class DeadError(UnavailableError):
    """The process that sends the request has ended: nothing arrives any more."""


class Uplink:
    """The network of one worker's process.

    Attributes:
        fails: whether its uploads fail.
        deletion_s: how long a call that deletes takes.
        standing: how many uploads stand still now: the file has arrived, the answer has not.
    """

    def __init__(self) -> None:
        self.fails = False
        self.deletion_s = 0.0
        self.standing = 0
        self._is_dead = False
        self._may_upload = threading.Event()
        self._may_upload.set()
        self._lock = threading.Lock()

    @property
    def is_slow(self) -> bool:
        """Whether uploads stand still."""
        return not self._may_upload.is_set()

    def slow_down(self, deletion_s: float) -> None:
        """Let uploads stand still, and deletions take so long, from now on."""
        self._may_upload.clear()
        self.deletion_s = deletion_s

    def let_through(self) -> None:
        """Let the uploads go on."""
        self._may_upload.set()

    def die(self) -> None:
        """End the process: none of its requests arrives any more."""
        self._is_dead = True
        self._may_upload.set()

    def check(self) -> None:
        """Raise if the process has ended."""
        if self._is_dead:
            raise DeadError("the worker was killed")

    def pass_upload(self, key: str) -> None:
        """Wait for the answer to an upload that has arrived."""
        if self.fails:
            raise UnavailableError("the upload failed", object_name=key)
        with self._lock:
            self.standing += 1
        has_passed = self._may_upload.wait(_LONG_S)
        with self._lock:
            self.standing -= 1
        self.check()
        assert has_passed, "the model has left an upload standing"


class ArrivingStore(MemoryStore):
    """Objects whose uploads arrive, and are answered later."""

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """See ``ObjectStore``."""
        stored_at = super().upload(key, path, crc32c=crc32c, moved=moved)
        self.has_arrived(key)
        return stored_at

    def has_arrived(self, key: str) -> None:
        """Wait until an upload is answered, or raise what it gets."""
        raise NotImplementedError


class WorkerStore(ArrivingStore):
    """One store's objects, as one worker reaches them; counts deletions below each root."""

    uplink: Uplink
    storage: Storage

    @property
    def replaces_at_once(self) -> bool:
        """See ``ObjectStore``."""
        return self.storage.replaces_at_once

    def has_arrived(self, key: str) -> None:
        """See ``ArrivingStore``."""
        self.uplink.pass_upload(key)

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """See ``ObjectStore``; the process may end between the two steps of a replacement."""
        if self.storage.cuts and not self.replaces_at_once:
            full = self._begin("PutObject", key)
            with self._bucket.lock:
                present = self._bucket.entries.get(full)
                if present is not None and present.etag == etag:
                    self._bucket.entries[_moved(full)] = self._bucket.entries.pop(full)
                    self.storage.cuts -= 1
                    raise DeadError("the worker was killed within a replacement")
        super().put_if_match(key, data, etag)

    def moved_away(self, key: str) -> StoredObject | None:
        """See ``ObjectStore``."""
        full = self._begin("ListObjectsV2", key)
        with self._bucket.lock:
            entries = self._bucket.entries
            found = entries.get(full) or entries.get(_moved(full))
        return None if found is None else StoredObject(found.data, found.etag)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects."""
        present, deleted = self._bucket.entries.keys(), self.storage.deleted
        count = sum(self._root + key in present for key in keys)
        deleted[self._root] = deleted.get(self._root, 0) + count  # before: copies rely on it
        time.sleep(self.uplink.deletion_s)
        for key in keys:
            self._bucket.entries.pop(_moved(self._root + key), None)
        super().delete(keys)

    def _check_open(self) -> None:
        super()._check_open()
        self.uplink.check()


def _moved(full: str) -> str:
    """Return the hidden name of what a replacement has moved away."""
    folder, slash, name = full.rpartition("/")
    return f"{folder}{slash}.{name}.old"


class Storage:
    """What all checkpoint folders share.

    Attributes:
        replaces_at_once: whether an object is replaced in one step; on Hadoop's file systems not.
        cuts: the process ends within so many of the next replacements.
        deleted: how many objects the stores have deleted, by root.
    """

    def __init__(self, clock: Clock, *, replaces_at_once: bool = True) -> None:
        self.clock = clock
        self.replaces_at_once = replaces_at_once
        self.cuts = 0
        self.bucket = MemoryBucket()
        self.deleted: dict[str, int] = {}

    def store(self, folder: str, partition: int, uplink: Uplink | None = None) -> WorkerStore:
        """Connect to the objects of one store."""
        url = f"memory://bucket/{folder}/state/0/{partition}"
        objects = WorkerStore(url, self.bucket, self.clock)
        objects.uplink, objects.storage = uplink or Uplink(), self
        return objects

    def deleted_below(self, folder: str) -> int:
        """Return how many objects of a folder the stores have deleted."""
        return sum(n for root, n in self.deleted.items() if root.startswith(f"{folder}/"))

    def names(self, prefix: str) -> list[str]:
        """Return the names below a prefix, in their order."""
        with self.bucket.lock:
            return sorted(name for name in self.bucket.entries if name.startswith(prefix))

    def add(self, names: Iterable[str]) -> None:
        """Create small files."""
        objects = MemoryStore("memory://bucket", self.bucket, self.clock)
        for name in names:
            objects.put(name, b"v1")

    def drop(self, names: Iterable[str]) -> None:
        """Delete files, as a person does."""
        with self.bucket.lock:
            for name in names:
                self.bucket.entries.pop(name, None)

    def copy_object(self, source: str, target: str) -> None:
        """Copy one object, which gets a time of its own; nothing if it is gone."""
        with self.bucket.lock:
            entry = self.bucket.entries.get(source)
            if entry is not None:
                changed = type(entry)(entry.data, entry.etag, self.clock.now())
                self.bucket.entries[target] = changed
