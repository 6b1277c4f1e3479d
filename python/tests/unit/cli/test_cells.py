"""Every Arrow type becomes a value of JSON: scripts read these, and users compare them by eye."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cairn.cli.cells import plain
from cairn.cli.forms import unique_names

_MAP = pa.map_(pa.large_string(), pa.struct([("x", pa.large_list(pa.int8()))]))
_NOT_UTF8 = pa.Array.from_buffers(
    pa.large_string(), 1, [None, pa.array([0, 2], pa.int64()).buffers()[1], pa.py_buffer(b"a\xff")]
)


def _times(values: list[int | None], kind: Any) -> Any:  # noqa: ANN401 - Arrow's types
    numbers = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array(values, numbers).cast(kind)


@pytest.mark.parametrize(
    ("array", "cells"),
    [
        (pa.array([1, None, -(2**63)]), [1, None, -(2**63)]),
        (pa.array([True, None]), [True, None]),
        (pa.nulls(2), [None, None]),
        (
            pa.array([1.5, None, float("nan"), float("inf"), float("-inf")]),
            [1.5, None, "NaN", "Infinity", "-Infinity"],
        ),
        (pa.array(["ä", None], pa.large_string()), ["ä", None]),
        (_NOT_UTF8, ["a\\xff"]),
        (pa.array([b"\x00\xff", None], pa.large_binary()), ["00ff", None]),
        (pa.array([Decimal("0.00000001"), None, Decimal(-7)]), ["0.00000001", None, "-7.00000000"]),
        (
            _times([0, 1_234_567, -1, None, 2**62], pa.timestamp("us", "UTC")),
            [
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:01.234567Z",
                "1969-12-31T23:59:59.999999Z",
                None,
                "148108-07-06T14:00:27.387904Z",
            ],
        ),
        (
            _times([-(2**63), -(2**63) + 1], pa.timestamp("us")),
            ["-290308-12-21T19:59:05.224192", "-290308-12-21T19:59:05.224193"],
        ),
        (_times([-(2**63)], pa.timestamp("s", "UTC")), ["-292277022657-01-27T08:29:52Z"]),
        (
            _times([0, 500_000], pa.timestamp("us")),
            ["1970-01-01T00:00:00", "1970-01-01T00:00:00.5"],
        ),
        (_times([0], pa.timestamp("ms", "America/New_York")), ["1970-01-01T00:00:00Z"]),
        (
            _times([0, -1, None, 2**31 - 1], pa.date32()),
            ["1970-01-01", "1969-12-31", None, "5881580-07-11"],
        ),
        (_times([36_000 * 10**9, 1], pa.time64("ns")), ["10:00:00", "00:00:00.000000001"]),
        (
            pa.array([0, -90_061_500_000, None, 1, 60_000_000], pa.duration("us")),
            ["PT0S", "PT-25H-1M-1.5S", None, "PT0.000001S", "PT1M"],
        ),
        (
            pa.array([(1, -2, 3_500_000_000), None, (0, 0, 0)], pa.month_day_nano_interval()),
            ["P1M-2DT3.5S", None, "PT0S"],
        ),
        (pa.array([[1], None, [], [2, 3]]), [[1], None, [], [2, 3]]),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
        (pa.array([{"a": b"x"}, None, {"a": None}]), [{"a": "78"}, None, {"a": None}]),
        (pa.array([{}, None], pa.struct([])), [{}, None]),
        (
            pa.array([[("a", {"x": [1]})], None, [], [("b", None)]], _MAP),
            [{"a": {"x": [1]}}, None, {}, {"b": None}],
        ),
        (pa.array([[(1, 2)], None], pa.map_(pa.int8(), pa.int8())), [[[1, 2]], None]),
        (pa.array(["x", None]).dictionary_encode(), ["x", None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_cells_are_values_of_json(array: Any, cells: list[Any]) -> None:  # noqa: ANN401 - any array
    """A slice has the same cells: batches of rows are slices of larger ones."""
    padded = pa.concat_arrays([array, array])

    assert plain(array) == cells
    assert plain(padded[1:]) == (cells + cells)[1:]
    assert json.loads(json.dumps(plain(array))) == cells


def test_fields_of_equal_names_are_both_shown() -> None:
    """An object has one field per name: the second one would replace the first."""
    fields = [pa.field("max", pa.int64()), pa.field("max", pa.int64())]
    array = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], fields=fields)

    assert plain(array) == [{"max": 1, "max_2": 2}]
    assert unique_names(["a", "a_2", "a"]) == ["a", "a_2", "a_3"]
