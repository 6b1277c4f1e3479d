"""States that few queries have, through the reader and through Spark's `statestore` source.

No rows, a batch that changes nothing, columns of one name, keys of many types, objects that only
the program can read, a variable whose class got a field, and one that the program has deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import cairn
from cairn.cli.main import main
from cairn.errors import NotThereError
from harness.events import Events
from harness.operators import BY_NAME, Operator
from harness.processors import some_rows
from harness.scala_programs import opaque_plan
from harness.state_cases import FORMS, Case, families_of, rows_by_key, rows_of, state_of
from harness.state_rows import rows_of_reader

pytestmark = pytest.mark.usefixtures("driver")

Test = Callable[..., None]


def in_forms(*quick: str, slow: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Run a test in some forms; the slow ones are left to `make test-all`."""
    return pytest.mark.parametrize(
        "form", [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]
    )


@pytest.fixture
def events(tmp_path: Path) -> Events:
    """Write the input of two batches."""
    events = Events(tmp_path / "input")
    events.add_files(0, 2)
    return events


def assert_same(case: Case, batch: int) -> int:
    """Compare the reader with Spark's source; return how many rows they show."""
    rows = 0
    for name, found, expected in case.compared(batch):
        assert not found.difference(expected), name
        rows += len(expected.rows)
    return rows


def assert_keys_are_found(case: Case) -> None:
    """Look up each key of the newest batch."""
    for family in families_of(case.checkpoint):
        state = state_of(case.checkpoint, family)
        for key, rows in rows_by_key(state):
            assert not rows_of_reader(state.get(key)).difference(rows), f"{family.name}, {key}"


def nothing(left: DataFrame) -> DataFrame:
    """Return a stream without rows."""
    return left.where("k > 1000")


WITHOUT_ROWS = {
    "distinct": Operator(
        "distinct", lambda left, _: nothing(left).select("k").dropDuplicates(["k"])
    ),
    "transform_scala": replace(
        BY_NAME["transform_scala"],
        plan=lambda left, right: BY_NAME["transform_scala"].plan(nothing(left), right),
    ),
    "join_inner_v2": replace(
        BY_NAME["join_inner_v2"],
        plan=lambda left, right: BY_NAME["join_inner_v2"].plan(nothing(left), right),
    ),
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("distinct", "hdfs"),
        ("transform_scala", "cairn-2"),
        ("transform_scala", "rocksdb-1"),
        *(
            pytest.param(name, form, marks=pytest.mark.slow)
            for name, form in (
                ("distinct", "cairn-1"),
                ("distinct", "cairn-2"),
                ("distinct", "rocksdb-2"),
                ("transform_scala", "cairn-1"),
                ("transform_scala", "rocksdb-2"),
                ("join_inner_v2", "cairn-2"),
                ("join_inner_v2", "rocksdb-zips-1"),
                ("join_inner_v2", "hdfs"),
            )
        ),
    ],
)
def test_a_state_without_rows_has_its_columns(
    events: Events, tmp_path: Path, name: str, form: str
) -> None:
    """An empty table is an answer. An error would look like a damaged checkpoint."""
    case = Case.of(WITHOUT_ROWS[name], FORMS[form], events, tmp_path / "query")

    for batch in case.checkpoint.batches:
        assert assert_same(case, batch) == 0
    state = state_of(case.checkpoint, next(families_of(case.checkpoint)))
    assert state.get(dict.fromkeys(state.key_columns, 7)).num_rows == 0


@in_forms("cairn-2", "rocksdb-2", slow=("cairn-1", "rocksdb-1", "rocksdb-zips-2", "hdfs"))
def test_a_batch_that_changes_nothing_has_the_state_of_the_one_before(
    events: Events, tmp_path: Path, form: str
) -> None:
    """Cairn stores no rows for such a batch: with checkpoint format 2, not even their absence."""
    # The third batch has the rows of the others, and so no new ones.
    for side in ("left", "right"):
        events.join_files(events, side, range(2), 2)
    case = Case.of(BY_NAME["distinct"], FORMS[form], events, tmp_path / "query")
    assert case.checkpoint.batches == (0, 1, 2)

    counts = [assert_same(case, batch) for batch in case.checkpoint.batches]

    assert 0 < counts[0] < counts[1] == counts[2]
    assert_keys_are_found(case)


def _maxima(left: DataFrame, _: DataFrame) -> DataFrame:
    return left.groupBy("k").agg(f.max("v"), f.max("name"), f.sum("v"), f.max("ts"))


@in_forms("rocksdb-1", slow=("cairn-2", "hdfs"))
def test_columns_of_one_name_are_told_apart(events: Events, tmp_path: Path, form: str) -> None:
    """Spark names a column of the state as its function; its `value.*` shows one of them twice."""
    operator = Operator("maxima", _maxima, "update")
    case = Case.of(operator, FORMS[form], events, tmp_path / "query")

    assert assert_same(case, 1)
    (family,) = families_of(case.checkpoint)
    names = list(rows_of(case.checkpoint, family).types)
    assert names == ["k", "max", "max_2", "sum", "max_3", "partition"]


