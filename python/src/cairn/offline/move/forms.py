"""Forms of rows: from that of one provider's store to that of another's.

Layer: offline.move. Stores of Cairn and of Spark's RocksDB have the same rows. Those of the
HDFS-backed provider are bare:

    bare                          otherwise
    row of all columns            00 row                          ; NoPrefix keys, and values
    row of all columns            i32le n  prefix[n]  00 row      ; PrefixScan keys
                                  prefix := 00 row                ; the first columns

Columns are moved as bytes: no value is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cairn.errors import UnsupportedStateError
from cairn.offline.move.row_checksums import joined, lengths, numbers
from cairn.offline.move.unsafe_rows import put_together, take_apart
from cairn.reader.rows.layouts import KeyLayout, UnsafeRowCodec, behind_version
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.stored import StoredRows
from cairn.reader.rows.types import Boolean, struct_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.reader.rows.stored import RowForm
    from cairn.reader.spark.schema_files import FamilySchema

    Column = pa.Array[Any]
    Convert = Callable[[StoredRows], StoredRows]

_VERSION = pa.scalar(b"\0", pa.large_binary())


def converter(source: RowForm, target: RowForm, schema: FamilySchema) -> Convert:
    """Return what converts the rows of a family; where the forms agree, it returns its argument.

    What it returns raises ``CorruptError`` and ``UnsupportedStateError`` for rows that do not have
    the source's form.

    Args:
        source: how the rows are stored.
        target: how they are to be stored.
        schema: of the family.

    Raises:
        UnsupportedStateError: the target cannot have the rows, or the source lacks something.
    """
    _check(source, target, schema)
    if source.is_bare == target.is_bare:
        return lambda rows: rows
    of_value: Callable[[Column], Column] = with_version if source.is_bare else without_version
    of_key = of_value
    if schema.encoder.kind == "PrefixScan":
        parts = _PrefixedKeys(schema)
        of_key = parts.with_prefix if source.is_bare else parts.without_prefix
    return lambda rows: StoredRows(of_key(rows.keys), of_value(rows.values))


def _check(source: RowForm, target: RowForm, schema: FamilySchema) -> None:
    kind = schema.encoder.kind
    problem = None
    if source.encoding != target.encoding:
        problem = f"its rows are {source.encoding}, and not {target.encoding}"
    elif source.is_list != target.is_list:
        problem = "a single value is no list"
    elif source.is_bare != target.is_bare and (source.is_list or source.encoding == "avro"):
        problem = "Spark's HDFS-backed provider has neither lists nor Avro"
    elif source.is_bare != target.is_bare and kind not in {"NoPrefix", "PrefixScan"}:
        problem = f"Spark's HDFS-backed provider has no keys of the encoder {kind}"
    elif source.booleans_as_bytes != target.booleans_as_bytes and source.encoding != "avro":
        ordered = schema.encoder.ordinals if kind == "RangeScan" else ()
        fields = struct_of(schema.key).fields
        for field in (fields[ordinal] for ordinal in ordered):
            if isinstance(field.type, Boolean):
                problem = (
                    f"its keys are ordered by the boolean column '{field.name}', "
                    "whose values Spark's RocksDB does not store"
                )
    if problem:
        raise UnsupportedStateError(
            f"the rows of '{schema.name}' cannot be converted: {problem}",
            next_step="choose the provider that the query has",
        )


def with_version(rows: Column) -> Column:
    """Return rows behind their version."""
    return joined(_VERSION, rows)


def without_version(rows: Column) -> Column:
    """Return rows without their version; see ``behind_version``."""
    return behind_version(Spans.of(rows), "a row").binary()


class _PrefixedKeys:
    """Keys whose first columns are apart."""

    def __init__(self, schema: FamilySchema) -> None:
        key = struct_of(schema.key)
        self._fields = key.fields
        self._prefix = schema.encoder.prefix_columns
        self._layout = KeyLayout(key, schema.encoder, UnsafeRowCodec(), keeps_booleans=True)

    def with_prefix(self, keys: Column) -> Column:
        cells = take_apart(Spans.of(keys), self._fields, "a key")
        first = with_version(put_together(cells[: self._prefix], len(keys)))
        rest = put_together(cells[self._prefix :], len(keys))
        return joined(numbers(lengths(first), "<i4"), first, _VERSION, rest)

    def without_prefix(self, keys: Column) -> Column:
        first, rest = (behind_version(part, "a key") for part in self._layout.split(Spans.of(keys)))
        cells = take_apart(first, self._fields[: self._prefix], "a key")
        cells += take_apart(rest, self._fields[self._prefix :], "a key")
        return put_together(cells, len(keys))
