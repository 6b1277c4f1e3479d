"""RocksDB's options, each with its reason, and the memory that all databases of a worker share.

Layer: rocks.
"""

from __future__ import annotations

import importlib.metadata
import threading
from dataclasses import dataclass, field

from rocksdict import (
    BlockBasedOptions,
    Cache,
    ChecksumType,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    WriteOptions,
)

_MIB = 1 << 20
_BLOOM_BITS_PER_KEY = 10
_SST_BYTES = 16 * _MIB
_ARENA_BLOCK_BYTES = 64 * 1024
# A read of a key whose block is in no cache decompresses the whole block. Blocks of half the size
# made such reads no faster, and the files took a fifth more CPU.
BLOCK_BYTES = 8 * 1024
_KEPT_DIVISOR = 4
"""This part of the block cache is never lent: indexes and filters of new files need it."""
_MIN_OPEN_FILES = 16
MANIFEST_BYTES = 256 * 1024
_ENTRIES_OF_ANY_SIZE = 0
_NEVER = 1 << 20  # files in level 0
_FILES_BEFORE_COMPACTION = 10
_READ_FILES_BEFORE_COMPACTION = 4


@dataclass
class RocksMemory:
    """Shared by the databases of one worker: a block cache, and a bound on their memtables.

    What the block cache does not need may be lent to another use. Reads leave no blocks in it
    meanwhile: RocksDB's cache ignores a smaller capacity (rocksdict 0.3.29).

    Args:
        cache_bytes: blocks, indexes and filters of all databases.
        memtable_bytes: memtables of all databases; above it the store flushes the largest one,
            because RocksDB's write buffer manager does not flush idle databases.
        open_files: file descriptors; a database gets this number divided by the number of open
            databases. Its share never changes, so the first databases keep larger shares, and all
            together may use several times this number.
        database_count: number of open databases; see ``count_database``.

    Attributes:
        is_lent: whether a part of the block cache is in another use now.
    """

    cache_bytes: int
    memtable_bytes: int
    open_files: int = 4096
    database_count: int = 0
    cache: Cache = field(init=False)
    is_lent: bool = field(init=False, default=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        # RocksDB's LRU cache would have 64 shards of half a megabyte, about the size of one file's
        # filter: a random get then reads whole filters from disk (over 100 us instead of 2 us).
        self.cache = Cache.new_hyper_clock_cache(self.cache_bytes, _ENTRIES_OF_ANY_SIZE)

    def count_database(self, change: int) -> None:
        """Add to ``database_count``. Any thread."""
        with self._lock:
            self.database_count += change

    @property
    def write_buffer_bytes(self) -> int:
        """Size at which RocksDB itself flushes the memtable of a database."""
        return max(min(self.memtable_bytes // 4, 16 * _MIB), 1 * _MIB)

    def cached_bytes(self) -> int:
        """Return the bytes in the block cache."""
        return int(self.cache.get_usage())

    def spare_bytes(self) -> int:
        """Return how much of the block cache may be lent, or is lent already. Any thread."""
        needed = max(self.cached_bytes(), self.cache_bytes // _KEPT_DIVISOR)
        return max(self.cache_bytes - needed, 0)


def _table_options() -> BlockBasedOptions:
    table = BlockBasedOptions()
    # 10 bits per key: 1 % false positives, so that absent keys cost no read.
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)  # noqa: FBT003 - rocksdict takes it by place
    table.set_block_size(BLOCK_BYTES)
    # Each block that is read is checked. CRC32C, without the processor's instruction in rocksdict,
    # took a seventh of a worker's CPU where most reads miss all caches.
    table.set_checksum_type(ChecksumType.xxh3())
    return table


def file_options() -> Options:
    """Return the options of the SST files that are ingested."""
    options = Options(raw_mode=True)  # plain bytes instead of rocksdict's pickles
    options.set_block_based_table_factory(_table_options())
    options.set_compression_type(DBCompressionType.lz4())
    return options


def database_options(memory: RocksMemory, *, create: bool) -> Options:
    """Return the options of one database.

    Args:
        memory: shared with the others.
        create: whether to create the database; ``False`` for a restored one, where a missing
            CURRENT must be an error and not an empty database.
    """
    table = _table_options()
    # One cache for all, with indexes and filters in it: the bound then covers them too.
    table.set_block_cache(memory.cache)
    table.set_cache_index_and_filter_blocks(True)
    # Every get searches the newest files first: their filters must stay in the cache.
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)

    options = Options(raw_mode=True)
    options.create_if_missing(create)
    options.set_block_based_table_factory(table)
    # A hundred small databases used 105 MB of memtables with the default block, 7 MB with this.
    options.set_arena_block_size(_ARENA_BLOCK_BYTES)
    options.set_write_buffer_size(memory.write_buffer_bytes)
    # A write that RocksDB delays or stops holds the GIL and blocks the whole worker. So RocksDB
    # must not slow writes down and has four memtables. The store checks for stops before it writes.
    options.set_max_write_buffer_number(4)
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    # Each ingested file has the merged rows of several versions. Universal compaction rewrites a
    # row less often than levels do, so it costs less CPU and a snapshot uploads fewer bytes.
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_level_zero_file_num_compaction_trigger(_FILES_BEFORE_COMPACTION)
    options.set_compression_type(DBCompressionType.lz4())
    # A snapshot uploads the files that compaction rewrote; small files mean fewer bytes.
    options.set_target_file_size_base(_SST_BYTES)
    # A worker has few cores: one flush and one compaction at a time.
    options.set_max_background_jobs(2)
    share = memory.open_files // max(memory.database_count, 1)
    options.set_max_open_files(max(share, _MIN_OPEN_FILES))
    # An open holds the GIL. Starting the default of 16 threads takes a fifth of its time.
    options.set_max_file_opening_threads(1)
    # Do not read the statistics of every table at open.
    options.set_skip_stats_update_on_db_open(True)
    # By default each idle database keeps logs and wakes a thread for statistics.
    options.set_max_log_file_size(1 * _MIB)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    # Each snapshot contains RocksDB's manifest. It grows with each flush and each ingested file, so
    # it is replaced at this size by a new one, which has one entry per file: 170 bytes.
    options.set_max_manifest_file_size(MANIFEST_BYTES)
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_paranoid_checks(True)
    return options


def compaction_options(*, is_read: bool) -> dict[str, str]:
    """Return the options that change with the use of an open database.

    Args:
        is_read: many reads search its files: to merge them early then costs less CPU than it saves.
            Otherwise to merge them late saves CPU, and half of the bytes that snapshots upload.
    """
    files = _READ_FILES_BEFORE_COMPACTION if is_read else _FILES_BEFORE_COMPACTION
    return {"level0_file_num_compaction_trigger": str(files)}


def write_options() -> WriteOptions:
    """Return the options of every write: no WAL."""
    options = WriteOptions()
    # The changelog in the object store is the log; no directory is opened again after a crash.
    options.disable_wal = True  # type: ignore[method-assign,assignment] # a property; the .pyi errs
    return options


def engine_description() -> dict[str, object]:
    """Return the manifest's description of the engine that wrote the SSTs, for people."""
    return {
        "name": "rocksdict",
        "version": importlib.metadata.version("rocksdict"),
        "options": {
            "bloom_bits_per_key": _BLOOM_BITS_PER_KEY,
            "block_bytes": BLOCK_BYTES,
            "compaction": "universal",
            "compression": "lz4",
            "target_file_bytes": _SST_BYTES,
        },
    }
