"""Manifests: read back whole, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.checksum import crc32c
from cairn.errors import (
    ConfigError,
    CorruptError,
    DataError,
    ForeignObjectError,
    FormatVersionError,
)
from cairn.format import manifest
from cairn.format.fields import dump_object
from cairn.format.header import Base, ColumnFamily
from cairn.ids import CheckpointId, StoreId, VersionRef

STORE = StoreId(0, 3)
ONE = VersionRef(1, CheckpointId("u" + "1" * 32))
TWO = VersionRef(2, CheckpointId("u" + "2" * 32))
SST = "sst/" + "a" * 32 + ".sst"
FAMILY = ColumnFamily(
    id=0,
    name="größe",
    multi=False,
    internal=False,
    ordered=True,
    key_type="int",
    value_type="int",
    key_encoder="NoPrefix",
)
MANIFEST = manifest.Manifest(
    store=STORE,
    ref=TWO,
    counts={0: 7},
    column_families=(FAMILY,),
    max_cf_id=0,
    written_at_ms=5,
    writer_run_id="run",
    writer_instance="1",
    engine={"name": "rocksdict", "options": {"a": 1}},
    files=(manifest.SstFile(SST, "000012.sst", 10, 11),),
    small_files=(
        manifest.SmallFile("CURRENT", b"MANIFEST-000005\n"),
        manifest.SmallFile("MANIFEST-000005", b"edits"),
    ),
    changelogs=(manifest.ChangelogRef(TWO, Base(1, ONE.checkpoint_id)),),
    retained=(manifest.Retained(ONE, (SST,), (manifest.ChangelogRef(ONE, Base(0, None)),)),),
    garbage=(manifest.Garbage("sst/" + "b" * 32 + ".sst", 99),),
    swept_at_ms=98,
)
DATA = manifest.encode(MANIFEST)


def decode(data: bytes) -> manifest.Manifest:
    """Decode as a loader does."""
    return manifest.decode(data, object_name="o", store=STORE, ref=TWO)


def changed(**fields: Any) -> bytes:  # noqa: ANN401 -- JSON
    """Return the manifest with changed fields and a matching checksum."""
    value = {**json.loads(DATA), **fields}
    del value["crc32c"]
    value["crc32c"] = crc32c(dump_object(value).encode())
    return dump_object(value).encode()


def test_manifest_reads_back() -> None:
    """The ordinary case; equal manifests are equal bytes."""
    assert decode(DATA) == MANIFEST
    assert manifest.encode(decode(DATA)) == DATA


def test_a_manifest_that_no_reader_would_load_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The changelogs before it would be deleted, and the store could not be loaded any more."""
    monkeypatch.setattr(manifest, "MAX_OBJECT_BYTES", len(DATA))
    assert manifest.encode(MANIFEST) == DATA

    monkeypatch.setattr(manifest, "MAX_OBJECT_BYTES", len(DATA) - 1)
    with pytest.raises(ConfigError, match=f"over the limit of {len(DATA) - 1}.*partitions"):
        manifest.encode(MANIFEST)


def test_white_space_does_not_matter() -> None:
    """A person may have formatted it."""
    assert decode(json.dumps(json.loads(DATA), indent=2).encode()) == MANIFEST


def test_unknown_fields_are_ignored() -> None:
    """A later release of the same format may add some."""
    assert decode(changed(new_field=[1, 2])) == MANIFEST


@pytest.mark.parametrize("length", range(0, len(DATA), 64))
def test_manifest_cut_at_every_64th_byte_is_corrupt(length: int) -> None:
    """A part of a manifest is not a manifest."""
    with pytest.raises(DataError):
        decode(DATA[:length])


@settings(max_examples=300)
@given(position=st.integers(0, len(DATA) - 1), flip=st.integers(1, 255))
def test_flipped_byte_is_an_error(position: int, flip: int) -> None:
    """A changed size or checksum of an SST would let a corrupt one through."""
    corrupt = bytearray(DATA)
    corrupt[position] ^= flip

    with pytest.raises(DataError):
        decode(bytes(corrupt))


@pytest.mark.parametrize("data", [b"PK\x03\x04", b'{"a": 1}', b"v1\n{}"])
def test_foreign_bytes_are_foreign(data: bytes) -> None:
    """The error for a foreign file must not call it corrupt."""
    with pytest.raises(ForeignObjectError):
        decode(data)


def test_newer_format_is_not_called_corrupt() -> None:
    """The remedy is a newer release, not a backup."""
    with pytest.raises(FormatVersionError):
        decode(changed(format=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"files": [{"object": "../x", "local_name": "a", "size_bytes": 1, "crc32c": 1}]},
        {"files": [{"object": SST, "local_name": "../a", "size_bytes": 1, "crc32c": 1}]},
        {"files": [{"object": SST, "local_name": "a.sst", "size_bytes": -1, "crc32c": 1}]},
        {"files": None},
        {"small_files": [{"local_name": "CURRENT", "base64": "AA==", "crc32c": 1}]},
        {"small_files": [{"local_name": "CURRENT", "base64": "?", "crc32c": 1}]},
        {"small_files": []},
        {"small_files": [{"local_name": "CURRENT", "base64": "", "crc32c": 0}]},
        {"small_files": [{"local_name": "000012.sst", "base64": "", "crc32c": 0}]},
        {"small_files": [{"local_name": "000013.log", "base64": "", "crc32c": 0}]},
        {"small_files": [{"local_name": "rocksdict-config.json", "base64": "", "crc32c": 0}]},
        {"small_files": [{"local_name": "CURRENT", "base64": "", "crc32c": 0}] * 2},
        {"files": [{"object": SST, "local_name": "000012.sst", "size_bytes": 1, "crc32c": 1}] * 2},
        {"files": [{"object": SST, "local_name": "CURRENT", "size_bytes": 1, "crc32c": 1}]},
        {"counts": {"x": 1}},
        {"counts": {"0": True}},
        {"version": 1.0},
        {"changelogs": [[2, TWO.checkpoint_id, 2, ""]]},
        {"garbage": [[SST]]},
        {"version": 3},
    ],
)
def test_fields_against_the_grammar_are_corrupt(fields: dict[str, Any]) -> None:
    """Names that point outside the directory, negative sizes and so on are refused."""
    with pytest.raises(CorruptError):
        decode(changed(**fields))


def test_manifest_of_another_store_is_foreign() -> None:
    """A folder copied to another partition would load the wrong state."""
    with pytest.raises(ForeignObjectError):
        manifest.decode(DATA, object_name="o", store=StoreId(0, 4))
