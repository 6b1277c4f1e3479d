"""RowDecoder: the forms of rows, lists, Spark's traps, and keys that users look up."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, InvalidError, UnsupportedStateError
from cairn.reader.rows.decoder import RowDecoder, is_placeholder, with_long_timeout
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder

BARE = RowForm("unsaferow", is_bare=True, is_list=False)
VERSIONED = RowForm("unsaferow", is_bare=False, is_list=False)
LISTS = RowForm("unsaferow", is_bare=False, is_list=True)
NO_PREFIX = KeyEncoder("NoPrefix")
PLACEHOLDER = bytes.fromhex("01000000000000000000000000000000")


def struct_of(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"name": name, "type": of, "nullable": True} for name, of in fields],
    }


def binary(*values: bytes) -> pa.Array[Any]:
    return pa.array(values, pa.large_binary())


def long_row(*numbers: int) -> bytes:
    return bytes(8) + struct.pack(f"<{len(numbers)}q", *numbers)


def test_bare_rows_ignore_the_key_encoder() -> None:
    """The HDFS-backed store keeps whole rows, also of sessions, whose encoder has a prefix."""
    family = FamilySchema(
        "default",
        struct_of(("k", "long"), ("start", "long")),
        struct_of(("v", "long")),
        KeyEncoder("PrefixScan", prefix_columns=1),
    )
    read = RowDecoder(family, BARE)

    keys, values, numbers = read.decode(StoredRows(binary(long_row(1, 2)), binary(long_row(3))))

    assert keys.to_pylist() == [{"k": 1, "start": 2}]
    assert values.to_pylist() == [{"v": 3}]
    assert numbers.tolist() == [0]
    assert read.encode_key([1, 2]) == long_row(1, 2)


def test_columns_of_one_name_are_kept_apart() -> None:
    """Two aggregates of one kind have one name; Spark's own reader shows one of them twice."""
    family = FamilySchema(
        "default", struct_of(("k", "long")), struct_of(("max", "long"), ("max", "long")), NO_PREFIX
    )
    read = RowDecoder(family, BARE)

    _, values, _ = read.decode(StoredRows(binary(long_row(1)), binary(long_row(5, 6))))

    assert read.value_schema.names == values.schema.names == ["max", "max"]
    assert [column.to_pylist() for column in values.columns] == [[5], [6]]


