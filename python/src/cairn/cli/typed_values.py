r"""typed_value: a value of the command line as an Arrow scalar: the reverse of ``cells.plain``.

Layer: cli. Imports pyarrow: commands import it when they run. What ``plain`` prints of a value is
read as that value. Texts are not read back that are not UTF-8: nothing tells their \xNN from
another text.
"""

from __future__ import annotations

import re
from typing import Any

import click
import numpy as np
import pyarrow as pa

from cairn.cli.cells import UNITS_PER_S
from cairn.cli.forms import unique_names
from cairn.reader.key_values import exact_scalar, struct_scalar

types: Any = pa.types

_TIME_OF_DAY = r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
_TIME = re.compile(_TIME_OF_DAY, re.ASCII)
_MOMENT = re.compile(rf"((?:\d{{4,7}}|-\d{{3,7}})-\d\d-\d\d)(?:T{_TIME_OF_DAY})?(Z?)", re.ASCII)
_INTERVAL = re.compile(
    r"P(?=.)(?:(-?\d+)M)?(?:(-?\d+)D)?"
    r"(?:T(?=.)(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,6}))?S)?)?",
    re.ASCII,
)
_S_PER_DAY = 86_400
_NANOS_PER_MICRO = 1_000


def typed_value(value: Any, of: Any, what: str) -> Any:  # noqa: ANN401 - any value of JSON
    """Return a value of the command line as a scalar of an Arrow type, as ``State.get`` takes it.

    Args:
        value: of JSON; numbers with a fraction or an exponent as ``Decimal``.
        of: the type.
        what: has the value, for the error.

    Raises:
        UsageError: it is none of the type.
    """
    try:
        return _typed(value, of)
    except (pa.ArrowException, ValueError, KeyError, TypeError, ArithmeticError) as problem:
        raise click.UsageError(f"the value of {what} is not of type {of}: {problem}") from problem


def _typed(value: Any, of: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, str):
        read = next((read for is_kind, read in _TEXTS if is_kind(of)), exact_scalar)
        return read(value, of)
    if isinstance(value, dict) and types.is_struct(of):
        return _struct(value, of)
    if isinstance(value, dict | list) and types.is_map(of):
        pairs = value.items() if isinstance(value, dict) else value
        typed = [(_typed(key, of.key_type), _typed(part, of.item_type)) for key, part in pairs]
        return exact_scalar(typed, of)
    if isinstance(value, list) and types.is_large_list(of):
        return exact_scalar([_typed(part, of.value_type) for part in value], of)
    return exact_scalar(value, of)


def _struct(value: dict[str, Any], of: Any) -> Any:  # noqa: ANN401 - as above
    fields = list(of)
    names = unique_names([field.name for field in fields])
    if unknown := set(value) - set(names):
        raise ValueError(f"it has no field {min(unknown)!r}")
    parts = [_typed(value.get(name), field.type) for name, field in zip(names, fields, strict=True)]
    return struct_scalar(parts, of)


def _bytes(text: str, of: Any) -> Any:  # noqa: ANN401 - as above
    return exact_scalar(bytes.fromhex(text), of)


def _moment(text: str, of: Any) -> Any:  # noqa: ANN401 - as above
    """Return a timestamp or date, of any year. Arrow reads the years 0 to 9999, in more forms."""
    found = _MOMENT.fullmatch(text)
    is_date = types.is_date(of)
    has_zone = not is_date and of.tz is not None
    if found is None or (found[2] is None) != is_date or bool(found[6]) != has_zone:
        return exact_scalar(text, of)
    days = int(np.datetime64(found[1], "D").astype(np.int64))
    if is_date:
        return exact_scalar(days, of)
    units_per_s = UNITS_PER_S[of.unit]
    return exact_scalar(
        days * _S_PER_DAY * units_per_s + _units_of_day(found.groups()[1:5], units_per_s), of
    )


def _time(text: str, of: Any) -> Any:  # noqa: ANN401 - as above
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not written as 12:30:00.5")
    return exact_scalar(_units_of_day(found.groups(), UNITS_PER_S[of.unit]), of)


def _units_of_day(parts: Any, units_per_s: int) -> int:  # noqa: ANN401 - of a match
    hours, minutes, seconds = map(int, parts[:3])
    if hours > 23 or minutes > 59 or seconds > 59:  # noqa: PLR2004 - of a day
        raise ValueError("there is no such time of day")
    return (hours * 3600 + minutes * 60 + seconds) * units_per_s + _fraction(parts[3], units_per_s)


def _interval(text: str, of: Any) -> Any:  # noqa: ANN401 - as above
    """Return an interval. Of a calendar's, months and days are numbers of their own."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not written as PT25H1M1.5S, or P1M2DT3H4M5.5S")
    months, days, hours, minutes = (int(part or 0) for part in found.groups()[:4])
    sign = -1 if found[5] else 1
    is_calendar = types.is_interval(of)
    units_per_s = UNITS_PER_S["us" if is_calendar else of.unit]
    units = (hours * 3600 + minutes * 60 + sign * int(found[6] or 0)) * units_per_s
    units += sign * _fraction(found[7], units_per_s)
    if is_calendar:
        return exact_scalar((months, days, units * _NANOS_PER_MICRO), of)
    if months:
        raise ValueError("an interval of days and seconds has no months")
    return exact_scalar(units + days * _S_PER_DAY * units_per_s, of)


def _fraction(digits: str | None, units_per_s: int) -> int:
    units, rest = divmod(int((digits or "").ljust(9, "0")) * units_per_s, UNITS_PER_S["ns"])
    if rest:
        raise ValueError("it has more digits of a second")
    return units


_TEXTS: tuple[tuple[Any, Any], ...] = (
    (types.is_large_binary, _bytes),
    (types.is_time, _time),
    (types.is_duration, _interval),
    (types.is_interval, _interval),
    (types.is_temporal, _moment),
)
