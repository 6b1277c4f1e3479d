"""Entries of Spark's logs are read in every form that a Spark has written, and in no other."""

from __future__ import annotations

import json

import pytest

from cairn.errors import CairnError, CorruptError, FormatVersionError
from cairn.format.spark_log import (
    batch_of,
    encode_commit,
    encode_offsets,
    parse_commit,
    parse_offsets,
)

CONF = {"spark.sql.shuffle.partitions": "5"}
METADATA = {"batchWatermarkMs": 7, "batchTimestampMs": 1_719_290_943_839, "conf": CONF}
UUID = "502abf89-6c11-49e0-b008-5e2f90008d17"
SAME = "=7@5_u0123456789abcdef0123456789abcdef"
IDS = {"0": [[UUID], [SAME]], "1": [["c", "d", "e", "f"], ["g", "h", "i", "j"]]}


def entry(version: str, metadata: object, *sources: str) -> bytes:
    """Return the bytes of an entry."""
    return "\n".join([version, json.dumps(metadata), *sources]).encode()


def test_an_entry_of_the_offset_log_is_read() -> None:
    """The settings say how to read all state of the query."""
    found = parse_offsets(entry("v1", METADATA, '{"logOffset":3}', "-", "7"))

    assert (found.version, found.watermark_ms) == (1, 7)
    assert found.timestamp_ms == 1_719_290_943_839
    assert found.conf == CONF
    assert found.sources == ('{"logOffset":3}', "-", "7")
    assert found.metadata == METADATA


def test_an_entry_with_names_of_sources_is_read() -> None:
    """Spark 4.2 writes it for a query whose sources may change."""
    named = {**METADATA, "sourceMetadataInfo": {}}

    found = parse_offsets(entry("v2", named, 'my_source:{"logOffset":0}'))

    assert found.version == 2
    assert found.conf == CONF
    assert found.sources == ('my_source:{"logOffset":0}',)


def test_the_entry_of_spark_before_its_metadata_is_read() -> None:
    """Its second line is empty; then everything has the default of that Spark."""
    found = parse_offsets(b"v1\n\n0\n-")

    assert (found.watermark_ms, found.timestamp_ms, found.conf) == (0, 0, {})
    assert found.sources == ("0", "-")


def test_an_entry_before_the_settings_is_read() -> None:
    """Spark 2.1 stores the times alone."""
    found = parse_offsets(b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1489180207737}\n0')

    assert found.timestamp_ms == 1_489_180_207_737
    assert found.conf == {}


def test_the_end_of_the_last_line_is_no_source() -> None:
    """Editors and some versions of Spark end the last line as well."""
    assert parse_offsets(entry("v1", METADATA, "0") + b"\n").sources == ("0",)


@pytest.mark.parametrize(
    ("data", "watermark_ms"),
    [
        (b"v1", 0),
        (b"v1\n", 0),
        (b"v1\n{}", 0),
        (b'v1\n{"nextBatchWatermarkMs":11000}', 11000),
        (b'v1\n{"nextBatchWatermarkMs":11000,"stateUniqueIds":{}}', 11000),
    ],
)
def test_a_commit_of_checkpoint_format_1_has_no_ids(data: bytes, watermark_ms: int) -> None:
    """Spark 4.0 stores an empty list of ids there; the names of its files have none."""
    found = parse_commit(data)

    assert (found.version, found.watermark_ms, found.unique_ids) == (1, watermark_ms, None)


@pytest.mark.parametrize("version", [2, 3])
def test_the_ids_of_a_commit_are_those_of_each_store(version: int) -> None:
    """They are in the names of the files: a wrong one names another attempt's state."""
    found = parse_commit(entry(f"v{version}", {"nextBatchWatermarkMs": 5, "stateUniqueIds": IDS}))

    assert found.unique_ids == {
        0: ((UUID,), (SAME,)),
        1: (("c", "d", "e", "f"), ("g", "h", "i", "j")),
    }


def test_a_commit_of_version_2_without_state_has_an_empty_list_of_ids() -> None:
    """It is still of checkpoint format 2."""
    assert parse_commit(b'v2\n{"nextBatchWatermarkMs":0}').unique_ids == {}


