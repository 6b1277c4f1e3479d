"""Values of keys: what a caller gives -> Arrow scalars of exactly the columns' types.

Layer: reader. Values stay Arrow's from here on: Python has neither times beyond the years 1 to 9999
nor nanoseconds.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.reader.families import Column

make: Any = pa.scalar
types: Any = pa.types

_EXPONENT_MAX = 400
"""No type has numbers as large or small: doubles end at 1e308 and 5e-324, decimals at 1e76."""

_NUMBERS = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
_EXACT = Context(prec=2 * _EXPONENT_MAX, traps=[Inexact])


def scalar_of(value: object, column: Column) -> Any:  # noqa: ANN401 - the stubs have a type per kind
    """Return a value of a key as one of its column's type.

    Raises:
        ConfigError: it is none.
    """
    try:
        return exact_scalar(value, column.type)
    except (pa.ArrowException, ValueError, TypeError, KeyError, ArithmeticError) as problem:
        raise ConfigError(
            f"the value of the key's column {column.name!r} is not of type {column.type}"
        ) from problem


def exact_scalar(value: Any, of: Any) -> Any:  # noqa: ANN401 - any value; as above
    """Return a value as a scalar of a type, of which Arrow loses no part.

    Args:
        value: of Python, numpy or Arrow, or the text of one. A number with a fraction becomes the
            nearest one of a floating type.
        of: the type.

    Raises:
        ArrowException, ValueError, TypeError, ArithmeticError: it is none of the type.
        KeyError: a struct has no such field: Arrow would leave it out.
    """
    if isinstance(value, pa.Scalar) and not any(is_kind(value.type) for is_kind in _NUMBERS):
        return value if value.type == of else value.cast(of)
    value = _python_number(value, of)
    if isinstance(value, dict | list | tuple):
        value = _exact_parts(value, of)
    elif isinstance(value, bool | int | float | Decimal):
        value = _exact_number(value, of)
    try:
        return make(value, of)
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        # The text of a timestamp, an integer, and their like.
        return make(value).cast(of)


def _exact_parts(value: Any, of: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, dict) and types.is_struct(of):
        return {name: _part(part, of.field(name).type) for name, part in value.items()}
    if types.is_map(of):
        pairs = value.items() if isinstance(value, dict) else value
        return [(_part(key, of.key_type), _part(part, of.item_type)) for key, part in pairs]
    if isinstance(value, list | tuple) and types.is_large_list(of):
        return [_part(part, of.value_type) for part in value]
    return value


def _part(value: Any, of: Any) -> Any:  # noqa: ANN401 - as above
    scalar = exact_scalar(value, of)
    return scalar if scalar.is_valid else None  # Arrow takes no scalar of a list that is null


def _python_number(value: Any, of: Any) -> Any:  # noqa: ANN401 - as above
    """Return a number of Arrow, of numpy, or in a text, as one of Python; any other value as is."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, np.bool_ | np.integer | np.floating) and value.dtype.kind != "m":
        return value.item()
    if isinstance(value, str) and (types.is_decimal(of) or types.is_floating(of)):
        return _number(value)
    return value


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as problem:
        raise ValueError(f"{text!r} is not a number") from problem


def _exact_number(value: float | Decimal, of: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, bool) != types.is_boolean(of):
        raise ValueError("neither is true or false a number, nor a number true or false")
    if isinstance(value, bool):
        return value
    # Arrow's process ends where a decimal is too small, and int() takes all memory for a large one.
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _EXPONENT_MAX:
        raise ValueError("it is too large or too small")
    if types.is_floating(of):
        return _nearest(value, of)
    if types.is_decimal(of):
        return _unrounded(value, of)
    if isinstance(value, int):
        return value
    if types.is_string(of) or types.is_large_string(of):
        raise ValueError("it is a number and not text")
    if not (value.is_integer() if isinstance(value, float) else _is_whole(value)):
        raise ValueError("it is not a whole number")
    return int(value)


def _is_whole(value: Decimal) -> bool:
    return value.is_finite() and value == value.to_integral_value()


def _nearest(value: float | Decimal, of: Any) -> Any:  # noqa: ANN401 - as above
    """Return the number of a floating type that is nearest to another; an integer must be equal."""
    # Arrow reads the text of a decimal exactly, and converts the decimal itself with an error.
    found = make(str(value)).cast(of) if isinstance(value, Decimal) else make(float(value), of)
    number = found.as_py()
    if isinstance(value, int) and number != value:
        raise ValueError("it would be rounded")
    is_finite = value.is_finite() if isinstance(value, Decimal) else math.isfinite(value)
    if (is_finite and math.isinf(number)) or (value and not number):
        raise ValueError("it is too large or too small")
    return found


def _unrounded(value: float | Decimal, of: Any) -> Decimal:  # noqa: ANN401 - as above
    """Return a number as a decimal that has the scale of a type."""
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite() or exact.adjusted() > _EXPONENT_MAX:
        raise ValueError("no decimal is infinite, NaN, or as large")
    units = exact.scaleb(of.scale, _EXACT)
    if not _is_whole(units) or abs(int(units)) >= 10**of.precision:
        raise ValueError("it has more digits than the type")
    return Decimal(int(units)).scaleb(-of.scale, _EXACT)


def struct_scalar(parts: Sequence[Any], of: Any) -> Any:  # noqa: ANN401 - as above
    """Return the struct of scalars, one per field: fields may have equal names."""
    if not parts:
        return make({}, of)
    arrays: list[Any] = [pa.repeat(part, 1) for part in parts]
    return pa.StructArray.from_arrays(arrays, fields=list(of))[0]


def grouped(value: Any) -> Any:  # noqa: ANN401 - as above
    """Return a value as Spark stores it in the keys of groupings: no -0.0, and one NaN."""
    of = value.type
    if not value.is_valid:
        return value
    if types.is_floating(of):
        number = value.as_py()
        return make(math.nan if math.isnan(number) else number + 0.0, of)
    if types.is_struct(of):
        return struct_scalar([grouped(value[place]) for place in range(of.num_fields)], of)
    if types.is_map(of):
        entries = value.values
        pairs = zip(entries.field(0), entries.field(1), strict=True)
        return exact_scalar([tuple(map(grouped, pair)) for pair in pairs], of)
    if types.is_large_list(of):
        return exact_scalar([grouped(part) for part in value.values], of)
    return value


def has_gap(value: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether Spark's row of a value has bytes that the value does not say.

    A calendar interval that is null keeps 16 bytes of its row, in which Spark leaves what was there
    in the row before. An array has no place for it.
    """
    if types.is_interval(value.type):
        return not value.is_valid
    if not value.is_valid:
        return False
    if types.is_struct(value.type):
        return any(map(has_gap, value.values()))
    if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.MapScalar):
        cells: Any = value.values
        return any(has_gap(each) for each in cells if types.is_nested(each.type))
    return False
