"""Families: which columns a person sees of what an operator stores, and what they mean."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import UnsupportedStateError
from cairn.format.spark_log import OffsetEntry
from cairn.reader.families import Family, families_of
from cairn.reader.rows.stored import StoredRows
from cairn.reader.spark.logs import GROUPS_FORMAT, StateConf
from cairn.reader.spark.operators import Operator, OperatorStore, StateVariable
from cairn.reader.spark.schema_files import FamilySchema, KeyEncoder
from cairn.reader.stores.opening import StorePlace
from cairn.storage.memory import MemoryBucket, MemoryStore

STORE = OperatorStore("default", 0, ())
PLACE = StorePlace(
    objects=MemoryStore("memory://ck", MemoryBucket()),
    provider="rocksdb",
    operator=0,
    store="default",
    version=1,
    unique_ids=None,
    list_delimiter=b"",
    has_row_checksums=False,
)
TOTAL = StateVariable("total", "ValueState", has_ttl=True)
TIMEOUT = ("timeoutTimestamp", "integer")


def struct_type(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the type of a struct of nullable columns."""
    return {"type": "struct", "fields": [{"name": of, "type": kind} for of, kind in fields]}


def schema_of(
    key: list[tuple[str, Any]],
    value: list[tuple[str, Any]],
    name: str = "default",
    *,
    has_ids: bool = True,
) -> FamilySchema:
    """Return the schema of a family of nullable columns."""
    encoder = KeyEncoder("NoPrefix")
    return FamilySchema(name, struct_type(key), struct_type(value), encoder, has_ids=has_ids)


def all_families(operator: Operator, *schemas: FamilySchema, **conf: str) -> list[Family]:
    """Return the families of an operator."""
    settings = {GROUPS_FORMAT: conf.pop("groups", "2"), **conf}
    state_conf = StateConf(OffsetEntry(1, 0, 0, settings, (), {}), "offsets/0")
    by_name = {schema.name: schema for schema in schemas}
    return list(families_of(state_conf, operator, STORE, by_name, PLACE))


def family_of(operator: Operator, schema: FamilySchema, **conf: str) -> Family:
    """Return the only family of an operator."""
    (family,) = all_families(operator, schema, **conf)
    return family


def operator_of(name: str | None, *variables: StateVariable) -> Operator:
    """Return an operator with the store ``default``."""
    return Operator(0, name, 2, (STORE,), variables)


@pytest.mark.parametrize("name", [None, "flatMapGroupsWithState"])
def test_a_timeout_of_the_first_state_format_has_64_bits(name: str | None) -> None:
    """Its schema says 32, half of a time; and before Spark 4.0 no metadata name the operator."""
    family = family_of(
        operator_of(name), schema_of([("k", "long")], [("n", "long"), TIMEOUT]), groups="1"
    )
    decoder = family.decoder()
    assert decoder is not None
    rows = [(7, 1_700_000_000_123), (8, -1)]
    keys = [b"\0" + struct.pack("<qq", 0, number) for number, _ in rows]
    values = [b"\0" + struct.pack("<qqq", 0, 1, time) for _, time in rows]
    binary = pa.large_binary()

    _, decoded, _ = decoder.decode(StoredRows(pa.array(keys, binary), pa.array(values, binary)))

    (expires_at,) = (column for column in family.columns if column.name == "expires_at")
    times = expires_at.of(decoded).cast(pa.int64()).to_pylist()
    assert times == [1_700_000_000_123, None]


def test_a_column_of_another_operator_may_have_the_name_of_a_timeout() -> None:
    """It is a number of the program, and has as many bits as its schema says."""
    family = family_of(
        operator_of("stateStoreSave"), schema_of([("k", "long")], [TIMEOUT]), groups="1"
    )

    (column,) = (column for column in family.columns if not column.is_key)
    assert (column.name, column.type, column.is_expiry) == (TIMEOUT[0], pa.int32(), False)


