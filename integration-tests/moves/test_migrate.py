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

import cairn
from harness.differential import Run
from harness.events import Events
from harness.moves import FILES, MovedQuery, Unmoved, move, run_and_move, run_unmoved
from harness.operators import ENCODED, OPERATORS, SINGLE_JOINS, Operator
from harness.state_cases import FORMS, compared, runs

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


def can_go(operator: Operator, way: str) -> bool:
    """Return whether an operator runs in all forms of a way."""
    return all(runs(operator, FORMS[form.rstrip("+")]) for form in way.split())


def all_cases() -> Iterator[tuple[str, str]]:
    """Yield each operator with some of the ways that it can go, and the quick ones."""
    for number, (name, operator) in enumerate(ALL_OPERATORS.items()):
        ways = [way for way in WAYS if can_go(operator, way)]
        some = {ways[(number * WAYS_OF_ONE + step) % len(ways)] for step in range(WAYS_OF_ONE)}
        yield from ((name, way) for way in ways if way in some or (name, way) in QUICK)


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
    rows = query.control.record.rows
    for stage in query.stages:
        expected = {
            number + stage.shift: rows[number]
            for number in range(stage.first, stage.last + 1)
            if number in rows
        }

        assert stage.run.record.rows == expected, stage.form.name
        assert expected


def test_progress_counts_the_same_rows(query: MovedQuery) -> None:
    """A wrong numRowsTotal hides a leak; it begins with what the move has stored."""
    counts = query.control.record.counts
    for stage in query.later:
        expected = {
            number + stage.shift: counts[number]
            for number in range(stage.first, stage.last + 1)
            if number in counts
        }

        assert stage.run.record.counts == expected, stage.form.name
        assert expected


def test_the_statestore_source_shows_the_same_state(query: MovedQuery) -> None:
    """The state as it was moved, and as the query has left it later."""
    has_rows = False
    for stage in query.later:
        # What a stage has left is what the next one begins with.
        batches = [stage.first - 1, *([stage.last] if stage == query.stages[-1] else [])]
        for view in query.control.operator.views:
            for batch in batches:
                expected = query.control.state(view, batchId=batch)

                found = stage.run.state(view, batchId=batch + stage.shift)

                assert found == expected, f"{stage.form.name}, {view}, batch {batch}"
                has_rows |= len(expected) > 0
    assert has_rows, "no view has a row: nothing was compared"


def test_the_reader_shows_the_state_that_sparks_source_shows(query: MovedQuery) -> None:
    """The rows that were moved are those of Spark, of all families that both show."""
    rows = 0
    for stage in query.later:
        with cairn.open_checkpoint(stage.run.checkpoint) as checkpoint:
            batch = stage.first - 1 + stage.shift
            for name, found, expected in compared(stage.run.session(), checkpoint, batch):
                assert not found.difference(expected), f"{stage.form.name}, {name}"
                rows += len(expected.rows)
    assert rows, "no family has a row: nothing was compared"


def test_the_change_feed_goes_on_behind_the_move(query: MovedQuery) -> None:
    """Audits follow a key through the feed: a missing or additional change misleads them."""
    for stage in query.later:
        for view in query.control.operator.views:
            if view.has_changes:
                expected = query.control.changes(view, stage.last, stage.first)

                found = stage.run.changes(view, stage.last + stage.shift, stage.first + stage.shift)

                assert without_numbers(found, stage.shift) == expected, f"{stage.form.name}, {view}"


def without_numbers(changes: list[str], shift: int) -> list[str]:
    """Return changes with the numbers that their batches have in the other query."""
    split = (change.split(" ", 1) for change in changes)
    return sorted(f"{int(number) - shift} {rest}" for number, rest in split)


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
