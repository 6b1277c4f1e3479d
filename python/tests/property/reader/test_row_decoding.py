"""The reader's rows against a second implementation: any schema, any rows, any layout of keys."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from harness.spark_rows import ORDERED, SIMPLE, TYPES, Table, Value, tables, unsafe_row

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 2
BARE = RowForm("unsaferow", is_bare=True, is_list=False)
VERSIONED = RowForm("unsaferow", is_bare=False, is_list=False)
LISTS = RowForm("unsaferow", is_bare=False, is_list=True)
CAIRN = RowForm("unsaferow", is_bare=False, is_list=False, booleans_as_bytes=True)
NO_PREFIX = KeyEncoder("NoPrefix")


def decoder(key: Table, value: Table, form: RowForm, encoder: KeyEncoder = NO_PREFIX) -> RowDecoder:
    return RowDecoder(FamilySchema("default", key.json, value.json, encoder), form)


def binary(values: list[bytes]) -> pa.Array[Any]:
    return pa.array(values, pa.large_binary())


def check_columns(batch: pa.RecordBatch, expected: list[pa.Array[Any]]) -> None:
    batch.validate(full=True)
    assert [column.type for column in batch.columns] == [column.type for column in expected]
    for column, other in zip(batch.columns, expected, strict=True):
        assert column.equals(other), (column.to_pylist(), other.to_pylist())


def check_keys(read: RowDecoder, keys: list[bytes], key: Table) -> None:
    """Check that keys decode to the rows of a table, and that these encode to the keys."""
    without_columns = binary([b"\0"] * len(keys))

    batch, _, numbers = read.decode(StoredRows(binary(keys), without_columns))

    check_columns(batch, key.columns)
    assert numbers.tolist() == list(range(len(keys)))
    assert [read.encode_key(row) for row in key.rows] == keys


NOTHING = Table([], [])
(BINARY,) = (of for of in SIMPLE if of.json == "binary")
(LONG,) = (of for of in SIMPLE if of.json == "long")


@given(tables(), tables())
def test_rows_of_any_schema_are_read_as_they_were_written(key: Table, value: Table) -> None:
    """A wrong offset or null bit would show a user values that the state does not have."""
    count = min(len(key.rows), len(value.rows))
    key, value = Table(key.types, key.rows[:count]), Table(value.types, value.rows[:count])

    keys, values, _ = decoder(key, value, BARE).decode(
        StoredRows(binary(key.unsafe_rows), binary(value.unsafe_rows))
    )

    assert keys.num_rows == values.num_rows == count
    check_columns(keys, key.columns)
    check_columns(values, value.columns)


@given(tables(min_rows=1))
def test_an_encoded_key_has_the_bytes_that_spark_stores(key: Table) -> None:
    """A key with one other byte would not be found."""
    read = decoder(key, NOTHING, BARE)

    encoded = [read.encode_key(row) for row in key.rows]

    assert encoded == key.unsafe_rows


@given(tables(min_columns=60, max_columns=70, types=st.sampled_from(SIMPLE)))
@settings(max_examples=EXAMPLES // 4)
def test_rows_of_more_columns_than_one_word_has_bits(value: Table) -> None:
    """The null bits of column 64 are in the second word."""
    keys = binary([unsafe_row([], {"fields": []})] * len(value.rows))

    _, values, _ = decoder(NOTHING, value, BARE).decode(StoredRows(keys, binary(value.unsafe_rows)))

    check_columns(values, value.columns)


def row_of(values: list[Any], table: Table, ordinals: list[int]) -> bytes:
    """Return the row of some columns, behind its version byte."""
    part = Table([table.types[ordinal] for ordinal in ordinals], [])
    return b"\0" + unsafe_row([values[ordinal] for ordinal in ordinals], part.json)


@given(tables(min_columns=2), st.data())
@settings(max_examples=EXAMPLES)
def test_keys_with_a_prefix(key: Table, data: st.DataObject) -> None:
    """Sessions and maps have such keys."""
    count = len(key.types)
    prefix = data.draw(st.integers(1, count - 1))
    keys = []
    for row in key.rows:
        first = row_of(row, key, list(range(prefix)))
        keys.append(
            struct.pack("<i", len(first)) + first + row_of(row, key, [*range(prefix, count)])
        )

    read = decoder(key, NOTHING, VERSIONED, KeyEncoder("PrefixScan", prefix_columns=prefix))

    check_keys(read, keys, key)


FORMS = {"byte": ">b", "short": ">h", "integer": ">i", "long": ">q", "float": ">f", "double": ">d"}


def ordered_cell(value: Value, of: str) -> bytes:
    """Return the bytes of a value by which Spark orders keys."""
    if of == "boolean":
        of, value = "byte", None if value is None else int(value)
    size = struct.calcsize(FORMS[of])
    if value is None:
        return b"\2" + bytes(size)
    number = struct.pack(FORMS[of], value)
    if number[0] < 0x80:
        return b"\1" + number
    return b"\0" + (bytes(255 - byte for byte in number) if of in ("float", "double") else number)


@given(tables(min_columns=1, max_columns=4, types=st.sampled_from(SIMPLE)), st.data())
@settings(max_examples=EXAMPLES)
def test_keys_ordered_by_some_columns(key: Table, data: st.DataObject) -> None:
    """Timers and expiries have such keys; booleans are ordered in Cairn's stores alone."""
    ordered = {of.json for of in ORDERED} | {"boolean"}
    candidates = [place for place, of in enumerate(key.types) if of.json in ordered]
    if not candidates:
        return
    ordinals = data.draw(st.permutations(candidates))[: data.draw(st.integers(1, 3))]
    rest = [place for place in range(len(key.types)) if place not in ordinals]
    cells = Table([BINARY] * len(ordinals), [])
    keys = []
    for row in key.rows:
        first = b"\0" + unsafe_row(
            [ordered_cell(row[place], key.types[place].json) for place in ordinals], cells.json
        )
        second = row_of(row, key, rest) if rest else b""
        keys.append(struct.pack("<i", len(first)) + first + second)

    read = decoder(key, NOTHING, CAIRN, KeyEncoder("RangeScan", ordinals=tuple(ordinals)))

    check_keys(read, keys, key)


