"""Damaged rows: an error or rows of their schema, never a crash and never the bytes of others."""

from __future__ import annotations

import struct
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import CorruptError, DataError
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from harness.spark_rows import ORDERED, SIMPLE, Table, tables

assert settings.default is not None
EXAMPLES = settings.default.max_examples
BARE = RowForm("unsaferow", is_bare=True, is_list=False)
(LONG,) = (of for of in ORDERED if of.json == "long")
NUMBERS = (0, 1, 7, 8, 15, 16, 17, 24, 63, 64, 65, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63)


def damaged(row: bytes, random: Random) -> bytes:
    """Return a row with some bytes changed, mostly its words: lengths, offsets and counts."""
    changed = bytearray(row)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        what = random.randrange(5)
        if what < 3:
            form = random.choice(("<I", "<Q"))
            size = struct.calcsize(form)
            at -= at % 4
            number = random.choice(NUMBERS) + random.randrange(-1, 2)
            changed[at : at + size] = struct.pack(form, number % (1 << 8 * size))
        elif what == 3 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        else:
            del changed[at : at + random.choice((1, 8, 1000))]
    return bytes(changed)


@given(tables(min_columns=1, min_rows=1), st.randoms(use_true_random=False))
@settings(max_examples=2 * EXAMPLES)
def test_a_damaged_row_changes_no_other_row(table: Table, random: Random) -> None:
    """A length that reaches into the next row would show a user the value of another key."""
    rows = table.unsafe_rows
    at = random.randrange(len(rows))
    rows[at] = damaged(rows[at], random)
    key = Table([LONG], [[number] for number in range(len(rows))])
    schema = FamilySchema("default", key.json, table.json, KeyEncoder("NoPrefix"))
    stored = StoredRows(
        pa.array(key.unsafe_rows, pa.large_binary()), pa.array(rows, pa.large_binary())
    )

    try:
        _, values, _ = RowDecoder(schema, BARE).decode(stored)
    except DataError:
        return

    values.validate(full=True)
    assert values.num_rows == len(rows)
    others = pa.array([index for index in range(len(rows)) if index != at], pa.int64())
    for column, expected in zip(values.columns, table.columns, strict=True):
        assert column.take(others).equals(expected.take(others))


@given(
    tables(types=st.sampled_from(SIMPLE), min_columns=2, max_columns=3, min_rows=1),
    st.randoms(use_true_random=False),
    st.sampled_from(["PrefixScan", "RangeScan", "TsPrefix", "TsPostfix", "list"]),
)
def test_damaged_keys_and_lists_give_an_error_or_rows(
    table: Table, random: Random, kind: str
) -> None:
    """A damaged length in front of a part must not reach behind the key."""
    timed = Table([LONG, *table.types, LONG], [[1, *row, 2] for row in table.rows])
    encoder = KeyEncoder("NoPrefix" if kind == "list" else kind, 1, (0,))
    form = RowForm("unsaferow", is_bare=False, is_list=kind == "list")
    read = RowDecoder(FamilySchema("default", timed.json, timed.json, encoder), form)
    keys = [read.encode_key(row) for row in timed.rows]
    values = [b"\0" + row for row in timed.unsafe_rows]
    if kind == "list":
        values = [2 * (struct.pack("<i", len(value)) + value) for value in values]
        values[-1] = damaged(values[-1], random)
    else:
        keys[-1] = damaged(keys[-1], random)

    try:
        batch, others, numbers = read.decode(
            StoredRows(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
        )
    except DataError:
        return

    batch.validate(full=True)
    others.validate(full=True)
    assert batch.num_rows == others.num_rows == len(numbers)


@given(tables(min_columns=1, min_rows=1), st.data())
def test_a_row_that_is_cut_off_is_no_other_row(table: Table, data: st.DataObject) -> None:
    """The first bytes of a row are not a row with fewer values, unless only padding is missing."""
    row = table.unsafe_rows[0]
    fixed = 8 * (-(-len(table.types) // 64) + len(table.types))
    cut = row[: data.draw(st.integers(0, fixed - 1))]
    key = Table([], [[]])
    schema = FamilySchema("default", key.json, table.json, KeyEncoder("NoPrefix"))
    stored = StoredRows(
        pa.array(key.unsafe_rows, pa.large_binary()), pa.array([cut], pa.large_binary())
    )

    with pytest.raises(CorruptError, match="bytes where"):
        RowDecoder(schema, BARE).decode(stored)
