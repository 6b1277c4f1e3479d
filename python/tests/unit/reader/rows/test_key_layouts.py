"""Layouts of keys: the bytes of Spark's encoders, and what does not fit them."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, UnsupportedStateError
from cairn.reader.rows.decoder import RowDecoder
from cairn.reader.rows.stored import RowForm, StoredRows
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder

SPARK = RowForm("unsaferow", is_bare=False, is_list=False)
CAIRN = RowForm("unsaferow", is_bare=False, is_list=False, booleans_as_bytes=True)
VALUE: dict[str, Any] = {"type": "struct", "fields": []}


def read(types: list[str], encoder: KeyEncoder, form: RowForm = SPARK) -> RowDecoder:
    fields = [{"name": f"k{index}", "type": of} for index, of in enumerate(types)]
    return RowDecoder(FamilySchema("f", {"type": "struct", "fields": fields}, VALUE, encoder), form)


def keys_of(decoder: RowDecoder, *keys: bytes) -> list[tuple[Any, ...]]:
    values = pa.array([b"\0"] * len(keys), pa.large_binary())
    batch, _, _ = decoder.decode(StoredRows(pa.array(keys, pa.large_binary()), values))
    batch.validate(full=True)
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def long_row(*numbers: int) -> bytes:
    return b"\0" + bytes(8) + struct.pack(f"<{len(numbers)}q", *numbers)


def test_columns_return_to_the_order_of_the_schema() -> None:
    """Spark moves the ordered columns to the front of a key."""
    decoder = read(["long", "integer", "long"], KeyEncoder("RangeScan", ordinals=(2, 1)))
    ordered = (
        b"\0"
        + bytes(8)
        + struct.pack("<IIII", 9, 24, 5, 40)
        + struct.pack(">Bq", 0, -7).ljust(16, b"\0")
        + struct.pack(">Bi", 1, 6).ljust(8, b"\0")
    )
    key = struct.pack("<i", len(ordered)) + ordered + long_row(5)

    assert keys_of(decoder, key) == [(5, 6, -7)]
    assert decoder.encode_key([5, 6, -7]) == key


def test_a_key_of_ordered_columns_alone_has_one_part() -> None:
    """Spark writes no second row then."""
    decoder = read(["short"], KeyEncoder("RangeScan", ordinals=(0,)))
    key = decoder.encode_key([-2])

    assert key.hex() == "19000000" + "00" * 9 + "0300000010000000" + "00fffe0000000000"
    assert keys_of(decoder, key, decoder.encode_key([None])) == [(-2,), (None,)]
    with pytest.raises(CorruptError, match="after its only part"):
        keys_of(decoder, key + b"\0")


@pytest.mark.parametrize(("value", "cell"), [(False, "0100"), (True, "0101"), (None, "0200")])
def test_cairn_stores_an_ordered_boolean_as_a_byte(value: object, cell: str) -> None:
    """Cairn's shim declares it as one, so that its value is kept."""
    decoder = read(["boolean"], KeyEncoder("RangeScan", ordinals=(0,)), CAIRN)

    key = decoder.encode_key([value])

    assert key[-8:-6].hex() == cell
    assert keys_of(decoder, key) == [(value,)]


def test_an_ordered_boolean_of_spark_is_refused() -> None:
    """Spark stores nothing of it: true and false look the same."""
    with pytest.raises(UnsupportedStateError, match="'k1'"):
        read(["long", "boolean"], KeyEncoder("RangeScan", ordinals=(1,)))


@pytest.mark.parametrize(
    "cell",
    ["0300000000", "0080000000", "0180000000", "0000000001", "01000000", "010000000000"],
)
def test_an_ordered_number_that_contradicts_its_marker_is_corrupt(cell: str) -> None:
    """A negative number has the marker 0, and a key of another length is none."""
    decoder = read(["integer"], KeyEncoder("RangeScan", ordinals=(0,)))
    data = bytes.fromhex(cell)
    part = b"\0" + bytes(8) + struct.pack("<II", len(data), 16) + data.ljust(8, b"\0")
    is_whole = cell == "0080000000"

    if is_whole:
        assert keys_of(decoder, struct.pack("<i", len(part)) + part) == [(-(2**31),)]
    else:
        with pytest.raises(CorruptError, match="ordered value"):
            keys_of(decoder, struct.pack("<i", len(part)) + part)


