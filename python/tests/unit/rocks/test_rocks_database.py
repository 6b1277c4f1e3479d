# ruff: noqa: ANN401 - rows are of all types
"""RocksDb: it returns the bytes that were written, appends to lists, and loses no row silently."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import count, pairwise
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from rocksdict import Rdict

from cairn.clock import SYSTEM_CLOCK
from cairn.errors import CairnError, ClosedError, CorruptError, LocalDiskError
from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.rocks import RocksDb, RocksMemory, database
from cairn.rocks import keys as layout
from cairn.rocks.failures import translate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTS = 2


def rows(*writes: tuple[Any, ...]) -> pa.RecordBatch:
    columns = zip(*writes, strict=True)
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGELOG_SCHEMA, strict=True)],
        schema=CHANGELOG_SCHEMA,
    )


def ingest(db: RocksDb, writes: pa.RecordBatch, version: int) -> None:
    """Write sorted rows, as a store does."""
    ingestion = db.new_ingestion(writes, version, db.multi_families)
    while ingestion.rows_left:
        ingestion.add(7)
    ingestion.finish()
    db.ingest(ingestion)


@pytest.fixture
def memory() -> RocksMemory:
    return RocksMemory(8 << 20, 8 << 20)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Rdict]:
    """Return what rocksdict opens afterwards: it tells more about files than ``RocksDb`` does."""
    found: list[Rdict] = []

    def noted(*arguments: Any, **named: Any) -> Rdict:
        found.append(Rdict(*arguments, **named))
        return found[-1]

    monkeypatch.setattr(database, "Rdict", noted)
    return found


@pytest.fixture
def db(tmp_path: Path, memory: RocksMemory) -> Iterator[RocksDb]:
    opened = RocksDb(tmp_path / "db", memory, create=True, multi_families=frozenset({LISTS}))
    yield opened
    opened.close()


def whole_scan(db: RocksDb, cf: int, **bounds: Any) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    start, inclusive = bounds.get("start"), bounds.get("inclusive", True)
    while True:
        page = db.scan(
            cf,
            start=start,
            inclusive=inclusive,
            end=bounds.get("end"),
            limit_rows=97,
            limit_bytes=1 << 20,
        )
        found |= dict(zip(page.keys, page.values, strict=True))
        if not page.more:
            return found
        start, inclusive = page.keys[-1], False


def corrupt_ssts(directory: Path) -> None:
    """Flip a byte in the first data block of each SST."""
    for path in directory.glob("*.sst"):
        data = bytearray(path.read_bytes())
        data[10] ^= 0xFF
        path.write_bytes(data)


def test_families_with_the_same_keys_are_independent(db: RocksDb) -> None:
    """A column family is a two-byte prefix; no operation may cross it."""
    ingest(
        db, rows((OP_PUT, 0, b"k", b"0"), (OP_PUT, 1, b"k", b"1"), (OP_PUT, 0xFFFE, b"k", b"9")), 1
    )

    assert db.get_many(1, [b"k", b"x"]) == [b"1", None]
    assert whole_scan(db, 0xFFFE) == {b"k": b"9"}
    ingest(db, rows((OP_DROP_CF, 0xFFFE, b"", None)), 2)
    assert whole_scan(db, 0xFFFE) == {}
    assert whole_scan(db, 0) == {b"k": b"0"}


def test_many_keys_are_returned_in_the_order_of_the_request(db: RocksDb) -> None:
    """They are looked up in sorted order; the reply must have the order of the request."""
    ingest(db, rows(*((OP_PUT, 0, b"%04d" % n, b"v%d" % n) for n in range(500))), 1)
    keys = [b"%04d" % (n * 7 % 600) for n in range(300)]

    values = db.get_many(0, keys)

    assert values == [b"v%d" % int(key) if int(key) < 500 else None for key in keys]


@pytest.mark.parametrize("key", [b"", b"\x00", b"a\x00b", b"a\x00\x01", b"\x00\xff", b"\xff\xff"])
def test_a_list_under_any_key_is_its_appends_in_order(db: RocksDb, key: bytes) -> None:
    """Chunk keys escape zero bytes; the lists of similar keys must stay separate."""
    neighbours = [key + b"\x00", key + b"\x01", key + b"\xff"]
    for version in range(1, 4):
        ingest(db, rows((OP_APPEND, LISTS, key, b"%d" % version)), version)
        ingest(db, rows(*((OP_APPEND, LISTS, one, b"x") for one in neighbours)), version)

    assert db.get_many(LISTS, [key]) == [b"123"]
    assert whole_scan(db, LISTS) == {key: b"123"} | dict.fromkeys(neighbours, b"xxx")
    assert key not in whole_scan(db, LISTS, start=key, inclusive=False)
    assert whole_scan(db, LISTS, end=key) == {}


def test_put_and_delete_of_a_list_replace_all_its_chunks(db: RocksDb) -> None:
    """A chunk that remains would come back as a value."""
    for version in range(1, 4):
        ingest(db, rows((OP_APPEND, LISTS, b"a", b"1"), (OP_APPEND, LISTS, b"b", b"1")), version)

    ingest(db, rows((OP_PUT, LISTS, b"a", b"new"), (OP_DELETE, LISTS, b"b", None)), 4)

    assert db.get_many(LISTS, [b"a", b"a", b"b", b"a"]) == [b"new", b"new", None, b"new"]
    assert db.present(LISTS, [b"a", b"b"]) == [True, False]
    ingest(db, rows((OP_APPEND, LISTS, b"a", b"+")), 5)
    assert db.get_many(LISTS, [b"a"]) == [b"new+"]


def test_lists_that_never_grow_are_not_searched_for_chunks(
    db: RocksDb, memory: RocksMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join of state format 4 has such lists; a search costs twice as much as a get."""
    new = [(OP_APPEND, LISTS, b"%04d" % n, b"v%04d" % n) for n in range(500)]
    ingest(db, rows(*new), 1)
    keys = [key for _, _, key, _ in new]

    with monkeypatch.context() as patched:
        patched.setattr(layout, "chunks_of", lambda *_: pytest.fail("a search for chunks"))
        ingest(db, rows(*((OP_DELETE, LISTS, key, None) for key in keys[::2])), 2)
        ingest(db, rows(*((OP_PUT, LISTS, key, b"new") for key in keys[1::4])), 3)
        found = db.get_many(LISTS, keys)
        assert db.present(LISTS, keys) == [value is not None for value in found]

    assert found == [[None, b"new", None, b"v%04d" % n][n % 4] for n in range(500)]
    assert not db.has_chunks(LISTS)
    ingest(db, rows((OP_APPEND, LISTS, keys[3], b"+")), 4)
    assert db.has_chunks(LISTS)
    assert db.get(LISTS, keys[3]) == b"v0003+"
    db.flush()
    db.close()
    again = RocksDb(tmp_path / "db", memory, create=False, multi_families=frozenset({LISTS}))
    assert again.has_chunks(LISTS)
    assert again.get_many(LISTS, keys[:4]) == [None, b"new", None, b"v0003+"]
    again.close()


