"""A query that gets other partitions goes on as if it had had one number of them all the time.

Each operator runs some batches with four partitions, gets two, then seven, then four again, and
runs some batches after each. Sink, progress and state of each stage are those of a query under
Spark's own provider that keeps its partitions; and each key is where Spark's own offline
repartition puts it. The results of Spark's provider are recorded (`harness.control`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import cairn
from cairn.errors import CairnError
from cairn.offline.move.totals import MovedFamily
from harness.control import Control
from harness.differential import COUNTS, Run, as_text, copy_checkpoint
from harness.events import Events
from harness.operators import (
    ENCODED,
    OPERATORS,
    SINGLE_JOINS,
    Operator,
    StateView,
)
from harness.spark import CAIRN, ROCKSDB
from harness.state_cases import compared

pytestmark = pytest.mark.usefixtures("driver")

PARTITIONS = "spark.sql.shuffle.partitions"
FOUR = {PARTITIONS: "4"}
WAY = (4, 2, 7, 4)
FILES = (2, 1, 1, 2)


def _total_of_all(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.agg(f.sum("v").alias("total"), f.count("*").alias("events"))


# Without keys: all state is in partition 0, whatever the number of partitions.
WITHOUT_KEYS = (Operator("total_of_all", _total_of_all, "complete"),)
ALL_OPERATORS = {
    one.name: one
    for one in (*OPERATORS, *SINGLE_JOINS, *ENCODED, *WITHOUT_KEYS)
    if one.name != "limit"  # it is refused
}
# The others are slow tests (`make test-all`). Each kind of key is in one of these.
QUICK = {
    ("windows_append", 1),
    ("sessions", 2),
    ("join_left_outer_v2", 1),
    ("join_left_outer_v4", 2),
    ("transform_ttl", 2),
    ("transform_event_time", 1),
    ("total_of_all", 2),
    ("windows_then_distinct", 1),
}
CASES = [
    pytest.param(
        (name, number),
        id=f"{name}-format{number}",
        marks=[] if (name, number) in QUICK else [pytest.mark.slow],
    )
    for name in ALL_OPERATORS
    for number in (1, 2)
]


@dataclass
class RunAnywhere(Run):
    """A run whose state is read without the partitions."""

    def state(self, view: StateView, **options: object) -> list[str]:
        """Read the state through Spark's `statestore` source."""
        return as_text(self._read(view, options).drop("partition_id"))


@dataclass
class SparksOwnRepartition(Run):
    """A run that ends with Spark's own offline repartition."""

    partitions: int = 2

    def advance(self) -> None:
        """Process all present input files, and repartition the state."""
        super().advance()
        manager = self.session()._streamingCheckpointManager  # noqa: SLF001 - Spark names it so
        manager.repartition(self.checkpoint, self.partitions, True)  # noqa: FBT003 - Spark's order


@dataclass
class Repartitioned:
    """A query of Cairn's that gets other partitions, and the control, which does not.

    Attributes:
        subject: the query.
        control: that of Spark's provider.
        ends: the last batch of each stage, by the control's numbers.
        moved: what each repartition has written.
    """

    subject: RunAnywhere
    control: Control
    ends: list[int] = field(default_factory=list)
    moved: list[tuple[MovedFamily, ...]] = field(default_factory=list)

    def shift(self, batch: int) -> int:
        """Return a batch of the control in the query, which has a batch more per repartition."""
        return batch + sum(end < batch for end in self.ends[:-1])


def age_logs(checkpoint: str) -> None:
    """Let a query seem to have ended an hour ago."""
    for log in ("offsets", "commits"):
        for path in Path(checkpoint, log).iterdir():
            past = path.stat().st_mtime - 3600
            os.utime(path, (past, past))


def repartition(
    checkpoint: str, partitions: int, session: SparkSession | None = None
) -> tuple[MovedFamily, ...]:
    """Repartition a query that has ended."""
    age_logs(checkpoint)
    with cairn.repartition(checkpoint, partitions=partitions) as plan:
        return plan.apply(session=session, processes=1)


