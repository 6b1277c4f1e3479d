"""Merges that take few rows at a time: the rows are those of a model, whatever the parts are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.reader.stores import merging
from cairn.reader.stores.merging import SortedStream, merge
from cairn.rocks.sst.decoding import DELETE, MERGE, PUT, Entries

KEYS = st.binary(min_size=0, max_size=2)
# Of one key the newest comes first; some keys come many times, over the ends of parts.
STREAM = st.lists(st.tuples(KEYS, st.sampled_from([PUT, PUT, DELETE, MERGE])), max_size=40)


def entries_of(rows: list[tuple[bytes, int, bytes]]) -> Entries:
    return Entries(
        pa.array([key for key, *_ in rows], pa.binary()),
        pa.array([value for *_, value in rows], pa.binary()),
        np.array([kind for _, kind, _ in rows], np.uint8),
        np.zeros(len(rows), np.uint64),
    )


def model_of(streams: list[list[tuple[bytes, int, bytes]]]) -> dict[bytes, tuple[Any, list[bytes]]]:
    """Return value and operands by key: from the oldest entry to the newest."""
    found: dict[bytes, tuple[Any, list[bytes]]] = {}
    for stream in streams:
        for key, kind, value in reversed(stream):
            if kind == MERGE:
                found.setdefault(key, (None, []))[1].append(value)
            else:
                found[key] = (value if kind == PUT else None), []
    return {key: one for key, one in sorted(found.items()) if one[0] is not None or one[1]}


@settings(deadline=None)
@given(
    raw=st.lists(STREAM, max_size=6),
    part_rows=st.integers(1, 9),
    step_rows=st.sampled_from([1, 2, 3, 10, 1 << 17]),
)
def test_merged_rows_are_those_of_the_model(
    raw: list[list[tuple[bytes, int]]], part_rows: int, step_rows: int
) -> None:
    """Each key once and in order, and the merge ends, also where one key fills several parts."""
    streams = [
        [(key, kind, b"%d.%d" % (age, place)) for place, (key, kind) in enumerate(sorted_rows)]
        for age, sorted_rows in enumerate(sorted(one, key=lambda row: row[0]) for one in raw)
    ]
    parts = [
        [entries_of(one[at : at + part_rows]) for at in range(0, len(one), part_rows)]
        for one in streams
    ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "_STEP_ROWS", step_rows)
        rows: list[dict[str, Any]] = []
        for batch in merge([SortedStream(iter(one)) for one in parts]):
            rows += batch.to_pylist()

    expected = model_of(streams)
    assert [row["key"] for row in rows] == list(expected)
    for row in rows:
        assert (row["value"], row["operands"] or []) == expected[row["key"]]
