"""Random histories of a whole checkpoint, in both formats, against the rows of each version.

Spark's driver is a model (``spark_driver``); the instances are real. Each load is compared with the
rows of the version that Spark's logs name. It may fail only where docs/semantics.md permits it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from spark_driver import Driver, Step

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 8
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
}
NAMES = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, (1 << 16) - 1)), min_size=5, max_size=30
)
FORMATS = st.sampled_from([1, 2])

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


def play(folder: str, checkpoint_format: int, steps: list[Step], *, settles: bool = False) -> None:
    """Play a history, and let the query go on after it."""
    driver = Driver(Path(folder), checkpoint_format)
    try:
        driver.play(steps)
        driver.finish()
        if settles:
            driver.settle()
    finally:
        driver.close()


@settings(max_examples=EXAMPLES)
@given(steps=STEPS, checkpoint_format=FORMATS)
@example(steps=LOG_OF_COMMITS_ENDS_AT_IDLE_STORES, checkpoint_format=2)
@example(steps=LATE_MAINTENANCE_AFTER_A_NEW_START, checkpoint_format=1)
@example(steps=LATE_TWIN, checkpoint_format=1)
def test_each_load_has_the_rows_of_the_version_that_sparks_logs_name(
    steps: list[Step], checkpoint_format: int
) -> None:
    """Whatever happened to the checkpoint, no row is wrong, and the query goes on."""
    with tempfile.TemporaryDirectory(prefix="cairn-histories-") as folder:
        play(folder, checkpoint_format, steps)


@settings(max_examples=EXAMPLES // 6)
@given(steps=STEPS, checkpoint_format=FORMATS)
def test_what_a_history_leaves_behind_is_deleted_after_some_days(
    steps: list[Step], checkpoint_format: int
) -> None:
    """The objects of losers, former runs and abandoned lineages do not stay for good."""
    with tempfile.TemporaryDirectory(prefix="cairn-histories-") as folder:
        play(folder, checkpoint_format, steps, settles=True)
