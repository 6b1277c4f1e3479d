"""`cairn.open_checkpoint`: what a checkpoint has, the rows of its stores, and how they change."""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_checkpoint import PARTITIONS, SmallCheckpoint, key_row, partition_of_user
from spark_store_files import compressed, plain

import cairn
from cairn.errors import (
    ConfigError,
    CorruptError,
    MissingError,
    NotThereError,
    UnsupportedStateError,
)
from cairn.reader.changes import Diff
from cairn.reader.checkpoint import Checkpoint
from cairn.reader.equality import are_equal, are_same_rows
from cairn.reader.families import Column
from cairn.reader.key_values import grouped, scalar_of
from cairn.reader.rows.row_writer import write_row
from cairn.reader.rows.types import struct_of
from cairn.reader.stores.base import ReadLimits, StoreRows
from cairn.reader.stores.opening import StorePlace

NAN = float("nan")
STRUCT = pa.struct([("a", pa.float64()), ("b", pa.int64())])
COLUMNS = ["user", "max", "max_2", "partition"]


@pytest.fixture
def written(tmp_path: Path) -> SmallCheckpoint:
    """Return the writer of a checkpoint with three batches."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.commit({user: (user, 10 * user) for user in range(20)})
    written.commit({3: (4, 5), 7: None, 50: (1, 2)})
    written.commit({})
    return written


@pytest.fixture
def checkpoint(written: SmallCheckpoint) -> Checkpoint:
    """Return that checkpoint, opened."""
    return cairn.open_checkpoint(str(written.folder))


def rows_of(table: pa.Table) -> dict[int, tuple[int, int]]:
    """Return the two values by user; each user must be there once, in its partition."""
    rows = {row["user"]: (row["max"], row["max_2"]) for row in table.to_pylist()}
    assert len(rows) == table.num_rows
    assert all(row["partition"] == partition_of_user(row["user"]) for row in table.to_pylist())
    return rows


def test_a_checkpoint_shows_what_it_has(checkpoint: Checkpoint) -> None:
    """The first question of a person who was handed a folder."""
    assert checkpoint.batches == (0, 1, 2)
    assert checkpoint.providers == ("hdfs",)
    (operator,) = checkpoint.operators
    assert (operator.name, operator.partitions, operator.stores) == (
        "stateStoreSave",
        PARTITIONS,
        ("default",),
    )
    (store,) = checkpoint.stores
    assert store.columns == ("user", "max", "max_2")
    assert "stateStoreSave" in repr(checkpoint.operators)
    assert checkpoint.describe_batches().to_table()["watermark_ms"].to_pylist() == [0, 1, 2]


def test_a_commit_without_its_plan_is_not_the_newest_batch(
    written: SmallCheckpoint, checkpoint: Checkpoint
) -> None:
    """The state cannot be read without the settings that the offset log has."""
    (written.folder / "offsets/2").unlink()

    assert checkpoint.batches == (0, 1)
    assert checkpoint.view().batch == 1
    assert rows_of(checkpoint.state().to_table()) == written.rows[1]


def test_who_takes_one_batch_of_rows_opens_one_partition(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `cairn show --limit` does: a state may have hundreds of partitions."""
    opened: list[int] = []
    open_ = StorePlace.open

    def noted(
        self: StorePlace, partition: int, lists: Collection[str], limits: ReadLimits
    ) -> StoreRows:
        opened.append(partition)
        return open_(self, partition, lists, limits)

    monkeypatch.setattr(StorePlace, "open", noted)
    with checkpoint.state().reader() as reader:
        reader.read_next_batch()
        first = list(opened)
        rest = reader.read_all()

    assert first == [0]
    assert sorted(opened) == list(range(PARTITIONS))
    assert rest.num_rows


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_state_has_the_rows_of_its_batch(
    written: SmallCheckpoint, checkpoint: Checkpoint, batch: int
) -> None:
    """Two columns with one name are two columns: Spark's own reader confuses them."""
    state = checkpoint.state(batch=batch)

    assert state.schema.names == COLUMNS
    assert rows_of(state.to_table()) == written.rows[batch]


def test_a_state_is_a_stream_for_any_arrow_tool(checkpoint: Checkpoint) -> None:
    """DuckDB, Polars and pandas take it without a method of ours."""
    state = checkpoint.state()

    assert pa.table(state).num_rows == 20
    assert list(state.to_pandas()["user"]) == state.to_table()["user"].to_pylist()


