"""A second implementation of Spark's row formats, one value at a time, to compare the reader with.

It shares no code with the reader and is written for clarity: a value goes in as Python's, a type as
Spark's JSON. Numbers of dates and times are Spark's: days, microseconds, nanoseconds, months.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

Json = Any
Value = Any
Values = st.SearchStrategy[Any]

_FIXED = {
    "byte": "<b",
    "short": "<h",
    "integer": "<i",
    "date": "<i",
    "interval year to month": "<i",
    "long": "<q",
    "timestamp": "<q",
    "timestamp_ntz": "<q",
    "time(6)": "<q",
    "interval day to second": "<q",
    "float": "<f",
    "double": "<d",
    "boolean": "<?",
}


def _words(count: int) -> int:
    return -(-count // 64)


def _decimal_of(of: Json) -> tuple[int, int] | None:
    if isinstance(of, str) and of.startswith("decimal("):
        precision, scale = of[len("decimal(") : -1].split(",")
        return int(precision), int(scale)
    return None


def unscaled(value: Decimal, scale: int) -> int:
    """Return the digits of a decimal as a number."""
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -number if sign else number


def java_bytes(number: int) -> bytes:
    """Return what Java's ``BigInteger.toByteArray`` returns."""
    length = 1
    while not -(1 << 8 * length - 1) <= number < 1 << 8 * length - 1:
        length += 1
    return number.to_bytes(length, "big", signed=True)


def _pad(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 8)


def _in_place(value: Value, of: Json) -> bytes | None:
    """Return the bytes of a value that is stored in its slot."""
    if (form := _FIXED.get(of) if isinstance(of, str) else None) is not None:
        return struct.pack(form, value)
    if (found := _decimal_of(of)) is not None and found[0] <= 18:
        return struct.pack("<q", unscaled(value, found[1]))
    return None


