"""StoreSession: a store opened at one version, with one fate: committed, aborted or released.

Layer: store. Frames arrive on the event loop, which never waits here. A background job writes them
as runs, one job per session at a time. The thread of a commit waits for the last frame. The
reentrant lock ``_arrival`` guards everything and is held only briefly. Callbacks resume a read that
needs frames in a run, and a connection that is paused because it sends faster than the disk writes.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import CairnError, ClosedError, FramesMissingError, ProtocolError, unexpected
from cairn.rocks.failures import translate
from cairn.store.rows.found_keys import FoundKeys
from cairn.store.rows.runs import Runs
from cairn.store.rows.tally import Tally
from cairn.store.rows.writes import check_writes
from cairn.store.write.spill import RunFiles

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    Callback = Callable[[], None]

# In units of run_bytes: the frames in memory that pause their sender; the largest merged run.
_FULL_RUNS = 4
_MERGED_RUNS = 3


@dataclass(frozen=True)
class SessionThreads:
    """Runs calls in the background or on the event loop, soon."""

    in_background: Callable[[Callback], None]
    on_event_loop: Callable[[Callback], None]
    note_spilled: Callable[[int], None]  # with the bytes of each file, in the background


class StoreSession:
    """The writes of one session.

    Args:
        number: the session's number, ascending within its instance.
        directory: the directory of its runs, on the local disk.
        threads: where its work runs.
        run_bytes: bound of frames in memory; above it they are written as a run.

    Attributes:
        found: which keys the session's reads have found.
    """

    def __init__(
        self, number: int, directory: Path, threads: SessionThreads, run_bytes: int
    ) -> None:
        self.number = number
        self.found = FoundKeys()
        self._directory = directory
        self._threads = threads
        self._run_bytes = run_bytes
        self._files = RunFiles(directory, _MERGED_RUNS * run_bytes, threads.note_spilled)
        self._arrival = threading.Condition()
        self._frames: dict[int, pa.RecordBatch] = {}  # not yet in a run
        self._frame_bytes = 0
        self._in_order = 0  # all sequences up to here have arrived
        self._in_runs = 0  # all sequences up to here are in a run
        self._row_count = 0
        self._tally = Tally({})
        self._spill = Runs()
        self._failure: CairnError | None = None
        self._has_job = False
        self._readers: list[tuple[int, Callback]] = []  # with the last sequence that they need
        self._senders: list[Callback] = []
        self._is_closed = False

    # -- frames --------------------------------------------------------------------------------

    def add_frame(self, sequence: int, rows: pa.RecordBatch) -> None:
        """Take a frame of writes. On the event loop.

        Args:
            sequence: the frame's number in its session, from 1; frames may arrive out of order.
            rows: have ``WRITES_SCHEMA``; kept, not copied.
        """
        with self._arrival:
            if self._failure is not None:
                return  # the commit reports it
            if sequence in self._frames or sequence <= self._in_runs:
                self.fail(ProtocolError(f"frame {sequence} of a session arrived twice"))
                return
            try:
                counted = check_writes(rows)
            except ProtocolError as failure:
                self.fail(failure)
                return
            self._frames[sequence] = rows
            self._frame_bytes += rows.get_total_buffer_size()
            self._row_count += rows.num_rows
            self._tally += counted
            while self._in_order + 1 in self._frames:
                self._in_order += 1
            self._arrival.notify_all()
        self._start_job_if_needed()

    def fail(self, failure: CairnError) -> None:
        """Drop all writes: the commit fails with ``failure``, or an earlier one. Any thread."""
        with self._arrival:
            self._failure = self._failure or failure
            self._frames.clear()
            self._frame_bytes = 0
            self._spill = Runs()
            self._notify()
            self._arrival.notify_all()

    @property
    def _is_full(self) -> bool:
        # Frames behind a gap do not count: the missing frame may come from the same sender.
        return (
            self._failure is None
            and self._frame_bytes >= _FULL_RUNS * self._run_bytes
            and self._in_order > self._in_runs
        )

    def pause_if_full(self, resume: Callback) -> bool:
        """Return whether the sender must pause; if so, ``resume`` is called later.

        On the event loop, as ``resume``.
        """
        with self._arrival:
            if self._is_full:
                self._senders.append(resume)
                return True
            return False

    # -- runs ----------------------------------------------------------------------------------

    def _start_job_if_needed(self) -> None:
        with self._arrival:
            if self._has_job or not self._next_run():
                return
            self._has_job = True
        self._threads.in_background(self._make_runs)

    def _next_run(self) -> list[pa.RecordBatch]:
        """Return the frames that must go into a run now. REQUIRES: ``_arrival``."""
        is_needed = any(through > self._in_runs for through, _ in self._readers)
        if self._failure is not None or not (is_needed or self._frame_bytes >= self._run_bytes):
            return []
        batches: list[pa.RecordBatch] = []
        size = 0
        for sequence in range(self._in_runs + 1, self._in_order + 1):
            batches.append(self._frames[sequence])
            size += batches[-1].get_total_buffer_size()
            if size >= self._run_bytes:
                break
        return batches

    def _make_runs(self) -> None:
        """Write and merge runs until no more are needed. In the background."""
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
                    if self._failure is not None:
                        continue
                    # INVARIANT: frames stay in memory until they are in a run.
                    for rows in batches:
                        self._in_runs += 1
                        del self._frames[self._in_runs]
                        self._frame_bytes -= rows.get_total_buffer_size()
                    spill = self._spill = Runs((*spill.runs, run))
                    self._notify()
                    batches.clear()
                merged = self._files.merged(spill)
                with self._arrival:
                    if merged is not None and self._spill is spill:
                        self._spill = merged
            except OSError as problem:
                self.fail(translate(problem, str(self._directory)))
            except Exception as problem:  # noqa: BLE001 - whatever it is, the commit must report it
                self.fail(unexpected(problem))
        if self._is_closed:
            # The last run may have created the directory again after `close`.
            shutil.rmtree(self._directory, ignore_errors=True)

    def _notify(self) -> None:
        """Call the readers and senders that need not wait any longer. REQUIRES: ``_arrival``."""
        through = self._in_runs if self._failure is None else self._in_order
        due = [act for needed, act in self._readers if needed <= through]
        self._readers = [entry for entry in self._readers if entry[0] > through]
        if not self._is_full:
            due += self._senders
            self._senders = []
        for act in due:
            self._threads.on_event_loop(act)

    # -- reads ---------------------------------------------------------------------------------

    @property
    def is_unread(self) -> bool:
        """Whether reads find the same as without this session: it has sent no write."""
        return self._failure is None and not self._in_runs and not self._frames

    @property
    def settled_spill(self) -> Runs | None:
        """The runs, if they have all frames that have arrived; ``None``: see ``when_readable``."""
        with self._arrival:
            is_settled = self._failure is None and self._in_order == self._in_runs
            return self._spill if is_settled else None

    def when_readable(self, act: Callback) -> None:
        """Call ``act`` once ``spill`` has all frames that have arrived, or the session is over.

        On the event loop; ``act`` is called there too, at once or later.
        """
        with self._arrival:
            through = self._in_order
            must_wait = through > self._in_runs and self._failure is None
            if must_wait:
                self._readers.append((through, act))
        if must_wait:
            self._start_job_if_needed()
        else:
            act()

    @property
    def spill(self) -> Runs:
        """The runs. REQUIRES: ``when_readable``, for all frames that have arrived.

        Raises:
            CairnError: the session has ended, or a frame was refused or lost.
        """
        with self._arrival:
            if self._failure is not None:
                raise self._failure
            return self._spill

    # -- the end -------------------------------------------------------------------------------

    def complete(self, frame_count: int, row_count: int, timeout_s: float) -> list[pa.RecordBatch]:
        """Wait until ``frame_count`` frames have arrived; return all writes in order.

        Raises:
            FramesMissingError: another number of frames or rows has arrived within the timeout.
            ClosedError: the session ended meanwhile.
            CairnError: a frame was refused or lost.
        """
        with self._arrival:
            self._arrival.wait_for(
                lambda: self._failure or self._in_runs + len(self._frames) >= frame_count, timeout_s
            )
            spill = self.spill
            arrived = self._in_runs + len(self._frames)
            if {arrived, self._in_order} != {frame_count} or self._row_count != row_count:
                raise FramesMissingError(
                    f"the commit counts {frame_count} frames with {row_count} rows; {arrived} with "
                    f"{self._row_count} arrived, without a gap up to frame {self._in_order}",
                    next_step="let Spark run the task again; report it if it happens twice",
                )
            in_memory = range(self._in_runs + 1, frame_count + 1)
            return [*spill.batches(), *(self._frames[sequence] for sequence in in_memory)]

    @property
    def tally(self) -> Tally:
        """That of the frames that have arrived."""
        with self._arrival:
            return self._tally

    def forget_frames(self) -> None:
        """Free what was returned to the commit; a second commit of the session then fails."""
        self.fail(ClosedError("the session's writes were committed already"))

    def close(self) -> None:
        """Drop all writes. Idempotent, any thread."""
        with self._arrival:
            self._is_closed = True
            self._failure = None
            self.fail(ClosedError("the session has ended"))
        self.found.clear()
        if self._files.have_begun:
            shutil.rmtree(self._directory, ignore_errors=True)
