"""UnsafeRows, byte by byte: rows that Spark stored, and rows that do not fit their schema."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, DataError, UnsupportedStateError
from cairn.reader.rows.spans import Spans
from cairn.reader.rows.types import struct_of
from cairn.reader.rows.unsafe_row import decode_rows


def columns(rows: list[bytes], *types: Any) -> list[list[Any]]:  # noqa: ANN401 - Spark's JSON
    """Return the values of each column, checked by Arrow."""
    fields = [{"name": f"c{index}", "type": of} for index, of in enumerate(types)]
    schema = struct_of({"type": "struct", "fields": fields})
    spans = Spans.of(pa.array(rows, pa.large_binary()))
    arrays = decode_rows(spans, schema.fields, "a row")
    for array, field in zip(arrays, schema.fields, strict=True):
        array.validate(full=True)
        assert array.type == field.type.arrow
    return [array.to_pylist() for array in arrays]


def row(*words: int | bytes, nulls: int = 0, tail: bytes = b"") -> bytes:
    """Return a row of up to 64 columns."""
    slots = [w if isinstance(w, bytes) else struct.pack("<q", w) for w in words]
    return struct.pack("<Q", nulls) + b"".join(slots) + tail


def at(size: int, offset: int) -> bytes:
    return struct.pack("<II", size, offset)


LONGS = {"type": "array", "elementType": "long", "containsNull": True}
TEXTS = {"type": "array", "elementType": "string", "containsNull": True}
VOIDS = {"type": "array", "elementType": "void", "containsNull": True}
COUNTS = {"type": "map", "keyType": "integer", "valueType": "long", "valueContainsNull": True}


def test_a_session_of_spark_3_2() -> None:
    """The key of a session window: two texts and its start."""
    key = bytes.fromhex(
        "0000000000000000 0500000020000000 0400000028000000 409c710200000000"
        "68656c6c6f000000 6b65793200000000"
    )

    session, user, start = columns([key], "string", "string", "timestamp")

    assert (session, user) == (["hello"], ["key2"])
    assert [time.isoformat() for time in start] == ["1970-01-01T00:00:41+00:00"]


def test_a_struct_in_a_row_of_spark_3_2() -> None:
    """The value of the same session: a struct of its start and end comes first."""
    value = bytes.fromhex(
        "0000000000000000 1800000028000000 0500000040000000 0400000048000000 0100000000000000"
        "0000000000000000 409c710200000000 c0320a0300000000 68656c6c6f000000 6b65793200000000"
    )
    window = {
        "type": "struct",
        "fields": [{"name": "start", "type": "long"}, {"name": "end", "type": "long"}],
    }

    found = columns([value], window, "string", "string", "long")

    assert found == [[{"start": 41_000_000, "end": 51_000_000}], ["hello"], ["key2"], [1]]


def test_rows_of_several_lengths() -> None:
    """Their columns are gathered, and those of rows of one length are read in steps."""
    rows = [
        row(at(1, 24), 5, tail=b"a".ljust(8, b"\0")),
        row(at(9, 24), 6, tail=b"123456789".ljust(16, b"\0")),
        row(at(0, 24), 7),
        row(0, 8, nulls=1),
    ]

    assert columns(rows, "string", "long") == [["a", "123456789", "", None], [5, 6, 7, 8]]


def test_only_the_low_bytes_of_a_word_count() -> None:
    """Spark leaves old bytes above a value that it changes in place."""
    word = b"\x01\x02\x03\x04" + b"\xff" * 4

    found = columns([row(word, word, word, word)], "boolean", "byte", "short", "integer")

    assert found == [[True], [1], [0x0201], [0x04030201]]


def test_a_null_hides_what_its_word_has() -> None:
    """A null text may have any offset, and a null decimal of 19 digits keeps its place."""
    found = columns(
        [row(at(99, 9999), at(0, 24), nulls=3, tail=bytes(16))], "string", "decimal(19,0)"
    )

    assert found == [[None], [None]]


def test_an_array_in_a_row() -> None:
    """collect_list keeps its values in an array."""
    array = struct.pack("<qQqqq", 3, 0b010, 7, 0, -1)

    assert columns([row(at(40, 16), tail=array)], LONGS) == [[[7, None, -1]]]


def test_a_map_in_a_row() -> None:
    """An array of keys of four bytes each, and an array of values."""
    keys = struct.pack("<qQii", 2, 0, 1, 2)
    values = struct.pack("<qQqq", 2, 0b10, 10, 0)
    data = struct.pack("<q", len(keys)) + keys + values

    assert columns([row(at(len(data), 16), tail=data)], COUNTS) == [[[(1, 10), (2, None)]]]


def test_an_interval_has_months_days_and_microseconds() -> None:
    """Arrow counts nanoseconds."""
    (intervals,) = columns([row(at(16, 16), tail=struct.pack("<iiq", 14, -3, 5))], "interval")

    assert [tuple(interval) for interval in intervals] == [(14, -3, 5000)]


def test_an_interval_that_arrow_cannot_hold_is_refused() -> None:
    """Microseconds times 1000 would become another time."""
    data = row(at(16, 16), tail=struct.pack("<iiq", 0, 0, 1 << 61))

    with pytest.raises(UnsupportedStateError, match="292 years"):
        columns([data], "interval")


def test_a_text_that_is_not_utf8_is_no_damage() -> None:
    """Spark's cast of binary to string stores any bytes."""
    data = row(at(1, 16), tail=b"\xff".ljust(8, b"\0"))

    with pytest.raises(UnsupportedStateError, match="column 'c0': a text is not UTF-8") as raised:
        columns([data], "string")

    assert "binary" in str(raised.value.next_step)