def test_columns_partitions_and_batches_can_be_chosen(
    written: SmallCheckpoint, checkpoint: Checkpoint
) -> None:
    """A large state is read in parts, and without columns that nobody needs."""
    state = checkpoint.state()

    parts = [state.reader(["max", "user"], partitions=[number], batch_rows=2) for number in (0, 2)]
    batches = [batch for part in parts for batch in part]

    assert {tuple(batch.schema.names) for batch in batches} == {("max", "user")}
    assert max(batch.num_rows for batch in batches) == 2
    users = {user for batch in batches for user in batch["user"].to_pylist()}
    assert users == {user for user in written.rows[2] if partition_of_user(user) in (0, 2)}


def test_batches_of_rows_may_be_of_any_size(checkpoint: Checkpoint) -> None:
    """Arrow itself takes no number beyond 64 bits."""
    batches = list(checkpoint.state().reader(batch_rows=2**70))

    assert sum(batch.num_rows for batch in batches) == 20


def test_a_partition_that_is_named_twice_is_read_once(checkpoint: Checkpoint) -> None:
    """A list that a script has put together must not end in an error without a cause."""
    state = checkpoint.state()

    twice = state.reader(partitions=[1, 0, 1]).read_all()

    assert twice["partition"].unique().to_pylist() == [1, 0]
    assert twice.equals(state.reader(partitions=[1, 0]).read_all())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"columns": ["nobody"]}, "no column 'nobody'.*user, max, max_2, partition"),
        ({"partitions": [3]}, "no partition 3.*0 to 2"),
        ({"batch_rows": 0}, "batch_rows"),
    ],
)
def test_a_wrong_choice_is_an_error_that_says_what_there_is(
    checkpoint: Checkpoint, arguments: dict[str, object], message: str
) -> None:
    """An empty answer would look like an empty state."""
    with pytest.raises(ConfigError, match=message):
        checkpoint.state().reader(**arguments)  # type: ignore[arg-type]


def test_one_key_is_found_in_its_partition_alone(
    written: SmallCheckpoint, checkpoint: Checkpoint
) -> None:
    """One look-up must not read a state of terabytes: files of other partitions may be gone."""
    partition = partition_of_user(3)
    for path in (written.folder / "state/0").glob("[0-9]/*.delta"):
        if path.parent.name != str(partition):
            path.unlink()

    found = checkpoint.state().get({"user": 3})

    assert found.to_pylist() == [{"user": 3, "max": 4, "max_2": 5, "partition": partition}]
    absent = next(user for user in range(100, 200) if partition_of_user(user) == partition)
    assert checkpoint.state().get({"user": absent}).num_rows == 0


@pytest.mark.parametrize(
    ("stored", "wanted", "found"),
    [
        ([0.0], -0.0, ["0.0"]),
        ([NAN], struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0], ["nan"]),
        ([0.0, -0.0], -0.0, ["-0.0"]),
        ([0.0, -0.0], 0.0, ["0.0"]),
    ],
)
def test_a_zero_has_no_sign_where_spark_groups_by_it(
    tmp_path: Path, stored: list[float], wanted: float, found: list[str]
) -> None:
    """A look-up by a measured -0.0 must find its group; dropDuplicates keeps both zeros apart."""
    written = SmallCheckpoint(tmp_path / "ck", key_type="double")
    for number in stored:  # to Python, the two zeros are one key
        written.commit({number: (1, 2)})

    rows = cairn.open_checkpoint(str(written.folder)).state().get({"user": wanted})

    assert [repr(user) for user in rows["user"].to_pylist()] == found


def test_a_null_of_which_spark_leaves_other_bytes_is_found(tmp_path: Path) -> None:
    """Spark writes nothing in the place of a calendar interval that is null."""
    written = SmallCheckpoint(tmp_path / "ck", key_type="interval")
    written.commit({None: (4, 5)})

    rows = cairn.open_checkpoint(str(written.folder)).state().get({"user": None})

    assert rows["max"].to_pylist() == [4]


