"""The driver JVM is killed; a new one continues from the checkpoint, in another local directory.

All are slow tests: in `make test` are kills of the driver with the checkpoint on S3 and on HDFS.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.differential import Run
from harness.events import Events
from harness.job import KILL_AFTER_BATCH, Query, continue_after_a_kill
from harness.operators import BY_NAME
from harness.processes import wait_until
from harness.spark import CONTROL, MINOR, SUBJECT

pytestmark = [pytest.mark.usefixtures("driver"), pytest.mark.slow]

FILES = 5
NEXT_BATCH_S = 60


def test_a_query_continues_after_its_driver_was_killed(tmp_path: Path) -> None:
    """After a crash the query must have a batch job's rows, even if all local files are lost."""
    query = query_of("distinct", tmp_path)

    job = continue_after_a_kill(query, tmp_path)

    assert job.all_rows() == query.batch_rows()


@pytest.mark.parametrize(
    ("operator", "checkpoint_format"),
    [
        ("transform_event_time", 1),
        ("transform_clock", 2),
        ("transform_scala_clock", 2),
    ],
)
def test_transform_with_state_continues_after_its_driver_was_killed(
    tmp_path: Path, operator: str, checkpoint_format: int
) -> None:
    """Lists, maps, timers and times to live are those of a query that was never killed."""
    assert_goes_on(operator, operator, tmp_path, checkpoint_format)


@pytest.mark.skipif(MINOR != "4.3", reason="apply_in_arrow_with_state is for Spark 4.3")
@pytest.mark.parametrize("timeout", ["EventTimeTimeout", "ProcessingTimeTimeout"])
def test_chunks_of_keys_continue_after_their_driver_was_killed(
    tmp_path: Path, timeout: str
) -> None:
    """Rows, state and timeouts are those of applyInPandasWithState that was never killed."""
    assert_goes_on(f"steps_arrow_{timeout}", f"steps_pandas_{timeout}", tmp_path, 2)


def assert_goes_on(operator: str, expected: str, folder: Path, checkpoint_format: int) -> None:
    """Kill the driver of an operator; compare all rows with those of another one on Spark's."""
    query = query_of(operator, folder, checkpoint_format)
    control = Run(BY_NAME[expected], query.events, str(folder / "control"), CONTROL)

    def await_next_batch() -> None:
        # Killed before its offsets are written, the batch gets the next file of the input, too.
        offsets = Path(query.checkpoint) / "offsets" / str(KILL_AFTER_BATCH + 1)
        wait_until(offsets.exists, NEXT_BATCH_S, "the next batch")

    job = continue_after_a_kill(query, folder, await_next_batch)
    control.advance()

    assert job.rows() == control.record.rows


def query_of(operator: str, folder: Path, checkpoint_format: int = 1) -> Query:
    """Return a query over new input."""
    events = Events(folder / "input")
    events.add_files(0, FILES)
    return Query(operator, events, str(folder / "checkpoint"), SUBJECT, checkpoint_format)
