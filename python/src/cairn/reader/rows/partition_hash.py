"""The partition of a key: Spark's Murmur3 of its columns, modulo the number of partitions.

Layer: reader.rows.

    h := 42 ; for each column in turn, unless the value is null: h := hash(value, h)
    bool, integers of up to 32 bits, date: hash of one block
    integers of 64 bits, timestamp, time, duration, decimal of up to 18 digits: the low block, then
        the high one
    float, double: their bits; -0.0 as 0.0, every NaN as one
    text, binary: the whole blocks, then each byte that is left as a block of its own, signed
    decimal of over 18 digits: the bytes of the unscaled number, as few as keep the sign
    calendar interval: the microseconds, the days, the months
    struct, list, map: the hash of its fields, elements, or keys and values, each over the last

A hash ends with the number of bytes and a final mix. Only the tail of a text makes it another
Murmur3 than the standard one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cairn.errors import UnsupportedStateError
from cairn.reader.rows.spans import Places, Spans
from cairn.reader.rows.types import MAX_LONG_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Hashes = NDArray[np.uint32]
    Column = Any  # an array; the stubs lack the methods of some kinds

_SEED = 42
_LONG_BYTES = 8
_DECIMAL_BYTES = 16
_NANOS_PER_MICRO = 1000


def partition_of(columns: Sequence[pa.Array[Any]], partitions: int) -> NDArray[np.int32]:
    """Return the partition of each row, as Spark's hash partitioning has it.

    Args:
        columns: the partitioning columns, of equal length.
        partitions: how many there are.

    Raises:
        UnsupportedStateError: a column has a type that is not the reader's.
    """
    return np.mod(spark_hash(columns).view(np.int32), np.int32(partitions))


def spark_hash(columns: Sequence[pa.Array[Any]], seed: int = _SEED) -> Hashes:
    """Return Spark's ``hash`` of each row, unsigned.

    Raises:
        UnsupportedStateError: a column has a type that is not the reader's.
    """
    hashes = np.full(len(columns[0]) if columns else 0, seed, np.uint32)
    # Products and sums wrap.
    with np.errstate(over="ignore"):
        for column in columns:
            hashes = _fold(column, hashes)
    return hashes


def has_hash(of: pa.DataType) -> bool:
    """Return whether the hash of values of a type is known."""
    kind: Any = of
    if pa.types.is_null(kind):
        return True
    if pa.types.is_struct(kind):
        return all(has_hash(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_map(kind):
        return has_hash(kind.key_type) and has_hash(kind.item_type)
    if pa.types.is_large_list(kind):
        return has_hash(kind.value_type)
    return any(is_type(kind) for is_type, _ in _HASHES)


def _fold(column: pa.Array[Any], hashes: Hashes) -> Hashes:
    """Return the hashes after one more column."""
    if column.null_count == len(column):
        return hashes
    hash_of = next((found for is_type, found in _HASHES if is_type(column.type)), None)
    if hash_of is None:
        raise UnsupportedStateError(f"the reader knows no hash for values of {column.type}")
    if not column.null_count:
        return hash_of(column, hashes)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    result = hashes.copy()
    result[valid] = hash_of(column.drop_null(), hashes[valid])
    return result


def _stored(column: pa.Array[Any], dtype: np.dtype[Any], per_value: int = 1) -> NDArray[Any]:
    """Return the numbers in the buffer of a column of fixed width."""
    data = np.frombuffer(memoryview(column.buffers()[1] or b""), dtype)
    return data[column.offset * per_value : (column.offset + len(column)) * per_value]


def _hash_booleans(column: Column, hashes: Hashes) -> Hashes:
    return _hash_int(column.cast(pa.int8()).to_numpy(), hashes)


def _hash_texts(column: Column, hashes: Hashes) -> Hashes:
    return _hash_bytes(Spans.of(column), hashes)


def _hash_numbers(column: Column, hashes: Hashes) -> Hashes:
    width = column.type.bit_width // 8
    numbers = _stored(column, np.dtype(f"i{width}"))
    return _hash_long(numbers, hashes) if width == _LONG_BYTES else _hash_int(numbers, hashes)


def _hash_structs(column: Column, hashes: Hashes) -> Hashes:
    for child in column.flatten():
        hashes = _fold(child, hashes)
    return hashes


def _hash_lists(column: Column, hashes: Hashes) -> Hashes:
    return _hash_elements(column.offsets, [column.values], hashes)


def _hash_maps(column: Column, hashes: Hashes) -> Hashes:
    return _hash_elements(column.offsets, [column.keys, column.items], hashes)


def _hash_elements(offsets: Column, parts: list[pa.Array[Any]], hashes: Hashes) -> Hashes:
    starts = offsets.to_numpy().astype(np.int64)
    counts = starts[1:] - starts[:-1]
    result = hashes.copy()
    for index in range(int(counts.max())):
        (longer,) = np.nonzero(counts > index)
        for part in parts:
            chosen = part.take(pa.array(starts[longer] + index))
            result[longer] = _fold(chosen, result[longer])
    return result


def _hash_floats(column: Column, hashes: Hashes) -> Hashes:
    values = column.to_numpy() + 0.0  # -0.0 becomes 0.0
    values[np.isnan(values)] = np.nan
    if values.dtype == np.float32:
        return _hash_int(values.view(np.int32), hashes)
    return _hash_long(values.view(np.int64), hashes)


def _hash_decimals(column: Column, hashes: Hashes) -> Hashes:
    halves = _stored(column, np.dtype("<i8"), 2)
    if column.type.precision <= MAX_LONG_DIGITS:
        return _hash_long(halves[0::2], hashes)
    cells = halves.view(np.uint8).reshape(-1, _DECIMAL_BYTES)[:, ::-1].copy()
    has_sign = cells[:, :1] >> 7
    spare = cells == np.where(has_sign, np.uint8(0xFF), np.uint8(0))
    # The first byte must have the sign: one that is spare may go if the next byte has it, too.
    may_go = spare[:, :-1] & (cells[:, 1:] >> 7 == has_sign)
    gone = np.logical_and.accumulate(may_go, axis=1).sum(axis=1)
    ends = np.arange(1, len(cells) + 1) * _DECIMAL_BYTES
    return _hash_bytes(Spans(cells.reshape(-1), ends - _DECIMAL_BYTES + gone, ends), hashes)


def _hash_intervals(column: Column, hashes: Hashes) -> Hashes:
    halves = _stored(column, np.dtype("<i8"), 2)
    months_and_days = halves[0::2].copy().view(np.int32)
    hashes = _hash_long(halves[1::2] // _NANOS_PER_MICRO, hashes)
    hashes = _hash_int(months_and_days[1::2], hashes)
    return _hash_int(months_and_days[0::2], hashes)


def _hash_int(values: NDArray[Any], hashes: Hashes) -> Hashes:
    return _finish(_mix(hashes, _blocks(values)), 4)


def _hash_long(values: NDArray[Any], hashes: Hashes) -> Hashes:
    bits = np.ascontiguousarray(values, np.int64).view(np.uint32)
    return _finish(_mix(_mix(hashes, bits[0::2]), bits[1::2]), 8)


def _hash_bytes(texts: Spans, hashes: Hashes) -> Hashes:
    sizes = texts.sizes
    result = hashes.copy()
    rows = np.arange(len(texts))
    whole = sizes // 4
    for block in range(int(whole.max())):
        longer = rows[whole > block]
        places = Places(texts.data, texts.starts[longer] + 4 * block, None)
        result[longer] = _mix(result[longer], places.load("<u4"))
    for byte in range(3):
        longer = rows[sizes % 4 > byte]
        places = Places(texts.data, texts.starts[longer] + 4 * whole[longer] + byte, None)
        result[longer] = _mix(result[longer], _blocks(places.load("i1")))
    return _finish(result, sizes.astype(np.uint32))


def _blocks(values: NDArray[Any]) -> Hashes:
    return values.astype(np.int32).view(np.uint32)


def _mix(hashes: Hashes, blocks: Hashes) -> Hashes:
    mixed = _rotated(blocks * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _rotated(values: Hashes, by: int) -> Hashes:
    return (values << np.uint32(by)) | (values >> np.uint32(32 - by))


def _finish(hashes: Hashes, sizes: int | Hashes) -> Hashes:
    hashes = hashes ^ np.asarray(sizes, np.uint32)
    hashes ^= hashes >> np.uint32(16)
    hashes *= np.uint32(0x85EBCA6B)
    hashes ^= hashes >> np.uint32(13)
    hashes *= np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


# The columns have no nulls and at least one row. The first type that fits counts.
_HASHES: tuple[tuple[Callable[[Any], bool], Callable[[Column, Hashes], Hashes]], ...] = (
    (pa.types.is_boolean, _hash_booleans),
    (pa.types.is_large_string, _hash_texts),
    (pa.types.is_large_binary, _hash_texts),
    (pa.types.is_floating, _hash_floats),
    (pa.types.is_decimal128, _hash_decimals),
    (lambda of: of == pa.month_day_nano_interval(), _hash_intervals),
    (pa.types.is_primitive, _hash_numbers),
    (pa.types.is_struct, _hash_structs),
    (pa.types.is_large_list, _hash_lists),
    (pa.types.is_map, _hash_maps),
)
