"""Compressed streams as Spark writes them: the files of state, and RocksDB's changelogs.

Layer: reader.spark.  Spec: docs/spark-formats.md#compression. The first bytes of a stream say which
codec it has. Each codec is read block by block: memory is bounded by ``BLOCK_BYTES_MAX`` and, for
zstd, by its window of at most 128 MiB, however long the stream is and whatever its lengths claim.

    lz4    := ( block* end )+                       ; of net.jpountz, not the frames of LZ4
    block  := "LZ4Block"  u8 token  u32le stored  u32le size  u32le check  data[stored]
    token  := method (16 raw, 32 LZ4) | level       ; size <= 1 << (10 + level)
    check  := XXH32(raw data, seed 0x9747b28c) & 0x0fffffff
    end    := block with stored = size = check = 0
    zstd   := frame+                                ; of Zstandard
    snappy := header ( i32be stored  data[stored] | header )*     ; of xerial's snappy-java
    header := 82 "SNAPPY" 00  i32be version  i32be compatible
    lzf    := ( "ZV" 00  u16be size  data[size] | "ZV" 01  u16be stored  u16be size  data[stored] )+
    none   := bytes that begin as the content of a file of state does

A stream of snappy, LZF or no codec has no end mark: if it is cut between two blocks, only the
grammar of its content shows it.
"""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias

import pyarrow as pa

from cairn.checksum import xxh32
from cairn.errors import CorruptError, UnsupportedStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Codec: TypeAlias = Literal["lz4", "zstd", "snappy", "lzf", "none"]

BLOCK_BYTES_MAX: Final = 32 << 20
"""The largest block that the codecs allow; Spark's default is 32 KiB."""
MAGIC_BYTES: Final = 8
"""So many bytes of a stream say which codec it has."""

