"""Rows as bytes: what is encoded comes back equal, and what the JVM might change is not encoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from cairn.transform.rows import Rows, encode_pickle

SCHEMA = (
    StructType()
    .add("b", ByteType())
    .add("h", ShortType())
    .add("s", StringType())
    .add("i", IntegerType())
    .add("l", LongType(), nullable=False)
    .add("t", StringType())
    .add("d", DoubleType())
    .add("f", BooleanType())
)
GOOD = (-128, 32_767, "text ü", -(2**31), 2**63 - 1, "", 0.1, True)


def test_bytes_are_those_of_the_shim() -> None:
    """`BulkRows` of the shim reads and writes these bytes."""
    rows = Rows(StructType().add("n", IntegerType()).add("s", StringType()).add("l", LongType()))

    assert rows.encode((1, "ü", None)) == (
        bytes.fromhex("0000000000000004 00000001 00000002 0000000000000000 c3bc"),
        (1, "ü", None),
    )


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        (None, None, None, None, 7, None, None, None),
        (None, 1, "s", None, 7, "t", float("inf"), False),
    ],
)
def test_what_is_encoded_comes_back(value: tuple[Any, ...]) -> None:
    """In the place where it begins, with the place where it ends."""
    rows = Rows(SCHEMA)

    encoded = rows.encode(value)

    assert encoded is not None
    assert rows.decode(b"\x07" + encoded[0] + b"\x07", 1) == (value, 1 + len(encoded[0]))
    assert rows.row(value).s == value[2]


@pytest.mark.parametrize(
    "value",
    [
        None,
        list(GOOD),
        GOOD[:-1],
        (*GOOD, 1),
        (128, *GOOD[1:]),
        (True, *GOOD[1:]),
        (*GOOD[:4], None, *GOOD[5:]),
        (*GOOD[:4], 2**63, *GOOD[5:]),
        (*GOOD[:2], "\ud800", *GOOD[3:]),
        (*GOOD[:2], 7, *GOOD[3:]),
        (*GOOD[:6], 1, True),
        (*GOOD[:6], 1.0, 1),
    ],
)
def test_what_the_jvm_might_refuse_or_change_is_not_encoded(value: Any) -> None:  # noqa: ANN401
    """The worker leaves such a row to Spark's own call."""
    assert Rows(SCHEMA).encode(value) is None


def test_numbers_of_numpy_are_pythons() -> None:
    """As Spark's client makes them, before it sends a row."""
    rows = Rows(StructType().add("l", LongType()).add("d", DoubleType()).add("f", BooleanType()))

    encoded = rows.encode((np.int64(7), np.float64(0.5), np.bool_(1)))

    assert encoded is not None
    assert encoded[1] == (7, 0.5, True)
    assert list(map(type, encoded[1])) == [int, float, bool]


def test_a_schema_with_other_types_has_pickles() -> None:
    """They are read as they are, with the others around them."""
    rows = Rows(StructType().add("a", ArrayType(LongType())))

    assert rows.encode(([1],)) is None
    assert rows.decode(encode_pickle(b"pickle") + b"more", 0) == (b"pickle", 18)
    assert rows.decode(b"\xff" * 7 + b"\xfe" + b"more", 0) == (None, 8)


def test_a_plain_row_of_another_schema_is_refused() -> None:
    """Shim and worker must agree which schemas have plain rows; else values would be others."""
    plain = Rows(StructType().add("n", LongType()))
    nested = Rows(StructType().add("a", ArrayType(LongType())))
    encoded = plain.encode((7,))
    assert encoded is not None

    with pytest.raises(ValueError, match="is not a pickle"):
        nested.decode(encoded[0], 0)
