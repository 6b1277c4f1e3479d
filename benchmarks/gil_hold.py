"""Measures how long each call of RocksDB holds the worker's interpreter lock.

    python benchmarks/gil_hold.py                   a database of 1 M keys, five calls of each kind

A read that waits for the worker may wait for such a call. Another thread of this process asks for
the lock again and again; the longest time between two of its turns is what a reply would wait.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import numpy as np
import pyarrow as pa
import result_file
from driver import BUILD

from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_PUT
from cairn.rocks import RocksDb, RocksMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    Note = Callable[[str, Callable[[], object]], None]

_SWITCH_INTERVAL_S = 0.0005  # as in the worker
_PAUSE_S = 0.0001
_MEMORY_BYTES = 64 << 20
_BATCH_KEYS = 100_000
_KEY_BYTES = 17
_VALUE_BYTES = 41


class LongestWait:
    """A thread that takes the lock every 0.1 ms, and notes how long it had to wait at most."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._is_done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_done:
            before = time.perf_counter()
            time.sleep(_PAUSE_S)
            self._longest_s = max(self._longest_s, time.perf_counter() - before - _PAUSE_S)

    def of(self, call: Callable[[], object]) -> float:
        """Return the longest wait during ``call``, in milliseconds."""
        time.sleep(0.01)
        self._longest_s = 0.0
        call()
        time.sleep(0.001)
        return self._longest_s * 1000

    def stop(self) -> None:
        """End the thread."""
        self._is_done = True
        self._thread.join()


def main() -> int:
    """Measure, print a line per call, and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--key-count", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--result", type=Path, default=BUILD / "gil-hold.json")
    options = parser.parse_args()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        waits = measure(Path(folder), options.key_count, options.runs)
    for name, waits_ms in waits.items():
        print(f"{name:<32} longest {max(waits_ms):6.2f} ms")
    content = {
        "key_count": options.key_count,
        "calls": [{"call": name, "waits_ms": waits_ms} for name, waits_ms in waits.items()],
        "machine": machine.describe(BUILD),
    }
    result_file.write(options.result, content)
    return 0


def measure(folder: Path, key_count: int, runs: int) -> dict[str, list[float]]:
    """Return the longest wait of each call, in milliseconds, by the call's name."""
    memory = RocksMemory(_MEMORY_BYTES, _MEMORY_BYTES)
    waits: dict[str, list[float]] = {}
    wait = LongestWait()

    def note(name: str, call: Callable[[], object]) -> None:
        waits.setdefault(name, []).append(wait.of(call))

    database = RocksDb(folder / "first", memory, create=True)
    for first in range(0, key_count, _BATCH_KEYS):
        ingest(database, first, min(_BATCH_KEYS, key_count - first), 1, _without_note)
    keys = [key.as_py() for key in key_column(0, key_count)]
    for run in range(runs):
        copy = folder / f"copy{run}"
        measure_once(database, memory, copy, keys[run * 512 :][:512], run + 2, note)
    wait.stop()
    database.retire()
    database.close()
    return waits


def measure_once(
    database: RocksDb,
    memory: RocksMemory,
    copy: Path,
    keys: list[bytes],
    version: int,
    note: Note,
) -> None:
    """Make each kind of call once; ``copy`` is where the checkpoint goes."""
    note("get of one key", lambda: database.get(0, keys[7]))
    note("get of 512 keys", lambda: database.get_many(0, keys))
    ingest(database, 0, _BATCH_KEYS, version, note)
    note("flush", database.flush)
    note("checkpoint", lambda: database.checkpoint(copy))
    opened: list[RocksDb] = []
    note("open", lambda: opened.append(RocksDb(copy, memory, create=False)))
    opened[0].retire()
    note("close", opened[0].close)


def key_column(first: int, count: int) -> pa.Array[Any]:
    """Return ascending keys of 17 bytes, as a row of one long is encoded."""
    cells = np.zeros((count, _KEY_BYTES), np.uint8)
    numbers = np.arange(first, first + count).astype(">u8")
    cells[:, _KEY_BYTES - 8 :] = numbers.view(np.uint8).reshape(count, 8)
    return column(cells)


def column(cells: np.ndarray) -> pa.Array[Any]:
    """Return the rows of a matrix as a binary column."""
    count, width = cells.shape
    offsets = (np.arange(count + 1) * width).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets.data), pa.py_buffer(cells.data)]
    )


def ingest(
    database: RocksDb,
    first: int,
    count: int,
    version: int,
    note: Note,
) -> None:
    """Write rows as one SST file, and let RocksDB ingest it."""
    values = np.random.default_rng(version).integers(0, 256, (count, _VALUE_BYTES), np.uint8)
    rows = pa.record_batch(
        [
            pa.array(np.full(count, OP_PUT, np.uint8)),
            pa.array(np.zeros(count, np.uint16)),
            key_column(first, count),
            column(values),
        ],
        schema=CHANGELOG_SCHEMA,
    )
    ingestion = database.new_ingestion(rows, version, frozenset())
    while ingestion.rows_left:
        ingestion.add(1024)
    note("end of an SST file", ingestion.finish)
    note("ingestion of an SST file", lambda: database.ingest(ingestion))


def _without_note(_name: str, call: Callable[[], object]) -> None:
    call()


if __name__ == "__main__":
    raise SystemExit(main())
