"""What Cairn counts: name, unit and meaning of each figure, declared once.

Layer: metrics. The names are what the control channel answers under ``engine``.
"""

from __future__ import annotations

import threading
from typing import Final

METRICS: Final[dict[str, str]] = {
    "gets_count": "keys asked for over the data channel",
    "scanned_rows_count": "rows returned by scans",
    "applied_rows_count": "rows of deltas written into RocksDB",
    "apply_slice_max_us": "longest slice of applying deltas, in microseconds",
    "flushes_count": "memtables flushed because of the worker's bound",
    "commits_count": "versions committed",
    "changelog_bytes": "bytes of changelogs written",
    "loads_count": "versions loaded that were not there already",
    "snapshots_count": "manifests written",
    "snapshot_uploaded_bytes": "bytes of SSTs uploaded",
    "spilled_bytes": "bytes of open sessions' writes that went to the local disk",
    "lists_joined_count": "long lists rewritten as one chunk",
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
        """Keep the larger of what stands and ``value``."""
        with self._lock:
            self._values[name] = max(self._values[name], value)

    def values(self) -> dict[str, int]:
        """Return a copy of all figures."""
        with self._lock:
            return dict(self._values)
