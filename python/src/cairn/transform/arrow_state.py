"""The function that Spark's Python worker runs for `apply_in_arrow_with_state`.

Spark runs it as a function of `mapInArrow`. A batch that comes is a chunk: the rows of its keys,
and in the first row of each key its state. Batches that leave have rows of output beside the state
of the keys, in the order in which these came. Spec: docs/adr/0049-whole-batches-of-keys.md.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.types import StructType
from pyspark.worker_util import read_command

from cairn.errors import ArrowStateError
from cairn.transform.arrow_types import (
    Column,
    arrow_type,
    as_table,
    columns_of,
    fitted,
    refuse_nulls,
)
from cairn.transform.chunk import Chunk
from cairn.transform.state_table import StateTables

_Batches = Iterator[pa.RecordBatch]
# The JVM finds the operators that it replaces by the name of their function.
PREFIX = "cairn.apply_in_arrow_with_state("


class ArrowStateFunction:
    """The user's function with what the worker must know of it: Spark pickles this.

    Args:
        func: the user's function.
        takes_chunk: whether it has a third parameter.
        output: schema of its rows.
        state: schema of the state of a key.
        timeout: one of Spark's three.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        takes_chunk: bool,
        output: StructType,
        state: StructType,
        timeout: str,
    ) -> None:
        self._func = func
        self._takes_chunk = takes_chunk
        self._output = output
        self._state = state
        self._timeout = timeout
        for schema in (output, state):
            arrow_type(schema)  # fails here for a type that Arrow has not
        # Spark gives it to the operator.
        self.__name__ = f"{PREFIX}{getattr(func, '__name__', type(func).__name__)})"

    def __call__(self, *_: object) -> None:
        """Fail: Spark calls it only if its operator runs, which knows one key at a time."""
        raise ArrowStateError(
            f"{self.__name__}: Cairn's operator is not in the plan of this query",
            next_step="create the session with cairn.spark_conf(), on Spark 4.3, without "
            "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion=1; the log of the "
            "driver may have a warning of PhysicalRule",
        )

    def results(self, batches: _Batches, facts: dict[str, Any]) -> _Batches:
        """Call the user's function for each chunk; return its rows and the state to store.

        Args:
            batches: each a chunk, with the columns `rows` and `state`.
            facts: `has_timed_out`, `processing_time_ms`, `watermark_ms` or null, and `max_records`,
                the bound of the rows of a batch.
        """
        tables = StateTables(self._state, self._timeout)
        has_timed_out, size = facts["has_timed_out"], facts["max_records"]
        for batch in batches:
            rows, sent = cast("list[Column]", batch.columns)
            is_first = sent.is_valid()
            state = tables.table(sent.filter(is_first))
            key_of_row = np.cumsum(is_first.to_numpy(zero_copy_only=False), dtype=np.int32) - 1
            chunk = Chunk(
                has_timed_out=has_timed_out,
                processing_time_ms=facts["processing_time_ms"],
                watermark_ms=facts["watermark_ms"],
                key_of_row=pa.array(key_of_row[:0] if has_timed_out else key_of_row, pa.int32()),
            )
            if has_timed_out:
                rows = rows.slice(0, 0)
            table = pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])
            made = self._func(table, state, *([chunk] if self._takes_chunk else []))
            try:
                output, new_state = self._pair(made)
                stored = tables.stored(new_state, state, chunk)
                parts = self._output_structs(output, size)
            except ArrowStateError as error:
                error.message = f"{self.__name__}: {error.message}"
                raise
            states = [stored.slice(begin, size) for begin in range(0, len(stored), size)]
            yield from _side_by_side(parts, states, (self._output_type, stored.type))

    def _pair(self, made: Any) -> tuple[Any, Any]:  # noqa: ANN401
        if isinstance(made, tuple) and len(made) == 2:  # noqa: PLR2004 - output and state
            return made
        raise ArrowStateError(
            f"the function returned an object of type {type(made).__name__}",
            next_step="return a tuple of two tables: the output, or None, and new_state",
        )

    def _output_structs(self, output: Any, max_records: int) -> list[Column]:  # noqa: ANN401
        if output is None:
            return []
        table = as_table(output, "output")
        columns_of(table, self._output.names, [], "output")
        columns = []
        for field, of in zip(self._output.fields, self._output_type, strict=True):
            what = f"output: column {field.name!r}"
            column = fitted(table.column(field.name), of.type, what)
            refuse_nulls(column, field, what)
            columns.append(column)
        made = pa.table(columns, schema=pa.schema(list(self._output_type))).combine_chunks()
        return [part.to_struct_array() for part in made.to_batches(max_chunksize=max_records)]

    @functools.cached_property
    def _output_type(self) -> pa.StructType:
        return arrow_type(self._output)


def _side_by_side(
    output: list[Column], states: list[Column], types: tuple[pa.DataType, ...]
) -> _Batches:
    """Return batches with a part of each; the shorter part ends with nulls."""
    for parts in itertools.zip_longest(output, states):
        length = max(len(part) for part in parts if part is not None)
        columns = [_padded(part, length, of) for part, of in zip(parts, types, strict=True)]
        yield pa.record_batch(columns, names=["output", "state"])


def _padded(part: Column | None, length: int, of: pa.DataType) -> Column:
    if part is None:
        return pa.nulls(length, cast("Any", of))
    if len(part) == length:
        return part
    return pa.concat_arrays([part, pa.nulls(length - len(part), cast("Any", of))])


def load(function: bytes, facts: bytes) -> tuple[Callable[[_Batches], _Batches], StructType]:
    """Return the function for the worker, and the type of its rows; the shim's pickle calls it.

    Args:
        function: the pickle of an `ArrowStateFunction`, as Spark's operator has it.
        facts: JSON; see `ArrowStateFunction.results`.
    """
    users, return_type = read_command(CPickleSerializer(), function)
    known = json.loads(facts)

    def run(batches: _Batches) -> _Batches:
        made: _Batches = users.results(batches, known)
        return made

    return run, return_type
