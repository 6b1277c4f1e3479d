"""Each stateful operator gives under the subject what it gives under Spark's RocksDB provider.

The same input files, one a micro-batch; the query ends after some and starts again from its
checkpoint; then sink, progress and the `statestore` source are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest

from harness.differential import Run
from harness.events import Events
from harness.operators import BY_NAME, OPERATORS
from harness.spark import SUBJECT

pytestmark = pytest.mark.usefixtures("driver")

FILES_BEFORE_RESTART = 3
FILES_AFTER_RESTART = 2
# Read, written twice and scanned by time, by prefix and by key: the store's calls are all there.
IN_FORMAT_2 = (
    "windows_update",
    "distinct_within_watermark",
    "join_left_outer_v2",
    "join_left_outer_v4",
    "windows_then_distinct",
)
CASES = [(operator.name, 1) for operator in OPERATORS] + [(name, 2) for name in IN_FORMAT_2]


@dataclass(frozen=True)
class Pair:
    """The finished runs of one operator."""

    subject: Run
    control: Run


@pytest.fixture(scope="module", params=CASES, ids=[f"{name}-format{n}" for name, n in CASES])
def pair(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Pair:
    """Run one case under both providers, side by side, with a restart in the middle."""
    name, checkpoint_format = request.param
    folder = tmp_path_factory.mktemp(name)
    events = Events(folder / "input")
    operator = BY_NAME[name]
    # The control's format matters to nobody, and Spark's HDFS-backed provider knows the first only.
    runs = [
        Run(operator, events, str(folder / "subject"), SUBJECT, checkpoint_format),
        Run(operator, events, str(folder / "control"), operator.control),
    ]
    files = ((0, FILES_BEFORE_RESTART), (FILES_BEFORE_RESTART, FILES_AFTER_RESTART))
    with ThreadPoolExecutor(2) as pool:
        for first, count in files:
            events.add_files(first, count)
            list(pool.map(Run.advance, runs))
    return Pair(*runs)


def test_the_sink_gets_the_same_rows_in_every_batch(pair: Pair) -> None:
    """A wrong or absent row, or one batch late, is a wrong result for whoever reads the sink."""
    assert pair.subject.record.rows == pair.control.record.rows
    assert any(pair.control.record.rows.values())


def test_progress_counts_the_same_rows(pair: Pair) -> None:
    """People watch numRowsTotal to see state grow; a drifting count hides a leak or shows one."""
    assert pair.subject.record.counts == pair.control.record.counts


def test_the_statestore_source_shows_the_same_state(pair: Pair) -> None:
    """State is inspected, and repaired, from what this source shows, now and some batches ago."""
    last = pair.control.record.last_batch
    for view in pair.control.operator.views:
        for batch in (last,) if view.is_store_of_join else (FILES_BEFORE_RESTART - 1, last):
            subject, control = _both(pair, partial(Run.state, view=view, batchId=batch))

            assert subject == control, f"{view}, batch {batch}"


def test_the_change_feed_shows_the_same_changes(pair: Pair) -> None:
    """Audits follow a key through the feed: a change left out or made up misleads them."""
    last = pair.control.record.last_batch
    for view in pair.control.operator.views:
        if view.has_changes:
            subject, control = _both(pair, partial(Run.changes, view=view, last=last))

            assert subject == control, str(view)


def test_state_rebuilt_from_a_snapshot_is_the_state(pair: Pair) -> None:
    """`snapshotStartBatchId` is how a corrupt checkpoint is searched for its last good version."""
    last = pair.control.record.last_batch
    view = pair.control.operator.views[-1]
    versions = pair.subject.snapshot_versions(view)
    assert versions, "no snapshot was made of partition 0"
    start = {"snapshotStartBatchId": versions[0] - 1, "snapshotPartitionId": 0}

    rebuilt = pair.subject.state(view, batchId=last, **start)

    whole = pair.control.state(view, batchId=last)
    assert rebuilt == [row for row in whole if "partition_id=0" in row]


def _both(pair: Pair, read: Callable[[Run], list[str]]) -> list[list[str]]:
    """Read both runs at once; most of a read is waiting."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(read, (pair.subject, pair.control)))
