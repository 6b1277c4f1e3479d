"""SST files written with numpy: RocksDB's own writer and reader agree with each of their parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from rocksdict import SstFileWriter
from sst_parser import FOOTER_BYTES, TRAILER_BYTES, Handle, SstFile

from cairn.errors import ClosedError, CorruptError, DiskFullError, InternalError
from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.rocks import RocksDb, RocksMemory
from cairn.rocks import ingestion as ingestions
from cairn.rocks import keys as layout
from cairn.rocks.options import BLOCK_BYTES, file_options
from cairn.rocks.sst import FixedRows, TableWriter, bloom
from cairn.rocks.sst.rows import MAX_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = b"\x00\x07"
COUNT = 3000
"""Several data blocks."""


def sample(count: int = COUNT, key_bytes: int = 9, value_bytes: int = 21) -> FixedRows:
    """Ascending keys with gaps; every fifth row is a delete."""
    numbers = np.cumsum(np.random.default_rng(7).integers(1, 900, count)).astype(">u8")
    keys = np.zeros((count, key_bytes), np.uint8)
    keys[:, key_bytes - 8 :] = numbers.view(np.uint8).reshape(count, 8)
    is_put = np.arange(count) % 5 != 0
    values = np.zeros((int(is_put.sum()), value_bytes), np.uint8)
    values[:, :8] = numbers[is_put].view(np.uint8).reshape(-1, 8)[:, :value_bytes]
    return FixedRows(PREFIX, keys, values, is_put)


def whole_keys(rows: FixedRows) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.hstack([np.tile(np.frombuffer(rows.prefix, np.uint8), (rows.count, 1)), rows.keys])


def pairs(rows: FixedRows) -> list[tuple[bytes, bytes | None]]:
    values = iter(rows.values)
    return [
        (key.tobytes(), next(values).tobytes() if put else None)
        for key, put in zip(whole_keys(rows), rows.is_put, strict=True)
    ]


def write(path: Path, *rows: FixedRows) -> SstFile:
    with TableWriter(path, BLOCK_BYTES) as table:
        for part in rows:
            table.add(part)
        table.finish()
    return SstFile(path)


def write_by_rocksdb(path: Path, rows: FixedRows) -> SstFile:
    writer = SstFileWriter(file_options())
    writer.open(str(path))
    for key, value in pairs(rows):
        if value is None:
            del writer[key]
        else:
            writer[key] = value
    writer.finish()
    return SstFile(path)


def batch(rows: FixedRows) -> pa.RecordBatch:
    first = len(PREFIX)
    columns: list[list[Any]] = [
        [OP_PUT if put else OP_DELETE for put in rows.is_put],
        [int.from_bytes(PREFIX)] * rows.count,
        [key[first:] for key, _ in pairs(rows)],
        [value for _, value in pairs(rows)],
    ]
    fields = zip(columns, CHANGELOG_SCHEMA, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in fields], schema=CHANGELOG_SCHEMA)


@pytest.fixture
def memory() -> RocksMemory:
    return RocksMemory(8 << 20, 8 << 20)


def ingested(directory: Path, memory: RocksMemory, rows: pa.RecordBatch) -> RocksDb:
    db = RocksDb(directory, memory, create=True)
    ingestion = db.new_ingestion(rows, 1, frozenset())
    assert db.write(ingestion, lambda: True)
    assert ingestion.rows_left == 0
    db.ingest(ingestion)
    return db


def test_the_file_has_the_rows_in_order(tmp_path: Path) -> None:
    """Each block begins with a whole key, and the index has the last key of each block."""
    rows = sample()

    file = write(tmp_path / "n.sst", *rows.parts(700))

    blocks = list(file.entries())
    found = [(e.key, e.value if e.kind else None) for block in blocks for e in block]
    assert found == pairs(rows)
    assert [key for key, _ in file.index] == [block[-1].key for block in blocks]
    assert len(blocks) > 3
    assert any(entry.shared for block in blocks for entry in block)


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes"), [(8, 0), (120, 127), (130, 128), (256, 20_000), (8, 300_000)]
)
def test_wide_rows(tmp_path: Path, memory: RocksMemory, key_bytes: int, value_bytes: int) -> None:
    """The numbers before a key have more bytes then, and a block has few rows."""
    rows = sample(60, key_bytes, value_bytes)

    db = ingested(tmp_path / "db", memory, batch(rows))

    for key, value in pairs(rows):
        assert db.get(int.from_bytes(PREFIX), key[len(PREFIX) :]) == value
    assert scanned(db) == {k[len(PREFIX) :]: v for k, v in pairs(rows) if v is not None}
    db.close()


def test_the_properties_are_those_of_rocksdbs_writer(tmp_path: Path) -> None:
    """An ingestion, compactions and estimates of sizes read them."""
    rows = sample()
    theirs = write_by_rocksdb(tmp_path / "r.sst", rows)

    ours = write(tmp_path / "n.sst", *rows.parts(700))

    for_people = {"compression_options", "creating.host.identity"}
    assert theirs.properties.keys() - ours.properties.keys() == {
        f"rocksdb.{name}" for name in for_people
    }
    assert not ours.properties.keys() - theirs.properties.keys()
    session = "rocksdb.creating.session.identity"
    assert len(ours.properties[session]) == len(theirs.properties[session])
    sizes = {"data.size", "tail.start.offset", "index.size", "filter.size", "num.data.blocks"}
    skipped = {f"rocksdb.{name}" for name in sizes} | {session}
    for name in ours.properties.keys() - skipped:
        assert (name, ours.properties[name]) == (name, theirs.properties[name])
    assert ours.number("num.data.blocks") == len(ours.index)
    assert ours.number("data.size") == ours.meta["fullfilter." + bloom.NAME].offset
    assert ours.number("index.size") == len(ours.block(ours.meta["rocksdb.index"])) + TRAILER_BYTES
    assert ours.meta.keys() == theirs.meta.keys()


def test_the_file_is_not_larger_than_rocksdbs(tmp_path: Path) -> None:
    """A snapshot uploads it, and a load downloads it."""
    rows = sample(40_000)
    write_by_rocksdb(tmp_path / "r.sst", rows)

    write(tmp_path / "n.sst", *rows.parts(1 << 14))

    ours, theirs = ((tmp_path / name).stat().st_size for name in ("n.sst", "r.sst"))
    assert ours < theirs * 1.05


def test_each_file_has_a_session_id_of_its_own(tmp_path: Path) -> None:
    """The block cache of a worker would otherwise return blocks of another file."""
    rows = sample(3)

    files = [write(tmp_path / f"{n}.sst", rows) for n in range(20)]

    sessions = {file.properties["rocksdb.creating.session.identity"] for file in files}
    assert len(sessions) == len(files)


@pytest.mark.parametrize("width", [*range(12), 127, 128, 255, 256])
def test_hashes_are_rocksdbs(width: int) -> None:
    """A wrong hash makes the filter hide keys. The expected ones are computed byte by byte."""
    keys = np.random.default_rng(width).integers(0, 256, (50, width), np.uint8)

    hashes = bloom.key_hashes(keys)

    assert hashes.tolist() == [murmur(key.tobytes()) for key in keys]


def murmur(key: bytes) -> int:
    """RocksDB's legacy hash: MurmurHash1 with signed last bytes."""
    factor, mask = 0xC6A4A793, 0xFFFFFFFF
    result = 0xBC9F1D34 ^ (len(key) * factor & mask)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        result = (result + int.from_bytes(key[start : start + 4], "little")) * factor & mask
        result ^= result >> 16
    if key[whole:]:
        for place, byte in enumerate(key[whole:]):
            result += (byte - 256 if byte > 127 else byte) << 8 * place
        result = result * factor & mask
        result ^= result >> 24
    return result


