"""Each stateful operator has the same results under the subject and under Spark's provider.

Both queries read the same files, one per micro-batch, and restart from their checkpoints in the
middle. Then sink, progress and the `statestore` source are compared. The results of Spark's
provider are recorded (`harness.control`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import filterfalse

import pytest

from harness.control import Control
from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, ENCODED, OPERATORS
from harness.spark import SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES_BEFORE_RESTART = 3
FILES_AFTER_RESTART = 2
# Together they use all calls of a store: get, put, remove, scans by key, prefix and time.
IN_FORMAT_2 = (
    "windows_update",
    "distinct_within_watermark",
    "join_left_outer_v2",
    "joins_v3",
    "joins_v4",
    "windows_then_distinct",
    "transform_event_time",
    "transform_event_time_pandas",
    "transform_ttl",
    "transform_clock",
    "transform_initial",
    "transform_then_windows",
    "transform_scala",
    "transform_scala_clock",
    "transform_scala_ahead",
)
# The other cases are slow tests (`make test-all`). Each call of a store, each type of join and each
# kind of state is in one of these. Joins with state format 3 are in test_prefetch.
QUICK = {
    *((name, 1) for name in ("windows_append", "totals_complete", "sessions", "limit")),
    *((name, 1) for name in ("join_left_outer_v2", "groups_event_time")),
    *((name, 2) for name in ("windows_update", "windows_then_distinct", "joins_v4")),
    ("transform_scala_ahead", 2),
    *((name, 2) for name in ("distinct_within_watermark", "transform_event_time", "transform_ttl")),
}


def has_changes(case: tuple[str, int]) -> bool:
    """Return whether a view has a change feed: none of a join with state format 3 or 4 has."""
    return any(view.has_changes for view in BY_NAME[case[0]].views)


ALL_CASES = [
    *((operator.name, 1) for operator in (*OPERATORS, *ENCODED)),
    *((name, 2) for name in IN_FORMAT_2),
]
# Those without come last: a case keeps its number in a list of the others, and with it its pair.
CASES = [*filter(has_changes, ALL_CASES), *filterfalse(has_changes, ALL_CASES)]
PARAMETERS = [
    pytest.param(
        (name, number),
        id=f"{name}-format{number}",
        marks=[] if (name, number) in QUICK else [pytest.mark.slow],
    )
    for name, number in CASES
]
WITH_CHANGES = PARAMETERS[: sum(map(has_changes, CASES))]


@dataclass(frozen=True)
class Pair:
    """The finished runs of one operator."""

    subject: Run
    control: Control


@pytest.fixture(scope="module", params=PARAMETERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Run one case under both providers concurrently, with a restart in the middle."""
    name, checkpoint_format = request.param
    folder = tmp_path_factory.mktemp(name)
    events = Events(folder / "input")
    operator = BY_NAME[name]
    # The control has format 1 only: Spark's HDFS-backed provider does not support format 2.
    subject = Run(operator, events, str(folder / "subject"), SUBJECT, checkpoint_format)
    control = Control(
        f"operators/{name}-format{checkpoint_format}",
        Run(operator, events, str(folder / "control"), operator.control),
    )
    files = ((0, FILES_BEFORE_RESTART), (FILES_BEFORE_RESTART, FILES_AFTER_RESTART))
    with ThreadPoolExecutor(2) as pool:
        for first, count in files:
            events.add_files(first, count)
            other = pool.submit(control.advance)
            subject.advance()
            other.result()
    return Pair(subject, control)


def test_the_sink_has_the_same_rows_in_every_batch(pair: Pair) -> None:
    """A wrong, missing or late row is a wrong result for the readers of the sink."""
    assert pair.subject.record.rows == pair.control.record.rows
    assert any(pair.control.record.rows.values())


def test_progress_counts_the_same_rows(pair: Pair) -> None:
    """Users watch numRowsTotal for the growth of the state; a wrong count hides a leak."""
    assert pair.subject.record.counts == pair.control.record.counts


def test_the_statestore_source_shows_the_same_state(pair: Pair) -> None:
    """Users inspect and repair state with this source, of the last and of earlier batches."""
    last = pair.control.record.last_batch
    has_rows = False
    for view in pair.control.operator.views:
        for batch in (last,) if view.is_store_of_join else (FILES_BEFORE_RESTART - 1, last):
            expected = pair.control.state(view, batchId=batch)

            assert pair.subject.state(view, batchId=batch) == expected, f"{view}, batch {batch}"
            has_rows |= len(expected) > 0
    assert has_rows, "no view has a row: nothing was compared"


@pytest.mark.parametrize("pair", WITH_CHANGES, indirect=True)
def test_the_change_feed_shows_the_same_changes(pair: Pair) -> None:
    """Audits follow a key through the feed: a missing or additional change misleads them."""
    last = pair.control.record.last_batch
    is_changed = False
    for view in pair.control.operator.views:
        if view.has_changes:
            expected = pair.control.changes(view, last)

            assert pair.subject.changes(view, last) == expected, str(view)
            is_changed |= len(expected) > 0
    assert is_changed, "no view has a change: nothing was compared"


def test_state_rebuilt_from_a_snapshot_is_the_state(pair: Pair) -> None:
    """`snapshotStartBatchId` finds the last good version of a corrupt checkpoint."""
    last = pair.control.record.last_batch
    view = pair.control.operator.views[-1]
    versions = pair.subject.snapshot_versions(view)
    assert versions, "there is no snapshot of partition 0"
    start = {"snapshotStartBatchId": versions[0] - 1, "snapshotPartitionId": 0}

    rebuilt = pair.subject.state(view, batchId=last, **start)

    whole = pair.subject.state(view, batchId=last)
    assert rebuilt == [row for row in whole if "partition_id=0" in row]
    assert rebuilt, "partition 0 has no row: nothing was compared"
    # Spark's provider forces a snapshot of the version in which families are created; Cairn's does
    # not, and has none of the first version.
    states = (view for view in pair.control.operator.views if "stateVarName" in dict(view.options))
    for view in states:
        first = {"snapshotStartBatchId": 0, "snapshotPartitionId": 0}
        expected = pair.control.state(view, batchId=last, **first)
        assert pair.subject.state(view, batchId=last, **first) == expected, str(view)
