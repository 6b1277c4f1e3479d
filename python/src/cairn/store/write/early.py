"""Early frames: writes that a session sends, and that are encoded, before its commit.

Layer: store.  Spec: docs/protocol.md#early-writes, docs/adr/0021-early-frames.md.

They are for the commit alone: reads do not find them. A row that follows them may be of the same
key: in the changelog and in the local state, the last row of a key wins.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from cairn.errors import FramesMissingError, ProtocolError
from cairn.format import changelog
from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.protocol.frames import MAX_EARLY_BYTES
from cairn.store.rows import writes
from cairn.store.rows.tally import tally

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from cairn.format.changelog import EncodedRows
    from cairn.store.rows.tally import Tally


class WrittenRows:
    """A part of the writes of a commit, with its encoded form.

    Args:
        rows: have ``WRITES_SCHEMA``.
        counted: their tally, if it is known.

    Attributes:
        changes: the rows as a changelog has them.
        tally: see there.
    """

    def __init__(self, rows: pa.RecordBatch, counted: Tally | None = None) -> None:
        self.rows = rows
        self.changes = writes.as_changes(rows)
        self.tally = tally(rows) if counted is None else counted
        self._lock = threading.Lock()
        self._encoded: EncodedRows | None = None
        self._is_needed = True

    def encode_ahead(self) -> None:
        """Encode the rows, unless the session has ended. In the background."""
        if self._is_needed:
            # One thread: the session's task needs the other cores.
            self.encoded(use_threads=False)

    def encoded(self, *, use_threads: bool | None = None) -> EncodedRows:
        """Return the encoded rows; waits for a thread that encodes them already. Any thread."""
        with self._lock:
            if self._encoded is None:
                self._encoded = changelog.encode_rows([self.changes], use_threads=use_threads)
            return self._encoded

    @property
    def delta(self) -> pa.RecordBatch:
        """The rows as the local state takes them."""
        if self.tally.highest_op < OP_APPEND:
            return self.changes
        return writes.as_changes(writes.with_new_lists_put(self.rows))

    def drop(self) -> None:
        """Let ``encode_ahead`` do nothing."""
        self._is_needed = False


class EarlyFrames:
    """The early frames of one session. One thread at a time."""

    def __init__(self) -> None:
        self._frames: list[WrittenRows] = []
        self._bytes = 0
        self._row_count = 0

    def add(self, sequence: int, rows: pa.RecordBatch, counted: Tally) -> WrittenRows:
        """Take the next frame, with the tally of its rows.

        Raises:
            ProtocolError: not the next one, over the limit of bytes, or rows that are not allowed.
        """
        if sequence != len(self._frames) + 1:
            raise ProtocolError(f"early frame {sequence} came after {len(self._frames)} of them")
        if self._bytes >= MAX_EARLY_BYTES:
            raise ProtocolError(f"early frames of a session are over {MAX_EARLY_BYTES} bytes")
        if counted.highest_op > OP_DELETE:
            raise ProtocolError("an early frame has other writes than puts and deletes")
        frame = WrittenRows(rows, counted)
        self._frames.append(frame)
        self._bytes += rows.get_total_buffer_size()
        self._row_count += rows.num_rows
        return frame

    def has_arrived(self, frame_count: int) -> bool:
        """Whether that many frames have arrived."""
        return len(self._frames) >= frame_count

    def complete(self, frame_count: int, row_count: int) -> list[WrittenRows]:
        """Return all frames.

        Args:
            frame_count: the number of frames; 0: none that has arrived counts.
            row_count: their rows.

        Raises:
            FramesMissingError: another number of frames or rows has arrived.
        """
        if not frame_count:
            return []
        if (len(self._frames), self._row_count) != (frame_count, row_count):
            raise FramesMissingError(
                f"the commit counts {frame_count} early frames with {row_count} rows; "
                f"{len(self._frames)} with {self._row_count} arrived",
                next_step="let Spark run the task again; report it if it happens twice",
            )
        return self._frames

    def drop(self) -> None:
        """Free all frames."""
        for frame in self._frames:
            frame.drop()
        self._frames = []


def gather(
    early: Sequence[WrittenRows],
    late: list[pa.RecordBatch],
    in_background: Callable[[Callable[[], None]], None],
    *,
    are_distinct: bool,
) -> list[WrittenRows]:
    """Return the writes of a commit, of which the last row of a key counts.

    If a presence is unknown, a family is dropped, or the session has spilled, they are one sorted
    part with one row per key. Otherwise they stay as they are, so that the PUT begins early.

    Args:
        early: the early frames.
        late: the writes after them. This call empties the list; REQUIRES: nothing else refers to
            them.
        in_background: runs a call in another thread soon.
        are_distinct: whether no key occurs twice in ``late``.

    Raises:
        ProtocolError: a key of a family with appends occurs twice although ``are_distinct``.
        BatchTooLargeError: a column is too large.
    """
    late_parts = [WrittenRows(rows) for rows in late if rows.num_rows]
    late.clear()
    parts = [*early, *late_parts]
    batches = [part.rows for part in parts]
    if not parts:
        return []
    if not are_distinct or not all(part.tally.is_plain for part in parts):
        parts.clear()
        late_parts.clear()
        return [WrittenRows(writes.one_per_key(batches))]
    writes.check_size(batches)
    lists = {cf for part in late_parts for cf in part.tally.families_with(OP_APPEND)}
    writes.check_lists(batches, lists)
    if early:
        for part in late_parts:
            in_background(part.encode_ahead)
    return parts
