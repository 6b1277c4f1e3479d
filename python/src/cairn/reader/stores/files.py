"""The files of one store in a checkpoint: their names, and their contents once verified.

Layer: reader.stores.

    <name>.crc := JSON {"algorithm": "CRC32C", "value": signed i32, "mainFileSize": bytes, ...}

Spark writes such a file beside some files, with the checksum of their stored bytes.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairn.checksum import crc32c
from cairn.errors import CairnError, CorruptError, MissingError
from cairn.reader.spark.compression import decompressed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.reader.stores.base import ReadLimits
    from cairn.storage.base import ObjectStore

_CRC = ".crc"
_CRC_BYTES = 1 << 16
_ALGORITHM = "CRC32C"
_AFTER_DIGITS = ":"
_DELETED = "read a newer batch: the query may have deleted the files of this one"


class StoreFiles:
    """The files of versions, whose names begin with a digit. Owns no resources.

    Args:
        objects: where the checkpoint is.
        folder: the store's folder, relative to the root of ``objects``.
        limits: of what is read.
    """

    def __init__(self, objects: ObjectStore, folder: str, limits: ReadLimits) -> None:
        self.objects = objects
        self.limits = limits
        self._prefix = f"{folder}/" if folder else ""
        self.names: list[str] = []
        for info in objects.list(self._prefix):
            name = info.key[len(self._prefix) :]
            # Sorted: other files, and folders with many files, come after all digits.
            if name >= _AFTER_DIGITS:
                break
            if "/" not in name:
                self.names.append(name)
        self._known = frozenset(self.names)

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def key(self, name: str) -> str:
        """Return the object's key of a file of this store."""
        return self._prefix + name

    def url(self, name: str) -> str:
        """Return the object's name in errors."""
        return self.objects.object_url(self.key(name))

    def get(self, name: str) -> bytes:
        """Return a file as it is stored, after its checksum was compared if there is one.

        Raises:
            MissingError: there is no such file.
            CorruptError: its checksum differs, or it is over the limit.
        """
        with self.naming(name):
            data = self.objects.get(self.key(name), max_bytes=self.limits.object_bytes).data
        if name + _CRC in self._known:
            with self.naming(name):
                _verify(data, self.objects.get(self.key(name + _CRC), max_bytes=_CRC_BYTES).data)
        return data

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of a compressed file; raises what ``get`` does."""
        data = self.get(name)
        with self.naming(name):
            yield from decompressed(data)

    def missing(self, name: str, *, version: int) -> MissingError:
        """Return the error for a file that a version needs."""
        return MissingError(
            "a file of the version does not exist",
            version=version,
            object_name=self.url(name),
            next_step=_DELETED,
        )

    @contextmanager
    def naming(self, name: str) -> Iterator[None]:
        """Give the name of a file to errors that have none."""
        try:
            yield
        except MissingError as error:
            raise error.with_context(object_name=self.url(name), next_step=_DELETED) from None
        except CairnError as error:
            raise error.with_context(object_name=self.url(name)) from None


def _verify(data: bytes, stored: bytes) -> None:
    try:
        checksum = json.loads(stored)
        algorithm, value = checksum["algorithm"], int(checksum["value"]) & 0xFFFFFFFF
        size_bytes = checksum["mainFileSize"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError("the file's checksum cannot be parsed") from error
    if algorithm != _ALGORITHM:
        raise CorruptError(f"the file's checksum is of the unknown kind {algorithm!r:.40}")
    if len(data) != size_bytes or crc32c(data) != value:
        raise CorruptError("the file differs from its checksum")
