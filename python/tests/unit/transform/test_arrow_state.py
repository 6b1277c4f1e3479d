"""What a function of `apply_in_arrow_with_state` gets and may return; no Spark runs."""

# The functions have the parameters that Cairn gives them.
# ruff: noqa: ARG001, ARG005

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute
import pytest
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from cairn import Chunk, apply_in_arrow_with_state
from cairn.applying import takes_chunk
from cairn.errors import ArrowStateError, ConfigError
from cairn.transform.arrow_state import ArrowStateFunction

pc: Any = pyarrow.compute
NONE = GroupStateTimeout.NoTimeout
CLOCK = GroupStateTimeout.ProcessingTimeTimeout
EVENT = GroupStateTimeout.EventTimeTimeout
OUTPUT = StructType().add("k", LongType()).add("n", LongType())
STATE = StructType().add("n", LongType()).add("t", StringType())
NOW_MS = 1_000_000
WATERMARK_MS = 500_000
VALUE = pa.struct([("n", pa.int64()), ("t", pa.string())])
Tables = tuple[Any, Any]


def facts(*, has_timed_out: bool = False, max_records: int = 100) -> dict[str, Any]:
    """Return what the JVM says of the chunks."""
    return {
        "has_timed_out": has_timed_out,
        "processing_time_ms": NOW_MS,
        "watermark_ms": WATERMARK_MS,
        "max_records": max_records,
    }


def chunk_of(
    keys: list[Any],
    states: list[dict[str, Any] | None],
    timeouts: list[int | None] | None = None,
    *,
    rows_per_key: int = 2,
    key_type: pa.DataType | None = None,
) -> pa.RecordBatch:
    """Return a chunk as the JVM sends it: the state of a key is beside its first row."""
    key_type = key_type or pa.int64()
    rows, sent = [], []
    of = timeouts or [None] * len(keys)
    for key, value, timeout in zip(keys, states, of, strict=True):
        for number in range(rows_per_key):
            rows.append({"k": key, "v": number})
            state = {"key": {"k": key}, "value": value, "timeout": timeout}
            sent.append(None if number else state)
    state_type = pa.struct(
        [("key", pa.struct([("k", key_type)])), ("value", VALUE), ("timeout", pa.int64())]
    )
    return pa.record_batch(
        [
            pa.array(rows, pa.struct([("k", key_type), ("v", pa.int64())])),
            pa.array(sent, state_type),
        ],
        names=["rows", "state"],
    )


