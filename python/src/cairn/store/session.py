"""StoreSession: a store opened at one version, with one fate: committed, aborted or released.

Layer: store. Frames come in on the owner thread; ``commit`` of the instance waits for the last one
in a thread of its own; runs are made in a third. ``_arrival`` guards what has come and is held for
moments; ``_sealing``, taken before it, is held while a run is made. So frames come in meanwhile,
and only a read of this very session waits.
"""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

from cairn.errors import CairnError, ClosedError, FramesMissingError, ProtocolError, unexpected
from cairn.rocks.failures import translate
from cairn.store.spill import Spill
from cairn.store.writes import check_writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


def _as_cairn_error(failure: Exception, place: str) -> CairnError:
    return translate(failure, place) if isinstance(failure, OSError) else unexpected(failure)


class StoreSession:
    """The writes of one session.

    Args:
        number: of the session, ascending within its instance.
        directory: for its runs, on the local disk.
        in_background: runs a job in another thread, some time soon.
        run_bytes: of frames in memory, above which a run is made of them.
    """

    def __init__(
        self,
        number: int,
        directory: Path,
        in_background: Callable[[Callable[[], None]], None],
        run_bytes: int,
    ) -> None:
        self.number = number
        self._directory = directory
        self._in_background = in_background
        self._run_bytes = run_bytes
        self._sealing = threading.Lock()
        self._arrival = threading.Condition()
        self._frames: dict[int, pa.RecordBatch] = {}  # not yet in a run
        self._frame_bytes = 0
        self._in_runs = 0  # sequences up to here are in a run
        self._row_count = 0
        self._spill = Spill(directory)
        self._failure: CairnError | None = None
        self._run_wanted = False
        self.is_closed = False

    def add_frame(self, sequence: int, rows: pa.RecordBatch) -> None:
        """Take a frame of writes. The owner only.

        Args:
            sequence: of the frame in its session, from 1; frames may come out of order.
            rows: of ``WRITES_SCHEMA``; kept, not copied.
        """
        with self._arrival:
            if self.is_closed:
                return
            try:
                self._check_new(sequence)
                check_writes(rows)
            except ProtocolError as failure:
                self._failure = self._failure or failure
                self._arrival.notify_all()
                return
            self._frames[sequence] = rows
            self._frame_bytes += rows.nbytes
            self._row_count += rows.num_rows
            self._arrival.notify_all()
            if self._frame_bytes < self._run_bytes or self._run_wanted:
                return
            self._run_wanted = True
        self._in_background(self._make_run)

    def _check_new(self, sequence: int) -> None:
        if sequence in self._frames or sequence <= self._in_runs:
            raise ProtocolError(f"frame {sequence} of a session came twice")

    def fail(self, failure: CairnError) -> None:
        """Remember that a frame could not be used: the commit will say so."""
        with self._arrival:
            self._failure = self._failure or failure
            self._arrival.notify_all()

    def _make_run(self) -> None:
        with self._sealing:
            self._seal()
        with self._arrival:
            self._run_wanted = False

    def _seal(self) -> None:
        """Make a run of the frames that came in order. REQUIRES: ``_sealing``."""
        with self._arrival:
            spill = self._spill
            batches = []
            last = self._in_runs
            while last + 1 in self._frames:
                last += 1
                batches.append(self._frames[last])
            if not batches or self._failure is not None:
                return  # closed: then nothing is left in the frames
        failure = None
        try:
            spill.add(batches)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the commit must hear of it
            failure = _as_cairn_error(problem, str(self._directory))
        with self._arrival:
            if self.is_closed:
                shutil.rmtree(self._directory, ignore_errors=True)  # may have been made anew
            elif failure is not None:
                self._failure = self._failure or failure
            else:
                # INVARIANT: counted as written only once they are.
                while self._in_runs < last:
                    self._in_runs += 1
                    del self._frames[self._in_runs]
                self._frame_bytes = sum(batch.nbytes for batch in self._frames.values())
            self._arrival.notify_all()

    def written(self) -> Spill | None:
        """Return what was written so far for reads, or ``None`` if nothing was.

        Raises:
            CairnError: a frame was lost on the way to the local disk, or the session has ended.
        """
        with self._sealing:
            self._seal()
        with self._arrival:
            if self.is_closed:
                raise ClosedError("the session has ended")
            if self._failure is not None:
                raise self._failure
            return None if self._spill.is_empty else self._spill

    def complete(self, frame_count: int, row_count: int, timeout_s: float) -> list[pa.RecordBatch]:
        """Wait for exactly so many frames and return all writes in order.

        Raises:
            FramesMissingError: they did not come in time, or too many did, or other rows.
            ClosedError: the session ended meanwhile.
            CairnError: a frame was refused or lost.
        """
        with self._arrival:
            self._arrival.wait_for(lambda: self._is_settled(frame_count), timeout_s)
        with self._sealing, self._arrival:  # a run under way is waited for
            if self.is_closed:
                raise ClosedError("the session has ended")
            if self._failure is not None:
                raise self._failure
            arrived = self._in_runs + len(self._frames)
            if arrived != frame_count or self._row_count != row_count:
                raise FramesMissingError(
                    f"the commit counts {frame_count} frames with {row_count} rows, "
                    f"{arrived} with {self._row_count} came",
                    next_step="let Spark run the task again; report it if it happens twice",
                )
            batches = self._spill.batches()
            for sequence in range(self._in_runs + 1, frame_count + 1):
                if sequence not in self._frames:
                    raise FramesMissingError(f"frame {sequence} of {frame_count} did not come")
                batches.append(self._frames[sequence])
            return batches

    def forget_frames(self) -> None:
        """Free what ``complete`` returned; a second commit of the session then fails."""
        with self._arrival:
            self._frames.clear()
            self._spill = Spill(self._directory)
            self._failure = ClosedError("the session's writes were taken by a commit already")

    def _is_settled(self, frame_count: int) -> bool:
        return (
            self.is_closed
            or self._failure is not None
            or self._in_runs + len(self._frames) >= frame_count
        )

    def close(self) -> None:
        """Forget everything that was written. Idempotent, any thread."""
        with self._arrival:
            self.is_closed = True
            self._frames.clear()
            self._spill = Spill(self._directory)
            self._arrival.notify_all()
        shutil.rmtree(self._directory, ignore_errors=True)
