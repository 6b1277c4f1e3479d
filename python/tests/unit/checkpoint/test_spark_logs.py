"""A refused repartition is found in Spark's logs and taken back; anything else is left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from cairn.checkpoint.spark_logs import find_unfinished_repartition, take_back
from cairn.cli.main import main
from cairn.errors import CorruptError, RepartitionError
from cairn.storage.base import ObjectStore
from cairn.storage.open import open_store

CAIRN = "io.cairn.spark.CairnStateStoreProvider"
SPARKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def entry(batch: int, partitions: int, provider: str = CAIRN) -> bytes:
    """Return an entry of the offset log of one source."""
    metadata = {
        "batchWatermarkMs": 1000 * batch,
        "batchTimestampMs": 1_700_000_000_000 + batch,
        "conf": {
            "spark.sql.shuffle.partitions": str(partitions),
            "spark.sql.streaming.stateStore.providerClass": provider,
        },
    }
    return f'v1\n{json.dumps(metadata)}\n{{"logOffset":{batch}}}'.encode()


def commit(watermark_ms: int) -> bytes:
    """Return an entry of the commit log."""
    return f'v1\n{{"nextBatchWatermarkMs":{watermark_ms}}}'.encode()


def repartitioned(base: int, partitions: int, provider: str = CAIRN) -> bytes:
    """Return what a repartition writes after the committed batch ``base`` of 4 partitions."""
    before, after = f'partitions": "{4}"', f'partitions": "{partitions}"'
    return entry(base, 4, provider).decode().replace(before, after).encode()


@pytest.fixture
def checkpoint(tmp_path: Path) -> ObjectStore:
    """Return an empty folder as a checkpoint."""
    return open_store(str(tmp_path / "checkpoint"), {})


def write(store: ObjectStore, objects: Mapping[str, bytes]) -> None:
    """Write objects."""
    for key, data in objects.items():
        store.put(key, data)


def keys(store: ObjectStore) -> list[str]:
    """List all objects."""
    return [info.key for info in store.list("")]


def healthy(store: ObjectStore, batches: int = 3) -> None:
    """Write the logs of a query that was stopped after its commit."""
    for batch in range(batches):
        write(store, {f"offsets/{batch}": entry(batch, 4), f"commits/{batch}": commit(batch + 1)})


def test_the_entry_of_a_refused_repartition_is_taken_back(checkpoint: ObjectStore) -> None:
    """Spark starts the query only without that entry; every other file must stay."""
    healthy(checkpoint, 11)  # names of two digits come before those of one in a listing
    before = keys(checkpoint)
    write(checkpoint, {"offsets/11": repartitioned(10, 8)})

    found = find_unfinished_repartition(checkpoint)
    assert found is not None
    assert (found.base.batch, found.entry.batch, found.entry.partitions) == (10, 11, "8")
    take_back(checkpoint, found)

    assert keys(checkpoint) == before
    assert find_unfinished_repartition(checkpoint) is None


def test_a_checksum_of_hadoop_goes_with_its_entry(checkpoint: ObjectStore, tmp_path: Path) -> None:
    """The next entry of that name has other bytes: with the old checksum it could not be read."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": repartitioned(2, 8)})
    checksum = tmp_path / "checkpoint" / "offsets" / ".3.crc"
    checksum.write_bytes(b"crc")

    found = find_unfinished_repartition(checkpoint)
    assert found is not None
    take_back(checkpoint, found)

    assert not checksum.exists()


def test_commits_of_skipped_batches_are_taken_back_before_the_entry(
    checkpoint: ObjectStore,
) -> None:
    """Such a batch has no state: if its commit stayed, Spark would ask for a missing version."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": entry(3, 4), "commits/3": commit(0)})
    write(checkpoint, {"offsets/4": repartitioned(2, 8)})

    found = find_unfinished_repartition(checkpoint)

    assert found is not None
    assert found.keys == ("commits/3", "offsets/4")
    checkpoint.delete(["commits/3"])  # the command was killed here
    again = find_unfinished_repartition(checkpoint)
    assert again is not None
    assert again.keys == ("offsets/4",)


def test_a_skipped_batch_is_not_taken_for_the_last_one_with_state(checkpoint: ObjectStore) -> None:
    """Spark commits the failed batch before it refuses; a second repartition copies its entry."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": entry(3, 4), "commits/3": commit(0)})
    write(checkpoint, {"offsets/4": repartitioned(3, 8)})

    found = find_unfinished_repartition(checkpoint)

    assert found is not None
    assert found.base.batch == 2
    assert found.keys == ("commits/3", "offsets/4")


