"""A table as Polars takes it, which lacks two types of Arrow.

Layer: reader.

    calendar interval        -> struct<months: int32, days: int32, nanoseconds: int64>
    decimal(p, s), s below 0 -> decimal(p - s, 0)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from cairn.errors import UnsupportedStateError

_INTERVAL = pa.month_day_nano_interval()
_STORED = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_MAX_PRECISION = 38

types: Any = pa.types


def for_polars(table: pa.Table) -> pa.Table:
    """Return the table with other columns where Polars would end in a panic.

    Raises:
        UnsupportedStateError: such values are nested, or of more digits than Polars has.
    """
    for place, field in enumerate(table.schema):
        if _is_foreign(field.type):
            table = table.set_column(place, field.name, _column(table.column(place), field))
    return table


def _is_foreign(of: Any) -> bool:  # noqa: ANN401 - the stubs have a class per kind
    return bool(of == _INTERVAL or (types.is_decimal(of) and of.scale < 0)) or any(
        _is_foreign(of.field(place).type) for place in range(of.num_fields)
    )


def _column(column: Any, field: pa.Field[Any]) -> Any:  # noqa: ANN401 - as above
    of: Any = field.type
    if of == _INTERVAL:
        return pa.chunked_array([_parts(chunk) for chunk in column.chunks], _struct())
    if types.is_decimal(of) and of.precision - of.scale <= _MAX_PRECISION:
        return column.cast(pa.decimal128(of.precision - of.scale, 0))
    raise UnsupportedStateError(
        f"Polars has no values as those of the column {field.name!r}, of type {of}",
        next_step="use to_table, or leave out the column: polars.from_arrow(state.reader([...]))",
    )


def _parts(intervals: Any) -> pa.Array[Any]:  # noqa: ANN401 - as above
    stored = np.frombuffer(memoryview(intervals.buffers()[1] or b""), _STORED)
    of_rows = stored[intervals.offset : intervals.offset + len(intervals)]
    arrays = [pa.array(np.ascontiguousarray(of_rows[name])) for name in _STORED.names or ()]
    make: Any = pa.StructArray
    result: pa.Array[Any] = make.from_arrays(
        arrays, fields=list(_struct()), mask=intervals.is_null()
    )
    return result


def _struct() -> Any:  # noqa: ANN401 - as above
    return pa.struct([("months", pa.int32()), ("days", pa.int32()), ("nanoseconds", pa.int64())])
