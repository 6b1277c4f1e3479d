"""Schema files of every version give the types of each family, or an error."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from cairn.errors import CorruptError, FormatVersionError, MissingError, UnsupportedStateError
from cairn.reader.spark.operators import Operator, OperatorStore
from cairn.reader.spark.schema_files import (
    FamilySchema,
    KeyEncoder,
    parse_schema_file,
    read_families,
)
from cairn.storage.memory import MemoryStore

# The schema file of a limit, by Spark 4.3.0.
LIMIT_OF_SPARK = bytes.fromhex(
    "000276320000000100577b2274797065223a22737472756374222c226669656c6473223a5b7b226e616d6522"
    "3a226b6579222c2274797065223a22766f6964222c226e756c6c61626c65223a747275652c226d6574616461"
    "7461223a7b7d7d5d7d0000000100597b2274797065223a22737472756374222c226669656c6473223a5b7b22"
    "6e616d65223a2276616c7565222c2274797065223a226c6f6e67222c226e756c6c61626c65223a747275652c"
    "226d65746164617461223a7b7d7d5d7d"
)
# That of a value state, by Spark before its release 4.0: there are no ids.
VALUE_OF_PRE_RELEASE = bytes.fromhex(
    "0002763300000001000a636f756e74537461746500000001005b7b2274797065223a22737472756374222c22"
    "6669656c6473223a5b7b226e616d65223a2276616c7565222c2274797065223a22737472696e67222c226e75"
    "6c6c61626c65223a747275652c226d65746164617461223a7b7d7d5d7d00000001005a7b2274797065223a22"
    "737472756374222c226669656c6473223a5b7b226e616d65223a2276616c7565222c2274797065223a226c6f"
    "6e67222c226e756c6c61626c65223a66616c73652c226d65746164617461223a7b7d7d5d7d0000000100357b"
    "226b65795374617465456e636f64657254797065223a224e6f5072656669784b65795374617465456e636f64"
    "657253706563227d0000000100067b202020207d"
)
NO_PREFIX = {"keyStateEncoderType": "NoPrefixKeyStateEncoderSpec"}


def field(name: str, kind: object = "long") -> dict[str, Any]:
    """Return a column as Spark stores it."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def row(*names: str) -> dict[str, Any]:
    """Return a struct of numbers."""
    return {"type": "struct", "fields": [field(name) for name in names]}


def utf(text: str) -> bytes:
    """Return a short text."""
    return struct.pack(">H", len(text)) + text.encode("ascii")


def texts(*parts: str) -> bytes:
    """Return a text in parts."""
    return struct.pack(">i", len(parts)) + b"".join(map(utf, parts))


def json_texts(value: object) -> bytes:
    """Return JSON in one part."""
    return texts(json.dumps(value))


def family(
    name: str,
    key: dict[str, Any],
    value: dict[str, Any],
    encoder: dict[str, Any] | None = None,
    *,
    ids: tuple[int, int] | None = (0, 0),
    user_key: dict[str, Any] | None = None,
) -> bytes:
    """Return a family of a file of version 3; without ``ids`` as before the release."""
    key_id, value_id = (struct.pack(">h", one) for one in ids) if ids else (b"", b"")
    end = json_texts(encoder or NO_PREFIX) + texts(json.dumps(user_key) if user_key else "{    }")
    return utf(name) + key_id + json_texts(key) + value_id + json_texts(value) + end


def version_3(*families: bytes) -> bytes:
    """Return a file with families."""
    return utf("v3") + struct.pack(">i", len(families)) + b"".join(families)


def version_2(key: dict[str, Any], value: dict[str, Any]) -> bytes:
    """Return a file of a store without families."""
    return utf("v2") + json_texts(key) + json_texts(value)


def only(data: bytes, prefix_columns: int | None = 0) -> FamilySchema:
    """Return the one family of a file."""
    (found,) = parse_schema_file(data, prefix_columns)
    return found


