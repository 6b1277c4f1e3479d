"""RocksDB on the local disk, through rocksdict.

Layer: rocks, the only importer of rocksdict. It does not know object stores: it opens a directory,
and creates a directory of hard links for a snapshot.
"""

from __future__ import annotations

from cairn.rocks.database import RocksDb, ScanPage
from cairn.rocks.delta import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT, Delta, sorted_rows
from cairn.rocks.options import RocksMemory, engine_description

__all__ = [
    "OP_APPEND",
    "OP_DELETE",
    "OP_DROP_CF",
    "OP_PUT",
    "Delta",
    "RocksDb",
    "RocksMemory",
    "ScanPage",
    "engine_description",
    "sorted_rows",
]
