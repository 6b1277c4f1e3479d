"""How many requests to S3 an event needs: figures that were counted, with their sources.

Layer: reader.  Spec: docs/operations.md#requests-to-s3, and ``benchmarks/results/requests.md``,
whose counts by kind are in ``benchmarks/results/s3-requests.json``: 20 batches of 4 stores under
Spark's RocksDB provider, counted by the server.
"""

from __future__ import annotations

import math
from typing import Final, Literal, TypeAlias

from cairn.reader.prices import Requests

FileManager: TypeAlias = Literal["cairn", "rename", "abortable"]
FILE_MANAGERS: Final[tuple[FileManager, ...]] = ("cairn", "rename", "abortable")
"""Cairn's, Spark's default, and that of spark-hadoop-cloud."""

_MIB: Final = 1 << 20
_PARTS_ABOVE_BYTES: Final = 64 * _MIB
_PART_BYTES: Final = 8 * _MIB

# -- Cairn's stores: docs/operations.md#requests-to-s3 ---------------------------------------------

COMMIT: Final = Requests(put=1)
"""Of a store; in format 2 only if it has written."""
SNAPSHOT: Final = Requests(put=1, get=2, delete=2)
"""Its manifest, the check of the checkpoint, old manifests and SSTs; SSTs come in addition."""
PURGE: Final = Requests(get=2, list=2)
"""The check of the checkpoint; pins and manifests."""
PURGE_INTERVAL_S: Final = 600
PURGED_IN_FORMAT_1: Final = Requests(get=1)
"""Per changelog that is deleted: as many as are written."""
PURGED: Final = Requests(delete=0.01)
"""Per changelog: 100 per request."""
SWEEP: Final = Requests(list=4)
SWEEP_INTERVAL_S: Final = 86_400


def upload(size_bytes: float) -> Requests:
    """Return what the upload of an SST needs: above 64 MiB a part per 8 MiB, and two more."""
    if size_bytes <= _PARTS_ABOVE_BYTES:
        return Requests(put=1)
    return Requests(put=math.ceil(size_bytes / _PART_BYTES) + 2)


# -- files of Spark's providers: s3-requests.json --------------------------------------------------

# "commit": 80 files. The HDFS-backed provider writes its files by the same file manager.
_COMMIT_BY_RENAME: Final = Requests(
    put=80 / 80, copy=80 / 80, delete=80 / 80, head=908 / 80, list=672 / 80
)
_COMMIT_ABORTABLE: Final = Requests(put=80 / 80, head=172 / 80, list=256 / 80)
# "snapshot": 8 snapshots with one SST each, which is sent by a PUT of its own.
_SNAPSHOT_BY_RENAME: Final = Requests(put=8 / 8, copy=8 / 8, delete=8 / 8, head=72 / 8, list=48 / 8)
_SNAPSHOT_ABORTABLE: Final = Requests(put=8 / 8, head=16 / 8, list=24 / 8)


def state_file(manager: FileManager, *, is_snapshot: bool) -> Requests:
    """Return what a file of one of Spark's providers needs.

    With Cairn's file manager it was not counted: then it is at most that of spark-hadoop-cloud's.
    """
    if manager == "rename":
        return _SNAPSHOT_BY_RENAME if is_snapshot else _COMMIT_BY_RENAME
    return _SNAPSHOT_ABORTABLE if is_snapshot else _COMMIT_ABORTABLE


# -- Spark's own files -----------------------------------------------------------------------------

# s3-requests.json, "elsewhere": 60 files, three per batch.
_LOG_FILES: Final = {
    "rename": Requests(
        put=60 / 60, copy=60 / 60, delete=60 / 60, head=796 / 60, list=540 / 60, get=31 / 60
    ),
    "abortable": Requests(put=60 / 60, head=376 / 60, list=300 / 60, get=32 / 60),
    # docs/operations.md: a PUT per file, and a DeleteObjects per 100 old ones.
    "cairn": Requests(put=1, delete=0.01),
}
LOGS: Final = 2
"""Files per batch: its offsets and its commit. A source with a log of its own has one more."""
SOURCE_LOG_OF_CAIRN: Final = Requests(list=1)
"""More per batch and source with Cairn's file manager, once Spark looks for old entries."""
SOURCE_LOG_FROM_BATCH: Final = 110


def log_file(manager: FileManager) -> Requests:
    """Return what an entry of Spark's logs needs."""
    return _LOG_FILES[manager]
