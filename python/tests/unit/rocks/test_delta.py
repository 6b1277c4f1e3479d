"""Delta: slices have an even size, no matter how many rows were taken before."""

from __future__ import annotations

import pyarrow as pa

from cairn.format.ops import OP_PUT
from cairn.rocks import Delta


def rows(count: int, value_bytes: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "op": pa.array([OP_PUT] * count, pa.uint8()),
            "cf": pa.array([0] * count, pa.uint16()),
            "key": pa.array([b"%08d" % row for row in range(count)], pa.binary()),
            "value": pa.array([b"v" * value_bytes] * count, pa.binary()),
        }
    )


def test_the_size_of_a_row_does_not_grow_as_rows_are_taken() -> None:
    """Slices sized by it would shrink, and a large commit would take twice the time to apply."""
    delta = Delta(1, [rows(1000, 1000)], frozenset())
    sizes = set()

    while delta.rows_left:
        sizes.add(delta.row_bytes)
        delta.take(100)

    assert len(sizes) == 1
    assert 1000 < sizes.pop() < 1040


def test_each_batch_has_its_own_row_size() -> None:
    """Large values after a batch of small ones must not be in slices of many MiB."""
    delta = Delta(1, [rows(10, 10), rows(10, 10_000)], frozenset())

    small = delta.row_bytes
    delta.take(10)

    assert small < 40
    assert delta.row_bytes > 10_000