def test_a_row_of_a_list_has_the_key_of_its_list() -> None:
    """One row per element; an empty list has none."""
    family = FamilySchema("l", struct_of(("k", "long")), struct_of(("v", "long")), NO_PREFIX)
    element = b"\0" + long_row(7)
    both = 2 * (struct.pack("<i", len(element)) + element)
    keys = binary(*(b"\0" + long_row(number) for number in (1, 2, 3)))

    found, values, numbers = RowDecoder(family, LISTS).decode(
        StoredRows(keys, binary(both, b"", both[: len(both) // 2]))
    )

    assert found.column(0).to_pylist() == [1, 1, 3]
    assert values.column(0).to_pylist() == [7, 7, 7]
    assert numbers.tolist() == [0, 0, 2]


def test_no_rows() -> None:
    """An empty partition has the columns of the others."""
    family = FamilySchema(
        "f", struct_of(("k", "string")), struct_of(("v", "decimal(20,2)")), NO_PREFIX
    )
    read = RowDecoder(family, VERSIONED)

    keys, values, numbers = read.decode(StoredRows(binary(), binary()))

    assert (keys.schema, values.schema) == (read.key_schema, read.value_schema)
    assert keys.num_rows == values.num_rows == len(numbers) == 0


def test_a_slice_of_a_batch_is_its_rows() -> None:
    """Stores cut large batches."""
    family = FamilySchema("f", struct_of(("k", "long")), struct_of(("v", "long")), NO_PREFIX)
    keys = binary(*(long_row(number) for number in range(10)))
    values = binary(*(long_row(-number) for number in range(10)))

    found, others, _ = RowDecoder(family, BARE).decode(
        StoredRows(keys.slice(3, 4), values.slice(3, 4))
    )

    assert found.column(0).to_pylist() == [3, 4, 5, 6]
    assert others.column(0).to_pylist() == [-3, -4, -5, -6]


def test_values_of_drop_duplicates_before_spark_3_4_have_no_columns() -> None:
    """Their schema has the columns of the input, and each value is one null column."""
    family = FamilySchema(
        "default",
        struct_of(("key1", "integer"), ("key2", "long")),
        struct_of(("key1", "integer"), ("key2", "long"), ("count", "long")),
        NO_PREFIX,
    )
    form = RowForm("unsaferow", is_bare=True, is_list=False, has_no_value=True)
    rows = StoredRows(binary(long_row(3, 6)), binary(PLACEHOLDER))

    assert is_placeholder(rows.values, family, BARE)
    with pytest.raises(CorruptError, match="bytes where"):
        RowDecoder(family, BARE).decode(rows)
    keys, values, _ = RowDecoder(family, form).decode(rows)

    assert keys.to_pylist() == [{"key1": 3, "key2": 6}]
    assert values.schema.names == []
    assert values.num_rows == 1


def test_other_values_are_no_placeholders() -> None:
    """One real value among them means that the schema counts."""
    wide = FamilySchema("f", struct_of(), struct_of(("a", "long"), ("b", "long")), NO_PREFIX)
    narrow = FamilySchema("f", struct_of(), struct_of(("__dummy__", "void")), NO_PREFIX)
    form = RowForm("unsaferow", is_bare=True, is_list=False, has_no_value=True)

    assert not is_placeholder(binary(PLACEHOLDER, long_row(1, 2)), wide, BARE)
    assert not is_placeholder(binary(PLACEHOLDER), wide, VERSIONED)
    assert is_placeholder(binary(b"\0" + PLACEHOLDER), wide, VERSIONED)
    assert not is_placeholder(binary(PLACEHOLDER), narrow, BARE)
    assert not is_placeholder(binary(), wide, BARE)
    with pytest.raises(CorruptError, match="null column"):
        RowDecoder(wide, form).decode(StoredRows(binary(b""), binary(long_row(1, 2))))


def test_the_timeout_of_state_format_1_has_64_bits() -> None:
    """Spark declares it as an integer and stores milliseconds since 1970."""
    family = FamilySchema(
        "default",
        struct_of(("k", "long")),
        struct_of(("count", "long"), ("timeoutTimestamp", "integer")),
        NO_PREFIX,
    )
    rows = StoredRows(binary(long_row(1)), binary(long_row(2, 1_700_000_000_000)))

    _, values, _ = RowDecoder(with_long_timeout(family), BARE).decode(rows)

    assert values.to_pylist() == [{"count": 2, "timeoutTimestamp": 1_700_000_000_000}]


def test_other_schemas_keep_their_last_column() -> None:
    """Format 2 declares a long already, and a state without a timeout has no such column."""
    for value in (struct_of(("timeoutTimestamp", "long")), struct_of(("count", "integer")), {}):
        family = FamilySchema("default", struct_of(), value, NO_PREFIX)

        assert with_long_timeout(family) is family


def test_a_key_is_given_in_python_values() -> None:
    """A user looks up a key as it is shown."""
    types = [
        ("a", "string"), ("b", "decimal(20,2)"), ("c", "timestamp"), ("d", "boolean"),
        ("e", {"type": "array", "elementType": "short", "containsNull": True}),
        ("f", struct_of(("x", "date"))),
    ]  # fmt: skip
    family = FamilySchema("f", struct_of(*types), struct_of(), NO_PREFIX)
    read = RowDecoder(family, VERSIONED)
    key = ["ä", Decimal("-1.5"), datetime(2024, 2, 29, tzinfo=UTC), None, [1, None], {"x": None}]

    stored = read.encode_key(key)

    keys, _, _ = read.decode(StoredRows(binary(stored), binary(b"\0")))
    expected = [*key[:1], Decimal("-1.50"), *key[2:]]
    assert [column[0].as_py() for column in keys.columns] == expected


@pytest.mark.parametrize(
    "key",
    [
        [],
        [1, {"x": [1]}],
        [1, {"x": [1]}, "a", 2],
        ["a", None, "a"],
        [1, None, 5],
        [2**63, None, "a"],
        [1.5, None, "a"],
        [1, {"x": [1, 2.5]}, "a"],
        [object(), None, "a"],
    ],
)
def test_a_key_of_other_columns_or_types_is_refused(key: list[Any]) -> None:
    """It would look like a key without state; Arrow itself would make 1 of 1.5."""
    listed = {"type": "array", "elementType": "long", "containsNull": True}
    types = [("a", "long"), ("b", struct_of(("x", listed))), ("c", "string")]
    family = FamilySchema("f", struct_of(*types), struct_of(), NO_PREFIX)

    with pytest.raises(InvalidError):
        RowDecoder(family, VERSIONED).encode_key(key)


def test_an_unknown_encoding_is_refused() -> None:
    """A later Spark may have a third one."""
    family = FamilySchema("f", struct_of(("a", "long")), struct_of(), NO_PREFIX)
    form: Any = RowForm("parquet", is_bare=False, is_list=False)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedStateError, match="parquet"):
        RowDecoder(family, form)