@pytest.fixture
def operator() -> Operator:
    """Return an operator whose store has families."""
    files = tuple(f"state/0/_stateSchema/default/{name}" for name in ("0_a", "4_b"))
    return Operator(0, "transformWithStateExec", 2, (OperatorStore("default", 0, files),))


def read(checkpoint: MemoryStore, operator: Operator) -> dict[str, FamilySchema] | None:
    """Return the families of an operator's only store."""
    return read_families(checkpoint, operator, operator.stores[0])


def test_a_file_of_spark_is_read() -> None:
    """The key of a limit is always null; its value counts the rows."""
    found = only(LIMIT_OF_SPARK)

    assert found.name == "default"
    assert [(one["name"], one["type"]) for one in found.key["fields"]] == [("key", "void")]
    assert [(one["name"], one["type"]) for one in found.value["fields"]] == [("value", "long")]
    assert found.encoder == KeyEncoder("NoPrefix")


def test_a_file_of_a_pre_release_is_read() -> None:
    """Spark's own test data has this form."""
    (found,) = parse_schema_file(VALUE_OF_PRE_RELEASE, None)

    assert found.name == "countState"
    assert [one["name"] for one in found.key["fields"]] == ["value"]
    assert (found.key_id, found.value_id, found.user_key) == (0, 0, None)


def test_a_file_of_version_1_is_read() -> None:
    """Each type is one text, of 64 KiB at most."""
    key, value = row("k"), row("count")

    found = only(utf("v1") + utf(json.dumps(key)) + utf(json.dumps(value)))

    assert (found.key, found.value) == (key, value)


def test_a_type_of_more_than_64_kib_is_in_parts() -> None:
    """A row of a thousand columns has such a type."""
    value = row(*(f"a_column_with_a_long_name_{number}" for number in range(1500)))
    text = json.dumps(value)
    parts = [text[at : at + 65_535] for at in range(0, len(text), 65_535)]

    found = only(utf("v2") + json_texts(row("k")) + texts(*parts))

    assert len(parts) > 1
    assert found.value == value


def test_the_prefix_of_a_key_is_that_of_the_metadata() -> None:
    """The columns before and after it are two rows in the key's bytes."""
    found = only(version_2(row("a", "b", "c"), row("v")), prefix_columns=2)

    assert found.encoder == KeyEncoder("PrefixScan", prefix_columns=2)


def test_a_session_window_without_metadata_tells_itself() -> None:
    """Up to Spark 3.5 nothing else says that RocksDB's keys have a prefix."""
    key = {"type": "struct", "fields": [field("user"), field("sessionStartTime", "timestamp")]}
    named = row("user", "sessionStartTime")

    session = only(version_2(key, row("v")), prefix_columns=None)
    others = [
        only(version_2(key, row("v")), prefix_columns=0),
        only(version_2(named, row("v")), prefix_columns=None),
        only(version_2(row(), row("v")), prefix_columns=None),
    ]

    assert session.encoder == KeyEncoder("PrefixScan", prefix_columns=1)
    assert [one.encoder.kind for one in others] == ["NoPrefix"] * 3


def test_the_families_of_a_program_are_read() -> None:
    """Each variable has a family, and Spark has some for itself."""
    timer = row("expiryTimestampMs", "key")
    prefix = {"keyStateEncoderType": "PrefixKeyScanStateEncoderSpec", "numColsPrefixKey": 1}
    ranges = {"keyStateEncoderType": "RangeKeyScanStateEncoderSpec", "orderingOrdinals": [1, 0]}
    data = version_3(
        family("total", row("k"), row("sum"), ids=(3, 5)),
        family("names", row("key", "userKey"), row("count"), prefix, user_key=row("name")),
        family("$ttl_total", timer, row("__empty__"), ranges),
    )

    total, names, ttl = parse_schema_file(data, None)

    assert total == FamilySchema("total", row("k"), row("sum"), KeyEncoder("NoPrefix"), 3, 5)
    assert (names.encoder, names.user_key) == (KeyEncoder("PrefixScan", 1), row("name"))
    assert ttl.encoder == KeyEncoder("RangeScan", ordinals=(1, 0))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TimestampAsPrefixKeyStateEncoderSpec", "TsPrefix"),
        ("TimestampAsPostfixKeyStateEncoderSpec", "TsPostfix"),
    ],
)
def test_the_encoders_of_joins_by_time_are_read(name: str, kind: str) -> None:
    """Joins of format 4 have them."""
    data = version_3(
        family("left-tsWithKey", row("k", "t"), row("v"), {"keyStateEncoderType": name})
    )

    assert parse_schema_file(data, None)[0].encoder == KeyEncoder(kind)