def _typed(left: DataFrame, _: DataFrame) -> DataFrame:
    columns = {
        "big": "cast(v as decimal(38, 10)) / 7",
        "small": "cast(v as decimal(12, 2)) / 7",
        "day": "to_date(ts)",
        "local": "cast(ts as timestamp_ntz)",
        "bytes": "encode(name, 'UTF-8')",
        "flag": "v % 2 = 0",
        "tiny": "cast(k as tinyint)",
        "little": "cast(v as smallint)",
        "single": "cast(v as float) / 3",
        "double": "-0.0 * k",
        "pause": "make_dt_interval(k, 0, 0, v / 7)",
        "list": "array(k, v, null)",
        "texts": "array(name, null, 'ä')",
        "pair": "struct(k, name, struct(v, array(struct(ts))) as inner)",
    }
    return left.selectExpr(*(f"{of} as {name}" for name, of in columns.items())).dropDuplicates()


@in_forms("rocksdb-1", slow=("cairn-1", "cairn-2", "rocksdb-2", "hdfs"))
def test_keys_of_many_types_are_read_and_found(events: Events, tmp_path: Path, form: str) -> None:
    """A key is looked up by its bytes, in the partition of its hash: both depend on its types."""
    case = Case.of(Operator("typed", _typed), FORMS[form], events, tmp_path / "query")

    assert assert_same(case, 1)
    assert_keys_are_found(case)


def _opaque(name: str, output_mode: str = "append") -> Operator:
    def plan(left: DataFrame, _: DataFrame) -> DataFrame:
        return opaque_plan(name, some_rows(left))

    return Operator(f"transform_opaque_{name}", plan, output_mode)


@in_forms("cairn-2", slow=("cairn-1", "rocksdb-1", "rocksdb-2"))
def test_objects_that_only_the_program_can_read_are_bytes(
    events: Events, tmp_path: Path, form: str
) -> None:
    """Of Kryo and Java's serialization Spark knows no columns: there is one, which says so."""
    case = Case.of(_opaque("variables"), FORMS[form], events, tmp_path / "query")

    assert assert_same(case, 1)
    assert_keys_are_found(case)
    for name, column in OPAQUE.items():
        assert_opaque(case, name, column)


@in_forms("cairn-1", slow=("cairn-2", "rocksdb-1", "hdfs"))
def test_an_opaque_group_state_is_bytes(events: Events, tmp_path: Path, form: str) -> None:
    """Likewise of `flatMapGroupsWithState`, which is the most common way to keep objects."""
    operator = replace(_opaque("groupState", "update"), name="opaque_groups")
    case = Case.of(operator, FORMS[form], events, tmp_path / "query")

    assert assert_same(case, 1)
    assert_keys_are_found(case)
    assert_opaque(case, "default", "value_2")


OPAQUE = {"bag": "value_2", "bags": "value_2", "named": "value_3"}
"""The columns with objects: Spark names the only column of a key, and of a map's key, `value`."""


def assert_opaque(case: Case, store: str, column: str) -> None:
    """Check that a column, and no other one, has objects as they were serialized."""
    state = case.checkpoint.state(store=store)
    assert state.opaque_columns == (column,)
    objects = state.to_table()[column].to_pylist()
    assert objects
    # Kryo marks the last character of a text.
    assert all(b"io.cairn.tests.Ba" in (one or b"") for one in objects)
    shown = CliRunner().invoke(
        main, ["show", case.run.checkpoint, "--store", store, "--schema", "-o", "json"]
    )
    kinds = {
        row["column"]: (row["type"], row["is_key"], row["is_opaque"])
        for row in json.loads(shown.stdout)
    }
    assert kinds[column] == ("large_binary", False, True)
    assert [name for name, (_, _, is_opaque) in kinds.items() if is_opaque] == [column]


@in_forms("rocksdb-1", slow=("cairn-1", "cairn-2", "rocksdb-2"))
def test_values_of_a_former_schema_have_the_columns_of_the_present_one(
    events: Events, tmp_path: Path, form: str
) -> None:
    """With Avro a program may give its state a field: values from before have none of it."""
    case = Case.of(BY_NAME["transform_avro"], FORMS[form], events, tmp_path / "query")
    before = case.checkpoint.batches[-1]
    events.add_files(2, 1)
    case.run = replace(case.run, operator=BY_NAME["transform_avro_largest"])
    case.run.advance()

    for batch in (before, case.checkpoint.batches[-1]):
        assert assert_same(case, batch)
    names = [case.checkpoint.state(store="total", batch=one).schema.names for one in (before, None)]
    assert names == [
        ["k", "events", "total", "partition"],
        ["k", "events", "total", "largest", "partition"],
    ]
    largest = case.checkpoint.state(store="total").to_table()["largest"]
    assert 0 < largest.null_count < len(largest)
    assert_keys_are_found(case)


@in_forms("cairn-2", slow=("cairn-1", "rocksdb-1", "rocksdb-2"))
def test_a_deleted_variable_is_there_in_the_batches_before(
    events: Events, tmp_path: Path, form: str
) -> None:
    """What a release of the job has deleted can still be looked up, at the batches that had it."""
    case = Case.of(BY_NAME["transform_event_time"], FORMS[form], events, tmp_path / "query")
    before = case.checkpoint.batches[-1]
    events.add_files(2, 1)
    case.run = replace(case.run, operator=BY_NAME["transform_without_names"])
    case.run.advance()

    checkpoint = cairn.open_checkpoint(case.run.checkpoint)
    assert checkpoint.state(store="names", batch=before).to_table().num_rows
    with pytest.raises(NotThereError, match="no rows named 'names'"):
        checkpoint.state(store="names")
    for batch in (before, checkpoint.batches[-1]):
        assert assert_same(case, batch)
