"""Spark's types in JSON become the Arrow types that the reader promises."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.reader.rows.types import TYPE_OF_SPARK, struct_of

NOTED = [
    ("time(3)", pa.time64("ns")),
    ("interval day", pa.duration("us")),
    ("interval day to second", pa.duration("us")),
    ("interval minute to second", pa.duration("us")),
    ("interval year", pa.int32()),
    ("interval month", pa.int32()),
    ("interval year to month", pa.int32()),
    ("char(5)", pa.large_string()),
    ("varchar(12)", pa.large_string()),
    ("string collate UNICODE_CI", pa.large_string()),
    ("variant", pa.struct([("value", pa.large_binary()), ("metadata", pa.large_binary())])),
]
PLAIN = [
    ("void", pa.null()),
    ("null", pa.null()),
    ("boolean", pa.bool_()),
    ("byte", pa.int8()),
    ("short", pa.int16()),
    ("integer", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("decimal", pa.decimal128(10, 0)),
    ("decimal(38,10)", pa.decimal128(38, 10)),
    ("decimal(5,-2)", pa.decimal128(5, -2)),
    ("string", pa.large_string()),
    ("binary", pa.large_binary()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestamp_ntz", pa.timestamp("us")),
    ("interval", pa.month_day_nano_interval()),
]


def struct(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in fields
        ],
    }


def arrow_field(of: object) -> pa.Field[Any]:
    (field,) = struct_of(struct(("c", of))).fields
    return field.arrow


@pytest.mark.parametrize(("name", "expected"), PLAIN)
def test_a_type_of_spark_is_one_of_arrow(name: str, expected: pa.DataType) -> None:
    """Another type would show a timestamp as a number, or a decimal as a float."""
    field = arrow_field(name)

    assert field.type == expected
    assert field.metadata is None


@pytest.mark.parametrize(("name", "expected"), NOTED)
def test_where_arrow_says_less_the_field_has_the_name_of_spark(
    name: str, expected: pa.DataType
) -> None:
    """Months in an integer look like any number."""
    field = arrow_field(name)

    assert field.type == expected
    assert field.metadata == {TYPE_OF_SPARK: name.encode()}


def test_structs_arrays_and_maps_are_nested() -> None:
    """Grouping keys and states of objects are structs; collect_list gives arrays."""
    inner = struct(("a", "integer"), ("b", {"type": "array", "elementType": "interval year"}))
    of = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}

    field = arrow_field(of)

    listed = pa.large_list(pa.int32())
    assert field.type == pa.map_(pa.large_string(), pa.struct([("a", pa.int32()), ("b", listed)]))
    element = field.type.item_type.field("b").type.value_field
    assert element.metadata == {TYPE_OF_SPARK: b"interval year"}


def test_a_user_defined_type_is_its_sql_type() -> None:
    """Spark stores the value of the SQL type; vectors of Spark ML have such a type."""
    of = {
        "type": "udt",
        "class": "org.apache.spark.ml.linalg.VectorUDT",
        "sqlType": struct(("size", "integer")),
    }

    field = arrow_field(of)

    assert field.type == pa.struct([("size", pa.int32())])
    assert field.metadata == {TYPE_OF_SPARK: b"udt org.apache.spark.ml.linalg.VectorUDT"}


def test_a_schema_without_fields_is_empty() -> None:
    """The key of a global aggregation has no columns."""
    assert struct_of(struct()).fields == ()
    assert struct_of({}).fields == ()


@pytest.mark.parametrize(
    "of",
    [
        "geometry(4326)",
        "timestamp_ltz(9)",
        "decimal(39,0)",
        "decimal(0,0)",
        "decimal(3,5)",
        "time(10)",
        "interval second to year",
        "interval years",
        "object",
        {"type": "tensor"},
    ],
)
def test_an_unknown_type_is_named(of: object) -> None:
    """A guess at its bytes would give wrong rows; the user must know which column it is."""
    name = of["type"] if isinstance(of, dict) else str(of)

    with pytest.raises(UnsupportedStateError) as caught:
        struct_of(struct(("outer", struct(("inner", of)))))

    assert f"'{name}'" in str(caught.value)
    assert "outer.inner" in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "elementType": "long"},
        {"type": "struct"},
        {"type": "struct", "fields": {}},
        {"type": "struct", "fields": ["a"]},
        {"type": "struct", "fields": [{"type": "long"}]},
        struct(("c", 5)),
        struct(("c", {"type": "array"})),
    ],
)
def test_what_is_no_schema_of_rows_is_corrupt(schema: dict[str, Any]) -> None:
    """A schema file that is damaged must not become rows without columns."""
    with pytest.raises(CorruptError):
        struct_of(schema)


def test_types_nested_without_end_are_refused() -> None:
    """A hostile schema must not exhaust the stack."""
    of: Any = "long"
    for _ in range(150):
        of = {"type": "array", "elementType": of, "containsNull": True}

    with pytest.raises(UnsupportedStateError, match="nested"):
        struct_of(struct(("c", of)))
