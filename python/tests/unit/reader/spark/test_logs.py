"""The batches of a query and its settings, also of those that its Spark did not store."""

from __future__ import annotations

import json

import pytest

from cairn.errors import CorruptError, MissingError, NotThereError, UnsupportedStateError
from cairn.reader.spark import logs
from cairn.storage.memory import MemoryStore

SPARKS = "org.apache.spark.sql.execution.streaming.state."
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def plan(checkpoint: MemoryStore, batch: int, **conf: str) -> None:
    """Write the entry of a batch to the offset log."""
    metadata = {"batchWatermarkMs": batch, "conf": conf}
    checkpoint.put(f"offsets/{batch}", f"v1\n{json.dumps(metadata)}\n0".encode())


def conf_of(checkpoint: MemoryStore, **conf: str) -> logs.StateConf:
    """Return the settings of a batch that stores these."""
    plan(checkpoint, 0, **conf)
    return logs.read_conf(checkpoint, 0)


def test_batches_are_listed_by_their_numbers(checkpoint: MemoryStore) -> None:
    """A listing sorts texts: 10 comes before 9."""
    for batch in range(8, 12):
        plan(checkpoint, batch)
    for batch in range(8, 11):
        checkpoint.put(f"commits/{batch}", b"v1\n{}")
    checkpoint.put("offsets/12.tmp", b"")

    found = logs.list_batches(checkpoint)

    assert found.planned == (8, 9, 10, 11)
    assert found.committed == (8, 9, 10)
    assert checkpoint.request_counts()["ListObjectsV2"] == 2


def test_a_commit_without_its_plan_cannot_be_read(checkpoint: MemoryStore) -> None:
    """Spark deletes old entries of one log before the other: nobody knows the settings."""
    plan(checkpoint, 5)
    for batch in (4, 5):
        checkpoint.put(f"commits/{batch}", b"v1\n{}")

    assert logs.list_batches(checkpoint).committed == (5,)


def test_another_folder_is_no_checkpoint(checkpoint: MemoryStore) -> None:
    """A misspelled location must not look like a query without state."""
    with pytest.raises(NotThereError, match="checkpointLocation"):
        logs.list_batches(checkpoint)


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("io.cairn.spark.CairnStateStoreProvider", "cairn"),
        (SPARKS + "RocksDBStateStoreProvider", "rocksdb"),
        (SPARKS + "HDFSBackedStateStoreProvider", "hdfs"),
    ],
)
def test_the_provider_says_whose_files_the_state_is_in(
    checkpoint: MemoryStore, name: str, provider: str
) -> None:
    """Each has its own files, under names that are alike."""
    assert conf_of(checkpoint, **{PROVIDER: name}).provider == provider


def test_the_state_of_another_provider_is_refused_by_its_name(checkpoint: MemoryStore) -> None:
    """Its files may look like Spark's and still mean something else."""
    conf = conf_of(checkpoint, **{PROVIDER: "com.example.OtherProvider"})

    with pytest.raises(UnsupportedStateError) as error:
        _ = conf.provider

    assert "com.example.OtherProvider" in str(error.value)
    assert "ck/offsets/0" in str(error.value)


def test_a_setting_that_is_not_stored_has_the_default_of_its_time(checkpoint: MemoryStore) -> None:
    """Joins of Spark 2.4 have format 1, though later ones begin with 2."""
    conf = conf_of(checkpoint)

    assert conf.provider == "hdfs"
    assert conf.partitions is None
    assert conf.encoding == "unsaferow"
    assert conf.list_delimiter == b","
    assert conf.number(logs.JOIN_FORMAT) == 1
    assert conf.number(logs.AGGREGATION_FORMAT) == 1
    assert conf.number(logs.GROUPS_FORMAT) == 1
    assert not conf.flag(logs.ROW_CHECKSUM)
    assert not conf.flag(logs.STRICT_DISTRIBUTION)


def test_a_stored_setting_counts(checkpoint: MemoryStore) -> None:
    """The settings of Spark 4.3."""
    conf = conf_of(
        checkpoint,
        **{
            "spark.sql.shuffle.partitions": "200",
            logs.ENCODING: "avro",
            logs.MERGE_OPERATOR: "2",
            logs.JOIN_FORMAT: "4",
            logs.ROW_CHECKSUM: "true",
            logs.CODEC: "zstd",
        },
    )

    assert conf.partitions == 200
    assert conf.encoding == "avro"
    assert conf.list_delimiter == b""
    assert conf.number(logs.JOIN_FORMAT) == 4
    assert conf.flag(logs.ROW_CHECKSUM)
    assert conf.get(logs.CODEC) == "zstd"


@pytest.mark.parametrize("text", ["0", "-1", "five", "", "99999999999", "\uff11"])
def test_a_number_of_partitions_that_spark_refuses_is_corrupt(
    checkpoint: MemoryStore, text: str
) -> None:
    """It says which partition has a key."""
    conf = conf_of(checkpoint, **{"spark.sql.shuffle.partitions": text})

    with pytest.raises(CorruptError, match="offsets/0"):
        _ = conf.partitions


def test_values_of_a_later_spark_are_refused(checkpoint: MemoryStore) -> None:
    """A delimiter that is guessed shifts every element of a list."""
    conf = conf_of(checkpoint, **{logs.MERGE_OPERATOR: "3", logs.ENCODING: "parquet"})

    with pytest.raises(UnsupportedStateError, match="mergeOperatorVersion"):
        _ = conf.list_delimiter
    with pytest.raises(UnsupportedStateError, match="parquet"):
        _ = conf.encoding


@pytest.mark.parametrize(
    ("name", "text"), [(logs.JOIN_FORMAT, "two"), (logs.JOIN_FORMAT, "-1"), (logs.JOIN_FORMAT, "")]
)
def test_a_number_that_is_none_is_corrupt(checkpoint: MemoryStore, name: str, text: str) -> None:
    """A format that cannot be read must not become the default."""
    with pytest.raises(CorruptError, match="join"):
        conf_of(checkpoint, **{name: text}).number(name)


def test_a_flag_that_is_neither_true_nor_false_is_corrupt(checkpoint: MemoryStore) -> None:
    """Row checksums change every value."""
    with pytest.raises(CorruptError, match="rowChecksum"):
        conf_of(checkpoint, **{logs.ROW_CHECKSUM: "yes"}).flag(logs.ROW_CHECKSUM)


def test_a_batch_that_is_not_there_is_named_with_what_to_do(checkpoint: MemoryStore) -> None:
    """Spark keeps a hundred batches; users ask for older ones."""
    for read in (logs.read_conf, logs.read_commit):
        with pytest.raises(MissingError, match="choose a batch that the checkpoint retains"):
            read(checkpoint, 3)


def test_the_ids_of_a_commit_are_read(checkpoint: MemoryStore) -> None:
    """In checkpoint format 2 they name the files of the batch."""
    checkpoint.put("commits/3", b'v2\n{"nextBatchWatermarkMs":4,"stateUniqueIds":{"0":[["u"]]}}')

    found = logs.read_commit(checkpoint, 3)

    assert found.unique_ids == {0: (("u",),)}
    assert found.watermark_ms == 4


def test_a_damaged_entry_is_named(checkpoint: MemoryStore) -> None:
    """A user must know which object to restore."""
    checkpoint.put("offsets/3", b"v1\n{")
    checkpoint.put("commits/3", b"v9\n{}")

    with pytest.raises(CorruptError, match="ck/offsets/3"):
        logs.read_conf(checkpoint, 3)
    with pytest.raises(Exception, match="ck/commits/3"):
        logs.read_commit(checkpoint, 3)
