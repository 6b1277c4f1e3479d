"""Values of Spark's RocksDB stores: lists in one form, row checksums verified and left out."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from spark_store_files import element, long_checksum

from cairn.errors import CorruptError
from cairn.reader.stores.values import ValueForm, plain_values

LARGE = pa.large_binary()


def plain(
    values: list[bytes],
    *,
    delimiter: bytes = b"",
    is_list: bool = True,
    has_checksums: bool = False,
    key: bytes = b"key",
) -> list[bytes]:
    """Return the values in their one form."""
    form = ValueForm(is_list, has_checksums, delimiter)
    keys = pa.array([key] * len(values), LARGE)
    result: list[Any] = plain_values(keys, pa.array(values, LARGE), form).to_pylist()
    return result


LISTS = [[b"a"], [b"bb", b""], [b",", b",,", b"x" * 300], [b"\x01\x00\x00\x00"] * 5]


@pytest.mark.parametrize("delimiter", [b"", b","])
@pytest.mark.parametrize("has_checksums", [False, True])
@pytest.mark.parametrize("repeats", [1, 60])
def test_lists_lose_delimiters_and_checksums(
    delimiter: bytes, repeats: int, *, has_checksums: bool
) -> None:
    """Each element after the first would be shifted by a byte, or by a checksum."""
    parts = [[element(one) for one in elements] for elements in LISTS * repeats]
    if has_checksums:
        stored = [[long_checksum(b"key", one) for one in elements] for elements in parts]
    else:
        stored = parts

    values = plain(
        [delimiter.join(one) for one in stored], delimiter=delimiter, has_checksums=has_checksums
    )

    assert values == [b"".join(one) for one in parts]


def test_a_long_list_among_short_ones_keeps_its_order() -> None:
    """Lists of very different lengths are split in two ways, whose results must fit together."""
    lists = [[element(b"%d" % number)] for number in range(200)]
    lists[50] = [element(b"%d" % number) for number in range(5000)]

    values = plain([b",".join(one) for one in lists], delimiter=b",")

    assert values == [b"".join(one) for one in lists]


def test_a_single_value_is_not_split_at_commas() -> None:
    """A row may have any bytes."""
    assert plain([b",,", b"a,b"], delimiter=b",", is_list=False) == [b",,", b"a,b"]
    stored = [long_checksum(b"key", b"a,b"), long_checksum(b"key", b"")]
    assert plain(stored, delimiter=b",", is_list=False, has_checksums=True) == [b"a,b", b""]


TWO = element(b"a") + b"," + element(b"b")


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    "value",
    [
        b"",
        TWO + b",",
        TWO[:-1],
        TWO + b"x",
        element(b"a") + element(b"b"),
        element(b"a") + b";" + element(b"b"),
        b"," + TWO,
        struct.pack("<i", -1) + b"a",
        struct.pack("<i", 2**31 - 1) + b"a",
        element(b"a") + b"," + struct.pack("<i", -5) + b"a",
    ],
)
def test_a_list_of_another_form_is_an_error(value: bytes, count: int) -> None:
    """A list with the other delimiter would be read as elements of other lengths."""
    with pytest.raises(CorruptError):
        plain([TWO] * count + [value] * count, delimiter=b",")


@pytest.mark.parametrize(
    ("value", "is_list"),
    [
        (long_checksum(b"other", b"row"), False),
        (long_checksum(b"key", b"row")[:-1] + b"x", True),
        (long_checksum(b"key", b"row")[:-1], True),
        (long_checksum(b"key", b"row") * 2, False),
        (b"1234567", True),
        (b"", False),
    ],
)
def test_a_wrong_checksum_is_an_error(value: bytes, *, is_list: bool) -> None:
    """A damaged row would be shown as if Spark had written it."""
    with pytest.raises(CorruptError):
        plain([long_checksum(b"key", b"whole"), value], is_list=is_list, has_checksums=True)