def test_a_key_has_its_event_time_in_its_hash_unless_it_is_of_a_join() -> None:
    """With the wrong columns in its hash, a key would be looked up in another partition."""
    keys = [("field0", "long"), ("__event_time", "long")]
    of_program = family_of(operator_of("stateStoreSave"), schema_of(keys, [("n", "long")]))
    of_join = family_of(
        operator_of("symmetricHashJoin"), schema_of(keys, [("n", "long")], "left-keyWithTsToValues")
    )

    hashed = [
        [column.name for column in family.columns if column.is_hashed]
        for family in (of_program, of_join)
    ]
    assert hashed == [["field0", "__event_time"], ["field0"]]


def test_an_index_of_times_is_where_the_grouping_key_of_its_rows_is() -> None:
    """A repartition that hashed all of a map's key would put it where no task looks for it."""
    grouping = struct_type([("a", "long"), ("b", "string")])
    of_map = struct_type([("key", grouping), ("userKey", struct_type([("u", "long")]))])
    variables = [
        StateVariable(name, kind, has_ttl=True)
        for name, kind in (("one", "ValueState"), ("many", "MapState"))
    ]
    families = all_families(
        operator_of("transformWithStateExec", *variables),
        *(
            schema_of([("expirationMs", "long"), ("elementKey", key)], [], f"$ttl_{name}")
            for name, key in (("one", grouping), ("many", of_map))
        ),
    )

    hashed = [
        [(column.name, column.path) for column in family.columns if column.is_hashed]
        for family in families
    ]
    assert hashed == [[("a", (1, 0)), ("b", (1, 1))], [("key", (1, 0))]]


@pytest.mark.parametrize(
    ("name", "keys", "partitions"),
    [
        ("stateStoreSave", [("k", "long")], 2),
        ("stateStoreSave", [], 1),
        (None, [], 1),
        ("globalLimit", [("k", "void")], 1),
    ],
    ids=["keys", "no-keys", "no-keys-before-4.0", "limit"],
)
def test_without_keys_only_the_first_partition_has_a_store(
    name: str | None, keys: list[tuple[str, Any]], partitions: int
) -> None:
    """Spark's metadata count the others, too: their stores would be missed, and are not there."""
    family = family_of(operator_of(name), schema_of(keys, [("sum", "long")]))

    assert family.partitions == partitions


def test_only_a_variable_has_a_time_to_live() -> None:
    """A program may call two columns of an aggregation as Spark calls those of a variable."""
    columns = [("value", {"type": "struct", "fields": []}), ("ttlExpirationMs", "long")]
    of_variable = family_of(
        operator_of("transformWithStateExec", TOTAL),
        schema_of([("k", "long")], columns, "total"),
    )
    of_program = family_of(operator_of("stateStoreSave"), schema_of([("k", "long")], columns))

    names = [[one.name for one in family.columns] for family in (of_variable, of_program)]
    assert names == [["k", "expires_at"], ["k", "value", "ttlExpirationMs"]]


def test_a_deleted_variable_has_no_families() -> None:
    """Spark's schema files keep them; a table without rows would say that the state is empty."""
    schemas = [
        schema_of([("k", "long")], [("n", "long")], name)
        for name in ("default", "total", "$ttl_total", "gone", "$ttl_gone")
    ]
    operator = operator_of("transformWithStateExec", TOTAL)

    assert [family.name for family in all_families(operator, *schemas)] == ["total", "$ttl_total"]


def test_avro_without_ids_of_schemas_is_refused() -> None:
    """Only a development version of Spark wrote it: read with ids, it would be other values."""
    schema = schema_of([("k", "long")], [("n", "long")], "total", has_ids=False)
    operator = operator_of("transformWithStateExec", TOTAL)

    family = family_of(
        operator, schema, **{"spark.sql.streaming.stateStore.encodingFormat": "avro"}
    )

    assert isinstance(family.failure, UnsupportedStateError)
    assert "development version" in str(family.failure)
    assert family.failure.object_name == "memory://ck/state/0"
