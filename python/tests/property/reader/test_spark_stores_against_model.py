"""Stores of Spark's providers against dictionaries: random writes, snapshots and limits."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spark_store_files import (
    Change,
    Op,
    RocksSnapshots,
    compressed,
    element,
    lineage,
    long_checksum,
    plain,
    rows_of,
    short_checksum,
    tagged,
    text,
)

from cairn.reader.stores.base import ReadLimits, StoreRows
from cairn.reader.stores.hdfs import HdfsRows
from cairn.reader.stores.rocksdb import RocksDbRows
from cairn.storage.memory import MemoryBucket, MemoryStore

assert settings.default
EXAMPLES = settings.default.max_examples // 4
FOLDER = "state/0/0"
# The second family has lists. The bytes of the ids sort differently from their numbers.
FAMILIES = {"default": 1, "lists": 256}


def key_of(number: int) -> bytes:
    """Return a key that no other number has."""
    return struct.pack("<qq", 0, number) * 4


# The smaller one holds some 30 rows, so that many versions are read in several parts, and the
# longest list that can be drawn.
LIMITS = st.sampled_from([ReadLimits(), ReadLimits(memory_bytes=32 << 10)])
KEYS = st.integers(0, 60).map(key_of)
VALUES = st.one_of(
    st.integers(0, 9).map(lambda number: bytes([number]) * 16),
    st.integers(0, 12).map(lambda words: b"\x2c" * 8 * words),
)
PUTS_AND_DELETES = st.tuples(st.sampled_from(["put", "put", "delete"]), KEYS, VALUES)
VERSIONS = st.lists(
    st.tuples(st.lists(PUTS_AND_DELETES, max_size=40), st.booleans()), min_size=1, max_size=6
)


def check(store: StoreRows, family: str, rows: dict[bytes, bytes]) -> None:
    """Compare all rows, and look some keys up."""
    assert rows_of(store, family) == rows
    for key in [*list(rows)[:3], key_of(5), key_of(61)]:
        assert store.get(family, key) == rows.get(key)


@given(VERSIONS, LIMITS, st.booleans())
def test_hdfs_backed_stores_equal_a_dictionary(
    versions: list[tuple[list[Change], bool]],
    limits: ReadLimits,
    has_checksums: bool,  # noqa: FBT001 - drawn
) -> None:
    """Any history of writes and snapshots gives the rows that Spark has."""
    objects = MemoryStore("memory://checkpoint", MemoryBucket())
    rows: dict[bytes, bytes] = {}
    states: list[dict[bytes, bytes]] = []
    for number, (changes, has_snapshot) in enumerate(versions, 1):
        for op, key, value in changes:
            rows.pop(key, None)
            if op == "put":
                rows[key] = value
        states.append(dict(rows))
        files = {"delta": changes}
        if has_snapshot:
            files["snapshot"] = [("put", key, value) for key, value in rows.items()]
        for kind, written in files.items():
            data = plain(_with_short_checksums(written) if has_checksums else written)
            objects.put(f"{FOLDER}/{number}.{kind}", compressed(data))

    for number, state in enumerate(states, 1):
        with HdfsRows(
            objects, FOLDER, number, has_row_checksums=has_checksums, limits=limits
        ) as store:
            check(store, "default", state)


def _with_short_checksums(changes: list[Change]) -> list[Change]:
    return [
        (op, key, short_checksum(key, value)) if op == "put" else (op, short_checksum(key), b"")
        for op, key, value in changes
    ]


ELEMENTS = st.lists(st.sampled_from([b"", b",", b"\x2c" * 16, b"\0" * 8]), min_size=1, max_size=2)
LIST_CHANGES = st.tuples(
    st.sampled_from(["append", "append", "put", "delete"]),
    KEYS,
    ELEMENTS,
)
RANGES = st.tuples(st.just("delete range"), KEYS, KEYS)
FAMILY_VERSIONS = st.lists(
    st.tuples(
        st.lists(PUTS_AND_DELETES, max_size=40),
        st.lists(RANGES, max_size=2),
        st.lists(LIST_CHANGES, max_size=15),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@dataclass
class RocksHistory:
    """Writes the files of a store with families, and what they mean."""

    has_ids: bool
    delimiter: bytes
    has_checksums: bool
    work: Path
    objects: MemoryStore = field(
        default_factory=lambda: MemoryStore("memory://checkpoint", MemoryBucket())
    )
    single: dict[bytes, bytes] = field(default_factory=dict)
    lists: dict[bytes, list[bytes]] = field(default_factory=dict)
    before: list[tuple[int, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshots = RocksSnapshots(self.objects, FOLDER, self.work)

    def commit(self, singles: list[Change], lists: list[tuple[str, bytes, list[bytes]]]) -> None:
        """Store the changelog of a version."""
        number = len(self.ids) + 1
        changes = [self._single(change) for change in singles]
        changes += [self._list(op, key, values) for op, key, values in lists]
        header = text("v4") + lineage(self.before) if self.has_ids else text("v2")
        self.ids.append(f"id{number}")
        self.objects.put(f"{self._name(number)}.changelog", compressed(header + tagged(changes)))
        self.before.append((number, f"id{number}"))

    def snapshot(self) -> None:
        """Store a snapshot of the newest version: later lineages begin with it."""
        number = len(self.ids)
        rows = {
            self._key("default", key): self._value(self._key("default", key), [value], "default")
            for key, value in self.single.items()
        }
        for key, values in self.lists.items():
            full = self._key("lists", key)
            rows[full] = self._value(full, [element(one) for one in values], "lists")
        name = self._name(number).removeprefix(f"{FOLDER}/")
        self.snapshots.put(f"{name}.zip", rows, FAMILIES)
        self.before = [(number, f"id{number}")]

    def _name(self, number: int) -> str:
        return f"{FOLDER}/{number}" + (f"_id{number}" if self.has_ids else "")

    def _key(self, family: str, key: bytes) -> bytes:
        return struct.pack("<h", FAMILIES[family]) + key

    def _value(self, key: bytes, parts: list[bytes], family: str) -> bytes:
        if self.has_checksums:
            parts = [long_checksum(key, part) for part in parts]
        return (self.delimiter if family == "lists" else b"").join(parts)

    def _single(self, change: Change) -> Change:
        op, key, value = change
        full = self._key("default", key)
        if op == "delete range":
            for one in [one for one in self.single if key <= one < value]:
                del self.single[one]
            return op, full, self._value(full, [self._key("default", value)], "default")
        self.single.pop(key, None)
        if op == "delete":
            return op, short_checksum(full) if self.has_checksums else full, b""
        self.single[key] = value
        return op, full, self._value(full, [value], "default")

    def _list(self, op: str, key: bytes, values: list[bytes]) -> Change:
        full = self._key("lists", key)
        before = self.lists.pop(key, [])
        if op == "delete":
            return "delete", short_checksum(full) if self.has_checksums else full, b""
        self.lists[key] = [*(before if op == "append" else []), *values]
        stored = self._value(full, [element(one) for one in values], "lists")
        grown: Op = "append" if op == "append" else "put"
        return grown, full, stored


@pytest.mark.parametrize("has_ids", [False, True], ids=["format 1", "format 2"])
@settings(max_examples=EXAMPLES)
@given(FAMILY_VERSIONS, LIMITS, st.sampled_from([b"", b","]), st.booleans())
def test_rocksdb_stores_equal_dictionaries(
    has_ids: bool,  # noqa: FBT001 - a parameter
    versions: list[tuple[list[Change], list[Change], list[tuple[str, bytes, list[bytes]]], bool]],
    limits: ReadLimits,
    delimiter: bytes,
    has_checksums: bool,  # noqa: FBT001 - drawn
) -> None:
    """Any history of writes, merges and snapshots gives the rows and lists that Spark has."""
    with tempfile.TemporaryDirectory() as work:
        history = RocksHistory(has_ids, delimiter, has_checksums, Path(work))
        states: list[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = []
        for singles, ranges, lists, has_snapshot in versions:
            middle = len(singles) // 2
            history.commit([*singles[:middle], *ranges, *singles[middle:]], lists)
            if has_snapshot or not states:
                history.snapshot()
            joined = {key: b"".join(map(element, values)) for key, values in history.lists.items()}
            states.append((dict(history.single), joined))

        for number, (single, joined) in enumerate(states, 1):
            with RocksDbRows(
                history.objects,
                FOLDER,
                number,
                checkpoint_id=f"id{number}" if has_ids else None,
                list_families={"lists"},
                list_delimiter=delimiter,
                has_row_checksums=has_checksums,
                limits=limits,
            ) as store:
                check(store, "default", single)
                check(store, "lists", joined)
