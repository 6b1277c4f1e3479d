"""Writes the golden vectors of ``spec/vectors`` that are missing; replaces none.

A vector is a file of bytes, ``<name>.<suffix>``, and its meaning as JSON, ``<name>.meaning.json``.
Binary values are hexadecimal. Frames are built from docs/protocol.md alone, without code of the
engine or the shim, so that an error in either fails their tests.

    PYTHONPATH=python/src python spec/make_vectors.py     # from the root of the repository
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cairn.checksum import crc32c
from cairn.format import changelog, manifest
from cairn.format.header import Base, ChangelogHeader, ColumnFamily
from cairn.ids import Attempt, CheckpointId, StoreId, VersionRef
from cairn.rocks import keys

VECTORS = Path(__file__).parent / "vectors"
LINE_WIDTH = 180
MORE_FOLLOWS = 1
NO_VALUE = 0xFFFFFFFF


def _id(digit: str) -> CheckpointId:
    return CheckpointId("u" + digit * 32)


STORE = StoreId(0, 3)
ATTEMPT = Attempt("6f1d0c3e-0f3b-4a52-9d0e-2b7f6a1c9e11", 1_700_000_000_000, 7, 0, 12)
DEFAULT = ColumnFamily(
    id=0,
    name="default",
    multi=False,
    internal=False,
    ordered=False,
    key_type="struct<bigint>",
    value_type="struct<bigint>",
    key_encoder="NoPrefix",
)
LISTS = ColumnFamily(
    id=1,
    name="listState",
    multi=True,
    internal=False,
    ordered=True,
    key_type="struct<string>",
    value_type="struct<int>",
    key_encoder="PrefixKeyScan",
)
FIRST = VersionRef(1, _id("1"))
SECOND = VersionRef(2, _id("2"))
THIRD = VersionRef(3, _id("3"))
HEADER = ChangelogHeader(
    store=STORE,
    ref=FIRST,
    attempt=ATTEMPT,
    base=Base(0, None),
    lineage=(FIRST,),
    counts={0: 2},
    column_families=(DEFAULT,),
    max_cf_id=0,
    written_at_ms=1_700_000_001_234,
)


def rows(schema: pa.Schema, *values: tuple[Any, ...]) -> pa.RecordBatch:
    """Return a batch of ``schema`` with one row per tuple."""
    columns = [
        pa.array([row[index] for row in values], field.type) for index, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def spelled(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return the rows as values of JSON."""
    return [
        {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
        for row in batch.to_pylist()
    ]


def text(value: object, indent: int = 0) -> str:
    """Return ``value`` as JSON; an object or list is written on one line if it fits."""
    line = json.dumps(value, sort_keys=True)
    if len(line) + indent <= LINE_WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        items = [f"{json.dumps(name)}: {text(value[name], indent + 1)}" for name in sorted(value)]
    else:
        items = [text(item, indent + 1) for item in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    separator = ",\n" + " " * (indent + 1)
    return f"{begin}\n{' ' * (indent + 1)}{separator.join(items)}\n{' ' * indent}{end}"


def write(name: str, data: bytes, meaning: object) -> None:
    """Write a vector unless it exists."""
    path = VECTORS / name
    meaning_path = path.with_suffix(".meaning.json")
    if path.exists() or meaning_path.exists():
        print(f"kept {name}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    meaning_path.write_text(text(meaning) + "\n", "utf-8")
    print(f"wrote {name}: {len(data)} bytes")


def make_changelogs() -> None:
    """Write changelogs: all ops; no rows; batches; empty at 2; after empty commits."""
    ops = rows(
        changelog.CHANGELOG_SCHEMA,
        (1, 0, b"\x00key-a", b"\x00value-a"),
        (1, 0, b"\x00key-b", b""),
        (2, 0, b"\x00key-c", None),
        (3, 1, b"\x00list", b"\x02\x00\x00\x00\x00\x07"),
        (4, 2, b"", None),
    )
    all_ops = replace(
        HEADER,
        ref=SECOND,
        lineage=(FIRST, SECOND),
        counts={0: 3, 1: 1},
        column_families=(DEFAULT, LISTS),
        max_cf_id=2,
    )
    many = [
        rows(
            changelog.CHANGELOG_SCHEMA,
            *((1, 0, struct.pack(">Q", key), b"v%d" % key) for key in keys),
        )
        for keys in (range(3), range(3, 4), range(4, 6))
    ]
    on_snapshot = replace(
        HEADER,
        store=StoreId(2, 0, "left-keyToNumValues"),
        ref=THIRD,
        base=Base(1, FIRST.checkpoint_id),
        lineage=(SECOND, THIRD),
        counts={0: 6},
    )
    loaded_empty = replace(HEADER, ref=THIRD, base=Base(2, None), lineage=(THIRD,), counts={0: 0})
    after_empty_commits = replace(
        HEADER,
        ref=VersionRef(9, _id("9")),
        base=Base(2, SECOND.checkpoint_id),
        lineage=(VersionRef(5, _id("5")), VersionRef(9, _id("9"))),
        counts={0: 3},
    )
    for name, header, batches in (
        ("all_ops", all_ops, [ops]),
        ("no_rows", HEADER, []),
        ("three_batches", on_snapshot, many),
        ("loaded_empty", loaded_empty, []),
        ("after_empty_commits", after_empty_commits, [ops.slice(0, 1)]),
    ):
        table = pa.Table.from_batches(batches, changelog.CHANGELOG_SCHEMA)
        write(
            f"changelog/{name}.arrow",
            changelog.encode(header, batches),
            {
                "header": json.loads(header.to_json()),
                "batches": [batch.num_rows for batch in batches],
                "rows": spelled(table),
            },
        )


def write_once(name: str, meaning: object) -> None:
    """Write a vector that is one JSON file, unless it exists."""
    path = VECTORS / name
    if path.exists():
        print(f"kept {path.name}")
        return
    path.write_text(text(meaning) + "\n", "utf-8")
    print(f"wrote {path.name}")


def make_pins() -> None:
    """Write the names that pins have, those that they do not, and the SSTs that one protects."""
    upload = "4be14be14be14be1"
    meaning = {
        "named": [
            {"name": f"pin/upload-{upload}_1.json", "upload_id": upload, "renewal": 1},
            {"name": f"pin/upload-{upload}_999999999.json", "upload_id": upload}
            | {"renewal": 999_999_999},
        ],
        "unknown": [
            f"pin/upload-{upload}_0.json",
            f"pin/upload-{upload}_01.json",
            f"pin/upload-{upload}_1000000000.json",
            f"pin/upload-{upload}.json",
            f"pin/reader-{upload}_1.json",
        ],
        "protected": [f"sst/{upload}{'0' * 16}.sst", f"sst/{upload}{'f' * 16}.sst"],
        "not_protected": [f"sst/{'0' * 16}{upload}.sst"],
        "content": {
            "magic": "CAIRN-PIN",
            "format": 1,
            "store": asdict(STORE),
            "writer": {"run_id": ATTEMPT.run_id, "instance": "worker/1"},
            "written_at_ms": 1_700_000_001_234,
        },
    }
    write_once("pins.json", meaning)


PINNED_RANGES: list[tuple[tuple[int, int], dict[str, list[int]]]] = [
    (
        (20, 24),
        {
            "manifests": [20],
            "changelogs": [21, 24],
            "not_manifests": [19, 21, 24],
            "not_changelogs": [1, 20, 25],
        },
    ),
    (
        (0, 3),
        {"manifests": [], "changelogs": [1, 3], "not_manifests": [1, 3], "not_changelogs": [4]},
    ),
    (
        (7, 7),
        {"manifests": [7], "changelogs": [], "not_manifests": [6, 8], "not_changelogs": [6, 7, 8]},
    ),
]
"""Base and version of pins, and versions that they protect, or do not."""


def make_reader_pins() -> None:
    """Write the names that pins of readers have, those that they do not, and what one protects."""
    reader = "90aa90aa90aa90aa"

    def named(
        numbers: tuple[int, int], versions: dict[str, list[int]], renewal: int
    ) -> dict[str, Any]:
        base, version = numbers
        return {
            "name": f"pin/reader-{reader}_{base}_{version}_{renewal}.json",
            "reader_id": reader,
            "base": base,
            "version": version,
            "renewal": renewal,
            **versions,
        }

    meaning = {
        "named": [
            named(numbers, versions, renewal)
            for (numbers, versions), renewal in zip(PINNED_RANGES, (1, 999_999_999, 2), strict=True)
        ],
        "unknown": [
            f"pin/reader-{reader}_1.json",
            f"pin/reader-{reader}_3_1.json",
            f"pin/reader-{reader}_4_3_1.json",
            f"pin/reader-{reader}_0_0_1.json",
            f"pin/reader-{reader}_00_3_1.json",
            f"pin/reader-{reader}_1_3_0.json",
            f"pin/savepoint-{reader}_1.json",
        ],
        "content": {
            "magic": "CAIRN-PIN",
            "format": 1,
            "store": asdict(STORE),
            "writer": {"run_id": ATTEMPT.run_id, "instance": "worker/1"},
            "written_at_ms": 1_700_000_001_234,
            "checkpoint_id": str(_id("5")),
        },
    }
    write_once("reader_pins.json", meaning)


def make_savepoint_pins() -> None:
    """Write the names that pins of savepoints have, others, and what they protect."""
    owner = "51c051c051c051c0"

    def named(numbers: tuple[int, int], versions: dict[str, list[int]]) -> dict[str, Any]:
        base, version = numbers
        name = f"pin/savepoint-{owner}_{base}_{version}.json"
        return {"name": name, "savepoint_id": owner, "base": base, "version": version, **versions}

    meaning = {
        "named": [named(numbers, versions) for numbers, versions in PINNED_RANGES],
        "unknown": [
            f"pin/savepoint-{owner}_24.json",
            f"pin/savepoint-{owner}_20_24_1.json",
            f"pin/savepoint-{owner}_4_3.json",
            f"pin/savepoint-{owner}_0_0.json",
            f"pin/savepoint-{owner}_00_3.json",
            f"pin/savepoint-{owner[1:]}_0_3.json",
        ],
    }
    write_once("savepoint_pins.json", meaning)


def make_savepoint() -> None:
    """Write a savepoint: of a store with a snapshot, an empty commit, an empty base; two files."""
    fields: dict[str, Any] = {
        "magic": "CAIRN-SAVEPOINT",
        "format": 1,
        "name": "before-1.2",
        "savepoint_id": "51c051c051c051c0",
        "batch": 23,
        "checkpoint_format": 2,
        "created_at_ms": 1_700_000_001_234,
        "files": [
            {"key": "commits/23", "text": 'v2\n{"nextBatchWatermarkMs":7}'},
            {"key": "state/0/0/_metadata/schema", "base64": "AAJ2Mv8="},
        ],
        "stores": [
            _saved(StoreId(0, 0), VersionRef(24, _id("4")), Base(20, _id("3"))),
            _saved(StoreId(0, 1), VersionRef(19, _id("2")), Base(7, None)),
            _saved(StoreId(1, 0, "left-keyToNumValues"), FIRST, Base(0, None)),
        ],
    }
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    write_once("savepoint.json", {**fields, "crc32c": crc32c(canonical.encode())})


def _saved(store: StoreId, ref: VersionRef, base: Base) -> dict[str, Any]:
    return {
        **asdict(store),
        "version": ref.version,
        "checkpoint_id": str(ref.checkpoint_id),
        "base": base.version,
        "base_checkpoint_id": base.checkpoint_id,
    }


def make_checkpoint_ids() -> None:
    """Write Spark's ids of versions: the real version that each names, or why it is refused."""
    own = str(_id("5"))
    content = {
        "named": [
            {"version": 5, "id": own, "real": [5, own]},
            {"version": 6, "id": f"=6@5_{own}", "real": [5, own]},
            {"version": 2**63 - 1, "id": f"={2**63 - 1}@5_{own}", "real": [5, own]},
            {"version": 2, "id": f"=2@1_{own}", "real": [1, own]},
        ],
        "refused": [
            {"version": 5, "id": f"=6@5_{own}", "kind": "missing, of another version"},
            {"version": 7, "id": f"=6@5_{own}", "kind": "missing, of another version"},
            {"version": 5, "id": f"=5@5_{own}", "kind": "corrupt, not earlier"},
            {"version": 5, "id": f"=5@9_{own}", "kind": "corrupt, not earlier"},
            {"version": 0, "id": own, "kind": "corrupt, of version 0"},
            {"version": 5, "id": f"=5@0_{own}", "kind": "unknown"},
            {"version": 5, "id": f"=05@3_{own}", "kind": "unknown"},
            {"version": 5, "id": f"=5@03_{own}", "kind": "unknown"},
            {"version": 5, "id": f"=5@4@3_{own}", "kind": "unknown"},
            {"version": 5, "id": f"=5@3_=2@1_{own}", "kind": "unknown"},
            {"version": 5, "id": f"=3_{own}", "kind": "unknown"},
            {"version": 5, "id": f"={own}", "kind": "unknown"},
            {"version": 5, "id": f"=5@3_{own}x", "kind": "unknown"},
            {"version": 5, "id": "g" + own[1:], "kind": "unknown"},
            {"version": 5, "id": "", "kind": "unknown"},
        ],
    }
    write_once("checkpoint_ids.json", content)


def make_manifests() -> None:
    """Write manifests: of a first snapshot, and of a later one with retained manifests."""
    small = (
        manifest.SmallFile("CURRENT", b"MANIFEST-000005\n"),
        manifest.SmallFile("MANIFEST-000005", bytes(range(64))),
        manifest.SmallFile("OPTIONS-000007", b"[Version]\n"),
    )
    first = manifest.Manifest(
        store=STORE,
        ref=FIRST,
        counts={0: 2},
        column_families=(DEFAULT,),
        max_cf_id=0,
        written_at_ms=1_700_000_002_000,
        writer_run_id=ATTEMPT.run_id,
        writer_instance="1",
        engine={"name": "rocksdict", "version": "0.3.29", "options": {"arena_block_size": 65536}},
        files=(manifest.SstFile("sst/" + "a" * 32 + ".sst", "000004.sst", 1234, 0xDEADBEEF),),
        small_files=small,
        changelogs=(manifest.ChangelogRef(FIRST, Base(0, None)),),
        retained=(),
        garbage=(),
    )
    later = replace(
        first,
        ref=THIRD,
        counts={0: 3, 1: 1},
        column_families=(DEFAULT, replace(LISTS, name="Städte")),
        max_cf_id=1,
        files=(*first.files, manifest.SstFile("sst/" + "b" * 32 + ".sst", "000009.sst", 5678, 1)),
        changelogs=(
            manifest.ChangelogRef(SECOND, Base(0, None)),
            manifest.ChangelogRef(THIRD, Base(1, FIRST.checkpoint_id)),
        ),
        retained=(first.as_retained(),),
        garbage=(manifest.Garbage("sst/" + "c" * 32 + ".sst", 1_700_000_001_000),),
    )
    with_large_manifest = replace(
        first,
        files=(*first.files, manifest.SstFile("sst/" + "d" * 32 + ".sst", "MANIFEST-000005", 9, 2)),
        small_files=(small[0], small[2]),
    )
    swept = replace(first, swept_at_ms=1_700_000_000_500)
    seed = replace(first, ref=VersionRef(0, FIRST.checkpoint_id), changelogs=())
    for name, value in (
        ("first", first),
        ("with_chain", later),
        ("with_large_manifest", with_large_manifest),
        ("swept", swept),
        ("seed", seed),
    ):
        data = manifest.encode(value)
        write(f"manifest/{name}.json", data, json.loads(data))


def make_list_keys() -> None:
    """Write the keys of lists in RocksDB, in ascending order."""
    lists = [(1, b""), (1, b"\0"), (1, b"\0\0\1"), (1, b"k\xff"), (65_534, b"k\0")]
    write_once(
        "list_keys.json",
        [
            {
                "cf": cf,
                "key": key.hex(),
                "version": 258,
                "head": (keys.row_prefix(cf, is_list=True) + key).hex(),
                "chunk": keys.chunk_keys(cf, [key], 258)[0].hex(),
            }
            for cf, key in lists
        ],
    )


def make_session_digest() -> None:
    """Write the keys that a session leaves, and their digest; the values of lists do not count."""
    left = [(0, b"a", b"\x001"), (258, b"", b""), (1, b"\xff\x80", None)]
    parts = [struct.pack("<HI", cf, len(key)) + key + (value or b"") for cf, key, value in left]
    write_once(
        "session_digest.json",
        {
            "left": [
                {"cf": cf, "key": key.hex(), "value": value if value is None else value.hex()}
                for cf, key, value in left
            ],
            "digest": sum(crc32c(part) for part in parts),
        },
    )


def _fields(*fields: tuple[str, pa.DataType, bool]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=null) for name, kind, null in fields])


U8, U16, U32, U64, BYTES = pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.binary()
WRITES = _fields(
    ("op", U8, False),
    ("cf", U16, False),
    ("key", BYTES, False),
    ("value", BYTES, True),
    ("presence", U8, False),
)
GET = _fields(("cf", U16, False), ("key", BYTES, False))
GET_REPLY = _fields(("origin", U8, False), ("value", BYTES, True))
SCAN = _fields(
    ("cf", U16, False),
    ("from", BYTES, True),
    ("from_inclusive", U8, False),
    ("to", BYTES, True),
    ("limit_rows", U32, False),
    ("limit_bytes", U32, False),
)
RANGES = _fields(("cf", U16, False), ("from", BYTES, False), ("to", BYTES, True))
SCAN_REPLY = _fields(("origin", U8, False), ("key", BYTES, False), ("value", BYTES, False))
CHANGES = _fields(
    ("version", U64, False),
    ("checkpoint_id", BYTES, False),
    ("from_row", U64, False),
    ("limit_rows", U32, False),
)
SESSION = 5 << 32 | 9
FILE_SYSTEM = 3


class Plain(NamedTuple):
    """A payload with rows that is not an Arrow message."""

    row_count: int
    payload: bytes
    meaning: dict[str, Any]


def frame(
    name: str,
    kind: int,
    content: pa.RecordBatch | Plain | bytes | dict[str, Any],
    *,
    flags: int = 0,
    sequence: int = 1,
    applied: int = 0,
) -> None:
    """Write one frame."""
    row_count = 0
    meaning: dict[str, Any]
    if isinstance(content, bytes):
        payload, meaning = content, {"bytes": content.hex()}
    elif isinstance(content, Plain):
        row_count, payload, meaning = content
    elif isinstance(content, dict):
        payload, meaning = json.dumps(content).encode(), {"json": content}
    else:
        payload = content.serialize().to_pybytes()
        row_count = content.num_rows
        meaning = {"rows": spelled(content)}
    session = 0 if kind in {0x01, 0x81, 0x0A} else SESSION
    if kind & 0x70 == 0x10:
        session = FILE_SYSTEM
    header = struct.pack(
        "<4sBBHQQQII", b"CRNF", 1, kind, flags, session, sequence, applied, row_count, len(payload)
    )
    fields = {
        "protocol": 1,
        "kind": kind,
        "flags": flags,
        "session": session,
        "sequence": sequence,
        "applied": applied,
        "rows": row_count,
        "payload_bytes": len(payload),
    }
    write(f"frames/{name}.frame", header + payload, {"header": fields, "payload": meaning})


def make_write_and_read_frames() -> None:
    """Write frames of hello, writes and gets, with edge cases of each column."""
    frame("hello", 0x01, b"c2VjcmV0LXRva2Vu", sequence=0)
    frame("hello_reply", 0x81, b"", sequence=0)
    frame(
        "writes",
        0x02,
        rows(
            WRITES,
            (1, 0, b"\x00key-a", b"\x00value-a", 2),
            (1, 0, b"\x00key-b", b"", 1),
            (2, 0, b"\x00key-c", None, 1),
            (3, 1, b"\x00list", b"\x02\x00\x00\x00\x00\x07", 0),
            (4, 65535, b"", None, 0),
        ),
        sequence=3,
    )
    frame(
        "get",
        0x03,
        rows(GET, (0, b"\x00a"), (0, b"\x00b"), (1, b"\x00c"), (1, b"")),
        sequence=77,
        applied=41,
    )
    frame(
        "get_reply",
        0x83,
        rows(GET_REPLY, (0, None), (1, b"\x00value"), (2, b""), (3, None)),
        sequence=77,
        applied=42,
    )


def make_lookup_frames() -> None:
    """Write frames of lookups, with edge cases of keys and values."""
    keys = (b"\x00a", b"", b"\x00b\x00")
    frame(
        "lookup",
        0x06,
        Plain(
            len(keys),
            struct.pack("<HIII", 1, *map(len, keys)) + b"".join(keys),
            {"lookup": {"cf": 1, "keys": [key.hex() for key in keys]}},
        ),
        sequence=82,
        applied=41,
    )
    found = ((0, None), (1, b"\x00value"), (2, b""), (3, None))
    sizes = (NO_VALUE if value is None else len(value) for _, value in found)
    frame(
        "lookup_reply",
        0x86,
        Plain(
            len(found),
            struct.pack("<4B4I", *(origin for origin, _ in found), *sizes)
            + b"".join(value or b"" for _, value in found),
            {
                "lookup_reply": [
                    {"origin": origin, "value": None if value is None else value.hex()}
                    for origin, value in found
                ]
            },
        ),
        flags=MORE_FOLLOWS,
        sequence=82,
        applied=42,
    )


def make_commit_frames() -> None:
    """Write the frames of a commit."""
    frame(
        "commit",
        0x08,
        {
            "version": 43,
            "base_checkpoint_id": _id("1"),
            "column_families": [asdict(DEFAULT), asdict(LISTS)],
            "max_cf_id": 1,
            "attempt": asdict(ATTEMPT),
            "snapshot": False,
            "track_counts": True,
            "are_distinct": True,
            "frames": 3,
            "rows": 1000,
            "expected_rows": 990,
            "expected_digest": 2_900_000_000_000,
        },
        sequence=83,
    )
    reply = {
        "changelog_bytes": 15360,
        "snapshot_version": 40,
        "estimated_keys": 1200,
        "memtable_bytes": 2048,
        "sst_bytes": 5_000_000_000,
        "snapshot_bytes_left": 6_000_000_000,
        "lineage_versions": 3,
        "wait_us": 10,
        "encode_us": 500,
        "put_us": 4_000_000_000,
        "memory_wait_us": 24_900_000,
        "snapshot_wait_us": 70,
    }
    counts = {0: 1000, 65535: 3}
    frame(
        "commit_reply",
        0x88,
        Plain(
            len(counts),
            struct.pack("<6Q6I", *reply.values())
            + b"".join(struct.pack("<HQ", *count) for count in counts.items())
            + _id("2").encode(),
            {
                "commit_reply": {
                    **reply,
                    "counts": {str(cf): count for cf, count in counts.items()},
                    "checkpoint_id": _id("2"),
                }
            },
        ),
        sequence=83,
        applied=43,
    )


def make_scan_frames() -> None:
    """Write frames of scans, changes and errors, with edge cases of each column."""
    frame("scan_all", 0x04, rows(SCAN, (0, None, 1, None, 1000, 1 << 20)), sequence=78)
    frame(
        "scan_range",
        0x04,
        rows(SCAN, (2, b"\x00from", 0, b"\x00to", 4_294_967_295, 4_294_967_295)),
        sequence=79,
        applied=42,
    )
    frame(
        "scan_reply",
        0x84,
        rows(SCAN_REPLY, (1, b"\x00a", b"\x00va"), (2, b"\x00b", b"")),
        flags=MORE_FOLLOWS,
        sequence=79,
        applied=42,
    )
    frame("scan_reply_empty", 0x84, rows(SCAN_REPLY), sequence=78, applied=42)
    frame(
        "ranges",
        0x09,
        rows(RANGES, (1, b"", b"\x00"), (1, b"\x00a", b"\x00b"), (1, b"\xff", None)),
        sequence=83,
        applied=42,
    )
    frame(
        "ranges_reply",
        0x89,
        rows(SCAN_REPLY, (1, b"\x00a", b"va"), (2, b"\x00a\x00", b"")),
        flags=MORE_FOLLOWS,
        sequence=83,
        applied=42,
    )
    frame("changes", 0x05, rows(CHANGES, (2**63 - 1, _id("2").encode(), 65536, 1000)), sequence=80)
    frame(
        "changes_reply",
        0x85,
        rows(changelog.CHANGELOG_SCHEMA, (1, 0, b"\x00a", b"\x00va"), (2, 0, b"\x00b", None)),
        flags=MORE_FOLLOWS,
        sequence=80,
        applied=42,
    )
    frame(
        "error",
        0xFF,
        {
            "kind": "corrupt",
            "code": "CAIRN_MISSING",
            "message": "there is no changelog of version 7",
            "store": "0/3/default",
            "version": 7,
            "object": "file:/checkpoint/state/0/3/changelog/7.arrow",
            "next": None,
        },
        sequence=81,
    )


def make_file_frames() -> None:
    """Write frames of storage connections."""
    paths = ["/a/é.tmp", "/a/b c%20.sst"]
    encoded = [path.encode() for path in paths]
    status = {"size_bytes": 5_000_000_000, "modified_ms": 1_700_000_001_234}
    status_bytes = struct.pack("<2Q", *status.values())
    frame("serve_files", 0x0A, b"", sequence=0)

    def one(name: str, kind: int, payload: bytes, meaning: object, rows: int = 0) -> None:
        content = Plain(rows, payload, {name: meaning})
        frame(name, kind, content, sequence=7)

    one(
        "file_read",
        0x10,
        struct.pack("<2Q", 1 << 33, 8 << 20) + encoded[0],
        {"offset": 1 << 33, "length": 8 << 20, "path": paths[0]},
    )
    frame(
        "file_read_begin",
        0x90,
        Plain(0, status_bytes, {"file_status": status}),
        flags=MORE_FOLLOWS,
        sequence=7,
    )
    frame("file_read_end", 0x90, b"\x00last bytes", sequence=7)
    one("file_write", 0x11, b"\x01" + encoded[0], {"mode": 1, "path": paths[0]})
    frame("file_data", 0x12, b"\x00first bytes", flags=MORE_FOLLOWS, sequence=7)
    one("file_write_reply", 0x91, struct.pack("<Q", 5_000_000_000), {"written": 5_000_000_000})
    one(
        "file_rename",
        0x13,
        struct.pack("<BI", 0, len(encoded[0])) + encoded[0] + encoded[1],
        {"replaces": False, "from": paths[0], "to": paths[1]},
    )
    one("file_status", 0x14, encoded[1], {"path": paths[1]})
    one("file_status_reply", 0x94, status_bytes, status)
    one("file_list", 0x15, encoded[1], {"path": paths[1]})
    below = [path.lstrip("/") for path in paths]  # relative to the folder
    one(
        "file_list_reply",
        0x95,
        b"".join(
            status_bytes + struct.pack("<I", len(path)) + path
            for path in (name.encode() for name in below)
        ),
        [{**status, "path": path} for path in below],
        rows=2,
    )
    one(
        "file_delete",
        0x16,
        b"".join(struct.pack("<I", len(path)) + path for path in encoded),
        {"paths": paths},
        rows=2,
    )
    one("file_system", 0x17, encoded[0], {"path": paths[0]})
    one("file_system_reply", 0x97, b"\x02", {"publishing": 2})


def main() -> int:
    """Write the vectors that are missing."""
    make_checkpoint_ids()
    make_pins()
    make_reader_pins()
    make_savepoint_pins()
    make_savepoint()
    make_changelogs()
    make_manifests()
    make_list_keys()
    make_session_digest()
    make_write_and_read_frames()
    make_lookup_frames()
    make_commit_frames()
    make_scan_frames()
    make_file_frames()
    return 0


if __name__ == "__main__":
    sys.exit(main())