@pytest.mark.parametrize("value", [-0.0, 0.0, 1.5, -1.5, float("inf"), float("-inf"), None])
@pytest.mark.parametrize("of", ["float", "double"])
def test_ordered_floats_sort_as_their_bytes(of: str, value: float | None) -> None:
    """Negative floats are inverted, so that the largest magnitude comes first."""
    decoder = read([of], KeyEncoder("RangeScan", ordinals=(0,)))

    ((found,),) = keys_of(decoder, decoder.encode_key([value]))

    assert repr(found) == repr(value)
    keys = [decoder.encode_key([each]) for each in (float("-inf"), -1.5, -0.0, 0.0, 1.5, None)]
    assert keys == sorted(keys)


@pytest.mark.parametrize(("time", "stored"), [(0, "80"), (-1, "7fffffffffffffff"), (1, "80")])
def test_an_event_time_before_1970_comes_first(time: int, stored: str) -> None:
    """The sign bit is inverted."""
    first = read(["string", "long"], KeyEncoder("TsPrefix"))
    last = read(["string", "long"], KeyEncoder("TsPostfix"))

    keys = [first.encode_key(["a", time]), last.encode_key(["a", time])]

    assert keys[0][:8].hex().startswith(stored)
    assert keys[0][:8] == keys[1][-8:]
    assert keys_of(first, keys[0]) == keys_of(last, keys[1]) == [("a", time)]


def test_a_key_without_an_event_time_cannot_be_looked_up() -> None:
    """Spark has no null there."""
    with pytest.raises(UnsupportedStateError, match="null"):
        read(["long"], KeyEncoder("TsPrefix")).encode_key([None])


@pytest.mark.parametrize(
    ("types", "encoder"),
    [
        (["long"], KeyEncoder("PrefixScan", prefix_columns=1)),
        (["long", "long"], KeyEncoder("PrefixScan", prefix_columns=0)),
        (["long"], KeyEncoder("RangeScan", ordinals=())),
        (["long"], KeyEncoder("RangeScan", ordinals=(1,))),
        (["long"], KeyEncoder("RangeScan", ordinals=(-1,))),
        (["long", "long"], KeyEncoder("RangeScan", ordinals=(0, 0))),
        ([], KeyEncoder("TsPrefix")),
        (["long", "string"], KeyEncoder("TsPostfix")),
    ],
)
def test_an_encoder_that_does_not_fit_the_schema_is_corrupt(
    types: list[str], encoder: KeyEncoder
) -> None:
    """A column that does not exist cannot order keys."""
    with pytest.raises(CorruptError):
        read(types, encoder)


def test_an_encoder_of_a_newer_spark_is_refused() -> None:
    """Its keys have an unknown form."""
    with pytest.raises(UnsupportedStateError, match="Zorder"):
        read(["long"], KeyEncoder("Zorder"))


def test_a_type_without_an_order_is_refused() -> None:
    """Spark orders numbers alone."""
    with pytest.raises(UnsupportedStateError, match="'k0'"):
        read(["date"], KeyEncoder("RangeScan", ordinals=(0,)))


@pytest.mark.parametrize("length", [-1, 18, 2**31 - 1, -(2**31)])
def test_a_first_part_that_ends_outside_the_key_is_corrupt(length: int) -> None:
    """It could reach into the next key."""
    decoder = read(["long", "long"], KeyEncoder("PrefixScan", prefix_columns=1))
    key = struct.pack("<i", length) + long_row(1)

    with pytest.raises(CorruptError):
        keys_of(decoder, key, decoder.encode_key([1, 2]))


@pytest.mark.parametrize("kind", ["TsPrefix", "TsPostfix", "PrefixScan"])
def test_a_key_that_is_shorter_than_its_layout_is_corrupt(kind: str) -> None:
    """Seven bytes are no event time, and three are no length."""
    decoder = read(["long", "long"], KeyEncoder(kind, prefix_columns=1))

    with pytest.raises(CorruptError):
        keys_of(decoder, b"\0\0\0")


def test_a_row_of_another_version_is_refused() -> None:
    """Spark has had version 0 alone; another one has an unknown form."""
    decoder = read(["long"], KeyEncoder("NoPrefix"))

    with pytest.raises(UnsupportedStateError, match="version"):
        keys_of(decoder, b"\1" + long_row(1)[1:])
