"""Columns of Arrow -> the bytes of rows, whole columns at once.

Layer: offline.exchange.  Shapes: ``cairn.reader.rows.unsafe_row`` and ``row_writer``.

Arrays, maps, variants, calendar intervals, decimals of over 18 digits, rows in Avro and keys of
rare encoders are written one value at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.offline.move.forms import with_version
from cairn.offline.move.row_checksums import joined, lengths, numbers
from cairn.offline.move.unsafe_rows import Cells, put_together
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.row_writer import value_bytes
from cairn.reader.rows.types import (
    Boolean,
    Bytes,
    CalendarInterval,
    Decimal,
    Fixed,
    Struct,
    Type,
    Void,
    struct_of,
)
from cairn.reader.stores.columns import cells as bytes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cairn.reader.rows.spans import Flags
    from cairn.reader.rows.stored import RowForm
    from cairn.reader.rows.types import Field
    from cairn.reader.spark.schema_files import FamilySchema

    Column = Any  # an array; the stubs lack the methods of some kinds

_WORD = 8
_LARGE_BYTES = 16
_PADDING = pa.array([bytes(count) for count in range(_LARGE_BYTES + 1)], pa.large_binary())
_BINARY = pa.large_binary()


class RowEncoder:
    """Encodes the rows of one column family: the reverse of ``RowDecoder``.

    Args:
        schema: of the family.
        form: how its rows become bytes.

    Raises:
        CorruptError, UnsupportedStateError: as of ``RowDecoder``.
    """

    def __init__(self, schema: FamilySchema, form: RowForm) -> None:
        self._decoder = RowDecoder(schema, form)
        self._key = struct_of(schema.key).fields
        self._value = struct_of(schema.value).fields
        self._prefix = schema.encoder.prefix_columns
        is_plain = form.encoding == "unsaferow" and not form.is_bare
        self._is_whole = is_plain
        self._has_whole_keys = is_plain and schema.encoder.kind in ("NoPrefix", "PrefixScan")

    def keys(self, columns: Sequence[Column], count: int) -> Column:
        """Return the stored keys.

        Args:
            columns: one per field of the key.
            count: of the rows.

        Raises:
            UnsupportedStateError: Spark has no such key.
        """
        if not self._has_whole_keys:
            rows = [
                self._decoder.encode_key_row([column.slice(row, 1) for column in columns])
                for row in range(count)
            ]
            return pa.array(rows, _BINARY)
        if not self._prefix:
            return with_version(unsafe_rows(columns, self._key, count))
        first, rest = (
            with_version(unsafe_rows(columns[part], self._key[part], count))
            for part in (slice(self._prefix), slice(self._prefix, None))
        )
        return joined(numbers(lengths(first), "<i4"), first, rest)

    def values(self, columns: Sequence[Column], count: int) -> Column:
        """Return the stored values; of a list those of its elements.

        Args:
            columns: one per field of the value.
            count: of the rows.
        """
        if self._is_whole:
            return with_version(unsafe_rows(columns, self._value, count))
        rows = [
            self._decoder.encode_value_row([column.slice(row, 1) for column in columns])
            for row in range(count)
        ]
        return pa.array(rows, _BINARY)


def unsafe_rows(columns: Sequence[Column], fields: Sequence[Field], count: int) -> Column:
    """Return columns as UnsafeRows.

    Args:
        columns: one per field, of the field's Arrow type.
        fields: of the rows.
        count: of the rows.

    Raises:
        UnsupportedStateError: an interval is not of whole microseconds.
    """
    cells = [_cells(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return put_together(cells, count)


def _cells(column: Column, of: Type) -> Cells:
    count = len(column)
    nothing = np.zeros(count, np.int64)
    if isinstance(of, Void):
        return Cells(np.ones(count, np.bool_), _zeros(count), np.empty(0, np.uint8), None, nothing)
    is_null = ~column.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(of, Boolean | Fixed) or (isinstance(of, Decimal) and of.is_long):
        words = _words(column, of)
        words[is_null] = 0
        return Cells(is_null, words, np.empty(0, np.uint8), None, nothing)
    return _tails(column, of, is_null)


def _zeros(count: int) -> NDArray[np.uint64]:
    return np.zeros(count, np.uint64)


def _words(column: Column, of: Type) -> NDArray[np.uint64]:
    """Return the word of each value: its bytes in the low ones."""
    if isinstance(of, Boolean):
        return np.asarray(column.cast(pa.uint8()).fill_null(0).to_numpy(), np.uint64)
    buffer = memoryview(column.buffers()[1] or b"")
    start, end = column.offset, column.offset + len(column)
    if isinstance(of, Decimal):
        return np.frombuffer(buffer, "<u8")[2 * start : 2 * end : 2].copy()
    assert isinstance(of, Fixed)  # noqa: S101 - the caller has looked
    width = of.stored.itemsize
    return np.frombuffer(buffer, f"<u{width}")[start:end].astype(np.uint64)


def _tails(column: Column, of: Type, is_null: Flags) -> Cells:
    """Return the cells of values that are in the tails of rows."""
    values = _values(column, of, is_null)
    sizes = lengths(values)
    padded = -(-sizes // _WORD) * _WORD
    is_large = isinstance(of, Decimal | CalendarInterval)
    if is_large:
        padded[:] = _LARGE_BYTES
    data, ends = bytes_of(joined(values, _PADDING.take(pa.array(padded - sizes))))
    words = sizes.astype(np.uint64)
    if isinstance(of, CalendarInterval):
        words[:] = _LARGE_BYTES
    return Cells(is_null, words, np.frombuffer(data, np.uint8), ends[:-1], padded // _WORD)


def _values(column: Column, of: Type, is_null: Flags) -> Column:
    """Return the bytes of each value, without padding; of a null none."""
    if isinstance(of, Bytes):
        return column.cast(_BINARY).fill_null(b"")
    if isinstance(of, Struct):
        children = [column.field(place) for place in range(len(of.fields))]
        rows = unsafe_rows(children, of.fields, len(column))
        if not is_null.any():
            return rows
        return pa.array(
            [b"" if null else row for null, row in zip(is_null, rows.to_pylist(), strict=True)],
            _BINARY,
        )
    values = [b"" if null else value_bytes(column, of, row) for row, null in enumerate(is_null)]
    return pa.array(values, _BINARY)
