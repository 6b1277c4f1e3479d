"""Fits tables that users make to the types of Spark's schemas, or names the wrong column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
import pyarrow.types as pt
from pyspark.sql import types
from pyspark.sql.pandas.types import to_arrow_type

from cairn.errors import ArrowStateError

# The stubs of pyarrow know arrays of known types alone.
pc: Any = pyarrow.compute
Column = Any  # an array or a chunked array

_KINDS: tuple[tuple[str, Callable[[pa.DataType], bool]], ...] = (
    ("null", pt.is_null),
    ("boolean", pt.is_boolean),
    ("integer", pt.is_integer),
    ("float", lambda of: pt.is_float16(of) or pt.is_float32(of)),
    ("double", pt.is_float64),
    ("decimal", pt.is_decimal),
    ("text", lambda of: pt.is_string(of) or pt.is_large_string(of) or pt.is_string_view(of)),
    (
        "binary",
        lambda of: (
            pt.is_binary(of)
            or pt.is_large_binary(of)
            or pt.is_binary_view(of)
            or pt.is_fixed_size_binary(of)
        ),
    ),
    ("date", pt.is_date),
    ("time", pt.is_time),
    ("timestamp", lambda of: pt.is_timestamp(of) and of.tz is not None),
    ("timestamp without time zone", pt.is_timestamp),
    ("duration", pt.is_duration),
    (
        "list",
        lambda of: pt.is_list(of) or pt.is_large_list(of) or pt.is_fixed_size_list(of),
    ),
    ("map", pt.is_map),
    ("struct", pt.is_struct),
)
# Casts that lose nothing, or fail: pyarrow checks them.
_WIDER = {
    ("integer", "double"),
    ("integer", "decimal"),
    ("float", "double"),
}


def arrow_type(schema: types.StructType) -> pa.StructType:
    """Return the type of Arrow of a schema; `refuse_nulls` checks which fields are nullable."""
    made: Any = to_arrow_type(_nullable(schema), timezone="UTC")
    return cast("pa.StructType", made)


def _nullable(of: types.DataType) -> types.DataType:
    if isinstance(of, types.StructType):
        return types.StructType(
            [types.StructField(one.name, _nullable(one.dataType)) for one in of.fields]
        )
    if isinstance(of, types.ArrayType):
        return types.ArrayType(_nullable(of.elementType))
    if isinstance(of, types.MapType):
        return types.MapType(_nullable(of.keyType), _nullable(of.valueType))
    return of


def as_table(made: Any, what: str) -> pa.Table:  # noqa: ANN401 - any engine's table
    """Return a table that a user's function made; of any library that exports Arrow streams.

    Raises:
        ArrowStateError: it is no table.
    """
    if isinstance(made, pa.Table):
        return made
    if isinstance(made, pa.RecordBatch):
        return pa.Table.from_batches([made])
    if hasattr(made, "__arrow_c_stream__"):
        return pa.table(made)
    raise ArrowStateError(
        f"{what} is not a table, but of type {type(made).__name__}",
        next_step="return a pyarrow.Table, or a table that has __arrow_c_stream__",
    )


def columns_of(table: pa.Table, names: Sequence[str], optional: Sequence[str], what: str) -> None:
    """Check that a table has these columns, once, and no others but the optional ones.

    Raises:
        ArrowStateError: names the columns that are missing, unknown or there twice.
    """
    present = table.column_names
    wrong = {
        "has twice": [name for name in dict.fromkeys(present) if present.count(name) > 1],
        "lacks": [name for name in names if name not in present],
        "has besides its own": [name for name in present if name not in {*names, *optional}],
    }
    for how, found in wrong.items():
        if found:
            raise ArrowStateError(
                f"{what} {how}: column {', '.join(map(repr, found))}",
                next_step=f"return the columns {', '.join([*names, *optional])}",
            )


def fitted(column: Column, target: pa.DataType, what: str) -> Column:
    """Return a column in its type; numbers are widened or narrowed where no value changes.

    Raises:
        ArrowStateError: it is of another kind, or a value does not fit.
    """
    if column.type == target:
        return column
    if not _is_castable(column.type, target):
        raise ArrowStateError(f"{what} is of type {column.type}, not {target}")
    if pt.is_null(column.type):
        return pa.chunked_array([pa.nulls(len(column), cast("Any", target))])
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ArrowStateError(f"{what} does not fit into {target}: {error}") from error


def _is_castable(source: Any, target: Any) -> bool:  # noqa: ANN401 - types of Arrow
    if pt.is_dictionary(source):
        source = source.value_type
    given, wanted = _kind(source), _kind(target)
    if given == "null":
        return True
    if given != wanted or given == "":
        return (given, wanted) in _WIDER
    if given == "struct":
        fields = list(target)
        return [field.name for field in source] == [field.name for field in fields] and all(
            _is_castable(one.type, other.type) for one, other in zip(source, fields, strict=True)
        )
    if given == "list":
        return _is_castable(source.value_type, target.value_type)
    if given == "map":
        return _is_castable(source.key_type, target.key_type) and _is_castable(
            source.item_type, target.item_type
        )
    return True


def _kind(of: pa.DataType) -> str:
    return next((name for name, is_kind in _KINDS if is_kind(of)), "")


def refuse_nulls(column: Column, field: types.StructField, what: str) -> None:
    """Check that a column has nulls only where its field allows them, also inside of values.

    Raises:
        ArrowStateError: names the field.
    """
    if not field.nullable and column.null_count:
        raise ArrowStateError(
            f"{what} has {column.null_count} null values, but its field is not nullable"
        )
    if _has_required_parts(field.dataType):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for chunk in chunks:
            _refuse_nulls_inside(chunk, field.dataType, what)


def _refuse_nulls_inside(array: Column, of: types.DataType, what: str) -> None:
    if isinstance(of, types.StructType):
        present = array.filter(array.is_valid())
        for part, field in zip(present.flatten(), of.fields, strict=True):
            refuse_nulls(part, field, f"{what}.{field.name}")
    elif isinstance(of, types.ArrayType):
        element = types.StructField("element", of.elementType, of.containsNull)
        refuse_nulls(pc.list_flatten(array), element, f"{what}[]")
    elif isinstance(of, types.MapType):
        present = array.filter(array.is_valid())
        begin, end = present.offsets[0].as_py(), present.offsets[-1].as_py()
        value = types.StructField("value", of.valueType, of.valueContainsNull)
        refuse_nulls(present.items.slice(begin, end - begin), value, f"{what}[]")


def _has_required_parts(of: types.DataType) -> bool:
    if isinstance(of, types.StructType):
        return any(not one.nullable or _has_required_parts(one.dataType) for one in of.fields)
    if isinstance(of, types.ArrayType):
        return not of.containsNull or _has_required_parts(of.elementType)
    if isinstance(of, types.MapType):
        return (
            not of.valueContainsNull
            or _has_required_parts(of.keyType)
            or _has_required_parts(of.valueType)
        )
    return False
