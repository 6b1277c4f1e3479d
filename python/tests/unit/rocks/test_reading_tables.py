"""Files of RocksDB that are damaged, or that neither Cairn nor Spark writes: errors, never rows."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    ChecksumType,
    Options,
    Rdict,
    WriteBatch,
)

from cairn.errors import CairnError, CorruptError, UnsupportedStateError
from cairn.rocks.sst.decoding import DELETE, PUT
from cairn.rocks.sst.reading import TableReader
from cairn.rocks.version_edits import sorted_runs

ROWS = {b"key%05d" % number: b"value %d" % number for number in range(3000)}


class Bytes:
    """A file in memory."""

    name = "000009.sst"

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)
        self.reads: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return a part, and note its length."""
        self.reads.append(length)
        return self.data[offset : offset + length]


def new_database(folder: Path, table: BlockBasedOptions | None = None) -> Path:
    """Return the folder of a database with ``ROWS`` in one file, without the first ten."""
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    if table is not None:
        options.set_block_based_table_factory(table)
    db = Rdict(str(folder), options)
    batch = WriteBatch(raw_mode=True)
    for key, value in ROWS.items():
        batch.put(key, value)
    db.write(batch)
    batch = WriteBatch(raw_mode=True)
    for key in list(ROWS)[:10]:
        batch.delete(key)
    db.write(batch)
    db.flush()
    db.close()
    return folder


def manifest_of(folder: Path) -> bytes:
    """Return the MANIFEST that the database uses."""
    return (folder / (folder / "CURRENT").read_text().strip()).read_bytes()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a database."""
    return new_database(tmp_path_factory.mktemp("rocks") / "db")


@pytest.fixture(scope="module")
def table(database: Path) -> bytes:
    """Return its only SST file."""
    ((file,),) = sorted_runs(manifest_of(database), "MANIFEST")
    return (database / file.name).read_bytes()


def read_all(data: bytes) -> list[tuple[bytes, int, bytes]]:
    """Return keys, kinds and values of a file."""
    rows: list[tuple[bytes, int, bytes]] = []
    for part in TableReader(Bytes(data)).scan(b"", None, 1 << 20):
        part.keys.validate(full=True)
        part.values.validate(full=True)
        columns: Any = (part.keys.to_pylist(), part.kinds.tolist(), part.values.to_pylist())
        rows += zip(*columns, strict=True)
    return rows


def rows_or_failure(data: bytes) -> tuple[list[tuple[bytes, int, bytes]], CairnError | None]:
    """Return the rows of a file, or the error of reading it."""
    try:
        return read_all(data), None
    except (CorruptError, UnsupportedStateError) as failure:
        return [], failure


def test_a_file_has_its_rows_in_order(table: bytes) -> None:
    """What was deleted is there as a delete: it hides rows of older files."""
    rows = read_all(table)

    assert [key for key, *_ in rows] == list(ROWS)
    assert [kind for _, kind, _ in rows] == [DELETE] * 10 + [PUT] * 2990
    assert {key: value for key, kind, value in rows if kind == PUT} == dict(list(ROWS.items())[10:])


def test_one_key_of_a_small_file_costs_one_read(table: bytes) -> None:
    """The end of the file, which is read first, is all of it."""
    file = Bytes(table)

    reader = TableReader(file)
    (part,) = reader.scan(b"key01000", b"key01000\0", 1 << 20)

    assert b"key01000" in part.keys.to_pylist()
    assert len(file.reads) == 1


def test_one_key_of_a_large_file_costs_two_reads(tmp_path: Path) -> None:
    """The index comes with the end of the file, and the block is read alone."""
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    table = BlockBasedOptions()
    table.set_block_size(256)
    options.set_block_based_table_factory(table)
    db = Rdict(str(tmp_path), options)
    for number in range(30_000):
        db[b"key%05d" % number] = sha256(b"%d" % number).digest()
    db.flush()
    db.close()
    ((live,),) = sorted_runs(manifest_of(tmp_path), "MANIFEST")
    file = Bytes((tmp_path / live.name).read_bytes())

    reader = TableReader(file, live.tail_bytes)
    (part,) = reader.scan(b"key01000", b"key01000\0", 1 << 20)

    assert b"key01000" in part.keys.to_pylist()
    assert live.tail_bytes > 64 << 10
    assert file.reads[0] == live.tail_bytes
    assert file.reads[1] < 1000
    assert len(file.reads) == 2


def test_every_flipped_bit_is_found(table: bytes) -> None:
    """A checksum covers each block and the footer: no damaged row is ever returned."""
    intact = read_all(table)

    for at in range(0, len(table), 97):
        damaged = bytearray(table)
        damaged[at] ^= 1 << at % 8
        rows, failure = rows_or_failure(bytes(damaged))
        # Without an error it was in a filter, or a number that nobody reads.
        assert rows == intact if failure is None else failure.object_name == "000009.sst"


def test_an_index_that_no_checksum_guards_gives_errors_or_the_same_rows(tmp_path: Path) -> None:
    """Sizes below zero, blocks in each other, keys in another order, fewer blocks."""
    options = BlockBasedOptions()
    options.set_checksum_type(ChecksumType.no_checksum())
    options.set_block_size(512)
    folder = new_database(tmp_path / "db", options)
    ((file,),) = sorted_runs(manifest_of(folder), "MANIFEST")
    data = (folder / file.name).read_bytes()
    intact = read_all(data)
    tail_at = len(data) - file.tail_bytes
    failures = 0

    for at in range(tail_at, len(data), 5):
        for mask in (0x01, 0x7F, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= mask
            rows, failure = rows_or_failure(bytes(damaged))
            failures += failure is not None
            assert failure is not None or rows == intact
    assert failures > 100


def test_the_empty_key_is_found_behind_a_filter(tmp_path: Path) -> None:
    """RocksDB's filters do not have it."""
    options = BlockBasedOptions()
    options.set_bloom_filter(10, block_based=False)
    folder = tmp_path / "db"
    database_options = Options(raw_mode=True)
    database_options.create_if_missing(create_if_missing=True)
    database_options.set_block_based_table_factory(options)
    db = Rdict(str(folder), database_options)
    db[b""], db[b"a"] = b"of nothing", b"of a"
    db.flush()
    db.close()
    ((file,),) = sorted_runs(manifest_of(folder), "MANIFEST")

    reader = TableReader(Bytes((folder / file.name).read_bytes()))

    assert reader.may_have(b"")
    assert not reader.may_have(b"b")


