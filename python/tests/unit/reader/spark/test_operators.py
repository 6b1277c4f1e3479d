"""The operators of a query are found by their metadata, or by the files of the first partition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cairn.errors import CorruptError, FormatVersionError, MissingError
from cairn.reader.spark.operators import (
    Operator,
    OperatorStore,
    StateVariable,
    read_operators,
)
from cairn.storage.base import ObjectInfo
from cairn.storage.memory import MemoryBucket, MemoryStore

JOIN_STORES = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)
OLD_PLACE = "file:/Users/someone/ck/state/0/_stateSchema/default/"
FIRST, SECOND = "0_2e8e6b52-e3c3-4184-b8ef-8d391b75d751", "4_ace25692-9113-45a8-b4f3-b03c85f77e95"


def described(number: int, name: str, *stores: str, **store: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the metadata of an operator."""
    fields = {"numColsPrefixKey": 0, "numPartitions": 5, **store}
    return {
        "operatorInfo": {"operatorId": number, "operatorName": name},
        "stateStoreInfo": [{"storeName": one, **fields} for one in stores or ("default",)],
    }


def write_v1(checkpoint: MemoryStore, number: int, fields: dict[str, Any]) -> None:
    """Write metadata as most operators have it."""
    checkpoint.put(f"state/{number}/_metadata/metadata", f"v1\n{json.dumps(fields)}".encode())


def write_v2(checkpoint: MemoryStore, number: int, batch: int, fields: dict[str, Any]) -> None:
    """Write metadata as operators with families have it."""
    checkpoint.put(f"state/{number}/_metadata/v2/{batch}", f"v2\n{json.dumps(fields)}".encode())


def transform(*files: str) -> dict[str, Any]:
    """Return the metadata of an operator with two variables."""
    variables = [
        {"stateName": "total", "stateVariableType": "ValueState", "ttlEnabled": False},
        {"stateName": "seen", "stateVariableType": "ListState", "ttlEnabled": True},
    ]
    properties = {"timeMode": "EventTime", "outputMode": "Append", "stateVariables": variables}
    return {
        **described(0, "transformWithStateExec", stateSchemaFilePaths=list(files)),
        "operatorPropertiesJson": json.dumps(properties),
    }


def test_operators_are_read_in_the_order_of_their_numbers(checkpoint: MemoryStore) -> None:
    """A query may have more than ten, and a listing sorts 10 before 2."""
    for number in range(12):
        write_v1(checkpoint, number, described(number, f"operator{number}"))

    found = read_operators(checkpoint, 3, 5)

    assert [(one.id, one.name) for one in found] == [(n, f"operator{n}") for n in range(12)]


def test_the_stores_of_a_join_are_read(checkpoint: MemoryStore) -> None:
    """Each has its own folder in every partition."""
    write_v1(checkpoint, 0, described(0, "symmetricHashJoin", *JOIN_STORES))

    (found,) = read_operators(checkpoint, 0, None)

    assert found == Operator(
        0, "symmetricHashJoin", 5, tuple(OperatorStore(name, 0, ()) for name in JOIN_STORES)
    )


def test_the_columns_of_a_prefix_scan_are_read(checkpoint: MemoryStore) -> None:
    """They say how RocksDB's keys are made."""
    write_v1(checkpoint, 0, described(0, "sessionWindowStateStoreSaveExec", numColsPrefixKey=2))

    assert read_operators(checkpoint, 0, 5)[0].stores[0].prefix_columns == 2


def test_the_number_of_partitions_is_that_of_the_log(checkpoint: MemoryStore) -> None:
    """A repartition leaves the old number in the metadata: half of the rows would be missing."""
    write_v1(checkpoint, 0, described(0, "dedupe"))

    assert read_operators(checkpoint, 0, 8)[0].partitions == 8
    assert read_operators(checkpoint, 0, None)[0].partitions == 5


def test_the_variables_of_a_program_are_read(checkpoint: MemoryStore) -> None:
    """Users ask for state by these names."""
    write_v2(checkpoint, 0, 0, transform(OLD_PLACE + FIRST))

    (found,) = read_operators(checkpoint, 7, 5)

    assert found.variables == (
        StateVariable("total", "ValueState", has_ttl=False),
        StateVariable("seen", "ListState", has_ttl=True),
    )
    assert (found.time_mode, found.output_mode, found.has_families) == ("EventTime", "Append", True)


