"""UnsafeRows -> Arrow arrays, a whole column at a time.

Layer: reader.rows. No I/O. Numbers are little-endian.

    row      := bitset[8 * ceil(n / 64)]  word[8] * n  tail
    bit i of the bitset, lowest first: column i is null
    word     := the value, in the low bytes, if its type is fixed
              | u32 size  u32 offset     ; of the value in the tail; from the start of the row
    array    := i64 n  bitset[8 * ceil(n / 64)]  element * n  tail     ; offsets: from its start
    element  := the value, in as many bytes as it needs, if its type is fixed | word
    map      := i64 size  array[size] of keys  array of values
    struct   := row
    interval := i32 months  i32 days  i64 microseconds
    variant  := i32 size  value[size]  metadata

Every offset and length is checked before it is used. Spark writes the values of a column in the
order of their rows, so values that share bytes are refused. Hence the sizes of a column's values
never add up to more than the bytes that were read, and memory is bounded by these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.reader.rows.spans import Places, Spans, spread, validity
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cairn.reader.rows.spans import Flags, Int64s
    from cairn.reader.rows.types import Field

_WORD = 8
_INTERVAL_BYTES = 16
_DECIMAL_BYTES = 16
_MAX_MAP_ENTRIES = (1 << 31) - 1
_NANOS_PER_MICRO = 1000
_MAX_MICROS = ((1 << 63) - 1) // _NANOS_PER_MICRO


def fixed_bytes(columns: int) -> int:
    """Return the bytes of a row before its tail."""
    return bitset_bytes(columns) + _WORD * columns


def bitset_bytes(count: int) -> int:
    """Return the bytes of the null bits of columns or elements."""
    return (count + 63) // 64 * _WORD


def decode_rows(rows: Spans, fields: Sequence[Field], where: str) -> list[pa.Array[Any]]:
    """Return one array per field, each with one value per row.

    Args:
        rows: the UnsafeRows.
        fields: of the rows.
        where: what the rows are, for errors.

    Raises:
        CorruptError: a row is too short, or a value does not fit into its row or its type.
        UnsupportedStateError: a value has no form in Arrow, as a text that is not UTF-8.
    """
    least = fixed_bytes(len(fields))
    rows.require(least, where)
    bitset = bitset_bytes(len(fields))
    places = rows.places
    has_nulls = [
        int(np.bitwise_or.reduce(places.load("<u8", word))) if len(rows) else 0
        for word in range(0, bitset, _WORD)
    ]
    result = []
    for index, field in enumerate(fields):
        valid = ~places.bits(index, 0) if has_nulls[index // 64] >> index % 64 & 1 else None
        slots = _Slots(places.shifted(bitset + _WORD * index), valid, rows.starts, least, rows.ends)
        result.append(_decode(slots, field.type, f"{where}, column '{field.name}'"))
    return result


@dataclass(frozen=True)
class _Slots:
    """One value per item: of a column in many rows, or of the elements of many arrays.

    Attributes:
        places: of the values, or of their words.
        valid: which are not null; ``None``: all.
        bases: offsets in the words count from here.
        floors: the least offset.
        ends: no value ends behind.
    """

    places: Places
    valid: Flags | None
    bases: Int64s
    floors: int | Int64s
    ends: Int64s

    def spans(self, where: str) -> Spans:
        """Return the values that the words name, without those of nulls."""
        words = self.places.where(self.valid).load("<u8")
        sizes = (words & np.uint64(0xFFFFFFFF)).view(np.int64)
        offsets = (words >> np.uint64(32)).view(np.int64)
        bases, floors, ends = self.bases, self.floors, self.ends
        if self.valid is not None:
            bases, ends = bases[self.valid], ends[self.valid]
            floors = floors if isinstance(floors, int) else floors[self.valid]
        starts = bases + offsets
        if bool(((offsets < floors) | (starts + sizes > ends)).any()):
            raise CorruptError(f"{where}: a value lies outside its row")
        return Spans.checked(self.places.data, starts, starts + sizes, where)


def _decode(slots: _Slots, of: Type, where: str) -> pa.Array[Any]:
    match of:
        case Void():
            return pa.nulls(len(slots.places))
        case Boolean():
            bits = np.packbits(slots.places.load("u1") != 0, bitorder="little")
            return _array(of, len(slots.places), slots.valid, bits)
        case Fixed():
            values = slots.places.load(of.stored)
            if of.limit is not None:
                valid = values if slots.valid is None else values[slots.valid]
                if bool(((valid < 0) | (valid >= of.limit)).any()):
                    raise CorruptError(f"{where}: a value is out of the range of its type")
            return _array(of, len(slots.places), slots.valid, values)
        case Decimal() if of.is_long:
            return _long_decimals(slots, of, where)
        case _:
            return spread(decode_spans(slots.spans(where), of, where), slots.valid)


def decode_spans(spans: Spans, of: Type, where: str) -> pa.Array[Any]:
    """Return the values of a type of variable size, none of which is null.

    Raises:
        CorruptError: a value does not fit into its span or its type.
        UnsupportedStateError: a value has no form in Arrow, as a text that is not UTF-8.
    """
    if decode := _DECODERS.get(type(of)):
        return decode(spans, of, where)
    raise CorruptError(f"{where}: values of type {of.arrow} have no length")


def not_utf8(where: str) -> UnsupportedStateError:
    """Return the error of a text that is not UTF-8: Spark's cast of binary stores any bytes."""
    return UnsupportedStateError(
        f"{where}: a text is not UTF-8",
        next_step="read this state through Spark's statestore source, and cast the column to "
        "binary",
    )


