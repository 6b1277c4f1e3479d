"""SparkDatabase: a RocksDB database as Spark's provider makes it, from sorted runs of rows.

Layer: rocks. Each run becomes one SST file, which the database takes over. Files that share a range
of keys are then merged by a compaction: Spark would do that itself, but in its first batches. So
memory does not depend on the number of rows, and the disk has each row at most twice.

Rows are put one by one with RocksDB's own writer. ``cairn.rocks.sst`` writes files of format
version 6, which a Spark with an older RocksDB cannot read, and only rows of fixed widths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from rocksdict import (
    BlockBasedOptions,
    Checkpoint,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)

from cairn.errors import InternalError
from cairn.rocks.failures import Translation

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_BLOOM_BITS_PER_KEY = 10
_BLOCK_BYTES = 4 << 10
_SST_BYTES = 64 << 20
_READAHEAD_BYTES = 256 << 10
"""Of each file that a compaction reads: it may read hundreds."""
_NEVER = 1 << 20  # files in level 0
_LEVELS = 7
_ROWS_AT_ONCE = 1 << 16
_OWN_FILE = "rocksdict-config.json"
_NO_OPERATOR = "merge_operator=nullptr"


class SparkDatabase:
    """See the module. One thread at a time.

    Args:
        folder: of this database alone; created. The caller deletes it.
        format_version: of the SST files.

    Raises:
        DiskFullError: the local disk is full.
    """

    def __init__(self, folder: Path, format_version: int) -> None:
        self._folder = folder
        self._options = _options(format_version)
        self._ingest = IngestExternalFileOptions()
        self._ingest.set_move_files(True)
        self._translated = Translation(str(folder))
        self._rows = 0
        self._is_closed = False
        with self._translated:
            folder.mkdir(parents=True)
            self._db = Rdict(str(folder / "db"), self._options)

    def add(self, keys: pa.Array[Any], values: pa.Array[Any]) -> None:
        """Add one run of rows, at least one; no other run has any of their keys.

        Args:
            keys: binary, each above the one before it.
            values: binary.

        Raises:
            DiskFullError: the local disk is full.
            InternalError: the keys do not ascend.
        """
        path = self._folder / "run.sst"
        with self._translated:
            writer = SstFileWriter(self._options)
            writer.open(str(path))
            for start in range(0, len(keys), _ROWS_AT_ONCE):
                part = slice(start, start + _ROWS_AT_ONCE)
                names = cast("list[bytes]", keys[part].to_pylist())
                for name, value in zip(names, values[part].to_pylist(), strict=True):
                    writer[name] = value
            writer.finish()
            self._db.ingest_external_file([str(path)], self._ingest)
        self._rows += len(keys)

    def finish(self, merge_operator: str) -> Path:
        """Close the database and return the folder of its files; no other file is in it. Once.

        Args:
            merge_operator: its line in the OPTIONS file. The files have no operands of merges, but
                a program that opens the database by its OPTIONS may append to a list.

        Raises:
            DiskFullError: the local disk is full.
            InternalError: two runs have the same key.
        """
        copy = self._folder / "files"
        with self._translated:
            if any(self._files_at(level) for level in range(_LEVELS - 1)):
                self._db.compact_range(None, None)
            found = self._db.property_int_value("rocksdb.estimate-num-keys")
            if found != self._rows:
                raise InternalError(f"{self._rows} rows were given, and {found} have a key")
            checkpoint: Any = Checkpoint(self._db)
            checkpoint.create_checkpoint(str(copy))
            self.close()
            (copy / _OWN_FILE).unlink()
            (options,) = copy.glob("OPTIONS-*")
            text = options.read_text()
            if text.count(_NO_OPERATOR) != 1:
                raise InternalError("RocksDB's OPTIONS have another form")
            options.write_text(text.replace(_NO_OPERATOR, merge_operator))
        return copy

    def close(self) -> None:
        """Close the database; idempotent."""
        if not self._is_closed:
            self._is_closed = True
            with self._translated:
                self._db.close()

    def __enter__(self) -> Self:
        """Return the database."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _files_at(self, level: int) -> int:
        return int(self._db.property_value(f"rocksdb.num-files-at-level{level}") or 0)


def _options(format_version: int) -> Options:
    """Return the options of files and database; Spark opens it with options of its own."""
    table = BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)  # noqa: FBT003 - rocksdict takes it by place
    table.set_block_size(_BLOCK_BYTES)
    table.set_format_version(format_version)
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - see above
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_num_levels(_LEVELS)
    options.set_target_file_size_base(_SST_BYTES)
    options.set_compaction_readahead_size(_READAHEAD_BYTES)
    # All files are merged at once, at the end.
    options.set_level_zero_file_num_compaction_trigger(_NEVER)
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    return options
