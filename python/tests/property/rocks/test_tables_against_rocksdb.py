"""Databases of RocksDB, read from their files without RocksDB: the rows are those of a model.

Files come from flushes, compactions and ingestions, in all compressions and formats of tables. A
row that is read in the wrong order of files would be an old one, without any error.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import (
    BlockBasedOptions,
    Checkpoint,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
    WriteBatch,
)

from cairn.reader.stores.tables import Tables
from cairn.rocks.version_edits import sorted_runs

if TYPE_CHECKING:
    from cairn.rocks.version_edits import LiveFile

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 10
COMPRESSIONS = {
    "none": DBCompressionType.none,
    "snappy": DBCompressionType.snappy,
    "lz4": DBCompressionType.lz4,
    "zstd": DBCompressionType.zstd,
}
STEPS = st.lists(
    st.sampled_from(["write", "write", "write", "ingest", "delete_range", "flush", "compact"]),
    min_size=1,
    max_size=14,
)


@dataclass(frozen=True)
class File:
    """A file on the local disk."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def read(self, offset: int, length: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


class Model:
    """A database with the rows that it must have."""

    def __init__(self, folder: Path, random: Random, compression: str, table_format: int) -> None:
        self.folder = folder
        self.random = random
        self.rows: dict[bytes, bytes] = {}
        self.key_count = random.choice((40, 3000, 30_000))
        options = Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        options.set_write_buffer_size(1 << 20)
        options.set_compression_type(COMPRESSIONS[compression]())
        options.set_target_file_size_base(random.choice((1 << 16, 1 << 20)))
        options.set_level_zero_file_num_compaction_trigger(random.choice((2, 4, 10)))
        table = BlockBasedOptions()
        table.set_format_version(table_format)
        if random.random() < 0.7:
            table.set_bloom_filter(random.choice((2, 10)), random.choice((False, True)))
        options.set_block_based_table_factory(table)
        self.db = Rdict(str(folder / "db"), options)

    def key(self) -> bytes:
        tail = self.random.choice((b"", b"", b"", b"yyy"))
        is_long = self.random.random() < 0.002
        return b"%06d" % self.random.randrange(self.key_count) + tail + b"z" * 300 * is_long

    def run(self, step: str) -> None:
        if step == "flush":
            self.db.flush()
        elif step == "compact":
            self.db.compact_range(None, None)
        elif step == "delete_range":
            self.delete_range()
        elif step == "ingest":
            self.ingest()
        else:
            self.write()

    def write(self) -> None:
        batch = WriteBatch(raw_mode=True)
        for _ in range(self.random.randrange(1, 5000)):
            key = self.key()
            if self.random.random() < 0.2:
                batch.delete(key)
                self.rows.pop(key, None)
            else:
                value = self.random.randbytes(self.random.choice((0, 16, 16, 40)))
                batch.put(key, value)
                self.rows[key] = value
        self.db.write(batch)

    def ingest(self) -> None:
        path = str(self.folder / "ingested.sst")
        writer = SstFileWriter(options=Options(raw_mode=True))
        writer.open(path)
        for key in sorted({self.key() for _ in range(self.random.randrange(1, 1000))}):
            if self.random.random() < 0.2:
                del writer[key]
                self.rows.pop(key, None)
            else:
                self.rows[key] = writer[key] = self.random.randbytes(9)
        writer.finish()
        self.db.ingest_external_file([path], IngestExternalFileOptions())

    def delete_range(self) -> None:
        start, end = sorted((self.key(), self.key()))
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(start, end)
        self.db.write(batch)
        self.rows = {key: value for key, value in self.rows.items() if not start <= key < end}

    def tables(self) -> Tables:
        """Return the tables of a copy that no compaction changes."""
        self.db.flush()
        copy = self.folder / "copy"
        Checkpoint(self.db).create_checkpoint(str(copy))
        manifest = copy / (copy / "CURRENT").read_text().strip()

        def open_file(file: LiveFile) -> File:
            return File(copy / file.name)

        return Tables(sorted_runs(manifest.read_bytes(), str(manifest)), open_file)


def scanned(tables: Tables, start: bytes = b"", end: bytes | None = None) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for batch in tables.scan(start, end):
        batch.validate(full=True)
        assert batch.column("operands").null_count == batch.num_rows
        columns: Any = [batch.column(name).to_pylist() for name in ("key", "value")]
        names, values = columns
        rows.update(zip(names, values, strict=True))
    assert list(rows) == sorted(rows)
    return rows


@settings(max_examples=EXAMPLES)
@given(
    steps=STEPS,
    seed=st.integers(0, 1 << 32),
    compression=st.sampled_from(sorted(COMPRESSIONS)),
    table_format=st.sampled_from([3, 4, 5, 6]),
)
def test_rows_read_from_files_are_those_of_the_model(
    steps: list[str], seed: int, compression: str, table_format: int
) -> None:
    """Scans of everything and of a range, and single keys, present and absent."""
    with tempfile.TemporaryDirectory(prefix="cairn-tables-") as folder:
        model = Model(Path(folder), Random(seed), compression, table_format)
        for step in steps:
            model.run(step)
        tables = model.tables()

        found = scanned(tables)
        start, end = sorted((model.key(), model.key()))
        in_range = scanned(tables, start, end)
        keys = [model.key() for _ in range(20)]
        entries = [tables.get(key) for key in keys]

        assert found == model.rows
        assert in_range == {k: v for k, v in model.rows.items() if start <= k < end}
        for key, entry in zip(keys, entries, strict=True):
            assert (entry and entry.value) == model.rows.get(key)
        model.db.close()