@pytest.mark.parametrize("count", [20, 2000])
def test_lists_without_chunks_any_more_are_not_searched_for_them(
    opened: list[Rdict], db: RocksDb, count: int
) -> None:
    """Many deleted chunks are skipped for a bounded time only; a compaction takes them away."""
    for version in (1, 2):
        ingest(db, rows(*((OP_APPEND, LISTS, b"%04d" % n, b"v") for n in range(count))), version)
    assert db.has_chunks(LISTS)

    ingest(db, rows(*((OP_PUT, LISTS, b"%04d" % n, b"new") for n in range(count))), 3)

    assert db.has_chunks(LISTS) == (count > 1000)
    assert whole_scan(db, LISTS) == {b"%04d" % n: b"new" for n in range(count)}
    opened[0].compact_range(None, None)
    ingest(db, rows((OP_PUT, LISTS, b"x", b"new")), 4)
    assert not db.has_chunks(LISTS)
    assert db.get(LISTS, b"0007") == b"new"


def test_presence_is_the_same_for_long_lists(db: RocksDb) -> None:
    """Their values are not read."""
    keys = [b"%04d" % n for n in range(300)]
    ingest(db, rows(*((OP_PUT, LISTS, key, bytes(8192)) for key in keys[::3])), 1)
    ingest(db, rows(*((OP_APPEND, LISTS, key, b"v") for key in keys[::6])), 2)

    for start in (0, 1, 2, 250, 299):
        assert db.present(LISTS, keys[start:]) == [n % 3 == 0 for n in range(start, 300)]


