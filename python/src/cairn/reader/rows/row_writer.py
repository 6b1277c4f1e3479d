"""One row of Arrow columns -> the UnsafeRow that Spark's UnsafeProjection makes of it.

Layer: reader.rows.  Shapes: ``unsafe_row.py``.

For keys that are looked up: one row per call. What is not said by the shape:

    the tail has the values in the order of the columns, each padded with zeros to 8 bytes
    the word of a null is 0, but a null decimal of over 18 digits and a null calendar interval in a
    row, though not in an array, keep 16 bytes in the tail, and their word has the offset; of the
    interval they are zeros here, while Spark leaves what its buffer had there from other rows
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from cairn.errors import UnsupportedStateError
from cairn.reader.rows.types import (
    Array,
    Boolean,
    Bytes,
    CalendarInterval,
    Decimal,
    Fixed,
    Map,
    Struct,
    Type,
    Variant,
    Void,
)
from cairn.reader.rows.unsafe_row import bitset_bytes, fixed_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cairn.reader.rows.types import Field

    Column = Any  # an array; the stubs lack the methods of some kinds

_NANOS_PER_MICRO = 1000
_DECIMAL_BYTES = 16


def write_row(columns: Sequence[pa.Array[Any]], fields: Sequence[Field], row: int) -> bytes:
    """Return one row of columns as an UnsafeRow.

    Args:
        columns: one per field, of the field's Arrow type.
        fields: of the row.
        row: its number.

    Raises:
        UnsupportedStateError: an interval is not of whole microseconds.
    """
    nulls = 0
    words = []
    tail = b""
    base = fixed_bytes(len(fields))
    for index, (column, field) in enumerate(zip(columns, fields, strict=True)):
        word = b""
        if isinstance(field.type, Void) or not column[row].is_valid:
            nulls |= 1 << index
            if _keeps_place(field.type):
                word = struct.pack("<II", _null_size(field.type), base + len(tail))
                tail += bytes(_DECIMAL_BYTES)
        elif (fixed := _fixed(column, field.type, row)) is not None:
            word = fixed
        else:
            value = value_bytes(column, field.type, row)
            word = struct.pack("<II", len(value), base + len(tail))
            tail += _padded(value, _DECIMAL_BYTES if isinstance(field.type, Decimal) else 0)
        words.append(word.ljust(8, b"\0"))
    return nulls.to_bytes(bitset_bytes(len(fields)), "little") + b"".join(words) + tail


def _padded(value: bytes, least: int = 0) -> bytes:
    return value.ljust(max(least, (len(value) + 7) // 8 * 8), b"\0")


def _keeps_place(of: Type) -> bool:
    return isinstance(of, CalendarInterval) or (isinstance(of, Decimal) and not of.is_long)


def _null_size(of: Type) -> int:
    return _DECIMAL_BYTES if isinstance(of, CalendarInterval) else 0


def _fixed(column: pa.Array[Any], of: Type, row: int) -> bytes | None:
    """Return the bytes of a value of a fixed type; ``None``: its type is another."""
    match of:
        case Boolean():
            return bytes([bool(column[row].as_py())])
        case Fixed():
            width = of.stored.itemsize
            at = (column.offset + row) * width
            return bytes(memoryview(column.buffers()[1] or b"")[at : at + width])
        case Decimal() if of.is_long:
            return _unscaled(column, row).to_bytes(8, "little", signed=True)
    return None


def _unscaled(column: pa.Array[Any], row: int) -> int:
    at = (column.offset + row) * _DECIMAL_BYTES
    stored = memoryview(column.buffers()[1] or b"")[at : at + _DECIMAL_BYTES]
    return int.from_bytes(stored, "little", signed=True)


def value_bytes(column: pa.Array[Any], of: Type, row: int) -> bytes:
    """Return a value as it is in the tail of a row, without padding; it is not null.

    Raises:
        UnsupportedStateError: an interval is not of whole microseconds, or the type has no tail.
    """
    scalar: Any = column[row]
    match of:
        case Bytes():
            return bytes(scalar.as_buffer())
        case Decimal():
            number = _unscaled(column, row)
            # As Java's BigInteger: the fewest bytes that keep the sign.
            bits = (number if number >= 0 else ~number).bit_length()
            return number.to_bytes(bits // 8 + 1, "big", signed=True)
        case CalendarInterval():
            return _interval(*scalar.as_py())
        case Variant():
            value, metadata = scalar["value"].as_py(), scalar["metadata"].as_py()
            return struct.pack("<i", len(value)) + bytes(value) + bytes(metadata)
        case Struct() | Array() | Map():
            return _nested(column, of, row)
    raise UnsupportedStateError(f"no row of Spark has a value of {of.arrow}")


def _interval(months: int, days: int, nanos: int) -> bytes:
    if nanos % _NANOS_PER_MICRO:
        raise UnsupportedStateError("Spark has no interval with parts of a microsecond")
    return struct.pack("<iiq", months, days, nanos // _NANOS_PER_MICRO)


def _nested(column: Column, of: Struct | Array | Map, row: int) -> bytes:
    match of:
        case Struct():
            children = [column.field(index) for index in range(len(of.fields))]
            return write_row(children, of.fields, row)
        case Array():
            return _array(column[row].values, of.element)
        case Map():
            entries = column[row].values
            keys, values = of.entries.fields
            written = _array(entries.field(0), keys)
            return struct.pack("<q", len(written)) + written + _array(entries.field(1), values)


def _array(elements: pa.Array[Any], element: Field) -> bytes:
    count = len(elements)
    width = element.type.element_width
    nulls = 0
    slots = []
    tail = b""
    base = 8 + bitset_bytes(count) + (count * width + 7) // 8 * 8
    for index in range(count):
        slot = b""
        if isinstance(element.type, Void) or not elements[index].is_valid:
            nulls |= 1 << index
        elif (fixed := _fixed(elements, element.type, index)) is not None:
            slot = fixed
        else:
            value = value_bytes(elements, element.type, index)
            slot = struct.pack("<II", len(value), base + len(tail))
            tail += _padded(value)
        slots.append(slot.ljust(width, b"\0"))
    head = struct.pack("<q", count) + nulls.to_bytes(bitset_bytes(count), "little")
    return head + _padded(b"".join(slots)) + tail
