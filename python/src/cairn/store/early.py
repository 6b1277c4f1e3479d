"""Early frames: writes that a session sends, and that are encoded, before its commit.

Layer: store.
Spec: docs/protocol.md#early-writes, docs/adr/0021-early-frames.md, docs/adr/0022-void-rows.md.

They are for the commit alone: reads do not find them. No key occurs twice in all of them, but a
write that follows them may be of the same key; it is newer, and the early row is then void in the
changelog.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cairn.errors import FramesMissingError, ProtocolError
from cairn.format import changelog
from cairn.format.ops import OP_APPEND, OP_DELETE
from cairn.protocol.frames import MAX_EARLY_BYTES
from cairn.store import writes
from cairn.store.sorting import take
from cairn.store.tally import tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cairn.format.changelog import EncodedRows, Indexes
    from cairn.store.sorting import Flags
    from cairn.store.tally import Tally


class FrameRows:
    """The rows of one frame, with their encoded form.

    Args:
        rows: have ``WRITES_SCHEMA``; puts and deletes only.
        counted: their tally.

    Attributes:
        changes: the rows as a changelog has them.
    """

    def __init__(self, rows: pa.RecordBatch, counted: Tally) -> None:
        self.rows = rows
        self.changes = writes.as_changes(rows)
        self.tally = counted
        self._lock = threading.Lock()
        self._encoded: EncodedRows | None = None
        self._is_needed = True

    def encode_early(self) -> None:
        """Encode the rows, unless the session has ended. In the background."""
        if self._is_needed:
            self.encoded()

    def encoded(self) -> EncodedRows:
        """Return the encoded rows; waits for a thread that encodes them already. Any thread."""
        with self._lock:
            if self._encoded is None:
                # One thread: the session's task needs the other cores.
                self._encoded = changelog.encode_rows([self.changes], use_threads=False)
            return self._encoded

    def drop(self) -> None:
        """Let ``encode_early`` do nothing."""
        self._is_needed = False


class EarlyFrames:
    """The early frames of one session. One thread at a time."""

    def __init__(self) -> None:
        self._frames: list[FrameRows] = []
        self._bytes = 0
        self._row_count = 0

    def add(self, sequence: int, rows: pa.RecordBatch, counted: Tally) -> FrameRows:
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
        frame = FrameRows(rows, counted)
        self._frames.append(frame)
        self._bytes += rows.get_total_buffer_size()
        self._row_count += rows.num_rows
        return frame

    def has_arrived(self, frame_count: int) -> bool:
        """Whether that many frames have arrived."""
        return len(self._frames) >= frame_count

    def complete(self, frame_count: int, row_count: int) -> list[FrameRows]:
        """Return all frames.

        Args:
            frame_count: the number of frames; 0: those that have arrived are void.
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


@dataclass(frozen=True, eq=False)
class WrittenRows:
    """A part of the writes of a commit; at most one op per key counts in all parts together.

    Attributes:
        rows: have ``WRITES_SCHEMA``.
        frame: the frame that has exactly these rows; ``None``: ``encoded`` encodes them.
        is_void: which rows do not count, because a later part has their keys; ``None``: all count.
    """

    rows: pa.RecordBatch
    frame: FrameRows | None = None
    is_void: Flags | None = None

    def encoded(self) -> EncodedRows:
        """Return the rows as a changelog has them; encodes them if nobody did."""
        if self.frame is not None:
            return self.frame.encoded()
        return changelog.encode_rows([self.changes])

    @cached_property
    def changes(self) -> pa.RecordBatch:
        """The rows as a changelog has them."""
        return writes.as_changes(self.rows) if self.frame is None else self.frame.changes

    @property
    def delta(self) -> pa.RecordBatch:
        """The rows as the local state takes them."""
        if self.counted.highest_op < OP_APPEND:
            return self.changes
        return writes.as_changes(writes.with_new_lists_put(self.rows))

    @cached_property
    def counted(self) -> Tally:
        """The tally of the rows that count."""
        of_all = tally(self.rows) if self.frame is None else self.frame.tally
        if self.is_void is None:
            return of_all
        columns = self.rows.select(["op", "cf", "presence"])
        # Few are void, so their tally takes less time than that of the others.
        return of_all - tally(columns.take(np.flatnonzero(self.is_void)))


