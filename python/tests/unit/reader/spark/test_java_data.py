"""Texts and numbers of Java are read as Java wrote them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import CorruptError
from cairn.reader.spark.java_data import JavaData


def modified(text: str) -> bytes:
    """Return modified UTF-8: each unit of UTF-16 by itself, and U+0000 in two bytes."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = struct.unpack(f">{len(units) // 2}H", units)
    encoded = (chr(code).encode("utf-8", "surrogatepass") for code in codes)
    return b"".join(b"\xc0\x80" if one == b"\x00" else one for one in encoded)


def utf(text: str) -> bytes:
    """Return what `writeUTF` writes."""
    return struct.pack(">H", len(modified(text))) + modified(text)


def test_numbers_are_big_endian() -> None:
    """The rows beside them are little-endian: a mistake would give ids of thousands."""
    data = JavaData(bytes.fromhex("0001fffe00010000ffffffff"))

    numbers = [data.read_short(), data.read_short(), data.read_int(), data.read_int()]

    assert numbers == [1, -2, 65536, -1]
    assert data.is_at_end


def test_the_text_that_java_wrote_is_read() -> None:
    """The bytes are those of Java's ``DataOutputStream.writeUTF``."""
    data = JavaData(bytes.fromhex("000e 61 c080 c3a9 e282ac eda0bd edb880"))

    assert data.read_utf() == "a\0é€😀"
    assert data.is_at_end


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    """Names of columns are what users choose."""
    assert JavaData(utf(text)).read_utf() == text


@given(st.text(alphabet="a\0é€😀", max_size=30), st.integers(1, 5))
def test_a_text_may_be_cut_inside_a_character(text: str, units: int) -> None:
    """Spark cuts a schema after 65,535 units of UTF-16, and so between two surrogates."""
    halves = text.encode("utf-16-be")
    parts = [halves[at : at + 2 * units] for at in range(0, len(halves), 2 * units)]
    texts = [part.decode("utf-16-be", "surrogatepass") for part in parts]

    data = JavaData(struct.pack(">i", len(texts)) + b"".join(map(utf, texts)))

    assert data.read_texts() == text
    assert data.is_at_end


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x05abcd",
        b"\x00\x02\xff\xfe",
        b"\x00\x01\xc3",  # half of a character
        b"\x00\x02\xc0\x81",  # a longer form than needed
        b"\x00\x04\xf0\x9f\x98\x80",  # UTF-8 as it is elsewhere
        b"\x00\x03\xed\xa0\xbd",  # half of a pair
    ],
)
def test_what_is_no_text_of_java_is_corrupt(data: bytes) -> None:
    """A damaged name must not be shown as another one."""
    with pytest.raises(CorruptError):
        JavaData(data).read_utf()


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_wrong_number_of_parts_is_corrupt(count: int) -> None:
    """It is checked by what is there, not by a buffer for what is claimed."""
    with pytest.raises(CorruptError):
        JavaData(struct.pack(">i", count) + utf("{}")).read_texts()
