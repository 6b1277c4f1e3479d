"""The files of one store in a checkpoint: their names and contents.

Layer: reader.stores.

    <name>.crc := JSON {"algorithm": "CRC32C", "value": signed i32, "mainFileSize": bytes, ...}

Spark writes such a file beside some files, with the checksum of their stored bytes.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cairn.checksum import crc32c
from cairn.errors import (
    CairnError,
    CorruptError,
    DataError,
    MissingError,
    UnsupportedStateError,
)
from cairn.format.fields import as_int, as_text, parse_object
from cairn.reader.spark.compression import decompress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.storage.base import ObjectStore

PART_BYTES = 32 << 20
"""A larger file is read in parts of this size."""
_START_BYTES = 1 << 20
"""Of a changelog: enough for its header, however it is compressed."""
CRC_SUFFIX = ".crc"
_CRC_BYTES = 1 << 16
_ALGORITHM = "CRC32C"
_AFTER_DIGITS = ":"
_DAMAGED = "restore the object from the bucket's versions or a backup, or read another batch"
_DELETED = "read a newer batch: the query may have deleted the files of this one"


class StoreFiles:
    """The files of versions: those whose names begin with a digit. Owns no resources.

    Args:
        objects: where the checkpoint is.
        folder: the store's folder, relative to the root of ``objects``.
    """

    def __init__(self, objects: ObjectStore, folder: str) -> None:
        self._objects = objects
        self._prefix = f"{folder}/" if folder else ""
        self._sizes: dict[str, int] = {}
        for info in objects.list(self._prefix):
            name = info.key[len(self._prefix) :]
            # Sorted: other files, and folders with many files, come after all digits.
            if name >= _AFTER_DIGITS:
                break
            if "/" not in name:
                self._sizes[name] = info.size_bytes

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def size(self, name: str) -> int:
        """Return the length of a file. REQUIRES: it is one of them."""
        return self._sizes[name]

    def url(self, name: str) -> str:
        """Return the object's name in errors."""
        return self._objects.object_url(self._prefix + name)

    def get(self, name: str, *, max_bytes: int) -> bytes:
        """Return a file as it is stored, after its checksum was compared if there is one.

        Raises:
            MissingError: it was deleted.
            CorruptError: its checksum differs, or it is larger than ``max_bytes``.
        """
        with self.naming(name):
            data = self._objects.get(self._prefix + name, max_bytes=max_bytes).data
            self._verify(name, len(data), crc32c(data))
        return data

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """Return a part of a file, which may be in a folder of the store; nothing is verified.

        Raises:
            MissingError: it was deleted.
        """
        with self.naming(name):
            return self._objects.get_range(self._prefix + name, offset, length)

    def content(self, name: str) -> Iterator[bytes]:
        """Yield the content of a compressed file; a large one is read in parts.

        The checksum of a large file is compared at its end.

        Raises:
            MissingError: it was deleted.
            CorruptError: it is damaged.
            UnsupportedStateError: it is compressed in an unknown way.
        """
        if self._sizes[name] <= PART_BYTES:
            return decompress(self.get(name, max_bytes=PART_BYTES), object_name=self.url(name))
        return decompress(self._parts(name), object_name=self.url(name))

    def start(self, name: str) -> Iterator[bytes]:
        """Yield the first pieces of a compressed file; ends with an error if it is large."""
        length = max(min(self._sizes[name], _START_BYTES), 1)
        return decompress(self.get_range(name, 0, length), object_name=self.url(name))

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
        except DataError as error:
            raise error.with_context(object_name=self.url(name), next_step=_DAMAGED) from None
        except CairnError as error:
            raise error.with_context(object_name=self.url(name)) from None

    def _parts(self, name: str) -> Iterator[bytes]:
        offset = checksum = 0
        size = self._sizes[name]
        while offset < size:
            part = self.get_range(name, offset, min(PART_BYTES, size - offset))
            if not part:
                raise CorruptError("the file became shorter", object_name=self.url(name))
            offset += len(part)
            checksum = crc32c(part, checksum)
            if offset >= size:
                with self.naming(name):
                    self._verify(name, size, checksum)
            yield part

    def _verify(self, name: str, size_bytes: int, checksum: int) -> None:
        if name + CRC_SUFFIX not in self._sizes:
            return
        stored = self._objects.get(self._prefix + name + CRC_SUFFIX, max_bytes=_CRC_BYTES).data
        fields = parse_object(stored, "the file's checksum")
        algorithm = as_text(fields.get("algorithm"), "the algorithm of the file's checksum")
        if algorithm != _ALGORITHM:
            raise UnsupportedStateError(
                f"the file's checksum is of the unknown kind {algorithm[:40]!r}"
            )
        value = as_int(fields.get("value"), "the file's checksum", least=-(2**31), most=2**31 - 1)
        stored_size = as_int(fields.get("mainFileSize"), "the size beside the file's checksum")
        if (size_bytes, checksum) != (stored_size, value & 0xFFFFFFFF):
            raise CorruptError("the file differs from its checksum")