def test_without_the_strict_distribution_every_partition_is_searched(tmp_path: Path) -> None:
    """Queries that began before Spark 3.3 may have a key where its hash does not say."""
    written = SmallCheckpoint(
        tmp_path / "old",
        {"spark.sql.streaming.statefulOperator.useStrictDistribution": "false"},
    )
    written.commit({3: (4, 5)})
    home = written.folder / "state/0" / str(partition_of_user(3)) / "1.delta"
    other = written.folder / "state/0" / str((partition_of_user(3) + 1) % PARTITIONS) / "1.delta"
    moved, empty = home.read_bytes(), other.read_bytes()
    home.write_bytes(empty)
    other.write_bytes(moved)

    found = cairn.open_checkpoint(str(written.folder)).state().get({"user": 3})

    assert found["partition"].to_pylist() == [(partition_of_user(3) + 1) % PARTITIONS]


@pytest.mark.parametrize(
    ("cells", "kind", "wanted"),
    [
        ([NAN, 0.5, None], pa.float64(), NAN),
        ([None, NAN, 0.5], pa.float64(), None),
        ([{"start": 1}, {"start": 2}, None], pa.struct([("start", pa.int64())]), {"start": 1}),
        ([[1, 2], [2], None], pa.large_list(pa.int64()), [1, 2]),
        ([{"a": NAN, "b": 1}, {"a": NAN, "b": 2}, None], STRUCT, {"a": NAN, "b": 1}),
        ([{"a": None, "b": 1}, None, {"a": 0.5, "b": 1}], STRUCT, {"a": None, "b": 1}),
        ([[NAN, None], [NAN], [0.5, None]], pa.large_list(pa.float64()), [NAN, None]),
        ([[], None, [NAN]], pa.large_list(pa.float64()), []),
        ([[(1, NAN)], [(2, NAN)], []], pa.map_(pa.int64(), pa.float64()), [(1, NAN)]),
        ([(1, 2, 3), (1, 2, 4), None], pa.month_day_nano_interval(), (1, 2, 3)),
    ],
)
def test_a_part_of_a_key_may_be_of_any_type(
    cells: list[object], kind: pa.DataType, wanted: object
) -> None:
    """A part of a key is often the window, which is a struct; NaN is a key as any other."""
    make: Any = pa.scalar

    found = are_equal(pa.array(cells, kind), make(wanted, kind))

    assert found.to_pylist() == [True, False, False]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"start": 1.5}, pa.struct([("start", pa.int64())])),
        ({"begin": 1}, pa.struct([("start", pa.int64())])),
        ([1.5], pa.large_list(pa.int64())),
        (0.125, pa.decimal128(10, 2)),
        (float("inf"), pa.int64()),
        (Decimal("1e999999999"), pa.int64()),
        (Decimal("5e-1000000000"), pa.int64()),
        (Decimal("5e-10000000"), pa.decimal128(10, 2)),
        ("5e-10000000", pa.decimal128(10, 2)),
        (Decimal("1e39"), pa.float32()),
        (Decimal("1e-400"), pa.float64()),
        (2**53 + 1, pa.float64()),
        (1, pa.bool_()),
    ],
)
def test_a_value_that_the_column_cannot_have_is_refused(value: object, kind: pa.DataType) -> None:
    """Arrow makes it a similar one, and a similar key has the rows of someone else."""
    with pytest.raises(ConfigError, match="is not of type"):
        scalar_of(value, Column("key", (0,), kind, is_key=True))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (Decimal("0.49543508709194095"), pa.float64(), 0.49543508709194095),
        (Decimal("1e39"), pa.float64(), 1e39),
        (Decimal("5e-324"), pa.float64(), 5e-324),
        (Decimal("-0.0"), pa.float64(), -0.0),
        ({"a": Decimal("499.28")}, STRUCT, {"a": 499.28, "b": None}),
        ([Decimal("832.4"), None], pa.large_list(pa.float64()), [832.4, None]),
        (
            [(Decimal("62.16"), Decimal("1.5"))],
            pa.map_(pa.float64(), pa.decimal128(5, 2)),
            [(62.16, Decimal("1.50"))],
        ),
        (Decimal("1e3"), pa.int64(), 1000),
    ],
)
def test_a_decimal_is_the_nearest_number_of_a_type(
    value: object, kind: pa.DataType, expected: object
) -> None:
    """Arrow's own conversion misses it by some units of the last digit: another key."""
    found = scalar_of(value, Column("key", (0,), kind, is_key=True))

    assert found.type == kind
    assert repr(found.as_py()) == repr(expected)


