"""Early frames: encoded before the commit, and replaced by later writes of their keys."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cairn.errors import FramesMissingError, ProtocolError
from cairn.format import changelog
from cairn.format.changelog import EncodedRows
from cairn.format.header import Base, ChangelogHeader
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.protocol.frames import MAX_EARLY_BYTES, WRITES_SCHEMA
from cairn.store import early, writes
from cairn.store.deltas import Delta, merged
from cairn.store.early import EarlyFrames, FrameRows
from cairn.store.tally import tally

PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
UNKNOWN, PRESENT, ABSENT = 0, 1, 2


def batch(rows: list[tuple[int, int, bytes, bytes | None, int]]) -> pa.RecordBatch:
    names = WRITES_SCHEMA.names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], WRITES_SCHEMA
    )


def puts(first: int, last: int, value: bytes = b"v") -> pa.RecordBatch:
    return batch([(PUT, 0, b"%03d" % key, value, ABSENT) for key in range(first, last)])


def at_once(job: Callable[[], object]) -> None:
    job()


def too_late(_: Callable[[], object]) -> None:
    """The threads in the background are busy until the end of the commit."""


NOTHING = np.zeros(0, np.int64)
REF = VersionRef(1, CheckpointId("u" + "1" * 32))
HEADER = ChangelogHeader(
    StoreId(0, 0),
    REF,
    Attempt("run", 1, 0, 0, 0),
    Base(0, None),
    (REF,),
    counts={},
    column_families=(),
    max_cf_id=0,
    written_at_ms=0,
)


def stored(parts: list[early.WrittenRows]) -> list[dict[str, Any]]:
    """Return the rows of the changelog of a commit that count, as a reader gets them."""
    encoded = [part.encoded() for part in parts]
    data = changelog.encode(HEADER, encoded, early.void_rows(parts))
    rows: list[dict[str, Any]] = changelog.decode(data, object_name="x").table.to_pylist()
    delta = merged([Delta(1, [part.changes for part in parts], frozenset())])
    assert sorted(rows, key=name_of) == delta.run.rows.to_pylist(), "the local state differs"
    return rows


def name_of(row: dict[str, Any]) -> tuple[int, bytes]:
    return row["cf"], row["key"]


def early_frame(rows: pa.RecordBatch) -> FrameRows:
    return FrameRows(rows, tally(rows))


def add(frames: EarlyFrames, sequence: int, rows: pa.RecordBatch) -> FrameRows:
    return frames.add(sequence, rows, tally(rows))


def counts_after(counts: dict[int, int], parts: list[early.WrittenRows]) -> dict[int, int]:
    return writes.counts_after(counts, [part.counted for part in parts], list(counts))


@pytest.mark.parametrize("cut", [[], [0], [1], [3, 40], list(range(50))])
def test_a_changelog_does_not_depend_on_what_was_encoded_early(cut: list[int]) -> None:
    """The format has one form: a reader cannot see when rows were encoded."""
    rows = [writes.as_changes(puts(key, key + 3)) for key in range(50)]
    mixed: list[pa.RecordBatch | EncodedRows] = [
        changelog.encode_rows([one], use_threads=False) if index in cut else one
        for index, one in enumerate(rows)
    ]

    assert changelog.encode(HEADER, mixed) == changelog.encode(HEADER, rows)


def test_frames_without_repeated_keys_are_not_encoded_again() -> None:
    """Otherwise the commit takes as long as without early frames."""
    frames = [early_frame(puts(0, 10)), early_frame(puts(10, 20))]
    encoded = [frame.encoded() for frame in frames]

    parts = early.gather(frames, [puts(20, 25)], at_once, replaced=NOTHING, are_distinct=True)

    assert [part.encoded() for part in parts[:2]] == encoded
    assert all(part.encoded() is one for part, one in zip(parts, encoded, strict=False))
    assert [row["key"] for row in stored(parts)] == [b"%03d" % key for key in range(25)]


def test_no_frame_is_encoded_again_for_a_repeated_key() -> None:
    """Random keys repeat in every frame: each would be encoded twice."""
    frames = [early_frame(puts(0, 10)), early_frame(puts(10, 20))]
    encoded = [frame.encoded() for frame in frames]
    late = batch([(PUT, 0, b"003", b"new", ABSENT), (DELETE, 1, b"012", None, PRESENT)])

    parts = early.gather(frames, [late], at_once, replaced=np.array([3]), are_distinct=True)

    assert all(part.encoded() is one for part, one in zip(parts, encoded, strict=False))
    assert early.void_rows(parts).tolist() == [3]
    found = stored(parts)
    rows = {name_of(row): row["value"] for row in found}
    assert len(rows) == 21 == len(found)
    assert rows[0, b"003"] == b"new"
    assert rows[0, b"012"] == b"v"
    assert counts_after({0: 0, 1: 5}, parts) == {0: 20, 1: 4}


@pytest.mark.parametrize(
    "row",
    [(PUT, 0, b"005", b"new", UNKNOWN), (DROP, 1, b"", None, UNKNOWN)],
    ids=["unknown presence", "drop"],
)
def test_all_rows_are_coalesced_if_the_commit_must_sort_them(
    row: tuple[int, int, bytes, bytes | None, int],
) -> None:
    """Presences are searched in sorted keys, and a drop removes rows of early frames."""
    both = batch(
        [(PUT, 0, b"000", b"v", ABSENT), (PUT, 0, b"005", b"v", ABSENT), (PUT, 1, b"x", b"v", 2)]
    )

    late = [batch([row, (PUT, 0, b"005", b"new", ABSENT)] if row[0] == DROP else [row])]
    parts = early.gather(
        [early_frame(both)], late, at_once, replaced=np.array([1]), are_distinct=True
    )

    assert len(parts) == 1
    keys = [(entry["cf"], entry["key"], entry["value"]) for entry in stored(parts)]
    last = (1, b"", None) if row[0] == DROP else (1, b"x", b"v")
    assert keys == [(0, b"000", b"v"), (0, b"005", b"new"), last]


def test_lists_beside_early_frames_keep_all_elements() -> None:
    """A list has one chunk per version."""
    late = [batch([(APPEND, 1, b"a", b"1", ABSENT)]), batch([(APPEND, 1, b"b", b"2", ABSENT)])]

    parts = early.gather(
        [early_frame(puts(0, 3))], late, at_once, replaced=NOTHING, are_distinct=True
    )

    assert [row["key"] for row in stored(parts)] == [b"000", b"001", b"002", b"a", b"b"]
    twice = [batch([(APPEND, 1, b"a", b"1", ABSENT)]), batch([(APPEND, 1, b"a", b"2", ABSENT)])]
    with pytest.raises(ProtocolError):
        early.gather([early_frame(puts(0, 3))], twice, at_once, replaced=NOTHING, are_distinct=True)


def rewritten() -> tuple[list[FrameRows], list[pa.RecordBatch]]:
    """Return early rows 000 to 019, then writes of 004, of 003, and of 005 in another family."""
    rows = [one((0, b"004"), b"new"), one((0, b"003"), None), one((1, b"005"), b"new")]
    frames = [early_frame(puts(0, 10)), early_frame(puts(10, 20))]
    return frames, [batch(rows[:1]), batch(rows[1:])]


def test_rows_are_replaced_in_any_order() -> None:
    """The sender has them in the order in which they were written again."""
    frames, late = rewritten()

    parts = early.gather(frames, late, at_once, replaced=np.array([4, 3]), are_distinct=True)

    assert early.void_rows(parts).tolist() == [3, 4]
    assert len(stored(parts)) == 21


@pytest.mark.parametrize("replaced", [[3], [4, 13], [4, 3, 5], [4, 3, 5, 6], [4, 4]], ids=str)
def test_rows_are_void_only_if_the_late_ones_have_their_keys(replaced: list[int]) -> None:
    """A row that is void by mistake is lost without an error."""
    frames, late = rewritten()

    with pytest.raises(ProtocolError, match="contradicts itself"):
        early.gather(frames, late, at_once, replaced=np.array(replaced), are_distinct=True)


def test_rows_are_not_replaced_by_nothing() -> None:
    """The frames with the newer writes are not counted in the commit."""
    with pytest.raises(ProtocolError, match="contradicts itself"):
        early.gather(rewritten()[0], [], at_once, replaced=np.array([4]), are_distinct=True)


def test_random_writes_equal_a_dictionary() -> None:
    """The last write of a key wins, whatever was sent early."""
    random.seed(7)
    for round_number in range(300):
        form = b"%d" if round_number % 2 else b"%02d"  # keys of one length are taken as words
        model: dict[tuple[int, bytes], bytes | None] = {}
        frames, seen = [], dict[tuple[int, bytes], int]()
        late: dict[tuple[int, bytes], bytes | None] = {}
        for _ in range(random.randrange(4)):
            rows = []
            for _ in range(random.randrange(1, 20)):
                name = (random.randrange(2), form % random.randrange(40))
                value = random.choice([None, b"old"])
                if name not in seen:
                    seen[name] = len(seen)
                    rows.append(one(name, value))
                    model[name] = value
            if rows:
                frames.append(early_frame(batch(rows)))
                if random.random() < 0.5:
                    frames[-1].encode_early()
        for _ in range(random.randrange(15)):
            name = (random.randrange(2), form % random.randrange(40))
            late[name] = random.choice([None, b"new"])
        model |= late
        again = [name for name in late if name in seen]
        names = [*again, *(name for name in late if name not in seen)]
        rows = [one(name, late[name]) for name in names]
        batches = [batch(rows[:5]), batch(rows[5:])]

        in_background = random.choice([at_once, too_late])
        replaced = np.array([seen[name] for name in again], np.int64)
        parts = early.gather(frames, batches, in_background, replaced=replaced, are_distinct=True)

        found = stored(parts) if parts else []
        assert len(found) == len(model)
        assert {(row["cf"], row["key"]): row["value"] for row in found} == model


def one(name: tuple[int, bytes], value: bytes | None) -> tuple[int, int, bytes, bytes | None, int]:
    return (DELETE if value is None else PUT, *name, value, PRESENT)


def test_frames_are_counted() -> None:
    """A lost frame must not become a version without its rows."""
    frames = EarlyFrames()
    add(frames, 1, puts(0, 3))
    add(frames, 2, puts(3, 4))

    assert len(frames.complete(2, 4)) == 2
    assert frames.complete(0, 0) == [], "a spill makes them void"
    for wrong in ((1, 3), (3, 4), (2, 5)):
        with pytest.raises(FramesMissingError):
            frames.complete(*wrong)


def test_frames_that_are_not_allowed_are_refused() -> None:
    """They would be committed in another order, or fill the memory."""
    frames = EarlyFrames()
    for sequence in (0, 2):
        with pytest.raises(ProtocolError):
            add(frames, sequence, puts(0, 3))
    with pytest.raises(ProtocolError):
        add(frames, 1, batch([(APPEND, 1, b"a", b"1", ABSENT)]))
    add(frames, 1, puts(0, 1, bytes(MAX_EARLY_BYTES)))
    with pytest.raises(ProtocolError):
        add(frames, 2, puts(1, 2))


def test_a_dropped_frame_is_not_encoded_in_the_background() -> None:
    """Work for a session that has ended delays others."""
    frames = EarlyFrames()
    frame = add(frames, 1, puts(0, 3))

    frames.drop()
    frame.encode_early()

    assert frame._encoded is None
