"""Lists in a database against a dictionary: appends, replaced chunks, reads of keys and ranges."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_PUT
from cairn.rocks import RocksDb, RocksMemory, database, ranges

CF = 5
Write = tuple[int, bytes, bytes]
Row = tuple[bytes, bytes]

# Escaped bytes, keys that begin with others, and many keys: then rows are read past, not sought.
KEYS = st.one_of(
    st.sampled_from([b"", b"\0", b"\0\0\xff", b"a", b"a\0", b"a\xff", b"\0\xff\0", b"\xff"]),
    st.integers(0, 60).map(lambda number: b"k" + bytes([0, number])),
)
WRITES = st.lists(
    st.tuples(
        st.sampled_from([OP_APPEND, OP_APPEND, OP_PUT, OP_DELETE]),
        KEYS,
        st.sampled_from([b"", b"1", b"22", b"\0\0\0"]),
    ),
    max_size=50,
    unique_by=lambda write: write[1],
)


def batch(writes: list[Write]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [op for op, _, _ in writes],
        [CF] * len(writes),
        [key for _, key, _ in writes],
        [None if op == OP_DELETE else value for op, _, value in writes],
    ]
    fields = zip(columns, CHANGELOG_SCHEMA, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in fields], schema=CHANGELOG_SCHEMA)


def apply(expected: dict[bytes, bytes], writes: list[Write]) -> None:
    for op, key, value in writes:
        before = expected.pop(key, b"")
        if op != OP_DELETE:
            expected[key] = (before if op == OP_APPEND else b"") + value


def test_lists_equal_a_dictionary() -> None:
    """A list is whole whatever its chunks are, and after they were joined."""
    joined: list[int] = []
    with mock.patch.object(database, "_LONG_LIST_CHUNKS", 1):
        check_lists(joined)
    assert joined


@settings(max_examples=80)
@given(
    versions=st.lists(st.tuples(WRITES, st.booleans()), min_size=1, max_size=6),
    slice_rows=st.sampled_from([1, 7, 100]),
    max_skipped=st.sampled_from([1, 256]),
)
def check_lists(
    joined: list[int],
    versions: list[tuple[list[Write], bool]],
    slice_rows: int,
    max_skipped: int,
) -> None:
    """Compare lists with a dictionary; add the bytes of each list that was joined."""
    skipping = mock.patch.object(ranges, "MAX_SKIPPED", max_skipped)
    with skipping, tempfile.TemporaryDirectory() as root:
        lists = frozenset({CF})
        memory = RocksMemory(1 << 20, 4 << 20)
        db = RocksDb(Path(root, "db"), memory, create=True, multi_families=lists)
        expected: dict[bytes, bytes] = {}
        names = sorted({key for writes, _ in versions for _, key, _ in writes})
        for version, (writes, may_begin) in enumerate(versions, start=1):
            ordered = sorted(writes, key=lambda write: write[1])
            # Without a look at what is present, all appends are chunks.
            ingestion = db.new_ingestion(batch(ordered), version, lists, may_begin_lists=may_begin)
            # Values of one size, if there are only heads.
            db.write(ingestion, lambda: True)
            while ingestion.rows_left:
                ingestion.add(slice_rows)
            ingestion.finish()
            db.ingest(ingestion)
            apply(expected, ordered)

            check(db, names, expected)
        db._db.compact_range(None, None)
        check(db, names, expected)
        while joined_bytes := db.join_one_long_list():
            joined.append(joined_bytes)
            check(db, names, expected)
        db.flush()
        db.close()
        db = RocksDb(Path(root, "db"), memory, create=False, multi_families=lists)
        check(db, names, expected)
        db.close()


def check(db: RocksDb, names: list[bytes], expected: dict[bytes, bytes]) -> None:
    assert db.get_many(CF, names) == [expected.get(name) for name in names]
    for some in (names, names[:5], names[-5:], names[::9]):
        assert db.present(CF, some) == [name in expected for name in some]
    for limits in ((1000, 1 << 20), (3, 1 << 20), (1000, 40)):
        assert scanned(db, limits) == sorted(expected.items())
    ranges = [*pairwise(names[::3]), (names[-1], None)] if names else []
    wanted = [
        (name, expected[name])
        for start, end in ranges
        for name in sorted(expected)
        if start <= name and (end is None or name < end)
    ]
    for limits in ((1000, 1 << 20), (3, 1 << 20), (1000, 3)):
        assert of_ranges(db, ranges, limits) == wanted


def scanned(db: RocksDb, limits: tuple[int, int]) -> list[Row]:
    """Return all rows, read in pages."""
    rows: list[Row] = []
    more = True
    while more:
        start = rows[-1][0] if rows else None
        page = db.scan(
            CF,
            start=start,
            inclusive=start is None,
            limit_rows=limits[0],
            limit_bytes=limits[1],
        )
        assert len(page.keys) <= limits[0]
        assert page.keys or not page.more
        rows += zip(page.keys, page.values, strict=True)
        more = page.more
    return rows


def of_ranges(
    db: RocksDb, ranges: list[tuple[bytes, bytes | None]], limits: tuple[int, int]
) -> list[Row]:
    """Return the rows of ranges, read in pages."""
    rows: list[Row] = []
    left = list(ranges)
    while left:
        page = db.read_ranges(CF, left, limits)
        keys, values = page.keys.to_pylist(), page.values.to_pylist()
        rows += cast("list[Row]", list(zip(keys, values, strict=True)))
        if page.more:
            left = [(rows[-1][0] + b"\0", left[page.count - 1][1]), *left[page.count :]]
        else:
            assert page.count
            left = left[page.count :]
    return rows