def test_a_key_of_a_grouping_has_one_zero_and_one_nan_at_any_depth() -> None:
    """Spark writes the keys of groupings so; the key that a user has may have others."""
    kind = pa.struct([("a", pa.large_list(pa.float64())), ("b", pa.map_(pa.int64(), pa.float32()))])
    value: Any = pa.scalar({"a": [-0.0, None, 1.5], "b": [(1, -0.0)]}, kind)

    assert repr(grouped(value).as_py()) == repr({"a": [0.0, None, 1.5], "b": [(1, 0.0)]})
    assert grouped(pa.scalar(None, kind)).as_py() is None


@pytest.mark.parametrize(
    ("key_type", "kind", "numbers"),
    [
        ("timestamp", pa.timestamp("us", "UTC"), [253_402_300_800_000_000, -(2**63)]),
        ("timestamp_ntz", pa.timestamp("us"), [-62_135_596_800_000_001, 0]),
        ("time(9)", pa.time64("ns"), [1, 0, 1000]),
    ],
)
def test_times_that_python_has_not_are_keys_as_any_other(
    tmp_path: Path, key_type: str, kind: pa.DataType, numbers: list[int]
) -> None:
    """Years beyond 9999, and nanoseconds: the key of a row finds the row."""
    written = SmallCheckpoint(tmp_path / "ck", key_type=key_type)
    written.commit({number: (number % 97, 0) for number in numbers})
    keys = pa.array(numbers, pa.int64()).cast(kind)

    state = cairn.open_checkpoint(str(written.folder)).state()
    found = [state.get({"user": key}) for key in keys]

    assert [rows["max"].to_pylist() for rows in found] == [[number % 97] for number in numbers]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"max": 3}, "no column 'max'; it has: user"),
        ({"user": "three"}, "'user' is not of type int64"),
        ({"user": 3.5}, "'user' is not of type int64"),
        ({"user": Decimal("3.5")}, "'user' is not of type int64"),
        ({"user": True}, "'user' is not of type int64"),
    ],
)
def test_a_wrong_key_is_an_error(
    checkpoint: Checkpoint, key: dict[str, object], message: str
) -> None:
    """A key that cannot exist is a mistake of the caller, and not a key without rows."""
    with pytest.raises(ConfigError, match=message):
        checkpoint.state().get(key)


def test_a_diff_has_what_was_added_removed_and_changed(checkpoint: Checkpoint) -> None:
    """The question after an incident: what did this batch do?"""
    changes = {
        (row["user"], row["change"]): (row["max"], row["max_2"])
        for row in checkpoint.diff(0, 1).to_table().to_pylist()
    }

    assert changes == {
        (3, "changed_from"): (3, 30),
        (3, "changed_to"): (4, 5),
        (7, "removed"): (7, 70),
        (50, "added"): (1, 2),
    }
    assert checkpoint.diff(1, 2).to_table().num_rows == 0


def test_a_diff_of_arrays_that_have_only_nulls(tmp_path: Path) -> None:
    """Spark's type of `array()` and `array(null)` is array<void>."""
    voids = {"type": "array", "elementType": "void", "containsNull": True}
    written = SmallCheckpoint(tmp_path / "ck", value_type=voids)
    fields = struct_of({"type": "struct", "fields": [{"name": "value", "type": voids}]}).fields
    value = write_row([pa.array([[None, None]], fields[0].type.arrow)], fields, 0)
    written.commit_stored({})
    written.commit_stored({1: value})

    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        (row,) = checkpoint.diff(0, 1).to_table().to_pylist()

    assert (row["change"], row["user"], row["value"]) == ("added", 1, [None, None])


def test_the_change_feed_has_what_each_batch_wrote(checkpoint: Checkpoint) -> None:
    """Another system follows the state without reading all of it."""
    feed = checkpoint.changes((1, 2)).to_table()

    assert feed.schema.names == ["batch", "change", *COLUMNS]
    changes = {
        row["user"]: (row["batch"], row["change"], row["max"], row["max_2"])
        for row in feed.to_pylist()
    }
    assert changes == {
        3: (1, "put", 4, 5),
        7: (1, "delete", None, None),
        50: (1, "put", 1, 2),
    }