def test_the_present_type_of_a_family_is_its_last(
    checkpoint: MemoryStore, operator: Operator
) -> None:
    """Rows in Avro name the type that they were written with."""
    old = family("total", row("k"), row("sum"))
    new = family("total", row("k"), row("sum", "largest"), ids=(0, 1))
    same = family("seen", row("k"), row("v"))
    checkpoint.put("state/0/_stateSchema/default/0_a", version_3(old, same))
    checkpoint.put("state/0/_stateSchema/default/4_b", version_3(new, same))

    found = read(checkpoint, operator)

    assert found is not None
    assert list(found) == ["total", "seen"]
    assert (found["total"].value_id, found["total"].value) == (1, row("sum", "largest"))
    assert [(one.value_id, one.value) for one in found["total"].older] == [(0, row("sum"))]
    assert found["seen"].older == ()


def test_types_of_one_file_are_ordered_by_their_ids(
    checkpoint: MemoryStore, operator: Operator
) -> None:
    """A file may list a family with all its types, in any order."""
    types = [
        family("total", row("k"), row(*"abc"[:count]), ids=(0, count)) for count in (2, 3, 0, 1)
    ]
    checkpoint.put("state/0/_stateSchema/default/0_a", version_3(*types))
    checkpoint.put("state/0/_stateSchema/default/4_b", version_3(types[1]))

    found = read(checkpoint, operator)

    assert found is not None
    assert found["total"].value_id == 3
    assert [one.value_id for one in found["total"].older] == [0, 1, 2]


def test_a_family_that_came_back_has_its_new_type(
    checkpoint: MemoryStore, operator: Operator
) -> None:
    """Its ids begin again: the highest one is that of the removed family."""
    removed = family("total", row("k"), row("sum", "largest"), ids=(0, 1))
    returned = family("total", row("k"), row("other"), ids=(0, 0))
    checkpoint.put("state/0/_stateSchema/default/0_a", version_3(removed))
    checkpoint.put("state/0/_stateSchema/default/4_b", version_3(returned))

    found = read(checkpoint, operator)

    assert found is not None
    assert found["total"].value == row("other")


def test_the_file_of_a_store_is_in_its_first_partition(checkpoint: MemoryStore) -> None:
    """The store `default` has no folder of its own."""
    stores = (OperatorStore("default", 0, ()), OperatorStore("left-keyToNumValues", 0, ()))
    operator = Operator(3, "symmetricHashJoin", 5, stores)
    checkpoint.put("state/3/0/_metadata/schema", version_2(row("a"), row("v")))
    checkpoint.put(
        "state/3/0/left-keyToNumValues/_metadata/schema", version_2(row("b"), row("value"))
    )

    found = [read_families(checkpoint, operator, store) for store in stores]

    assert [one and one["default"].key for one in found] == [row("a"), row("b")]


def test_a_store_before_schema_files_has_none(checkpoint: MemoryStore) -> None:
    """Spark wrote none before 3.1: the caller has to know the types."""
    operator = Operator(0, None, 5, (OperatorStore("default", None, ()),))

    assert read(checkpoint, operator) is None


def test_a_file_that_the_metadata_names_is_not_left_out(
    checkpoint: MemoryStore, operator: Operator
) -> None:
    """Without it rows would have wrong columns."""
    checkpoint.put("state/0/_stateSchema/default/0_a", version_3())

    with pytest.raises(MissingError, match="4_b"):
        read(checkpoint, operator)