def test_schema_files_are_looked_for_in_this_checkpoint(checkpoint: MemoryStore) -> None:
    """Spark stores where they were written: in a copy that place is wrong, or another query's."""
    write_v2(checkpoint, 0, 0, transform(OLD_PLACE + FIRST, "s3a://b/x/" + OLD_PLACE + SECOND))

    (found,) = read_operators(checkpoint, 0, 5)

    folder = "state/0/_stateSchema/default/"
    assert found.stores[0].schema_keys == (folder + FIRST, folder + SECOND)


def test_the_one_schema_file_of_a_pre_release_is_found(checkpoint: MemoryStore) -> None:
    """Spark's own test data has this form."""
    fields = described(0, "transformWithStateExec", stateSchemaFilePath=OLD_PLACE + FIRST)
    write_v2(checkpoint, 0, 0, fields)

    (found,) = read_operators(checkpoint, 0, 5)

    assert found.stores[0].schema_keys == (f"state/0/_stateSchema/default/{FIRST}",)


def test_the_metadata_of_a_batch_is_the_newest_that_is_not_later(checkpoint: MemoryStore) -> None:
    """A type that came with batch 10 does not fit the rows of batch 9."""
    for batch, files in ((0, [FIRST]), (4, [FIRST, SECOND]), (10, [SECOND])):
        write_v2(checkpoint, 0, batch, transform(*(OLD_PLACE + file for file in files)))

    counts = [
        len(read_operators(checkpoint, batch, 5)[0].stores[0].schema_keys)
        for batch in (0, 3, 4, 9, 10, 99)
    ]

    assert counts == [1, 1, 2, 2, 1, 1]


def test_a_repartition_adds_metadata_to_that_of_version_1(checkpoint: MemoryStore) -> None:
    """Older batches still have the first one."""
    write_v1(checkpoint, 0, described(0, "dedupe"))
    write_v2(checkpoint, 0, 6, described(0, "dedupe", numPartitions=8, stateSchemaFilePaths=[]))

    assert [read_operators(checkpoint, batch, None)[0].partitions for batch in (5, 6)] == [5, 8]


def test_metadata_that_is_gone_is_no_end_of_the_list(checkpoint: MemoryStore) -> None:
    """Spark deletes the metadata of old batches: the operator is still there."""
    write_v2(checkpoint, 0, 6, transform(OLD_PLACE + FIRST))

    with pytest.raises(MissingError, match="batch 5 is gone"):
        read_operators(checkpoint, 5, 5)


def test_a_join_with_families_is_known_by_its_property(checkpoint: MemoryStore) -> None:
    """Its rows have the number of a family before the key."""
    fields = described(0, "symmetricHashJoin", stateSchemaFilePaths=[OLD_PLACE + FIRST])
    properties = {"operatorPropertiesJson": '{"useVirtualColumnFamilies":true}'}
    write_v2(checkpoint, 0, 0, {**fields, **properties})
    write_v1(checkpoint, 1, described(1, "symmetricHashJoin", *JOIN_STORES))

    found = read_operators(checkpoint, 0, 5)

    assert [one.has_families for one in found] == [True, False]


def test_stores_of_an_old_spark_are_seen_in_the_first_partition(checkpoint: MemoryStore) -> None:
    """Up to Spark 3.5 nothing else tells that there are two operators, one of them a join."""
    for partition in range(3):
        checkpoint.put(f"state/0/{partition}/1.delta", b"")
        checkpoint.put(f"state/0/{partition}/2.snapshot", b"")
        for name in JOIN_STORES:
            checkpoint.put(f"state/1/{partition}/{name}/1.zip", b"")
            checkpoint.put(f"state/1/{partition}/{name}/SSTs/000008-uuid.sst", b"")

    found = read_operators(checkpoint, 0, 3)

    assert [(one.id, one.name, one.partitions) for one in found] == [(0, None, 3), (1, None, 3)]
    assert found[0].stores == (OperatorStore("default", None, ()),)
    assert found[1].stores == tuple(OperatorStore(name, None, ()) for name in JOIN_STORES)