@pytest.mark.parametrize(
    ("key", "expected"),
    [("", 3164544308), ("9a", 3195034349), ("52d5", 3854228105), ("d45233", 1721992661)],
)
def test_known_hashes(key: str, expected: int) -> None:
    """Hashes that RocksDB's own test of this function expects."""
    data = np.frombuffer(bytes.fromhex(key), np.uint8)

    assert bloom.key_hashes(data.reshape(1, -1)).tolist() == [expected]


def test_a_filter_of_several_parts_equals_one_of_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large filters are made in parts, to bound their memory."""
    keys = whole_keys(sample())

    def block() -> bytes:
        filter_ = bloom.BloomFilter()
        filter_.add(keys[:1000])
        filter_.add(keys[1000:])
        return filter_.finish()

    whole = block()
    monkeypatch.setattr(bloom, "LINES_AT_ONCE", 7)

    assert block() == whole


def test_the_filter_hides_absent_keys_and_no_present_one(
    tmp_path: Path, memory: RocksMemory
) -> None:
    """Every data block is damaged, so a key that passes the filter is seen as an error."""
    rows = sample(20_000)
    db = ingested(tmp_path / "db", memory, batch(rows))
    for path in (tmp_path / "db").glob("*.sst"):
        file = SstFile(path)
        data = bytearray(file.data)
        for _, handle in file.index:
            data[handle.offset + 10] ^= 0xFF
        path.write_bytes(data)

    present = [is_hidden(db, key) for key, value in pairs(rows) if value is not None]
    absent = [is_hidden(db, key[:-1] + b"\1" + key[-1:]) for key, _ in pairs(rows)]
    alike = [is_hidden(db, key[:-1] + bytes([key[-1] ^ 1])) for key, _ in pairs(rows)]

    assert not any(present)
    assert sum(absent) > 0.97 * len(absent)
    assert sum(alike) > 0.97 * len(alike)
    db.close()


def is_hidden(db: RocksDb, key: bytes) -> bool:
    """Return whether a get found nothing without a read of a data block."""
    try:
        return db.get(int.from_bytes(PREFIX), key[len(PREFIX) :]) is None
    except CorruptError:
        return False


def test_rows_that_do_not_ascend_are_refused(tmp_path: Path) -> None:
    """RocksDB would not find them; its own writer refuses them too."""
    rows = sample(40)
    order = np.arange(40)
    order[[17, 18]] = order[[18, 17]]
    every = np.ones(40, np.bool_)
    values = np.zeros((40, 3), np.uint8)
    swapped = FixedRows(PREFIX, rows.keys[order], values, every)
    repeated = FixedRows(PREFIX, rows.keys[np.sort(order // 2)], values, every)

    for bad in (swapped, repeated):
        with pytest.raises(InternalError, match="ascending"):
            write(tmp_path / "n.sst", bad)
    with pytest.raises(InternalError, match="ascending"):
        write(tmp_path / "n.sst", rows, rows)


DAMAGES: dict[str, Callable[[SstFile], int]] = {
    "data block": lambda file: file.index[1][1].offset + 10,
    "last data block": lambda file: end(file.index[-1][1]) - 1,
    "compression of a data block": lambda file: end(file.index[1][1]),
    "checksum of a data block": lambda file: end(file.index[1][1]) + 2,
    "index": lambda file: end(file.meta["rocksdb.index"]) - 10,
    "metaindex": lambda file: len(file.data) - FOOTER_BYTES - 30,
    "checksum type": lambda file: len(file.data) - FOOTER_BYTES,
    "footer's checksum": lambda file: len(file.data) - FOOTER_BYTES + 6,
    "footer's base": lambda file: len(file.data) - FOOTER_BYTES + 10,
    "footer's size": lambda file: len(file.data) - FOOTER_BYTES + 13,
    "footer's version": lambda file: len(file.data) - FOOTER_BYTES + 41,
    "footer's magic": lambda file: len(file.data) - 1,
    "filter": lambda file: middle(file.meta["fullfilter." + bloom.NAME]),
    "properties": lambda file: end(file.meta["rocksdb.properties"]) - 10,
}


def end(handle: Handle) -> int:
    return handle.offset + handle.size


def middle(handle: Handle) -> int:
    return handle.offset + handle.size // 2


@pytest.mark.parametrize("place", DAMAGES)
def test_a_flipped_byte_gives_an_error_and_no_wrong_row(
    tmp_path: Path, memory: RocksMemory, place: str
) -> None:
    """The local disk may be damaged; the worker then loads from the object store.

    RocksDB reads without a damaged filter; the next test is about it.
    """
    rows = sample()
    db = ingested(tmp_path / "db", memory, batch(rows))
    db.close()
    (path,) = (tmp_path / "db").glob("*.sst")
    data = bytearray(path.read_bytes())
    data[DAMAGES[place](SstFile(path))] ^= 0x55
    path.write_bytes(data)

    failures = 0
    try:
        again = RocksDb(tmp_path / "db", RocksMemory(8 << 20, 8 << 20), create=False)
    except CorruptError:
        failures += 1
    else:
        for key, value in pairs(rows):
            try:
                assert again.get(int.from_bytes(PREFIX), key[len(PREFIX) :]) == value
            except CorruptError:
                failures += 1
        try:
            assert scanned(again) == {k[len(PREFIX) :]: v for k, v in pairs(rows) if v is not None}
        except CorruptError:
            failures += 1
        again.close()
    assert failures or place == "filter"


@pytest.mark.parametrize("has_checksum", [False, True])
def test_an_empty_filter_hides_no_row_unless_its_checksum_is_right(
    tmp_path: Path, memory: RocksMemory, *, has_checksum: bool
) -> None:
    """A row that a damaged filter hides would be taken for a new one, without any error."""
    rows = sample()
    ingested(tmp_path / "db", memory, batch(rows)).close()
    (path,) = (tmp_path / "db").glob("*.sst")
    file = SstFile(path)
    data = bytearray(file.data)
    handle = file.meta["fullfilter." + bloom.NAME]
    data[handle.offset : end(handle) - 5] = bytes(handle.size - 5)  # no bit is set in its lines
    if has_checksum:
        checksum = file.checksum(bytes(data[handle.offset : end(handle) + 1]), handle.offset)
        data[end(handle) + 1 : end(handle) + TRAILER_BYTES] = checksum.to_bytes(4, "little")
    path.write_bytes(data)

    db = RocksDb(tmp_path / "db", RocksMemory(8 << 20, 8 << 20), create=False)
    found = [db.get(int.from_bytes(PREFIX), key[len(PREFIX) :]) for key, _ in pairs(rows)]
    db.close()

    # With a right checksum it is used: so it is the checksum that protects the rows.
    assert found == ([None] * COUNT if has_checksum else [value for _, value in pairs(rows)])


def scanned(db: RocksDb) -> dict[bytes, bytes]:
    cf = int.from_bytes(PREFIX)
    page = db.scan(cf, limit_rows=1 << 20, limit_bytes=1 << 30)
    assert not page.more
    return dict(zip(page.keys, page.values, strict=True))


def test_a_full_disk_is_an_error_of_its_own(
    tmp_path: Path, memory: RocksMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user must free space; the database is broken until the next load."""
    db = RocksDb(tmp_path / "db", memory, create=True)
    ingestion = db.new_ingestion(batch(sample()), 1, frozenset())
    monkeypatch.setattr(Path, "open", lambda _, mode: open("/dev/full", mode))  # noqa: SIM115, PTH123

    with pytest.raises(DiskFullError):
        db.write(ingestion, lambda: True)

    db.close()


