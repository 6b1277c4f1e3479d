"""The reader returns the rows of each stateful operator that Spark's `statestore` source returns.

Each operator runs some batches under one provider. Then both read its state, of the newest batch
and, of some operators, of an earlier one. The other tests need no Spark: they use the same
checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

from harness.events import Events
from harness.operators import BY_NAME, ENCODED, OPERATORS, SINGLE_JOINS
from harness.state_cases import (
    FORMS,
    Case,
    Compared,
    copy_of_partition,
    families_of,
    rows_by_key,
    rows_of,
    runs,
    state_of,
)
from harness.state_rows import PARTITION, TIMERS, Rows, rows_of_reader

# Arrow's type hints do not cover plain numbers as operands.
pc: Any = pyarrow.compute

pytestmark = pytest.mark.usefixtures("driver")

FILES = 3
EARLIER_BATCH = 1
BATCH_ROWS = 2
# The others are slow tests (`make test-all`). Each kind of state is in one of these, and each form
# has several of them.
QUICK = {
    ("windows_append", "cairn-1"),
    ("totals_complete", "rocksdb-zips-1"),
    ("distinct", "rocksdb-zips-2"),
    ("distinct_by_time", "cairn-2"),
    ("distinct_within_watermark", "rocksdb-2"),
    ("sessions", "rocksdb-1"),
    ("join_left_outer_v2", "cairn-2"),
    ("join_left_outer_v3", "rocksdb-2"),
    ("join_left_outer_v4", "rocksdb-1"),
    ("groups_event_time", "hdfs"),
    ("groups_processing_time", "cairn-1"),
    ("transform_event_time", "cairn-1"),
    ("transform_ttl", "rocksdb-zips-1"),
    ("transform_scala", "rocksdb-2"),
    ("transform_scala_clock", "cairn-2"),
    ("transform_then_windows", "cairn-2"),
    ("limit", "cairn-2"),
    ("windows_then_distinct", "hdfs"),
    ("distinct_within_watermark_checksums", "hdfs"),
    ("sessions_checksums", "rocksdb-2"),
    ("join_left_outer_v4_checksums", "cairn-2"),
    ("transform_ttl_avro", "rocksdb-1"),
    ("transform_event_time_avro_checksums", "cairn-2"),
}
# Of these an earlier batch is compared, too: one of each form.
EARLIER = {
    ("groups_event_time", "hdfs"),
    ("totals_complete", "rocksdb-zips-1"),
    ("distinct", "rocksdb-zips-2"),
    ("join_left_outer_v3", "rocksdb-2"),
    ("join_left_outer_v4", "rocksdb-1"),
    ("transform_event_time", "cairn-1"),
    ("transform_scala_clock", "cairn-2"),
}


def has_indexes(name: str) -> bool:
    """Return whether an operator stores more than the rows of its program."""
    return name.startswith(("join", "transform")) and "_then_" not in name


# Those come first: a case keeps its number in a list of some, and with it its run.
NAMES = sorted(
    (operator.name for operator in (*OPERATORS, *SINGLE_JOINS, *ENCODED)),
    key=lambda name: not has_indexes(name),
)
PAIRS = [
    (name, form.name) for name in NAMES for form in FORMS.values() if runs(BY_NAME[name], form)
]


def cases(quick: set[tuple[str, str]]) -> list[Any]:
    """Return all pairs as parameters, but for some as slow ones."""
    return [
        pytest.param(pair, id="-".join(pair), marks=[] if pair in quick else [pytest.mark.slow])
        for pair in PAIRS
    ]


CASES = cases(QUICK)
WITH_INDEXES = CASES[: sum(has_indexes(name) for name, _ in PAIRS)]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Events:
    """Write the input of all cases."""
    events = Events(tmp_path_factory.mktemp("input"))
    events.add_files(0, FILES)
    return events


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, events: Events
) -> Case:
    """Run an operator under a provider."""
    name, form = request.param
    return Case.of(BY_NAME[name], FORMS[form], events, tmp_path_factory.mktemp(name) / "query")


def test_the_rows_are_those_of_sparks_source(case: Case) -> None:
    """People act on these rows: a wrong cell, or a row too few, misleads them."""
    assert_same(case.compared(case.checkpoint.batches[-1]), case.compared_changes())


@pytest.mark.parametrize("case", cases(EARLIER), indirect=True)
def test_the_rows_of_an_earlier_batch_are_those_of_sparks_source(case: Case) -> None:
    """Who looks for the batch that broke a state must not see the rows of a later one."""
    assert_same(case.compared(EARLIER_BATCH))


def assert_same(*all_compared: Iterable[Compared]) -> None:
    """Compare the reader with Spark's source."""
    different, rows = [], 0
    for name, found, expected in chain(*all_compared):
        rows += len(expected.rows)
        if difference := found.difference(expected):
            different.append(f"{name}: {difference}")

    assert not different, "\n".join(different)
    assert rows, "no family has a row: nothing was compared"