_PIECE_BYTES = 1 << 20
# The longest input that any block of an allowed size needs: incompressible data grows by a sixth.
_STORED_BYTES_MAX = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64
_LZ4_MAGIC = b"LZ4Block"
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_MAGICS: Final[tuple[tuple[bytes, Codec], ...]] = (
    (_LZ4_MAGIC, "lz4"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (_SNAPPY_MAGIC, "snappy"),
    (b"ZV", "lzf"),
    (b"\x00\x00", "none"),  # the length of a key
    (b"\x00\x02v", "none"),  # the version of a changelog
    (b"\xff\xff\xff\xff", "none"),  # the end of a file without rows
)

_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_LZ4_SEED, _LZ4_CHECK_BITS = 0x9747B28C, 0x0FFFFFFF
_LZ4_LEAST_LEVEL_BITS = 10
_SNAPPY_HEADER = struct.Struct(">8sii")
_SNAPPY_VERSION = 1
_LZF_RAW, _LZF_COMPRESSED = 0, 1
_LZF_LITERALS, _LZF_LONG = 32, 7


def codec_of(start: bytes) -> Codec | None:
    """Return the codec of a stream by its first ``MAGIC_BYTES``; ``None`` for none of these."""
    return next((codec for magic, codec in _MAGICS if start.startswith(magic)), None)


def decompress(data: bytes | Iterable[bytes], *, object_name: str) -> Iterator[bytes]:
    """Yield the content of a stream in pieces of at most ``BLOCK_BYTES_MAX`` bytes.

    Args:
        data: the whole stream, or its parts in order, read as they are needed.
        object_name: of the stream, for errors.

    Raises:
        CorruptError: the stream is empty, of no known codec, cut off, or damaged. The pieces
            before the damage have been yielded: use them only when the iterator has ended.
        UnsupportedStateError: the stream is of a version that Spark does not write.
    """
    source = _Source((data,) if isinstance(data, bytes) else data, object_name)
    codec = codec_of(source.start())
    if codec is None:
        what = "has another codec than Spark's" if source.start() else "is empty"
        source.fail(f"the file {what}")
    yield from _READERS[codec](source)


class _Source(io.RawIOBase):
    """The stored bytes, read forward. Arrow reads it as a file."""

    def __init__(self, parts: Iterable[bytes], object_name: str) -> None:
        super().__init__()
        self.object_name = object_name
        self._parts = iter(parts)
        self._rest = memoryview(b"")

    def fail(self, message: str, cause: BaseException | None = None) -> NoReturn:
        raise CorruptError(
            message,
            object_name=self.object_name,
            next_step="restore it from the bucket's versions or a backup",
        ) from cause

    def start(self) -> bytes:
        """Return the first bytes, and leave them there."""
        while len(self._rest) < MAGIC_BYTES and (part := next(self._parts, None)) is not None:
            self._rest = memoryview(bytes(self._rest) + part) if self._rest else memoryview(part)
        return bytes(self._rest[:MAGIC_BYTES])

    def is_at_end(self) -> bool:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return True
            self._rest = memoryview(part)
        return False

    def some(self, limit: int) -> memoryview:
        """Return the next bytes, at most ``limit``; nothing at the end."""
        self.is_at_end()
        found, self._rest = self._rest[:limit], self._rest[limit:]
        return found

    def exactly(self, count: int) -> memoryview:
        """Return the next ``count`` bytes."""
        found = self.some(count)
        if len(found) == count:
            return found
        pieces = [found]
        missing = count - len(found)
        while missing:
            if not (piece := self.some(missing)):
                self.fail("the compressed file is cut off")
            pieces.append(piece)
            missing -= len(piece)
        return memoryview(b"".join(pieces))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return bytes(self.some(size if size >= 0 else _PIECE_BYTES))


def _lz4(source: _Source) -> Iterator[bytes]:
    is_ended = False
    while not (is_ended and source.is_at_end()):
        header = source.exactly(_LZ4_HEADER.size)
        magic, token, stored, size, check = _LZ4_HEADER.unpack(header)
        method, level = token & 0xF0, token & 0x0F
        is_ended = size == 0
        if (
            magic != _LZ4_MAGIC
            or method not in {_LZ4_RAW, _LZ4_COMPRESSED}
            or size > 1 << (_LZ4_LEAST_LEVEL_BITS + level)
            or stored > _STORED_BYTES_MAX
            or (stored == 0) != is_ended
            or (method == _LZ4_RAW and stored != size)
            or (is_ended and check)
        ):
            source.fail("the file has an LZ4 block whose header is damaged")
        if is_ended:
            continue
        data = source.exactly(stored)
        raw = bytes(data) if method == _LZ4_RAW else _block(source, "lz4_raw", data, size)
        # Arrow does not tell whether a block fills its size: the checksum does.
        if xxh32(raw, _LZ4_SEED) & _LZ4_CHECK_BITS != check:
            source.fail("the checksum of an LZ4 block does not fit its content")
        yield raw


def _zstd(source: _Source) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd") as stream:
        while True:
            try:
                piece = stream.read(_PIECE_BYTES)
            except OSError as error:
                source.fail(f"the file is no whole Zstandard stream ({error})", error)
            if not piece:
                return
            yield piece


def _snappy(source: _Source) -> Iterator[bytes]:
    first_of_header = _SNAPPY_MAGIC[:4]
    _check_snappy_header(source, source.exactly(_SNAPPY_HEADER.size))
    while not source.is_at_end():
        length = bytes(source.exactly(4))
        if length == first_of_header:  # another stream follows
            rest = source.exactly(_SNAPPY_HEADER.size - len(length))
            _check_snappy_header(source, memoryview(length + rest))
            continue
        stored = int.from_bytes(length, "big")
        if stored > _STORED_BYTES_MAX:
            source.fail("the file has a Snappy block whose length is damaged")
        data = source.exactly(stored)
        yield _block(source, "snappy", data, _snappy_size(source, data))


def _check_snappy_header(source: _Source, header: memoryview) -> None:
    magic, version, compatible = _SNAPPY_HEADER.unpack(header)
    if magic != _SNAPPY_MAGIC or version < _SNAPPY_VERSION:
        source.fail("the file has a Snappy header that is damaged")
    if compatible > _SNAPPY_VERSION:
        raise UnsupportedStateError(
            f"the file is a Snappy stream of version {version}",
            object_name=source.object_name,
            next_step="read it with Spark's statestore source",
        )


def _snappy_size(source: _Source, data: memoryview) -> int:
    """Return the length of a block's content: seven bits per byte, the lowest first."""
    size = 0
    for number, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            if size > BLOCK_BYTES_MAX:
                break
            return size
    return source.fail("the file has a Snappy block whose size is damaged")


def _block(
    source: _Source, codec: Literal["lz4_raw", "snappy"], data: memoryview, size: int
) -> bytes:
    try:
        return pa.Codec(codec).decompress(data, size, asbytes=True)
    except OSError as error:
        source.fail(f"the file has a damaged block ({error})", error)


def _lzf(source: _Source) -> Iterator[bytes]:
    while not source.is_at_end():
        magic, kind, stored = struct.unpack(">2sBH", source.exactly(5))
        if magic != b"ZV" or kind not in {_LZF_RAW, _LZF_COMPRESSED}:
            source.fail("the file has an LZF block whose header is damaged")
        if kind == _LZF_RAW:
            yield bytes(source.exactly(stored))
            continue
        (size,) = struct.unpack(">H", source.exactly(2))
        content = _lzf_block(bytes(source.exactly(stored)))
        if content is None or len(content) != size:
            source.fail("the file has a damaged LZF block")
        yield content


def _lzf_block(data: bytes) -> bytes | None:
    """Return the content of a block, ``None`` if it is damaged; 64 KiB become 6 MiB at most.

    block   := ( literal | short | long )*
    literal := u8 n - 1 (0..31)  data[n]
    short   := u8 (n - 2) << 5 | high bits of offset  u8 low bits     ; n 3..8, then offset + 1 back
    long    := u8 7 << 5 | high bits of offset  u8 n - 9  u8 low bits
    """
    content = bytearray()
    at = 0
    try:
        while at < len(data):
            control = data[at]
            if control < _LZF_LITERALS:
                content += data[at + 1 : at + 2 + control]
                at += 2 + control
                continue
            count = control >> 5
            if count == _LZF_LONG:
                at += 1
                count += data[at]
            back = ((control & 0x1F) << 8) + data[at + 1] + 1
            at += 2
            if back > len(content):
                return None
            count += 2
            start = len(content) - back
            repeated = content[start : start + count]
            content += (repeated * (count // len(repeated) + 1))[:count]
    except IndexError:
        return None
    return bytes(content) if at == len(data) else None


def _none(source: _Source) -> Iterator[bytes]:
    while piece := source.some(_PIECE_BYTES):
        yield bytes(piece)


_READERS: Final[dict[Codec, Callable[[_Source], Iterator[bytes]]]] = {
    "lz4": _lz4,
    "zstd": _zstd,
    "snappy": _snappy,
    "lzf": _lzf,
    "none": _none,
}
