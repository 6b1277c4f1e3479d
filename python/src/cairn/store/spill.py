"""Spill: an open session's writes as sorted runs on the local disk, which its reads search.

Layer: store. Runs are not in RocksDB. A run is a memory-mapped Arrow file in the session's
directory. Runs of similar size are merged while they are small: reads then search few runs, and
each row is written only a few times. A key is found in a run by bisection, first over every 64th
key, in memory, then over the mapped keys. The commit of a session with runs sorts all of them at
once, in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute

from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.store.writes import coalesce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_FENCE_ROWS = 64


class _Keys:
    """A binary column as a sequence of bytes; does not copy the column."""

    def __init__(self, column: pa.Array[Any]) -> None:
        _, offsets, data = column.buffers()
        # An empty column may have neither buffer.
        self._offsets = memoryview(offsets or b"\0\0\0\0").cast("i")[column.offset :]
        self._data = memoryview(data or b"")
        self._count = len(column)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._data[self._offsets[index] : self._offsets[index + 1]])


class Run:
    """Coalesced, sorted writes of one session. Immutable, thread-safe.

    Args:
        rows: as ``writes.coalesce`` returns them.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._keys = _Keys(rows.column("key"))
        self._families: dict[int, tuple[int, int]] = {}
        self._fences: dict[int, list[bytes]] = {}
        start = 0
        for entry in pc.value_counts(rows.column("cf")).to_pylist():
            cf, end = entry["values"], start + entry["counts"]
            self._families[cf] = (start, end)
            self._fences[cf] = [self._keys[row] for row in range(start, end, _FENCE_ROWS)]
            start = end
        dropped = rows.column("cf").filter(pc.equal(rows.column("op"), OP_DROP_CF))
        self.dropped = frozenset(dropped.to_pylist())

    def _row_of(self, cf: int, key: bytes) -> int:
        """Return the first row of a family whose key is not below ``key``, or the family's end."""
        start, end = self._families.get(cf, (0, 0))
        if start == end:
            return end
        fence = bisect_left(self._fences[cf], key)
        low = start + max(fence - 1, 0) * _FENCE_ROWS
        return bisect_left(self._keys, key, low, min(start + fence * _FENCE_ROWS, end))

    def find(self, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return op and value of a key's write, or ``None``."""
        if cf in self.dropped:
            return OP_DELETE, None
        _, end = self._families.get(cf, (0, 0))
        row = self._row_of(cf, key)
        if row == end or self._keys[row] != key:
            return None
        op, value = self.rows.column("op")[row].as_py(), self.rows.column("value")[row].as_py()
        return cast("int", op), cast("bytes | None", value)

    def between(
        self, cf: int, start: bytes | None, end: bytes | None, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return up to ``limit`` keys from ``start`` to before ``end``, and whether more follow."""
        first, last = self._families.get(cf, (0, 0))
        if cf in self.dropped:
            return [], False
        if start is not None:
            first = self._row_of(cf, start)
        if end is not None:
            last = max(first, self._row_of(cf, end))
        stop = min(last, first + limit)
        keys = self.rows.column("key").slice(first, max(stop - first, 0)).to_pylist()
        return cast("list[bytes]", keys), stop < last


class Spill:
    """All runs of a session; the newest write of a key wins. Immutable, thread-safe.

    Args:
        runs: from the oldest to the newest.
    """

    def __init__(self, runs: tuple[Run, ...] = ()) -> None:
        self.runs = runs

    def __bool__(self) -> bool:
        """Whether there is any run."""
        return bool(self.runs)

    def batches(self) -> list[pa.RecordBatch]:
        """Return the rows of all runs, in the order of the writes."""
        return [run.rows for run in self.runs]

    def find(self, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return the net op and value of all writes of a key; ``None`` if there are none."""
        parts: list[bytes] = []
        for run in reversed(self.runs):
            hit = run.find(cf, key)
            if hit is None:
                continue
            op, value = hit
            if op == OP_DELETE:
                return (OP_PUT, b"".join(reversed(parts))) if parts else (OP_DELETE, None)
            parts.append(value or b"")
            if op == OP_PUT:
                return OP_PUT, b"".join(reversed(parts))
        return (OP_APPEND, b"".join(reversed(parts))) if parts else None


class RunFiles:
    """Writes runs to the local disk. One caller at a time.

    Args:
        directory: where the files are; created with the first one.
        merge_bytes: size of the largest merged run.
        note_spilled: see ``SessionThreads``.
    """

    def __init__(
        self, directory: Path, merge_bytes: int, note_spilled: Callable[[int], None]
    ) -> None:
        self._directory = directory
        self._merge_bytes = merge_bytes
        self._note_spilled = note_spilled
        self._count = 0

    def make(self, batches: Sequence[pa.RecordBatch]) -> Run:
        """Write a run; ``batches`` are the writes in their order.

        Raises:
            OSError: the local disk failed; the run's file is removed.
        """
        rows = coalesce(batches)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._count += 1
        path = self._directory / f"{self._count}.arrow"
        try:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, WRITES_SCHEMA) as writer:
                writer.write_batch(rows)
            with pa.memory_map(str(path)) as mapped:
                stored = pa.ipc.open_file(mapped).get_batch(0)
        finally:
            # The mapped pages stay valid: the system frees the file with its last reader.
            path.unlink(missing_ok=True)
        self._note_spilled(rows.nbytes)
        return Run(stored)

    def merged(self, spill: Spill) -> Spill | None:
        """Return the same writes in fewer runs; ``None`` if there are few enough.

        The newest run is merged with each older one that is not larger than the result so far. A
        row is merged only as often as its run doubles.

        Raises:
            OSError: the local disk failed; ``spill`` is still valid.
        """
        runs = spill.runs
        first = len(runs) - 1
        size = runs[first].rows.nbytes
        while first and runs[first - 1].rows.nbytes <= size:
            size += runs[first - 1].rows.nbytes
            if size > self._merge_bytes:
                break
            first -= 1
        if first == len(runs) - 1:
            return None
        return Spill((*runs[:first], self.make([run.rows for run in runs[first:]])))
