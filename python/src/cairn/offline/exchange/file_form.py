"""FileForm: the columns of a family's rows in a file, and how they become its stored rows again.

Layer: offline.exchange.  Spec: docs/moving.md#export-and-import. The columns are those of
``State``, and

    partition          the row's; a reader of the file may leave it out
    list_place         of a list: the number of the element in its list, from 0
    <struct>_is_null   where the program's columns are fields of a struct that may be null itself

A column of a type that Parquet does not have is binary: each value is an UnsafeRow of that column
alone. Column names are unique, so one of these gets a number if a column of the program has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.errors import UnsupportedStateError
from cairn.offline.exchange.encoding import RowEncoder, unsafe_rows
from cairn.reader.families import PARTITION
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.lists import elements
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.stored import StoredRows
from cairn.reader.rows.types import struct_of
from cairn.reader.rows.unsafe_row import decode_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cairn.reader.families import Column, Family
    from cairn.reader.rows.types import Field

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute
types: Any = pa.types

METADATA: Final = b"cairn.export"
"""The key of the JSON that an export has in the schema's metadata of each file."""
FORMAT: Final = 1
SUFFIX: Final = ".parquet"
_PLACE = "list_place"
_NO_EXPIRY = -1
_GROUPING = frozenset({"stateStoreSave", "sessionWindowStateStoreSaveExec"})
"""Operators that normalize the floating-point numbers of their keys."""


@dataclass(frozen=True)
class FileColumn:
    """A column of the file that is a part of the stored key or value.

    Attributes:
        column: as users see it.
        field: Spark's, of the column or of the field of its struct.
        is_nullable: whether Spark's schema allows nulls.
        is_row: each value is an UnsafeRow of the column alone: Parquet has no such type.
        is_normalized: Spark has one zero and one NaN here.
    """

    column: Column
    field: Field
    is_nullable: bool
    is_row: bool
    is_normalized: bool

    @property
    def name(self) -> str:
        """Its name in the file."""
        return self.column.name

    @property
    def type(self) -> pa.DataType:
        """Its type in the file."""
        return pa.large_binary() if self.is_row else self.column.type

    def to_file(self, decoded: pa.RecordBatch) -> Any:  # noqa: ANN401 - the stubs have a type per kind
        """Return the column of decoded keys or values."""
        values: Any = self.column.of(decoded)
        if not self.is_row:
            return values
        rows: Any = unsafe_rows([values], [self.field], len(values))
        return _masked(rows, values)

    def from_file(self, values: Any) -> Any:  # noqa: ANN401 - the stubs have a class per kind
        """Return what is stored of a column of the file, which has ``type``."""
        if self.is_row:
            rows = values.fill_null(bytes([1]) + bytes(15))
            (values,) = decode_rows(Spans.of(rows), [self.field], self.name)
        if self.column.is_expiry:
            values = values.cast(pa.int64()).fill_null(_NO_EXPIRY)
        if self.is_normalized:
            values = pc.add(values, pa.scalar(0.0, values.type))  # -0.0 becomes 0.0
            nan = pa.scalar(float("nan"), values.type)
            values = pc.if_else(pc.is_nan(values), nan, values)
        return values


def _masked(rows: Any, values: Any) -> Any:  # noqa: ANN401 - the stubs have a class per kind
    if not values.null_count:
        return rows
    return pa.array(
        rows.to_pylist(), rows.type, mask=values.is_null().to_numpy(zero_copy_only=False)
    )


