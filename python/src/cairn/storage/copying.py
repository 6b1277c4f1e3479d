"""copy_object: an object of one store becomes one of another.

Layer: storage. The storage itself copies where it can; otherwise the bytes go through this process,
a large object by way of the folder of temporary files.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.checksum import crc32c as checksum_of
from cairn.errors import CorruptError
from cairn.storage.files import check_crc32c, check_size, translate_os_error

if TYPE_CHECKING:
    from cairn.storage.base import ObjectStore

IN_MEMORY_BYTES = 4 << 20
_RANGE_BYTES = 8 << 20


def copy_object(
    source: ObjectStore,
    source_key: str,
    target: ObjectStore,
    key: str,
    *,
    size_bytes: int,
    crc32c: int | None = None,
) -> None:
    """Create or replace an object with the bytes of another one.

    Of two calls for one key at a time either may fail.

    Args:
        source: has the other object.
        source_key: its key there.
        target: gets it.
        key: its key there.
        size_bytes: expected length, which is checked unless the storage itself copies.
        crc32c: expected checksum, likewise; ``None``: not known.

    Raises:
        MissingError: there is no such object.
        CorruptError: size or checksum differ.
        DiskFullError: no space for the temporary file, or as for ``put``.
        UnavailableError and other storage errors.
    """
    if target.copy_within(source, source_key, key, size_bytes=size_bytes):
        return
    name = source.object_url(source_key)
    if size_bytes <= IN_MEMORY_BYTES:
        data = source.get(source_key, max_bytes=size_bytes).data
        check_size(name, size_bytes, len(data))
        if crc32c is not None:
            check_crc32c(name, crc32c, checksum_of(data))
        target.put(key, data)
        return
    with tempfile.TemporaryDirectory(prefix="cairn-copy-") as folder:
        path = Path(folder, "object")
        if crc32c is None:
            crc32c = _fetch(source, source_key, path, size_bytes)
        else:
            source.download(source_key, path, size_bytes=size_bytes, crc32c=crc32c)
        target.delete([key])
        target.upload(key, path, crc32c=crc32c)


def _fetch(source: ObjectStore, key: str, path: Path, size_bytes: int) -> int:
    """Download an object of an unknown checksum to a new file; return its checksum."""
    name = source.object_url(key)
    present = source.get_start(key, 1).size_bytes
    check_size(name, size_bytes, present)
    checksum = offset = 0
    try:
        with path.open("xb", buffering=0) as file:
            while offset < size_bytes:
                data = source.get_range(key, offset, min(_RANGE_BYTES, size_bytes - offset))
                if not data:
                    raise CorruptError("the object became shorter", object_name=name)
                file.write(data)
                checksum = checksum_of(data, checksum)
                offset += len(data)
    except OSError as error:
        raise translate_os_error(error, str(path)) from error
    return checksum
