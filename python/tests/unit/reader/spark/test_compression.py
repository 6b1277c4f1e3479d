"""A compressed stream of Spark gives its content or an error, and needs little memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.checksum import crc32c, xxh32
from cairn.errors import CorruptError, UnavailableError, UnsupportedStateError
from cairn.reader.spark.compression import BLOCK_BYTES_MAX, MAGIC_BYTES, codec_of, decompress

# The same delta of an aggregation, which Spark 4.3.0 wrote with each of its codecs.
BY_SPARK = {
    "lz4": (
        "4c5a34426c6f636b25a7000000dc020000e5ca250353000000300001001318040013061000050200b0cca6"
        "8d48470600006f889f08004fffffffff380001150431000302000330004f00126ab13800090d02000f7000"
        "041302290004a8000d02000f7000141c0939000f7000040427000470000de0000f38001404b8000502000f"
        "3800140da8000fe00014150869000302000f38001413032f000502000fa800140de0000f7000140d02000f"
        "3800141c0539000ea80050ffffffffff4c5a34426c6f636b15000000000000000000000000"
    ),
    "zstd": (
        "28b52ffd00489403004403000000300018000000180000000600cca68d48470600006f889f48470600ffff"
        "ffff0400126ab1020904020908030005ffffffff1b002b9300400e2803903387320a4e00c801650072c6a6"
        "0c801cc1c9084e010800e501658019a0bb39d4000f8006b66234550600b9b7a203e83d035a010000"
    ),
    "snappy": (
        "82534e4150505900000000010000000100000099dc051000000030000d0108180000050400060d10150128"
        "cca68d48470600006f889f010810ffffffff004a38000404003a01000d300c00126ab16e38004201005a70"
        "0000020d2911a84201009a700000093e39005a70001127117042e0009a380011b815019a380042a8009ae0"
        "00000815690d019a380000030d2f15019aa80042e0009a70004201009a380000053e39004aa8000cffffff"
        "ff"
    ),
    "lzf": (
        "5a560100a102dc03000000302003600000182005400300062007e0040004cca68d48472015026f889f4007"
        "00ff2000201fe0083700042014e00400a02f0300126ab1e01337e00800e00e6f0002a02840a34003e00800"
        "e01e6f0009e00738e00e6fc026406b4003e008dfe01e37c0b7e00000e01e37e008a7e01edf0008e00068a0"
        "00e01e370003a02ee00000e01ea7e008dfe01e6fe00800e01e370005e00738e00aa703ffffffff"
    ),
}
CONTENT_BYTES, CONTENT_CRC32C = 732, 0xF0375534

LZ4_END = struct.pack("<8sBIII", b"LZ4Block", 0x15, 0, 0, 0)
SNAPPY_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
BLOCK = 1 << 15


def read(stream: bytes) -> bytes:
    """Return the content of a stream."""
    return b"".join(decompress(stream, object_name="memory://bucket/1.delta"))


def lz4_block(content: bytes, level: int = 5) -> bytes:
    """Return a block with the checksum of its content."""
    data = pa.Codec("lz4_raw").compress(content, asbytes=True)
    check = xxh32(content, 0x9747B28C) & 0x0FFFFFFF
    sizes = (len(data), len(content), check)
    return struct.pack("<8sBIII", b"LZ4Block", 0x20 | level, *sizes) + data


def pieces(content: bytes) -> Iterator[bytes]:
    """Cut content into blocks of the size that Spark's codecs have."""
    return (content[at : at + BLOCK] for at in range(0, len(content), BLOCK))


def lz4(content: bytes) -> bytes:
    """Return a stream of LZ4 blocks."""
    return b"".join(map(lz4_block, pieces(content))) + LZ4_END


def zstd(content: bytes) -> bytes:
    """Return one frame of Zstandard."""
    return pa.Codec("zstd").compress(content, asbytes=True)


def snappy(content: bytes) -> bytes:
    """Return a stream of Snappy blocks."""
    blocks = (pa.Codec("snappy").compress(one, asbytes=True) for one in pieces(content))
    return SNAPPY_HEADER + b"".join(struct.pack(">i", len(one)) + one for one in blocks)


def lzf(content: bytes) -> bytes:
    """Return a stream of LZF blocks that are not compressed."""
    return b"".join(b"ZV\x00" + struct.pack(">H", len(one)) + one for one in pieces(content))


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "lz4": lz4,
    "zstd": zstd,
    "snappy": snappy,
    "lzf": lzf,
    "none": lambda content: content,
}
each_codec = pytest.mark.parametrize("codec", CODECS)


