"""A query whose state is moved to another provider goes on as if it had never been moved.

Each operator runs some batches under one provider, is moved, goes on, is moved again, and goes on.
Sink, progress, state and change feed of each stage are those of a query that was never moved. Its
results are recorded (`harness.control`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from harness.differential import Run
from harness.events import Events
from harness.moved_checks import (
    require_same_changes,
    require_same_in_reader,
    require_same_progress,
    require_same_sink,
    require_same_state,
)
from harness.moves import FILES, MovedQuery, Unmoved, move, run_and_move, run_unmoved
from harness.operators import ENCODED, OPERATORS, SINGLE_JOINS, Operator
from harness.state_cases import FORMS, runs

pytestmark = pytest.mark.usefixtures("driver")


def _count_of_all(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.agg(f.sum("v").alias("total"), f.count("*").alias("events"))


ALL_OPERATORS = {
    one.name: one
    for one in (
        *OPERATORS,
        *SINGLE_JOINS,
        *ENCODED,
        # Without keys: all state is in partition 0, whatever the number of partitions.
        Operator("total_of_all", _count_of_all, "complete"),
    )
}
# An operator goes two of those that it can go; all are gone by several operators.
WAYS_OF_ONE = 2
WAYS = (
    "rocksdb-1 cairn-1 rocksdb-1+",
    "rocksdb-2 cairn-2 rocksdb-2",
    "rocksdb-zips-1 cairn-1+ hdfs",
    "rocksdb-zips-2 cairn-2+ rocksdb-2+",
    "hdfs cairn-1 hdfs+",
    "cairn-2 hdfs cairn-1+",
    "hdfs rocksdb-1 hdfs",
    "cairn-2 rocksdb-2 cairn-2+",
)
# The others are slow tests (`make test-all`). Each kind of state is in one of these, and each way
# of a store's rows to another form.
QUICK = {
    ("windows_append", "rocksdb-zips-1 cairn-1+ hdfs"),
    ("total_of_all", "rocksdb-2 cairn-2 rocksdb-2"),
    ("sessions", "cairn-2 hdfs cairn-1+"),
    ("join_left_outer_v2", "cairn-2 rocksdb-2 cairn-2+"),
    ("join_left_outer_v4", "rocksdb-zips-2 cairn-2+ rocksdb-2+"),
    ("limit", "rocksdb-1 cairn-1 rocksdb-1+"),
    ("transform_ttl", "rocksdb-2 cairn-2 rocksdb-2"),
    ("transform_event_time_avro_checksums", "rocksdb-1 cairn-1 rocksdb-1+"),
    ("windows_then_distinct", "hdfs cairn-1 hdfs+"),
}

# Slow, too: what the ways above leave out of the operators that users have most.
MORE = (
    # From RocksDB to Cairn, and back.
    ("sessions", "rocksdb-1 cairn-1 rocksdb-1+"),
    ("sessions", "rocksdb-2 cairn-2 rocksdb-2"),
    ("sessions_checksums", "rocksdb-2 cairn-2 rocksdb-2"),
    ("totals_complete", "rocksdb-1 cairn-1 rocksdb-1+"),
    ("totals_complete", "rocksdb-2 cairn-2 rocksdb-2"),
    ("join_inner_v2", "rocksdb-1 cairn-1 rocksdb-1+"),
    ("join_inner_v2", "cairn-2 rocksdb-2 cairn-2+"),
    # From snapshots without changelogs to Cairn.
    ("transform_event_time", "rocksdb-zips-1 cairn-1"),
    ("join_inner_v2", "rocksdb-zips-1 cairn-1+ hdfs"),
    # From Cairn to the files of the HDFS-backed provider.
    ("distinct", "rocksdb-zips-1 cairn-1+ hdfs"),
    ("distinct_by_time", "hdfs cairn-1 hdfs+"),
    ("join_left_outer_v2", "rocksdb-zips-1 cairn-1+ hdfs"),
    ("joins_v2", "cairn-2 hdfs cairn-1+"),
    ("groups_event_time", "cairn-2 hdfs cairn-1+"),
    ("groups_processing_time", "hdfs cairn-1 hdfs+"),
    ("limit", "cairn-2 hdfs cairn-1+"),
    ("total_of_all", "hdfs cairn-1 hdfs+"),
)


def can_go(operator: Operator, way: str) -> bool:
    """Return whether an operator runs in all forms of a way."""
    return all(runs(operator, FORMS[form.rstrip("+")]) for form in way.split())


def all_cases() -> Iterator[tuple[str, str]]:
    """Yield each operator with some of the ways that it can go, the quick ones, and ``MORE``."""
    for number, (name, operator) in enumerate(ALL_OPERATORS.items()):
        ways = [way for way in WAYS if can_go(operator, way)]
        some = {ways[(number * WAYS_OF_ONE + step) % len(ways)] for step in range(WAYS_OF_ONE)}
        more = [way for one, way in MORE if one == name]
        chosen = [way for way in ways if way in some or (name, way) in QUICK]
        yield from ((name, way) for way in dict.fromkeys((*chosen, *more)))


CASES = [
    pytest.param(
        case,
        id=f"{case[0]}-{case[1].replace(' ', '-')}",
        marks=[] if case in QUICK else [pytest.mark.slow],
    )
    for case in all_cases()
]


@pytest.fixture(scope="module")
def unmoved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Unmoved]:
    """Return what runs an operator that is never moved, once for all ways of it."""

    @functools.lru_cache(1)
    def run(name: str) -> Unmoved:
        return run_unmoved(ALL_OPERATORS[name], tmp_path_factory.mktemp(name))

    return run


@pytest.fixture(scope="module", params=CASES)
def query(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    unmoved: Callable[[str], Unmoved],
) -> MovedQuery:
    """Run an operator on its way."""
    name, way = request.param
    return run_and_move(unmoved(name), way, tmp_path_factory.mktemp(name))


def test_the_sink_has_the_rows_of_the_query_that_was_never_moved(query: MovedQuery) -> None:
    """A wrong, missing or late row is a wrong result for the readers of the sink."""
    require_same_sink(query)


def test_progress_counts_the_same_rows(query: MovedQuery) -> None:
    """A wrong numRowsTotal hides a leak; it begins with what the move has stored."""
    require_same_progress(query)


def test_the_statestore_source_shows_the_same_state(query: MovedQuery) -> None:
    """The state as it was moved, and as the query has left it later."""
    require_same_state(query)


def test_the_reader_shows_the_state_that_sparks_source_shows(query: MovedQuery) -> None:
    """The rows that were moved are those of Spark, of all families that both show."""
    require_same_in_reader(query)


def test_the_change_feed_goes_on_behind_the_move(query: MovedQuery) -> None:
    """Audits follow a key through the feed: a missing or additional change misleads them."""
    require_same_changes(query)


STOPPED = (
    pytest.param("windows_append", "rocksdb-1", "cairn-1", 1, id="rocksdb-1-cairn-1"),
    pytest.param("join_left_outer_v2", "cairn-2", "rocksdb-2", 2, id="cairn-2-rocksdb-2"),
    *(
        pytest.param(*case, id=f"{case[1]}-{case[2]}", marks=pytest.mark.slow)
        for case in (
            ("windows_append", "hdfs", "cairn-1", 1),
            ("totals_complete", "cairn-1", "hdfs", 2),
            ("transform_event_time", "rocksdb-2", "cairn-2", 2),
            ("transform_ttl", "rocksdb-zips-1", "cairn-1", 1),
        )
    ),
)


@pytest.mark.parametrize(("name", "before", "after", "stopped"), STOPPED)
def test_a_batch_that_was_not_committed_is_repeated(
    tmp_path: Path, name: str, before: str, after: str, stopped: int
) -> None:
    """It may have reached the sink: it has the same number, input and rows at the new place."""
    operator, events = ALL_OPERATORS[name], Events(tmp_path / "input")
    events.add_files(0, sum(FILES[:2]))
    whole, broken, moved = (
        Run(operator, events, str(tmp_path / place), form.provider, form.checkpoint_format)
        for place, form in (
            ("whole", FORMS["rocksdb-1"]),
            ("broken", FORMS[before]),
            ("moved", FORMS[after]),
        )
    )

    def stop() -> None:
        raise RuntimeError("the sink is gone")

    whole.advance()
    broken.before_batch[stopped] = stop
    with pytest.raises(StreamingQueryException, match="the sink is gone"):
        broken.advance()

    move(broken.checkpoint, moved.checkpoint, FORMS[after])
    moved.advance()

    assert min(moved.record.rows) == stopped
    assert broken.record.rows | moved.record.rows == whole.record.rows
    last = whole.record.last_batch
    for view in operator.views:
        assert moved.state(view, batchId=last) == whole.state(view, batchId=last), str(view)
