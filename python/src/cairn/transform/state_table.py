"""The state of a chunk's keys as a table, and the way back: what `new_state` may be.

Spec: docs/arrow.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from cairn.errors import ArrowStateError
from cairn.transform.arrow_types import (
    Column,
    arrow_type,
    as_table,
    columns_of,
    fitted,
    pc,
    refuse_nulls,
)

if TYPE_CHECKING:
    from cairn.transform.chunk import Chunk

EXISTS = "exists"
TIMEOUT = "timeout_ms"
OWN_COLUMNS = (EXISTS, TIMEOUT)
_WHAT = "new_state"
_Numbers = Any  # an array of numpy


class StateTables:
    """Makes the table `state` of what the JVM sends, and of the table `new_state` what it stores.

    Args:
        schema: the state of a key.
        timeout: one of Spark's three; without timeouts the tables have no column for them.
    """

    def __init__(self, schema: StructType, timeout: str) -> None:
        self._fields = schema.fields
        self._type = arrow_type(schema)
        self._timeout = timeout
        self._has_timeout = timeout != GroupStateTimeout.NoTimeout

    def table(self, sent: Column) -> pa.Table:
        """Return `state`: one row per key, in the order of the JVM.

        Args:
            sent: structs of the key, the value or null, and the timeout or null.
        """
        key, value, timeout = sent.flatten()
        columns = [*key.flatten(), *value.flatten(), value.is_valid()]
        names = [*(field.name for field in (*key.type, *value.type)), EXISTS]
        if self._has_timeout:
            columns.append(timeout)
            names.append(TIMEOUT)
        return pa.table(columns, names=names)

    def stored(self, made: Any, state: pa.Table, chunk: Chunk) -> pa.StructArray:  # noqa: ANN401
        """Return what the JVM stores: one struct per row of `state`, in that order.

        Args:
            made: `new_state`, as the user's function returned it.
            state: what `table` gave to the function.
            chunk: the times of the batch.

        Raises:
            ArrowStateError: `new_state` breaks the contract; nothing of the chunk is stored.
        """
        table = as_table(made, _WHAT)
        fields = [field.name for field in self._fields]
        keys = state.column_names[: -len(fields) - (2 if self._has_timeout else 1)]
        timeouts = [TIMEOUT] if self._has_timeout else []
        columns_of(table, [*keys, *fields, *timeouts], [EXISTS], _WHAT)
        places = _places(table, state, keys)
        if places is not None:
            table = table.take(places)
        exists = self._exists(table)
        values = []
        for field, of in zip(self._fields, self._type, strict=True):
            what = f"{_WHAT}: column {field.name!r}"
            column = _one(fitted(table.column(field.name), of.type, what))
            _refuse_values_of_nothing(column, exists, what)
            refuse_nulls(column.filter(exists), field, what)
            values.append(column)
        value = pa.StructArray.from_arrays(values, fields=list(self._type), mask=pc.invert(exists))
        timeout = (
            self._timeouts(table, state, chunk)
            if self._has_timeout
            else pa.nulls(len(value), pa.int64())
        )
        return pa.StructArray.from_arrays([value, timeout], names=["value", "timeout"])

    def _exists(self, table: pa.Table) -> Column:
        if EXISTS not in table.column_names:
            return pa.repeat(True, table.num_rows)  # noqa: FBT003 - pyarrow's value
        what = f"{_WHAT}: column {EXISTS!r}"
        exists = _one(fitted(table.column(EXISTS), pa.bool_(), what))
        if exists.null_count:
            raise ArrowStateError(
                f"{what} has {exists.null_count} null values",
                next_step="make it true where the row is stored, false where the key has no state",
            )
        return exists

    def _timeouts(self, table: pa.Table, state: pa.Table, chunk: Chunk) -> Column:
        what = f"{_WHAT}: column {TIMEOUT!r}"
        timeouts = _one(fitted(table.column(TIMEOUT), pa.int64(), what))
        if self._timeout == GroupStateTimeout.ProcessingTimeTimeout:
            least, of = chunk.processing_time_ms + 1, "later than the time of the batch"
        else:
            least, of = max(chunk.watermark_ms or 0, 1), "not before the watermark, and positive"
        is_wrong = pc.less(timeouts, least)
        if not chunk.has_timed_out:
            before = state.column(TIMEOUT).combine_chunks()
            is_kept = pc.fill_null(pc.equal(timeouts, before), False)  # noqa: FBT003
            is_wrong = pc.and_(is_wrong, pc.invert(is_kept))
        wrong = timeouts.filter(is_wrong)
        if len(wrong):
            raise ArrowStateError(
                f"{what} has {len(wrong)} times that have passed, such as {wrong[0]}",
                next_step=f"a timeout must be {of}: {least} or more; null means none",
            )
        return timeouts


def _one(column: Column) -> Column:
    """Return the column of a chunk's keys as one array."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        raise ArrowStateError(
            f"{_WHAT} has a column of more than 2 GiB",
            next_step="lower spark.sql.execution.arrow.maxRecordsPerBatch",
        )
    return array


