"""RangeRows: it yields the rows of each range, whatever lies between the ranges."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from cairn.rocks.ranges import RangeRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Ranges = list[tuple[bytes, bytes]]


class Keys:
    """A database of rocksdict with some keys; counts seeks, steps and rows."""

    def __init__(self, keys: Sequence[bytes], corrupt_from: int | None = None) -> None:
        self.sorted = keys
        self.end = len(keys) if corrupt_from is None else corrupt_from
        self.seeks = self.steps = self.rows = 0

    def iter(self, _: object) -> Seeker:
        return Seeker(self)

    def items(self, from_key: bytes, read_opt: object) -> Iterator[tuple[bytes, bytes]]:
        assert read_opt is not None, "it has the bound of the last range"
        self.seeks += 1
        for place in range(bisect_left(self.sorted, from_key), self.end):
            self.rows += 1
            yield self.sorted[place], value_of(self.sorted[place])

    def keys(self, from_key: bytes, read_opt: object) -> Iterator[bytes]:
        return (key for key, _ in self.items(from_key, read_opt))


class Seeker:
    """An iterator of rocksdict."""

    def __init__(self, database: Keys) -> None:
        self._database = database
        self._place = 0

    def seek(self, key: bytes) -> None:
        self._database.seeks += 1
        self._place = bisect_left(self._database.sorted, key)

    def next(self) -> None:
        assert self._place < self._database.end, "at the end"
        self._database.steps += 1
        self._place += 1

    def key(self) -> bytes | None:
        database = self._database
        return database.sorted[self._place] if self._place < database.end else None

    def value(self) -> bytes:
        return value_of(self._database.sorted[self._place])

    def status(self) -> None:
        if self._place < len(self._database.sorted):
            raise ValueError("a corrupt block")


def value_of(key: bytes) -> bytes:
    return b"value of " + key


def number(value: int) -> bytes:
    return value.to_bytes(3, "big")


def read(database: Keys, ranges: Ranges, *, keys_only: bool = False) -> list[tuple[Any, ...]]:
    # The fake has the part of Rdict that is used.
    return list(RangeRows(database, ranges, keys_only=keys_only))  # type: ignore[arg-type]


@pytest.mark.parametrize("gap", [1, 3, 12, 40, 500, 5000])
@pytest.mark.parametrize("order", ["ascending", "clustered", "any"])
def test_the_rows_of_all_ranges_are_found(gap: int, order: str) -> None:
    """Dense and sparse ranges, some empty, some touching, some behind the last key."""
    random = Random(gap)
    keys = [number(value) for value in sorted(random.sample(range(60_000), 20_000))]
    bounds = sorted(random.sample(range(61_000), 60_000 // gap))
    if order == "clustered":
        bounds = [value for value in bounds if value % 6000 < 3000]
    ranges = [(number(low), number(high)) for low, high in pairwise(bounds)]
    ranges = [one for one in ranges if random.random() < 0.7]
    if order == "any":
        random.shuffle(ranges)
        ranges += ranges[:50]
    expected = [
        (place, key)
        for place, (low, high) in enumerate(ranges)
        for key in keys[bisect_left(keys, low) : bisect_left(keys, high)]
    ]

    assert read(Keys(keys), ranges) == [(*row, value_of(row[1])) for row in expected]
    assert read(Keys(keys), ranges, keys_only=True) == [(*row, b"") for row in expected]


def test_only_the_rows_between_close_ranges_are_read() -> None:
    """A read across a large database would take for ever."""
    keys = [number(value) for value in range(100_000)]
    close, far = Keys(keys), Keys(keys)

    read(close, [(number(value), number(value + 1)) for value in range(0, 100_000, 4)])
    read(far, [(number(value), number(value + 1)) for value in range(0, 100_000, 100)])

    assert close.seeks == 2
    assert far.seeks == 1000
    assert far.steps < 1100
    assert far.rows == 0


def test_a_gap_between_close_ranges_is_sought_across() -> None:
    keys = [number(value) for value in range(100_000)]
    starts = [*range(0, 400, 2), *range(90_000, 90_400, 2)]
    database = Keys(keys)

    found = read(database, [(number(value), number(value + 1)) for value in starts])

    assert [key for _, key, _ in found] == [number(value) for value in starts]
    assert database.rows < 1000
    assert database.seeks < 10


@pytest.mark.parametrize("range_count", [1, 5, 1000])
def test_a_corrupt_block_is_an_error(range_count: int) -> None:
    """The keys behind it would look absent."""
    keys = [number(value) for value in range(range_count * 2)]
    ranges = [(number(value * 2), number(value * 2 + 2)) for value in range(range_count)]

    with pytest.raises(ValueError, match="corrupt"):
        read(Keys(keys, corrupt_from=len(keys) - 1), ranges)
    with pytest.raises(ValueError, match="corrupt"):
        read(Keys(keys, corrupt_from=0), ranges)