def test_a_damaged_file_is_named(checkpoint: MemoryStore, operator: Operator) -> None:
    """A user must know which object to restore."""
    checkpoint.put("state/0/_stateSchema/default/0_a", version_3()[:-1])

    with pytest.raises(CorruptError, match="ck/state/0/_stateSchema/default/0_a"):
        read(checkpoint, operator)


def test_a_key_encoder_of_a_later_spark_is_refused_by_its_name() -> None:
    """Its keys cannot be decoded, and a guess gives wrong ones."""
    data = version_3(family("a", row("k"), row("v"), {"keyStateEncoderType": "NewEncoderSpec"}))

    with pytest.raises(UnsupportedStateError, match="NewEncoderSpec"):
        parse_schema_file(data, None)


def test_a_file_of_a_later_version_is_refused() -> None:
    """Its fields may be in another order."""
    with pytest.raises(FormatVersionError, match="v4"):
        parse_schema_file(utf("v4") + version_3()[4:], None)


SCAN = "KeyScanStateEncoderSpec"


@pytest.mark.parametrize(
    "encoder",
    [
        {},
        {"keyStateEncoderType": "Prefix" + SCAN},
        {"keyStateEncoderType": "Prefix" + SCAN, "numColsPrefixKey": 0},
        {"keyStateEncoderType": "Prefix" + SCAN, "numColsPrefixKey": 2},
        {"keyStateEncoderType": "Range" + SCAN, "orderingOrdinals": []},
        {"keyStateEncoderType": "Range" + SCAN, "orderingOrdinals": [2]},
        {"keyStateEncoderType": "Range" + SCAN, "orderingOrdinals": [0, 0]},
        {"keyStateEncoderType": "Range" + SCAN, "orderingOrdinals": [-1]},
    ],
)
def test_an_encoder_that_does_not_fit_its_key_is_corrupt(encoder: dict[str, Any]) -> None:
    """Columns would come from the wrong bytes."""
    written = json_texts(row("a", "b")) + b"\x00\x00" + json_texts(row("v"))
    data = version_3(utf("f") + b"\x00\x00" + written + json_texts(encoder) + texts("{    }"))

    with pytest.raises(CorruptError):
        parse_schema_file(data, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        utf("x1") + texts("{}"),
        utf("v2") + texts("{}") + texts("{}"),
        utf("v2") + texts("[]") + texts("[]"),
        utf("v2") + texts("{") + texts("{"),
        utf("v2") + json_texts({"type": "struct"}) + json_texts(row()),
        utf("v2") + json_texts({"type": "struct", "fields": [5]}) + json_texts(row()),
        utf("v2") + json_texts({"type": "struct", "fields": [{}]}) + json_texts(row()),
        version_2(row("k"), row("v")) + b"\x00",
        version_3(family("a", row("k"), row("v"))) + b"\x00",
        version_3(family("a", row("k"), row("v"), ids=(-1, 0))),
        version_3(family("a", row("k"), row("v"), user_key={"type": "array"})),
        utf("v3") + struct.pack(">i", -1),
        utf("v3") + struct.pack(">i", 2**31 - 1),
    ],
)
def test_what_is_no_schema_file_is_corrupt(data: bytes) -> None:
    """A wrong type shifts the columns behind it."""
    with pytest.raises(CorruptError):
        parse_schema_file(data, 0)


def test_every_cut_of_a_file_is_found() -> None:
    """Half of a file has some of its families."""
    data = version_3(family("a", row("k"), row("v")), family("b", row("k"), row("v")))

    for length in range(len(data)):
        with pytest.raises(CorruptError):
            parse_schema_file(data[:length], None)


def test_changed_bytes_give_an_error_that_callers_know() -> None:
    """Or other types, which the rows then do not fit."""
    chance = random.Random(5)
    data = version_3(family("a", row("k", "l"), row("v"), ids=(1, 2), user_key=row("u")))

    for _ in range(3000):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 2, 8))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            parse_schema_file(bytes(changed), None)
        except (CorruptError, FormatVersionError, UnsupportedStateError):
            continue