def test_a_batch_that_was_only_skipped_is_no_healthy_query(checkpoint: ObjectStore) -> None:
    """Spark refuses a repartition to the same number after it has skipped the failed batch."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": entry(3, 4), "commits/3": commit(0)})

    with pytest.raises(RepartitionError, match="delete commits/3"):
        find_unfinished_repartition(checkpoint)


def test_empty_commits_of_a_query_without_watermark_are_no_skipped_batches(
    checkpoint: ObjectStore,
) -> None:
    """In format 1 each commit of such a query is empty."""
    for batch in range(3):
        write(checkpoint, {f"offsets/{batch}": entry(batch, 4), f"commits/{batch}": commit(0)})

    assert find_unfinished_repartition(checkpoint) is None


@pytest.mark.parametrize(
    "last", [{}, {"offsets/3": entry(3, 4)}, {"offsets/3": entry(3, 4), "commits/3": commit(9)}]
)
def test_a_query_without_a_repartition_has_nothing_to_take_back(
    checkpoint: ObjectStore, last: Mapping[str, bytes]
) -> None:
    """The entry of a failed batch must stay: Spark runs that batch again with these offsets."""
    healthy(checkpoint)
    write(checkpoint, last)

    assert find_unfinished_repartition(checkpoint) is None


def test_a_finished_repartition_stays(checkpoint: ObjectStore) -> None:
    """A checkpoint that Spark has repartitioned has its state in the new partitions."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": repartitioned(2, 8), "commits/3": commit(3)})

    assert find_unfinished_repartition(checkpoint) is None


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ({"offsets/3": entry(3, 8)}, "not a copy"),
        ({"offsets/3": repartitioned(2, 8) + b"\nmore"}, "not a copy"),
        ({"offsets/3": repartitioned(2, 8, SPARKS)}, "Spark finishes it"),
        (
            {
                "offsets/3": entry(3, 4),
                "commits/3": commit(7),
                "offsets/4": repartitioned(2, 8),
            },
            "committed with content",
        ),
    ],
)
def test_what_a_refused_repartition_does_not_write_is_refused(
    checkpoint: ObjectStore, objects: Mapping[str, bytes], said: str
) -> None:
    """A wrong deletion would lose offsets: the sink would receive rows twice, or never."""
    healthy(checkpoint)
    write(checkpoint, objects)
    before = keys(checkpoint)

    with pytest.raises(RepartitionError) as error:
        find_unfinished_repartition(checkpoint)

    assert said in str(error.value)
    assert "offsets/" in str(error.value) or "commits/" in str(error.value)
    assert keys(checkpoint) == before


def test_another_folder_is_refused(checkpoint: ObjectStore) -> None:
    """A user may name the folder of the state, or the parent of several checkpoints."""
    with pytest.raises(RepartitionError, match="checkpointLocation"):
        find_unfinished_repartition(checkpoint)


@pytest.mark.parametrize("data", [b"", b"v1", b"v1\nnot JSON\n{}", b"v1\n[]\n{}", b"\xff\n{}\n"])
def test_an_entry_that_cannot_be_read_is_named(checkpoint: ObjectStore, data: bytes) -> None:
    """Half a file must not count as an entry without partitions."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": data})

    with pytest.raises(CorruptError, match="offsets/3"):
        find_unfinished_repartition(checkpoint)


def test_the_command_deletes_only_when_told_to(checkpoint: ObjectStore, tmp_path: Path) -> None:
    """The first call of a careful user must change nothing, and show what would be lost."""
    healthy(checkpoint)
    write(checkpoint, {"offsets/3": repartitioned(2, 8)})
    arguments = ["undo-repartition", str(tmp_path / "checkpoint")]

    dry = CliRunner().invoke(main, arguments)
    assert dry.exit_code == 0
    assert "Partitions: 4 before, 8 wanted" in dry.stdout
    assert "To delete: offsets/3" in dry.stdout
    assert repartitioned(2, 8).decode() in dry.stdout
    assert "offsets/3" in keys(checkpoint)

    applied = CliRunner().invoke(main, [*arguments, "--apply"])
    assert applied.exit_code == 0
    assert "Deleted: offsets/3" in applied.stdout
    assert "offsets/3" not in keys(checkpoint)

    again = CliRunner().invoke(main, [*arguments, "--apply"])
    assert again.exit_code == 0
    assert "nothing to take back" in again.stdout


def test_the_command_fails_with_one_line(tmp_path: Path) -> None:
    """A misspelled location must not look like success."""
    result = CliRunner().invoke(main, ["undo-repartition", str(tmp_path / "absent")])

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: [CAIRN_REPARTITION]")
    assert result.stderr.count("\n") == 1