def test_a_write_that_is_not_wanted_ends_early(tmp_path: Path, memory: RocksMemory) -> None:
    """A close or a load must not wait for a large file."""
    db = RocksDb(tmp_path / "db", memory, create=True)
    ingestion = db.new_ingestion(batch(sample()), 1, frozenset())

    db.write(ingestion, lambda: False)

    assert not ingestion.has_file
    assert ingestion.path.stat().st_size == 0
    db.close()


def test_a_retired_database_is_not_written(tmp_path: Path, memory: RocksMemory) -> None:
    """Its directory is removed: no file may be created there."""
    db = RocksDb(tmp_path / "db", memory, create=True)
    ingestion = db.new_ingestion(batch(sample()), 1, frozenset())
    db.retire()

    with pytest.raises(ClosedError):
        db.write(ingestion, lambda: True)

    assert not ingestion.path.exists()
    db.close()


@pytest.mark.parametrize(
    "writes",
    [
        [(OP_PUT, 0, b"a", b"1"), (OP_PUT, 0, b"bb", b"1")],
        [(OP_PUT, 0, b"a", b"1"), (OP_PUT, 0, b"b", b"11")],
        [(OP_PUT, 0, b"a", b"1"), (OP_DELETE, 0, b"bb", None)],
        [(OP_PUT, 0, b"a", b"1"), (OP_APPEND, 2, b"known", b"1")],
        [(OP_DELETE, 2, b"known", None), (OP_APPEND, 2, b"known, too", b"1")],
        [(OP_PUT, 0, bytes(MAX_KEY_BYTES + 1), b"1")],
        [(OP_PUT, 0, b"a", b"1"), (OP_DELETE, 1, bytes(MAX_KEY_BYTES + 1), None)],
    ],
)
def test_other_rows_are_left_to_rocksdbs_writer(
    tmp_path: Path, memory: RocksMemory, writes: list[tuple[Any, ...]]
) -> None:
    """Widths that differ, chunks of lists, and long keys."""
    db = RocksDb(tmp_path / "db", memory, create=True, multi_families=frozenset({2}))
    lists = [(OP_APPEND, 2, key, b"1") for key in (b"known", b"known, too")]
    first = db.new_ingestion(record_batch(lists), 1, db.multi_families, may_begin_lists=False)
    first.add(2)
    first.finish()
    db.ingest(first)
    ingestion = db.new_ingestion(record_batch(writes), 2, db.multi_families)

    assert not db.write(ingestion, lambda: True)

    assert ingestion.rows_left >= len(writes)
    assert not ingestion.path.exists()
    db.close()


