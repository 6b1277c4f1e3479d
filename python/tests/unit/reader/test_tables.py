"""The memory of a scan: of files that it reads whole it keeps nothing."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from rocksdict import Options, Rdict, SstFileWriter

from cairn.reader.stores.tables import Tables
from cairn.rocks.version_edits import sorted_runs

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.rocks.version_edits import LiveFile

FILES, ROWS_PER_FILE = 40, 5000


class LocalFile:
    """A file on the local disk that can be watched."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.path = path
        self.size_bytes = path.stat().st_size
        self.reads: list[int] = []

    def read(self, offset: int, length: int) -> bytes:
        """Return a part, and note its length."""
        self.reads.append(length)
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)


class Database:
    """A database with one sorted run of many files."""

    def __init__(self, folder: Path) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(create_if_missing=True)
        self.folder = folder / "db"
        self.opened: list[weakref.ref[LocalFile]] = []
        self.reads: dict[str, list[int]] = {}
        db = Rdict(str(self.folder), options)
        for number in range(FILES):
            path = str(folder / "one.sst")
            writer = SstFileWriter(options=options)
            writer.open(path)
            for row in range(ROWS_PER_FILE):
                writer[key_of(number * ROWS_PER_FILE + row)] = b"%032d" % row
            writer.finish()
            db.ingest_external_file([path])
        db.close()
        manifest = self.folder / (self.folder / "CURRENT").read_text().strip()
        self.tables = Tables(sorted_runs(manifest.read_bytes(), str(manifest)), self.open_file)

    def open_file(self, file: LiveFile) -> LocalFile:
        """Open a file, and watch it."""
        opened = LocalFile(self.folder / file.name)
        self.opened.append(weakref.ref(opened))
        self.reads[file.name] = opened.reads
        return opened

    def held(self) -> int:
        """Return how many of the opened files are held by anything."""
        gc.collect()
        return sum(one() is not None for one in self.opened)


def key_of(number: int) -> bytes:
    return b"key%08d" % number


def test_a_scan_of_all_rows_holds_one_file_of_a_run(tmp_path: Path) -> None:
    """The ends of all files, with their indexes, would be as large as the state is."""
    database = Database(tmp_path)
    rows = held = 0

    for batch in database.tables.scan():
        rows += batch.num_rows
        held = max(held, database.held())

    assert rows == FILES * ROWS_PER_FILE
    assert len(database.opened) == FILES
    assert held <= 2
    assert database.held() == 0


def test_scans_of_ranges_that_follow_each_other_open_a_file_once(tmp_path: Path) -> None:
    """A part of a store is read at a time; a file at its limit is kept for the next one."""
    database = Database(tmp_path)
    bounds = list(range(0, FILES * ROWS_PER_FILE, ROWS_PER_FILE // 4))
    found: list[Any] = []

    for start in bounds:
        end = key_of(start + ROWS_PER_FILE // 4)
        for batch in database.tables.scan(key_of(start), end):
            found += batch.column("key").to_pylist()

    assert found == [key_of(number) for number in range(FILES * ROWS_PER_FILE)]
    assert len(database.opened) == FILES


def test_a_scan_reads_the_bytes_of_a_file_once(tmp_path: Path) -> None:
    """Apart from its end, which is read first, and again where a data block begins in it."""
    database = Database(tmp_path)

    for _ in database.tables.scan():
        pass

    for name, reads in database.reads.items():
        assert sum(reads) <= (database.folder / name).stat().st_size + (64 << 10)