def _array(
    of: Type,
    count: int,
    valid: Flags | None,
    values: NDArray[np.generic],
    children: list[pa.Array[Any]] | None = None,
) -> pa.Array[Any]:
    buffers = [validity(valid), pa.py_buffer(values.data)]
    return pa.Array.from_buffers(of.arrow, count, buffers, children=children)


def _structs(spans: Spans, of: Struct, where: str) -> pa.Array[Any]:
    children = decode_rows(spans, of.fields, where)
    return pa.Array.from_buffers(of.arrow, len(spans), [None], children=children)


def _arrays(spans: Spans, of: Array, where: str) -> pa.Array[Any]:
    offsets, elements = _elements(spans, of.element, where)
    return _array(of, len(spans), None, offsets, children=[elements])


def _bytes(spans: Spans, of: Type, where: str) -> pa.Array[Any]:
    values = spans.binary()
    if of.arrow == pa.large_binary():
        return values
    try:
        return values.cast(of.arrow)
    except pa.ArrowInvalid as failure:
        raise not_utf8(where) from failure


def _long_decimals(slots: _Slots, of: Decimal, where: str) -> pa.Array[Any]:
    values = slots.places.load("<i8")
    if slots.valid is not None:
        values[~slots.valid] = 0
    limit = 10**of.precision
    if bool(((values <= -limit) | (values >= limit)).any()):
        raise CorruptError(f"{where}: a decimal has more than {of.precision} digits")
    return _array(of, len(values), slots.valid, np.stack([values, values >> 63], axis=1))


def _large_decimals(spans: Spans, of: Decimal, where: str) -> pa.Array[Any]:
    sizes = spans.sizes
    if bool(((sizes < 1) | (sizes > _DECIMAL_BYTES)).any()):
        raise CorruptError(f"{where}: a decimal has no byte or more than {_DECIMAL_BYTES}")
    result = np.empty((len(spans), _DECIMAL_BYTES), np.uint8)
    first = spans.places.load("i1")
    result[:] = np.where(first < 0, np.uint8(0xFF), np.uint8(0))[:, np.newaxis]
    for place in range(_DECIMAL_BYTES):
        (long,) = np.nonzero(sizes > place)
        result[long, place] = spans.data[spans.ends[long] - 1 - place]
    values = _array(of, len(spans), None, result)
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as failure:
        raise CorruptError(f"{where}: a decimal has more than {of.precision} digits") from failure
    return values