@pytest.mark.parametrize("codec", BY_SPARK)
def test_a_file_of_spark_is_read_with_each_of_its_codecs(codec: str) -> None:
    """The codec is a setting of the query; all files of state have it."""
    stream = bytes.fromhex(BY_SPARK[codec])

    content = read(stream)

    assert codec_of(stream[:MAGIC_BYTES]) == codec
    assert (len(content), crc32c(content)) == (CONTENT_BYTES, CONTENT_CRC32C)


@each_codec
def test_a_long_stream_comes_in_pieces(codec: str) -> None:
    """A snapshot of some gigabytes must not be in memory twice."""
    content = b"\x00\x00\x00\x08" + random.Random(7).randbytes(100_000) * 25
    stream = CODECS[codec](content)

    found = list(decompress(stream, object_name="o"))

    assert b"".join(found) == content
    assert len(found) > 2
    assert max(map(len, found)) <= 1 << 20


@each_codec
@given(content=st.binary(max_size=300), cut=st.integers(1, 40))
def test_a_stream_may_come_in_any_parts(codec: str, content: bytes, cut: int) -> None:
    """Ranges of an object end anywhere, also inside a header."""
    stream = CODECS[codec](b"\x00\x00" + content)
    parts = [stream[at : at + cut] for at in range(0, len(stream), cut)]

    assert b"".join(decompress([b"", *parts, b""], object_name="o")) == b"\x00\x00" + content


@each_codec
def test_streams_that_follow_each_other_are_one(codec: str) -> None:
    """Spark allows it: a file may have been appended to."""
    one, other = b"\x00\x00first" * 9, b"\x00\x00second" * 9

    assert read(CODECS[codec](one) + CODECS[codec](other)) == one + other


@each_codec
def test_an_error_of_the_storage_is_passed_on(codec: str) -> None:
    """A lost connection must not count as a damaged file, which nobody reads again."""
    stream = CODECS[codec](b"\x00\x00" + random.Random(7).randbytes(1000))

    def parts() -> Iterator[bytes]:
        yield stream[:100]
        raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        list(decompress(parts(), object_name="o"))


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "lzf"])
def test_a_stream_that_is_cut_off_is_corrupt(codec: str) -> None:
    """Half of a delta has half of its rows. Some codecs do not show a cut between two blocks."""
    stream = CODECS[codec](random.Random(7).randbytes(BLOCK + 100))
    between = {0} if codec in {"lz4", "zstd"} else {len(SNAPPY_HEADER), *cuts(stream, codec)}

    for length in {*range(60), *range(BLOCK - 9, BLOCK + 200), len(stream) - 1} - between:
        if length < len(stream):
            with pytest.raises(CorruptError, match="o"):
                list(decompress(stream[:length], object_name="o"))


def cuts(stream: bytes, codec: str) -> set[int]:
    """Return where blocks end."""
    if codec == "lzf":
        return {5 + BLOCK}
    at = len(SNAPPY_HEADER)
    return {at + 4 + int.from_bytes(stream[at : at + 4], "big")}


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "lzf"])
def test_changed_bytes_give_an_error_that_callers_know(codec: str) -> None:
    """Or content, which has its own grammar; of LZ4, whose blocks have checksums, the same."""
    chance = random.Random(11)
    stream = bytes.fromhex(BY_SPARK[codec])

    for _ in range(2000):
        changed = bytearray(stream)
        for _ in range(chance.choice((1, 1, 2, 8))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            content = read(bytes(changed))
        except (CorruptError, UnsupportedStateError):
            continue
        if codec == "lz4":
            assert crc32c(content) == CONTENT_CRC32C


def test_the_checksum_of_an_lz4_block_is_compared() -> None:
    """LZ4 itself finds few changes: a row would have other numbers."""
    block = bytearray(lz4_block(bytes(range(200))))
    block[-1] ^= 1

    with pytest.raises(CorruptError, match="checksum"):
        read(bytes(block) + LZ4_END)


def test_a_block_that_does_not_fill_its_size_is_corrupt() -> None:
    """The rest of the buffer would be memory of this process."""
    magic, token, stored, size, check = struct.unpack("<8sBIII", lz4_block(b"\x00" * 100)[:21])
    data = lz4_block(b"\x00" * 100)[21:]

    with pytest.raises(CorruptError):
        read(struct.pack("<8sBIII", magic, token, stored, size + 20, check) + data + LZ4_END)


def test_an_lz4_block_that_did_not_shrink_is_stored_as_it_is() -> None:
    """Rows of random bytes do not compress."""
    content = random.Random(3).randbytes(64)
    check = xxh32(content, 0x9747B28C) & 0x0FFFFFFF
    block = struct.pack("<8sBIII", b"LZ4Block", 0x15, 64, 64, check) + content

    assert read(block + LZ4_END) == content


@pytest.mark.parametrize(
    "fields",
    [
        (b"LZ4Blocc", 0x25, 10, 20, 0),  # magic
        (b"LZ4Block", 0x35, 10, 20, 0),  # method
        (b"LZ4Block", 0x25, 10, BLOCK + 1, 0),  # larger than its level allows
        (b"LZ4Block", 0x2F, 2**32 - 1, 20, 0),  # stored
        (b"LZ4Block", 0x15, 10, 20, 0),  # raw, but of another size
        (b"LZ4Block", 0x25, 0, 20, 0),
        (b"LZ4Block", 0x25, 10, 0, 0),
        (b"LZ4Block", 0x15, 0, 0, 1),  # an end with a checksum
    ],
)
def test_the_header_of_an_lz4_block_is_checked(fields: tuple[bytes, int, int, int, int]) -> None:
    """Each of these would lead to other bytes, or to a huge buffer."""
    start = lz4_block(b"whole")

    with pytest.raises(CorruptError, match="header is damaged"):
        read(start + struct.pack("<8sBIII", *fields) + bytes(100))


def test_lzf_repeats_what_it_has_written() -> None:
    """Copies overlap their source: a run of one byte is a copy of the byte before it."""
    literal, short, long = b"\x01ab", b"\x20\x01", b"\xe0\x09\x00"
    data = literal + short + long
    block = b"ZV\x01" + struct.pack(">HH", len(data), 2 + 3 + 18) + data

    assert read(block) == b"ab" + b"aba" + b"a" * 18


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"\x05ab", 6),  # literals that are not there
        (b"\x00a\x20", 4),  # a copy without its offset
        (b"\x00a\xe0", 4),
        (b"\x00a\x20\x01", 4),  # from before the start
        (b"\x00a\x20\x00", 5),  # of another size
    ],
)
def test_a_damaged_lzf_block_is_corrupt(data: bytes, size: int) -> None:
    """LZF has no checksum: its grammar is all that can be checked."""
    block = b"ZV\x01" + struct.pack(">HH", len(data), size) + data

    with pytest.raises(CorruptError, match="LZF"):
        read(block)


