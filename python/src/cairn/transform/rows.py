"""Rows of one schema as bytes, as `BulkRows` of the shim has them.

    row    := i64 nulls, fields, texts      ; bit i of nulls: field i is null, and its bytes are 0
            | i64 -1, i32 length, pickle    ; the row as Spark's messages have it
            | i64 -2                        ; no row
    field  := i8 | i16 | i32 | i64 | f64 | u8 boolean | i32 length of a text in UTF-8

All numbers are big-endian; the texts follow in the order of their fields. The first form is for
schemas of at most 62 fields of these types alone. Depends on private parts of PySpark 4.3.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
from collections.abc import Callable
from typing import Any

from pyspark.sql import types

_MAX_FIELDS = 62
_PICKLED = -1
_TEXT = types.StringType()
_NULLS = struct.Struct(">q")
_PICKLE = struct.Struct(">qi")
# By the type of a field: its format, and the only Python type whose values the JVM is sure to take
# and to give back equal.
_FIELDS: dict[type[types.DataType], tuple[str, type]] = {
    types.ByteType: ("b", int),
    types.ShortType: ("h", int),
    types.IntegerType: ("i", int),
    types.LongType: ("q", int),
    types.DoubleType: ("d", float),
    types.BooleanType: ("?", bool),
    types.StringType: ("i", str),
}


class Rows:
    """Encodes and decodes the rows of a schema."""

    def __init__(self, schema: types.StructType) -> None:
        self.schema = schema
        self._names = schema.names
        self._is_plain = len(schema.fields) <= _MAX_FIELDS and all(
            type(kind) in _FIELDS and (type(kind) is not types.StringType or kind == _TEXT)
            for kind in (field.dataType for field in schema.fields)
        )
        fields = [_FIELDS[type(field.dataType)] for field in schema.fields if self._is_plain]
        self._types = tuple(kind for _, kind in fields)
        self._texts = [place for place, kind in enumerate(self._types) if kind is str]
        self._struct = struct.Struct(">q" + "".join(code for code, _ in fields))

    def encode(self, value: Any) -> tuple[bytes, tuple[Any, ...]] | None:  # noqa: ANN401
        """Return the bytes of a row, and the values that the JVM gives back for them.

        None if the JVM might refuse the row, or give back others.
        """
        if not self._is_plain or type(value) is not tuple:
            return None
        nulls = 0
        if tuple(map(type, value)) != self._types:
            value = tuple(map(self._without_numpy, value))
            nulls = self._nulls(value)
            if nulls < 0:
                return None
        try:
            if nulls or self._texts:
                return self._encode_texts(nulls, value), value
            return self._struct.pack(0, *value), value
        except (struct.error, UnicodeEncodeError):  # out of range; half of a surrogate pair
            return None

    @staticmethod
    def _without_numpy(field: Any) -> Any:  # noqa: ANN401
        # As Spark's client does, before it pickles a row.
        return field.tolist() if type(field).__module__ == "numpy" else field

    def _nulls(self, value: tuple[Any, ...]) -> int:
        """Return the bits of the nulls, or -1 if the types are not those of the schema."""
        if len(value) != len(self._types):
            return -1
        nulls = 0
        for place, (field, kind) in enumerate(zip(value, self._types, strict=True)):
            if field is None and self.schema.fields[place].nullable:
                nulls |= 1 << place
            elif type(field) is not kind:
                return -1
        return nulls

    def _encode_texts(self, nulls: int, value: tuple[Any, ...]) -> bytes:
        pairs = zip(value, self._types, strict=True)
        fields = [kind() if field is None else field for field, kind in pairs]
        texts = [fields[place].encode() for place in self._texts]
        for place, text in zip(self._texts, texts, strict=True):
            fields[place] = len(text)
        return self._struct.pack(nulls, *fields) + b"".join(texts)

    def decode(self, data: bytes, place: int) -> tuple[Any, int]:
        """Return the row at a place, and the place after it.

        The row is a tuple, the bytes of its pickle, or None.

        Raises:
            ValueError: the row is in the first form, and its schema has none: the shim is another.
        """
        nulls: int = _NULLS.unpack_from(data, place)[0]
        if nulls < 0:
            if nulls != _PICKLED:
                return None, place + _NULLS.size
            begin = place + _PICKLE.size
            end = begin + _PICKLE.unpack_from(data, place)[1]
            return data[begin:end], end
        if not self._is_plain:
            raise ValueError(f"a row of {self.schema.simpleString()} is not a pickle")
        fields = self._struct.unpack_from(data, place)[1:]
        place += self._struct.size
        if not nulls and not self._texts:
            return fields, place
        full = list(fields)
        for text in self._texts:
            end = place + full[text]
            full[text] = data[place:end].decode()
            place = end
        if nulls:
            full = [None if nulls >> i & 1 else field for i, field in enumerate(full)]
        return tuple(full), place

    def row(self, decoded: Any) -> Any:  # noqa: ANN401
        """Return what Spark's client returns for a decoded row: a `Row`."""
        if type(decoded) is bytes:
            return _Unpickler(io.BytesIO(decoded)).load()
        return types._create_row(self._names, decoded)  # noqa: SLF001

    def values(self, decoded: Any) -> tuple[Any, ...]:  # noqa: ANN401
        """Return the values of a decoded row."""
        return tuple(self.row(decoded)) if type(decoded) is bytes else decoded


def encode_pickle(pickled: bytes) -> bytes:
    """Return the bytes of a row that Spark's client has pickled."""
    return _PICKLE.pack(_PICKLED, len(pickled)) + pickled


class _Unpickler(pickle.Unpickler):
    """Reads the rows of `PythonSQLUtils.toPyRow`: each begins with its schema, the same in all."""

    def find_class(self, module_name: str, global_name: str) -> Any:  # noqa: ANN401
        if (module_name, global_name) == ("pyspark.sql.types", "_create_row_inbound_converter"):
            return _converter
        if (module_name, global_name) == ("pyspark.sql.types", "_parse_datatype_json_string"):
            return _schema
        return super().find_class(module_name, global_name)


_schema = functools.lru_cache(maxsize=64)(types._parse_datatype_json_string)  # noqa: SLF001
_converters: dict[int, tuple[types.DataType, Callable[..., Any]]] = {}


def _converter(schema: types.DataType) -> Callable[..., Any]:
    known = _converters.get(id(schema))
    if known is None or known[0] is not schema:
        made = types._create_row_inbound_converter(schema)  # noqa: SLF001
        known = _converters[id(schema)] = (schema, made)
    return known[1]
