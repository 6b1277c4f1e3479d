"""Rows in Spark's Avro encoding (``encodingFormat=avro``), one at a time by ``fastavro``.

Layer: reader.rows. The only importer of ``fastavro``, and only where such rows are read.

    row, of a key without prefix, of a value, of the rest of a key := 00  i16le schema_id  record
    prefix                                                         := 00  record
    range                                                          := 00  record of cells
    record of cells: for each ordered column two fields of bytes, its marker and its number

A record is Avro's binary form of its fields. As Spark 4.0 to 4.3 has it, whatever is declared:

    field, other than of type void           := union of null and its type
    element of an array, value of a map      := its type, if that is simple; a union, if it is not

Names are not stored, so that the schemas here number their fields. A value names the schema that it
was written with; its fields are found by name in the schema that is wanted, as Spark does.
"""

from __future__ import annotations

import decimal
import io
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, PackageMissingError, UnsupportedStateError
from cairn.reader.rows.layouts import behind_version
from cairn.reader.rows.ordered import decode_ordered, encode_ordered
from cairn.reader.rows.types import (
    BINARY,
    Array,
    Boolean,
    Bytes,
    Decimal,
    Field,
    Fixed,
    Map,
    Struct,
    Type,
    Void,
)
from cairn.reader.rows.unsafe_row import not_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cairn.reader.rows.layouts import Columns, PartKind
    from cairn.reader.rows.spans import Spans

    Column = Any  # an array; the stubs lack the methods of some kinds

_VERSION = b"\0"
_ID_BYTES = 2
_PRECISE = decimal.Context(prec=60)
_AVRO_OF_STORED = {
    "i1": "int",
    "i2": "int",
    "i4": "int",
    "i8": "long",
    "f4": "float",
    "f8": "double",
}


@dataclass(frozen=True)
class AvroCodec:
    """Rows as Avro records: a ``RowCodec``.

    Attributes:
        schemas: the fields that rows were written with, by the id of the schema; ``None``: the
            fields that are asked for, as for keys, whose schema never changes.
        current_id: that of rows that are encoded.
    """

    schemas: Mapping[int, tuple[Field, ...] | None]
    current_id: int

    def decode(
        self, kind: PartKind, rows: Spans, fields: Sequence[Field], where: str
    ) -> list[pa.Array[Any]]:
        """See ``layouts.RowCodec``.

        Raises:
            PackageMissingError: ``fastavro`` is not installed.
        """
        rows = behind_version(rows, where)
        if kind == "range":
            return self._decode_range(rows, fields, where)
        ids = np.full(len(rows), self.current_id, np.int16)
        if kind == "row":
            rows.require(_ID_BYTES, where)
            ids = rows.places.load("<i2")
            rows = rows.behind(_ID_BYTES)
        values: list[list[Any]] = [[]] * len(rows)
        for schema_id in np.unique(ids).tolist():
            if schema_id not in self.schemas:
                raise CorruptError(f"{where} was written with schema {schema_id}, which is unknown")
            written = self.schemas[schema_id] or fields
            (places,) = np.nonzero(ids == schema_id)
            records = _records(rows.chosen(places), written, where)
            for place, record in zip(places.tolist(), records, strict=True):
                values[place] = _resolved(record, written, fields)
        return [
            _column([row[index] for row in values], field, where)
            for index, field in enumerate(fields)
        ]

    def _decode_range(
        self, rows: Spans, fields: Sequence[Field], where: str
    ) -> list[pa.Array[Any]]:
        records = _records(rows, _cells(fields), where)
        result = []
        for index, field in enumerate(fields):
            marker, number = f"f{2 * index}", f"f{2 * index + 1}"
            if any(record[marker] is None or record[number] is None for record in records):
                raise CorruptError(f"{where}, column '{field.name}': a part of a value is null")
            cells = [record[marker] + record[number] for record in records]
            column = pa.array(cells, pa.large_binary())
            result.append(decode_ordered(column, field, f"{where}, column '{field.name}'"))
        return result

    def encode(self, kind: PartKind, columns: Columns, fields: Sequence[Field]) -> bytes:
        """See ``layouts.RowCodec``.

        Raises:
            PackageMissingError: ``fastavro`` is not installed.
        """
        if kind == "range":
            cells = [
                encode_ordered(column, field, "the key")
                for column, field in zip(columns, fields, strict=True)
            ]
            parts = [part for cell in cells for part in (cell[:1], cell[1:])]
            record = {f"f{index}": part for index, part in enumerate(parts)}
            return _VERSION + _written(record, _cells(fields))
        record = {
            f"f{index}": _avro_value(column, field.type, 0)
            for index, (column, field) in enumerate(zip(columns, fields, strict=True))
        }
        head = b"" if kind == "prefix" else self.current_id.to_bytes(_ID_BYTES, "little")
        return _VERSION + head + _written(record, fields)


def _cells(fields: Sequence[Field]) -> list[Field]:
    return [Field(field.name, BINARY) for field in fields for _ in range(2)]


def _fastavro() -> Any:  # noqa: ANN401 - a module
    try:
        import fastavro  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as failure:
        raise PackageMissingError(
            "this state is encoded in Avro, for which the package fastavro is missing",
            next_step="run: pip install 'cairn-state[avro]'",
        ) from failure
    return fastavro


def _schema(fields: Sequence[Field], where: str) -> Any:  # noqa: ANN401 - fastavro's own
    names = (f"r{number}" for number in itertools.count())
    return _fastavro().parse_schema(_record_schema(fields, names, where))