def test_a_key_is_found_in_its_partition_alone(case: Case, tmp_path: Path) -> None:
    """`get` reads one partition: with another hash than Spark's it would miss keys that exist.

    That partition is a copy of the checkpoint without the others, whose metadata have the paths of
    another place, as a backup's have.
    """
    partitions = case.checkpoint.operators[0].partitions
    alone = [
        copy_of_partition(Path(case.run.checkpoint), number, tmp_path)
        for number in range(partitions)
    ]
    for family in families_of(case.checkpoint):
        is_hashed = any(column.is_hashed for column in family.columns)
        for key, rows in rows_by_key(state_of(case.checkpoint, family)):
            partition = rows.rows[0][-1]
            checkpoint = alone[partition] if is_hashed else case.checkpoint

            found = rows_of_reader(state_of(checkpoint, family).get(key))

            assert not found.difference(rows), f"{family.name}, {key}"


def test_columns_partitions_and_the_size_of_batches_are_chosen(case: Case) -> None:
    """Who reads a part of a large state gets this part, and a bounded number of rows at a time."""
    for family in families_of(case.checkpoint):
        state = state_of(case.checkpoint, family)
        table, partition = state.to_table(), state.partitions - 1
        columns = list(reversed(state.schema.names))

        reader = state.reader(columns, [partition], BATCH_ROWS)
        batches = list(reader)

        assert table.schema == state.schema
        assert all(0 < batch.num_rows <= BATCH_ROWS for batch in batches)
        expected = table.filter(pc.equal(table[PARTITION], partition)).select(columns)
        found = rows_of_reader(pa.Table.from_batches(batches, reader.schema))
        assert not found.difference(rows_of_reader(expected)), family.name


@pytest.mark.parametrize("case", WITH_INDEXES, indirect=True)
def test_counts_and_indexes_agree_with_the_rows(case: Case) -> None:
    """An operator writes them beside the rows of the program: of one batch they agree.

    Spark joins the rows of a key whose index is below the key's count. The reader returns all that
    are stored: these are the same.
    """
    compared = 0
    for operator in case.checkpoint.view().operators:
        families = [one for one in families_of(case.checkpoint) if one.operator == operator]
        rows = {
            family.name: rows_of(case.checkpoint, family).without(PARTITION) for family in families
        }
        for name, found, expected in agreeing(rows):
            assert Counter(map(repr, found)) == Counter(map(repr, expected)), name
            compared += len(expected)

    assert compared, "no index has a row"


def agreeing(rows: dict[str, Rows]) -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Yield pairs of lists that are the same in all states: a name, what is found, what it is."""
    for name, index in rows.items():
        side, _, kind = name.partition("-")
        if kind == "keyToNumValues":
            # A key of n rows has them under the indexes from 0 to n - 1.
            indexes = [(*row[:-1], number) for row in index.rows for number in range(row[-1])]
            yield name, rows[side].only(rows[side].keys), indexes
        elif kind == "tsWithKey":
            yield name, rows[side].only(rows[side].keys), index.rows
        elif name in TIMERS:
            other = rows[name.replace("keyToTimestamp", "timestampToKey")]
            yield name, other.only(index.types), index.rows
        kind, _, of = name.partition("_")
        variable = rows.get(of)
        if variable is None:
            continue
        if kind == "$count" or (kind == "$rowCounter" and f"$count_{of}" not in rows):
            elements = [row[:-1] for row in index.rows for _ in range(row[-1])]
            yield name, variable.only(variable.keys), elements
        elif (
            kind == "$ttl"
            and set(index.types) <= set(variable.types)
            and f"$count_{of}" not in rows
        ):
            yield name, variable.only(index.types), index.rows
