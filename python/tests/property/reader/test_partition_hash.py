"""The hash of a key against a second implementation, one value at a time."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings

from cairn.reader.rows.partition_hash import partition_of, spark_hash
from harness.spark_rows import TYPES, Json, Table, Value, java_bytes, tables, unscaled

assert settings.default is not None
EXAMPLES = settings.default.max_examples
MASK = 0xFFFFFFFF
LONGS = {"long", "timestamp", "timestamp_ntz", "time(6)", "interval day to second"}
INTS = {"byte", "short", "integer", "date", "interval year to month", "boolean"}


def rotated(number: int, by: int) -> int:
    return (number << by | number >> (32 - by)) & MASK


def mixed(seed: int, block: int) -> int:
    block = rotated(block * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    return (rotated(seed ^ block, 13) * 5 + 0xE6546B64) & MASK


def finished(number: int, length: int) -> int:
    number ^= length
    number = (number ^ number >> 16) * 0x85EBCA6B & MASK
    number = (number ^ number >> 13) * 0xC2B2AE35 & MASK
    return number ^ number >> 16


def hash_int(value: int, seed: int) -> int:
    return finished(mixed(seed, value & MASK), 4)


def hash_long(value: int, seed: int) -> int:
    return finished(mixed(mixed(seed, value & MASK), value >> 32 & MASK), 8)


def hash_bytes(data: bytes, seed: int) -> int:
    whole = len(data) // 4 * 4
    for (block,) in struct.iter_unpack("<I", data[:whole]):
        seed = mixed(seed, block)
    for (byte,) in struct.iter_unpack("b", data[whole:]):
        seed = mixed(seed, byte & MASK)
    return finished(seed, len(data))


def hash_of(value: Value, of: Json, seed: int) -> int:  # noqa: PLR0911 - a table
    """Return the hash of a value over another."""
    if value is None:
        return seed
    if not isinstance(of, str):
        return hash_nested(value, of, seed)
    if of in INTS:
        return hash_int(int(value), seed)
    if of in LONGS:
        return hash_long(value, seed)
    if of == "float":
        return hash_int(struct.unpack("<i", struct.pack("<f", value + 0.0))[0], seed)
    if of == "double":
        return hash_long(struct.unpack("<q", struct.pack("<d", value + 0.0))[0], seed)
    if of == "string":
        return hash_bytes(value.encode(), seed)
    if of == "binary":
        return hash_bytes(value, seed)
    if of == "interval":
        months, days, nanos = value
        return hash_int(months, hash_int(days, hash_long(nanos // 1000, seed)))
    precision, scale = map(int, of[len("decimal(") : -1].split(","))
    number = unscaled(value, scale)
    return hash_long(number, seed) if precision <= 18 else hash_bytes(java_bytes(number), seed)


def hash_nested(value: Value, of: Json, seed: int) -> int:
    parts: list[tuple[Any, Json]]
    if of["type"] == "struct":
        parts = [(value[field["name"]], field["type"]) for field in of["fields"]]
    elif of["type"] == "array":
        parts = [(each, of["elementType"]) for each in value]
    else:
        pairs = [((key, of["keyType"]), (each, of["valueType"])) for key, each in value]
        parts = [part for pair in pairs for part in pair]
    for part, part_type in parts:
        seed = hash_of(part, part_type, seed)
    return seed


@given(tables(types=TYPES.filter(lambda of: "variant" not in str(of.json)), min_columns=1))
@settings(max_examples=2 * EXAMPLES)
def test_the_hash_is_that_of_one_value_after_the_other(table: Table) -> None:
    """A wrong partition would say of a key that it has no state."""
    expected = []
    for row in table.rows:
        seed = 42
        for value, of in zip(row, table.types, strict=True):
            seed = hash_of(value, of.json, seed)
        expected.append(seed)

    assert spark_hash(table.columns).tolist() == expected
    signed = [number - (1 << 32) if number >> 31 else number for number in expected]
    assert partition_of(table.columns, 7).tolist() == [number % 7 for number in signed]