def test_columns_of_the_state_that_are_named_as_those_of_a_change_stay(tmp_path: Path) -> None:
    """Else the word for the change would stand where the state's value was."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.declare({"change": "long"}, {"batch": "long", "change_2": "long"})
    written.commit({1: (7, 8)})
    written.commit({1: None, 2: (9, 10)})
    checkpoint = cairn.open_checkpoint(str(written.folder))

    diff = checkpoint.diff(0, 1)
    differences = sorted(diff.to_table().to_pylist(), key=lambda row: str(row["change"]))
    changes = checkpoint.changes((1, 1)).to_table()

    assert diff.key_columns == ("change_3",)
    partitions = [partition_of_user(user) for user in (2, 1)]
    assert differences == [
        {"change": "added", "change_3": 2, "batch": 9, "change_2": 10, "partition": partitions[0]},
        {"change": "removed", "change_3": 1, "batch": 7, "change_2": 8, "partition": partitions[1]},
    ]
    assert changes.schema.names == [
        "batch",
        "change",
        "change_3",
        "batch_2",
        "change_2",
        "partition",
    ]
    assert set(
        zip(*(changes[name].to_pylist() for name in changes.schema.names[:4]), strict=True)
    ) == {
        (1, "put", 2, 9),
        (1, "delete", 1, None),
    }


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ({"person": "long"}, {"max": "long", "sum": "long"}, "user int64, and person int64"),
        ({"user": "timestamp"}, {"max": "long", "sum": "long"}, "int64, and user timestamp"),
        ({"user": "long"}, {"max": "long", "sum": "timestamp"}, "sum"),
        ({"user": "long"}, {"max": "integer", "sum": "long"}, "'max' is of type int32"),
    ],
)
def test_states_with_other_columns_are_not_compared(
    tmp_path: Path, key: dict[str, str], value: dict[str, str], message: str
) -> None:
    """Equal bytes of other types are other values, and bytes that differ may be equal ones."""
    one, other = (SmallCheckpoint(tmp_path / name) for name in ("one", "other"))
    one.declare({"user": "long"}, {"max": "long", "sum": "long"})
    other.declare(key, value)
    states = []
    for written in (one, other):
        written.commit({1: (1, 1)})
        states.append(cairn.open_checkpoint(str(written.folder)).state())

    with pytest.raises(ConfigError, match=message):
        Diff(*states)


def test_a_column_that_one_state_has_alone_is_null_in_the_rows_of_the_other(tmp_path: Path) -> None:
    """A state variable may have got another field meanwhile."""
    one, other = (SmallCheckpoint(tmp_path / name) for name in ("one", "other"))
    one.declare({"user": "long"}, {"max": "long", "sum": "long"})
    other.declare({"user": "long"}, {"max": "long", "sum": "long", "count": "long"})
    one.commit({1: (2, 3)})
    other.commit({})

    diff = Diff(*(cairn.open_checkpoint(str(each.folder)).state() for each in (one, other)))

    expected = {"change": "removed", "user": 1, "max": 2, "sum": 3, "count": None}
    assert diff.to_table().to_pylist() == [expected | {"partition": partition_of_user(1)}]


def test_the_history_of_a_key_has_the_batches_that_changed_it(checkpoint: Checkpoint) -> None:
    """The batch at which a value went wrong is found without reading whole states."""
    history = [
        (one.batch, one.before and one.before["max"].to_pylist(), one.after["max"].to_pylist())
        for one in checkpoint.history({"user": 7})
    ]

    assert history == [(0, None, [7]), (1, [7], [])]
    assert list(checkpoint.history({"user": 999})) == []


@pytest.mark.parametrize(
    ("one", "other", "kind", "is_same"),
    [
        ([NAN, None], [NAN, None], pa.float64(), True),
        ([NAN], [1.0], pa.float32(), False),
        ([NAN], [None], pa.float64(), False),
        ([{"a": NAN, "b": 1}], [{"a": NAN, "b": 1}], STRUCT, True),
        ([{"a": NAN, "b": 1}], [{"a": NAN, "b": 2}], STRUCT, False),
        ([[NAN], [], None], [[NAN], [], None], pa.list_(pa.float64()), True),
        ([[NAN], []], [[], [NAN]], pa.list_(pa.float64()), False),
        ([[("x", NAN)]], [[("x", NAN)]], pa.map_(pa.string(), pa.float64()), True),
        ([[("x", NAN)]], [[("y", NAN)]], pa.map_(pa.string(), pa.float64()), False),
    ],
)
def test_nan_is_the_same_value_in_the_next_batch(
    one: list[object], other: list[object], kind: pa.DataType, *, is_same: bool
) -> None:
    """To Arrow it is not: each batch would be in the history of a key with a NaN."""
    tables = [
        pa.table({"n": [1] * len(cells), "x": pa.array(cells, kind)}) for cells in (one, other)
    ]

    assert are_same_rows(*tables) == is_same


def test_a_history_begins_where_the_state_is_still_there(
    written: SmallCheckpoint, checkpoint: Checkpoint
) -> None:
    """Spark's logs have more batches than its stores."""
    snapshots = {
        number: (written.folder / f"state/0/{number}/1.delta") for number in range(PARTITIONS)
    }
    for path in snapshots.values():
        path.rename(path.with_name("2.snapshot"))  # its rows do not matter here
    history = [one.batch for one in checkpoint.history({"user": 3})]

    assert history == [1]


