"""Distributions: how sizes and times of rows are spread, in memory that does not grow with them.

Layer: reader. A size below 64 is counted as it is. Larger ones share a bucket: each power of two
has 64 of them, so that a size is known to 1/64 of itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

_STEPS: Final = 64
_SHIFT: Final = 6
_BUCKETS: Final = _STEPS * (64 - _SHIFT)
_TIME_BINS: Final = 48
_TIME_BINS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class SizeFigures:
    """How sizes are spread.

    Attributes:
        count: of all.
        total: their sum.
        least, most: exact.
        p50, p90, p99: so many per cent are not larger; at most 1/64 too large.
        doublings: for each power of two that occurs: the limit, and how many sizes are below it
            and not below its half. Ascending; those without a size are there too.
    """

    count: int
    total: int
    least: int
    p50: int
    p90: int
    p99: int
    most: int
    doublings: tuple[tuple[int, int], ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return self.total / self.count


class Sizes:
    """Counts sizes. Not thread-safe."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._total = 0
        self._least = np.iinfo(np.int64).max
        self._most = 0

    def add(self, sizes: Int64s) -> None:
        """Count sizes; each is 0 or more."""
        if not len(sizes):
            return
        self._counts += np.bincount(_buckets_of(sizes), minlength=_BUCKETS)
        self._total += int(sizes.sum())
        self._least = min(self._least, int(sizes.min()))
        self._most = max(self._most, int(sizes.max()))

    def merge(self, other: Sizes) -> None:
        """Count what another one has counted."""
        self._counts += other._counts
        self._total += other._total
        self._least = min(self._least, other._least)
        self._most = max(self._most, other._most)

    def figures(self) -> SizeFigures | None:
        """Return what was counted; ``None`` without a size."""
        count = int(self._counts.sum())
        if not count:
            return None
        after = np.cumsum(self._counts)
        p50, p90, p99 = (
            min(_largest_of(int(np.searchsorted(after, -(-count * part // 100)))), self._most)
            for part in (50, 90, 99)
        )
        return SizeFigures(
            count, self._total, self._least, p50, p90, p99, self._most, tuple(self._doublings())
        )

    def _doublings(self) -> Sequence[tuple[int, int]]:
        first, last = self._least.bit_length(), self._most.bit_length()
        powers = np.zeros(65, np.int64)
        used = np.nonzero(self._counts)[0]
        for bucket in used.tolist():
            powers[_largest_of(bucket).bit_length()] += self._counts[bucket]
        return [(1 << power, int(powers[power])) for power in range(first, last + 1)]


def _buckets_of(sizes: Int64s) -> Int64s:
    """Return the bucket of each size."""
    # A float has 53 bits: larger sizes may come into the next bucket, which no row has.
    _, exponents = np.frexp(sizes.astype(np.float64))
    shifts = np.maximum(exponents.astype(np.int64) - _SHIFT - 1, 0)
    buckets: Int64s = (shifts << _SHIFT) + (sizes >> shifts)
    return buckets


def _largest_of(bucket: int) -> int:
    """Return the largest size of a bucket."""
    if bucket < 2 * _STEPS:
        return bucket
    shift = (bucket >> _SHIFT) - 1
    return ((bucket - (shift << _SHIFT) + 1) << shift) - 1


@dataclass(frozen=True, slots=True)
class TimeFigures:
    """How the times of a column are spread.

    Attributes:
        column: its name; of a struct with a point before the field.
        is_expiry: whether rows expire at these times.
        count: of rows with a time.
        nulls: rows without one.
        first_ms, last_ms: in milliseconds since 1970.
        before_watermark: how many are before the watermark; ``None``: there is no watermark.
        before_batch: how many are before the time at which Spark planned the batch; ``None``: it is
            not known.
        bins: begin of a span of time and the number of times in it; spans of one length.
        bin_ms: that length.
    """

    column: str
    is_expiry: bool
    count: int
    nulls: int
    first_ms: int
    last_ms: int
    before_watermark: int | None
    before_batch: int | None
    bins: tuple[tuple[int, int], ...]
    bin_ms: int


class Times:
    """Counts times, in bins that become wider as the times need it. Not thread-safe.

    Args:
        column: its name.
        watermark_ms: the watermark; 0: there is none.
        batch_ms: when Spark planned the batch; 0: it is not known.
        is_expiry: whether rows expire at these times.
    """

    def __init__(self, column: str, watermark_ms: int, batch_ms: int, *, is_expiry: bool) -> None:
        self._column = column
        self._is_expiry = is_expiry
        self._marks = np.array([watermark_ms, batch_ms])
        self._bins: dict[int, int] = {}
        self._width_ms = 1
        self._nulls = 0
        self._before = np.zeros(2, np.int64)
        self._first: int | None = None
        self._last = 0

    def add(self, times_ms: Int64s, nulls: int) -> None:
        """Count times, and rows without one."""
        self._nulls += nulls
        if not len(times_ms):
            return
        self._before += [np.count_nonzero(times_ms < mark) for mark in self._marks]
        self._cover(int(times_ms.min()), int(times_ms.max()))
        bins, counts = np.unique(times_ms // self._width_ms, return_counts=True)
        self._count(zip(bins.tolist(), counts.tolist(), strict=True))

    def merge(self, other: Times) -> None:
        """Count what another one has counted."""
        self._nulls += other._nulls
        self._before += other._before
        if other._first is None:
            return
        self._cover(other._first, other._last)
        self._width_ms, width = max(self._width_ms, other._width_ms), self._width_ms
        self._widen(self._width_ms // width)
        step = self._width_ms // other._width_ms
        self._count((number // step, count) for number, count in other._bins.items())

    def figures(self) -> TimeFigures | None:
        """Return what was counted; ``None`` without a row."""
        if self._first is None:
            return None
        first, last = self._first // self._width_ms, self._last // self._width_ms
        step = -(-(last - first + 1) // _TIME_BINS)
        counts = [0] * ((last - first) // step + 1)
        for number, count in self._bins.items():
            counts[(number - first) // step] += count
        before = [
            int(count) if mark else None
            for count, mark in zip(self._before, self._marks, strict=True)
        ]
        return TimeFigures(
            column=self._column,
            is_expiry=self._is_expiry,
            count=sum(counts),
            nulls=self._nulls,
            first_ms=self._first,
            last_ms=self._last,
            before_watermark=before[0],
            before_batch=before[1],
            bins=tuple(
                ((first + place * step) * self._width_ms, count)
                for place, count in enumerate(counts)
            ),
            bin_ms=step * self._width_ms,
        )

    def _cover(self, first: int, last: int) -> None:
        """Widen the bins until few of them have all times up to now and these."""
        if self._first is None:
            self._first, self._last = first, last
        self._first, self._last = min(self._first, first), max(self._last, last)
        factor = 1
        while (self._last - self._first) // (self._width_ms * factor) >= _TIME_BINS_MAX:
            factor *= 2
        self._width_ms *= factor
        self._widen(factor)

    def _widen(self, factor: int) -> None:
        """Bring the counted bins to bins that are wider by a factor."""
        if factor > 1:
            before, self._bins = self._bins, {}
            self._count((number // factor, count) for number, count in before.items())

    def _count(self, bins: Iterable[tuple[int, int]]) -> None:
        for number, count in bins:
            self._bins[number] = self._bins.get(number, 0) + count
