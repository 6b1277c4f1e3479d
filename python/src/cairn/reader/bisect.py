"""Bisect: the first batch at which something is true of the state.

Layer: reader. The condition is a function of the batch: what it reads, and how, is its own matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cairn.errors import MissingError, NotThereError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class Look:
    """A batch that was looked at.

    Attributes:
        batch: its number.
        is_true: what the condition is; ``None``: neither true nor false, as ``NULL`` in SQL.
        is_gone: its state is not retained any more.
    """

    batch: int
    is_true: bool | None
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Bisection:
    """The answer.

    Attributes:
        first: the first batch at which the condition is true; ``None``: it is at none.
        looks: the batches that were looked at, ascending.
        is_oldest: whether nothing before ``first`` can be read: it may have been true earlier.
    """

    first: int | None
    looks: tuple[Look, ...]
    is_oldest: bool


def bisect(
    batches: Sequence[int], condition: Callable[[int], bool | None], *, is_monotonic: bool = True
) -> Bisection:
    """Return the first batch; see ``Checkpoint.bisect``.

    Args:
        batches: ascending; the state of the oldest ones may be gone.
        condition: see there.
        is_monotonic: see there.
    """
    search = _Search(batches, condition)
    first = search.halve() if is_monotonic else search.walk()
    looks = tuple(sorted(search.looks.values(), key=lambda look: look.batch))
    if first is None:
        return Bisection(None, looks, is_oldest=False)
    place = list(batches).index(first)
    before = search.looks.get(batches[place - 1]) if place else None
    is_oldest = first > 0 and (before is None or before.is_gone)
    return Bisection(first, looks, is_oldest)


class _Search:
    def __init__(self, batches: Sequence[int], condition: Callable[[int], bool | None]) -> None:
        self._batches = batches
        self._condition = condition
        self.looks: dict[int, Look] = {}

    def halve(self) -> int | None:
        """Return the first batch, if the condition stays true once it is."""
        low, high = 0, len(self._batches) - 1
        # Each state is read whole: if nothing is true at the end, this one is enough.
        if high < 0 or not self._look(high).is_true:
            return None
        while low < high:
            middle = (low + high) // 2
            if self._look(middle).is_true:
                high = middle
            else:
                low = middle + 1
        return self._batches[high]

    def walk(self) -> int | None:
        """Return the first batch, whatever the condition is later."""
        for place in range(len(self._batches)):
            if self._look(place).is_true:
                return self._batches[place]
        return None

    def _look(self, place: int) -> Look:
        """Look at a batch: the state of old ones may be gone, that of later ones must be there."""
        batch = self._batches[place]
        try:
            look = Look(batch, self._condition(batch))
        except (MissingError, NotThereError):
            is_newest = place == len(self._batches) - 1
            older = (one for one in self.looks.values() if one.batch < batch)
            if is_newest or any(not one.is_gone for one in older):
                raise
            look = Look(batch, None, is_gone=True)
        self.looks[batch] = look
        return look
