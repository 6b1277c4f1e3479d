"""Ordered columns of RangeScan keys: numbers as bytes that sort as the numbers do.

Layer: reader.rows.

    ordered := u8 marker  number                       ; as many bytes as the type has, big-endian
    marker  := 02 null, the number is zeros | 00 negative | 01 other
    number  := an integer in two's complement
             | the bits of a float or double, all of them inverted if its sign bit is set
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.reader.rows.spans import Spans, validity
from cairn.reader.rows.types import Boolean, Fixed

if TYPE_CHECKING:
    from cairn.reader.rows.types import Field

_NEGATIVE, _OTHER, _NULL = range(3)

_BYTE: Final = Fixed(pa.int8(), stored=np.dtype("i1"))
_ARROW_TYPES: Final = frozenset(
    {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()}
)


def ordered_type(field: Field, where: str) -> Fixed:
    """Return the type in which an ordered column is stored: a boolean is a byte, 0 or 1.

    Raises:
        UnsupportedStateError: Spark has no order of bytes for the type.
    """
    if isinstance(field.type, Boolean):
        return _BYTE
    if isinstance(field.type, Fixed) and field.type.arrow in _ARROW_TYPES and not field.type.note:
        return field.type
    raise UnsupportedStateError(
        f"{where} is ordered by column '{field.name}' of type {field.type.arrow}, "
        "for which the reader knows no order",
        next_step="read this state through Spark's statestore source",
    )


def decode_ordered(cells: pa.Array[Any], field: Field, where: str) -> pa.Array[Any]:
    """Return the values of one ordered column.

    Args:
        cells: ``large_binary``, one per row.
        field: the column.
        where: what it is, for errors.

    Raises:
        CorruptError: a cell does not have the form above.
        UnsupportedStateError: see ``ordered_type``.
    """
    of = ordered_type(field, where)
    width = of.stored.itemsize
    spans = Spans.of(cells)
    if cells.null_count or bool((spans.sizes != 1 + width).any()):
        raise CorruptError(f"{where}: an ordered value is not of {1 + width} bytes")
    markers = spans.places.load("u1")
    is_float = of.stored.kind == "f"
    bits = spans.places.load(f">u{width}", 1).astype(f"u{width}")
    is_negative = markers == _NEGATIVE
    is_null = markers == _NULL
    has_sign = bits >> (8 * width - 1) != 0
    # The highest bit of an inverted float is not set either.
    is_right = has_sign == (is_negative & (not is_float))
    if not bool(((markers <= _NULL) & (is_null | is_right)).all()):
        raise CorruptError(f"{where}: the marker of an ordered value contradicts the value")
    if is_float:
        bits = np.where(is_negative, ~bits, bits)
    values = bits.view(of.stored)
    bitmap = validity(~is_null if bool(is_null.any()) else None)
    if isinstance(field.type, Boolean):
        if bool((~is_null & (values > 1)).any()):
            raise CorruptError(f"{where}: an ordered boolean is neither 0 nor 1")
        values = np.packbits(values != 0, bitorder="little")
    buffers = [bitmap, pa.py_buffer(values.data)]
    return pa.Array.from_buffers(field.type.arrow, len(cells), buffers)


def encode_ordered(column: pa.Array[Any], field: Field, where: str) -> bytes:
    """Return the bytes of an ordered column of one row.

    Raises:
        UnsupportedStateError: see ``ordered_type``.
    """
    of = ordered_type(field, where)
    width = of.stored.itemsize
    value = column[0].as_py()
    if value is None:
        return bytes([_NULL]) + bytes(width)
    number = np.array(value, of.stored.newbyteorder(">")).tobytes()
    is_negative = number[0] >= 0x80  # noqa: PLR2004 - the highest bit
    if is_negative and of.stored.kind == "f":
        number = bytes(byte ^ 0xFF for byte in number)
    return bytes([_NEGATIVE if is_negative else _OTHER]) + number