@pytest.fixture(scope="module", params=CASES)
def query(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Repartitioned:
    """Run an operator in all stages."""
    name, checkpoint_format = request.param
    folder = tmp_path_factory.mktemp(name)
    operator, events = ALL_OPERATORS[name], Events(folder / "input")
    place, control_place = str(folder / "subject"), str(folder / "control")
    subject = RunAnywhere(operator, events, place, CAIRN, checkpoint_format, FOUR)
    control = RunAnywhere(operator, events, control_place, operator.control, 1, FOUR)
    found = Repartitioned(subject, Control(f"repartition/{name}", control))
    first = 0
    for partitions, files in zip(WAY, FILES, strict=True):
        if first:
            found.moved.append(repartition(place, partitions))
        events.add_files(first, files)
        first += files
        found.control.advance()
        found.ends.append(found.control.record.last_batch)
        subject.advance()
    return found


def test_the_sink_has_the_rows_of_the_query_that_was_not_changed(query: Repartitioned) -> None:
    """A row in a wrong partition is a wrong result for the readers of the sink."""
    rows = query.control.record.rows

    assert query.subject.record.rows == {query.shift(batch): rows[batch] for batch in rows}
    assert any(rows.values())


def test_progress_counts_the_same_rows(query: Repartitioned) -> None:
    """A wrong numRowsTotal hides a leak; it begins with what the repartition has stored."""
    counts = query.control.record.counts

    assert counted(query, query.subject.record.counts) == counted(
        query, {query.shift(batch): counts[batch] for batch in counts}
    )


def counted(
    query: Repartitioned, counts: dict[int, list[tuple[int, ...]]]
) -> dict[int, list[tuple[int, ...]]]:
    """Return the counts that do not depend on the number of partitions.

    The updates that Spark counts of `transformWithState` in Python do, with any provider.
    """
    if not query.control.operator.name.startswith("transform"):
        return counts
    updated = COUNTS.index("numRowsUpdated")
    return {
        batch: [(*one[:updated], *one[updated + 1 :]) for one in operators]
        for batch, operators in counts.items()
    }


def test_the_statestore_source_shows_the_same_state(query: Repartitioned) -> None:
    """At the end, and in each batch that was appended: it has the state of the one before."""
    has_rows = False
    batches = [(end, end + number + 1) for number, end in enumerate(query.ends[:-1])]
    for view in query.control.operator.views:
        for end, found in [*batches, (query.ends[-1], query.shift(query.ends[-1]))]:
            expected = query.control.state(view, batchId=end)
            assert query.subject.state(view, batchId=found) == expected, f"{view}, {end}"
            has_rows |= len(expected) > 0
    assert has_rows, "no view has a row: nothing was compared"


def test_the_reader_shows_what_the_source_shows_and_finds_nothing_wrong(
    query: Repartitioned,
) -> None:
    """`verify` finds rows that are not where the hash says, in all families."""
    with cairn.open_checkpoint(query.subject.checkpoint) as checkpoint:
        assert list(checkpoint.verify()) == []
        assert {one.partitions for one in checkpoint.operators} == {WAY[-1]}
        last = query.shift(query.ends[-1])
        for name, found, expected in compared(query.subject.session(), checkpoint, last):
            assert not found.difference(expected), name
    is_single = query.control.operator in WITHOUT_KEYS
    assert {one.partitions for one in query.moved[0]} == {1 if is_single else WAY[1]}


# -- beside Spark's own repartition ----------------------------------------------------------------

# Spark's RocksDB provider does not run the first. Spark's operators look for the others in
# partition 0, but its repartition puts them where the hash of no column says: the total is lost.
NOT_SPARKS = {"windows_then_distinct", *(one.name for one in WITHOUT_KEYS)}
# Spark 4.3 breaks their state when it repartitions: it hashes the event time, too, and stores the
# lists without the form of lists. Neither its source nor the query reads that.
BROKEN_BY_SPARK = tuple(name for name in ALL_OPERATORS if "_v4" in name)
QUICK_BESIDE = {("sessions", 2)}
BESIDE = [
    pytest.param(
        name,
        partitions,
        id=f"{name}-{partitions}",
        marks=[] if (name, partitions) in QUICK_BESIDE else [pytest.mark.slow],
    )
    for name in ALL_OPERATORS
    if name not in (*NOT_SPARKS, *BROKEN_BY_SPARK)
    for partitions in (2, 7)
]


@pytest.mark.parametrize(("name", "partitions"), BESIDE)
def test_each_key_is_where_sparks_own_repartition_puts_it(
    name: str, partitions: int, tmp_path: Path
) -> None:
    """Spark's operators look for keys there."""
    operator, events = ALL_OPERATORS[name], Events(tmp_path / "input")
    subject = Run(operator, events, str(tmp_path / "subject"), CAIRN, 2, FOUR)
    sparks = SparksOwnRepartition(
        operator, events, str(tmp_path / "control"), ROCKSDB, 1, FOUR, partitions=partitions
    )
    control = Control(f"repartition/sparks-own/{name}-{partitions}", sparks)
    events.add_files(0, 3)
    control.advance()
    subject.advance()
    repartition(subject.checkpoint, partitions)

    has_rows = False
    for view in operator.views:
        expected = control.state(view)
        assert subject.state(view) == expected, view
        has_rows |= len(expected) > 0
    assert has_rows, "no view has a row: nothing was compared"


@pytest.mark.slow
def test_two_hundred_partitions_become_fifty_and_two_hundred_again(tmp_path: Path) -> None:
    """As many as Spark has if nobody sets their number; beside Spark's own repartition."""
    operator, events = ALL_OPERATORS["windows_append"], Events(tmp_path / "input")
    conf = {PARTITIONS: "200"}
    subject = Run(operator, events, str(tmp_path / "subject"), CAIRN, 2, conf)
    sparks = SparksOwnRepartition(operator, events, str(tmp_path / "sparks"), ROCKSDB, 1, conf)
    for first, partitions in enumerate((50, 200)):
        events.add_files(first, 1)
        subject.advance()
        sparks.partitions = partitions
        sparks.advance()
        repartition(subject.checkpoint, partitions)

        for view in operator.views:
            expected = sparks.state(view)
            assert expected
            assert subject.state(view) == expected, f"{view}, {partitions}"

    events.add_files(2, 1)
    subject.advance()
    Run.advance(sparks)
    assert subject.record.rows == sparks.record.rows
    assert subject.record.last_batch > 3
    assert subject.record.rows[subject.record.last_batch]
    with cairn.open_checkpoint(subject.checkpoint) as checkpoint:
        assert list(checkpoint.verify()) == []


def test_spark_shuffles_the_rows_if_it_gets_a_session(tmp_path: Path) -> None:
    """A large state is repartitioned by the cluster, with the same result."""
    operator, events = ALL_OPERATORS["transform_ttl"], Events(tmp_path / "input")
    run = Run(operator, events, str(tmp_path / "query"), CAIRN, 2, FOUR)
    events.add_files(0, 3)
    run.advance()
    copy = copy_checkpoint(run, tmp_path / "copy")
    here = repartition(copy.checkpoint, 3)

    by_spark = repartition(run.checkpoint, 3, run.session())

    assert by_spark == here
    for view in operator.views:
        assert run.state(view) == copy.state(view), view


def test_sparks_error_of_rows_that_are_elsewhere_is_cairns(tmp_path: Path) -> None:
    """The text of a Python exception in a task is hard to read."""
    operator, events = ALL_OPERATORS["windows_append"], Events(tmp_path / "input")
    run = Run(operator, events, str(tmp_path / "query"), CAIRN, 2, FOUR)
    events.add_files(0, 2)
    run.advance()
    # Two partitions change their places.
    folder = Path(run.checkpoint, "state/0")
    for number, other in (("0", "x"), ("1", "0"), ("x", "1")):
        (folder / number).rename(folder / other)

    with pytest.raises(CairnError) as caught:
        repartition(run.checkpoint, 3, run.session())

    assert "0/" in str(caught.value)
    offsets = [path.name for path in Path(run.checkpoint, "offsets").glob("[0-9]*")]
    assert max(map(int, offsets)) == run.record.last_batch
