"""Forms of rows: bare ones of the HDFS-backed provider, and those of RocksDB and Cairn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.offline.move.forms import converter
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from harness.spark_rows import SIMPLE, Table, struct_json, tables

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 2
BARE = RowForm("unsaferow", is_bare=True, is_list=False)
ROCKSDB = RowForm("unsaferow", is_bare=False, is_list=False)
CAIRN = replace(ROCKSDB, booleans_as_bytes=True)
NO_PREFIX = KeyEncoder("NoPrefix")
NOTHING = struct_json([])


def binary(values: list[bytes]) -> pa.Array[Any]:
    return pa.array(values, pa.large_binary())


def schema_of(key: dict[str, Any], encoder: KeyEncoder) -> FamilySchema:
    return FamilySchema("default", key, NOTHING, encoder)


def check_both_ways(key: Table, encoder: KeyEncoder) -> None:
    """Check that bare keys become those of the row codec, and again what they were."""
    schema = schema_of(key.json, encoder)
    read = RowDecoder(schema, ROCKSDB)
    bare = StoredRows(binary(key.unsafe_rows), binary(key.unsafe_rows))

    encoded = converter(BARE, ROCKSDB, schema)(bare)

    assert encoded.keys.to_pylist() == [read.encode_key(row) for row in key.rows]
    assert encoded.values.to_pylist() == [b"\0" + row for row in key.unsafe_rows]
    again = converter(CAIRN, BARE, schema)(encoded)
    assert again.keys.to_pylist() == again.values.to_pylist() == key.unsafe_rows


@given(tables())
@settings(max_examples=EXAMPLES)
def test_keys_without_a_prefix(key: Table) -> None:
    """Aggregations, duplicates and joins have these: with another byte no key is found again."""
    check_both_ways(key, NO_PREFIX)


@given(tables(min_columns=2), st.data())
@settings(max_examples=2 * EXAMPLES)
def test_keys_with_a_prefix(key: Table, data: st.DataObject) -> None:
    """Session windows have these; Spark finds the sessions of a key by the bytes of its prefix."""
    prefix = data.draw(st.integers(1, len(key.types) - 1))

    check_both_ways(key, KeyEncoder("PrefixScan", prefix_columns=prefix))


@given(tables(min_columns=62, max_columns=70, types=st.sampled_from(SIMPLE)))
@settings(max_examples=EXAMPLES // 4)
def test_keys_of_more_columns_than_a_word_has_bits(key: Table) -> None:
    """The null bits of column 64 are in the second word."""
    check_both_ways(key, KeyEncoder("PrefixScan", prefix_columns=1))
    check_both_ways(key, KeyEncoder("PrefixScan", prefix_columns=len(key.types) - 1))


def test_slices_of_rows_are_converted() -> None:
    """A reader's batches are parts of larger columns."""
    rows = [b"%08d" % number * 2 for number in range(6)]
    whole = StoredRows(binary(rows), binary([row * 2 for row in rows]))
    part = StoredRows(whole.keys[2:4], whole.values[2:4])
    schema = schema_of(struct_json(["long"]), NO_PREFIX)

    encoded = converter(BARE, ROCKSDB, schema)(part)

    assert encoded.keys.to_pylist() == [b"\0" + row for row in rows[2:4]]
    assert encoded.values.to_pylist() == [b"\0" + row * 2 for row in rows[2:4]]
    again = converter(ROCKSDB, BARE, schema)(StoredRows(encoded.keys[1:], encoded.values[1:]))
    assert again.keys.to_pylist() == rows[3:4]


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        (BARE, BARE, "PrefixScan"),
        (ROCKSDB, CAIRN, "TsPostfix"),
        (replace(ROCKSDB, is_list=True), replace(CAIRN, is_list=True), "NoPrefix"),
        (replace(ROCKSDB, encoding="avro"), replace(CAIRN, encoding="avro"), "RangeScan"),
    ],
)
def test_rows_pass_as_they_are_where_the_forms_agree(
    source: RowForm, target: RowForm, kind: str
) -> None:
    """Nothing is decoded: a state of any size moves as fast as it is read."""
    schema = schema_of(struct_json(["boolean", "long"]), KeyEncoder(kind, 1, (0,)))
    rows = StoredRows(binary([b"k"]), binary([b"v"]))

    assert converter(source, target, schema)(rows) is rows


@pytest.mark.parametrize(
    ("source", "target", "kind", "reason"),
    [
        (replace(ROCKSDB, encoding="avro"), ROCKSDB, "NoPrefix", "are avro, and not unsaferow"),
        (replace(ROCKSDB, encoding="avro"), replace(BARE, encoding="avro"), "NoPrefix", "nor Avro"),
        (replace(ROCKSDB, is_list=True), ROCKSDB, "NoPrefix", "no list"),
        (replace(ROCKSDB, is_list=True), replace(BARE, is_list=True), "NoPrefix", "neither lists"),
        (CAIRN, BARE, "RangeScan", "encoder RangeScan"),
        (ROCKSDB, BARE, "TsPrefix", "encoder TsPrefix"),
        (ROCKSDB, CAIRN, "RangeScan", "boolean column 'c0'"),
        (CAIRN, ROCKSDB, "RangeScan", "boolean column 'c0'"),
    ],
)
def test_what_the_target_cannot_have_is_refused(
    source: RowForm, target: RowForm, kind: str, reason: str
) -> None:
    """A move that loses a value would be found by the query alone, after a year."""
    schema = schema_of(struct_json(["boolean", "long"]), KeyEncoder(kind, 1, (1, 0)))

    with pytest.raises(UnsupportedStateError, match=reason):
        converter(source, target, schema)


def test_a_boolean_by_which_no_key_is_ordered_is_no_obstacle() -> None:
    """Both providers store it in the row."""
    schema = schema_of(struct_json(["boolean", "long"]), KeyEncoder("RangeScan", 0, (1,)))
    rows = StoredRows(binary([b"k"]), binary([b"v"]))

    assert converter(CAIRN, ROCKSDB, schema)(rows) is rows


def test_a_row_that_contradicts_its_schema_is_corrupt() -> None:
    """It would be written as a row of another key."""
    schema = schema_of(struct_json(["string", "long"]), KeyEncoder("PrefixScan", 1))
    outside = bytes(8) + (9 | 32 << 32).to_bytes(8, "little") + bytes(8) + b"eight..."
    to_rocksdb, to_hdfs = converter(BARE, ROCKSDB, schema), converter(ROCKSDB, BARE, schema)

    for key in (outside, outside[:16]):
        with pytest.raises(CorruptError):
            to_rocksdb(StoredRows(binary([key]), binary([b""])))
    with pytest.raises(CorruptError):
        to_hdfs(StoredRows(binary([b"\xff\0\0\0\0"]), binary([b"\0"])))
    with pytest.raises(UnsupportedStateError, match="version"):
        to_hdfs(StoredRows(binary([b"\1\0\0\0\1\0"]), binary([b"\0"])))
