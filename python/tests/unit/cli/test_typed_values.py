"""Values of the command line are written as in the output: what is printed is read as the same."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import click
import pyarrow as pa
import pytest

from cairn.cli.cells import plain
from cairn.cli.typed_values import typed_value

NAN = float("nan")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
STAMP = pa.timestamp("us", "UTC")
CALENDAR = pa.month_day_nano_interval()
_TWO_NAMES = pa.struct([pa.field("max", pa.int64()), pa.field("max", pa.large_string())])
_MAP = pa.map_(pa.decimal128(5, 1), pa.large_list(pa.float64()))


def _numbers(values: list[int | None], kind: Any) -> Any:  # noqa: ANN401 - Arrow's types
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def _struct(**columns: Any) -> Any:  # noqa: ANN401 - arrays
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


_FAR = [0, -1, None, 1_500_000, 253_402_300_800_000_000, -62_135_596_800_000_001, INT64_MAX]
_FAR_TIME = _numbers([253_402_300_800_000_000], STAMP)[0]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([True, False, None]),
        pa.array([-128, 127, None], pa.int8()),
        pa.array([INT64_MIN, INT64_MAX]),
        pa.array([0.0, -0.0, 0.1, 499.28, 832.4, 1e39, 1e308, 5e-324, NAN, float("-inf"), None]),
        pa.array([0.0, -0.0, 0.1, 1e38, 1e-45, 3.4028234663852886e38, NAN], pa.float32()),
        pa.array([Decimal("-1.5"), Decimal("9" * 28 + "." + "9" * 10)], pa.decimal128(38, 10)),
        pa.array([Decimal("1e-18"), Decimal(0)], pa.decimal128(18, 18)),
        pa.array([Decimal(12000), Decimal(0), None], pa.decimal128(5, -3)),
        pa.array(["", "a\0b", "\U0001f600", "NaN", "null", "PT1S"], pa.large_string()),
        pa.array([b"", b"\x00\xff", None], pa.large_binary()),
        _numbers([*_FAR, INT64_MIN], STAMP),
        _numbers([*_FAR, INT64_MIN], pa.timestamp("us")),
        _numbers([0, -1, 253_402_300_800_000], pa.timestamp("ms", "UTC")),
        _numbers([0, -1, None, 2_932_897, -719_529, 2**31 - 1, -(2**31)], pa.date32()),
        _numbers([0, 1, 36_000_500_000_000, 86_399_999_999_999], pa.time64("ns")),
        _numbers([0, -1, 90_061_500_000, -90_061_500_000, INT64_MAX, INT64_MIN], pa.duration("us")),
        pa.array([(1, 2, 3000), (-1, 5, -3_500_000_000), (0, 0, 0), None], CALENDAR),
        _struct(start=_numbers([253_402_300_800_000_000, None], STAMP), id=pa.array([0.1, NAN])),
        pa.StructArray.from_arrays(
            [pa.array([1]), pa.array(["x"], pa.large_string())], None, list(_TWO_NAMES)
        ),
        pa.array([{}, None], pa.struct([])),
        pa.array([[0.1, NAN, None], [], None], pa.large_list(pa.float64())),
        pa.array([[[_FAR_TIME], None], []], pa.large_list(pa.large_list(STAMP))),
        pa.array([[(Decimal("1.5"), [0.1]), (Decimal(2), None)], [], None], _MAP),
        pa.array([[("a", b"x"), ("b", None)]], pa.map_(pa.large_string(), pa.large_binary())),
        pa.nulls(1),
    ],
    ids=lambda array: str(array.type),
)
def test_what_is_printed_is_read_as_the_same_value(array: Any) -> None:  # noqa: ANN401 - any array
    """Users copy a key from the output of one command into the next one."""
    printed = json.loads(json.dumps(plain(array)), parse_float=Decimal)

    read = [typed_value(cell, array.type, "it") for cell in printed]

    assert {scalar.type for scalar in read} == {array.type}
    arrays = [pa.repeat(scalar, 1) for scalar in read]
    assert plain(pa.concat_arrays(arrays)) == plain(array)
    expected = [_bits(array.take(pa.array([place]))) for place in range(len(array))]
    assert list(map(_bits, arrays)) == expected


def _bits(array: Any) -> Any:  # noqa: ANN401 - bytes of any array
    """Return the stored bytes of numbers and times, which Python and ``plain`` may round."""
    if not array.is_valid()[0].as_py() or not pa.types.is_primitive(array.type):
        return None
    if pa.types.is_floating(array.type) and array[0].as_py() != array[0].as_py():
        return "NaN"
    return bytes(array.buffers()[1])[: max(array.type.bit_width // 8, 1)]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("xyz", pa.large_binary()),
        ("soon", STAMP),
        ("2026-03-01T09:00:00", STAMP),
        ("2026-03-01T09:00:00Z", pa.timestamp("us")),
        ("10000-02-30T00:00:00Z", STAMP),
        ("300000-01-01T00:00:00Z", STAMP),
        ("10000-01-01T24:00:00Z", STAMP),
        ("9999999-01-01", pa.date32()),
        ("24:00:00", pa.time64("ns")),
        ("00:00:00.0000000001", pa.time64("ns")),
        ("P", pa.duration("us")),
        ("PT", pa.duration("us")),
        ("P1M", pa.duration("us")),
        ("PT0.0000001S", CALENDAR),
        ("P9999999999M", CALENDAR),
        ("x", pa.int64()),
        (True, pa.int64()),
        ("x", pa.decimal128(10, 2)),
        ("NaN", pa.decimal128(10, 2)),
        ("1e-10000000", pa.decimal128(10, 2)),
        (True, pa.large_string()),
        (Decimal("1.0"), pa.large_string()),
        (Decimal("1e39"), pa.float32()),
        ("1e400", pa.float64()),
        ({"y": 1}, pa.struct([("x", pa.int64())])),
        ([[1, 2, 3]], pa.map_(pa.int64(), pa.int64())),
    ],
)
def test_a_value_of_another_type_is_a_wrong_call(value: Any, kind: pa.DataType) -> None:  # noqa: ANN401 - any of JSON
    """The message names what has the value, and the type."""
    with pytest.raises(click.UsageError, match="of it is not of type"):
        typed_value(value, kind, "it")


def test_an_interval_of_days_has_24_hours_each() -> None:
    """Spark's intervals of days to seconds are a number of microseconds."""
    assert typed_value("P1DT1H", pa.duration("us"), "it") == pa.scalar(
        25 * 3600 * 10**6, pa.duration("us")
    )
