"""Walk: it is at the key to which a seek would have gone, whatever lies between."""

from __future__ import annotations

from bisect import bisect_left
from random import Random
from typing import TYPE_CHECKING

import pytest

from cairn.rocks.keys import ABOVE_ALL_KEYS
from cairn.rocks.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence


class Keys:
    """An iterator of rocksdict over some keys; counts its seeks and steps."""

    def __init__(self, keys: Sequence[bytes], corrupt_from: int | None = None) -> None:
        self._keys = keys
        self._corrupt_from = len(keys) if corrupt_from is None else corrupt_from
        self._place = 0
        self.seeks = self.steps = 0

    def seek(self, key: bytes) -> None:
        self.seeks += 1
        self._place = bisect_left(self._keys, key)

    def next(self) -> None:
        assert self._place < self._corrupt_from, "at the end"
        self.steps += 1
        self._place += 1

    def key(self) -> bytes | None:
        return self._keys[self._place] if self._place < self._corrupt_from else None

    def value(self) -> bytes:
        return b"value of " + self._keys[self._place]

    def status(self) -> None:
        if self._place < len(self._keys):
            raise ValueError("a corrupt block")


def number(value: int) -> bytes:
    return value.to_bytes(3, "big")


@pytest.mark.parametrize("gap", [1, 3, 12, 40, 500])
def test_a_walk_goes_where_a_seek_goes(gap: int) -> None:
    """Dense and sparse keys, in order with some repetitions, and then back to the first.

    A step may lead past a key that is wanted again.
    """
    random = Random(gap)
    keys = [number(value) for value in sorted(random.sample(range(60_000), 20_000))]
    wanted = sorted(random.choices(range(60_000), k=40_000 // gap))
    walk = Walk(Keys(keys))  # type: ignore[arg-type] # the part of RdictIter that is used

    for value in [*wanted, *wanted[:40], 60_001, 60_002, wanted[0]]:
        start = number(value)
        place = bisect_left(keys, start)
        expected = keys[place] if place < len(keys) else ABOVE_ALL_KEYS

        assert walk.to(start) == walk.key == expected
        if expected != ABOVE_ALL_KEYS:
            assert walk.value() == b"value of " + expected
            if value % 3 == 0:
                walk.step()


def test_only_close_keys_are_walked_to() -> None:
    """A walk across a large database would take for ever."""
    keys = [number(value) for value in range(100_000)]
    dense, sparse = Keys(keys), Keys(keys)
    walk = Walk(dense)  # type: ignore[arg-type] # see above
    for value in range(0, 100_000, 4):
        walk.to(number(value))
    walk = Walk(sparse)  # type: ignore[arg-type] # see above
    for value in range(0, 100_000, 100):
        walk.to(number(value))

    assert dense.seeks == 1
    assert sparse.seeks == 1000
    assert sparse.steps < 200


def test_a_walk_ends_at_a_corrupt_block() -> None:
    """The keys behind it would look absent."""
    keys = [number(value) for value in range(10)]
    walk = Walk(Keys(keys, corrupt_from=5))  # type: ignore[arg-type] # see above
    walk.to(number(4))

    with pytest.raises(ValueError, match="corrupt"):
        walk.step()
    with pytest.raises(ValueError, match="corrupt"):
        Walk(Keys(keys, corrupt_from=5)).to(number(7))  # type: ignore[arg-type] # see above
