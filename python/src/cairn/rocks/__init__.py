"""RocksDB on the local disk, through rocksdict.

Layer: rocks, the only importer of rocksdict. It does not use object stores: it opens a directory,
and creates a directory of hard links for a snapshot.
"""

from __future__ import annotations

from cairn.rocks.database import RocksDb
from cairn.rocks.ingestion import Ingestion
from cairn.rocks.options import RocksMemory, engine_description
from cairn.rocks.spark_database import SparkDatabase

__all__ = [
    "Ingestion",
    "RocksDb",
    "RocksMemory",
    "SparkDatabase",
    "engine_description",
]