def test_a_long_list_of_a_family_that_is_dropped_later_stays_whole(db: RocksDb) -> None:
    """A snapshot of the version before may be on its way when the list is joined."""
    for version in range(1, 50):
        ingest(db, rows((OP_APPEND, LISTS, b"L", b"%02d" % version)), version)
    before = db.get(LISTS, b"L")
    lists, db.multi_families = db.multi_families, frozenset()

    assert db.join_one_long_list()

    db.multi_families = lists
    assert db.get(LISTS, b"L") == before == b"".join(b"%02d" % n for n in range(1, 50))
    assert not db.has_chunks(LISTS)


def test_rows_from_before_the_drop_of_their_family_are_lists(db: RocksDb) -> None:
    """A snapshot of the version before has them; the database knows the newest families alone."""
    for version in (1, 2):
        ingest(
            db, rows(*((OP_APPEND, LISTS, key, b"%d" % version) for key in (b"a", b"b"))), version
        )
    lists, db.multi_families = db.multi_families, frozenset()

    changes = rows(
        (OP_DELETE, LISTS, b"a", None),
        (OP_APPEND, LISTS, b"b", b"3"),
        (OP_APPEND, LISTS, b"c", b"3"),
    )
    ingestion = db.new_ingestion(changes, 3, lists)
    while ingestion.rows_left:
        ingestion.add(1)
    ingestion.finish()
    db.ingest(ingestion)

    db.multi_families = lists
    assert whole_scan(db, LISTS) == {b"b": b"123", b"c": b"3"}


def test_a_dropped_family_has_neither_heads_nor_chunks(db: RocksDb) -> None:
    """They lie in two places, beside those of other families."""
    for version in (1, 2):
        ingest(
            db, rows((OP_APPEND, LISTS, b"k", b"1"), (OP_APPEND, LISTS + 1, b"k", b"9")), version
        )
    db.multi_families = frozenset({LISTS, LISTS + 1})
    for version in (3, 4):
        ingest(
            db, rows((OP_APPEND, LISTS, b"j", b"2"), (OP_APPEND, LISTS + 1, b"j", b"8")), version
        )

    ingest(db, rows((OP_DROP_CF, LISTS, b"", None)), 5)

    assert whole_scan(db, LISTS) == {}
    assert db.get_many(LISTS, [b"j", b"k"]) == [None, None]
    assert db.get_many(LISTS + 1, [b"j"]) == [b"88"]


