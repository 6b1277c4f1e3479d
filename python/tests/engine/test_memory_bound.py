"""A worker's resident memory stays within its share, under a state twice as large."""

from __future__ import annotations

import resource
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from client import PUT, Store, WorkerProcess

from cairn.protocol import frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MIB = 1 << 20
MEMORY_BYTES = 128 * MIB
# A key of 8 and a value of 32 bytes with their headers: the state's size before compression.
KEY_COUNT = 2 * MEMORY_BYTES // 60
FRAME_ROWS = 8_192
BATCH_ROWS = 50_000
LARGE_BATCH_ROWS = 300_000


def test_a_worker_keeps_its_memory_bound_under_a_larger_state(
    spawn: Callable[..., WorkerProcess], url: str
) -> None:
    """Freed buffers of all sizes must not leave gaps that only new memory can fill.

    The operations are those of ``benchmarks/memory.py``: small and large commits, reads, scans
    and snapshots.
    """
    worker = spawn(memory_bytes=MEMORY_BYTES, local_disk_bytes=4 << 30)
    store = Store(worker, 1, url)
    random = np.random.default_rng(7)
    store.load(0)
    _commit(store, np.arange(BATCH_ROWS))
    with _resident_bytes_meanwhile(worker.pid) as sizes:
        for first in range(BATCH_ROWS, KEY_COUNT, BATCH_ROWS):
            _commit(store, np.arange(first, first + BATCH_ROWS))
        for number in range(1, 13):
            keys = random.integers(0, KEY_COUNT, BATCH_ROWS)
            found = store.get([int(key).to_bytes(8) for key in keys[:FRAME_ROWS]])
            assert all(value is not None for _, value in found)
            _commit(store, keys)
            if number % 3 == 0:
                _commit(store, random.integers(0, KEY_COUNT, LARGE_BATCH_ROWS))
            if number % 6 == 0:
                worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)
                for _ in range(20):
                    assert len(store.page(limit_rows=FRAME_ROWS)[0]) == FRAME_ROWS

    growth = max(sizes) - sizes[0]
    assert len(sizes) > 50, "the memory was hardly looked at"
    assert growth <= MEMORY_BYTES, f"grew by {growth / MIB:.0f} of {MEMORY_BYTES / MIB:.0f} MiB"


def _commit(store: Store, keys: NDArray[np.int64]) -> None:
    """Commit puts of ``keys``, in frames as the shim sends them, and load the new version."""
    for start in range(0, len(keys), FRAME_ROWS):
        part = keys[start : start + FRAME_ROWS].astype(">i8")
        rows = len(part)
        value = np.repeat(part, 4)
        columns = [
            pa.array(np.full(rows, PUT, np.uint8)),
            pa.array(np.zeros(rows, np.uint16)),
            _binary(part, 8),
            _binary(value, 32),
            pa.array(np.zeros(rows, np.uint8)),
        ]
        store.write_batch(pa.record_batch(columns, schema=frames.WRITES_SCHEMA))
    store.commit()
    store.load(store.version, store.checkpoint_id)


def _binary(values: NDArray[np.int64], width: int) -> pa.Array[Any]:
    buffers = [None, pa.py_buffer(values.tobytes())]
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), values.nbytes // width, buffers)
    return fixed.cast(pa.binary())


@contextmanager
def _resident_bytes_meanwhile(pid: int) -> Iterator[list[int]]:
    """Sample the resident bytes of a process ten times a second, and once before."""
    sizes = [_resident_bytes(pid)]
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.1):
            sizes.append(_resident_bytes(pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield sizes
    finally:
        ended.set()
        sampler.join()


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    return pages * resource.getpagesize()
