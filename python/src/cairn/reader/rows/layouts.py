"""Layouts of keys: which columns are in which part of a key, and in which order.

Layer: reader.rows.

    NoPrefix   := row of all columns
    PrefixScan := i32le n  prefix[n]  row              ; the first columns; the others
    RangeScan  := i32le n  range[n]  [ row ]           ; the ordered columns; the others, if any
    TsPrefix   := time  row                            ; the last column; the others
    TsPostfix  := row  time
    time       := i64, big-endian, the sign bit inverted

How a row, a prefix and a range become bytes is a ``RowCodec``'s: UnsafeRow or Avro.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.reader.rows.ordered import decode_ordered, encode_ordered, ordered_type
from cairn.reader.rows.row_writer import write_row
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.types import BINARY, LONG, Boolean, Field
from cairn.reader.rows.unsafe_row import decode_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cairn.reader.rows.types import Struct
    from cairn.reader.spark.schema_files import KeyEncoder

    Columns = Sequence[pa.Array[Any]]
    PartKind = Literal["row", "prefix", "range", "time"]

_LENGTH_BYTES = 4
_TIME_BYTES = 8
_SIGN = 1 << 63
_VERSION = 0


class RowCodec(Protocol):
    """Rows of some columns as bytes, and back."""

    def decode(
        self, kind: PartKind, rows: Spans, fields: Sequence[Field], where: str
    ) -> list[pa.Array[Any]]:
        """Return one array per field.

        Raises:
            CorruptError: a row does not have the form that its fields demand.
            UnsupportedStateError: a value has no form in Arrow.
        """

    def encode(self, kind: PartKind, columns: Columns, fields: Sequence[Field]) -> bytes:
        """Return the bytes of the only row of some columns."""


@dataclass(frozen=True)
class UnsafeRowCodec:
    """UnsafeRows behind a version byte, 0.

    Attributes:
        is_bare: there is no version byte.
    """

    is_bare: bool = False

    def decode(
        self, kind: PartKind, rows: Spans, fields: Sequence[Field], where: str
    ) -> list[pa.Array[Any]]:
        """See ``RowCodec``."""
        if not self.is_bare:
            rows = behind_version(rows, where)
        if kind != "range":
            return decode_rows(rows, fields, where)
        cells = decode_rows(rows, _cells(fields), where)
        return [
            decode_ordered(column, field, f"{where}, column '{field.name}'")
            for column, field in zip(cells, fields, strict=True)
        ]

    def encode(self, kind: PartKind, columns: Columns, fields: Sequence[Field]) -> bytes:
        """See ``RowCodec``."""
        head = b"" if self.is_bare else bytes([_VERSION])
        if kind != "range":
            return head + write_row(columns, fields, 0)
        cells = [
            pa.array([encode_ordered(column, field, "the key")], pa.large_binary())
            for column, field in zip(columns, fields, strict=True)
        ]
        return head + write_row(cells, _cells(fields), 0)


def _cells(fields: Sequence[Field]) -> list[Field]:
    return [Field(field.name, BINARY) for field in fields]


def behind_version(rows: Spans, where: str) -> Spans:
    """Return rows without their version byte.

    Raises:
        CorruptError: a row is empty.
        UnsupportedStateError: the version is not 0, the only one that Spark has had.
    """
    rows.require(1, where)
    if bool((rows.places.load("u1") != _VERSION).any()):
        raise UnsupportedStateError(f"{where}: a row does not have version {_VERSION}")
    return rows.behind(1)


@dataclass(frozen=True)
class _Part:
    kind: PartKind
    ordinals: tuple[int, ...]


class KeyLayout:
    """The layout of the keys of one family.

    Args:
        schema: of the keys.
        encoder: Spark's key encoder.
        codec: of the parts.
        keeps_booleans: ordered booleans are stored as bytes.

    Raises:
        CorruptError: the encoder does not fit the schema.
        UnsupportedStateError: the encoder is unknown, or the keys lack the value of a column.
    """

    def __init__(
        self, schema: Struct, encoder: KeyEncoder, codec: RowCodec, *, keeps_booleans: bool
    ) -> None:
        self._fields = schema.fields
        self._codec = codec
        self._parts = _parts(schema, encoder)
        self._has_length = encoder.kind in {"PrefixScan", "RangeScan"}
        for ordinal in encoder.ordinals if encoder.kind == "RangeScan" else ():
            field = schema.fields[ordinal]
            ordered_type(field, "the key")
            if isinstance(field.type, Boolean) and not keeps_booleans:
                raise UnsupportedStateError(
                    f"the keys are ordered by the boolean column '{field.name}', "
                    "whose values Spark does not store",
                    next_step="read the primary column family of the variable instead",
                )

    def decode(self, keys: Spans) -> list[pa.Array[Any]]:
        """Return the columns of keys, in the order of the schema.

        Raises:
            CorruptError: a key does not have the layout.
            UnsupportedStateError: a value has no form in Arrow.
        """
        columns: list[pa.Array[Any]] = [pa.nulls(0)] * len(self._fields)
        for part, spans in zip(self._parts, self.split(keys), strict=True):
            if part.kind == "time":
                decoded: Sequence[pa.Array[Any]] = [_times(spans)]
            else:
                fields = [self._fields[ordinal] for ordinal in part.ordinals]
                decoded = self._codec.decode(part.kind, spans, fields, "a key")
            for ordinal, column in zip(part.ordinals, decoded, strict=True):
                columns[ordinal] = column
        return columns

    def encode(self, columns: Columns) -> bytes:
        """Return the key that has the only row of these columns, in the order of the schema.

        Raises:
            UnsupportedStateError: Spark has no such key.
        """
        pieces = []
        for part in self._parts:
            chosen = [columns[ordinal] for ordinal in part.ordinals]
            if part.kind == "time":
                pieces.append(_time_bytes(chosen[0]))
            else:
                fields = [self._fields[ordinal] for ordinal in part.ordinals]
                pieces.append(self._codec.encode(part.kind, chosen, fields))
        head = struct.pack("<i", len(pieces[0])) if self._has_length else b""
        return head + b"".join(pieces)

    def split(self, keys: Spans) -> list[Spans]:
        """Return the parts of keys, undecoded; the module's docstring has their order.

        Raises:
            CorruptError: a key does not have the layout.
        """
        if self._has_length:
            keys.require(_LENGTH_BYTES, "a key")
            starts = keys.starts + _LENGTH_BYTES
            middles = starts + keys.places.load("<i4")
            if bool(((middles < starts) | (middles > keys.ends)).any()):
                raise CorruptError("a key: its first part is longer than the key")
            first = Spans(keys.data, starts, middles)
            if len(self._parts) > 1:
                return [first, Spans(keys.data, middles, keys.ends)]
            if bool((middles != keys.ends).any()):
                raise CorruptError("a key has bytes after its only part")
            return [first]
        if len(self._parts) == 1:
            return [keys]
        keys.require(_TIME_BYTES, "a key")
        if self._parts[0].kind == "time":
            middles = keys.starts + _TIME_BYTES
        else:
            middles = keys.ends - _TIME_BYTES
        return [Spans(keys.data, keys.starts, middles), Spans(keys.data, middles, keys.ends)]


def _parts(schema: Struct, encoder: KeyEncoder) -> tuple[_Part, ...]:
    count = len(schema.fields)
    every = tuple(range(count))
    match encoder.kind:
        case "NoPrefix":
            return (_Part("row", every),)
        case "PrefixScan":
            prefix = encoder.prefix_columns
            if not 0 < prefix < count:
                raise CorruptError(f"a prefix of {prefix} columns, of keys that have {count}")
            return (_Part("prefix", every[:prefix]), _Part("row", every[prefix:]))
        case "RangeScan":
            ordinals = encoder.ordinals
            if not ordinals or len(set(ordinals)) < len(ordinals) or not {*ordinals} <= {*every}:
                raise CorruptError(f"keys of {count} columns are ordered by columns {ordinals}")
            rest = tuple(ordinal for ordinal in every if ordinal not in ordinals)
            ordered = _Part("range", ordinals)
            return (ordered, _Part("row", rest)) if rest else (ordered,)
        case "TsPrefix" | "TsPostfix":
            if not count or schema.fields[-1].type != LONG:
                raise CorruptError("keys with a timestamp, whose last column is not a long")
            time, row = _Part("time", every[-1:]), _Part("row", every[:-1])
            return (time, row) if encoder.kind == "TsPrefix" else (row, time)
        case other:
            raise UnsupportedStateError(
                f"the reader does not know the key encoder '{other}'",
                next_step="read this state through Spark's statestore source",
            )


def _times(spans: Spans) -> pa.Array[Any]:
    stored = spans.places.load(">u8").astype(np.uint64) ^ np.uint64(_SIGN)
    return pa.array(stored.view(np.int64))


def _time_bytes(column: pa.Array[Any]) -> bytes:
    value = column[0].as_py()
    if value is None:
        raise UnsupportedStateError("Spark has no key whose timestamp is null")
    return bytes(((int(value) & (2 * _SIGN - 1)) ^ _SIGN).to_bytes(8, "big"))
