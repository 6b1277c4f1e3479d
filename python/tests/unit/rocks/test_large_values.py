"""Reads of rows of some megabytes take few more bytes from RocksDB than they return."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_PUT
from cairn.rocks import RocksDb, RocksMemory
from cairn.rocks.pages import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB = 1 << 10
MIB = 1 << 20
PREFIX_BYTES = 2


def rows_of(sizes: list[tuple[int, int]]) -> list[tuple[bytes, bytes]]:
    """Return rows with keys and values of these sizes."""
    return [
        (b"\0\1%06d" % number + bytes(key_bytes), bytes(value_bytes))
        for number, (key_bytes, value_bytes) in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    "sizes",
    [
        [(8, 3 * MIB)] * 20,
        [(3 * MIB, 1)] * 20,
        [(8, 10)] * 600 + [(8, 2 * MIB)] * 200,
        [(8, 10), (2 * MIB, 10)] * 40,
        [(8, 600)] * 9000,
    ],
    ids=["values", "keys", "after many small rows", "between small rows", "small rows"],
)
def test_a_page_takes_few_rows_that_it_does_not_return(sizes: list[tuple[int, int]]) -> None:
    """Each page of rows of 60 MiB took sixteen of them: the scan of a state read it 16 times."""
    rows = rows_of(sizes)
    limit_bytes = MIB
    largest = max(len(key) + len(value) for key, value in rows)
    start = 0
    while start < len(rows):
        taken = 0

        def stored(start: int = start) -> Iterator[tuple[bytes, bytes]]:
            nonlocal taken
            for key, value in rows[start:]:
                taken += len(key) + len(value)
                yield key, value

        keys, values = read_rows(stored(), PREFIX_BYTES, 16_384, limit_bytes)

        count = len(keys)
        assert list(zip(keys, values, strict=True)) == [
            (key[PREFIX_BYTES:], value) for key, value in rows[start : start + count]
        ]
        assert taken <= 4 * limit_bytes + largest
        start += count


def test_the_presence_of_large_rows_is_found_without_most_of_their_values(
    tmp_path: Path,
) -> None:
    """A commit of keys whose presence is unknown would need the memory of 32 old values."""
    db = RocksDb(tmp_path / "db", RocksMemory(8 * MIB, MIB), create=True)
    keys = [b"%04d" % number for number in range(0, 120, 2)]
    columns = [
        pa.array(np.full(len(keys), OP_PUT, np.uint8)),
        pa.array(np.zeros(len(keys), np.uint16)),
        pa.array(keys, pa.binary()),
        pa.array([bytes(300 * KIB)] * len(keys), pa.binary()),
    ]
    ingestion = db.new_ingestion(pa.record_batch(columns, schema=CHANGELOG_SCHEMA), 1, frozenset())
    assert db.write(ingestion, lambda: True)
    db.ingest(ingestion)
    asked = [b"%04d" % number for number in range(120)]

    def peak_bytes(read: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            read()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(lambda: db.get_many(0, asked[:32])) > 4 * MIB
    assert peak_bytes(lambda: db.present(0, asked)) <= MIB
    assert db.present(0, asked) == [number % 2 == 0 for number in range(120)]
    db.close()
