"""Coalescing and counting: whole columns against a loop over rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import Rig, family

from cairn.errors import BatchTooLargeError, ProtocolError
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.store.rows import writes
from cairn.store.rows.tally import tally

PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
FAMILY = family(0, multi=False)


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * 5
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, WRITES_SCHEMA, strict=True)],
        schema=WRITES_SCHEMA,
    )


def model(rows: list[tuple[Any, ...]]) -> dict[tuple[int, bytes], tuple[int, bytes | None]]:
    """Apply one row after the other."""
    done: dict[tuple[int, bytes], tuple[int, bytes | None]] = {}
    for op, cf, key, value, _ in rows:
        before_op, before = done.get((cf, key), (0, None))
        if op == APPEND and before_op in (PUT, APPEND):
            done[cf, key] = before_op, (before or b"") + value
        elif op == APPEND and before_op == DELETE:
            done[cf, key] = PUT, value
        else:
            done[cf, key] = op, value
    return done


KEYS = st.sampled_from([b"", b"a", b"a\x00", b"b", b"zz"])
WRITES = st.one_of(
    st.tuples(st.just(PUT), st.integers(0, 2), KEYS, st.binary(max_size=3), st.just(0)),
    st.tuples(st.just(DELETE), st.integers(0, 2), KEYS, st.none(), st.just(0)),
    st.tuples(
        st.just(APPEND), st.integers(0, 2), KEYS, st.binary(min_size=1, max_size=3), st.just(0)
    ),
)


@given(st.lists(st.lists(WRITES, max_size=8), min_size=1, max_size=4))
def test_coalesced_writes_equal_the_writes_one_by_one(frames: list[list[tuple[Any, ...]]]) -> None:
    """The last write wins, appends add up, and the result is sorted with one op per key."""
    found = writes.coalesce([batch(frame) for frame in frames])

    rows = found.to_pylist()
    keys = [(row["cf"], row["key"]) for row in rows]
    assert keys == sorted(set(keys))
    assert {(row["cf"], row["key"]): (row["op"], row["value"]) for row in rows} == model(
        [row for frame in frames for row in frame]
    )


def test_a_dropped_family_leaves_only_its_drop() -> None:
    """Its id is never used again, so no write may follow the drop either."""
    rows = [(PUT, 1, b"", b"x", 0), (DROP, 1, b"", None, 0), (PUT, 0, b"k", b"v", 0)]

    found = writes.coalesce([batch(rows), batch(rows[1:2])])

    assert [(row["op"], row["cf"]) for row in found.to_pylist()] == [(PUT, 0), (DROP, 1)]


def test_counts_follow_presence() -> None:
    """Counts are in every changelog: a wrong count is never corrected."""
    rows = batch(
        [
            (PUT, 0, b"a", b"1", 2),
            (PUT, 0, b"b", b"1", 1),
            (DELETE, 0, b"c", None, 1),
            (DELETE, 0, b"d", None, 2),
            (PUT, 0, b"e", b"1", 0),
            (APPEND, 1, b"f", b"1", 0),
            (DROP, 2, b"", None, 0),
        ]
    )
    unknown = [(cf, keys.to_pylist()) for cf, keys in writes.unknown_keys(rows)]
    assert unknown == [(0, [b"e"]), (1, [b"f"])]

    known = writes.with_presences(rows, np.array([2, 0], np.uint8))
    assert [cf for cf, _ in writes.unknown_keys(known)] == [1]
    known = writes.with_presences(known, np.array([1], np.uint8))

    assert writes.counts_after({0: 10, 1: 5, 2: 7}, tally(known), [0, 1]) == {0: 11, 1: 5}


def test_more_deletes_than_keys_are_refused() -> None:
    """A negative count makes a durable version that no release can read."""
    rows = tally(batch([(DELETE, 1, b"a", None, 1), (DELETE, 1, b"b", None, 1)]))

    with pytest.raises(ProtocolError, match="family 1 would have -1 keys"):
        writes.counts_after({0: 5, 1: 1}, rows, [0, 1])

    assert writes.counts_after({0: 5, 1: 2}, rows, [0, 1]) == {0: 5, 1: 0}


@pytest.mark.parametrize(
    "row",
    [
        (0, 0, b"k", b"v", 0),
        (5, 0, b"k", b"v", 0),
        (PUT, 0, b"k", None, 0),
        (DELETE, 0, b"k", b"v", 0),
        (APPEND, 0, b"k", None, 0),
        (PUT, 0, b"k", b"v", 3),
        (PUT, 0, b"k", b"v", 7),
        (PUT, 0, b"k", b"v", 13),
        (PUT, 0, b"k", b"v", 16),
    ],
)
def test_invalid_writes_are_refused(row: tuple[Any, ...]) -> None:
    """In a changelog they would make the version unreadable."""
    with pytest.raises(ProtocolError):
        writes.check_writes(batch([(PUT, 0, b"a", b"v", 0), row]))


def test_more_than_a_column_holds_is_refused_as_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user can correct it: it must not be reported as a bug."""
    monkeypatch.setattr(writes, "MAX_COLUMN_BYTES", 1000)
    rows = batch([(PUT, 0, b"a", b"v" * 600, 0)])
    assert writes.coalesce([rows]).num_rows == 1

    with pytest.raises(BatchTooLargeError, match=r"12\d\d bytes of values.*Next: make batches"):
        writes.coalesce([rows, rows])


def test_a_commit_with_a_wrong_presence_stores_nothing(rig: Rig, tmp_path: Path) -> None:
    """A count below zero is in a header that no load accepts: the query could not go on."""
    rig.write([(1, 0, b"a", b"v", 2)])
    first = rig.commit(1, None, [FAMILY])["checkpoint_id"]
    rig.load(1, first)
    rig.write([(2, 0, b"a", None, 1), (2, 0, b"b", None, 1)])

    with pytest.raises(ProtocolError, match="family 0 would have -1 keys"):
        rig.commit(2, first, [FAMILY])

    assert [path.name[0] for path in (tmp_path / "objects" / "changelog").iterdir()] == ["1"]
    rig.load(1, first)
    assert rig.contents(0, 1) == {b"a": b"v"}


def test_a_commit_names_the_version_that_it_builds_on(rig: Rig) -> None:
    """Equal numbers are not enough: the writes were computed from the rows of one attempt."""
    rig.write([(1, 0, b"a", b"v", 2)])
    first = rig.commit(1, None, [FAMILY])["checkpoint_id"]
    rig.load(1, first)

    for other in (None, "", "u" + "0" * 32, f"=1@1_{first}"):
        with pytest.raises(ProtocolError, match="is loaded"):
            rig.commit(2, other, [FAMILY])

    rig.commit(2, first, [FAMILY])
