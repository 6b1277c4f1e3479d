"""`Checkpoint.bisect`: the first batch, by few looks; never past a hole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_checkpoint import SmallCheckpoint

import cairn
from cairn.errors import MissingError, NotThereError
from cairn.reader.bisect import bisect


class Condition:
    """True from a batch on; the state of the batches before another one is gone."""

    def __init__(self, true_from: int, gone_before: int = 0) -> None:
        self._true_from = true_from
        self._gone_before = gone_before

    def __call__(self, batch: int) -> bool | None:
        """Return the condition at a batch."""
        if batch < self._gone_before:
            raise MissingError("gone")
        return batch >= self._true_from


def test_any_function_of_a_batch_is_a_condition(tmp_path: Path) -> None:
    """From Python no DuckDB is needed."""
    written = SmallCheckpoint(tmp_path / "ck")
    for batch in range(6):
        written.commit({user: (batch, user) for user in range(batch * 10)})

    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        found = checkpoint.bisect(lambda batch: checkpoint.state(batch=batch).count_keys() > 25)

    assert found.first == 3
    assert [look.batch for look in found.looks] == [2, 3, 4, 5]
    assert not found.is_oldest


@given(
    batches=st.sets(st.integers(0, 300), min_size=1).map(sorted),
    true_from=st.integers(0, 310),
    gone_before=st.integers(0, 310),
)
def test_both_ways_find_the_same_batch(
    batches: list[int], true_from: int, gone_before: int
) -> None:
    """And the short one reads few: each look reads whole states."""
    gone_before = min(gone_before, batches[-1])
    condition = Condition(true_from, gone_before)

    by_halves = bisect(batches, condition)
    one_by_one = bisect(batches, condition, is_monotonic=False)

    fit = [batch for batch in batches if batch >= max(true_from, gone_before)]
    assert by_halves.first == one_by_one.first == (fit[0] if fit else None)
    assert by_halves.is_oldest == one_by_one.is_oldest
    assert len(by_halves.looks) <= 1 + len(batches).bit_length()
    if fit:
        is_first_known = any(gone_before <= batch < fit[0] for batch in batches)
        assert by_halves.is_oldest == (fit[0] > 0 and not is_first_known)


def test_nothing_is_found_among_no_batches() -> None:
    """A range of batches that the log does not have."""
    assert bisect([], Condition(0)).first is None


@pytest.mark.parametrize("is_monotonic", [True, False])
def test_a_hole_is_not_passed_over(is_monotonic: bool) -> None:  # noqa: FBT001
    """A damaged batch between whole ones may be the one that is searched."""

    def condition(batch: int) -> bool:
        if batch == 2:
            raise MissingError("damaged")
        return batch >= 3

    with pytest.raises(MissingError, match="damaged"):
        bisect([0, 1, 2, 3], condition, is_monotonic=is_monotonic)


@pytest.mark.parametrize("is_monotonic", [True, False])
def test_the_newest_batch_must_be_there(is_monotonic: bool) -> None:  # noqa: FBT001
    """If all is gone, the answer is not that the condition is never true."""

    def condition(batch: int) -> bool:
        raise NotThereError(f"batch {batch}")

    with pytest.raises(NotThereError, match="batch 1"):
        bisect([0, 1], condition, is_monotonic=is_monotonic)
