"""Tables as Polars takes them. It is no dependency: what it lacks was found by running it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import UnsupportedStateError
from cairn.reader.for_polars import for_polars

INTERVAL = pa.month_day_nano_interval()
interval: Any = pa.MonthDayNano  # the stubs have other arguments


def table_of(values: list[Any], kind: pa.DataType) -> pa.Table:
    """Return a table of two chunks, of which the second begins within its buffers."""
    whole = pa.table({"n": list(range(len(values))), "x": pa.array(values, kind)})
    return pa.concat_tables([whole.slice(0, 1), whole.slice(1)])


def test_a_calendar_interval_becomes_its_parts() -> None:
    """Polars ends in a panic, which is no Exception."""
    values = [interval([1, -2, 3_000]), None, interval([0, 0, -1])]

    found = for_polars(table_of(values, INTERVAL))

    assert found.column("x").to_pylist() == [
        {"months": 1, "days": -2, "nanoseconds": 3_000},
        None,
        {"months": 0, "days": 0, "nanoseconds": -1},
    ]
    assert found.schema.names == ["n", "x"]


def test_a_decimal_of_a_negative_scale_gets_its_zeros() -> None:
    """Spark has them with `spark.sql.legacy.allowNegativeScaleOfDecimal`."""
    found = for_polars(table_of([Decimal("1E+2"), None], pa.decimal128(5, -2)))

    assert found.schema.field("x").type == pa.decimal128(7, 0)
    assert found.column("x").to_pylist() == [Decimal(100), None]


@pytest.mark.parametrize(
    "kind",
    [pa.large_list(INTERVAL), pa.struct([("i", INTERVAL)]), pa.decimal128(38, -2)],
)
def test_what_has_no_other_form_is_an_error(kind: pa.DataType) -> None:
    """It names the column, and what to do instead."""
    with pytest.raises(UnsupportedStateError, match=r"'x'.*to_table"):
        for_polars(table_of([None], kind))


def test_other_columns_are_left_alone() -> None:
    """Nothing is copied."""
    table = table_of([{"a": [1]}], pa.struct([("a", pa.list_(pa.int64()))]))

    assert for_polars(table) is table