def _intervals(spans: Spans, of: Type, where: str) -> pa.Array[Any]:
    if bool((spans.sizes != _INTERVAL_BYTES).any()):
        raise CorruptError(f"{where}: an interval is not of {_INTERVAL_BYTES} bytes")
    micros = spans.places.load("<i8", 8)
    if bool(((micros > _MAX_MICROS) | (micros < -_MAX_MICROS)).any()):
        raise UnsupportedStateError(
            f"{where}: the time of an interval is over 292 years, the most that Arrow can hold",
            next_step="read this state through Spark's statestore source",
        )
    months_and_days = spans.places.load("<i8")
    values = np.stack([months_and_days, micros * _NANOS_PER_MICRO], axis=1)
    return _array(of, len(spans), None, values)


def _variants(spans: Spans, of: Type, where: str) -> pa.Array[Any]:
    spans.require(4, where)
    ends = spans.starts + 4 + spans.places.load("<i4").astype(np.int64)
    if bool(((ends < spans.starts + 4) | (ends > spans.ends)).any()):
        raise CorruptError(f"{where}: a variant's value is longer than the variant")
    children = [
        Spans(spans.data, spans.starts + 4, ends).binary(),
        Spans(spans.data, ends, spans.ends).binary(),
    ]
    return pa.Array.from_buffers(of.arrow, len(spans), [None], children=children)


def _elements(arrays: Spans, element: Field, where: str) -> tuple[Int64s, pa.Array[Any]]:
    """Return where the elements of each array begin, and one array of all elements."""
    arrays.require(_WORD, where)
    counts = arrays.places.load("<i8")
    sizes = arrays.sizes
    # An element has one bit at least: first the counts that could overflow.
    if bool(((counts < 0) | (counts > 8 * sizes)).any()):
        raise CorruptError(f"{where}: an array has more elements than bytes for them")
    heads = _WORD + (counts + 63) // 64 * _WORD
    width = element.type.element_width
    floors = heads + width * counts
    if bool((floors > sizes).any()):
        raise CorruptError(f"{where}: an array has more elements than bytes for them")
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    owners = np.repeat(np.arange(len(arrays)), counts)
    bases = arrays.starts[owners]
    indexes = np.arange(offsets[-1]) - offsets[owners]
    are_null = Places(arrays.data, bases, None).bits(indexes, _WORD)
    slots = _Slots(
        Places(arrays.data, bases + heads[owners] + width * indexes, None),
        ~are_null if bool(are_null.any()) else None,
        bases,
        floors[owners],
        arrays.ends[owners],
    )
    return offsets, _decode(slots, element.type, where)


def _maps(spans: Spans, of: Map, where: str) -> pa.Array[Any]:
    spans.require(_WORD, where)
    sizes = spans.places.load("<i8")
    if bool(((sizes < 0) | (sizes > spans.sizes - _WORD)).any()):
        raise CorruptError(f"{where}: the keys of a map are longer than the map")
    middles = spans.starts + _WORD + sizes
    key, value = of.entries.fields
    offsets, keys = _elements(Spans(spans.data, spans.starts + _WORD, middles), key, where)
    value_offsets, values = _elements(Spans(spans.data, middles, spans.ends), value, where)
    if not np.array_equal(offsets, value_offsets):
        raise CorruptError(f"{where}: a map has not as many values as keys")
    if keys.null_count:
        raise CorruptError(f"{where}: a key of a map is null")
    if len(keys) > _MAX_MAP_ENTRIES:
        raise UnsupportedStateError(f"{where}: one batch has more than 2^31 entries of maps")
    children = [keys, values]
    entries = pa.Array.from_buffers(of.entries.arrow, len(keys), [None], children=children)
    return _array(of, len(spans), None, offsets.astype(np.int32), children=[entries])


_DECODERS: dict[type[Type], Callable[[Spans, Any, str], pa.Array[Any]]] = {
    Bytes: _bytes,
    Decimal: _large_decimals,
    CalendarInterval: _intervals,
    Variant: _variants,
    Struct: _structs,
    Array: _arrays,
    Map: _maps,
}
