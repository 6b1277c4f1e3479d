"""Old bytes stay readable: every vector of ``spec/vectors`` has the meaning in the file beside it.

Java's tests read the same frames. A vector is never changed; a new format adds its own.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cairn.errors import CorruptError, DataError, FormatVersionError, MissingError
from cairn.format import changelog, manifest, pin, savepoint
from cairn.format.names import (
    ReaderPinName,
    SavepointPinName,
    SstName,
    UploadPinName,
    parse_name,
    reader_pin_name,
    savepoint_pin_name,
    upload_pin_name,
)
from cairn.ids import CheckpointId, StoreId, VersionRef
from cairn.protocol import files, frames
from cairn.protocol.calls import CommitAnswer, CommitRequest
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.rocks import keys
from cairn.store.write import expected

REPOSITORY = Path(__file__).parents[3]
VECTORS = REPOSITORY / "spec" / "vectors"
CHANGELOGS = sorted((VECTORS / "changelog").glob("*.arrow"))
MANIFESTS = sorted(
    path for path in (VECTORS / "manifest").glob("*.json") if ".meaning" not in path.name
)
FRAMES = sorted((VECTORS / "frames").glob("*.frame"))
PAYLOADS = {
    0x02: WRITES_SCHEMA,
    0x07: WRITES_SCHEMA,
    0x03: frames.GET_SCHEMA,
    0x83: frames.GET_REPLY_SCHEMA,
    0x04: frames.SCAN_SCHEMA,
    0x84: frames.SCAN_REPLY_SCHEMA,
    0x09: frames.RANGES_SCHEMA,
    0x89: frames.SCAN_REPLY_SCHEMA,
    0x05: frames.CHANGES_SCHEMA,
    0x85: frames.CHANGES_REPLY_SCHEMA,
}


def meaning_of(path: Path) -> Any:  # noqa: ANN401 -- JSON
    """Return the meaning in the file beside a vector."""
    return json.loads(path.with_suffix(".meaning.json").read_text("utf-8"))


def spelled(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows as the vectors' JSON has them."""
    return [
        {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def test_vectors_are_there() -> None:
    """A test over an empty folder would pass."""
    assert (len(CHANGELOGS), len(MANIFESTS), len(FRAMES)) == (5, 5, 33)


def test_pins_protect_the_ssts_of_their_upload() -> None:
    """A sweep of another release reads the names, and the content is for people."""
    pins = json.loads((VECTORS / "pins.json").read_text("utf-8"))
    for item in pins["named"]:
        name = parse_name(item["name"])
        assert name == UploadPinName(item["upload_id"], item["renewal"])
        assert upload_pin_name(item["upload_id"], item["renewal"]) == item["name"]
        for kept in pins["protected"]:
            sst = parse_name(kept)
            assert isinstance(sst, SstName)
            assert sst.upload_id == item["upload_id"]
        for other in pins["not_protected"]:
            sst = parse_name(other)
            assert isinstance(sst, SstName)
            assert sst.upload_id != item["upload_id"]
    for unknown in pins["unknown"]:
        assert parse_name(unknown) is None
    content = pins["content"]
    writer = content["writer"]
    data = pin.encode(
        StoreId(**content["store"]),
        run_id=writer["run_id"],
        instance=writer["instance"],
        written_at_ms=content["written_at_ms"],
    )
    assert json.loads(data) == content


def test_pins_of_readers_protect_what_leads_to_their_version() -> None:
    """A purge of another release reads the names, and deletes all that they do not protect."""
    pins = json.loads((VECTORS / "reader_pins.json").read_text("utf-8"))
    for item in pins["named"]:
        parts = item["reader_id"], item["base"], item["version"], item["renewal"]
        name = parse_name(item["name"])
        assert name == ReaderPinName(parts[1], parts[2], parts[0], parts[3])
        assert isinstance(name, ReaderPinName)
        assert reader_pin_name(*parts) == item["name"]
        assert all(map(name.protects_manifest, item["manifests"]))
        assert all(map(name.protects_changelog, item["changelogs"]))
        assert not any(map(name.protects_manifest, item["not_manifests"]))
        assert not any(map(name.protects_changelog, item["not_changelogs"]))
    for unknown in pins["unknown"]:
        assert parse_name(unknown) is None
    content = pins["content"]
    data = pin.encode(
        StoreId(**content["store"]),
        run_id=content["writer"]["run_id"],
        instance=content["writer"]["instance"],
        written_at_ms=content["written_at_ms"],
        checkpoint_id=CheckpointId.parse(content["checkpoint_id"]),
    )
    assert json.loads(data) == content
    assert (len(pins["named"]), len(pins["unknown"])) == (3, 7)


def test_pins_of_savepoints_protect_what_leads_to_their_version() -> None:
    """A purge of another release reads the names, and deletes all that they do not protect."""
    pins = json.loads((VECTORS / "savepoint_pins.json").read_text("utf-8"))
    for item in pins["named"]:
        name = parse_name(item["name"])
        assert name == SavepointPinName(item["base"], item["version"], item["savepoint_id"])
        assert isinstance(name, SavepointPinName)
        parts = item["savepoint_id"], item["base"], item["version"]
        assert savepoint_pin_name(*parts) == item["name"]
        assert all(map(name.protects_manifest, item["manifests"]))
        assert all(map(name.protects_changelog, item["changelogs"]))
        assert not any(map(name.protects_manifest, item["not_manifests"]))
        assert not any(map(name.protects_changelog, item["not_changelogs"]))
    for unknown in pins["unknown"]:
        assert parse_name(unknown) is None
    assert (len(pins["named"]), len(pins["unknown"])) == (3, 6)


def test_a_savepoint_names_its_files_and_versions() -> None:
    """It is read by a release of years later."""
    data = (VECTORS / "savepoint.json").read_bytes()
    fields = json.loads(data)

    found = savepoint.parse(data, object_name="savepoint.json")

    assert json.loads(savepoint.encode(found)) == fields
    assert found.key == "cairn-savepoints/before-1.2.json"
    assert savepoint.name_of(found.key) == found.name == fields["name"]
    assert [one.data for one in found.files] == [
        fields["files"][0]["text"].encode(),
        b"\x00\x02v2\xff",
    ]
    assert [one.base.ref is None for one in found.stores] == [False, True, True]
    for name, value in (("batch", 24), ("magic", "CAIRN"), ("format", 2)):
        with pytest.raises(DataError):
            savepoint.parse(json.dumps(fields | {name: value}).encode(), object_name="")


def test_checkpoint_ids_name_their_real_versions() -> None:
    """Spark's commit log keeps these ids: a release that misreads one loads another state."""
    ids = json.loads((VECTORS / "checkpoint_ids.json").read_text("utf-8"))

    for one in ids["named"]:
        real = VersionRef.named(one["version"], one["id"])
        assert [real.version, real.checkpoint_id] == one["real"]
        assert real.id_at(one["version"]) == one["id"]
    for one in ids["refused"]:
        error = {"missing": MissingError, "corrupt": CorruptError, "unknown": FormatVersionError}
        with pytest.raises(error[one["kind"].split(",")[0]]):
            VersionRef.named(one["version"], one["id"])
    assert (len(ids["named"]), len(ids["refused"])) == (4, 15)


@pytest.mark.parametrize("path", CHANGELOGS, ids=lambda path: path.stem)
def test_changelog_reads_as_written(path: Path) -> None:
    """A release that cannot read an old changelog loses its version."""
    meaning = meaning_of(path)
    store = StoreId(**meaning["header"]["store"])

    found = changelog.decode(path.read_bytes(), object_name=path.name, store=store)

    assert json.loads(found.header.to_json()) == meaning["header"]
    assert spelled(found.table) == meaning["rows"]
    assert [chunk.num_rows for chunk in found.table.to_batches()] == meaning["batches"]


@pytest.mark.parametrize("path", CHANGELOGS, ids=lambda path: path.stem)
def test_any_arrow_tool_reads_a_changelog(path: Path) -> None:
    """The trailer comes after Arrow's end-of-stream, so plain Arrow ignores it."""
    table = pa.ipc.open_stream(path.read_bytes()).read_all()

    assert table.schema.metadata[b"cairn.magic"] == b"CAIRN-CHANGELOG"
    assert spelled(table) == meaning_of(path)["rows"]


def test_lists_have_their_keys_in_rocksdb() -> None:
    """Another release finds no list under other keys, and SSTs are never written again."""
    vectors = json.loads((VECTORS / "list_keys.json").read_text("utf-8"))
    for one in vectors:
        cf, key = one["cf"], bytes.fromhex(one["key"])
        assert (keys.row_prefix(cf, is_list=True) + key).hex() == one["head"]
        chunk = keys.chunk_keys(cf, [key], one["version"])[0]
        assert chunk.hex() == one["chunk"]
        assert keys.key_of_chunk(chunk) == key
        (first, above_last), *_ = keys.chunks_of(cf, [key])
        assert first < chunk < above_last
    assert len(vectors) == 5
    for part in ("head", "chunk"):
        assert sorted(one[part] for one in vectors) == [one[part] for one in vectors]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifest_reads_as_written(path: Path) -> None:
    """A release that cannot read an old manifest cannot load what is based on it."""
    data = path.read_bytes()

    found = manifest.decode(data, object_name=path.name)

    assert json.loads(manifest.encode(found)) == meaning_of(path)
    assert manifest.encode(found) == data


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_frame_reads_as_written(path: Path) -> None:
    """The shim and the engine of one protocol understand each other."""
    data = path.read_bytes()
    meaning = meaning_of(path)

    header = frames.decode_header(data)
    payload = data[frames.HEADER_BYTES :]

    assert {"protocol": 1, **header._asdict()} == meaning["header"]
    assert frames.encode_header(header) == data[: frames.HEADER_BYTES]
    if "rows" in meaning["payload"]:
        batch = frames.decode_rows(payload, PAYLOADS[header.kind])
        assert spelled(batch) == meaning["payload"]["rows"]
    elif "lookup" in meaning["payload"]:
        cf, keys = frames.decode_lookup(payload, header.rows)
        assert {"cf": cf, "keys": [key.hex() for key in keys]} == meaning["payload"]["lookup"]
    elif "lookup_reply" in meaning["payload"]:
        rows = meaning["payload"]["lookup_reply"]
        values = [None if row["value"] is None else bytes.fromhex(row["value"]) for row in rows]
        assert frames.encode_lookup_reply([row["origin"] for row in rows], values) == payload
    elif "commit_reply" in meaning["payload"]:
        assert commit_reply(meaning["payload"]["commit_reply"]).to_bytes() == payload
    elif path.stem.startswith("file_") and "bytes" not in meaning["payload"]:
        assert_file_payload(header, payload, next(iter(meaning["payload"].values())))
    elif "json" in meaning["payload"]:
        assert json.loads(payload) == meaning["payload"]["json"]
    else:
        assert payload.hex() == meaning["payload"]["bytes"]


def test_the_digest_of_a_session_is_that_of_the_shim() -> None:
    """``SessionMirrorTest`` reads the same vector; a list has one row with some value."""
    vector = json.loads((VECTORS / "session_digest.json").read_text("utf-8"))
    lists = {row["cf"] for row in vector["left"] if row["value"] is None}
    rows = [
        (1, row["cf"], bytes.fromhex(row["key"]), bytes.fromhex(value), 0)
        for row in vector["left"]
        for value in ["ff" if row["value"] is None else row["value"]]
    ]
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), WRITES_SCHEMA, strict=True)
    ]
    batch = pa.record_batch(columns, schema=WRITES_SCHEMA)

    assert expected.digest([batch], lists) == vector["digest"]


