"""Early frames: encoded before the commit; later rows of their keys win."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import FramesMissingError, ProtocolError
from cairn.format import changelog
from cairn.format.changelog import EncodedRows
from cairn.format.header import Base, ChangelogHeader
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.protocol.frames import MAX_EARLY_BYTES, WRITES_SCHEMA
from cairn.store.rows import writes
from cairn.store.rows.deltas import CommittedRun, Delta
from cairn.store.rows.tally import tally
from cairn.store.write import early
from cairn.store.write.early import EarlyFrames, WrittenRows

PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
UNKNOWN, PRESENT, ABSENT = 0, 1, 2
Name = tuple[int, bytes]
Frame = dict[Name, bytes | None]


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


def stored(parts: list[WrittenRows]) -> list[dict[str, Any]]:
    """Return the rows of the changelog of a commit that count, as a reader gets them."""
    data = changelog.encode(HEADER, [part.encoded() for part in parts])
    batches = changelog.decode(data, object_name="x").table.to_batches()
    rows = [row for batch in writes.reduced(batches) for row in batch.to_pylist()]
    delta = CommittedRun([Delta(1, [part.changes for part in parts], frozenset())])
    assert sorted(rows, key=name_of) == delta.rows.to_pylist(), "the local state differs"
    return rows


def name_of(row: dict[str, Any]) -> tuple[int, bytes]:
    return row["cf"], row["key"]


def add(frames: EarlyFrames, sequence: int, rows: pa.RecordBatch) -> WrittenRows:
    return frames.add(sequence, rows, tally(rows))


def counts_after(counts: dict[int, int], parts: list[WrittenRows]) -> dict[int, int]:
    return writes.counts_after(counts, [part.tally for part in parts], list(counts))


@pytest.mark.parametrize("cut", [[], [0], [1], [3, 40], list(range(50))])
def test_a_changelog_does_not_depend_on_what_was_encoded_early(cut: list[int]) -> None:
    """The format has one form: a reader cannot see when rows were encoded."""
    rows = [writes.as_changes(puts(key, key + 3)) for key in range(50)]
    mixed: list[pa.RecordBatch | EncodedRows] = [
        changelog.encode_rows([one], use_threads=False) if index in cut else one
        for index, one in enumerate(rows)
    ]

    assert changelog.encode(HEADER, mixed) == changelog.encode(HEADER, rows)


def test_frames_are_not_encoded_again() -> None:
    """Otherwise the commit takes as long as without early frames."""
    frames = [WrittenRows(puts(0, 10)), WrittenRows(puts(10, 20))]
    encoded = [frame.encoded() for frame in frames]
    late = batch([(PUT, 0, b"003", b"new", ABSENT + 4), (DELETE, 1, b"012", None, PRESENT)])

    parts = early.gather(frames, [late], at_once, are_distinct=True)

    assert all(part.encoded() is one for part, one in zip(parts, encoded, strict=False))
    found = stored(parts)
    rows = {name_of(row): row["value"] for row in found}
    assert len(rows) == 21 == len(found)
    assert rows[0, b"003"] == b"new"
    assert rows[0, b"012"] == b"v"
    assert counts_after({0: 0, 1: 5}, parts) == {0: 20, 1: 4}


def test_distinct_writes_stay_in_their_order() -> None:
    """A sort of a large batch would delay its PUT."""
    rows = [(PUT, 0, b"z", b"1", 1), (DELETE, 0, b"b", None, 1), (APPEND, 1, b"a", b"2", 2)]

    parts = early.gather([], [batch(rows[:2]), batch(rows[2:])], too_late, are_distinct=True)

    assert [part.rows for part in parts] == [batch(rows[:2]), batch(rows[2:])]


@pytest.mark.parametrize(
    ("rows", "are_distinct"),
    [
        ([(PUT, 0, b"005", b"new", UNKNOWN + 4)], True),
        ([(DROP, 1, b"", None, UNKNOWN), (PUT, 0, b"005", b"new", ABSENT + 4)], True),
        ([(PUT, 0, b"005", b"new", ABSENT + 4)], False),
    ],
    ids=["unknown presence", "drop", "spill"],
)
def test_all_rows_are_coalesced_if_the_commit_must_sort_them(
    rows: list[tuple[int, int, bytes, bytes | None, int]], *, are_distinct: bool
) -> None:
    """Presences are searched in sorted keys, and a drop removes rows of early frames."""
    both = batch(
        [(PUT, 0, b"000", b"v", ABSENT), (PUT, 0, b"005", b"v", ABSENT), (PUT, 1, b"x", b"v", 2)]
    )

    parts = early.gather([WrittenRows(both)], [batch(rows)], at_once, are_distinct=are_distinct)

    assert len(parts) == 1
    keys = [(entry["cf"], entry["key"], entry["value"]) for entry in stored(parts)]
    last = (1, b"", None) if rows[0][0] == DROP else (1, b"x", b"v")
    assert keys == [(0, b"000", b"v"), (0, b"005", b"new"), last]
    assert parts[0].rows.column("presence").to_pylist()[0] == ABSENT
    if not parts[0].tally.has_unknown:
        assert counts_after({0: 0}, parts) == {0: 2}


def test_lists_beside_early_frames_keep_all_elements() -> None:
    """A list has one chunk per version."""
    frames = [WrittenRows(puts(0, 3)), WrittenRows(batch([(PUT, 1, b"c", b"v", ABSENT)]))]
    late = [batch([(APPEND, 2, b"a", b"1", ABSENT)]), batch([(APPEND, 2, b"b", b"2", ABSENT)])]

    parts = early.gather(frames, late, at_once, are_distinct=True)

    assert [row["key"] for row in stored(parts)] == [b"000", b"001", b"002", b"c", b"a", b"b"]


@pytest.mark.parametrize("again", [(APPEND, 1, b"L", b"y", 1), (APPEND, 1, b"M", b"y", 1)])
@pytest.mark.parametrize("is_early", [False, True])
def test_appends_wrongly_marked_as_distinct_are_refused(
    again: tuple[int, int, bytes, bytes | None, int], *, is_early: bool
) -> None:
    """Each chunk of a list is named by its version: the second would replace the first."""
    puts_before = batch([(PUT, 0, b"L", b"v", 1), (PUT, 1, b"M", b"v", 1), (PUT, 1, b"L", b"v", 1)])
    frames = [WrittenRows(puts_before)] if is_early else []
    late = [] if is_early else [puts_before]

    with pytest.raises(ProtocolError, match="family 1 twice"):
        early.gather(frames, [*late, batch([again])], at_once, are_distinct=True)


def test_random_writes_equal_a_dictionary() -> None:
    """The last write of a key wins, whatever was sent early, and keys count once."""
    random.seed(7)
    for round_number in range(300):
        form = b"%d" if round_number % 2 else b"%02d"  # keys of one length are taken as words
        committed = {(random.randrange(2), form % random.randrange(40)) for _ in range(20)}
        model: Frame = {}
        sent: dict[Name, int] = {}

        frames = []
        for _ in range(random.randrange(4)):
            frame = _some(form, b"old", random.randrange(1, 20))
            frames.append(WrittenRows(batch(_rows(frame, committed, sent))))
            if random.random() < 0.5:
                frames[-1].encode_ahead()
            model |= frame
            sent |= {name: 8 if value is None else 4 for name, value in frame.items()}
        late = _some(form, b"new", random.randrange(15))
        model |= late
        rows = _rows(late, committed, sent)
        batches = [batch(rows[:5]), batch(rows[5:])]

        in_background = random.choice([at_once, too_late])
        parts = early.gather(frames, batches, in_background, are_distinct=random.random() < 0.8)

        found = stored(parts) if parts else []
        assert len(found) == len(model)
        assert {(row["cf"], row["key"]): row["value"] for row in found} == model
        left = committed - model.keys() | {name for name, value in model.items() if value}
        assert counts_after(_by_family(committed), parts) == _by_family(left)


def _some(form: bytes, value: bytes, count: int) -> Frame:
    names = {(random.randrange(2), form % random.randrange(40)) for _ in range(count)}
    return {name: random.choice([None, value]) for name in names}


def _rows(frame: Frame, committed: set[Name], sent: dict[Name, int]) -> list[Any]:
    presences = {name: PRESENT if name in committed else ABSENT for name in frame}
    return [
        (DELETE if value is None else PUT, *name, value, presences[name] + sent.get(name, 0))
        for name, value in frame.items()
    ]


def _by_family(names: set[Name]) -> dict[int, int]:
    return {cf: sum(name[0] == cf for name in names) for cf in (0, 1)}


def test_frames_are_counted() -> None:
    """A lost frame must not become a version without its rows."""
    frames = EarlyFrames()
    add(frames, 1, puts(0, 3))
    add(frames, 2, puts(3, 4))

    assert len(frames.complete(2, 4)) == 2
    assert frames.complete(0, 0) == [], "after a spill none counts"
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
    frame.encode_ahead()

    assert frame._encoded is None
