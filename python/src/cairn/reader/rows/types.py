"""Types: Spark's JSON of a schema -> a tree of types, each with its Arrow type.

Layer: reader.rows. No I/O.

    Spark                                     Arrow
    void                                      null
    boolean, byte, short, integer, long       bool, int8, int16, int32, int64
    float, double, decimal(p,s)               float32, float64, decimal128(p, s)
    string (of any collation), char, varchar  large_string
    binary                                    large_binary
    date, time(p)                             date32, time64[ns]
    timestamp, timestamp_ntz                  timestamp[us, UTC], timestamp[us]
    interval of days to seconds               duration[us]
    interval of years to months               int32: months
    interval (calendar)                       month_day_nano_interval
    struct, array, map                        struct, large_list, map
    variant                                   struct<value: large_binary, metadata: large_binary>
    a user-defined type                       that of its ``sqlType``

Where the Arrow type says less than Spark's, the field has Spark's name of the type in its metadata,
``spark.type``. All Arrow fields but the keys of maps are nullable: Spark stores nulls also where
its schema has none. Offsets have 64 bits, except in maps, where Arrow has only 32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, UnsupportedStateError

if TYPE_CHECKING:
    from collections.abc import Mapping

TYPE_OF_SPARK: Final = b"spark.type"
"""The key of Spark's name of a type in the metadata of its Arrow field."""

MAX_LONG_DIGITS: Final = 18
"""A decimal of at most so many digits is a 64-bit number in a row."""

_INT64 = np.dtype("<i8")
_MAX_PRECISION = 38
_MAX_TIME_PRECISION = 9
_MAX_DEPTH = 100
_MAX_NAME_CHARS = 100

_UNITS_OF_DAYS = "(?:day|hour|minute|second)"
_DAY_TIME = re.compile(rf"interval {_UNITS_OF_DAYS}(?: to {_UNITS_OF_DAYS})?")
_YEAR_MONTH = re.compile(r"interval (?:year|month)(?: to month)?")
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")
_TIME = re.compile(r"time\((\d{1,3})\)")
_TEXT = re.compile(r"string(?: collate \w+)?|(?:var)?char\(\d+\)")


@dataclass(frozen=True)
class Type:
    """A type; its subclasses are the ways in which a value is stored.

    Attributes:
        arrow: the Arrow type.
        note: Spark's name, where ``arrow`` says less.
    """

    arrow: pa.DataType
    note: str | None = field(default=None, kw_only=True)

    @property
    def element_width(self) -> int:
        """Bytes per element of an array: of the value, or of its length and offset."""
        return 8


@dataclass(frozen=True)
class Void(Type):
    """Always null."""


@dataclass(frozen=True)
class Boolean(Type):
    """One byte, 0 or 1."""

    @property
    def element_width(self) -> int:
        """See ``Type``."""
        return 1


@dataclass(frozen=True)
class Fixed(Type):
    """A number whose bytes are those of the Arrow value.

    Attributes:
        stored: the numpy type.
        limit: values are from 0 to below it; ``None``: all are valid.
    """

    stored: np.dtype[Any] = _INT64
    limit: int | None = None

    @property
    def element_width(self) -> int:
        """See ``Type``."""
        return self.stored.itemsize


@dataclass(frozen=True)
class Decimal(Type):
    """A decimal: a 64-bit number up to 18 digits, else two's complement of up to 16 bytes."""

    precision: int
    scale: int

    @property
    def is_long(self) -> bool:
        """Whether it is stored as a 64-bit number."""
        return self.precision <= MAX_LONG_DIGITS


@dataclass(frozen=True)
class Bytes(Type):
    """Text in UTF-8, or binary."""


@dataclass(frozen=True)
class CalendarInterval(Type):
    """Months, days and microseconds, each with its own sign."""


@dataclass(frozen=True)
class Variant(Type):
    """The length of the value, the value, the metadata."""


@dataclass(frozen=True)
class Struct(Type):
    """A row in a row."""

    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Array(Type):
    """Elements of one type."""

    element: Field


@dataclass(frozen=True)
class Map(Type):
    """An array of keys and an array of values; ``entries`` has two fields."""

    entries: Struct


@dataclass(frozen=True)
class Field:
    """A named column, or the element of an array.

    Attributes:
        name: as Spark has it.
        type: its type.
    """

    name: str
    type: Type

    @property
    def arrow(self) -> pa.Field[Any]:
        """The Arrow field: nullable; with Spark's name of the type where Arrow's says less."""
        note = self.type.note
        metadata = None if note is None else {TYPE_OF_SPARK: note.encode("utf-8", "replace")}
        return pa.field(self.name, self.type.arrow, metadata=metadata)


def struct_of(json: Mapping[str, Any]) -> Struct:
    """Return the type of a struct from Spark's JSON, parsed; an empty mapping has no fields.

    Raises:
        CorruptError: it is no schema of a struct.
        UnsupportedStateError: it contains a type that the reader does not know; the message has
            its name.
    """
    if not json:
        return struct_type(())
    found = _type(json, "the schema", 0)
    if not isinstance(found, Struct):
        raise CorruptError("a schema of rows is no struct")
    return found


