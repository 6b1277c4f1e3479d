"""Spill: an open session's writes as runs on the local disk, which its reads search.

Layer: store. A run is a memory-mapped Arrow file in the session's directory. Runs of similar size
are merged while they are small: reads then search few runs, and each row is written only a few
times. The commit of a session with runs sorts all of them at once, in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from cairn.protocol.frames import WRITES_SCHEMA
from cairn.store.rows.runs import Run, Runs, first_to_merge
from cairn.store.rows.writes import coalesce

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# Runs are mapped files: the search keeps a few bytes of every so many rows in memory.
_STRIDE_ROWS = 64


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

    @property
    def have_begun(self) -> bool:
        """Whether the directory may exist. Any thread."""
        return self._count > 0

    def make(self, batches: Sequence[pa.RecordBatch]) -> Run:
        """Write a run; ``batches`` are the writes in their order.

        Raises:
            OSError: the local disk failed; the run's file is removed.
        """
        rows = coalesce(batches)
        self._count += 1
        self._directory.mkdir(parents=True, exist_ok=True)
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
        return Run(stored, _STRIDE_ROWS)

    def merged(self, spill: Runs) -> Runs | None:
        """Return the same writes in fewer runs; ``None`` if there are few enough.

        Raises:
            OSError: the local disk failed; ``spill`` is still valid.
        """
        runs = spill.runs
        first = first_to_merge([run.rows.nbytes for run in runs], self._merge_bytes)
        if first == len(runs) - 1:
            return None
        return Runs((*runs[:first], self.make([run.rows for run in runs[first:]])))
