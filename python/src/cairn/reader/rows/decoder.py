"""RowDecoder: the stored rows of one column family -> Arrow batches, and keys -> their bytes.

Layer: reader.rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, InvalidError, UnsupportedStateError
from cairn.reader.rows.avro import AvroCodec
from cairn.reader.rows.layouts import KeyLayout, RowCodec, UnsafeRowCodec
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.types import Struct, struct_of, struct_type
from cairn.reader.rows.unsafe_row import fixed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cairn.reader.rows.stored import RowForm, StoredRows
    from cairn.reader.spark.schema_files import FamilySchema

    Decoded = tuple[pa.RecordBatch, pa.RecordBatch, NDArray[np.int64]]

_ONE_NULL_COLUMN: Final = b"\x01" + bytes(15)
_TIMEOUT = "timeoutTimestamp"


class RowDecoder:
    """Decodes the rows of one column family.

    Args:
        schema: of the family.
        form: how its rows became bytes.

    Attributes:
        key_schema: the columns of keys, named as Spark names them; two may have one name.
        value_schema: those of values.

    Raises:
        CorruptError: the schema is none.
        UnsupportedStateError: the schema has a type, or the family an encoding, that the reader
            does not know, or Spark does not store the value of a key's column.
    """

    def __init__(self, schema: FamilySchema, form: RowForm) -> None:
        self._form = form
        key = struct_of(schema.key)
        self._value = struct_type(()) if form.has_no_value else struct_of(schema.value)
        self.key_schema = _arrow_schema(key)
        self.value_schema = _arrow_schema(self._value)
        keys, self._values = _codecs(schema, self._value, form)
        encoder = replace(schema.encoder, kind="NoPrefix") if form.is_bare else schema.encoder
        keeps_booleans = form.booleans_as_bytes or form.encoding == "avro"
        self._layout = KeyLayout(key, encoder, keys, keeps_booleans=keeps_booleans)

    def decode(self, rows: StoredRows) -> Decoded:
        """Return the key columns, the value columns, and the number of the stored row of each row.

        A list gives one row per element, and an empty list none.

        Raises:
            CorruptError: the bytes do not have the form that the schema demands.
            UnsupportedStateError: a value has no form in Arrow.
            PackageMissingError: the rows are in Avro, and ``fastavro`` is not installed.
        """
        keys = self._layout.decode(Spans.of(rows.keys))
        values = Spans.of(rows.values)
        numbers = np.arange(len(values))
        if self._form.is_list:
            values, numbers = elements(values, "a list")
            keys = [column.take(numbers) for column in keys]
        if self._form.has_no_value:
            _check_placeholders(rows.values, self._form)
            decoded = []
        else:
            decoded = self._values.decode("row", values, self._value.fields, "a value")
        count = len(numbers)
        return (
            _batch(keys, self.key_schema, count),
            _batch(decoded, self.value_schema, count),
            numbers,
        )

    def decode_keys(self, keys: pa.Array[Any]) -> pa.RecordBatch:
        """Return the key columns alone, one row per key; raises what ``decode`` does."""
        return _batch(self._layout.decode(Spans.of(keys)), self.key_schema, len(keys))

    def encode_key(self, values: Sequence[Any]) -> bytes:
        """Return the bytes under which a store has a key.

        Args:
            values: one per column of ``key_schema``, as ``pyarrow.array`` takes them.

        Raises:
            InvalidError: there are more or fewer values than columns, or one is not of its type.
            UnsupportedStateError: Spark has no such key.
        """
        fields = list(self.key_schema)
        if len(values) != len(fields):
            raise InvalidError(f"the key has {len(fields)} columns, not {len(values)}")
        columns = []
        for value, field in zip(values, fields, strict=True):
            wrong = InvalidError(
                f"the value of the key's column '{field.name}' is not of type {field.type}"
            )
            if _would_be_cut(value, field.type):
                raise wrong
            try:
                columns.append(pa.array([value], field.type))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
                raise wrong from failure
        return self._layout.encode(columns)

    def encode_key_row(self, columns: Sequence[pa.Array[Any]]) -> bytes:
        """Return the key that has the only row of these columns; see ``encode_key``."""
        return self._layout.encode(columns)

    def encode_value_row(self, columns: Sequence[pa.Array[Any]]) -> bytes:
        """Return the value, or the element of a list, that has the only row of these columns."""
        return self._values.encode("row", columns, self._value.fields)


def _would_be_cut(value: object, of: Any) -> bool:  # noqa: ANN401 - the stubs lack nested types
    """Return whether Arrow would make an integer of a float, in the value or in what it has."""
    if isinstance(value, float | np.floating):
        return not pa.types.is_floating(of)
    if isinstance(value, dict) and pa.types.is_struct(of):
        return any(_would_be_cut(value.get(field.name), field.type) for field in of)
    if isinstance(value, list | tuple) and pa.types.is_large_list(of):
        return any(_would_be_cut(each, of.value_type) for each in value)
    return False


def _codecs(schema: FamilySchema, value: Struct, form: RowForm) -> tuple[RowCodec, RowCodec]:
    if form.encoding == "unsaferow":
        codec = UnsafeRowCodec(form.is_bare)
        return codec, codec
    if form.encoding != "avro" or form.is_bare:
        raise UnsupportedStateError(f"the reader does not know the row encoding '{form.encoding}'")
    if not schema.has_ids:
        raise UnsupportedStateError(
            "the rows are in Avro without ids of their schemas, as only a development version of "
            "Spark 4.0 wrote them",
            next_step="start the query anew: no release of Spark goes on from this state",
        )
    of_keys = dict.fromkeys([schema.key_id, *(older.key_id for older in schema.older)])
    of_values = {older.value_id: struct_of(older.value).fields for older in schema.older}
    of_values[schema.value_id] = value.fields
    return AvroCodec(of_keys, schema.key_id), AvroCodec(of_values, schema.value_id)


def is_placeholder(values: pa.Array[Any], schema: FamilySchema, form: RowForm) -> bool:
    """Return whether values are one null column each, although the schema has more columns.

    ``dropDuplicates`` before Spark 3.4 declares its values as rows of the input, and stores none.
    The rows of such a family are read with ``RowForm.has_no_value``.

    Args:
        values: of some rows of the family, as ``StoredRows`` has them.
        schema: of the family.
        form: of its rows.
    """
    columns = len(schema.value.get("fields", ()))
    if form.encoding != "unsaferow" or form.is_list or fixed_bytes(columns) <= fixed_bytes(1):
        return False
    return len(values) > 0 and _are_placeholders(values, form)


def _are_placeholders(values: pa.Array[Any], form: RowForm) -> bool:
    row = _ONE_NULL_COLUMN if form.is_bare else b"\0" + _ONE_NULL_COLUMN
    return set(values.unique().to_pylist()) <= {row}


def _check_placeholders(values: pa.Array[Any], form: RowForm) -> None:
    if not _are_placeholders(values, form):
        raise CorruptError("a value is not the one null column that the other values are")


def with_long_timeout(schema: FamilySchema) -> FamilySchema:
    """Return the schema with a 64-bit timeout.

    ``flatMapGroupsWithState`` with state format 1 declares its last column, ``timeoutTimestamp``,
    as an integer, and stores a number of 64 bits. The schema of another operator is not for this
    function: it may have an integer of that name.
    """
    fields = list(schema.value.get("fields", ()))
    if not fields or fields[-1].get("name") != _TIMEOUT or fields[-1].get("type") != "integer":
        return schema
    fields[-1] = {**fields[-1], "type": "long"}
    return replace(schema, value={**schema.value, "fields": fields})


def _arrow_schema(of: Struct) -> pa.Schema:
    return pa.schema([field.arrow for field in of.fields])


def _batch(columns: list[pa.Array[Any]], schema: pa.Schema, count: int) -> pa.RecordBatch:
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    # Without a column, only a struct knows how many rows there are.
    empty: Any = pa.array([{}] * count, pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)