@pytest.mark.parametrize("length", [0, 1, 52, 53, 100, 5000])
def test_a_file_that_was_cut_is_corrupt(table: bytes, length: int) -> None:
    """A file without its end has no index: nothing of it may be taken for all of it."""
    with pytest.raises(CorruptError, match=r"000009\.sst"):
        read_all(table[:length])


def test_an_index_of_several_levels_is_refused(tmp_path: Path) -> None:
    """Its first level would look as if the file had few blocks."""
    options = BlockBasedOptions()
    options.set_index_type(BlockBasedIndexType.two_level_index_search())
    folder = new_database(tmp_path / "db", options)
    ((file,),) = sorted_runs(manifest_of(folder), "MANIFEST")

    with pytest.raises(UnsupportedStateError, match="several levels"):
        read_all((folder / file.name).read_bytes())


def test_a_list_of_files_that_is_damaged_is_corrupt(database: Path) -> None:
    """A file that is missing in the list would be rows that are missing."""
    manifest = manifest_of(database)

    for at in range(len(manifest.rstrip(b"\0"))):
        damaged = bytearray(manifest)
        damaged[at] ^= 1
        with pytest.raises((CorruptError, UnsupportedStateError), match="MANIFEST-5"):
            sorted_runs(bytes(damaged), "MANIFEST-5")


def test_a_list_of_files_that_was_cut_within_a_record_is_corrupt(database: Path) -> None:
    """A cut between two records cannot be seen: the checkpoint's own checksum covers that."""
    manifest = manifest_of(database).rstrip(b"\0")

    with pytest.raises(CorruptError, match="MANIFEST-5"):
        sorted_runs(manifest[:-1], "MANIFEST-5")
