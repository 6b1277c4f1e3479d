"""RocksDB on the local disk, through rocksdict.

Layer: rocks, the only importer of rocksdict. It never hears of object stores: a directory comes
in, a directory of hard links goes out.
"""

from __future__ import annotations

from cairn.rocks.database import RocksDb, ScanPage
from cairn.rocks.delta import Delta, sorted_rows
from cairn.rocks.options import RocksMemory, engine_description

__all__ = [
    "Delta",
    "RocksDb",
    "RocksMemory",
    "ScanPage",
    "engine_description",
    "sorted_rows",
]
