"""The reader's rows against Spark's own classes in the JVM: rows, keys, hashes, Avro.

Spark writes random rows anew, also what is nested in them, with `UnsafeProjection`, with the state
store's encoders, and hashes them with `Murmur3Hash`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.partition_hash import spark_hash
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from harness.spark import driver_jvm, new_session
from harness.spark_rows import LONG, ORDERED, SIMPLE, TYPES, Table, Typed, nested, tables

pytestmark = pytest.mark.usefixtures("all_types")

EXAMPLES = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
FEWER = settings(EXAMPLES, max_examples=60)
BARE = RowForm("unsaferow", is_bare=True, is_list=False)
VERSIONED = RowForm("unsaferow", is_bare=False, is_list=False)
AVRO = RowForm("avro", is_bare=False, is_list=False)
KEY_ID, VALUE_ID = 3, 5
BOOLEAN, STRING = (of for of in SIMPLE if of.json in ("boolean", "string"))


@pytest.fixture(scope="module")
def all_types(driver: None) -> Iterator[None]:  # noqa: ARG001 - the JVM
    """Let Spark have the type TIME, and give times that its older classes cannot hold."""
    conf = driver_jvm().org.apache.spark.sql.internal.SQLConf.get()
    names = ("spark.sql.timeType.enabled", "spark.sql.datetime.java8API.enabled")
    for name in names:
        conf.setConfString(name, "true")
    yield
    for name in names:
        conf.unsetConf(name)


class SparkRows:
    """The rows of a table, as Spark writes them in the JVM."""

    def __init__(self, table: Table) -> None:
        jvm = driver_jvm()
        self.programs = jvm.io.cairn.tests.StateRows
        self.json = json.dumps(table.json)
        self.schema = self.programs.struct(self.json)
        rows = jvm.java.util.ArrayList()
        for row in table.unsafe_rows:
            rows.add(row)
        self.rows = self.programs.write(self.json, rows)

    @property
    def unsafe_rows(self) -> list[bytes]:
        """The bytes of the rows."""
        return list(self.programs.bytes(self.rows))

    def hashes(self) -> list[int]:
        """Return the hash of each row."""
        return list(self.programs.hashes(self.json, self.rows))

    def spec(self, encoder: KeyEncoder) -> Any:  # noqa: ANN401 - Py4J has no types
        """Return Spark's object for a key encoder."""
        jvm = driver_jvm()
        state = jvm.org.apache.spark.sql.execution.streaming.state
        match encoder.kind:
            case "PrefixScan":
                return state.PrefixKeyScanStateEncoderSpec(self.schema, encoder.prefix_columns)
            case "RangeScan":
                ordinals = jvm.java.util.ArrayList()
                for ordinal in encoder.ordinals:
                    ordinals.add(ordinal)
                return self.programs.ordered(self.schema, ordinals)
            case "TsPrefix":
                return state.TimestampAsPrefixKeyStateEncoderSpec(self.schema)
            case "TsPostfix":
                return state.TimestampAsPostfixKeyStateEncoderSpec(self.schema)
        return state.NoPrefixKeyStateEncoderSpec(self.schema)


def stored(
    key: Table, value: Table, encoder: KeyEncoder, encoding: str
) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and values of rows as Spark's RocksDB provider stores them."""
    keys, values = SparkRows(key), SparkRows(value)
    programs, spec = keys.programs, keys.spec(encoder)
    if encoding == "avro":
        data = programs.avro(spec, keys.schema, values.schema, KEY_ID, VALUE_ID)
    else:
        data = programs.unsafeRows(spec, values.schema)
    return list(programs.keys(data, spec, keys.rows)), list(programs.values(data, values.rows))


def check(
    read: RowDecoder, key: Table, value: Table, keys: list[bytes], values: list[bytes]
) -> None:
    """Check that bytes are read as the rows of two tables, and that keys encode to their bytes."""
    binary = [pa.array(rows, pa.large_binary()) for rows in (keys, values)]

    batches = read.decode(StoredRows(*binary))

    for batch, table in zip(batches[:2], (key, value), strict=True):
        batch.validate(full=True)
        for column, expected in zip(batch.columns, table.columns, strict=True):
            assert column.equals(expected), (column.to_pylist(), expected.to_pylist())
    for row, of_row in zip(key.rows, keys, strict=True):
        if not any(map(has_gap, row, key.json["fields"])):
            assert read.encode_key(row) == of_row


def has_gap(value: Any, field: Any) -> bool:  # noqa: ANN401 - any value, Spark's JSON
    """Return whether Spark leaves bytes of earlier rows in the row of a value."""
    of = field["type"]
    if value is None:
        return bool(of == "interval")
    if isinstance(of, str):
        return False
    if of["type"] == "struct":
        return any(has_gap(value[one["name"]], one) for one in of["fields"])
    if of["type"] == "array":
        cells = [(each, of["elementType"]) for each in value]
    else:
        kinds = of["keyType"], of["valueType"]
        cells = [cell for pair in value for cell in zip(pair, kinds, strict=True)]
    return any(cell is not None and has_gap(cell, {"type": kind}) for cell, kind in cells)


@given(tables(min_rows=1))
@EXAMPLES
def test_rows_that_spark_wrote(table: Table) -> None:
    """The state of every operator is such rows."""
    rows = SparkRows(table).unsafe_rows
    schema = FamilySchema("default", table.json, table.json, KeyEncoder("NoPrefix"))

    check(RowDecoder(schema, BARE), table, table, rows, rows)


