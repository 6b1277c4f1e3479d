"""RocksDB's options, each with its reason, and the memory that all databases of a worker share.

Layer: rocks.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteOptions,
)

_MIB = 1 << 20
_BLOOM_BITS_PER_KEY = 10
_SST_BYTES = 16 * _MIB
_ARENA_BLOCK_BYTES = 64 * 1024
_BLOCK_BYTES = 8 * 1024
_MIN_OPEN_FILES = 16
_ENTRIES_OF_ANY_SIZE = 0
_NEVER = 1 << 20  # files in level 0


@dataclass
class RocksMemory:
    """What the databases of one worker share: a block cache, and a bound on their memtables.

    Args:
        cache_bytes: blocks, indexes and filters of all databases.
        memtable_bytes: memtables of all databases; the store flushes the largest above it, because
            RocksDB's own write buffer manager leaves idle databases alone.
        open_files: file descriptors, split between the databases that are open when one more is
            opened. RocksDB fixes a share at opening: those opened first keep the larger ones, so
            all together may hold some times as many.
        database_count: of those open now; kept by the databases.
    """

    cache_bytes: int
    memtable_bytes: int
    open_files: int = 4096
    database_count: int = 0
    cache: Cache = field(init=False)

    def __post_init__(self) -> None:
        # RocksDB's LRU cache would be 64 shards of half a megabyte, hardly more than one file's
        # filter: a random get then read whole filters from disk (100 us and more, 2 us so).
        self.cache = Cache.new_hyper_clock_cache(self.cache_bytes, _ENTRIES_OF_ANY_SIZE)

    @property
    def write_buffer_bytes(self) -> int:
        """Size at which one database's memtable is flushed by RocksDB itself."""
        return max(min(self.memtable_bytes // 4, 16 * _MIB), 1 * _MIB)

    def cached_bytes(self) -> int:
        """Return what the block cache holds now."""
        return int(self.cache.get_usage())


def database_options(memory: RocksMemory, *, create: bool) -> Options:
    """Return the options of one database.

    Args:
        memory: what it shares with the others.
        create: make the directory's database; ``False`` for a restored one, where a missing
            CURRENT must be an error and not an empty database.
    """
    table = BlockBasedOptions()
    # 10 bits a key: 1 % false positives, so that absent keys cost no read. Whole keys are asked.
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)  # noqa: FBT003 - rocksdict takes it by place
    # One cache for all, with indexes and filters in it: the bound then covers them too.
    table.set_block_cache(memory.cache)
    table.set_cache_index_and_filter_blocks(True)
    # The newest files are asked first by every get: their filters must not fall out of the cache.
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    # Twice the default: state rows are small and scans many, and the index halves.
    table.set_block_size(_BLOCK_BYTES)

    options = Options(raw_mode=True)  # bytes in, bytes out: never rocksdict's pickles
    options.create_if_missing(create)
    options.set_block_based_table_factory(table)
    # A hundred small databases counted 105 MB of memtables with the default block, 7 MB so.
    options.set_arena_block_size(_ARENA_BLOCK_BYTES)
    options.set_write_buffer_size(memory.write_buffer_bytes)
    # A write that RocksDB delays or stops would wait holding the GIL, and with it the whole worker:
    # no slowdown by files or debts, room for some memtables, and the store asks before it writes.
    options.set_max_write_buffer_number(4)
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    # LZ4 costs little on the way in; the last level, most of the bytes, is worth zstd.
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    # Small files: a snapshot uploads what compaction rewrote, so less is rewritten whole.
    options.set_target_file_size_base(_SST_BYTES)
    options.set_max_bytes_for_level_base(4 * _SST_BYTES)
    options.set_level_compaction_dynamic_level_bytes(True)
    # The worker has few cores: one flush and one compaction at a time.
    options.set_max_background_jobs(2)
    share = memory.open_files // max(memory.database_count, 1)
    options.set_max_open_files(max(share, _MIN_OPEN_FILES))
    # An opened file is read whole when its checksum is made: no prefetch of tables at open.
    options.set_skip_stats_update_on_db_open(True)
    # Without these each idle database keeps logs and a thread waking for statistics.
    options.set_max_log_file_size(1 * _MIB)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    # The manifest is inlined in our own: small is good, and preallocation is wasted on it.
    options.set_manifest_preallocation_size(64 * 1024)
    options.set_paranoid_checks(True)
    return options


def delta_write_options() -> WriteOptions:
    """Return the options of every write: no WAL, and a hint that suits sorted rows."""
    options = WriteOptions()
    # The changelog in the object store is the log; a directory that died is never opened again.
    options.disable_wal = True  # type: ignore[method-assign,assignment] # a property; the .pyi errs
    # Sorted rows go in next to the row before: 70 ns instead of 1,000 a row.
    options.memtable_insert_hint_per_batch = True
    return options


def engine_description() -> dict[str, object]:
    """Return what a manifest says, for people, about who wrote its SSTs."""
    return {
        "name": "rocksdict",
        "version": importlib.metadata.version("rocksdict"),
        "options": {
            "bloom_bits_per_key": _BLOOM_BITS_PER_KEY,
            "block_bytes": _BLOCK_BYTES,
            "compression": "lz4",
            "bottommost_compression": "zstd",
            "target_file_bytes": _SST_BYTES,
        },
    }