def void_rows(parts: Sequence[WrittenRows]) -> Indexes:
    """Return the indexes of the rows that do not count, ascending; those of all parts are one."""
    start = 0
    found: list[Indexes] = [np.zeros(0, np.int64)]
    for part in parts:
        if part.is_void is not None:
            found.append(start + np.flatnonzero(part.is_void))
        start += part.rows.num_rows
    return np.concatenate(found)


def gather(
    early: Sequence[FrameRows],
    late: list[pa.RecordBatch],
    in_background: Callable[[Callable[[], object]], None],
    *,
    replaced: Indexes,
    are_distinct: bool,
) -> list[WrittenRows]:
    """Return the writes of a commit, of which one op per key counts.

    If a presence is unknown, or keys may repeat, they are one sorted part without void rows.
    Otherwise the late rows are encoded in the background, beside the comparison of replaced rows.

    Args:
        early: the early frames.
        late: the writes after them, as for ``writes.gather``, which empties the list.
        in_background: runs a call in another thread soon.
        replaced: the early rows, counted over all frames, whose keys the first late rows have, in
            the order of those. REQUIRES: there are such early rows.
        are_distinct: whether no key occurs twice in all rows that are not replaced.

    Raises:
        ProtocolError: ``replaced`` names other rows; see also ``writes.gather``.
        BatchTooLargeError: a column is too large.
    """
    all_rows = [*(frame.rows for frame in early), *late]
    if not all_rows:
        return []
    late_parts = [WrittenRows(rows) for rows in late]
    is_plain = all(part.counted.is_plain for part in late_parts) and all(
        frame.tally.is_plain for frame in early
    )
    if not is_plain or not are_distinct:
        late.clear()
        late_parts.clear()
        are_distinct = are_distinct and not len(replaced)
        return [WrittenRows(writes.gather(all_rows, are_distinct=are_distinct))]
    writes.check_size(all_rows)
    parts = late_parts
    if early:
        frames = [FrameRows(part.rows, part.counted) for part in late_parts if part.rows.num_rows]
        for frame in frames:
            in_background(frame.encoded)
        parts = _with_void_rows(early, late, replaced) if len(replaced) else _parts(early)
        parts += _parts(frames)
    late.clear()
    return [part for part in parts if part.rows.num_rows]


def _parts(frames: Iterable[FrameRows]) -> list[WrittenRows]:
    return [WrittenRows(frame.rows, frame) for frame in frames]


def _with_void_rows(
    early: Sequence[FrameRows], late: Sequence[pa.RecordBatch], replaced: Indexes
) -> list[WrittenRows]:
    """Return the early rows; those are void whose key is among the first late ones.

    Both rows' keys are compared: a row that became void by mistake would be lost.
    """
    ends = np.cumsum([frame.rows.num_rows for frame in early])
    is_void = np.zeros(int(ends[-1]), np.bool_)
    late_count = sum(rows.num_rows for rows in late)
    if len(replaced) > late_count:
        raise _not_replaced(
            f"{len(replaced)} early rows are replaced, but it has {late_count} other rows"
        )
    is_void[replaced] = True
    old = pa.Table.from_batches([take([_names(frame.rows) for frame in early], replaced)])
    new = pa.Table.from_batches([_names(rows) for rows in late]).slice(0, len(replaced))
    if np.count_nonzero(is_void) != len(replaced) or not old.equals(new):
        raise _not_replaced(
            f"its first {len(replaced)} rows have other keys than the early ones that they replace"
        )
    return [
        WrittenRows(frame.rows, frame, flags if flags.any() else None)
        for frame, flags in zip(early, np.split(is_void, ends[:-1]), strict=True)
    ]


def _not_replaced(why: str) -> ProtocolError:
    return ProtocolError(
        f"the commit contradicts itself: {why}", next_step="restart the query, and report it"
    )


def _names(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["cf", "key"])