def test_a_large_decimal_of_each_length() -> None:
    """Java writes as few bytes as keep the sign."""
    numbers = [0, -1, 127, 128, -128, -129, 10**19 - 1, -(10**19) + 1]
    rows = []
    for number in numbers:
        size = (number if number >= 0 else ~number).bit_length() // 8 + 1
        data = number.to_bytes(size, "big", signed=True)
        rows.append(row(at(size, 16), tail=data.ljust(16, b"\0")))

    (found,) = columns(rows, "decimal(19,0)")

    assert list(map(int, found)) == numbers


def test_no_rows_are_columns_without_values() -> None:
    """An empty partition has columns, too."""
    types = ("long", "string", LONGS, COUNTS, "decimal(38,0)", "variant", "interval")

    assert columns([], *types) == [[]] * len(types)


DAMAGED: list[tuple[str, bytes, Any]] = [
    ("shorter than its columns", row(1)[:-1], "long"),
    ("empty", b"", "long"),
    ("text before the tail", row(at(8, 8)), "string"),
    ("text at the start of the row", row(at(8, 0)), "string"),
    ("text behind the row", row(at(9, 16), tail=bytes(8)), "string"),
    ("text far behind the row", row(at(1, 0xFFFFFFFF)), "string"),
    ("text of four gigabytes", row(at(0xFFFFFFFF, 16), tail=bytes(8)), "string"),
    ("time of a negative number", row(-1), "time(6)"),
    ("time of more than a day", row(86_400 * 10**9), "time(6)"),
    ("decimal of more digits", row(1000), "decimal(3,0)"),
    ("negative decimal of more digits", row(-1000), "decimal(3,0)"),
    ("least number as a decimal", row(-(2**63)), "decimal(18,0)"),
    (
        "large decimal of more digits",
        row(at(9, 16), tail=(10**19).to_bytes(9, "big").ljust(16, b"\0")),
        "decimal(19,0)",
    ),
    ("decimal of 17 bytes", row(at(17, 16), tail=bytes(24)), "decimal(38,0)"),
    ("decimal of no bytes", row(at(0, 16), tail=bytes(16)), "decimal(38,0)"),
    ("interval of 8 bytes", row(at(8, 16), tail=bytes(16)), "interval"),
    ("variant of 3 bytes", row(at(3, 16), tail=bytes(8)), "variant"),
    ("variant with a long value", row(at(8, 16), tail=struct.pack("<ii", 5, 0)), "variant"),
    ("variant with a negative length", row(at(8, 16), tail=struct.pack("<ii", -1, 0)), "variant"),
    ("array of 7 bytes", row(at(7, 16), tail=bytes(8)), LONGS),
    ("array without its elements", row(at(16, 16), tail=struct.pack("<qQ", 1, 0)), LONGS),
    ("array of -1 elements", row(at(16, 16), tail=struct.pack("<qQ", -1, 0)), LONGS),
    ("array of 2^63-1 elements", row(at(16, 16), tail=struct.pack("<qQ", 2**63 - 1, 0)), LONGS),
    ("array of 2^61 elements", row(at(16, 16), tail=struct.pack("<qQ", 2**61, 0)), VOIDS),
    (
        "element in front of the elements",
        row(at(32, 16), tail=struct.pack("<qQ", 1, 0) + at(8, 8) + bytes(8)),
        TEXTS,
    ),
    (
        "elements that share bytes",
        row(at(40, 16), tail=struct.pack("<qQ", 2, 0) + at(8, 32) + at(8, 32) + bytes(8)),
        TEXTS,
    ),
    ("map of 4 bytes", row(at(4, 16), tail=bytes(8)), COUNTS),
    ("map with long keys", row(at(24, 16), tail=struct.pack("<qqq", 17, 0, 0)), COUNTS),
    ("map with keys of -1 bytes", row(at(24, 16), tail=struct.pack("<qqq", -1, 0, 0)), COUNTS),
    (
        "map with fewer values than keys",
        row(at(40, 16), tail=struct.pack("<qqQiiq", 24, 2, 0, 1, 2, 0)),
        COUNTS,
    ),
    (
        "map with a null key",
        row(
            at(56, 16),
            tail=struct.pack("<qqQii", 24, 1, 1, 0, 0) + struct.pack("<qQq", 1, 0, 5),
        ),
        COUNTS,
    ),
]


