"""The engine's metrics: name, unit and meaning of each, declared once.

Layer: metrics. The control channel reports them under ``engine``.
"""

from __future__ import annotations

import threading
from typing import Final

METRICS: Final[dict[str, str]] = {
    "gets_count": "keys requested over the data channel",
    "scanned_rows_count": "rows returned by scans",
    "written_rows_count": "rows written into RocksDB",
    "write_slice_max_us": "longest slice of writing rows into RocksDB, in microseconds",
    "flushes_count": "memtables flushed because of the worker's bound",
    "commits_count": "versions committed",
    "changelog_bytes": "bytes of changelogs written",
    "loads_count": "versions loaded that the instance did not already have",
    "downloaded_bytes": "bytes that loads have downloaded, also those that did not end",
    "repairs_count": "loads that went around a damaged or missing object",
    "snapshots_count": "manifests written",
    "snapshot_uploaded_bytes": "bytes of SSTs uploaded",
    "spilled_bytes": "bytes of open sessions' writes spilled to the local disk",
    "lists_joined_count": "long lists rewritten as one row",
}


class Metrics:
    """Counters of one instance or worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, int] = dict.fromkeys(METRICS, 0)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter of ``METRICS``."""
        with self._lock:
            self._values[name] += amount

    def raise_to(self, name: str, value: int) -> None:
        """Set a metric to ``value`` if that is larger than its present value."""
        with self._lock:
            self._values[name] = max(self._values[name], value)

    def values(self) -> dict[str, int]:
        """Return a copy of all metrics."""
        with self._lock:
            return dict(self._values)
