"""List values: each element is one row; what is no list is refused."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cairn.errors import CorruptError
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans


def split(lists: list[bytes]) -> list[tuple[int, bytes]]:
    """Return the number of the list and the bytes of each element."""
    values = pa.array(lists, pa.large_binary())
    found, owners = elements(Spans.of(values), "a list")
    parts: list[Any] = found.binary().to_pylist()
    return list(zip(owners.tolist(), parts, strict=True))


def listed(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<i", len(part)) + part for part in parts)


def test_lists_of_elements_of_one_length_and_of_several() -> None:
    """Both forms occur in one batch; the elements keep their order."""
    lists = [[b"aa", b"bb"], [b"", b"a", b"bbb"], [], [b"x"], [b"12", b"3"], [b"", b""]]

    found = split([listed(*parts) for parts in lists])

    assert found == [(number, part) for number, parts in enumerate(lists) for part in parts]


def test_many_uneven_lists() -> None:
    """They are walked side by side, and the last few one by one."""
    lists = [[bytes([n % 256]) * (n % 7 + k) for k in range(n % 50)] for n in range(200)]

    found = split([listed(*parts) for parts in lists])

    assert found == [(number, part) for number, parts in enumerate(lists) for part in parts]


def test_elements_that_only_begin_evenly() -> None:
    """The first length divides the list, but a later one is another."""
    parts = [b"aaaa", b"bb", b"cccccc"]

    assert split([listed(*parts)]) == [(0, part) for part in parts]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    "torn",
    [
        b"\1",
        b"\0\0\0",
        struct.pack("<i", 5) + b"abcd",
        struct.pack("<i", -1) + b"abcd",
        struct.pack("<i", -4),
        struct.pack("<i", -(2**31)) + b"abcd",
        struct.pack("<i", 2**31 - 1) + b"abcd",
        listed(b"ab") + b"\1\0\0",
        listed(b"ab", b"c") + struct.pack("<i", -5),
    ],
)
def test_a_torn_element_is_corrupt(torn: bytes, count: int) -> None:
    """An element of the next list must not be taken for one of this."""
    with pytest.raises(CorruptError, match="behind the list"):
        split([listed(b"abc", b"d"), *([torn] * count), listed(b"abc")])


def test_no_lists() -> None:
    """An empty batch has no elements."""
    found, owners = elements(Spans.of(pa.array([], pa.large_binary())), "a list")

    assert len(found) == 0
    assert owners.dtype == np.int64
