"""StoreSession: a store opened at one version, with one fate: committed, aborted or released.

Layer: store. Frames come in on the owner thread, which never waits here; a job in another thread
makes runs of them, one job a session at a time; ``commit`` of the instance waits for the last frame
in a thread of its own. ``_arrival`` guards all of it and is held for moments. A read that needs
frames in a run, and a connection that sends faster than the disk takes, are called back.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import CairnError, ClosedError, FramesMissingError, ProtocolError, unexpected
from cairn.rocks.failures import translate
from cairn.store.spill import RunFiles, Spill
from cairn.store.writes import check_writes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    Act = Callable[[], None]

# In run sizes: of frames in memory before their sender must wait, and of what merging makes.
_FULL_RUNS = 4
_MERGED_RUNS = 3


@dataclass(frozen=True)
class SessionThreads:
    """What a session does elsewhere.

    Args:
        in_background: runs a job in another thread, some time soon.
        on_owner: runs a call on the owner thread, some time soon.
        note_spilled: told the bytes of each file of writes; any thread.
    """

    in_background: Callable[[Act], None]
    on_owner: Callable[[Act], None]
    note_spilled: Callable[[int], None]


class StoreSession:
    """The writes of one session.

    Args:
        number: of the session, ascending within its instance.
        directory: for its runs, on the local disk.
        threads: where it does what may take long.
        run_bytes: of frames in memory, above which a run is made of them.
    """

    def __init__(
        self, number: int, directory: Path, threads: SessionThreads, run_bytes: int
    ) -> None:
        self.number = number
        self._directory = directory
        self._threads = threads
        self._run_bytes = run_bytes
        self._files = RunFiles(directory, _MERGED_RUNS * run_bytes, threads.note_spilled)
        self._arrival = threading.Condition()
        self._frames: dict[int, pa.RecordBatch] = {}  # not yet in a run
        self._frame_bytes = 0
        self._in_order = 0  # sequences up to here have come
        self._in_runs = 0  # sequences up to here are in a run
        self._row_count = 0
        self._spill = Spill()
        self._failure: CairnError | None = None
        self._has_job = False
        self._readers: list[tuple[int, Act]] = []  # up to which sequence, and who waits
        self._senders: list[Act] = []
        self.is_closed = False

    # -- frames --------------------------------------------------------------------------------

    def add_frame(self, sequence: int, rows: pa.RecordBatch) -> None:
        """Take a frame of writes. The owner only.

        Args:
            sequence: of the frame in its session, from 1; frames may come out of order.
            rows: of ``WRITES_SCHEMA``; kept, not copied.
        """
        with self._arrival:
            if self.is_closed or self._failure is not None:
                return  # the commit says why
            try:
                self._check_new(sequence)
                check_writes(rows)
            except ProtocolError as failure:
                self._fail(failure)
                return
            self._frames[sequence] = rows
            self._frame_bytes += rows.nbytes
            self._row_count += rows.num_rows
            while self._in_order + 1 in self._frames:
                self._in_order += 1
            self._arrival.notify_all()
        self._see_to_runs()

    def _check_new(self, sequence: int) -> None:
        if sequence in self._frames or sequence <= self._in_runs:
            raise ProtocolError(f"frame {sequence} of a session came twice")

    def fail(self, failure: CairnError) -> None:
        """Remember that a frame could not be used: the commit will say so."""
        with self._arrival:
            self._fail(failure)

    def _fail(self, failure: CairnError) -> None:
        """REQUIRES: ``_arrival``. What came is of no use any more."""
        self._failure = self._failure or failure
        self._forget()

    def _forget(self) -> None:
        """REQUIRES: ``_arrival``, and a failure or the end, which who waits is then told."""
        self._frames.clear()
        self._frame_bytes = 0
        self._spill = Spill()
        self._call_back()
        self._arrival.notify_all()

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self._failure is not None

    @property
    def _is_full(self) -> bool:
        # What a gap keeps from going into a run does not count: the missing frame must come in.
        return (
            not self._is_over
            and self._frame_bytes >= _FULL_RUNS * self._run_bytes
            and self._in_order > self._in_runs
        )

    def when_room(self, act: Act) -> bool:
        """Call ``act`` on the owner once frames fit into memory again. The owner only.

        Returns:
            Whether they do not fit now; else ``act`` is never called.
        """
        with self._arrival:
            if not self._is_full:
                return False
            self._senders.append(act)
            return True

    # -- runs ----------------------------------------------------------------------------------

    def _see_to_runs(self) -> None:
        with self._arrival:
            if self._has_job or not self._next_run():
                return
            self._has_job = True
        self._threads.in_background(self._make_runs)

    def _next_run(self) -> list[pa.RecordBatch]:
        """Return the frames that must go into a run now. REQUIRES: ``_arrival``."""
        waits = any(through > self._in_runs for through, _ in self._readers)
        if self._is_over or not (waits or self._frame_bytes >= self._run_bytes):
            return []
        batches: list[pa.RecordBatch] = []
        size = 0
        for sequence in range(self._in_runs + 1, self._in_order + 1):
            batches.append(self._frames[sequence])
            size += batches[-1].nbytes
            if size >= self._run_bytes:
                break
        return batches

    def _make_runs(self) -> None:
        """Make runs, and merge them, until nobody needs another one. In the background."""
        while True:
            with self._arrival:
                batches = self._next_run()
                spill = self._spill
                if not batches:
                    self._has_job = False
                    break
            try:
                run = self._files.make(batches)
                with self._arrival:
                    if self._is_over:
                        continue
                    # INVARIANT: counted as written only once they are.
                    for _ in batches:
                        self._in_runs += 1
                        self._frame_bytes -= self._frames.pop(self._in_runs).nbytes
                    spill = self._spill = Spill((*spill.runs, run))
                    self._call_back()
                    batches.clear()
                merged = self._files.merged(spill)
                with self._arrival:
                    if merged is not None and self._spill is spill:
                        self._spill = merged
            except Exception as problem:  # noqa: BLE001 - whatever it is, the commit must hear of it
                self.fail(_as_cairn_error(problem, str(self._directory)))
        if self.is_closed:
            shutil.rmtree(self._directory, ignore_errors=True)  # may have been made anew

    def _call_back(self) -> None:
        """Call who waits no longer. REQUIRES: ``_arrival``."""
        due = [act for through, act in self._readers if through <= self._in_runs or self._is_over]
        self._readers = [
            entry for entry in self._readers if entry[0] > self._in_runs and not self._is_over
        ]
        if not self._is_full:
            due += self._senders
            self._senders = []
        for act in due:
            self._threads.on_owner(act)

    # -- reads ---------------------------------------------------------------------------------

    def when_written(self, act: Act) -> None:
        """Call ``act`` once ``spill`` has all that came so far: at once, or later on the owner.

        The owner only. ``act`` is called also when that cannot be any more.
        """
        with self._arrival:
            through = self._in_order
            waits = through > self._in_runs and not self._is_over
            if waits:
                self._readers.append((through, act))
        if waits:
            self._see_to_runs()
        else:
            act()

    @property
    def spill(self) -> Spill:
        """What reads look into; see ``when_written``.

        Raises:
            CairnError: a frame was lost on the way to the local disk, or the session has ended.
        """
        with self._arrival:
            if self.is_closed:
                raise ClosedError("the session has ended")
            if self._failure is not None:
                raise self._failure
            return self._spill

    # -- the end -------------------------------------------------------------------------------

    def complete(self, frame_count: int, row_count: int, timeout_s: float) -> list[pa.RecordBatch]:
        """Wait for exactly so many frames and return all writes in order.

        Raises:
            FramesMissingError: they did not come in time, or too many did, or other rows.
            ClosedError: the session ended meanwhile.
            CairnError: a frame was refused or lost.
        """
        with self._arrival:
            self._arrival.wait_for(lambda: self._is_settled(frame_count), timeout_s)
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
        self.fail(ClosedError("the session's writes were taken by a commit already"))

    def _is_settled(self, frame_count: int) -> bool:
        return self._is_over or self._in_runs + len(self._frames) >= frame_count

    def close(self) -> None:
        """Forget everything that was written. Idempotent, any thread."""
        with self._arrival:
            self.is_closed = True
            self._forget()
        shutil.rmtree(self._directory, ignore_errors=True)


def _as_cairn_error(failure: Exception, place: str) -> CairnError:
    return translate(failure, place) if isinstance(failure, OSError) else unexpected(failure)