def _refuse_values_of_nothing(column: Column, exists: Column, what: str) -> None:
    lost = pc.sum(pc.and_(column.is_valid(), pc.invert(exists))).as_py()
    if lost:
        raise ArrowStateError(
            f"{what} has {lost} values in rows whose {EXISTS!r} is false",
            next_step=f"set {EXISTS!r} to true, or leave the column out, to store these rows; set "
            "all values of a row to null to remove the state of its key",
        )


def _places(table: pa.Table, state: pa.Table, keys: list[str]) -> _Numbers | None:
    """Return for each row of `state` the place of its key in the table; None if they are equal.

    Raises:
        ArrowStateError: the table has not exactly one row per key.
    """
    columns = [
        fitted(table.column(name), state.column(name).type, f"{_WHAT}: key {name!r}")
        for name in keys
    ]
    if table.num_rows == state.num_rows and all(
        column.equals(state.column(name)) for name, column in zip(keys, columns, strict=True)
    ):
        return None
    wanted, given = _numbered(
        [(state.column(name), column) for name, column in zip(keys, columns, strict=True)],
        state.num_rows,
        table.num_rows,
    )
    order: _Numbers = np.argsort(given, kind="stable")
    given = given[order]
    places: _Numbers = np.searchsorted(given, wanted)
    is_there: _Numbers = np.zeros(len(wanted), dtype=bool)
    is_inside = places < len(given)
    is_there[is_inside] = given[places[is_inside]] == wanted[is_inside]
    repeated: _Numbers = order[1:][given[1:] == given[:-1]]
    unknown = order[~np.isin(given, wanted)]
    for how, found, source in (
        ("has keys that are not in the chunk", unknown, table),
        ("has more than one row for a key", repeated, table),
        ("lacks keys of the chunk", np.flatnonzero(~is_there), state),
    ):
        if len(found):
            values = (source.column(name)[int(found[0])].as_py() for name in keys)
            pairs = zip(keys, values, strict=True)
            text = ", ".join(f"{name}={value!r}" for name, value in pairs)
            raise ArrowStateError(
                f"{_WHAT} {how}: {len(found)}, such as {text}",
                next_step="return one row per row of state; a row may be returned as it is",
            )
    return order[places]


def _numbered(
    columns: list[tuple[Column, Column]], wanted: int, given: int
) -> tuple[_Numbers, _Numbers]:
    """Number the different keys of both tables: equal keys have equal numbers."""
    numbers = np.zeros(wanted + given, dtype=np.int64)
    for of_state, made in columns:
        both = pa.chunked_array([*of_state.chunks, *made.chunks], of_state.type)
        codes = _codes(both)
        numbers = numbers * (int(codes.max(initial=0)) + 1) + codes
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    return numbers[:wanted], numbers[wanted:]


def _codes(column: Column) -> _Numbers:
    if pt.is_nested(column.type):
        seen: dict[Any, int] = {}
        frozen = (_frozen(value) for value in column.to_pylist())
        return np.array([seen.setdefault(value, len(seen)) for value in frozen], dtype=np.int64)
    array: Column = column.combine_chunks()
    if pt.is_floating(column.type):
        array = pc.add(array, pa.scalar(0.0, column.type))  # -0.0 is the key 0.0
    codes: _Numbers = array.dictionary_encode(null_encoding="encode").indices.to_numpy()
    return codes.astype(np.int64)


def _frozen(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return tuple(map(_frozen, value.values()))
    if isinstance(value, list):
        return ("list", *map(_frozen, value))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # noqa: PLR0124
    return value