@pytest.mark.parametrize(
    ("data", "of"), [each[1:] for each in DAMAGED], ids=[d[0] for d in DAMAGED]
)
def test_a_row_that_does_not_fit_is_corrupt(data: bytes, of: Any) -> None:  # noqa: ANN401
    """Never a wrong value, and never bytes of another row."""
    whole = row(0, nulls=1)

    with pytest.raises(CorruptError):
        columns([whole, data, whole], of)


def test_a_row_among_others_cannot_take_their_bytes() -> None:
    """A length that ends in the next row is as wrong as one that ends behind all rows."""
    secret = row(at(6, 16), tail=b"secret".ljust(8, b"\0"))

    with pytest.raises(CorruptError, match="outside its row"):
        columns([row(at(30, 16), tail=bytes(8)), secret], "string")


def test_many_elements_of_the_same_bytes_take_no_memory() -> None:
    """Ten thousand elements that each claim the same megabyte would be ten gigabytes."""
    count, shared = 10_000, 1 << 20
    head = struct.pack("<q", count) + bytes((count + 63) // 64 * 8)
    body = len(head) + 8 * count
    array = head + at(shared, body) * count + bytes(shared)
    data = row(at(len(array), 16), tail=array)
    tracemalloc.start()

    with pytest.raises(CorruptError, match="share bytes"):
        columns([data], TEXTS)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * len(data)


def test_an_error_names_the_column_and_no_value() -> None:
    """The message goes into logs; a value may be a secret."""
    outer = {"type": "struct", "fields": [{"name": "inner", "type": "string"}]}
    inner = row(at(99, 16), tail=b"password")
    data = row(at(len(inner), 16), tail=inner)

    with pytest.raises(DataError) as caught:
        columns([data], outer)

    assert "column 'c0', column 'inner'" in str(caught.value)
    assert "password" not in str(caught.value)
