"""Distributions: percentiles and bins equal those of all values, within the promised precision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.reader.distributions import Sizes, Times

SIZES = st.lists(st.integers(0, 2**40), min_size=1, max_size=200)
TIMES = st.lists(st.integers(-(2**40), 2**45), min_size=1, max_size=200)


@given(SIZES, SIZES)
def test_sizes_are_those_of_all_values(first: list[int], second: list[int]) -> None:
    """A percentile that is too small hides the rows that make a batch slow."""
    sizes, others = Sizes(), Sizes()
    sizes.add(np.array(first))
    others.add(np.array(second))
    sizes.merge(others)

    figures = sizes.figures()

    values = np.array(first + second)
    assert figures is not None
    assert (figures.count, figures.total) == (len(values), int(values.sum()))
    assert (figures.least, figures.most) == (int(values.min()), int(values.max()))
    for part, found in ((50, figures.p50), (90, figures.p90), (99, figures.p99)):
        exact = int(np.percentile(values, part, method="inverted_cdf"))
        assert exact <= found <= exact + exact // 64 + 1
    for limit, count in figures.doublings:
        assert count == np.count_nonzero((values < limit) & (values >= limit // 2))
    assert sum(count for _, count in figures.doublings) == len(values)


def test_small_sizes_are_exact() -> None:
    """Most keys have less than 128 bytes: there one byte is a difference."""
    sizes = Sizes()
    sizes.add(np.arange(1, 101))

    figures = sizes.figures()

    assert figures is not None
    assert (figures.p50, figures.p90, figures.p99) == (50, 90, 99)


def test_without_values_there_are_no_figures() -> None:
    """An empty family has no least size."""
    assert Sizes().figures() is None
    assert Times("at", 0, 0, is_expiry=False).figures() is None


@given(TIMES, TIMES, st.integers(1, 2**44))
def test_bins_have_all_times_in_their_order(first: list[int], second: list[int], mark: int) -> None:
    """Bins that became wider must not lose rows, whatever comes first."""
    times = Times("at", mark, 0, is_expiry=True)
    others = Times("at", mark, 0, is_expiry=True)
    times.add(np.array(first), 1)
    others.add(np.array(second), 2)
    others.merge(times)

    figures = others.figures()

    values = np.array(first + second)
    assert figures is not None
    assert (figures.count, figures.nulls) == (len(values), 3)
    assert (figures.first_ms, figures.last_ms) == (int(values.min()), int(values.max()))
    assert figures.before_watermark == np.count_nonzero(values < mark)
    assert figures.before_batch is None
    assert len(figures.bins) <= 48
    for begin, count in figures.bins:
        is_within = (values >= begin) & (values < begin + figures.bin_ms)
        assert count == np.count_nonzero(is_within)


@pytest.mark.parametrize("distance_ms", [0, 10, 4095, 4096, 10**9, 10**14])
def test_few_times_use_many_bins(distance_ms: int) -> None:
    """Rows within a second and rows within a year both show how they are spread."""
    times = Times("at", 0, 0, is_expiry=False)
    times.add(np.linspace(10**12, 10**12 + distance_ms, 500).astype(np.int64), 0)

    figures = times.figures()

    assert figures is not None
    assert len(figures.bins) >= min(distance_ms + 1, 24)
