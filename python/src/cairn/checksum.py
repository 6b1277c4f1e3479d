"""CRC32C (Castagnoli) of every object, file and frame; XXH3 and XXH32 of blocks.

Layer: checksum (above errors only). The only importer of the packages ``crc32c``, which uses the
processor's instruction and releases the GIL on large buffers, and ``xxhash``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crc32c import crc32c as _crc32c
from xxhash import xxh3_64_intdigest, xxh3_128_digest, xxh32_intdigest

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_READ_BYTES = 1 << 20


def crc32c(data: bytes | bytearray | memoryview | pa.Buffer, value: int = 0) -> int:
    """Return the CRC32C of ``data``, without a copy of it.

    ``crc32c(b, crc32c(a)) == crc32c(a + b)``.

    Args:
        data: any contiguous buffer.
        value: the checksum of the bytes before ``data``; 0 at the start.
    """
    return _crc32c(data, value)


def masked_crc32c(data: bytes | memoryview) -> int:
    """Return the CRC32C of ``data`` as RocksDB stores it: rotated, plus a constant."""
    checksum = _crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def xxh3(data: bytes) -> int:
    """Return the 64 bits of XXH3 of ``data``, without a seed."""
    return int(xxh3_64_intdigest(data))


def xxh32(data: bytes | memoryview, seed: int) -> int:
    """Return the 32 bits of XXH32 of ``data``."""
    return int(xxh32_intdigest(data, seed))


def xxh3_128(data: bytes) -> bytes:
    """Return the 16 bytes of the long XXH3 of ``data``, without a seed: a name for content."""
    return xxh3_128_digest(data)


def crc32c_file(path: Path) -> int:
    """Return the CRC32C of a whole file, read in pieces of 1 MiB.

    Raises:
        OSError: from ``open`` and ``read``.
    """
    checksum = 0
    buffer = memoryview(bytearray(_READ_BYTES))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum = _crc32c(buffer[:count], checksum)
    return checksum
