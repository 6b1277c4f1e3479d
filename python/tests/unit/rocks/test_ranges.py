"""RangeRows: it yields the rows of each range, whatever lies between the ranges."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from cairn.rocks import ranges as ranges_module
from cairn.rocks.ranges import RangeRows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Ranges = list[tuple[bytes, bytes]]


class Options:
    """Options of reads."""

    def __init__(self) -> None:
        self.bound = b""
        self.max_skipped: int | None = None

    def set_iterate_upper_bound(self, bound: bytes) -> None:
        self.bound = bound

    def set_max_skippable_internal_keys(self, count: int) -> None:
        self.max_skipped = count


class Keys:
    """A database of rocksdict with some keys; counts seeks, steps, rows, deleted rows passed."""

    def __init__(
        self,
        keys: Sequence[bytes],
        corrupt_from: int | None = None,
        deleted: frozenset[bytes] = frozenset(),
    ) -> None:
        self.sorted = keys
        self.end = len(keys) if corrupt_from is None else corrupt_from
        self.deleted = deleted
        self.seeks = self.steps = self.rows = self.passed = 0

    def iter(self, reading: Options) -> Seeker:
        return Seeker(self, reading)

    def items(self, from_key: bytes, read_opt: Options) -> Iterator[tuple[bytes, bytes]]:
        seeker = Seeker(self, read_opt)
        seeker.seek(from_key)
        while (key := seeker.key()) is not None:  # it ends at an error, and raises nothing
            self.rows += 1
            yield key, value_of(key)
            seeker.advance()

    def keys(self, from_key: bytes, read_opt: Options) -> Iterator[bytes]:
        return (key for key, _ in self.items(from_key, read_opt))


class Seeker:
    """An iterator of rocksdict."""

    def __init__(self, database: Keys, reading: Options) -> None:
        assert reading.bound, "it would walk over all deleted rows behind the last range"
        self._database = database
        self._reading = reading
        self._place = 0
        self._error = ""

    def seek(self, key: bytes) -> None:
        self._database.seeks += 1
        self._pass_deleted(bisect_left(self._database.sorted, key))

    def next(self) -> None:
        assert self.key() is not None, "at the end"
        self._database.steps += 1
        self.advance()

    def advance(self) -> None:
        self._pass_deleted(self._place + 1)

    def _pass_deleted(self, place: int) -> None:
        database, limit = self._database, self._reading.max_skipped
        first, names = place, database.sorted
        bounded_end = min(database.end, bisect_left(names, self._reading.bound))
        while place < bounded_end and names[place] in database.deleted:
            place += 1
            database.passed += 1
            if limit is not None and place - first > limit:
                self._error = "Result incomplete: too many internal keys skipped"
                break
        self._place = place

    def key(self) -> bytes | None:
        database = self._database
        if self._error or self._place >= database.end:
            return None
        key = database.sorted[self._place]
        return key if key < self._reading.bound else None

    def value(self) -> bytes:
        return value_of(self._database.sorted[self._place])

    def status(self) -> None:
        if self._error:
            raise ValueError(self._error)
        if self._place == self._database.end < len(self._database.sorted):
            raise ValueError("a corrupt block")


def value_of(key: bytes) -> bytes:
    return b"value of " + key


def number(value: int) -> bytes:
    return value.to_bytes(3, "big")


def read(database: Keys, ranges: Ranges, *, keys_only: bool = False) -> list[tuple[Any, ...]]:
    # The fake has the part of Rdict that is used.
    return list(RangeRows(database, ranges, Options, keys_only=keys_only))  # type: ignore[arg-type]


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

    assert close.seeks == 3  # the sample, the rows, and whether they are all
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


@pytest.mark.parametrize("gap", [2, 40, 500])
@pytest.mark.parametrize("part", [0.5, 0.99, 1.0])
def test_deleted_rows_between_ranges_are_not_all_passed(
    gap: int, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk over 50,000 of them takes 15 ms, and holds the GIL."""
    monkeypatch.setattr(ranges_module, "MAX_SKIPPED", 8)
    random = Random(gap)
    keys = [number(value) for value in range(20_000)]
    # Some at the beginning are not deleted, and some between deleted ones.
    deleted = frozenset(key for key in keys[1000:] if random.random() < part)
    left = [key for key in keys if key not in deleted]
    ranges = [(number(low), number(low + 2)) for low in range(0, 20_000, gap)]
    expected = [
        (place, key, value_of(key))
        for place, (low, high) in enumerate(ranges)
        for key in left[bisect_left(left, low) : bisect_left(left, high)]
    ]
    database = Keys(keys, deleted=deleted)

    assert read(database, ranges) == expected
    assert database.passed < 2 * len(ranges) + 9 * 20


def test_deleted_rows_within_a_range_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges_module, "MAX_SKIPPED", 8)
    keys = [number(value) for value in range(300)]
    database = Keys(keys, deleted=frozenset(keys[10:90] + keys[110:290]))

    found = read(database, [(number(5), number(100)), (number(100), number(300))])

    assert [key for _, key, _ in found] == keys[5:10] + keys[90:110] + keys[290:]
