"""The rows of a state through Spark's `statestore` source and through Cairn's reader, as cells.

Both become rows of plain values, so that they can be compared cell by cell. The source shows what
an operator stores; the reader shows the columns of the program. `_cells` says which those are, by
the names that Spark gives to what it adds.

Of `transformWithState`, the source does not show the families that the operator has for itself. An
option that Spark has for its own repartitioning gives the bytes of all families: `rows_of_families`
decodes them. It compares what a store has and how a key is laid out, but not how a row is decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, LongType, NullType, StructType

from cairn.reader.families import Family
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import StoredRows

EXPIRES_AT = "expires_at"
PARTITION = "partition"
DEFAULT = "default"
TIMERS = ("$eventTimers_keyToTimestamp", "$procTimers_keyToTimestamp")
_ALL_FAMILIES = {"_readAllColumnFamilies": "true"}
_EXPIRY = {"ttlExpirationMs", "timeoutTimestamp", "expiresAtMicros", "expiration_timestamp_ms"}
_PLACEHOLDERS = {"__dummy__", "__empty__"}
_KEYS = {"key", "user_map_key", "expiration_timestamp_ms"}
_SHOWN_ROWS = 4


@dataclass(frozen=True)
class Rows:
    """The rows of a state.

    Attributes:
        types: Arrow's types of the columns by their names; of a time of expiry none.
        keys: the columns of the key.
        rows: each a tuple of plain values; a time of expiry is a number.
    """

    types: dict[str, str]
    keys: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def without(self, *names: str) -> Rows:
        """Return the rows without some columns."""
        kept = [place for place, name in enumerate(self.types) if name not in names]
        return Rows(
            {name: kind for name, kind in self.types.items() if name not in names},
            tuple(name for name in self.keys if name not in names),
            [tuple(row[place] for place in kept) for row in self.rows],
        )

    def only(self, names: Iterable[str]) -> list[tuple[Any, ...]]:
        """Return some columns of the rows, in the order of the names."""
        places = [list(self.types).index(name) for name in names]
        return [tuple(row[place] for place in places) for row in self.rows]

    def difference(self, other: Rows) -> str:
        """Say how the rows differ from those of Spark; nothing if they are the same."""
        if list(self.types.items()) != list(other.types.items()):
            return f"the columns are {self.types}, and Spark's {other.types}"
        mine, others = (Counter(map(repr, rows.rows)) for rows in (self, other))
        more, less = (list(one.elements()) for one in (mine - others, others - mine))
        if not more and not less:
            return ""
        return (
            f"of {len(self.rows)} rows Spark has {len(more)} not: {more[:_SHOWN_ROWS]}; "
            f"of Spark's {len(other.rows)} rows {len(less)} are missing: {less[:_SHOWN_ROWS]}; "
            f"the columns are {list(self.types)}"
        )


def source_options(family: Family) -> dict[str, str] | None:
    """Return how Spark's source shows a family of the reader; `None`: it does not."""
    operator = {"operatorId": str(family.operator.id)}
    if family.family in TIMERS:
        return {**operator, "readRegisteredTimers": "true"}
    if family.operator.variables:
        return None if family.is_internal else {**operator, "stateVarName": family.family}
    name = family.store.name if family.family == DEFAULT else family.family
    return operator if name == DEFAULT else {**operator, "storeName": name}


def rows_of_source(
    spark: SparkSession, location: str, options: Mapping[str, str], batch: int
) -> Rows:
    """Read a state through Spark's source."""
    reader = spark.read.format("statestore").options(**options).option("batchId", str(batch))
    return rows_of_frame(reader.load(location))


def rows_of_frame(frame: DataFrame) -> Rows:
    """Return the rows of a frame of Spark's source."""
    cells = list(_cells(frame.schema))
    names = _unique([cell.name for cell in cells])
    types = {name: _type_of(cell) for name, cell in zip(names, cells, strict=True)}
    keys = tuple(name for name, cell in zip(names, cells, strict=True) if cell.is_key)
    rows = [
        (*(_value(row, cell) for cell in cells), row["partition_id"]) for row in frame.collect()
    ]
    return Rows({**types, PARTITION: "int32"}, keys, rows)


def changes_of_source(
    spark: SparkSession, location: str, options: Mapping[str, str], last: int
) -> Rows:
    """Read the change feed of all batches up to one; see `left_by_batches`."""
    feed = {"readChangeFeed": "true", "changeStartBatchId": "0", "changeEndBatchId": str(last)}
    frame = spark.read.format("statestore").options(**options, **feed).load(location)
    cells = list(_cells(frame.schema))
    writes = []
    for row in frame.collect():
        key, value = (
            tuple(_value(row, cell) for cell in cells if cell.is_key == is_key)
            for is_key in (True, False)
        )
        writes.append((row["batch_id"], row["change_type"], (*key, row["partition_id"]), value))
    return left_by_batches(writes)


def changes_of_reader(table: pa.Table, keys: Iterable[str]) -> Rows:
    """Return the change feed of the reader; see `left_by_batches`."""
    rows = rows_of_reader(table)
    names = (*keys, PARTITION)
    others = [name for name in rows.types if name not in (*names, "batch", "change")]
    writes: list[Write] = []
    before = None
    for at, of_key, value in zip(
        rows.only(("batch", "change")), rows.only(names), rows.only(others), strict=True
    ):
        # The rows of a key are those of one list.
        change = "append" if (*at, of_key) == before else at[1]
        before = (*at, of_key)
        writes.append((at[0], change, of_key, value))
    return left_by_batches(writes)


Write = tuple[int, str, tuple[Any, ...], tuple[Any, ...]]
"""Batch, kind of change, key, and value."""


