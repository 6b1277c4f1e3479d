"""The groups of `transformWithState`: rows of PySpark, as Spark's own worker makes them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import Row, StructType

from cairn.transform.client import FrameClient
from cairn.transform.facts import Facts

# Rows of a batch that goes to the JVM: enough that a batch costs less than its rows.
_OUTPUT_ROWS = 500
_SCALARS = frozenset((int, float, bool, str, bytes, datetime, date, Decimal, type(None)))


class RowLoop:
    """Makes rows of batches, and batches of rows."""

    def __init__(self, facts: Facts, return_type: StructType) -> None:
        self._facts = facts
        # As Spark's worker: times in UTC.
        arrow_type = to_arrow_type(return_type, timezone="UTC", prefers_large_types=False)
        self._schema = pa.schema(list(arrow_type))  # type: ignore[call-overload]

    def groups(
        self, batches: Iterable[pa.RecordBatch], client: FrameClient
    ) -> Iterator[tuple[tuple[Any, ...], Iterator[Row]]]:
        """Return each key with its rows; tell the client the keys of each batch."""
        pairs = self._pairs(batches, client)
        for key, group in itertools.groupby(pairs, key=itemgetter(0)):
            yield key, map(itemgetter(1), group)

    def _pairs(
        self, batches: Iterable[pa.RecordBatch], client: FrameClient
    ) -> Iterator[tuple[tuple[Any, ...], Row]]:
        for batch in batches:
            columns = [_to_pylist(column) for column in batch.columns]
            keys = list(zip(*(columns[offset] for offset in self._facts.key_offsets), strict=True))
            client.set_chunk([key for key, _ in itertools.groupby(keys)])
            make = partial(_row, Row(*batch.schema.names))
            yield from zip(keys, map(make, zip(*columns, strict=True)), strict=True)

    def groups_with_initial(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[tuple[Any, ...], Iterator[Row], Iterator[Row]]]:
        """Return each key with its rows and its rows of the initial state, not all at once."""
        triples = self._triples(batches)
        for key, group in itertools.groupby(triples, key=itemgetter(0)):
            rows: list[Row] = []
            initial: list[Row] = []
            for _, row, is_initial in group:
                (initial if is_initial else rows).append(row)
                if len(rows) + len(initial) >= self._facts.max_records:
                    yield key, iter(rows), iter(initial)
                    rows, initial = [], []
            if rows or initial:
                yield key, iter(rows), iter(initial)

    def _triples(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[tuple[Any, ...], Row, bool]]:
        for struct, offsets, is_initial in self._facts.structs(batches):
            columns = [_to_pylist(column) for column in struct.columns]
            make = partial(_row, Row(*struct.schema.names))
            for values in zip(*columns, strict=True):
                yield tuple(values[offset] for offset in offsets), make(values), is_initial

    def results(self, of_key: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """Return the results of a key, each before the processor goes on: it may change them."""
        return map(_as_dict, of_key)

    def batches(self, results: Iterator[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        """Return batches of results of many keys."""
        while rows := list(itertools.islice(results, _OUTPUT_ROWS)):
            yield pa.RecordBatch.from_pylist(rows, schema=self._schema)


def _row(names: Row, values: tuple[Any, ...]) -> Row:
    # As `names(*values)`, in half of the time.
    row = tuple.__new__(Row, values)
    row.__dict__["__fields__"] = names
    return row


def _as_dict(row: Row) -> dict[str, Any]:
    if type(row) is Row and _SCALARS.issuperset(map(type, row)) and hasattr(row, "__fields__"):
        return dict(zip(row.__fields__, row, strict=False))
    return row.asDict(recursive=True)


def _to_pylist(column: pa.Array[Any]) -> list[Any]:
    """Return `column.to_pylist()`, times in a fifth of the time."""
    if pa.types.is_timestamp(column.type) and column.type.tz and column.type.unit == "us":
        zone = pa.lib.string_to_tzinfo(column.type.tz)
        times = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        try:
            return [time and zone.fromutc(time.replace(tzinfo=zone)) for time in times]
        except AttributeError:  # a number: the year is not one of Python's
            pass
    return column.to_pylist()
