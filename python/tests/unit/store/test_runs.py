"""Runs and sorting against plain dictionaries and sorted lists, for keys of all shapes."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn.clock import SystemClock
from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import ORIGIN_COMMITTED, ORIGIN_SPILL
from cairn.rocks import RocksDb, RocksMemory
from cairn.store.rows import merge, runs, sorting
from cairn.store.rows.committed import CommittedRows, ScanRequest
from cairn.store.rows.deltas import CommittedRun, Delta
from cairn.store.rows.reads import read_keys
from cairn.store.rows.runs import NO_RUNS, Run, Runs, SearchedKeys
from cairn.store.rows.writes import coalesce, newest

LISTS = 2
Row = tuple[int, int, bytes, bytes | None]

SHORT = st.binary(max_size=3)
FIXED = st.binary(min_size=8, max_size=8)
LIKE_ROWS = st.integers(0, 300).map(lambda n: bytes(9) + n.to_bytes(8, "little"))
TEXT = st.integers(0, 300).map(lambda n: b"the same beginning of all keys " + b"%d" % n)
LONG = st.integers(0, 300).map(lambda n: b"k" * 70 + b"%d" % n)
ZEROS = st.integers(0, 20).map(bytes)
# Many have the same first bits.
SIGNED = st.integers(-30, 30).map(lambda n: n.to_bytes(8, "big", signed=True) * (1 + n % 3))
CLOSE = st.integers(0, 60).map(lambda n: n.to_bytes(8, "big") + b"and more" * (n % 2))
ANY_KEYS = st.sampled_from(
    [SHORT, FIXED, LIKE_ROWS, TEXT, LONG, ZEROS, CLOSE, SIGNED, SHORT | FIXED | TEXT, CLOSE | FIXED]
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * 4
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGELOG_SCHEMA, strict=True)],
        schema=CHANGELOG_SCHEMA,
    )


def puts(keys: list[bytes], cf: int = 0) -> list[Row]:
    return [(OP_PUT, cf, key, b"v" + key) for key in keys]


@given(st.data())
def test_rows_are_ordered_as_python_orders_their_keys(data: st.DataObject) -> None:
    """RocksDB refuses a file whose keys do not ascend, and a search would miss keys."""
    keys = data.draw(ANY_KEYS.flatmap(lambda keys: st.lists(keys, min_size=1, max_size=40)))
    cfs = data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys)))
    pairs = list(zip(cfs, keys, strict=True))

    found = sorting.key_order(batch([(OP_PUT, cf, key, b"") for cf, key in pairs]))

    order = list(range(len(pairs))) if found.order is None else found.order.tolist()
    assert order == sorted(range(len(pairs)), key=pairs.__getitem__)
    ordered = [pairs[row] for row in order]
    assert found.repeats.tolist() == [
        one == following for one, following in itertools.pairwise(ordered)
    ]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200))
def test_rows_of_keys_that_fill_a_word_keep_their_order(numbers: list[int]) -> None:
    """Such keys leave no room for the row in the word; the newest write of a key is the last."""
    keys = [(number * 0x9E3779B97F4A7C15 % 2**64).to_bytes(8, "big") for number in numbers]

    found = sorting.key_order(batch(puts(keys)))

    order = list(range(len(keys))) if found.order is None else found.order.tolist()
    assert order == sorted(range(len(keys)), key=keys.__getitem__)
    ordered = [keys[row] for row in order]
    assert found.repeats.tolist() == [
        one == following for one, following in itertools.pairwise(ordered)
    ]


@given(st.data())
def test_taken_rows_are_the_rows(data: st.DataObject) -> None:
    """Columns of equal lengths are taken in another way than the others."""
    keys = data.draw(ANY_KEYS.flatmap(lambda keys: st.lists(keys, min_size=1, max_size=40)))
    whole = batch([*puts(keys), (OP_DELETE, 0, b"k", None)]) if len(keys) % 2 else batch(puts(keys))
    rows = whole.slice(1)
    order = data.draw(st.permutations(range(rows.num_rows)))
    cut = data.draw(st.integers(0, rows.num_rows))

    found = sorting.take([rows.slice(0, cut), rows.slice(cut)], np.array(order, np.int64))

    found.validate(full=True)
    assert found.to_pylist() == [rows.to_pylist()[row] for row in order]


@given(st.data())
@pytest.mark.parametrize("stride", [1, 5])
def test_a_run_finds_every_key_and_no_other(stride: int, data: st.DataObject) -> None:
    """A key that is not found in memory would be read in its older version from the database."""
    of = data.draw(ANY_KEYS)
    keys = data.draw(st.lists(of, min_size=1, max_size=60, unique=True))
    others = data.draw(st.lists(of | SHORT | TEXT, max_size=30))
    run = Run(coalesce([batch(puts(keys) + puts(keys, 1))]), stride)
    wanted = [*others, *keys, *others]
    expected = [(OP_PUT, b"v" + key) if key in keys else None for key in wanted]

    hits = dict(run.find_many(1, SearchedKeys(wanted), np.arange(len(wanted))))
    assert [hits.get(index) for index in range(len(wanted))] == expected
    assert [run.find(1, key) for key in wanted] == expected
    assert Runs((run,)).find_now(7, wanted) == {}
    ordered = sorted(keys)
    for key in wanted:
        row = bisect_left(ordered, key)
        assert run.rows_of_range(0, key, None) == (row, len(keys))
        assert run.rows_of_range(0, None, key) == (0, row)


@given(st.data())
@pytest.mark.parametrize("stride", [1, 5])
@pytest.mark.parametrize("rows_per_key", [256, 0])
def test_a_run_finds_the_rows_of_ranges(
    stride: int, rows_per_key: int, data: st.DataObject
) -> None:
    """A row that is not found in memory would be read in its older version from the database."""
    of = data.draw(ANY_KEYS)
    keys = sorted(data.draw(st.lists(of, min_size=1, max_size=60, unique=True)))
    bounds = sorted(data.draw(st.sets(of | SHORT | TEXT, min_size=1)) | set(keys[::3]))
    if data.draw(st.booleans()):
        starts = bounds
        ends = [*bounds[1:], None]
    else:
        starts = bounds[::2]
        ends = [*bounds[1::2], None][: len(starts)]
    run = Run(coalesce([batch(puts(keys) + puts(keys, 1))]), stride)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "READ_ROWS_PER_KEY", rows_per_key)

        firsts, lasts = run.rows_of_ranges(1, starts, ends)

    for start, end, first, last in zip(starts, ends, firsts, lasts, strict=True):
        expected = [key for key in keys if start <= key and (end is None or key < end)]
        assert [run.key(row) for row in range(first, last)] == expected


@given(st.data())
def test_the_newest_writes_are_the_coalesced_ones(data: st.DataObject) -> None:
    """Runs without appends are merged in another way."""
    keys = data.draw(ANY_KEYS)
    ops = st.sampled_from([(OP_PUT, b"v"), (OP_PUT, b"other"), (OP_DELETE, None)])
    rows = st.tuples(ops, st.integers(0, 1), keys)
    drawn = data.draw(st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=5))
    parts = [coalesce([batch([(op, cf, k, v) for (op, v), cf, k in part])]) for part in drawn]

    found = newest(parts)

    found.validate(full=True)
    assert found.to_pylist() == coalesce(parts).to_pylist()


KEYS = st.integers(0, 25).map(lambda n: b"%02d" % n)
VALUES = st.binary(min_size=1, max_size=5)
WRITES = st.one_of(
    st.tuples(st.just(OP_PUT), st.sampled_from([0, LISTS]), KEYS, VALUES),
    st.tuples(st.just(OP_DELETE), st.sampled_from([0, LISTS]), KEYS, st.none()),
    st.tuples(st.just(OP_APPEND), st.just(LISTS), KEYS, VALUES),
)
VERSIONS = st.lists(st.lists(WRITES, max_size=12), min_size=1, max_size=7)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDb]:
    opened = RocksDb(
        tmp_path / "db",
        RocksMemory(8 << 20, 1 << 20),
        create=True,
        multi_families=frozenset({LISTS}),
    )
    yield opened
    opened.close()


def empty(database: RocksDb) -> None:
    drops: list[Row] = [(OP_DROP_CF, cf, b"", None) for cf in (0, LISTS)]
    database.ingest(database.new_ingestion(batch(drops), 1, frozenset({LISTS})))


def write(database: RocksDb, delta: Delta, run: Run) -> None:
    ingestion = database.new_ingestion(run.rows, delta.last, frozenset({LISTS}))
    while ingestion.rows_left:
        ingestion.add(4)
    ingestion.finish()
    database.ingest(ingestion)


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(
    versions=VERSIONS,
    written=st.integers(0, 4),
    merge=st.integers(0, 4),
    are_sorted=st.booleans(),
    drop=st.sampled_from([None, 2, 5]),
    limits=st.sampled_from([(3, 1 << 20), (1000, 7), (1000, 1 << 20)]),
)
def test_reads_over_runs_equal_the_versions_one_by_one(
    database: RocksDb,
    versions: list[list[Row]],
    written: int,
    merge: int,
    drop: int | None,
    limits: tuple[int, int],
    *,
    are_sorted: bool,
) -> None:
    """The first versions are in the database, the next ones in one merged run, the rest in runs."""
    empty(database)
    model: dict[int, dict[bytes, bytes]] = {0: {}, LISTS: {}}
    deltas: list[Delta] = []
    none: frozenset[int] = frozenset()
    for version, rows in enumerate(versions, start=2):
        delta = Delta(version, [batch(rows)], frozenset({LISTS}))
        if version == drop:
            delta = Delta(version, [batch(rows), batch([(OP_DROP_CF, LISTS, b"", None)])], none)
        apply(model, rows)
        if version == drop:
            model[LISTS] = {}
        if delta.row_count and version - 2 < written:
            write(database, delta, CommittedRun([delta]))
        elif delta.row_count:
            deltas.append(delta)
        if version == drop:
            break
    runs = [CommittedRun([delta]) for delta in deltas]
    if merge > 1 and len(runs) > 1:
        together = runs[:merge] if are_sorted else deltas[:merge]
        runs = [CommittedRun(together), *runs[merge:]]
    committed = over(database, runs)
    keys = [b"%02d" % number for number in range(30)]

    for cf, rows_of_family in model.items():
        assert read(committed, cf, keys) == [rows_of_family.get(key) for key in keys]
        for key in keys[:5]:
            assert committed.get(cf, key) == rows_of_family.get(key)
        assert committed.present(cf, keys) == [key in rows_of_family for key in keys]
        assert scanned(committed, cf, None, None, limits) == rows_of_family
        assert list(committed.count_keys(cf))[-1] == len(rows_of_family)
        assert scanned(committed, cf, b"05", b"17", limits) == {
            key: value for key, value in rows_of_family.items() if b"05" <= key < b"17"
        }


def over(database: RocksDb, runs: list[CommittedRun]) -> CommittedRows:
    committed = CommittedRows(database)
    for run in runs:
        committed.add(run)
    return committed


def read(committed: CommittedRows, cf: int, keys: list[bytes]) -> list[bytes | None]:
    found: list[bytes | None] = []

    def steps() -> Iterator[None]:
        _, values = yield from read_keys(committed, NO_RUNS, cf, keys, SystemClock())
        found.extend(values)

    for _ in steps():
        pass
    return found


def apply(model: dict[int, dict[bytes, bytes]], rows: list[Row]) -> None:
    for op, cf, key, value in rows:
        if op == OP_PUT:
            model[cf][key] = value or b""
        elif op == OP_APPEND:
            model[cf][key] = model[cf].get(key, b"") + (value or b"")
        else:
            model[cf].pop(key, None)


def scanned(
    committed: CommittedRows,
    cf: int,
    start: bytes | None,
    end: bytes | None,
    limits: tuple[int, int],
) -> dict[bytes, bytes]:
    """Return all rows of a scan, page by page."""
    found: dict[bytes, bytes] = {}
    limit_rows, limit_bytes = limits
    inclusive = True
    while True:
        page = committed.scan(ScanRequest(cf, start, inclusive, end, limit_rows, limit_bytes))
        _, keys, values = page.rows.to_pydict().values()
        assert keys == sorted(keys)
        assert len(keys) <= limit_rows
        found |= dict(zip(keys, values, strict=True))
        if page.through is None:
            assert list(found) == sorted(found)
            return found
        start, inclusive = page.through, False


def test_a_page_over_runs_is_bounded_by_bytes(database: RocksDb) -> None:
    """16,384 rows of 5 KiB, of each of eight runs, are more than a message holds."""
    committed = CommittedRows(database)
    keys = [b"%05d" % number for number in range(800)]
    for start in range(4):
        rows: list[Row] = [(OP_PUT, 0, key, b"x" * 5000) for key in keys[start::4]]
        committed.add(CommittedRun([Delta(2, [batch(rows)], frozenset())]))
    request = ScanRequest(0, None, True, None, 16_384, 100_000)  # noqa: FBT003 - as the frame has it

    page = committed.scan(request)

    assert page.rows.column("key").to_pylist() == keys[:20]
    assert page.through == keys[19]
    assert scanned(committed, 0, None, None, (16_384, 100_000)) == dict.fromkeys(keys, b"x" * 5000)


def test_a_page_is_bounded_by_the_bytes_of_its_keys(database: RocksDb) -> None:
    """A deduplication of wide rows has large keys, and values of a few bytes."""
    keys = [b"%05d" % number + b"k" * 4995 for number in range(200)]
    request = ScanRequest(0, None, True, None, 16_384, 100_000)  # noqa: FBT003 - as the frame has it
    committed = CommittedRows(database)
    for start in range(2):
        written: list[Row] = [(OP_PUT, 0, key, b"1") for key in keys[start::2]]
        committed.add(CommittedRun([Delta(2, [batch(written)], frozenset())]))

    over_runs = committed.scan(request)
    ingestion = database.new_ingestion(
        batch([(OP_PUT, 0, key, b"1") for key in keys]), 1, frozenset()
    )
    ingestion.add(len(keys))
    ingestion.finish()
    database.ingest(ingestion)
    committed.replace(committed.newer)
    of_database = committed.scan(request)
    in_ranges = database.read_ranges(0, [(key, key + b"\0") for key in keys], (16_384, 100_000))

    assert over_runs.rows.column("key").to_pylist() == keys[:20]
    assert over_runs.through == keys[19]
    assert of_database.rows.column("key").to_pylist() == keys[:20]
    assert in_ranges.keys.to_pylist() == keys[:20]
    assert in_ranges.count == 20


@given(data=st.data())
@pytest.mark.parametrize("are_large", [False, True])
def test_rows_are_merged_as_python_merges_them(data: st.DataObject, *, are_large: bool) -> None:
    """A write that is lost, or taken for committed, would be read in its older version."""
    keys = data.draw(ANY_KEYS)
    ops = data.draw(st.sampled_from([[OP_PUT, OP_DELETE], [OP_PUT, OP_DELETE, OP_APPEND]]))
    in_database = data.draw(st.dictionaries(keys, st.binary(max_size=9), max_size=30))
    writes = st.dictionaries(keys, st.tuples(st.sampled_from(ops), st.binary(max_size=9)))
    layers = data.draw(st.lists(writes, max_size=4))
    committed_count = data.draw(st.integers(0, len(layers)))
    limits = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 100)))
    rows = dict(sorted(in_database.items()))
    expected, origins = dict(rows), dict.fromkeys(rows, ORIGIN_COMMITTED)
    batches = []
    for number, layer in enumerate(layers):
        written: list[Row] = [
            (op, 0, key, None if op == OP_DELETE else value)
            for key, (op, value) in sorted(layer.items())
        ]
        batches.append(batch(written))
        model = {0: expected}
        apply(model, written)
        is_committed = number < committed_count
        origins |= dict.fromkeys(layer, ORIGIN_COMMITTED if is_committed else ORIGIN_SPILL)
    first = list(itertools.islice(sorted(expected), limits[0]))
    sizes = itertools.accumulate(max(len(key), len(expected[key])) for key in first)
    count = next((n for n, size in enumerate(sizes, start=1) if size >= limits[1]), len(first))

    with pytest.MonkeyPatch.context() as patch:
        if are_large:
            patch.setattr(merge, "MAX_COLUMN_BYTES", 0)
        found, is_cut = merge.Layers(
            pa.array(rows, pa.binary()),
            pa.array(rows.values(), pa.binary()),
            batches,
            committed_count,
        ).merged(limits)

    found.validate(full=True)
    if any(layers):
        first = first[:count]
        assert is_cut == (len(first) < len(expected))
    else:
        first = list(expected)  # the rows of the database are within the limits
        assert not is_cut
    assert found.to_pylist() == [
        {"origin": origins[key], "key": key, "value": expected[key]} for key in first
    ]