def record_batch(writes: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*writes, strict=True)
    fields = zip(columns, CHANGELOG_SCHEMA, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in fields], schema=CHANGELOG_SCHEMA)


def test_families_may_have_different_widths(tmp_path: Path, memory: RocksMemory) -> None:
    """A store with timers or several state variables has one family for each."""
    writes = [
        (OP_PUT, 0, b"", b"empty key"),
        (OP_PUT, 1, b"aa", b"1"),
        (OP_DELETE, 1, b"ab", None),
        (OP_PUT, 1, b"ac", b"3"),
        (OP_DELETE, 2, b"a", None),
        (OP_DROP_CF, 3, b"", None),
        (OP_PUT, 4, b"four", b""),
    ]

    db = ingested(tmp_path / "db", memory, record_batch(writes))

    for op, cf, key, value in writes:
        assert db.get(cf, key) == (value if op == OP_PUT else None)
    db.close()


def test_only_dropped_families_make_no_file(tmp_path: Path, memory: RocksMemory) -> None:
    """There is nothing to ingest."""
    db = RocksDb(tmp_path / "db", memory, create=True)
    ingestion = db.new_ingestion(record_batch([(OP_DROP_CF, 3, b"", None)]), 1, frozenset())

    assert db.write(ingestion, lambda: True)

    assert not ingestion.has_file
    db.ingest(ingestion)
    db.close()


def test_a_slice_of_a_batch_is_written_alone(tmp_path: Path, memory: RocksMemory) -> None:
    """Arrow's slices share the buffers of the whole batch."""
    rows = sample(100)

    db = ingested(tmp_path / "db", memory, batch(rows).slice(13, 40))

    expected = dict(pairs(rows)[13:53])
    assert scanned(db) == {
        key[len(PREFIX) :]: value for key, value in expected.items() if value is not None
    }
    db.close()


def test_a_large_file_has_no_deletion_below_all_keys(
    tmp_path: Path, memory: RocksMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only small files must overlap others, so that RocksDB merges them."""
    for limit, keys in ((1, []), (1 << 30, [layout.BELOW_ALL_KEYS])):
        monkeypatch.setattr(ingestions, "SMALL_FILE_BYTES", limit)
        db = RocksDb(tmp_path / str(limit), memory, create=True)
        ingestion = db.new_ingestion(batch(sample()), 1, frozenset())
        db.write(ingestion, lambda: True)

        first = next(SstFile(ingestion.path).entries())

        assert [entry.key for entry in first if len(entry.key) == 1] == keys
        db.close()