def _apart(value: Value, of: Json) -> bytes:  # noqa: PLR0911 - a table
    """Return the bytes of a value that is stored in the tail, without padding."""
    if of == "string":
        return bytes(value.encode())
    if of == "binary":
        return bytes(value)
    if of == "interval":
        months, days, nanos = value
        return struct.pack("<iiq", months, days, nanos // 1000)
    if of == "variant":
        return b"".join((struct.pack("<i", len(value["value"])), value["value"], value["metadata"]))
    if (found := _decimal_of(of)) is not None:
        return java_bytes(unscaled(value, found[1]))
    if of["type"] == "struct":
        return unsafe_row([value[field["name"]] for field in of["fields"]], of)
    if of["type"] == "array":
        return unsafe_array(value, of["elementType"])
    keys = unsafe_array([key for key, _ in value], of["keyType"])
    return (
        struct.pack("<q", len(keys))
        + keys
        + unsafe_array([each for _, each in value], of["valueType"])
    )


def unsafe_row(values: list[Any], schema: Json) -> bytes:
    """Return a row of a struct type."""
    fields = schema["fields"]
    bits = 0
    slots = bytearray()
    tail = bytearray()
    start = 8 * _words(len(fields)) + 8 * len(fields)
    for index, (value, field) in enumerate(zip(values, fields, strict=True)):
        of = field["type"]
        is_large = (found := _decimal_of(of)) is not None and found[0] > 18
        if value is None:
            bits |= 1 << index
            if of == "interval" or is_large:
                slots += struct.pack("<II", 16 if of == "interval" else 0, start + len(tail))
                tail += bytes(16)
            else:
                slots += bytes(8)
        elif (data := _in_place(value, of)) is not None:
            slots += _pad(data)
        else:
            data = _apart(value, of)
            slots += struct.pack("<II", len(data), start + len(tail))
            tail += data.ljust(16, b"\0") if is_large else _pad(data)
    return bits.to_bytes(8 * _words(len(fields)), "little") + bytes(slots) + bytes(tail)


def unsafe_array(values: list[Any], of: Json) -> bytes:
    """Return an array of elements of one type."""
    width = struct.calcsize(_FIXED[of]) if isinstance(of, str) and of in _FIXED else 8
    bits = 0
    slots = bytearray()
    tail = bytearray()
    start = 8 + 8 * _words(len(values)) + len(_pad(bytes(width * len(values))))
    for index, value in enumerate(values):
        if value is None:
            bits |= 1 << index
            slots += bytes(width)
        elif (data := _in_place(value, of)) is not None:
            slots += data
        else:
            data = _apart(value, of)
            slots += struct.pack("<II", len(data), start + len(tail))
            tail += _pad(data)
    head = struct.pack("<q", len(values)) + bits.to_bytes(8 * _words(len(values)), "little")
    return head + _pad(bytes(slots)) + bytes(tail)


@dataclass(frozen=True)
class Typed:
    """A type: Spark's JSON, the Arrow type that the reader must give, and values of it."""

    json: Json
    arrow: pa.DataType
    values: Values


def struct_json(types: list[Json], prefix: str = "c") -> dict[str, Any]:
    """Return the JSON of a struct of nullable fields ``c0``, ``c1`` and so on."""
    fields = [
        {"name": f"{prefix}{index}", "type": of, "nullable": True, "metadata": {}}
        for index, of in enumerate(types)
    ]
    return {"type": "struct", "fields": fields}


def _integers(bits: int) -> Values:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


_FLOATS = st.floats(width=32, allow_nan=False)
_DOUBLES = st.floats(allow_nan=False)
_DAY_MICROS = 86_400 * 10**6
_INTERVALS = st.tuples(
    _integers(32), _integers(32), st.integers(-(2**52), 2**52).map(lambda micros: micros * 1000)
)


def _decimals(precision: int, scale: int) -> Values:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(
        lambda number: Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    )


def _typed(json: Json, arrow: pa.DataType, values: Values) -> Typed:
    return Typed(json, arrow, st.none() | values)


ORDERED = [
    _typed("byte", pa.int8(), _integers(8)),
    _typed("short", pa.int16(), _integers(16)),
    _typed("integer", pa.int32(), _integers(32)),
    _typed("long", pa.int64(), _integers(64)),
    _typed("float", pa.float32(), _FLOATS),
    _typed("double", pa.float64(), _DOUBLES),
]
"""The types that Spark orders keys by."""

SIMPLE = [
    *ORDERED,
    _typed("void", pa.null(), st.none()),
    _typed("boolean", pa.bool_(), st.booleans()),
    _typed("date", pa.date32(), _integers(32)),
    _typed("timestamp", pa.timestamp("us", "UTC"), _integers(64)),
    _typed("timestamp_ntz", pa.timestamp("us"), _integers(64)),
    _typed(
        "time(6)",
        pa.time64("ns"),
        st.integers(0, _DAY_MICROS - 1).map(lambda micros: micros * 1000),
    ),
    _typed("interval day to second", pa.duration("us"), _integers(64)),
    _typed("interval year to month", pa.int32(), _integers(32)),
    _typed("decimal(7,2)", pa.decimal128(7, 2), _decimals(7, 2)),
    _typed("decimal(18,0)", pa.decimal128(18, 0), _decimals(18, 0)),
    _typed("decimal(19,4)", pa.decimal128(19, 4), _decimals(19, 4)),
    _typed("decimal(38,38)", pa.decimal128(38, 38), _decimals(38, 38)),
    _typed("string", pa.large_string(), st.text(st.characters(codec="utf-8"), max_size=20)),
    _typed("binary", pa.large_binary(), st.binary(max_size=20)),
    _typed("interval", pa.month_day_nano_interval(), _INTERVALS),
    _typed(
        "variant",
        pa.struct([("value", pa.large_binary()), ("metadata", pa.large_binary())]),
        st.fixed_dictionaries({"value": st.binary(max_size=9), "metadata": st.binary(max_size=9)}),
    ),
]
"""The types without types in them."""

(LONG,) = (of for of in SIMPLE if of.json == "long")


def _array(of: Typed) -> Typed:
    json = {"type": "array", "elementType": of.json, "containsNull": True}
    return _typed(json, pa.large_list(of.arrow), st.lists(of.values, max_size=4))


def _map(key: Typed, value: Typed) -> Typed:
    json = {
        "type": "map",
        "keyType": key.json,
        "valueType": value.json,
        "valueContainsNull": True,
    }
    keys = key.values.filter(lambda each: each is not None)
    # Spark has no two keys that are equal, as 0.0 and -0.0 are.
    entries = st.lists(
        st.tuples(keys, value.values), max_size=3, unique_by=lambda pair: str(pair[0]).strip("-")
    )
    return _typed(json, pa.map_(key.arrow, value.arrow), entries)


def _struct(types: list[Typed]) -> Typed:
    jsons = [of.json for of in types]
    # Spark's Avro has no struct in another of the same name, which is that of its field.
    prefix = f"c{len(str(jsons))}_"
    names = [f"{prefix}{index}" for index in range(len(types))]
    arrow = pa.struct([(name, of.arrow) for name, of in zip(names, types, strict=True)])
    values = {name: of.values for name, of in zip(names, types, strict=True)}
    return _typed(struct_json(jsons, prefix), arrow, st.fixed_dictionaries(values))


def nested(
    simple: list[Typed], map_keys: list[Typed], *, has_null_elements: bool = True
) -> st.SearchStrategy[Typed]:
    """Return a strategy for some types, and structs, arrays and maps of them."""
    keys = st.sampled_from(map_keys)

    def deeper(types: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
        elements = types if has_null_elements else types.filter(_has_values).map(_without_null)
        return st.one_of(
            elements.map(_array),
            st.tuples(keys, elements).map(lambda pair: _map(*pair)),
            st.lists(types, max_size=3).map(_struct),
        )

    return st.recursive(st.sampled_from(simple), deeper, max_leaves=4)


def _has_values(of: Typed) -> bool:
    return bool(of.json != "void")


def _without_null(of: Typed) -> Typed:
    return Typed(of.json, of.arrow, of.values.filter(lambda value: value is not None))


TYPES = nested(SIMPLE, [of for of in SIMPLE if of.json != "void"])
"""Any type, nested to some depth."""


@dataclass(frozen=True)
class Table:
    """Rows of random types."""

    types: list[Typed]
    rows: list[list[Any]]

    @property
    def json(self) -> dict[str, Any]:
        """The schema."""
        return struct_json([of.json for of in self.types])

    @property
    def columns(self) -> list[pa.Array[Any]]:
        """The rows in Arrow."""
        return [
            pa.array([row[index] for row in self.rows], of.arrow)
            for index, of in enumerate(self.types)
        ]

    @property
    def unsafe_rows(self) -> list[bytes]:
        """The rows as Spark has them."""
        return [unsafe_row(row, self.json) for row in self.rows]


@st.composite
def tables(
    draw: st.DrawFn,
    types: st.SearchStrategy[Typed] = TYPES,
    min_columns: int = 0,
    max_columns: int = 5,
    min_rows: int = 0,
) -> Table:
    """Draw a schema and rows of it."""
    chosen = draw(st.lists(types, min_size=min_columns, max_size=max_columns))
    row = st.tuples(*(of.values for of in chosen)).map(list)
    return Table(chosen, draw(st.lists(row, min_size=min_rows, max_size=6)))
