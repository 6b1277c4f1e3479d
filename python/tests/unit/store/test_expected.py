"""A commit is refused if shim and worker count the writes of its session otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import ProtocolError
from cairn.format.header import ColumnFamily
from cairn.ids import Attempt
from cairn.protocol.calls import CommitRequest
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.protocol.session_id import SessionId
from cairn.store.rows.tally import Tally, tally
from cairn.store.write import expected
from cairn.store.write.early import WrittenRows

PUT, DELETE, APPEND, DROP = 1, 2, 3, 4
UNKNOWN, PRESENT, ABSENT = 0, 1, 2


def family(number: int, *, multi: bool) -> ColumnFamily:
    return ColumnFamily(number, f"f{number}", multi, False, False, "key", "value", "encoder")  # noqa: FBT003


REQUEST = CommitRequest(
    instance=1,
    session=SessionId(1, 1),
    frames=0,
    rows=0,
    version=1,
    column_families=(family(0, multi=False), family(1, multi=True)),
    max_cf_id=1,
    attempt=Attempt("run", 1, 0, 0, 0),
    expected_rows=0,
)


def batch(*rows: tuple[int, int, bytes, bytes | None, int]) -> pa.RecordBatch:
    names = WRITES_SCHEMA.names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], WRITES_SCHEMA
    )


def frame(*rows: tuple[int, int, bytes, bytes | None, int]) -> WrittenRows:
    return WrittenRows(batch(*rows))


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([(PUT, 0, b"a", b"1", ABSENT), (APPEND, 1, b"a", b"1", UNKNOWN)], 2),
        ([(DELETE, 0, b"a", None, ABSENT)], 0),
        ([(DELETE, 0, b"a", None, PRESENT), (DELETE, 0, b"b", None, UNKNOWN)], 2),
        ([(PUT, 1, b"a", b"1", ABSENT), (PUT, 0, b"a", b"1", ABSENT), (DROP, 1, b"", None, 0)], 2),
    ],
    ids=["puts", "delete_of_an_absent_key", "deletes", "drop"],
)
def test_rows_are_counted_as_the_shim_does(rows: list[Any], count: int) -> None:
    """Deletes of absent keys are sent or not; a dropped family has no rows."""
    request = replace(REQUEST, expected_rows=count)

    expected.check_rows(request, tally(batch(*rows)), [])

    for wrong in (count - 1, count + 1):
        with pytest.raises(ProtocolError, match="disagree"):
            expected.check_rows(replace(REQUEST, expected_rows=wrong), tally(batch(*rows)), [])


def test_early_rows_that_the_session_took_back_are_found() -> None:
    """The shim spilled nothing, because all its writes were deletes of absent keys."""
    early = [frame((PUT, 0, b"a", b"1", ABSENT), (PUT, 0, b"b", b"1", ABSENT))]

    with pytest.raises(ProtocolError, match="2 rows, not 0"):
        expected.check_rows(REQUEST, Tally({}), early)


def test_a_row_takes_the_place_of_the_early_one_of_its_key() -> None:
    """The delete after the put of an absent key is sent, and both are no row."""
    early = [
        frame((PUT, 0, b"a", b"1", ABSENT), (PUT, 0, b"b", b"1", ABSENT)),
        frame((DELETE, 0, b"c", None, PRESENT)),
    ]
    late = batch((DELETE, 0, b"b", None, ABSENT + 4), (PUT, 0, b"c", b"2", PRESENT + 8))
    request = replace(REQUEST, expected_rows=2)

    expected.check_rows(request, tally(late), early)


def test_a_digest_has_the_keys_and_values_that_are_left() -> None:
    """Equal numbers of rows may be other rows; this is what tests compare besides."""
    kept = batch((PUT, 0, b"a", b"1", ABSENT), (DELETE, 0, b"b", None, PRESENT))
    parts = [
        WrittenRows(batch((PUT, 0, b"c", b"1", ABSENT), (PUT, 0, b"a", b"0", ABSENT))),
        WrittenRows(kept),
        WrittenRows(batch((DELETE, 0, b"c", None, ABSENT + 4))),
        WrittenRows(batch((APPEND, 1, b"a", b"x", UNKNOWN))),
    ]
    right = expected.digest(
        [WrittenRows(batch((PUT, 1, b"a", b"y", ABSENT), (PUT, 0, b"a", b"1", PRESENT)))], {1}
    )
    request = replace(REQUEST, expected_digest=right)

    expected.check_digest(request, parts)
    expected.check_digest(REQUEST, parts)

    other = WrittenRows(batch((PUT, 0, b"a", b"2", ABSENT)))
    for wrong in ([*parts, other], parts[:2], parts[:1] + parts[2:]):
        with pytest.raises(ProtocolError, match="other keys or values"):
            expected.check_digest(request, wrong)
