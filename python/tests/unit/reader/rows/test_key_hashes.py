"""Spark's hash of keys: values that Spark's documentation and checkpoints give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cairn.errors import UnsupportedStateError
from cairn.reader.rows.partition_hash import has_hash, partition_of, spark_hash


def signed(*columns: pa.Array[Any]) -> list[int]:
    return [int(each) for each in spark_hash(columns).view(np.int32)]


def test_the_example_of_sparks_documentation() -> None:
    """``SELECT hash('Spark', array(123), 2)``."""
    columns = (
        pa.array(["Spark"], pa.large_string()),
        pa.array([[123]], pa.large_list(pa.int32())),
        pa.array([2], pa.int32()),
    )

    assert signed(*columns) == [-1321691492]


def test_a_null_leaves_the_hash_as_it_was() -> None:
    """A row of nulls has the seed."""
    columns = (pa.array([None, 1], pa.int64()), pa.array([1, None], pa.int64()), pa.nulls(2))

    first, second = signed(*columns)

    assert first == second == signed(pa.array([1], pa.int64()))[0]
    assert signed(pa.nulls(1)) == [42]


@pytest.mark.parametrize("of", [pa.float32(), pa.float64()])
def test_zero_has_no_sign_and_nan_has_one_form(of: pa.DataType) -> None:
    """Spark finds both zeros in one group."""
    width = of.bit_width // 8
    other_nan = np.array([-1], f"i{width}").view(f"f{width}")

    assert signed(pa.array([-0.0], of)) == signed(pa.array([0.0], of))
    assert signed(pa.array(other_nan)) == signed(pa.array([float("nan")], of))


def test_the_partition_is_never_negative() -> None:
    """Java's remainder would be."""
    numbers = pa.array(range(1000), pa.int64())

    partitions = partition_of([numbers], 7)

    assert set(partitions.tolist()) == set(range(7))


def test_slices_are_hashed_as_their_values() -> None:
    """A slice begins in the middle of its buffers."""
    of = pa.struct(
        [
            ("a", pa.large_list(pa.large_string())),
            ("b", pa.map_(pa.large_string(), pa.decimal128(20, 2))),
            ("c", pa.month_day_nano_interval()),
            ("d", pa.bool_()),
            ("e", pa.decimal128(5, 2)),
        ]
    )
    values = [
        {
            "a": ["x" * number, None],
            "b": [("k", Decimal(number))],
            "c": (number, 1, 2000),
            "d": bool(number % 2),
            "e": Decimal(number),
        }
        for number in range(6)
    ]
    whole = pa.array(values, of)

    assert signed(whole.slice(2, 3)) == signed(pa.array(values[2:5], of)) == signed(whole)[2:5]


def test_another_type_than_the_readers_is_refused() -> None:
    """A guessed partition may be the wrong one."""
    with pytest.raises(UnsupportedStateError, match="dictionary"):
        spark_hash([pa.array(["a"]).dictionary_encode()])


def test_a_type_without_a_hash_is_known_before_any_row_is_read() -> None:
    """A repartition is refused at once, also within a struct, a list or a map."""
    known = pa.struct([("a", pa.large_list(pa.int64())), ("b", pa.null())])
    unknown = pa.list_view(pa.int64())

    assert has_hash(known)
    assert has_hash(pa.map_(pa.large_string(), known))
    for outer in (pa.struct([("a", unknown)]), pa.large_list(unknown), pa.map_(known, unknown)):
        assert not has_hash(outer), outer