def _record_schema(fields: Sequence[Field], names: Iterator[str], where: str) -> dict[str, Any]:
    schemas = [_type_schema(field.type, names, where) for field in fields]
    return {
        "type": "record",
        "name": next(names),
        "fields": [
            {"name": f"f{index}", "type": schema if schema == "null" else ["null", schema]}
            for index, schema in enumerate(schemas)
        ],
    }


def _element_schema(of: Type, names: Iterator[str], where: str) -> object:
    schema = _type_schema(of, names, where)
    return ["null", schema] if isinstance(of, Struct | Array | Map) else schema


def _type_schema(  # noqa: PLR0911 - a table
    of: Type, names: Iterator[str], where: str
) -> object:
    match of:
        case Void():
            return "null"
        case Boolean():
            return "boolean"
        case Fixed() if of.note is None:
            return _AVRO_OF_STORED[of.stored.str[1:]]
        case Decimal():
            return {"type": "fixed", "name": next(names), "size": _decimal_bytes(of)}
        case Bytes():
            return "bytes" if of == BINARY else "string"
        case Struct():
            return _record_schema(of.fields, names, where)
        # An element of no bytes would leave the number of elements without a bound.
        case Array() if not isinstance(of.element.type, Void):
            return {"type": "array", "items": _element_schema(of.element.type, names, where)}
        case Map() if of.entries.fields[0].type.arrow == pa.large_string():
            value = of.entries.fields[1].type
            return {"type": "map", "values": _element_schema(value, names, where)}
    raise UnsupportedStateError(
        f"{where} has values of {of.arrow} in Avro, which the reader does not know",
        next_step="read this state through Spark's statestore source",
    )


def _decimal_bytes(of: Decimal) -> int:
    return int(10**of.precision - 1).bit_length() // 8 + 1


def _records(rows: Spans, fields: Sequence[Field], where: str) -> list[dict[str, Any]]:
    schema = _schema(fields, where)
    read = _fastavro().schemaless_reader
    view = rows.data.data
    result = []
    for start, end in zip(rows.starts.tolist(), rows.ends.tolist(), strict=True):
        stream = io.BytesIO(view[start:end])
        try:
            record = read(stream, schema, None)
        except UnicodeDecodeError as failure:
            raise not_utf8(where) from failure
        except (EOFError, IndexError, StopIteration, ValueError, OverflowError) as failure:
            raise CorruptError(f"{where} does not have the form of its Avro schema") from failure
        if stream.tell() != end - start:
            raise CorruptError(f"{where} has bytes after its Avro record")
        result.append(record)
    return result


def _resolved(
    record: Mapping[str, Any], written: Sequence[Field], wanted: Sequence[Field]
) -> list[Any]:
    """Return the values of the wanted fields: those of their names that were written, or null."""
    places = {field.name: index for index, field in enumerate(written)}
    values: list[Any] = []
    for field in wanted:
        index = places.get(field.name)
        if index is None:
            values.append(None)
        else:
            values.append(_value(record[f"f{index}"], written[index].type, field.type))
    return values


def _value(value: Any, written: Type, wanted: Type) -> Any:  # noqa: ANN401 - as Avro has it
    """Return a value in the form in which Arrow takes it."""
    if value is None:
        return None
    match written, wanted:
        case Fixed(), _ if written.stored.kind == "i":
            limits = np.iinfo(written.stored)
            if not limits.min <= value <= limits.max:
                raise CorruptError(f"a number in Avro is no {written.arrow}")
        case Decimal(), _:
            unscaled = decimal.Decimal(int.from_bytes(value, "big", signed=True))
            return unscaled.scaleb(-written.scale, _PRECISE)
        case Struct(), Struct():
            names = [field.name for field in wanted.fields]
            return dict(zip(names, _resolved(value, written.fields, wanted.fields), strict=True))
        case Array(), Array():
            element = wanted.element.type
            return [_value(each, written.element.type, element) for each in value]
        case Map(), Map():
            of, to = written.entries.fields[1].type, wanted.entries.fields[1].type
            return [(key, _value(each, of, to)) for key, each in value.items()]
    return value


def _column(values: list[Any], field: Field, where: str) -> pa.Array[Any]:
    try:
        column = pa.array(values, field.type.arrow)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as failure:
        raise CorruptError(
            f"{where}, column '{field.name}': a value is no {field.type.arrow}"
        ) from failure
    return column


def _written(record: Mapping[str, Any], fields: Sequence[Field]) -> bytes:
    stream = io.BytesIO()
    _fastavro().schemaless_writer(stream, _schema(fields, "the key"), record)
    return stream.getvalue()


def _avro_value(  # noqa: PLR0911 - a table
    column: Column, of: Type, row: int
) -> Any:  # noqa: ANN401 - as Avro has it
    """Return a value in the form in which Avro takes it."""
    scalar = column[row]
    if not scalar.is_valid:
        return None
    match of:
        case Fixed():
            stored = np.frombuffer(memoryview(column.buffers()[1]), of.stored)
            return stored[column.offset + row].item()
        case Decimal():
            unscaled = int(scalar.as_py().scaleb(of.scale, _PRECISE))
            return unscaled.to_bytes(_decimal_bytes(of), "big", signed=True)
        case Struct():
            return {
                f"f{index}": _avro_value(column.field(index), field.type, row)
                for index, field in enumerate(of.fields)
            }
        case Array():
            elements = scalar.values
            return [_avro_value(elements, of.element.type, index) for index in range(len(elements))]
        case Map():
            entries = scalar.values
            keys, values = entries.field(0).to_pylist(), entries.field(1)
            value = of.entries.fields[1].type
            return {key: _avro_value(values, value, index) for index, key in enumerate(keys)}
    return scalar.as_py()
