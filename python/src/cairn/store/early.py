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
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import FramesMissingError, ProtocolError
from cairn.format import changelog
from cairn.format.ops import OP_DELETE
from cairn.protocol.frames import MAX_EARLY_BYTES
from cairn.store import writes
from cairn.store.tally import tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.format.changelog import EncodedRows, Indexes
    from cairn.store.sorting import Flags
    from cairn.store.tally import Tally

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute


class EarlyFrame:
    """The rows of one frame, and their encoded form.

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
        self._frames: list[EarlyFrame] = []
        self._bytes = 0
        self._row_count = 0

    def add(self, sequence: int, rows: pa.RecordBatch, counted: Tally) -> EarlyFrame:
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
        frame = EarlyFrame(rows, counted)
        self._frames.append(frame)
        self._bytes += rows.nbytes
        self._row_count += rows.num_rows
        return frame

    def has_arrived(self, frame_count: int) -> bool:
        """Whether that many frames have arrived."""
        return len(self._frames) >= frame_count

    def complete(self, frame_count: int, row_count: int) -> list[EarlyFrame]:
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
        early: the frame that has exactly these rows; ``None``: they are not encoded.
        is_void: which rows do not count, because a later part has their keys; ``None``: all count.
    """

    rows: pa.RecordBatch
    early: EarlyFrame | None = None
    is_void: Flags | None = None

    def encoded(self) -> EncodedRows:
        """Return the rows as a changelog has them; encodes them if nobody did."""
        if self.early is not None:
            return self.early.encoded()
        return changelog.encode_rows([self.changes])

    @cached_property
    def changes(self) -> pa.RecordBatch:
        """The rows as a changelog has them."""
        return writes.as_changes(self.rows) if self.early is None else self.early.changes

    @cached_property
    def counted(self) -> Tally:
        """The tally of the rows that count."""
        if self.is_void is not None:
            columns = self.rows.select(["op", "cf", "presence"])
            return tally(columns.filter(pa.array(~self.is_void)))
        return tally(self.rows) if self.early is None else self.early.tally


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
    early: Sequence[EarlyFrame], late: list[pa.RecordBatch], *, are_distinct: bool
) -> list[WrittenRows]:
    """Return the writes of a commit, of which one op per key counts.

    If a presence is unknown, they are one sorted part without void rows.

    Args:
        early: the early frames.
        late: the writes after them, as for ``writes.gather``, which empties the list.
        are_distinct: whether no key occurs twice in all of them. If there are early frames, no key
            occurs twice in ``late``.

    Raises:
        ProtocolError: see ``writes.gather``.
        BatchTooLargeError: a column is too large.
    """
    all_rows = [*(frame.rows for frame in early), *late]
    if not all_rows:
        return []
    late_parts = [WrittenRows(rows) for rows in late]
    is_plain = all(part.counted.is_plain for part in late_parts) and all(
        frame.tally.is_plain for frame in early
    )
    if not is_plain or not (early or are_distinct):
        late.clear()
        late_parts.clear()
        return [WrittenRows(writes.gather(all_rows, are_distinct=are_distinct))]
    writes.check_size(all_rows)
    parts = [WrittenRows(frame.rows, frame) for frame in early]
    if early and late and not are_distinct:
        parts = _with_void_rows(early, late)
    parts += late_parts
    late.clear()
    return [part for part in parts if part.rows.num_rows]


def _with_void_rows(
    early: Sequence[EarlyFrame], late: Sequence[pa.RecordBatch]
) -> list[WrittenRows]:
    """Return the early rows; those are void whose key is among the late ones."""
    is_void = _are_among(
        pa.Table.from_batches([frame.rows.select(["cf", "key"]) for frame in early]),
        pa.Table.from_batches([rows.select(["cf", "key"]) for rows in late]),
    )
    ends = np.cumsum([frame.rows.num_rows for frame in early])
    return [
        WrittenRows(frame.rows, frame, flags if flags.any() else None)
        for frame, flags in zip(early, np.split(is_void, ends[:-1]), strict=True)
    ]


def _are_among(names: pa.Table, others: pa.Table) -> Flags:
    """Return for each key (with its family) whether it is among the others."""
    found = np.zeros(names.num_rows, np.bool_)
    cfs = names["cf"].to_numpy()
    for cf in pc.unique(others["cf"]).to_pylist():
        keys = others["key"].filter(pc.equal(others["cf"], cf))
        is_equal = pc.is_in(names["key"], value_set=keys.combine_chunks())
        found |= cast("Any", is_equal.to_numpy()) & (cfs == cf)
    return found
