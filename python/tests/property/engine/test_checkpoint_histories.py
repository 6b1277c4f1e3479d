"""Random histories of a whole checkpoint, in both formats, against the rows of each version.

Spark's driver is a model (``spark_driver``); the instances are real. Each load is compared with the
rows of the version that Spark's logs name. It may fail only where docs/semantics.md permits it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from scheduled_runs import ScheduledDriver
from spark_driver import Step
from spark_executors import Query

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 8
FEW_EXAMPLES = max(2, EXAMPLES // 6)  # the first example is the simplest one
WEIGHTS = {
    "batches": 8,
    "batch": 6,
    "idle": 5,
    "restart": 4,
    "roll_back": 4,
    "late_maintenance": 4,
    "broken_batch": 3,
    "twins": 3,
    "maintain": 3,
    "zombie": 3,
    "zombies_commit": 3,
    "time_passes": 3,
    "begin_copy": 3,
    "start_copy": 3,
    "kill": 2,
    "delete_root": 2,
    "empty_logs": 1,
    "empty_stores": 2,
    "cut_replacements": 3,
    "scheduled_runs": 4,
    "requested_snapshots": 2,
    "slow_uploads": 3,
    "uploads_go_on": 3,
}
SCHEDULED_WEIGHTS = dict.fromkeys(WEIGHTS, 1) | {"scheduled_runs": 12, "batches": 3}


def histories(weights: dict[str, int], max_size: int) -> st.SearchStrategy[list[Step]]:
    """Return lists of steps, each as often as its weight says."""
    names = [name for name, weight in weights.items() for _ in range(weight)]
    step = st.tuples(st.sampled_from(names), st.integers(0, (1 << 16) - 1))
    return st.lists(step, min_size=max_size // 6, max_size=max_size)


STEPS = histories(WEIGHTS, 30)
SCHEDULED_STEPS = histories(SCHEDULED_WEIGHTS, 12)
QUERIES = st.builds(
    Query,
    checkpoint_format=st.sampled_from([1, 2]),
    kept=st.sampled_from([2, 3, 4]),
    due=st.sampled_from([1, 2, 4]),
    replaces_at_once=st.booleans(),
)

LOG_OF_COMMITS_ENDS_AT_IDLE_STORES = [
    ("batch", 21620),
    ("idle", 54787),
    ("batch", 54792),
    ("batch", 36864),
    ("roll_back", 62796),
]
LATE_MAINTENANCE_AFTER_A_NEW_START = [
    ("batches", 30939),
    ("batches", 39753),
    ("delete_root", 13522),
    ("batch", 51912),
    ("batch", 62767),
    ("late_maintenance", 20312),
    ("batches", 11809),
]
LATE_TWIN = [
    ("batch", 1),
    ("twins", 7),
    ("zombies_commit", 7),
    ("kill", 0),
    ("kill", 1),
    ("kill", 2),
    ("batch", 3),
]
LATE_MAINTENANCE_AFTER_EMPTIED_LOGS = [
    ("batches", 55418),
    ("idle", 21740),
    ("empty_logs", 8903),
    ("scheduled_runs", 48905),
    ("late_maintenance", 24832),
    ("idle", 50616),
]
CUT_REPLACEMENT_AND_A_THIRD_ATTEMPT = [("cut_replacements", 21952), ("batches", 23611)]


def play(
    steps: list[Step], query: Query, settle: Callable[[ScheduledDriver], None] | None = None
) -> None:
    """Play a history, let the query go on after it, and perhaps let it settle."""
    with tempfile.TemporaryDirectory(prefix="cairn-histories-") as folder:
        driver = ScheduledDriver(Path(folder), query)
        try:
            driver.play(steps)
            driver.finish()
            if settle is not None:
                settle(driver)
        finally:
            driver.close()


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, query=QUERIES)
@example(steps=LOG_OF_COMMITS_ENDS_AT_IDLE_STORES, query=Query(2))
@example(steps=LATE_MAINTENANCE_AFTER_A_NEW_START, query=Query(1))
@example(steps=LATE_MAINTENANCE_AFTER_EMPTIED_LOGS, query=Query(1))
@example(steps=LATE_TWIN, query=Query(1))
@example(
    steps=CUT_REPLACEMENT_AND_A_THIRD_ATTEMPT,
    query=Query(1, kept=2, replaces_at_once=False),
)
def test_each_load_has_the_rows_of_the_version_that_sparks_logs_name(
    steps: list[Step], query: Query
) -> None:
    """Whatever happened to the checkpoint, no row is wrong, and the query goes on."""
    play(steps, query)


@settings(max_examples=FEW_EXAMPLES)
@given(steps=STEPS, query=QUERIES)
def test_what_a_history_leaves_behind_is_deleted_after_some_days(
    steps: list[Step], query: Query
) -> None:
    """The objects of losers, former runs and abandoned lineages do not stay for good."""
    play(steps, query, ScheduledDriver.settle)


@settings(max_examples=FEW_EXAMPLES)
@given(steps=SCHEDULED_STEPS, query=QUERIES)
@example(steps=[], query=Query(2, kept=4, due=1))
def test_scheduled_runs_alone_bound_lineages_and_delete_what_a_history_leaves_behind(
    steps: list[Step], query: Query
) -> None:
    """Most jobs never live until Spark's first maintenance: their state must not grow for good."""
    play(steps, query, ScheduledDriver.settle_by_runs)