def test_partitions_are_counted_where_nothing_says_how_many_there_are(
    checkpoint: MemoryStore,
) -> None:
    """Spark 2.1 stores no settings."""
    for partition in range(11):
        checkpoint.put(f"state/0/{partition}/1.delta", b"")

    assert read_operators(checkpoint, 0, None)[0].partitions == 11


class ListedStore(MemoryStore):
    """Objects in memory that remembers what was listed."""

    def __init__(self) -> None:
        super().__init__("memory://bucket/ck", MemoryBucket())
        self.listed: list[str] = []

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Remember the prefix."""
        self.listed.append(prefix)
        return super().list(prefix)


def test_no_folder_of_a_store_is_listed() -> None:
    """All files of 200 partitions are 40 requests to S3, or minutes on a slow file system."""
    checkpoint = ListedStore()
    write_v1(checkpoint, 0, described(0, "dedupe"))
    write_v1(checkpoint, 1, described(1, "symmetricHashJoin", *JOIN_STORES))

    read_operators(checkpoint, 0, 5)

    assert checkpoint.listed == [
        "state/0/_metadata/",
        "state/1/_metadata/",
        "state/2/_metadata/",
        "state/2/0/",
    ]


def test_a_query_without_state_has_no_operators(checkpoint: MemoryStore) -> None:
    """A filter needs no state."""
    assert read_operators(checkpoint, 0, 5) == ()


def test_an_operator_whose_metadata_was_deleted_is_not_left_out(checkpoint: MemoryStore) -> None:
    """A folder whose files are of no version does not tell the stores of an operator."""
    checkpoint.put("state/0/0/sst/0.sst", b"")

    with pytest.raises(MissingError, match="_metadata/metadata"):
        read_operators(checkpoint, 0, 5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"v1",
        b"\xff\xfe",
        b"{}",
        b"v1\n[]",
        b"v1\n{}",
        b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"x"},"stateStoreInfo":[]}',
        f"v1\n{json.dumps(described(1, 'of another operator'))}".encode(),
        f"v1\n{json.dumps(described(0, 'x', numPartitions=0))}".encode(),
        f"v1\n{json.dumps(described(0, 'x', numColsPrefixKey=-1))}".encode(),
        f"v1\n{json.dumps(transform('file:/elsewhere/0_x'))}".encode(),
        f"v1\n{json.dumps(transform(OLD_PLACE))}".encode(),
        f"v1\n{json.dumps(transform('file:/ck/state/0/_stateSchema/../0_x'))}".encode(),
        f"v1\n{json.dumps(described(0, 'x', '../../1/0'))}".encode(),
        f"v1\n{json.dumps(described(0, 'x', ''))}".encode(),
        f"v1\n{json.dumps({**described(0, 'x'), 'operatorPropertiesJson': '['})}".encode(),
        f"v1\n{json.dumps({**described(0, 'x'), 'operatorPropertiesJson': {}})}".encode(),
    ],
)
def test_damaged_metadata_is_named(checkpoint: MemoryStore, data: bytes) -> None:
    """A store that is left out looks like a query without it."""
    checkpoint.put("state/0/_metadata/metadata", data)

    with pytest.raises(CorruptError, match="ck/state/0/_metadata/metadata"):
        read_operators(checkpoint, 0, 5)


def test_stores_that_differ_in_their_partitions_are_corrupt(checkpoint: MemoryStore) -> None:
    """All stores of a query have the same number."""
    fields = described(0, "symmetricHashJoin", *JOIN_STORES)
    fields["stateStoreInfo"][1]["numPartitions"] = 6
    write_v1(checkpoint, 0, fields)

    with pytest.raises(CorruptError, match="differ"):
        read_operators(checkpoint, 0, None)


def test_metadata_of_a_later_spark_is_refused(checkpoint: MemoryStore) -> None:
    """Its fields may mean something else."""
    checkpoint.put("state/0/_metadata/metadata", b"v3\n{}")

    with pytest.raises(FormatVersionError, match="v3"):
        read_operators(checkpoint, 0, 5)
