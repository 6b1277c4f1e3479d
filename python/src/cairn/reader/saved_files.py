"""SavedFiles: a checkpoint as it was at a savepoint, for those who read it as any other.

Layer: reader.  Spec: docs/checkpoint-format.md#savepoint. Spark's files of the batch come from the
savepoint, all else from the checkpoint: the objects of the stores, and the files of the sources.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from cairn.errors import InternalError
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX
from cairn.storage.base import (
    MAX_GET_BYTES,
    ObjectInfo,
    ObjectStart,
    ObjectStore,
    StoredObject,
    check_key,
    ignore,
    is_listed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cairn.format.savepoint import Savepoint
    from cairn.storage.base import Payload

_QUERY_ID = "metadata"
_METADATA_FOLDER = "/_metadata/"
_SCHEMA_FOLDER = "/_stateSchema/"


class SavedFiles(ObjectStore):
    """See the module. It only reads.

    Args:
        checkpoint: at the query's checkpoint location; the caller closes it.
        savepoint: one of its savepoints.

    Attributes:
        checkpoint: as given.
        savepoint: as given.
    """

    def __init__(self, checkpoint: ObjectStore, savepoint: Savepoint) -> None:
        super().__init__(checkpoint.url)
        self.savepoint = savepoint
        self.checkpoint = checkpoint
        self._files = {one.key: one.data for one in savepoint.files}
        self._saved_at = datetime.fromtimestamp(savepoint.created_at_ms / 1000, UTC)

    @property
    def origin(self) -> str:
        """That of the checkpoint."""
        return self.checkpoint.origin

    def at(self, url: str) -> ObjectStore:
        """Return the objects under another root, such as that of a store."""
        return self.checkpoint.at(url)

    def get(self, key: str, *, max_bytes: int = MAX_GET_BYTES) -> StoredObject:
        """Return a whole object."""
        if not _is_saved(check_key(key)):
            return self.checkpoint.get(key, max_bytes=max_bytes)
        data = self._saved(key)
        self._check_size(key, len(data), max_bytes)
        return StoredObject(data, "")

    def get_start(self, key: str, length: int) -> ObjectStart:
        """Return the first bytes of an object."""
        if not _is_saved(key):
            return self.checkpoint.get_start(key, length)
        data = self._saved(key)
        return ObjectStart(data[:length], len(data))

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of an object."""
        if not _is_saved(key):
            return self.checkpoint.get_range(key, offset, length)
        return self._saved(key)[offset : offset + length]

    def download(self, key: str, path: Path, *, size_bytes: int, crc32c: int) -> None:
        """Download an object; none of Spark's files is downloaded."""
        self.checkpoint.download(key, path, size_bytes=size_bytes, crc32c=crc32c)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects under ``prefix``: of a folder of Spark's files, the saved ones."""
        saved = [
            ObjectInfo(key, len(data), self._saved_at)
            for key, data in sorted(self._files.items())
            if is_listed(key, prefix)
        ]
        if saved or _is_saved(prefix):
            yield from saved
            return
        yield from self.checkpoint.list(prefix)

    def server_time(self) -> datetime | None:
        """Return the time by the storage's clock."""
        return self.checkpoint.server_time()

    def put(self, key: str, data: Payload) -> None:
        """Refuse, as all calls that write."""
        self._refuse(key, data)

    def put_if_absent(self, key: str, data: Payload) -> None:
        """Refuse."""
        self._refuse(key, data)

    def put_if_match(self, key: str, data: Payload, etag: str) -> None:
        """Refuse."""
        self._refuse(key, data, etag)

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = ignore
    ) -> datetime:
        """Refuse."""
        self._refuse(key, path, crc32c, moved)

    def delete(self, keys: Sequence[str]) -> None:
        """Refuse."""
        self._refuse(*keys)

    def probe_conditional_put(self) -> None:
        """Refuse."""
        self._refuse("")

    def _saved(self, key: str) -> bytes:
        if key not in self._files:
            raise self._missing(key)
        return self._files[key]

    def _refuse(self, key: str, *_: object) -> NoReturn:
        raise InternalError("a savepoint is only read", object_name=self.object_url(key))


def _is_saved(key: str) -> bool:
    """Return whether an object of this name is read from the savepoint alone."""
    return (
        key == _QUERY_ID
        or key.startswith((OFFSETS_PREFIX, COMMITS_PREFIX))
        or (key.startswith("state/") and (_METADATA_FOLDER in key or _SCHEMA_FOLDER in key))
    )
