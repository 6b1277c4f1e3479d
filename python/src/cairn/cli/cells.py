r"""plain: the cells of an Arrow array as values that JSON has.

Layer: cli.  Spec: docs/commands.md#values.

    numbers, true, false, null      the same; infinities and NaN are text
    text                            the same; bytes that are not UTF-8 as \xNN
    binary                          hexadecimal
    decimals                        text
    timestamps, dates, times        text, ISO 8601; UTC with a Z, no letter without a zone
    intervals                       text, ISO 8601: P1M2DT3H4M5.5S
    structs                         objects
    lists                           arrays
    maps                            objects if the keys are text, else arrays of [key, value]
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.cli.forms import unique_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Arrow's type hints have a class per kind of array.
pc: Any = pyarrow.compute
types: Any = pa.types

UNITS_PER_S: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_DATE_CHARS = len("1970-01-01")


def plain(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    """Return the cells of an array; see the module."""
    kind = array.type
    for is_kind, cells in _KINDS:
        if is_kind(kind):
            result: list[Any] = cells(array)
            return result
    return [None if value is None else str(value) for value in array.to_pylist()]


def time_text(milliseconds: int) -> str:
    """Return a time since 1970 in ISO 8601."""
    times = pa.array([milliseconds], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    return str(plain(times)[0])


def _same(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    result: list[Any] = array.to_pylist()
    return result


def _floats(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    return [_float(value) for value in array.to_pylist()]


def _float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _texts(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    try:
        return _same(array)
    except UnicodeDecodeError:
        return [
            None if value is None else value.decode("utf-8", "backslashreplace")
            for value in array.cast(pa.large_binary()).to_pylist()
        ]


def _bytes(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    return [None if value is None else value.hex() for value in array.to_pylist()]


def _decimals(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    return [None if value is None else format(value, "f") for value in array.to_pylist()]


def _timestamps(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    """Return texts. Arrow's own are wrong after the year 32767, and numpy's least time is none."""
    kind = array.type
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    days, units = np.divmod(numbers, 86_400 * UNITS_PER_S[kind.unit])
    times = np.datetime_as_string(units.astype(f"M8[{kind.unit}]")).tolist()
    zone = "" if kind.tz is None else "Z"
    return [
        f"{day}{_without_zeros(time[_DATE_CHARS:])}{zone}" if is_valid else None
        for day, time, is_valid in zip(
            _days(days), times, array.is_valid().to_pylist(), strict=True
        )
    ]


def _dates(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    numbers = array.cast(pa.date32()).cast(pa.int32()).fill_null(0)
    days = _days(numbers.to_numpy(zero_copy_only=False))
    return [
        day if is_valid else None
        for day, is_valid in zip(days, array.is_valid().to_pylist(), strict=True)
    ]


def _days(numbers: NDArray[np.integer[Any]]) -> list[str]:
    texts: list[str] = np.datetime_as_string(numbers.astype("M8[D]")).tolist()
    return texts


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _times(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    texts = array.cast(pa.string()).to_pylist()
    return [None if text is None else _without_zeros(text) for text in texts]


def _durations(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    per_s = UNITS_PER_S[array.type.unit]
    values = array.cast(pa.int64()).to_pylist()
    return [None if value is None else _interval(0, 0, value, per_s) for value in values]


def _calendar_intervals(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    per_s = UNITS_PER_S["ns"]
    return [
        None if value is None else _interval(value.months, value.days, value.nanoseconds, per_s)
        for value in array.to_pylist()
    ]


def _interval(months: int, days: int, units: int, per_s: int) -> str:
    """Return an interval in ISO 8601; each part has its own sign, and none is carried over."""
    sign = "-" if units < 0 else ""
    seconds, fraction = divmod(abs(units), per_s)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    date = "".join(f"{number}{unit}" for number, unit in ((months, "M"), (days, "D")) if number)
    time = "".join(
        f"{sign}{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number
    )
    if seconds or fraction:
        digits = f".{fraction:0{len(str(per_s)) - 1}}".rstrip("0.") if fraction else ""
        time += f"{sign}{seconds}{digits}S"
    if time:
        return f"P{date}T{time}"
    return f"P{date}" if date else "PT0S"


def _structs(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    kind = array.type
    names = unique_names([kind.field(place).name for place in range(kind.num_fields)])
    if not names:
        return [{} if is_valid else None for is_valid in array.is_valid().to_pylist()]
    columns = [plain(field) for field in array.flatten()]
    return [
        dict(zip(names, cells, strict=True)) if is_valid else None
        for is_valid, cells in zip(
            array.is_valid().to_pylist(), zip(*columns, strict=True), strict=True
        )
    ]


def _lists(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    elements = plain(array.flatten())
    lengths = pc.list_value_length(array).to_pylist()
    result, start = [], 0
    for length in lengths:
        result.append(None if length is None else elements[start : start + length])
        start += length or 0
    return result


def _maps(array: Any) -> list[Any]:  # noqa: ANN401 - see above
    offsets = array.offsets.to_pylist()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = plain(array.keys.slice(first, count))
    values = plain(array.items.slice(first, count))
    is_object = _is_text(array.type.key_type)
    result: list[Any] = []
    for is_valid, (start, end) in zip(array.is_valid().to_pylist(), pairwise(offsets), strict=True):
        pairs = zip(
            keys[start - first : end - first], values[start - first : end - first], strict=True
        )
        result.append((dict(pairs) if is_object else list(map(list, pairs))) if is_valid else None)
    return result


def _is_text(kind: Any) -> bool:  # noqa: ANN401 - see above
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:  # noqa: ANN401 - see above
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _is_list(kind: Any) -> bool:  # noqa: ANN401 - see above
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_same(kind: Any) -> bool:  # noqa: ANN401 - see above
    return bool(types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind))


_KINDS: tuple[tuple[Any, Any], ...] = (
    (_is_same, _same),
    (_is_text, _texts),
    (types.is_floating, _floats),
    (types.is_decimal, _decimals),
    (types.is_timestamp, _timestamps),
    (types.is_date, _dates),
    (types.is_time, _times),
    (types.is_duration, _durations),
    (types.is_interval, _calendar_intervals),
    (_is_bytes, _bytes),
    (types.is_map, _maps),
    (_is_list, _lists),
    (types.is_struct, _structs),
    (types.is_dictionary, lambda array: plain(array.dictionary_decode())),
)
