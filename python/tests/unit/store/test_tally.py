"""Tally: the writes of a batch, counted by family, op and presence."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.protocol.frames import WRITES_SCHEMA
from cairn.store.rows import tally as module
from cairn.store.rows.tally import tally

PUT, DELETE, APPEND, DROP_CF = 1, 2, 3, 4
UNKNOWN, PRESENT, ABSENT = 0, 1, 2

Row = tuple[int, int, int]


def batch(rows: list[Row]) -> pa.RecordBatch:
    values = [None if op in (DELETE, DROP_CF) else b"v" for _, op, _ in rows]
    return pa.record_batch(
        [
            pa.array([op for _, op, _ in rows], pa.uint8()),
            pa.array([cf for cf, _, _ in rows], pa.uint16()),
            pa.array([b"%d" % row for row in range(len(rows))], pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([presence for _, _, presence in rows], pa.uint8()),
        ],
        schema=WRITES_SCHEMA,
    )


ROWS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 65535]), st.sampled_from([PUT, DELETE, APPEND]), st.integers(0, 2)
    )
)
ROWS_OF_PUTS = st.lists(st.tuples(st.just(513), st.just(PUT), st.integers(0, 2)))


@pytest.mark.parametrize("small_rows", [0, 4096])
@given(rows=st.one_of(ROWS, ROWS_OF_PUTS), skipped=st.integers(0, 2))
def test_a_tally_equals_the_rows_counted_one_by_one(
    small_rows: int, rows: list[Row], skipped: int
) -> None:
    """A wrong tally would be a wrong number of keys, in every later version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SMALL_ROWS", small_rows)
        found = tally(batch(rows).slice(skipped))

    rows = rows[skipped:]
    changes = Counter[int]()
    for cf, op, presence in rows:
        changes[cf] += presence == ABSENT and op in (PUT, APPEND)
        changes[cf] -= presence == PRESENT and op == DELETE
    assert Counter(found.changes()) == changes
    assert found.has_unknown == any(presence == UNKNOWN for _, _, presence in rows)
    assert found.highest_op == max((op for _, op, _ in rows), default=0)
    assert found.is_plain != found.has_unknown


def test_a_drop_has_no_presence() -> None:
    """Its keys are not looked up."""
    found = tally(batch([(3, DROP_CF, UNKNOWN), (4, PUT, PRESENT)]))

    assert not found.has_unknown
    assert not found.is_plain


@pytest.mark.parametrize(("op", "presence"), [(0, 0), (255, 1), (PUT, 255)])
@pytest.mark.parametrize("count", [1, 5000])
def test_unknown_numbers_are_counted_too(op: int, presence: int, count: int) -> None:
    """The check of writes must see them."""
    found = tally(batch([(0, PUT, PRESENT)] * count + [(0, op, presence)]))

    assert found.lowest_op == min(op, PUT)
    assert found.highest_op == max(op, PUT)
    assert found.has_valid_presences == (presence <= ABSENT)


def test_rows_of_a_dropped_family_do_not_count() -> None:
    """The shim has forgotten them with the family."""
    rows = [(3, PUT, ABSENT), (3, DELETE, PRESENT), (4, PUT, PRESENT), (3, DROP_CF, UNKNOWN)]

    assert tally(batch(rows)).expected_rows == 2
