"""The writes of a commit: one row per key, in the order in which they came if that is enough."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import ProtocolError
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.store.rows import writes
from cairn.store.rows.deltas import CommittedRun, Delta
from cairn.store.rows.tally import tally
from cairn.store.write.written import WrittenRows, gather

PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
UNKNOWN, PRESENT, ABSENT = 0, 1, 2
Row = tuple[int, int, bytes, bytes | None, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    names = WRITES_SCHEMA.names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], WRITES_SCHEMA
    )


def gathered(*frames: list[Row], are_distinct: bool) -> WrittenRows:
    batches = [batch(rows) for rows in frames]
    counted = sum((tally(rows) for rows in batches[1:]), tally(batches[0]))
    found = gather(batches, counted, are_distinct=are_distinct)
    assert batches == [] or not found.batches, "the rows are needed no more"
    return found


def test_distinct_writes_stay_in_their_order() -> None:
    """A sort of a large batch would delay its PUT."""
    rows: list[Row] = [
        (PUT, 0, b"z", b"1", 1),
        (DELETE, 0, b"b", None, 1),
        (APPEND, 1, b"a", b"2", 2),
    ]

    found = gathered(rows[:2], [], rows[2:], are_distinct=True)

    assert found.batches == [batch(rows[:2]), batch(rows[2:])]
    assert found.tally.changes() == {0: -1, 1: 1}
    assert [row["op"] for part in found.changes() for row in part.to_pylist()] == [1, 2, 3]
    assert [row["op"] for part in found.delta() for row in part.to_pylist()] == [1, 2, PUT]


@pytest.mark.parametrize(
    ("rows", "are_distinct"),
    [
        ([(PUT, 0, b"005", b"new", UNKNOWN)], True),
        ([(DROP, 1, b"", None, UNKNOWN), (PUT, 0, b"005", b"new", ABSENT)], True),
        ([(PUT, 0, b"005", b"new", ABSENT)], False),
    ],
    ids=["unknown presence", "drop", "spill"],
)
def test_rows_are_coalesced_if_the_commit_must_sort_them(
    rows: list[Row], *, are_distinct: bool
) -> None:
    """Presences are searched in sorted keys, and a drop removes the rows of its family."""
    before: list[Row] = [
        (PUT, 0, b"005", b"v", ABSENT),
        (PUT, 0, b"000", b"v", ABSENT),
        (PUT, 1, b"x", b"v", ABSENT),
    ]

    found = gathered(before, rows, are_distinct=are_distinct)

    (whole,) = found.batches
    keys = [(row["cf"], row["key"], row["value"]) for row in whole.to_pylist()]
    last = (1, b"", None) if rows[0][0] == DROP else (1, b"x", b"v")
    assert keys == [(0, b"000", b"v"), (0, b"005", b"new"), last]
    assert found.tally.row_count == 3


@pytest.mark.parametrize("again", [(APPEND, 1, b"L", b"y", 1), (APPEND, 1, b"M", b"y", 1)])
def test_appends_wrongly_marked_as_distinct_are_refused(again: Row) -> None:
    """Each chunk of a list is named by its version: the second would replace the first."""
    puts: list[Row] = [(PUT, 0, b"L", b"v", 1), (PUT, 1, b"M", b"v", 1), (PUT, 1, b"L", b"v", 1)]

    with pytest.raises(ProtocolError, match="family 1 twice"):
        gathered(puts, [again], are_distinct=True)


def test_random_writes_equal_a_dictionary() -> None:
    """The last write of a key wins after a spill, and keys count once."""
    random.seed(7)
    for round_number in range(300):
        form = b"%d" if round_number % 2 else b"%02d"  # keys of one length are taken as words
        committed = {(random.randrange(2), form % random.randrange(40)) for _ in range(20)}
        model: dict[tuple[int, bytes], bytes | None] = {}
        frames: list[list[Row]] = [[]]
        for number in range(random.randrange(4)):
            names = {(random.randrange(2), form % random.randrange(40)) for _ in range(15)}
            frame = {name: random.choice([None, b"%d" % number]) for name in names}
            model |= frame
            frames.append(
                [
                    (
                        DELETE if value is None else PUT,
                        *name,
                        value,
                        PRESENT if name in committed else ABSENT,
                    )
                    for name, value in frame.items()
                ]
            )
        are_distinct = len(frames) <= 2

        found = gathered(*frames, are_distinct=are_distinct)

        rows: list[dict[str, Any]] = [row for one in found.changes() for row in one.to_pylist()]
        assert {(row["cf"], row["key"]): row["value"] for row in rows} == model
        assert len(rows) == len(model)
        if rows:
            delta = CommittedRun([Delta(1, found.delta(), frozenset())])
            assert delta.rows.num_rows == len(model)
        left = committed - model.keys() | {name for name, value in model.items() if value}
        counts = {cf: sum(name[0] == cf for name in committed) for cf in (0, 1)}
        assert writes.counts_after(counts, found.tally, [0, 1]) == {
            cf: sum(name[0] == cf for name in left) for cf in (0, 1)
        }
