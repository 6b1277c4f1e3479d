"""Rows in Avro: schemas that changed, what does not fit, and a missing package."""

from __future__ import annotations

import struct
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, PackageMissingError, UnsupportedStateError
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder

AVRO = RowForm("avro", is_bare=False, is_list=False)
NO_PREFIX = KeyEncoder("NoPrefix")


def struct_of(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": of, "nullable": True} for name, of in fields],
    }


KEY = struct_of(("k", "long"))
FIRST = struct_of(("a", "integer"), ("gone", "string"))
SECOND = struct_of(("a", "long"), ("new", struct_of(("x", "double"))))
OLDER = FamilySchema("v", KEY, FIRST, NO_PREFIX, key_id=0, value_id=0)
FAMILY = FamilySchema("v", KEY, SECOND, NO_PREFIX, key_id=0, value_id=1, older=(OLDER,))


def key(number: int) -> bytes:
    return b"\0" + struct.pack("<h", 0) + b"\2" + bytes([2 * number])


def value(schema_id: int, record: bytes) -> bytes:
    return b"\0" + struct.pack("<h", schema_id) + record


def values_of(family: FamilySchema, *values: bytes, form: RowForm = AVRO) -> list[Any]:
    keys = [key(number) for number in range(len(values))]
    stored = StoredRows(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
    found, batch, _ = RowDecoder(family, form).decode(stored)
    assert found.column(0).to_pylist() == list(range(len(values)))
    batch.validate(full=True)
    return batch.to_pylist()


def test_each_value_is_read_by_the_schema_that_wrote_it() -> None:
    """A variable's class may have got and lost fields since; the older values stay as they are."""
    old = value(0, b"\2" + b"\x0e" + b"\2\2x")
    new = value(1, b"\2" + b"\x10" + b"\2\2" + struct.pack("<d", 1.5))

    found = values_of(FAMILY, old, new, old)

    assert found == [{"a": 7, "new": None}, {"a": 8, "new": {"x": 1.5}}, {"a": 7, "new": None}]


def test_a_field_that_moved_is_found_by_its_name() -> None:
    """Nested structs change, too, and a decimal keeps its scale."""
    inner, changed = struct_of(("x", "long"), ("y", "long")), struct_of(("y", "long"))
    listed = {"type": "array", "elementType": inner, "containsNull": True}
    fewer = {"type": "array", "elementType": changed, "containsNull": True}
    old = struct_of(("d", "decimal(5,2)"), ("l", listed))
    older = FamilySchema("v", KEY, old, NO_PREFIX)
    wanted = struct_of(("l", fewer), ("d", "decimal(7,3)"))
    family = FamilySchema("v", KEY, wanted, NO_PREFIX, value_id=4, older=(older,))
    record = b"\2" + (-150).to_bytes(3, "big", signed=True) + b"\2\2" + b"\2\2\2\2\4" + b"\0"

    found = values_of(family, value(0, record))

    assert found == [{"l": [{"y": 2}], "d": Decimal("-1.500")}]


def test_a_key_is_encoded_with_its_schema_id() -> None:
    """Spark stores it in front of the record."""
    family = FamilySchema("v", KEY, FIRST, NO_PREFIX, key_id=258)

    assert RowDecoder(family, AVRO).encode_key([3]) == b"\0\2\1\2\6"


WHOLE = value(1, b"\2\x10\0")


@pytest.mark.parametrize(
    "damaged",
    [
        value(2, b"\2\x10\0"),
        value(-1, b"\2\x10\0"),
        WHOLE[:-1],
        WHOLE[:2],
        b"",
        WHOLE + b"\0",
        value(1, b"\4\x10\0"),
        value(0, b"\2\x0e\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        value(0, b"\2\x0e\2\1"),
        value(0, b"\2" + b"\xff" * 12 + b"\0\0"),
        value(0, b"\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f\0"),
    ],
)
def test_what_is_not_a_record_of_its_schema_is_corrupt(damaged: bytes) -> None:
    """An unknown id, a length behind the row, bytes that are left."""
    with pytest.raises(CorruptError):
        values_of(FAMILY, WHOLE, damaged)


def test_a_text_that_is_not_utf8_is_no_damage() -> None:
    """Spark's cast of binary to string stores any bytes, in Avro as well."""
    with pytest.raises(UnsupportedStateError, match="a text is not UTF-8"):
        values_of(FAMILY, WHOLE, value(0, b"\2\x0e\2\2\xff"))


def test_an_array_of_a_billion_elements_in_a_few_bytes_is_corrupt() -> None:
    """Each element has a byte at least, so that the row's end ends the array."""
    listed = {"type": "array", "elementType": "long", "containsNull": False}
    family = FamilySchema("v", KEY, struct_of(("l", listed)), NO_PREFIX)

    with pytest.raises(CorruptError):
        values_of(family, value(0, b"\2\x80\x80\x80\x80\x10\2\4"))


@pytest.mark.parametrize(
    "of",
    [
        {"type": "array", "elementType": "void", "containsNull": True},
        {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True},
        "interval",
        "variant",
        "time(6)",
        "interval day to second",
    ],
)
def test_a_type_that_spark_has_not_in_avro_is_refused(of: object) -> None:
    """A void element has no bytes, so that nothing would bound their number."""
    family = FamilySchema("v", KEY, struct_of(("c", of)), NO_PREFIX)

    with pytest.raises(UnsupportedStateError):
        values_of(family, value(0, b"\0"))


def test_a_list_in_avro() -> None:
    """Each element names its own schema."""
    rows = [value(0, b"\2\x0e\0"), value(1, b"\2\x10\0")]
    elements = b"".join(struct.pack("<i", len(row)) + row for row in rows)
    keys = pa.array([key(5)], pa.large_binary())
    form = RowForm("avro", is_bare=False, is_list=True)

    found, values, _ = RowDecoder(FAMILY, form).decode(
        StoredRows(keys, pa.array([elements], pa.large_binary()))
    )

    assert found.column(0).to_pylist() == [5, 5]
    assert values.column(0).to_pylist() == [7, 8]


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only state in Avro needs it."""
    monkeypatch.setitem(sys.modules, "fastavro", None)

    with pytest.raises(PackageMissingError, match=r"pip install 'cairn-state\[avro\]'"):
        values_of(FAMILY, WHOLE)