def called(
    func: Callable[..., Tables],
    *batches: pa.RecordBatch,
    timeout: str = NONE,
    output: StructType = OUTPUT,
    state: StructType = STATE,
    **of_chunk: Any,  # noqa: ANN401
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Call a function for chunks; return its rows and what is stored, without the padding."""
    function = ArrowStateFunction(
        func, takes_chunk=takes_chunk(func), output=output, state=state, timeout=timeout
    )
    rows, stored = [], []
    for batch in function.results(iter(batches), facts(**of_chunk)):
        rows += [row for row in batch.column(0).to_pylist() if row is not None]
        stored += [row for row in batch.column(1).to_pylist() if row is not None]
    return rows, stored


def stored(value: dict[str, Any] | None, timeout: int | None = None) -> dict[str, Any]:
    """Return what the JVM stores for a key."""
    return {"value": value, "timeout": timeout}


THREE = chunk_of([7, None, 3], [{"n": 1, "t": "a"}, None, {"n": None, "t": None}])


def refused(new_state: Callable[[pa.Table], Any], batch: pa.RecordBatch = THREE, **of: Any) -> str:  # noqa: ANN401
    """Return the message of the error that a `new_state` ends with."""

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        return None, new_state(state)

    with pytest.raises(ArrowStateError) as error:
        called(function, batch, **of)
    message = str(error.value)
    assert message.startswith("[CAIRN_ARROW_STATE] cairn.apply_in_arrow_with_state(function): ")
    return message


def test_the_tables_have_all_rows_and_one_row_of_state_per_key() -> None:
    """A key without state is told from one whose fields are all null."""
    seen: list[pa.Table] = []

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        seen.extend((rows, state))
        return None, state

    assert called(function, THREE) == (
        [],
        [stored({"n": 1, "t": "a"}), stored(None), stored({"n": None, "t": None})],
    )
    rows, state = seen
    assert rows.to_pylist() == [{"k": k, "v": v} for k in (7, None, 3) for v in (0, 1)]
    assert state.to_pylist() == [
        {"k": 7, "n": 1, "t": "a", "exists": True},
        {"k": None, "n": None, "t": None, "exists": False},
        {"k": 3, "n": None, "t": None, "exists": True},
    ]


def test_new_state_may_come_in_any_order_and_other_widths() -> None:
    """An aggregation of any library returns keys in its own order, null among them."""

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        made = rows.group_by("k").aggregate([("v", "sum")]).sort_by([("k", "descending")])
        n = made["v_sum"].cast(pa.int16())
        text = pa.array(["x", "y", "z"]).dictionary_encode()
        keys = made["k"].cast(pa.int32())
        return None, pa.table({"t": text, "n": n, "k": keys}).to_batches()[0]

    _, after = called(function, THREE)
    assert [row["value"]["n"] for row in after] == [1, 1, 1]
    assert [row["value"]["t"] for row in after] == ["x", "z", "y"]


@pytest.mark.parametrize(
    ("keys", "key_type"),
    [
        ([1.5, float("nan"), -0.0, None], pa.float64()),
        (["a", "", None, "ü"], pa.string()),
        ([{"a": 1, "b": None}, {"a": None, "b": [2.0]}, None], None),
        ([[1, None], [], None], pa.list_(pa.int64())),
        ([True, None, False], pa.bool_()),
    ],
)
def test_keys_of_all_types_are_found(keys: list[Any], key_type: pa.DataType | None) -> None:
    """Keys are compared as Spark groups them: NaN is a key, and so is null."""
    key_type = key_type or pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])
    batch = chunk_of(keys, [None] * len(keys), key_type=key_type)

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        numbers = pa.array(range(state.num_rows), pa.int64())
        table = pa.table({"k": state["k"], "n": numbers, "t": numbers.cast(pa.string())})
        places = list(range(state.num_rows))[::-1]
        return None, table.take(places)

    _, after = called(function, batch)
    assert [row["value"]["n"] for row in after] == list(range(len(keys)))


def test_random_keys_are_found_in_any_order() -> None:
    """Each value goes to its own key, whatever the columns and the order of the rows are."""
    chance = random.Random(5)
    key_type = pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    for _ in range(50):
        several = {
            (
                chance.choice([None, *range(4)]),
                chance.choice([None, "", "x", "y"]),
                chance.choice([None, 0.0, 0.5, float("inf")]),
            )
            for _ in range(chance.randrange(1, 40))
        }
        keys = [dict(zip("abc", key, strict=True)) for key in sorted(several, key=repr)]
        sent = pa.array(
            [{"key": key, "value": None, "timeout": None} for key in keys],
            pa.struct([("key", key_type), ("value", VALUE), ("timeout", pa.int64())]),
        )

        def function(rows: pa.Table, state: pa.Table) -> Tables:
            order = chance.sample(range(state.num_rows), state.num_rows)
            made = state.select(["a", "b", "c", "t"])
            return None, made.append_column("n", pa.array(range(state.num_rows))).take(order)

        rows = pa.array([{"v": 1}] * len(keys))
        _, after = called(function, pa.record_batch([rows, sent], names=["rows", "state"]))
        assert [row["value"]["n"] for row in after] == list(range(len(keys)))


def test_a_column_of_nulls_needs_no_type() -> None:
    """As pyarrow makes it of a list of None."""
    nothing = {"k": [7, None, 3], "n": [None] * 3, "t": [None] * 3, "exists": [False] * 3}
    _, after = called(lambda rows, state: (None, pa.table(nothing)), THREE)
    assert after == [stored(None)] * 3
    nested = StructType().add("s", STATE).add("m", MapType(StringType(), ArrayType(LongType())))
    output = pa.table({"s": [None], "m": [None]})
    rows, _ = called(lambda rows, state: (output, state), THREE, output=nested)
    assert rows == [{"s": None, "m": None}]


def test_negative_zero_is_the_key_zero() -> None:
    """Spark groups both; a function may see either in its rows."""

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        return None, pa.table({"k": [0.0, 1.0], "n": [5, 6], "t": ["", ""]}).take([1, 0])

    _, after = called(function, chunk_of([-0.0, 1.0], [None, None], key_type=pa.float64()))
    assert [row["value"]["n"] for row in after] == [5, 6]


def test_two_columns_make_a_key() -> None:
    """Equal values in one of them are no equal keys."""
    rows = pa.array([{"v": 1}] * 3)
    keys = [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}]
    sent = pa.array(
        [{"key": key, "value": None, "timeout": None} for key in keys],
        pa.struct(
            [
                ("key", pa.struct([("a", pa.int64()), ("b", pa.string())])),
                ("value", VALUE),
                ("timeout", pa.int64()),
            ]
        ),
    )

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        n = pa.array([0, 1, 2])
        columns = {"a": state["a"], "b": state["b"], "n": n, "t": n.cast(pa.string())}
        return None, pa.table(columns).take([2, 0, 1])

    _, after = called(function, pa.record_batch([rows, sent], names=["rows", "state"]))
    assert [row["value"]["n"] for row in after] == [0, 1, 2]


def test_output_and_state_leave_in_bounded_batches() -> None:
    """The shorter of both ends with nulls; all rows arrive, in their order."""
    keys: list[Any] = list(range(5))
    batch = chunk_of(keys, [None] * 5)
    for count in (0, 1, 5, 13):

        def function(rows: pa.Table, state: pa.Table, count: int = count) -> Tables:
            numbers = pa.array(range(count), pa.int64())
            after = pa.table({"k": state["k"], "n": state["k"], "t": state["t"]})
            return pa.table({"n": numbers, "k": numbers}), after

        rows, after = called(function, batch, batch, max_records=2)
        assert rows == [{"k": n, "n": n} for n in range(count)] * 2
        assert [row["value"]["n"] for row in after] == keys * 2


def test_a_third_parameter_gets_the_facts_of_the_chunk() -> None:
    """Timeouts are set from its times; the number of a row's key needs no look-up."""
    seen: list[Chunk] = []

    def function(rows: pa.Table, state: pa.Table, chunk: Chunk) -> Tables:
        seen.append(chunk)
        return None, state

    called(function, THREE)
    (chunk,) = seen
    assert chunk.key_of_row.to_pylist() == [0, 0, 1, 1, 2, 2]
    assert not chunk.has_timed_out
    assert (chunk.processing_time_ms, chunk.watermark_ms) == (NOW_MS, WATERMARK_MS)


def test_expired_keys_come_without_rows() -> None:
    """Their table of rows has its columns; the timeout that has passed must go."""
    batch = chunk_of([1, 2], [{"n": 1, "t": ""}, None], [5, 6], rows_per_key=1)

    def function(rows: pa.Table, state: pa.Table, chunk: Chunk) -> Tables:
        assert (rows.num_rows, rows.column_names) == (0, ["k", "v"])
        assert (len(chunk.key_of_row), chunk.has_timed_out) == (0, True)
        assert state["timeout_ms"].to_pylist() == [5, 6]
        gone = pa.nulls(2, pa.int64())
        output = pa.table({"k": state["k"], "n": state["n"]})
        state = state.set_column(1, "n", gone).set_column(2, "t", gone.cast(pa.string()))
        state = state.set_column(3, "exists", pa.array([False, False]))
        return output, state.set_column(4, "timeout_ms", pa.array([None, NOW_MS + 1]))

    rows, after = called(function, batch, timeout=CLOCK, has_timed_out=True)
    assert rows == [{"k": 1, "n": 1}, {"k": 2, "n": None}]
    assert after == [stored(None), stored(None, NOW_MS + 1)]

    message = refused(lambda state: state, batch, timeout=CLOCK, has_timed_out=True)
    assert "new_state: column 'timeout_ms' has 2 times that have passed, such as 5" in message


@pytest.mark.parametrize(
    ("timeout", "least"), [(CLOCK, NOW_MS + 1), (EVENT, WATERMARK_MS)], ids=["clock", "event"]
)
def test_a_new_timeout_has_not_passed(timeout: str, least: int) -> None:
    """Else the key would expire at once; one that a key had already may stay."""
    batch = chunk_of([1, 2], [None, None], [77, None])

    def at(time: int | None) -> Callable[[pa.Table], pa.Table]:
        return lambda state: state.set_column(4, "timeout_ms", pa.array([77, time], pa.int64()))

    for time in (least, None):
        _, after = called(
            lambda rows, state, time=time: (None, at(time)(state)), batch, timeout=timeout
        )
        assert [row["timeout"] for row in after] == [77, time]
    message = refused(at(least - 1), batch, timeout=timeout)
    assert f"1 times that have passed, such as {least - 1}. Next: a timeout must be" in message


def test_each_breach_of_the_contract_has_its_message() -> None:
    """A row too few must not remove a state, nor a column too many be lost in silence."""
    cases: dict[str, Callable[[pa.Table], Any]] = {
        "new_state is not a table, but of type dict": lambda _: {},
        "new_state is not a table, but of type NoneType": lambda _: None,
        "new_state lacks: column 'n'": lambda state: state.drop_columns("n"),
        "new_state lacks: column 'k'": lambda state: state.drop_columns("k"),
        "new_state has besides its own: column 'm', 'timeout_ms'": lambda state: (
            state.append_column("m", state["n"]).append_column("timeout_ms", state["n"])
        ),
        "new_state has twice: column 'n'": lambda state: state.append_column("n", state["n"]),
        "new_state lacks keys of the chunk: 1, such as k=7": lambda state: state.slice(1),
        "new_state lacks keys of the chunk: 1, such as k=None": lambda state: state.take([0, 2]),
        "new_state has more than one row for a key: 1, such as k=3": lambda state: pa.concat_tables(
            [state, state.slice(2)]
        ),
        "new_state has keys that are not in the chunk: 1, such as k=9": lambda state: (
            state.set_column(0, "k", pa.array([9, None, 3]))
        ),
        "new_state: key 'k' is of type string, not int64": lambda state: state.set_column(
            0, "k", state["k"].cast(pa.string())
        ),
        "new_state: column 'n' is of type double, not int64": lambda state: state.set_column(
            1, "n", state["n"].cast(pa.float64())
        ),
        "new_state: column 'n' does not fit into int64": lambda state: state.set_column(
            1, "n", pa.array([2**63, 0, 0], pa.uint64())
        ),
        "new_state: column 'n' has 1 values in rows whose 'exists' is false": lambda state: (
            state.set_column(1, "n", pa.array([1, 2, 3]))
        ),
        "new_state: column 'exists' has 1 null values": lambda state: state.set_column(
            3, "exists", pa.array([True, None, True])
        ),
        "new_state: column 'exists' is of type int64, not bool": lambda state: state.set_column(
            3, "exists", pa.array([1, 0, 1])
        ),
    }
    for expected, new_state in cases.items():
        assert expected in refused(new_state), expected
    assert "new_state lacks: column 'timeout_ms'" in refused(
        lambda state: state.drop_columns("timeout_ms"), timeout=EVENT
    )


def test_fields_that_are_not_nullable_refuse_nulls_inside_of_values_too() -> None:
    """Spark's rows have no place for them: they would be read as zeros."""
    inner = StructType([StructField("x", LongType(), nullable=False)])
    schema = (
        StructType()
        .add("s", inner)
        .add("a", ArrayType(LongType(), containsNull=False))
        .add("m", MapType(StringType(), inner, valueContainsNull=True))
        .add("r", LongType(), nullable=False)
    )
    good = {"s": {"x": 1}, "a": [1], "m": [("k", {"x": 1}), ("l", None)], "r": 1}
    wide = {"s": None, "a": None, "m": None, "r": 2}
    cases = {
        "column 's'.x": {**good, "s": {"x": None}},
        "column 'a'[]": {**good, "a": [1, None]},
        "column 'm'[].x": {**good, "m": [("k", {"x": None})]},
        "column 'r'": {**good, "r": None},
    }
    of = pa.struct(
        [
            ("s", pa.struct([("x", pa.int64())])),
            ("a", pa.list_(pa.int64())),
            ("m", pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
            ("r", pa.int64()),
        ]
    )
    names = [field.name for field in of]

    def function_for(rows: list[dict[str, Any]]) -> Callable[..., Tables]:
        output = pa.Table.from_struct_array(cast("Any", pa.array(rows, of)))

        def function(rows: pa.Table, state: pa.Table) -> Tables:
            return output.select(names), state

        return function

    assert len(called(function_for([good, wide]), THREE, output=schema)[0]) == 2
    for expected, row in cases.items():
        with pytest.raises(ArrowStateError, match="its field is not nullable") as error:
            called(function_for([good, row]), THREE, output=schema)
        assert f"output: {expected} has 1 null values" in str(error.value)


def test_times_without_a_zone_are_not_taken_as_utc() -> None:
    """Which instant they mean is not known."""
    from pyspark.sql.types import TimestampType  # noqa: PLC0415

    naive = pa.table({"at": pa.array([0], pa.timestamp("us"))})
    output = StructType().add("at", TimestampType())
    with pytest.raises(ArrowStateError, match=r"column 'at' is of type timestamp\[us\], not"):
        called(lambda rows, state: (naive, state), THREE, output=output)
    paris = pa.table({"at": pa.array([0], pa.timestamp("ms", "Europe/Paris"))})
    rows, _ = called(lambda rows, state: (paris, state), THREE, output=output)
    assert cast("Any", rows[0]["at"]).timestamp() == 0


def test_a_result_that_is_no_pair_of_tables_is_refused() -> None:
    """Also a list of two: a function that yields is another mistake."""
    for made in (None, [None, None], (None,), (1, 2, 3)):
        with pytest.raises(ArrowStateError, match="return a tuple of two tables"):
            called(lambda rows, state, made=made: made, THREE)


def test_the_number_of_parameters_is_checked_when_the_plan_is_made() -> None:
    """A parameter with a default value is the user's own."""
    assert not takes_chunk(lambda rows, state, mine=1: None)
    assert takes_chunk(lambda rows, state, chunk, *, more=2: None)
    for wrong in (lambda: None, lambda rows: None, lambda a, b, c, d: None, lambda *many: None):
        with pytest.raises(ConfigError, match="positional parameters without default"):
            takes_chunk(wrong)


def test_a_session_without_the_extension_is_refused_before_a_plan_is_made() -> None:
    """Else the query would fail in its first batch, with an error of Spark's worker."""
    session = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default))
    grouped: Any = SimpleNamespace(session=session)
    with pytest.raises(ConfigError, match=r"CairnExtensions.*Next: .*cairn.spark_conf\(\)"):
        apply_in_arrow_with_state(grouped, lambda rows, state: None, "n int", "n int", "x", NONE)


def test_sparks_own_operator_fails_with_a_cure() -> None:
    """It runs if the extension is not there; it knows one key at a time."""
    function = ArrowStateFunction(
        lambda rows, state: (None, state),
        takes_chunk=False,
        output=OUTPUT,
        state=STATE,
        timeout=NONE,
    )
    with pytest.raises(ArrowStateError, match=r"create the session with cairn.spark_conf\(\)"):
        function((1,), iter(()), None)


def test_tables_of_other_libraries_are_taken() -> None:
    """Whatever exports an Arrow stream, such as Polars and DuckDB."""

    class Frame:
        def __init__(self, table: pa.Table) -> None:
            self.table = table

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            exported: Any = self.table
            return exported.__arrow_c_stream__(requested_schema)

    def function(rows: pa.Table, state: pa.Table) -> Tables:
        n = pc.add(pc.fill_null(state["n"], 0), 1)
        text = state["t"].cast(pa.string_view())
        after = pa.table({"k": state["k"], "n": n, "t": text})
        return Frame(pa.table({"k": state["k"], "n": n})), Frame(after)

    rows, after = called(function, THREE)
    assert [row["n"] for row in rows] == [2, 1, 1]
    assert after[0] == stored({"n": 2, "t": "a"})