def test_a_commit_is_read() -> None:
    """The shim sends these fields."""
    data = (VECTORS / "frames" / "commit.frame").read_bytes()
    arguments = {**json.loads(data[frames.HEADER_BYTES :]), "instance": 5, "session": 9}

    found = CommitRequest.from_json(arguments)

    assert (found.frames, found.rows) == (3, 1000)
    assert (found.are_distinct, found.expected_rows) == (True, 990)


def assert_file_payload(header: frames.Header, payload: bytes, meaning: Any) -> None:  # noqa: ANN401 -- JSON
    """Compare the payload of a storage connection with its meaning."""
    written = {
        files.FILE_READ: lambda: files.read_payload(
            meaning["path"], meaning["offset"], meaning["length"]
        ),
        files.FILE_WRITE: lambda: files.write_payload(
            meaning["path"], replaces=meaning["mode"] == 0
        ),
        files.FILE_RENAME: lambda: files.rename_payload(
            meaning["from"], meaning["to"], replaces=meaning["replaces"]
        ),
        files.FILE_DELETE: lambda: files.delete_payload(meaning["paths"]),
    }
    if header.kind in written:
        assert written[header.kind]() == payload
    elif not header.kind & frames.REPLY:
        assert payload.decode() == meaning["path"]
    elif header.kind & ~frames.REPLY in (files.FILE_READ, files.FILE_STATUS):
        assert files.decode_status(payload)._asdict() == meaning
    elif header.kind & ~frames.REPLY == files.FILE_WRITE:
        assert files.decode_written(payload) == meaning["written"]
    elif header.kind & ~frames.REPLY == files.FILE_LIST:
        found = [
            {**status._asdict(), "path": path}
            for path, status in files.decode_listing(payload, header.rows)
        ]
        assert found == meaning
    else:
        assert files.decode_publishing(payload) == meaning["publishing"]