class FileForm:
    """See the module.

    Args:
        family: whose columns are known.

    Attributes:
        columns: those of the key, then those of the value.
        place: the name of the column with the place in a list; ``None``: it has no lists.
        nulls: names of the columns that say whether a struct is null, by its number in the value.
        schema: of the file, without metadata.

    Raises:
        UnsupportedStateError: Spark has stored no schema of these rows.
    """

    def __init__(self, family: Family) -> None:
        schema = family.schema
        if schema is None:
            raise UnsupportedStateError(
                "Spark has stored no schema of these rows: the query began before Spark 3.1",
                store=f"{family.operator.id}/{family.store.name}",
            )
        self.family = family
        self._schema = schema
        self._decoder = RowDecoder(schema, family.form)
        self._encoder = RowEncoder(schema, family.form)
        key, value = struct_of(schema.key), struct_of(schema.value)
        self.columns = tuple(
            _file_column(
                one,
                key.fields if one.is_key else value.fields,
                schema.key if one.is_key else schema.value,
                normalizes=family.operator.name in _GROUPING,
            )
            for one in family.columns
        )
        taken = {PARTITION, *(one.name for one in self.columns)}
        self.place = _free(_PLACE, taken) if family.is_list else None
        self.nulls = {
            number: _free(f"{value.fields[number].name}_is_null", taken)
            for number in sorted(
                {one.path[0] for one in family.columns if not one.is_key and len(one.path) > 1}
            )
        }
        fields = [pa.field(one.name, one.type) for one in self.columns]
        fields += [pa.field(name, pa.bool_()) for name in self.nulls.values()]
        if self.place is not None:
            fields.append(pa.field(self.place, pa.int64()))
        self.schema = pa.schema([*fields, pa.field(PARTITION, pa.int32())])

    def description(self) -> dict[str, Any]:
        """Return what the family is, for the metadata of a file."""
        family = self.family
        return {
            "format": FORMAT,
            "operator": family.operator.id,
            "operator_name": family.operator.name,
            "store": family.store.name,
            "family": family.family,
            "name": family.name,
            "partitions": family.partitions,
            "is_list": family.is_list,
            "encoding": family.form.encoding,
            "key_encoder": self._schema.encoder.kind,
            "key_schema": self._schema.key,
            "value_schema": self._schema.value,
            "key_columns": [one.name for one in self.columns if one.column.is_key],
            "opaque_columns": [one.name for one in self.columns if one.column.is_opaque],
            "row_columns": [one.name for one in self.columns if one.is_row],
            "list_place": self.place,
            "null_columns": list(self.nulls.values()),
        }

    def to_file(self, rows: StoredRows, partition: int) -> pa.RecordBatch:
        """Return stored rows of a partition as the file has them.

        Raises:
            CorruptError, UnsupportedStateError: as of ``RowDecoder.decode``.
        """
        keys, values, _ = self._decoder.decode(rows)
        arrays: list[Any] = [
            one.to_file(keys if one.column.is_key else values) for one in self.columns
        ]
        arrays += [values.column(number).is_null() for number in self.nulls]
        count = keys.num_rows
        if self.place is not None:
            _, owners = elements(Spans.of(rows.values), "a list")
            firsts = np.searchsorted(owners, owners)
            arrays.append(pa.array(np.arange(len(owners)) - firsts))
        arrays.append(pa.array(np.full(count, partition, np.int32)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def to_rows(self, columns: Mapping[str, Any], count: int) -> StoredRows:
        """Return the stored keys and values of columns; of a list, its elements' values.

        Args:
            columns: of the file, by name, of ``schema``'s types.
            count: of the rows.

        Raises:
            CorruptError: a value of a column of rows is no row.
            UnsupportedStateError: Spark has no such key or value.
        """
        key = self._parts(columns, count, self._decoder.key_schema, is_key=True)
        value = self._parts(columns, count, self._decoder.value_schema, is_key=False)
        return StoredRows(self._encoder.keys(key, count), self._encoder.values(value, count))

    def _parts(
        self, columns: Mapping[str, Any], count: int, schema: pa.Schema, *, is_key: bool
    ) -> list[Any]:
        found: dict[int, list[tuple[tuple[int, ...], Any]]] = {}
        for one in self.columns:
            if one.column.is_key == is_key:
                part = one.from_file(columns[one.name])
                found.setdefault(one.column.path[0], []).append((one.column.path[1:], part))
        result = []
        for number in range(len(schema)):
            kind: Any = schema.field(number).type
            parts = found.get(number, [])
            if not parts:
                result.append(_empty(kind, count))
            elif parts[0][0] == ():
                result.append(parts[0][1])
            else:
                ordered = [part for _, part in sorted(parts, key=lambda one: one[0])]
                is_null = None if is_key else columns.get(self.nulls[number])
                make: Any = pa.StructArray
                result.append(make.from_arrays(ordered, fields=list(kind), mask=is_null))
        return result


def _file_column(
    column: Column, fields: Sequence[Field], json_of: Mapping[str, Any], *, normalizes: bool
) -> FileColumn:
    field, of = fields[column.path[0]], json_of["fields"][column.path[0]]
    for number in column.path[1:]:
        is_nullable_struct = of.get("nullable", True)
        inner: Any = field.type
        of = of["type"]
        while isinstance(of, dict) and of.get("type") == "udt":
            of = of["sqlType"]
        field, of = inner.fields[number], of["fields"][number]
        if is_nullable_struct and not column.is_key:
            of = {**of, "nullable": True}
    return FileColumn(
        column,
        field,
        is_nullable=bool(of.get("nullable", True)),
        is_row=_is_foreign(field.type.arrow),
        is_normalized=normalizes and column.is_key and types.is_floating(field.type.arrow),
    )


def _is_foreign(of: Any) -> bool:  # noqa: ANN401 - the stubs have a class per kind
    """Return whether Parquet has no such type, or a part of it."""
    if of == pa.month_day_nano_interval() or (types.is_decimal(of) and of.scale < 0):
        return True
    if types.is_struct(of) and not of.num_fields:
        return True
    return any(_is_foreign(of.field(place).type) for place in range(of.num_fields))


def _free(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def _empty(kind: Any, count: int) -> Any:  # noqa: ANN401 - the stubs have a class per kind
    """Return a column that no column of the file has: a placeholder, or a struct of nothing."""
    return pa.array([{}] * count, kind) if types.is_struct(kind) else pa.nulls(count, kind)


def encoded(description: Mapping[str, Any]) -> bytes:
    """Return a description as the metadata have it."""
    return json.dumps(description, ensure_ascii=False).encode()
