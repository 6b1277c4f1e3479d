"""A session's writes while it is open: frames as they came, and sorted runs that reads look into.

Layer: store. Nothing of this is in RocksDB. Memory: frames up to ``Services.run_bytes`` a session;
then a thread of the worker makes a run of them, an Arrow file in the session's directory that is
mapped, not held. A run's index is a bisection over its mapped keys and costs no memory. The commit
of a session with runs sorts all of them at once, in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute

from cairn.rocks import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.store.writes import WRITES_SCHEMA, coalesce

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# The stubs know neither plain numbers as operands nor what comes back.
pc: Any = pyarrow.compute

MAX_RUNS = 8


class _Keys:
    """A binary column as a sequence of bytes, without a copy of the whole."""

    def __init__(self, column: pa.Array[Any]) -> None:
        _, offsets, data = column.buffers()
        # An empty column may have neither.
        self._offsets = memoryview(offsets or b"\0\0\0\0").cast("i")[column.offset :]
        self._data = memoryview(data or b"")
        self._count = len(column)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._data[self._offsets[index] : self._offsets[index + 1]])


class Run:
    """Coalesced, sorted writes of one session.

    Args:
        rows: as ``writes.coalesce`` returns them.
    """

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._keys = _Keys(rows.column("key"))
        self._families: dict[int, tuple[int, int]] = {}
        start = 0
        for entry in pc.value_counts(rows.column("cf")).to_pylist():
            self._families[entry["values"]] = (start, start + entry["counts"])
            start += entry["counts"]
        dropped = rows.column("cf").filter(pc.equal(rows.column("op"), OP_DROP_CF))
        self.dropped = frozenset(dropped.to_pylist())

    def find(self, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return op and value of a key's write, or ``None``."""
        if cf in self.dropped:
            return OP_DELETE, None
        start, end = self._families.get(cf, (0, 0))
        row = bisect_left(self._keys, key, start, end)
        if row == end or self._keys[row] != key:
            return None
        op, value = self.rows.column("op")[row].as_py(), self.rows.column("value")[row].as_py()
        return cast("int", op), cast("bytes | None", value)

    def between(
        self, cf: int, start: bytes | None, end: bytes | None, limit: int
    ) -> tuple[list[bytes], bool]:
        """Return at most ``limit`` keys from ``start`` up to before ``end``; are there more?"""
        first, last = self._families.get(cf, (0, 0))
        if cf in self.dropped:
            return [], False
        if start is not None:
            first = bisect_left(self._keys, start, first, last)
        if end is not None:
            last = bisect_left(self._keys, end, first, last)
        stop = min(last, first + limit)
        keys = self.rows.column("key").slice(first, max(stop - first, 0)).to_pylist()
        return cast("list[bytes]", keys), stop < last


class Spill:
    """All that a session has written so far: an ordered list of runs, found from the newest.

    Not thread-safe; ``StoreSession`` locks it.

    Args:
        directory: where runs go; made at the first.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runs: list[Run] = []
        self._files = 0

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Make a run of writes that came after all others.

        Raises:
            OSError: the local disk refuses; nothing of it is seen.
        """
        self._runs.append(Run(self._stored(coalesce(batches))))
        if len(self._runs) > MAX_RUNS:
            merged = coalesce([run.rows for run in self._runs])
            self._runs = [Run(self._stored(merged))]

    def _stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._files += 1
        path = self._directory / f"{self._files}.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, WRITES_SCHEMA) as writer:
            writer.write_batch(rows)
        with pa.memory_map(str(path)) as mapped:
            stored = pa.ipc.open_file(mapped).get_batch(0)
        # Mapped pages outlive the name: the file goes when the last reader does.
        path.unlink()
        return stored

    @property
    def is_empty(self) -> bool:
        """Whether nothing was written."""
        return not self._runs

    def batches(self) -> list[pa.RecordBatch]:
        """Return everything, in the order of the writes."""
        return [run.rows for run in self._runs]

    def find(self, cf: int, key: bytes) -> tuple[int, bytes | None] | None:
        """Return what the session did to a key: ``PUT`` value, ``DELETE``, ``APPEND`` elements.

        ``None`` where it did nothing.
        """
        parts: list[bytes] = []
        for run in reversed(self._runs):
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

    def ranges(
        self, cf: int, start: bytes | None, end: bytes | None, limit: int
    ) -> Iterator[tuple[list[bytes], bool]]:
        """Yield, run by run, keys between two bounds and whether the run has more of them."""
        for run in self._runs:
            yield run.between(cf, start, end, limit)