def commit_reply(meaning: dict[str, Any]) -> CommitAnswer:
    """Make the answer that the vector of a reply describes."""
    return CommitAnswer(
        **{
            name.replace("_us", "_ns"): value * 1000 if name.endswith("_us") else value
            for name, value in meaning.items()
            if name != "counts"
        },
        counts={int(cf): count for cf, count in meaning["counts"].items()},
    )


def test_protocol_page_shows_a_vector() -> None:
    """The dump in docs/protocol.md is that of a frame that both languages read."""
    page = (REPOSITORY / "docs" / "protocol.md").read_text("utf-8")
    data = (VECTORS / "frames" / "lookup.frame").read_bytes()
    lines = [
        f"    {offset:08x}  {data[offset : offset + 16].hex(' ')}"
        for offset in range(0, len(data), 16)
    ]

    assert "\n".join(lines) in page


def test_page_shows_a_vector() -> None:
    """The dump in docs/checkpoint-format.md is that of a real object, so the page stays correct."""
    page = (REPOSITORY / "docs" / "checkpoint-format.md").read_text("utf-8")
    data = (VECTORS / "changelog" / "no_rows.arrow").read_bytes()
    start = len(data) - 32
    lines = [
        f"    {offset:08x}  {data[offset : offset + 16].hex(' ')}"
        for offset in range(start, len(data), 16)
    ]

    assert "\n".join(lines) in page
    assert struct.unpack("<8sIQQI", data[start:])[:4] == (b"CAIRNEND", 1, 0, start)