INT64S = st.integers(-(2**63), 2**63 - 1)


@given(tables(max_columns=3), st.booleans(), st.lists(INT64S, min_size=6, max_size=6))
@settings(max_examples=EXAMPLES)
def test_keys_with_an_event_time(
    key: Table,
    is_prefix: bool,  # noqa: FBT001 - hypothesis passes it by its place
    times: list[int],
) -> None:
    """Joins of format 4 have such keys; times before 1970 come first."""
    rows = [[*row, time] for row, time in zip(key.rows, times, strict=False)]
    timed = Table([*key.types, LONG], rows)
    keys = []
    for row in rows:
        time = struct.pack(">Q", row[-1] + 2**63)
        others = row_of(row, timed, list(range(len(key.types))))
        keys.append(time + others if is_prefix else others + time)

    read = decoder(timed, NOTHING, VERSIONED, KeyEncoder("TsPrefix" if is_prefix else "TsPostfix"))

    check_keys(read, keys, timed)


@given(st.lists(tables(types=st.just(LONG), min_columns=1, max_columns=1), max_size=5))
@settings(max_examples=EXAMPLES)
def test_each_element_of_a_list_is_a_row(lists: list[Table]) -> None:
    """An element that is lost or repeated would change every sum over a list."""
    check_lists([table.rows for table in lists], [LONG])


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_elements_of_any_size(data: st.DataObject) -> None:
    """Elements of one length are split at once, others one by one."""
    types = data.draw(st.lists(TYPES, max_size=2))
    row = st.tuples(*(of.values for of in types)).map(list)
    check_lists(data.draw(st.lists(st.lists(row, max_size=5), max_size=40)), types)


def check_lists(lists: list[list[list[Any]]], types: list[Any]) -> None:
    flat = Table(types, [row for rows in lists for row in rows])
    values = []
    for rows in lists:
        elements = [b"\0" + row for row in Table(types, rows).unsafe_rows]
        values.append(b"".join(struct.pack("<i", len(each)) + each for each in elements))
    key = Table([LONG], [[number] for number in range(len(lists))])
    stored = StoredRows(binary([b"\0" + row for row in key.unsafe_rows]), binary(values))

    keys, elements_read, numbers = decoder(key, flat, LISTS).decode(stored)

    owners = [number for number, rows in enumerate(lists) for _ in rows]
    assert numbers.tolist() == owners
    assert keys.column(0).to_pylist() == owners
    check_columns(elements_read, flat.columns)