def test_a_commit_of_version_3_has_ids_only_in_checkpoint_format_2() -> None:
    """Spark 4.3 writes version 3 for the names of sinks, in both checkpoint formats."""
    sinks = {"my_sink": {"sinkName": "my_sink", "commitOffset": "-", "isActive": True}}

    found = parse_commit(entry("v3", {"nextBatchWatermarkMs": 0, "sinkMetadataMap": sinks}))

    assert found.unique_ids is None
    assert found.metadata["sinkMetadataMap"] == sinks


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptError),
        (b"v1", CorruptError),  # half of a file
        (b"v1\n", CorruptError),
        (b"v1\nnot JSON\n0", CorruptError),
        (b"v1\n[]\n0", CorruptError),
        (b"v1\n" + b"[" * 100_000, CorruptError),
        (b"\xff\n{}\n0", CorruptError),
        (b"1\n{}\n0", CorruptError),
        (b"v0\n{}\n0", CorruptError),
        (b"v1 {}", CorruptError),
        (b"v3\n{}\n0", FormatVersionError),
        (entry("v1", {"conf": []}), CorruptError),
        (entry("v1", {"conf": {"name": 5}}), CorruptError),
        (entry("v1", {"batchWatermarkMs": "7"}), CorruptError),
        (entry("v1", {"batchTimestampMs": 2**63}), CorruptError),
    ],
)
def test_what_is_no_entry_of_the_offset_log_is_refused(
    data: bytes, error: type[CairnError]
) -> None:
    """State that is read with wrong settings gives wrong rows."""
    with pytest.raises(error):
        parse_offsets(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptError),
        (b"v1\n{", CorruptError),
        (b"v4\n{}", FormatVersionError),
        (entry("v2", {"stateUniqueIds": []}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"x": []}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"-1": []}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"0": {}}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"0": ["a"]}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"0": [[5]]}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"0": [[""]]}}), CorruptError),
        (entry("v2", {"stateUniqueIds": {"0": [["../../other"]]}}), CorruptError),
    ],
)
def test_what_is_no_entry_of_the_commit_log_is_refused(
    data: bytes, error: type[CairnError]
) -> None:
    """An id that is left out would be that of another store."""
    with pytest.raises(error):
        parse_commit(data)


def test_only_numbers_are_names_of_entries() -> None:
    """Temporary files and copies lie beside the entries."""
    names = ["0", "12", "012", "-1", "12.tmp", "12 (1)", "", "²", "1" * 30]

    assert [batch_of(name) for name in names] == [0, 12, *[None] * 7]


@pytest.mark.parametrize(
    "data",
    [
        b"v1\n\n0\n-",
        b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1489180207737}\n0',
        'v1\n{"batchWatermarkMs":7,"conf":{"a":"\u00e4"},"unknown":{"b":[1]}}\n{"x":1}\n-'.encode(),
        b'v2\n{"batchWatermarkMs":7,"conf":{},"sourceMetadataInfo":{"s":{}}}\ns:{"x":1}',
    ],
)
def test_an_entry_of_the_offset_log_is_written_as_it_was(data: bytes) -> None:
    """Byte for byte, with fields that nobody here knows."""
    assert encode_offsets(parse_offsets(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"v1\n{}",
        b'v1\n{"nextBatchWatermarkMs":11000,"stateUniqueIds":{}}',
        b'v2\n{"nextBatchWatermarkMs":1,"stateUniqueIds":{"0":[["a"],["b"]]},"unknown":1}',
        b'v3\n{"nextBatchWatermarkMs":1,"sinkMetadataMap":{"s":{"isActive":true}}}',
        b'v3\n{"nextBatchWatermarkMs":1,"stateUniqueIds":{"0":[["a"]]},"sinkMetadataMap":{}}',
    ],
)
def test_an_entry_of_the_commit_log_is_written_as_it_was(data: bytes) -> None:
    """Byte for byte, with fields that nobody here knows."""
    assert encode_commit(parse_commit(data)) == data


def test_an_entry_gets_other_settings() -> None:
    """All else stays, also the order of the fields."""
    found = parse_offsets(entry("v2", {**METADATA, "unknown": 1}, "a:1"))

    changed = found.with_conf({"spark.sql.shuffle.partitions": "9", "x": "y", "absent": None})
    removed = changed.with_conf({"x": None})

    assert parse_offsets(encode_offsets(changed)) == changed
    assert changed.conf == {"spark.sql.shuffle.partitions": "9", "x": "y"}
    assert changed.metadata["unknown"] == 1
    assert removed.conf == {"spark.sql.shuffle.partitions": "9"}
    assert found.with_conf({"absent": None}) == found


@pytest.mark.parametrize(
    ("version", "with_ids", "without"), [("v1", 2, 1), ("v2", 2, 1), ("v3", 3, 3)]
)
def test_an_entry_gets_other_ids(version: str, with_ids: int, without: int) -> None:
    """Its version says whether the query has checkpoint format 2."""
    found = parse_commit(entry(version, {"nextBatchWatermarkMs": 5, "unknown": 1}))
    ids = {0: (("a",), ("b",)), 1: (("c", "d", "e", "f"),)}

    given = found.with_ids(ids)
    taken = given.with_ids(None)

    assert parse_commit(encode_commit(given)) == given
    assert (given.version, given.unique_ids) == (with_ids, ids)
    assert parse_commit(encode_commit(taken)) == taken
    assert (taken.version, taken.unique_ids) == (without, None)
    assert given.metadata["unknown"] == taken.metadata["unknown"] == 1