@pytest.mark.parametrize("wrong", [{"operator": 7}, {"store": "nix"}])
def test_a_history_of_a_store_that_does_not_exist_is_an_error(
    checkpoint: Checkpoint, wrong: dict[str, Any]
) -> None:
    """It would look like that of a key that nothing has changed."""
    with pytest.raises(NotThereError, match=r"no operator 7|no rows named 'nix'"):
        list(checkpoint.history({"user": 3}, **wrong))


def test_a_running_query_is_followed(written: SmallCheckpoint, checkpoint: Checkpoint) -> None:
    """Batches come in order, each once, also those between two looks."""
    follower = checkpoint.follow(poll_s=0.01)
    seen: list[int] = []

    def follow() -> None:
        seen.extend(next(follower).batch for _ in range(2))

    # The first look begins behind what is committed then.
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    for _ in range(1000):
        written.commit({1: (2, 2)})
        thread.join(0.05)
        if not thread.is_alive():
            break

    first, second = seen
    assert first >= 3
    assert second == first + 1


def test_a_folder_without_a_query_is_missing(tmp_path: Path) -> None:
    """The parent of a checkpoint is a common mistake."""
    with pytest.raises(NotThereError, match="checkpointLocation"):
        cairn.open_checkpoint(str(tmp_path)).state()


def test_a_batch_that_was_not_committed_is_missing(checkpoint: Checkpoint) -> None:
    """The error says what to choose from."""
    with pytest.raises(NotThereError, match="batch 9 is not committed; committed are: 0 to 2"):
        checkpoint.state(batch=9)


def test_an_operator_or_store_that_does_not_exist_is_missing(checkpoint: Checkpoint) -> None:
    """Names are those that the listing shows."""
    with pytest.raises(NotThereError, match="no operator 4 at batch 2; there are: 0"):
        checkpoint.state(operator=4)
    with pytest.raises(NotThereError, match="no rows named 'left'; it has: default"):
        checkpoint.state(store="left")


def test_a_missing_file_names_itself(written: SmallCheckpoint, checkpoint: Checkpoint) -> None:
    """The rows of the other partitions must not pass as all rows."""
    (written.folder / "state/0/1/2.delta").unlink()

    with pytest.raises(MissingError, match=r"state/0/1/2\.delta"):
        checkpoint.state().to_table()


def test_a_damaged_file_names_itself(written: SmallCheckpoint, checkpoint: Checkpoint) -> None:
    """Likewise for a file that was cut off."""
    path = written.folder / "state/0/1/1.delta"
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(CorruptError, match=r"state/0/1/1\.delta"):
        checkpoint.state().to_table()


def test_a_row_that_is_too_short_is_corrupt(
    written: SmallCheckpoint, checkpoint: Checkpoint
) -> None:
    """A row without its last column would be a wrong number."""
    path = written.folder / f"state/0/{partition_of_user(3)}/1.delta"
    path.write_bytes(compressed(plain([("put", key_row(3), bytes(16))])))

    with pytest.raises(CorruptError):
        checkpoint.state(batch=0).to_table()


def test_an_unknown_provider_is_refused_by_name(tmp_path: Path) -> None:
    """Its files could look like those of a known one."""
    name = "spark.sql.streaming.stateStore.providerClass"
    written = SmallCheckpoint(tmp_path / "ck", {name: "com.other.Provider"})
    written.commit({})

    with pytest.raises(UnsupportedStateError, match=r"com\.other\.Provider"):
        cairn.open_checkpoint(str(written.folder)).state()


def test_reading_changes_nothing(written: SmallCheckpoint, checkpoint: Checkpoint) -> None:
    """A checkpoint in production may be looked at at any time."""
    before = sorted(written.folder.rglob("*"))

    checkpoint.state().to_table()
    checkpoint.diff(0, 1).to_table()
    list(checkpoint.history({"user": 3}))

    assert sorted(written.folder.rglob("*")) == before