def test_lists_of_ranges_are_those_of_scans(db: RocksDb) -> None:
    """Some have several chunks; ranges touch, are empty, or end with the family."""
    random = Random(5)
    for version in range(1, 6):
        chosen = sorted(bytes((n // 4, n % 4, 0)) for n in random.sample(range(96), 40))
        ingest(db, rows(*((OP_APPEND, LISTS, key, b"%d," % version) for key in chosen)), version)
    expected = whole_scan(db, LISTS)
    for stride in (1, 3, 7):
        bounds = [bytes((n,)) for n in range(0, 24, stride)]
        ranges = [*pairwise(bounds), (bounds[-1], None)]
        for limits in ((1000, 1 << 20), (5, 1 << 20), (1000, 7), (1, 1)):
            page = db.read_ranges(LISTS, ranges, limits)

            keys = cast("list[bytes]", page.keys.to_pylist())
            values = cast("list[bytes]", page.values.to_pylist())
            found = list(zip(keys, values, strict=True))
            assert found == list(expected.items())[: len(found)]
            through = ranges[page.count - 1][1]
            is_whole = len(found) == len(
                [key for key in expected if through is None or key < through]
            )
            assert page.more == (not is_whole)
            if limits[1] == 1 << 20:
                # A list has at most five chunks.
                assert min(len(expected), limits[0] // 5) <= len(found) <= limits[0]
            else:
                size = sum(max(map(len, row)) for row in found[:-1])
                assert size < limits[1]
                assert found


def test_a_scan_that_ends_within_a_list_is_repeated(
    memory: RocksMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The iteration of rocksdict ends without an error if the next file cannot be opened."""
    failures = [1]

    class EndsEarly:
        def __init__(self, *arguments: Any, **named: Any) -> None:
            self.whole = Rdict(*arguments, **named)

        def items(self, **named: Any) -> Iterator[object]:
            found = list(self.whole.items(**named))
            if len(found) > 2 and failures[0]:
                failures[0] -= 1
                return iter(found[:2])
            return iter(found)

        def __getattr__(self, name: str) -> object:
            return getattr(self.whole, name)

    monkeypatch.setattr(database, "Rdict", EndsEarly)
    db = RocksDb(tmp_path / "db", memory, create=True, multi_families=frozenset({LISTS}))
    for version in range(1, 6):
        ingest(
            db, rows(*((OP_APPEND, LISTS, key, b"%d" % version) for key in (b"a", b"b"))), version
        )

    assert whole_scan(db, LISTS) == {b"a": b"12345", b"b": b"12345"}
    assert failures == [0]

    failures[0] = 1000
    with pytest.raises(LocalDiskError):
        whole_scan(db, LISTS)
    db.close()


def test_a_long_list_is_joined_after_a_read_found_it_long(db: RocksDb) -> None:
    """Otherwise each read of a growing list would cost one more seek."""
    for version in range(1, 50):
        ingest(db, rows((OP_APPEND, LISTS, b"L", b"%02d" % version)), version)
    assert not db.join_one_long_list()
    before = db.get_many(LISTS, [b"L"])
    by_get = dict(db.long_lists)
    db.long_lists.clear()
    page = db.read_ranges(LISTS, [(b"K", b"M")], (1000, 1 << 20))

    assert page.values.to_pylist() == before
    assert db.long_lists == by_get == {(LISTS, b"L"): None}
    assert db.join_one_long_list()

    assert db.get_many(LISTS, [b"L"]) == before
    ingest(db, rows((OP_APPEND, LISTS, b"L", b"+")), 50)
    assert db.get_many(LISTS, [b"L"]) == [(before[0] or b"") + b"+"]


def test_an_append_to_a_long_list_reads_nothing(db: RocksDb, tmp_path: Path) -> None:
    """Its row is encoded although the list cannot be read; a put must find the list's chunks."""
    for version in range(1, 60):
        # The first one is the head of the list.
        ingest(db, rows((OP_APPEND, LISTS, b"L", b"%d" % version * 100)), version)
    db.flush()
    db.close()
    corrupt_ssts(tmp_path / "db")
    # With a new cache: the former one has the blocks as they were.
    memory = RocksMemory(8 << 20, 8 << 20)
    again = RocksDb(tmp_path / "db", memory, create=False, multi_families=frozenset({LISTS}))

    append = again.new_ingestion(
        rows((OP_APPEND, LISTS, b"L", b"+")), 60, again.multi_families, may_begin_lists=False
    )
    put = again.new_ingestion(rows((OP_PUT, LISTS, b"L", b"+")), 60, again.multi_families)

    assert append.add(1) == 1
    with pytest.raises(CorruptError):
        put.add(1)
    with pytest.raises(CorruptError):
        again.get_many(LISTS, [b"L"])
    with pytest.raises(CorruptError):
        again.present(LISTS, [b"L"])
    with pytest.raises(CorruptError):
        again.read_ranges(LISTS, [(b"L", b"M")], (10, 1 << 20))
    with suppress(CorruptError):  # a compaction may have met the damage, too
        again.close()


def test_a_scan_fails_at_a_corrupt_block(db: RocksDb, memory: RocksMemory, tmp_path: Path) -> None:
    """Rocksdict's iterators end there silently: half of the state would look like all of it."""
    ingest(db, rows(*((OP_PUT, 0, b"%06d" % n, b"%d" % n * 20) for n in range(20_000))), 1)
    db.flush()
    db.close()
    data = next((tmp_path / "db").glob("*.sst"))
    content = bytearray(data.read_bytes())
    content[len(content) // 3] ^= 0xFF
    data.write_bytes(content)
    again = RocksDb(tmp_path / "db", memory, create=False)

    with pytest.raises(CorruptError) as failed:
        whole_scan(again, 0)

    assert str(tmp_path / "db") in str(failed.value)
    with pytest.raises(CorruptError):
        again.read_ranges(0, [(b"", None)], (20_000, 1 << 20))
    again.close()


def test_small_files_of_new_keys_are_compacted(db: RocksDb, tmp_path: Path) -> None:
    """RocksDB would place each beside the others, for ever: a snapshot would have thousands."""
    for version in range(1, 60):
        ingest(db, rows((OP_PUT, 0, b"%04d" % version, b"v")), version)

    deadline = SYSTEM_CLOCK.monotonic_ns() + 20_000_000_000
    for attempt in count():
        directory = tmp_path / f"copy{attempt}"
        db.checkpoint(directory)
        if len(list(directory.glob("*.sst"))) < 20:
            break
        assert SYSTEM_CLOCK.monotonic_ns() < deadline
        SYSTEM_CLOCK.sleep(0.05)
    assert len(whole_scan(db, 0)) == 59


def test_a_database_that_is_read_has_fewer_files(opened: list[Rdict], db: RocksDb) -> None:
    """Each read searches all of them; a database that nobody reads is compacted less often."""

    def files_after(first: int) -> int:
        """Ingest three overlapping files, and count all files once no compaction is due."""
        for version in range(first, first + 3):
            ingest(db, rows((OP_PUT, 0, b"a", b"v"), (OP_PUT, 0, b"z%d" % version, b"v")), version)
        deadline = SYSTEM_CLOCK.monotonic_ns() + 20_000_000_000
        signs = "rocksdb.compaction-pending", "rocksdb.num-running-compactions"
        while any(opened[0].property_int_value(sign) for sign in signs):
            assert SYSTEM_CLOCK.monotonic_ns() < deadline
            SYSTEM_CLOCK.sleep(0.01)
        return len(opened[0].live_files())

    assert files_after(1) == 3
    db.note_use(is_read=True)
    assert files_after(4) == 6, "one read may be a refill of the shim's cache"
    db.note_use(is_read=True)
    assert files_after(7) < 5
    assert len(whole_scan(db, 0)) == 10


def test_a_restored_checkpoint_has_exactly_the_flushed_rows(
    db: RocksDb, memory: RocksMemory, tmp_path: Path
) -> None:
    """A snapshot uploads the local checkpoint."""
    ingest(db, rows((OP_PUT, 0, b"a", b"1")), 1)
    db.flush()
    db.checkpoint(tmp_path / "copy")
    ingest(db, rows((OP_PUT, 0, b"a", b"2")), 2)

    restored = RocksDb(tmp_path / "copy", memory, create=False)

    assert restored.get_many(0, [b"a"]) == [b"1"]
    restored.close()


def test_a_restored_database_uses_the_shared_block_cache(
    db: RocksDb, memory: RocksMemory, tmp_path: Path
) -> None:
    """A cache per database would not count in the worker's memory: 8 MB for each store."""
    ingest(db, rows(*((OP_PUT, 0, b"%06d" % n, b"v" * 100) for n in range(10_000))), 1)
    db.flush()
    db.checkpoint(tmp_path / "copy")
    restored = RocksDb(tmp_path / "copy", memory, create=False)
    before = memory.cached_bytes()

    restored.get_many(0, [b"%06d" % n for n in range(0, 10_000, 10)])

    assert memory.cached_bytes() > before + 500_000
    restored.close()


@pytest.mark.parametrize(("cache_bytes", "may_fill"), [(1 << 20, False), (64 << 20, True)])
def test_scans_do_not_fill_a_cache_that_is_smaller_than_the_database(
    tmp_path: Path, cache_bytes: int, *, may_fill: bool
) -> None:
    """Their blocks would replace the filters, which reads of single keys need."""
    memory = RocksMemory(cache_bytes, 8 << 20)
    db = RocksDb(tmp_path / "db", memory, create=True)
    values = [Random(n).randbytes(100) for n in range(30_000)]
    ingest(db, rows(*((OP_PUT, 0, b"%06d" % n, value) for n, value in enumerate(values))), 1)
    db.get(0, b"%06d" % 7)  # index and filter
    before = memory.cached_bytes()

    page = db.scan(0, limit_rows=20_000, limit_bytes=1 << 30)
    keys = [b"%06d" % n for n in range(20_000, 30_000)]
    ranges: list[tuple[bytes, bytes | None]] = [(key, key + b"0") for key in keys]
    in_ranges = db.read_ranges(0, ranges, (10_000, 1 << 30))

    assert page.values + in_ranges.values.to_pylist() == values
    assert (memory.cached_bytes() > before + 500_000) is may_fill
    assert may_fill or memory.cached_bytes() == before
    db.close()


def test_reads_leave_no_block_in_a_cache_of_which_a_part_is_lent(tmp_path: Path) -> None:
    """Pending rows use that part: both together must not need more memory than the worker has."""
    memory = RocksMemory(8 << 20, 8 << 20)
    db = RocksDb(tmp_path / "db", memory, create=True)
    keys = [b"%06d" % n for n in range(30_000)]
    values = [Random(n).randbytes(100) for n in range(30_000)]
    ingest(db, rows(*((OP_PUT, 0, key, value) for key, value in zip(keys, values, strict=True))), 1)
    db.get(0, keys[0])  # index and filter
    before = memory.cached_bytes()
    assert memory.spare_bytes() == 6 << 20, "a quarter is kept for indexes and filters"

    memory.is_lent = True
    assert db.get_many(0, keys) == values
    assert [db.get(0, key) for key in keys[::97]] == values[::97]
    assert list(whole_scan(db, 0).values()) == values
    assert memory.cached_bytes() == before

    memory.is_lent = False
    assert db.get_many(0, keys) == values
    assert memory.cached_bytes() > before + 3_000_000
    assert memory.spare_bytes() == (8 << 20) - memory.cached_bytes()
    db.close()


def test_reads_succeed_while_another_thread_flushes_and_memory_is_lent(
    db: RocksDb, memory: RocksMemory
) -> None:
    """No option can be changed during a call of another thread: such reads were refused."""
    ingest(db, rows((OP_PUT, 0, b"k", b"v")), 1)
    is_over = threading.Event()

    def flush() -> None:
        while not is_over.is_set():
            db.flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        found = set()
        for number in range(300):
            memory.is_lent = number % 2 == 0
            found.add(tuple(db.get_many(0, [b"k", b"other"])))
    finally:
        is_over.set()
        flushing.join(20)

    assert found == {(b"v", None)}


def test_a_page_of_large_values_ends_at_its_bytes(db: RocksDb) -> None:
    """A page is one message, so it must not have hundreds of large values."""
    ingest(db, rows(*((OP_PUT, 0, b"%03d" % n, bytes(100_000)) for n in range(200))), 1)

    page = db.scan(0, limit_rows=1000, limit_bytes=2_000_000)

    assert page.more
    assert page.keys == [b"%03d" % n for n in range(20)]


def test_an_empty_directory_is_not_opened_as_a_restored_one(
    memory: RocksMemory, tmp_path: Path
) -> None:
    """A snapshot without CURRENT must be an error, never an empty state."""
    (tmp_path / "none").mkdir()

    with pytest.raises(CairnError):
        RocksDb(tmp_path / "none", memory, create=False)
    assert memory.database_count == 0


def test_use_after_close_is_a_closed_error(db: RocksDb) -> None:
    """Rocksdict's own error type must not leave this package."""
    db.close()

    with pytest.raises(ClosedError):
        db.get_many(0, [b"a"])
    with pytest.raises(ClosedError):
        db.flush()


def test_a_retired_database_is_closed_by_another_thread(
    db: RocksDb, memory: RocksMemory, tmp_path: Path
) -> None:
    """A read in steps may go on while the database is closed: it must not reach rocksdict."""
    ingest(db, rows((OP_PUT, 0, b"a", b"1")), 1)
    assert (db.get(0, b"a"), db.get(0, b"b")) == (b"1", None)

    db.retire()
    with pytest.raises(ClosedError):
        db.get(0, b"a")
    with pytest.raises(ClosedError):
        db.get_many(0, [b"a", b"b"])
    with pytest.raises(ClosedError):
        db.checkpoint(tmp_path / "copy")
    thread = threading.Thread(target=db.close)
    thread.start()
    thread.join()

    assert memory.database_count == 0
    again = RocksDb(tmp_path / "db", memory, create=False)  # nothing keeps its lock
    assert again.get(0, b"a") == b"1"
    again.close()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Corruption: block checksum mismatch", "CAIRN_CORRUPT"),
        ("IO error: No space left on device: While appending", "CAIRN_DISK_FULL"),
        ("IO error: lock hold by current process", "CAIRN_LOCAL_DISK"),
        ("IO error: While open a file: /d/1.sst: Too many open files", "CAIRN_OPEN_FILES"),
        (
            "IO error: While open a file: /d/1.sst: Too many open files in system",
            "CAIRN_OPEN_FILES",
        ),
        ("Invalid argument: whatever", "CAIRN_INTERNAL"),
    ],
)
def test_each_status_of_rocksdb_is_translated(text: str, code: str) -> None:
    """The caller's reaction depends on the kind."""
    assert translate(Exception(text), "dir").code == code


def test_the_manifest_of_a_database_that_is_open_for_weeks_stays_small(
    tmp_path: Path, memory: RocksMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each snapshot contains it: after a month with a flush per minute it had 7 MB."""
    bound = 8 * 1024  # a thirty-second of the real one
    monkeypatch.setattr("cairn.rocks.options.MANIFEST_BYTES", bound)
    db = RocksDb(tmp_path / "db", memory, create=True, multi_families=frozenset())
    largest = 0
    for version in range(1, 201):
        ingest(db, rows((OP_PUT, 0, b"%d" % (version % 10), b"%d" % version)), version)
        for path in (tmp_path / "db").glob("MANIFEST-*"):
            with suppress(FileNotFoundError):  # RocksDB has just replaced it
                largest = max(largest, path.stat().st_size)
    db.flush()
    db.checkpoint(tmp_path / "checkpoint")

    assert largest < bound + 1024
    (manifest,) = (tmp_path / "checkpoint").glob("MANIFEST-*")
    assert (tmp_path / "checkpoint" / "CURRENT").read_text().strip() == manifest.name
    copy = RocksDb(tmp_path / "checkpoint", memory, create=False, multi_families=frozenset())
    assert whole_scan(copy, 0) == whole_scan(db, 0)
    copy.close()
    db.close()
