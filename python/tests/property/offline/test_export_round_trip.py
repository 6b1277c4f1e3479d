"""Rows of any schema, through a Parquet file and back, are the same bytes."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.format.spark_log import OffsetEntry
from cairn.offline.exchange.file_form import FileForm
from cairn.offline.exchange.reading import FileReader
from cairn.reader.families import Family, families_of
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import StateConf
from cairn.reader.spark.operators import Operator, OperatorStore, StateVariable
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from cairn.reader.stores.opening import StorePlace
from cairn.storage.memory import MemoryBucket, MemoryStore
from harness.spark_rows import SIMPLE, Table, tables, unsafe_row

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 2
NO_PREFIX = KeyEncoder("NoPrefix")
STORE = OperatorStore("default", 0, (), ())
AGGREGATION = Operator(0, "stateStoreSave", 1, (STORE,))
LISTS = Operator(
    0,
    "transformWithStateExec",
    1,
    (STORE,),
    (StateVariable("items", "ListState", has_ttl=False),),
)


def family_of(
    key: Table,
    value: Table,
    encoder: KeyEncoder = NO_PREFIX,
    operator: Operator = AGGREGATION,
    name: str = "default",
) -> Family:
    """Return a family of a store of Cairn's."""
    objects = MemoryStore("memory://checkpoint", MemoryBucket())
    conf = StateConf(OffsetEntry(1, 0, 0, {}, (), {}), "memory://checkpoint/offsets/0")
    place = StorePlace(objects, "cairn", 0, "default", 1, None, b"", has_row_checksums=False)
    schemas = {name: FamilySchema(name, key.json, value.json, encoder)}
    (family,) = families_of(conf, operator, STORE, schemas, place)
    return family


def binary(values: list[bytes]) -> pa.Array[Any]:
    return pa.array(values, pa.large_binary())


def through_a_file(family: Family, rows: StoredRows) -> tuple[list[bytes], list[bytes]]:
    """Return keys and values, or elements of lists, that come back."""
    form = FileForm(family)
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([form.to_file(rows, 0)], form.schema), file)
    file.seek(0)
    reader = FileReader(form)
    found = list(reader.batches(pq.ParquetFile(file), "file"))
    assert reader.problems == []
    keys: list[Any] = [key for one in found for key in one.keys.to_pylist()]
    values: list[Any] = [value for one in found for value in one.values.to_pylist()]
    return keys, values


def versioned(table: Table) -> list[bytes]:
    return [b"\0" + row for row in table.unsafe_rows]


@given(tables(min_columns=1), tables())
def test_rows_of_any_schema_come_back(key: Table, value: Table) -> None:
    """A person who exports, corrects one row and imports must change one row."""
    count = min(len(key.rows), len(value.rows))
    key, value = Table(key.types, key.rows[:count]), Table(value.types, value.rows[:count])
    rows = StoredRows(binary(versioned(key)), binary(versioned(value)))

    assert through_a_file(family_of(key, value), rows) == (versioned(key), versioned(value))


@given(tables(min_columns=60, max_columns=70, types=st.sampled_from(SIMPLE)))
@settings(max_examples=EXAMPLES // 4)
def test_rows_of_many_columns_come_back(value: Table) -> None:
    """The null bits of column 64 are in the second word."""
    keys = Table([SIMPLE[0]], [[None] for _ in value.rows])
    rows = StoredRows(binary(versioned(keys)), binary(versioned(value)))

    assert through_a_file(family_of(keys, value), rows) == (versioned(keys), versioned(value))


def row_of(values: list[Any], table: Table, ordinals: list[int]) -> bytes:
    part = Table([table.types[ordinal] for ordinal in ordinals], [])
    return b"\0" + unsafe_row([values[ordinal] for ordinal in ordinals], part.json)


@given(tables(min_columns=2), st.data())
@settings(max_examples=EXAMPLES)
def test_keys_with_a_prefix_come_back(key: Table, data: st.DataObject) -> None:
    """Sessions and maps have such keys."""
    count = len(key.types)
    prefix = data.draw(st.integers(1, count - 1))
    keys = []
    for row in key.rows:
        first = row_of(row, key, list(range(prefix)))
        keys.append(
            struct.pack("<i", len(first)) + first + row_of(row, key, [*range(prefix, count)])
        )
    value = Table([SIMPLE[0]], [[None] for _ in key.rows])
    rows = StoredRows(binary(keys), binary(versioned(value)))
    family = family_of(key, value, KeyEncoder("PrefixScan", prefix_columns=prefix))

    assert through_a_file(family, rows) == (keys, versioned(value))


@given(tables(min_columns=1, min_rows=1), st.integers(1, 5))
@settings(max_examples=EXAMPLES)
def test_elements_of_lists_come_back_with_their_places(value: Table, per_list: int) -> None:
    """Each element is a row of the file."""
    elements = versioned(value)
    lists = [elements[start : start + per_list] for start in range(0, len(elements), per_list)]
    (long,) = (of for of in SIMPLE if of.json == "long")
    key = Table([long], [[number] for number in range(len(lists))])
    stored = [b"".join(struct.pack("<i", len(one)) + one for one in some) for some in lists]
    rows = StoredRows(binary(versioned(key)), binary(stored))
    family = family_of(key, value, operator=LISTS, name="items")

    keys, values = through_a_file(family, rows)

    assert values == elements
    owners = [key for key, some in zip(versioned(key), lists, strict=True) for _ in some]
    assert keys == owners
