"""Compressed streams, written as Spark writes them.

Layer: offline.move.  Grammar: ``cairn.reader.spark.compression``, which reads them.

Memory is a block, whatever is written. A stream of LZF has raw chunks alone: Spark reads these too,
and Python has no fast LZF.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from cairn.checksum import crc32c, xxh32
from cairn.errors import UnsupportedStateError
from cairn.reader.spark.logs import CODEC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cairn.reader.spark.compression import Codec
    from cairn.reader.spark.logs import StateConf

_CODECS: Final[dict[str, Codec]] = {
    "lz4": "lz4",
    "zstd": "zstd",
    "snappy": "snappy",
    "lzf": "lzf",
    "org.apache.spark.io.LZ4CompressionCodec": "lz4",
    "org.apache.spark.io.ZStdCompressionCodec": "zstd",
    "org.apache.spark.io.SnappyCompressionCodec": "snappy",
    "org.apache.spark.io.LZFCompressionCodec": "lzf",
}
_BLOCK_BYTES = 32 << 10
"""Spark's default. A chunk of LZF has at most 64 KiB."""

_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_MAGIC = b"LZ4Block"
_LZ4_LEVEL = 5
"""Says that a block has at most 32 KiB."""
_LZ4_RAW, _LZ4_COMPRESSED = 0x10 | _LZ4_LEVEL, 0x20 | _LZ4_LEVEL
_LZ4_SEED, _LZ4_CHECK_BITS = 0x9747B28C, 0x0FFFFFFF
_LZ4_END = _LZ4_HEADER.pack(_LZ4_MAGIC, _LZ4_RAW, 0, 0, 0)
_SNAPPY_HEADER = struct.pack(">8sii", b"\x82SNAPPY\x00", 1, 1)


def codec_of_conf(conf: StateConf) -> Codec:
    """Return the codec with which Spark reads the files of a batch with this conf.

    Raises:
        UnsupportedStateError: another program's codec.
    """
    name = conf.get(CODEC)
    # Spark knows its short names in any case, and classes exactly.
    codec = _CODECS.get(name) or _CODECS.get(name.lower())
    if codec is None:
        raise UnsupportedStateError(
            f"{CODEC} is {name[:80]!r}, a codec that Cairn cannot write",
            object_name=conf.object_name,
            next_step="choose lz4, zstd, snappy or lzf",
        )
    return codec


class CompressedFile:
    """Writes one stream into a local file. Not thread-safe. Methods raise ``OSError``.

    Args:
        path: the file; created or replaced.
        codec: of the stream.

    Attributes:
        crc32c: of the file, as far as it was written.
        size_bytes: of the file, as far as it was written.
    """

    def __init__(self, path: Path, codec: Codec) -> None:
        self.crc32c = 0
        self.size_bytes = 0
        self._file = path.open("wb", buffering=0)
        self._stream: _Stream
        if codec == "zstd":
            self._stream = _ZstdStream(self._append)
        else:
            self._stream = _BlockStream(codec, self._append)

    def write(self, data: bytes | memoryview) -> None:
        """Append content."""
        self._stream.write(data)

    def finish(self) -> None:
        """Complete the stream and close the file; once."""
        self._stream.finish()
        self._file.close()

    def close(self) -> None:
        """Close the file, complete or not; idempotent."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        self.crc32c = crc32c(rest, self.crc32c)
        self.size_bytes += len(rest)
        while rest:
            rest = rest[self._file.write(rest) :]


class _BlockStream:
    """A codec that compresses each block by itself."""

    def __init__(self, codec: Codec, append: Callable[[bytes], None]) -> None:
        self._append = append
        self._rest = bytearray()
        self._codec: Any = None if codec == "lzf" else pa.Codec(_ARROW_CODECS[codec])
        self._block = {"lz4": self._lz4, "snappy": self._snappy, "lzf": _lzf}[codec]
        self._end = _LZ4_END if codec == "lz4" else b""
        if codec == "snappy":
            append(_SNAPPY_HEADER)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        written: list[bytes] = []
        start = 0
        if self._rest:
            start = _BLOCK_BYTES - len(self._rest)
            self._rest += view[:start]
            if len(self._rest) < _BLOCK_BYTES:
                return
            written += self._block(memoryview(bytes(self._rest)))
        end = start + (len(view) - start) // _BLOCK_BYTES * _BLOCK_BYTES
        for at in range(start, end, _BLOCK_BYTES):
            written += self._block(view[at : at + _BLOCK_BYTES])
        self._rest = bytearray(view[end:])
        self._append(b"".join(written))

    def finish(self) -> None:
        last = self._block(memoryview(bytes(self._rest))) if self._rest else ()
        self._append(b"".join((*last, self._end)))

    def _lz4(self, block: memoryview) -> tuple[bytes, ...]:
        stored = self._codec.compress(block, asbytes=True)
        token = _LZ4_COMPRESSED
        if len(stored) >= len(block):
            stored, token = bytes(block), _LZ4_RAW
        check = xxh32(block, _LZ4_SEED) & _LZ4_CHECK_BITS
        return _LZ4_HEADER.pack(_LZ4_MAGIC, token, len(stored), len(block), check), stored

    def _snappy(self, block: memoryview) -> tuple[bytes, ...]:
        stored = self._codec.compress(block, asbytes=True)
        return len(stored).to_bytes(4, "big"), stored


def _lzf(block: memoryview) -> tuple[bytes, ...]:
    return b"ZV\0" + len(block).to_bytes(2, "big"), bytes(block)


class _ZstdStream:
    """One frame."""

    def __init__(self, append: Callable[[bytes], None]) -> None:
        self._stream: Any = pa.CompressedOutputStream(pa.PythonFile(_Sink(append), "w"), "zstd")

    def write(self, data: bytes | memoryview) -> None:
        self._stream.write(data)

    def finish(self) -> None:
        self._stream.close()


class _Sink(io.RawIOBase):
    """What Arrow writes to."""

    def __init__(self, append: Callable[[bytes], None]) -> None:
        super().__init__()
        self._append = append

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - the buffers that Arrow gives
        self._append(data)
        return len(data)


_Stream = _BlockStream | _ZstdStream
_ARROW_CODECS: Final[dict[str, Literal["lz4_raw", "snappy"]]] = {
    "lz4": "lz4_raw",
    "snappy": "snappy",
}