LITERALS: list[tuple[str, Any]] = [
    ("NULL", None),
    ("true", True),
    ("-5Y", -5),
    ("-300S", -300),
    ("-70000", -70_000),
    ("-5000000000L", -5_000_000_000),
    ("1.5F", 1.5),
    ("-2.5D", -2.5),
    ("12.340BD", Decimal("12.340")),
    ("-1234567890123456789.01BD", Decimal("-1234567890123456789.01")),
    ("'Grüße'", "Grüße"),
    ("X'00ff'", b"\x00\xff"),
    ("DATE'2024-02-29'", date(2024, 2, 29)),
    ("DATE'1582-10-01'", date(1582, 10, 1)),
    (
        "TIMESTAMP'1969-12-31 23:59:59.999999'",
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
    ("TIMESTAMP_NTZ'2024-02-29 12:00:00'", datetime(2024, 2, 29, 12)),  # noqa: DTZ001 - has none
    ("INTERVAL '-1 02:03:04.5' DAY TO SECOND", -timedelta(1, 7384, 500_000)),
    ("INTERVAL '5' HOUR", timedelta(hours=5)),
    ("INTERVAL '-2-3' YEAR TO MONTH", -27),
    ("make_interval(1, 2, 0, 3, 0, 0, -0.5)", (14, 3, -500_000_000)),
    ("array(1, NULL, 3)", [1, None, 3]),
    ("map('a', array(DATE'1970-01-02'), 'b', NULL)", [("a", [date(1970, 1, 2)]), ("b", None)]),
    ("named_struct('x', 1S, 'y', named_struct('z', 'deep'))", {"x": 1, "y": {"z": "deep"}}),
]


def test_literals_of_each_type() -> None:
    """A date that is read as a number of another unit would look as good."""
    texts = ", ".join(f"{text} AS c{index}" for index, (text, _) in enumerate(LITERALS))
    frame: Any = new_session({"spark.sql.session.timeZone": "UTC"}).sql(f"SELECT {texts}")
    (row,) = frame._jdf.queryExecution().executedPlan().executeCollect()  # noqa: SLF001
    schema = json.loads(frame._jdf.schema().json())  # noqa: SLF001 - there is no public way
    family = FamilySchema("default", {}, schema, KeyEncoder("NoPrefix"))
    rows = StoredRows(*(pa.array([data], pa.large_binary()) for data in (b"", row.getBytes())))

    _, values, _ = RowDecoder(family, BARE).decode(rows)

    for column, (text, expected) in zip(values.columns, LITERALS, strict=True):
        assert column.to_pylist() == [expected], text


@given(tables(types=TYPES.filter(lambda of: "variant" not in str(of.json)), min_columns=1))
@EXAMPLES
def test_hashes_of_spark(table: Table) -> None:
    """The hash says in which partition a key is; Spark hashes no variants."""
    found = spark_hash(table.columns).view("int32")

    assert found.tolist() == SparkRows(table).hashes()


@st.composite
def keys_of(
    draw: st.DrawFn, types: st.SearchStrategy[Typed], ordered: list[Typed]
) -> tuple[Table, KeyEncoder]:
    """Draw keys and an encoder for them."""
    table = draw(tables(types=types, min_columns=2, max_columns=4, min_rows=1))
    kind = draw(st.sampled_from(["NoPrefix", "PrefixScan", "RangeScan", "TsPrefix", "TsPostfix"]))
    match kind:
        case "PrefixScan":
            prefix = draw(st.integers(1, len(table.types) - 1))
            return table, KeyEncoder(kind, prefix_columns=prefix)
        case "RangeScan":
            first = draw(st.lists(st.sampled_from(ordered), min_size=1, max_size=3))
            values = st.tuples(*(of.values for of in first))
            rows = [[*draw(values), *row] for row in table.rows]
            every = draw(st.permutations(range(len(first))))
            return Table([*first, *table.types], rows), KeyEncoder(kind, ordinals=tuple(every))
        case "TsPrefix" | "TsPostfix":
            times = LONG.values.filter(lambda time: time is not None)
            rows = [[*row, draw(times)] for row in table.rows]
            return Table([*table.types, LONG], rows), KeyEncoder(kind)
    return table, KeyEncoder(kind)


@given(keys_of(TYPES, ORDERED))
@FEWER
def test_keys_of_each_layout(drawn: tuple[Table, KeyEncoder]) -> None:
    """Sessions, maps, timers, expiries and joins have keys of their own layouts."""
    key, encoder = drawn
    schema = FamilySchema("default", key.json, key.json, encoder)

    keys, values = stored(key, key, encoder, "unsaferow")

    check(RowDecoder(schema, VERSIONED), key, key, keys, values)


# Spark writes no others in Avro; bytes and shorts it could write, but not read.
NOT_IN_AVRO = ("byte", "short", "interval", "variant", "time(6)")
IN_AVRO = [of for of in SIMPLE if of.json not in NOT_IN_AVRO and not of.json.startswith("interval")]


ORDERED_IN_AVRO = [BOOLEAN, *(of for of in IN_AVRO if of in ORDERED)]
# Spark fails to write an array or a map with a null, unless it is of structs, arrays or maps.
TYPES_IN_AVRO = nested(IN_AVRO, [STRING], has_null_elements=False)


@given(keys_of(TYPES_IN_AVRO, ORDERED_IN_AVRO))
@FEWER
def test_rows_in_avro(drawn: tuple[Table, KeyEncoder]) -> None:
    """The state of transformWithState may be in Avro."""
    key, encoder = drawn
    schema = FamilySchema("default", key.json, key.json, encoder, KEY_ID, VALUE_ID)

    keys, values = stored(key, key, encoder, "avro")

    check(RowDecoder(schema, AVRO), key, key, keys, values)