def left_by_batches(writes: Iterable[Write]) -> Rows:
    """Return what each batch leaves at each key that it has written.

    A feed of Spark's has every write. One of Cairn's has one per key, and none if a batch has both
    added and removed the key. A value is a list of one.
    """
    left: dict[str, list[Any]] = {}
    by_batch: dict[int, list[Write]] = {}
    for write in writes:
        by_batch.setdefault(write[0], []).append(write)
    rows: list[tuple[Any, ...]] = []
    for batch, of_batch in sorted(by_batch.items()):
        before = {repr(key): left.get(repr(key), []) for _, _, key, _ in of_batch}
        for _, change, key, value in of_batch:
            old = left.get(repr(key), []) if change == "append" else []
            left[repr(key)] = old if change == "delete" else [*old, value]
        rows += [(batch, key, left[key]) for key in before if before[key] + left[key]]
    return Rows({"batch": "", "key": "", "left": ""}, ("batch", "key"), rows)


def rows_of_families(
    spark: SparkSession, location: str, families: Iterable[Family], batch: int
) -> dict[str, Rows]:
    """Read the families of one store of Spark's RocksDB provider, by name; without partitions."""
    by_name = {family.family: family for family in families}
    operator = {"operatorId": str(next(iter(by_name.values())).operator.id)}
    reader = spark.read.format("statestore").options(**_ALL_FAMILIES, **operator)
    frame = reader.option("batchId", str(batch)).load(location)
    stored: dict[str, list[Row]] = {name: [] for name in by_name}
    for row in frame.select("column_family_name", "key_bytes", "value_bytes").collect():
        stored[row[0]].append(row)
    return {name: _decoded(by_name[name], rows) for name, rows in stored.items()}


def _decoded(family: Family, rows: Iterable[Row]) -> Rows:
    keys, values = ([bytes(row[place]) for row in rows] for place in (1, 2))
    bare = replace(family.form, is_bare=True, is_list=False, encoding="unsaferow")
    assert family.schema is not None
    binary = pa.large_binary()
    decoded = RowDecoder(family.schema, bare).decode(
        StoredRows(pa.array(keys, binary), pa.array(values, binary))
    )
    columns = {
        column.name: column.of(decoded[0] if column.is_key else decoded[1])
        for column in family.columns
    }
    return rows_of_reader(pa.table(columns))


def rows_of_reader(table: pa.Table, keys: Iterable[str] = ()) -> Rows:
    """Return the rows of a table of the reader."""
    types, columns = {}, []
    for field, column in zip(table.schema, table.columns, strict=True):
        is_expiry = field.name == EXPIRES_AT
        types[field.name] = "" if is_expiry else _text(field.type)
        columns.append((column.cast(pa.int64()) if is_expiry else column).to_pylist())
    rows = [tuple(map(_plain, row)) for row in zip(*columns, strict=True)]
    return Rows(types, tuple(keys), rows)


@dataclass(frozen=True)
class _Cell:
    name: str
    path: tuple[int, ...]
    type: DataType
    is_key: bool


def _cells(schema: StructType) -> Iterator[_Cell]:
    """Yield the columns of the program among those of the source."""
    for place, column in enumerate(schema.fields):
        is_key = column.name in _KEYS
        match column.name:
            case "partition_id" | "batch_id" | "change_type":
                continue
            case "expiration_timestamp_ms":
                yield _Cell(EXPIRES_AT, (place,), column.dataType, is_key)
            case _:
                assert isinstance(column.dataType, StructType)
                yield from _fields(column.dataType, (place,), is_key=is_key)


def _fields(of: StructType, path: tuple[int, ...], *, is_key: bool) -> Iterator[_Cell]:
    has_ttl = of.names == ["value", "ttlExpirationMs"]
    for place, field in enumerate(of.fields):
        kind, here = field.dataType, (*path, place)
        is_wrapped = field.name == "groupState" or (has_ttl and field.name == "value")
        if field.name in _EXPIRY:
            yield _Cell(EXPIRES_AT, here, LongType(), is_key)
        elif is_wrapped and isinstance(kind, StructType):
            for number, part in enumerate(kind.fields):
                yield _Cell(part.name, (*here, number), part.dataType, is_key)
        elif not (field.name in _PLACEHOLDERS and isinstance(kind, NullType)):
            yield _Cell(field.name, here, kind, is_key)


def _unique(names: list[str]) -> list[str]:
    result: list[str] = []
    for name in names:
        number = 1
        candidate = name
        while candidate in (*result, PARTITION):
            number += 1
            candidate = f"{name}_{number}"
        result.append(candidate)
    return result


def _value(row: Row, cell: _Cell) -> Any:  # noqa: ANN401 - a cell
    value: Any = row
    for place in cell.path:
        value = None if value is None else value[place]
    # A row without a time of expiry has one before 1970.
    has_none = cell.name == EXPIRES_AT and value is not None and value < 0
    return None if has_none else _plain(value)


def _type_of(cell: _Cell) -> str:
    return "" if cell.name == EXPIRES_AT else _text(to_arrow_type(cell.type, timezone="UTC"))


def _text(of: pa.DataType) -> str:
    """Return a type's name; of texts, bytes and lists regardless of the width of their offsets."""
    return str(of).replace("large_", "").replace(" not null", "")


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a value in a form that it has in both readers; maps are sorted."""
    match value:
        case Row() | tuple():
            return tuple(map(_plain, value))
        case dict():
            # Spark's map, or Arrow's struct.
            return tuple(map(_plain, value.values()))
        case list():
            return tuple(map(_plain, value))
        case bytearray():
            return bytes(value)
        case datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(UTC).replace(tzinfo=None)
    return value