@pytest.mark.parametrize("content", [b"\x00\x00\x00\x08key", b"\x00\x02v2\x00", b"\xff" * 4])
def test_content_without_a_codec_is_read_as_it_is(content: bytes) -> None:
    """A class of the user may be the codec, one that compresses nothing."""
    assert codec_of(content) == "none"
    assert read(content) == content


@pytest.mark.parametrize(
    "stream", [b"", b"\x00", b"\xffZ4Block", b"PK\x03\x04zip", b"LZ4Bloc", b"\x28\xb5\x2f"]
)
def test_a_file_without_a_codec_of_spark_is_corrupt(stream: bytes) -> None:
    """An object of another program must not be read as state."""
    with pytest.raises(CorruptError) as error:
        read(stream)

    assert "1.delta" in str(error.value)


def test_a_snappy_stream_of_a_later_version_is_not_read() -> None:
    """Its blocks may have another form."""
    with pytest.raises(UnsupportedStateError, match="version 2"):
        read(b"\x82SNAPPY\x00" + struct.pack(">ii", 2, 2))


def hostile() -> dict[str, bytes]:
    """Return streams of a few bytes that claim to have, or have, very many."""
    huge = b"\xff\xff\xff\xff\x07"  # 2 GiB, as Snappy writes it
    window = b"\x28\xb5\x2f\xfd\x00\xa8"  # a window of 2 GiB
    return {
        "lz4": struct.pack("<8sBIII", b"LZ4Block", 0x2F, 2**31, 2**25, 0) + b"x",
        "snappy block": SNAPPY_HEADER + struct.pack(">I", 2**31 - 1) + b"x",
        "snappy size": SNAPPY_HEADER + struct.pack(">i", 6) + huge + b"x",
        "zstd": window + b"x" * 20,
        "lzf": b"ZV\x01\xff\xff\xff\xff" + b"\x00a" + b"\xe0\xff\x00" * 21844 + b"\x20",
    }


@pytest.mark.parametrize("name", hostile())
def test_a_hostile_length_takes_no_memory(name: str) -> None:
    """A service that reads checkpoints of others must not die of a few bytes."""
    tracemalloc.start()

    with pytest.raises(CorruptError):
        read(hostile()[name])

    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()


def test_a_stream_that_grows_a_thousandfold_needs_one_piece_at_a_time() -> None:
    """Zeros compress well: 256 MiB are 8 KiB."""
    stream = zstd(bytes(256 << 20))
    tracemalloc.start()

    total = sum(map(len, decompress(stream, object_name="o")))

    assert total == 256 << 20
    assert tracemalloc.get_traced_memory()[1] < BLOCK_BYTES_MAX
    tracemalloc.stop()