def struct_type(fields: tuple[Field, ...]) -> Struct:
    """Return the struct of some fields."""
    return Struct(pa.struct([each.arrow for each in fields]), fields)


LONG: Final = Fixed(pa.int64())

_FIXED: Final = {
    "byte": Fixed(pa.int8(), stored=np.dtype("i1")),
    "short": Fixed(pa.int16(), stored=np.dtype("<i2")),
    "integer": Fixed(pa.int32(), stored=np.dtype("<i4")),
    "long": LONG,
    "float": Fixed(pa.float32(), stored=np.dtype("<f4")),
    "double": Fixed(pa.float64(), stored=np.dtype("<f8")),
    "date": Fixed(pa.date32(), stored=np.dtype("<i4")),
    "timestamp": Fixed(pa.timestamp("us", "UTC")),
    "timestamp_ntz": Fixed(pa.timestamp("us")),
}
_NANOS_PER_DAY: Final = 86_400 * 10**9

BINARY: Final = Bytes(pa.large_binary())

_OTHERS: Final[dict[str, Type]] = {
    "void": Void(pa.null()),
    "null": Void(pa.null()),
    "boolean": Boolean(pa.bool_()),
    "binary": BINARY,
    "decimal": Decimal(pa.decimal128(10, 0), 10, 0),
    "interval": CalendarInterval(pa.month_day_nano_interval()),
    "variant": Variant(
        pa.struct([pa.field("value", pa.large_binary()), pa.field("metadata", pa.large_binary())]),
        note="variant",
    ),
}


def _type(json: object, where: str, depth: int) -> Type:
    if depth > _MAX_DEPTH:
        raise UnsupportedStateError(f"{where} has types nested more than {_MAX_DEPTH} deep")
    if isinstance(json, str):
        return _named(json, where)
    if not isinstance(json, dict):
        raise CorruptError(f"{where} has a type that is neither a name nor an object")
    match json.get("type"):
        case "struct":
            return _struct(json, where, depth)
        case "array":
            element = _type(json.get("elementType"), f"{where}[]", depth + 1)
            items = Field("element", element)
            return Array(pa.large_list(items.arrow), items)
        case "map":
            return _map(json, where, depth)
        case "udt":
            of = _type(json.get("sqlType"), where, depth + 1)
            return replace(of, note=f"udt {json.get('class') or json.get('pyClass')}")
        case other:
            raise _unknown(str(other), where)


def _struct(json: Mapping[str, Any], where: str, depth: int) -> Struct:
    fields = json.get("fields")
    if not isinstance(fields, list):
        raise CorruptError(f"{where} has a struct without fields")
    result = []
    for each in fields:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or not _is_text(name):
            raise CorruptError(f"{where} has a field without a name")
        found = _type(each.get("type"), f"{where}.{name}", depth + 1)
        result.append(Field(name, found))
    return struct_type(tuple(result))


def _map(json: Mapping[str, Any], where: str, depth: int) -> Map:
    key = Field("key", _type(json.get("keyType"), f"{where}{{key}}", depth + 1))
    value = Field(
        "value",
        _type(json.get("valueType"), f"{where}{{value}}", depth + 1),
    )
    arrow: Any = pa.map_(key.arrow.with_nullable(False), value.arrow)  # noqa: FBT003
    entries = pa.struct([arrow.key_field, arrow.item_field])
    return Map(arrow, Struct(entries, (key, value)))


def _named(name: str, where: str) -> Type:
    known = _FIXED.get(name) or _OTHERS.get(name)
    if known is not None:
        return known
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= _MAX_PRECISION or not -_MAX_PRECISION <= scale <= precision:
            raise _unknown(name, where)
        return Decimal(pa.decimal128(precision, scale), precision, scale)
    if _TEXT.fullmatch(name):
        return Bytes(pa.large_string(), note=None if name == "string" else name)
    if found := _TIME.fullmatch(name):
        if int(found[1]) > _MAX_TIME_PRECISION:
            raise _unknown(name, where)
        return Fixed(pa.time64("ns"), note=name, limit=_NANOS_PER_DAY)
    if _DAY_TIME.fullmatch(name):
        return Fixed(pa.duration("us"), note=name)
    if _YEAR_MONTH.fullmatch(name):
        return Fixed(pa.int32(), note=name, stored=np.dtype("<i4"))
    raise _unknown(name, where)


def _is_text(name: str) -> bool:
    """Return whether a name can be stored: JSON may have half a character."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _unknown(name: str, where: str) -> UnsupportedStateError:
    return UnsupportedStateError(
        f"{where} has the type '{name[:_MAX_NAME_CHARS]}', which the reader does not know",
        next_step="read this state through Spark's statestore source",
    )
