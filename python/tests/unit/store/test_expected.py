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
from cairn.store.rows.tally import tally
from cairn.store.write import expected

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

    expected.check_rows(request, tally(batch(*rows)))

    for wrong in (count - 1, count + 1):
        with pytest.raises(ProtocolError, match="disagree"):
            expected.check_rows(replace(REQUEST, expected_rows=wrong), tally(batch(*rows)))


def test_a_digest_has_the_keys_and_values_that_are_left() -> None:
    """Equal numbers of rows may be other rows; this is what tests compare besides."""
    parts = [
        batch((PUT, 0, b"a", b"1", ABSENT), (DELETE, 0, b"b", None, PRESENT)),
        batch((APPEND, 1, b"a", b"x", UNKNOWN)),
    ]
    right = expected.digest(
        [batch((PUT, 1, b"a", b"y", ABSENT), (PUT, 0, b"a", b"1", PRESENT))], {1}
    )
    request = replace(REQUEST, expected_digest=right)

    expected.check_digest(request, parts)
    expected.check_digest(REQUEST, parts)

    other = batch((PUT, 0, b"a", b"2", ABSENT))
    for wrong in ([*parts, other], parts[:1], parts[1:], [other, parts[1]]):
        with pytest.raises(ProtocolError, match="other keys or values"):
            expected.check_digest(request, wrong)
