"""RocksDbRows: the rows of a version from snapshots and changelogs of Spark's RocksDB provider."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from spark_store_files import (
    Change,
    RocksSnapshots,
    compressed,
    element,
    lineage,
    long_checksum,
    plain,
    put_file_checksum,
    row,
    rows_of,
    short_checksum,
    tagged,
    text,
    zipped,
)

from cairn.errors import (
    CairnError,
    CorruptError,
    FormatVersionError,
    MissingError,
    UnsupportedStateError,
)
from cairn.reader.stores import rocksdb
from cairn.reader.stores.base import StoredFamily
from cairn.reader.stores.merging import ROWS
from cairn.reader.stores.rocksdb import RocksDbRows
from cairn.reader.stores.tables import Entry
from cairn.storage.memory import MemoryStore

FOLDER = "state/0/1"
FAMILIES = {"default": 1, "lists": 2, "$internal": 300}
ONE, LISTS, INTERNAL = (struct.pack("<h", number) for number in FAMILIES.values())


class Files:
    """The files of one store."""

    def __init__(self, objects: MemoryStore, work: Path) -> None:
        self.objects = objects
        self._snapshots = RocksSnapshots(objects, FOLDER, work)

    def snapshot(self, name: str, rows: dict[int, int]) -> None:
        """Store a snapshot without families."""
        self._snapshots.put(f"{name}.zip", {row(key): row(value) for key, value in rows.items()})

    def snapshot_with_families(
        self, name: str, rows: dict[bytes, bytes], **changed: object
    ) -> None:
        """Store a snapshot with ``FAMILIES``."""
        self._snapshots.put(f"{name}.zip", rows, FAMILIES, **changed)

    def changelog(
        self,
        name: str,
        rows: dict[int, int | None],
        before: Iterable[tuple[int, str]] | None = None,
    ) -> None:
        """Store a changelog without families; with the lineage of format 2."""
        changes: list[Change] = [
            ("delete", row(key), b"") if value is None else ("put", row(key), row(value))
            for key, value in rows.items()
        ]
        header = b"" if before is None else text("v3") + lineage(before)
        self.store(f"{name}.changelog", compressed(header + plain(changes)))

    def tagged(self, name: str, *changes: Change) -> None:
        """Store a changelog with families."""
        self.store(f"{name}.changelog", compressed(text("v2") + tagged(changes)))

    def store(self, name: str, data: bytes) -> None:
        """Store any file."""
        self.objects.put(f"{FOLDER}/{name}", data)

    def open(self, version: int, checkpoint_id: str | None = None) -> RocksDbRows:
        """Return the store at a version."""
        return RocksDbRows(self.objects, FOLDER, version, checkpoint_id=checkpoint_id)

    def open_lists(
        self, version: int, delimiter: bytes = b"", *, has_row_checksums: bool = False
    ) -> RocksDbRows:
        """Return the store with families at a version."""
        return RocksDbRows(
            self.objects,
            FOLDER,
            version,
            list_families={"lists"},
            list_delimiter=delimiter,
            has_row_checksums=has_row_checksums,
        )


@pytest.fixture
def files(objects: MemoryStore, tmp_path: Path) -> Files:
    """Return a store without files."""
    return Files(objects, tmp_path)


def expected(rows: dict[int, int]) -> dict[bytes, bytes]:
    """Return rows by number as bytes."""
    return {row(key): row(value) for key, value in rows.items()}


def test_a_version_is_a_snapshot_and_the_changelogs_after_it(files: Files) -> None:
    """Writes of a changelog would be lost, or applied to the wrong base."""
    files.snapshot("2", {1: 1})
    files.snapshot("5", {1: 5, 2: 5, 3: 5})
    files.changelog("6", {2: 6, 3: None})
    files.changelog("7", {4: 7, 3: 7})
    files.snapshot("9", {9: 9})

    assert rows_of(files.open(5)) == expected({1: 5, 2: 5, 3: 5})
    assert rows_of(files.open(6)) == expected({1: 5, 2: 6})
    assert rows_of(files.open(7)) == expected({1: 5, 2: 6, 4: 7, 3: 7})


def test_without_a_snapshot_the_changelogs_begin_with_version_1(files: Files) -> None:
    """The first versions of a query have no snapshot yet."""
    files.changelog("1", {1: 1, 2: 1})
    files.changelog("2", {1: 2})

    assert rows_of(files.open(2)) == expected({1: 2, 2: 1})
    assert rows_of(files.open(0)) == {}


def test_one_key_is_found_in_changelogs_and_snapshot(files: Files) -> None:
    """A look-up would miss a row, or show one that was deleted."""
    files.snapshot("1", {1: 10, 2: 20, 3: 30})
    files.changelog("2", {2: 21, 3: None})
    store = files.open(2)

    found = [store.get("default", row(number)) for number in (1, 2, 3, 4)]

    assert found == [row(10), row(21), None, None]


def test_a_missing_changelog_is_named(files: Files) -> None:
    """A version without one of its changelogs would lack rows without a sign."""
    files.snapshot("1", {1: 1})
    files.changelog("3", {3: 3})

    with pytest.raises(MissingError) as caught:
        files.open(3)

    assert caught.value.object_name == "memory://checkpoint/state/0/1/2.changelog"


def test_the_id_chooses_among_attempts(files: Files) -> None:
    """The writes of an attempt that lost would be read as committed."""
    files.snapshot("1_a", {1: 1})
    files.snapshot("1_b", {1: 100})
    files.changelog("2_c", {2: 2}, [(1, "a")])
    files.changelog("2_d", {2: 200}, [(1, "b")])
    files.snapshot("2_e", {7: 7})
    files.changelog("3_f", {3: 3}, [(1, "a"), (2, "c")])

    assert rows_of(files.open(2, "c")) == expected({1: 1, 2: 2})
    assert rows_of(files.open(2, "d")) == expected({1: 100, 2: 200})
    assert rows_of(files.open(2, "e")) == expected({7: 7})
    assert rows_of(files.open(3, "f")) == expected({1: 1, 2: 2, 3: 3})


def test_the_newest_snapshot_of_the_lineage_is_the_base(files: Files) -> None:
    """An older base is right, too, but its changelogs may be deleted."""
    files.snapshot("2_b", {1: 2})
    files.snapshot("3_c", {1: 3})
    files.snapshot("4_x", {1: 400})
    files.changelog("4_d", {4: 4}, [(2, "b"), (3, "c")])
    files.changelog("5_e", {5: 5}, [(2, "b"), (3, "c"), (4, "d")])

    assert rows_of(files.open(5, "e")) == expected({1: 3, 4: 4, 5: 5})


def test_a_lineage_goes_on_in_the_changelog_of_its_oldest_version(files: Files) -> None:
    """The snapshot that a writer knew may never have been stored."""
    files.snapshot("1_a", {1: 1})
    files.changelog("2_b", {2: 2}, [(1, "a")])
    files.changelog("3_c", {3: 3}, [(1, "a"), (2, "b")])
    files.changelog("4_d", {4: 4}, [(3, "c")])
    files.changelog("5_e", {5: 5}, [(4, "d")])

    assert rows_of(files.open(5, "e")) == expected({1: 1, 2: 2, 3: 3, 4: 4, 5: 5})


def test_a_lineage_from_version_1_needs_no_snapshot(files: Files) -> None:
    """The first versions of a query have no snapshot yet."""
    files.changelog("1_a", {1: 1}, [])
    files.changelog("2_b", {2: 2}, [(1, "a")])

    assert rows_of(files.open(1, "a")) == expected({1: 1})
    assert rows_of(files.open(2, "b")) == expected({1: 1, 2: 2})


def test_a_lineage_whose_files_are_gone_is_an_error(files: Files) -> None:
    """State without its base would have the newest rows only."""
    files.changelog("3_c", {3: 3}, [(2, "b")])
    files.changelog("5_e", {5: 5}, [(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    files.changelog("7_g", {7: 7}, [])
    files.changelog("8_h", {8: 8}, [(5, "e")])

    with pytest.raises(MissingError, match=r"2_b\.changelog"):
        files.open(3, "c")
    with pytest.raises(MissingError, match=r"1_a\.changelog"):
        files.open(5, "e")
    with pytest.raises(MissingError, match=r"6_x\.changelog"):
        files.open(6, "x")
    for version, checkpoint_id in ((7, "g"), (8, "h")):
        with pytest.raises(CorruptError, match="does not end before its version"):
            files.open(version, checkpoint_id)


def test_families_are_told_apart_by_their_ids(files: Files) -> None:
    """The rows of one variable would be shown as those of another."""
    files.snapshot_with_families(
        "1", {ONE + row(1): row(10), ONE + row(2): row(20), INTERNAL + row(1): row(300)}
    )
    files.tagged(
        "2",
        ("put", ONE + row(1), row(11)),
        ("delete", INTERNAL + row(1), b""),
        ("put", INTERNAL + row(2), row(301)),
        ("delete", ONE + row(2), b""),
    )
    store = files.open_lists(2)

    assert store.families == {
        "default": StoredFamily(1, is_list=False),
        "lists": StoredFamily(2, is_list=True),
        "$internal": StoredFamily(300, is_list=False, is_internal=True),
    }
    assert rows_of(store) == expected({1: 11})
    assert rows_of(store, "lists") == {}
    assert rows_of(store, "$internal") == expected({2: 301})
    assert store.get("$internal", row(2)) == row(301)
    assert store.get("default", row(2)) is None


@pytest.mark.parametrize("delimiter", [b"", b","])
@pytest.mark.parametrize("has_row_checksums", [False, True])
def test_lists_grow_by_merges(files: Files, delimiter: bytes, *, has_row_checksums: bool) -> None:
    """The elements that a batch appends would be lost or misread."""
    first, second, third = element(b"1st"), element(b",,"), element(b"")

    def stored(key: bytes, value: bytes) -> bytes:
        return long_checksum(key, value) if has_row_checksums else value

    old, new = LISTS + row(1), LISTS + row(2)
    files.snapshot_with_families("1", {old: stored(old, first) + delimiter + stored(old, second)})
    files.tagged("2", ("append", old, stored(old, third)), ("append", new, stored(new, first)))
    files.tagged("3", ("append", new, stored(new, third)))
    store = files.open_lists(3, delimiter, has_row_checksums=has_row_checksums)

    rows = {row(1): first + second + third, row(2): first + third}

    assert rows_of(store, "lists") == rows
    assert {key: store.get("lists", key) for key in rows} == rows


class UnmergedTables:
    """Stands for ``Tables`` of a database with merge operands, which rocksdict cannot write."""

    entries: ClassVar[dict[bytes, Entry]] = {}

    def __init__(self, *_: object) -> None:
        pass

    def scan(self, start: bytes, end: bytes | None) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a range."""
        keys = [key for key in sorted(self.entries) if start <= key and (not end or key < end)]
        columns: list[list[Any]] = [
            list(keys),
            [self.entries[key].value for key in keys],
            [self.entries[key].operands or None for key in keys],
        ]
        fields = zip(columns, ROWS, strict=True)
        yield pa.record_batch([pa.array(one, field.type) for one, field in fields], schema=ROWS)

    def get(self, key: bytes) -> Entry | None:
        """Return one entry."""
        return self.entries.get(key)


@pytest.mark.parametrize("delimiter", [b"", b","])
@pytest.mark.parametrize("has_row_checksums", [False, True])
def test_merges_that_rocksdb_has_not_joined_yet_are_joined(
    files: Files, monkeypatch: pytest.MonkeyPatch, delimiter: bytes, *, has_row_checksums: bool
) -> None:
    """Lists would lack elements, or have them in another order, until the next compaction."""
    lists = {row(number): [element(b"%d" % one) for one in range(number)] for number in (2, 3, 9)}
    whole = {row(4): [element(b"whole"), element(b"")]}

    def stored(key: bytes, elements: list[bytes]) -> bytes:
        full = LISTS + key
        parts = [long_checksum(full, one) for one in elements] if has_row_checksums else elements
        return delimiter.join(parts)

    entries = {
        row(2): Entry(None, (stored(row(2), lists[row(2)][:1]), stored(row(2), lists[row(2)][1:]))),
        row(3): Entry(stored(row(3), lists[row(3)][:2]), (stored(row(3), lists[row(3)][2:]),)),
        row(4): Entry(stored(row(4), whole[row(4)])),
        row(9): Entry(
            stored(row(9), lists[row(9)][:3]),
            tuple(stored(row(9), [one]) for one in lists[row(9)][3:]),
        ),
    }
    full_entries = {LISTS + key: entry for key, entry in entries.items()}
    monkeypatch.setattr(UnmergedTables, "entries", full_entries)
    monkeypatch.setattr(rocksdb, "Tables", UnmergedTables)
    files.snapshot_with_families("1", {})
    store = files.open_lists(1, delimiter, has_row_checksums=has_row_checksums)

    expected_lists = {key: b"".join(parts) for key, parts in (lists | whole).items()}

    assert rows_of(store, "lists") == expected_lists
    assert {key: store.get("lists", key) for key in expected_lists} == expected_lists


def test_merges_of_a_family_without_lists_are_an_error(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller does not know that the family has lists: its elements would run together."""
    entries = {ONE + row(1): Entry(element(b"a"), (element(b"b"),))}
    monkeypatch.setattr(UnmergedTables, "entries", entries)
    monkeypatch.setattr(rocksdb, "Tables", UnmergedTables)
    files.snapshot_with_families("1", {})
    store = files.open_lists(1)

    with pytest.raises(CorruptError, match="has no lists"):
        rows_of(store)
    with pytest.raises(CorruptError, match="has no lists"):
        store.get("default", row(1))


def test_a_snapshot_with_another_delimiter_is_named(files: Files) -> None:
    """Elements would have other lengths; without the object's name nobody finds the store."""
    files.snapshot_with_families("1", {LISTS + row(1): element(b"a") + b"," + element(b"b")})
    store = files.open_lists(1, b";")

    for read in (lambda: rows_of(store, "lists"), lambda: store.get("lists", row(1))):
        with pytest.raises(CorruptError, match="another delimiter") as caught:
            read()
        assert caught.value.object_name == "memory://checkpoint/state/0/1/1.zip"


def test_row_checksums_of_changelogs_are_verified_and_left_out(files: Files) -> None:
    """A delete would miss its key, and each value would be shifted by its checksum."""
    kept, gone, low, high = (ONE + row(number) for number in (1, 2, 5, 7))
    files.snapshot_with_families(
        "1", {key: long_checksum(key, row(9)) for key in (kept, gone, low, ONE + row(6), high)}
    )
    files.tagged(
        "2",
        ("put", kept, long_checksum(kept, row(11))),
        ("delete", short_checksum(gone), b""),
        ("delete range", low, long_checksum(low, high)),
    )

    store = files.open_lists(2, has_row_checksums=True)

    assert rows_of(store) == expected({1: 11, 7: 9})
    assert store.get("default", row(7)) == row(9)


@pytest.mark.parametrize(
    "change",
    [
        ("put", ONE + row(1), long_checksum(ONE + row(2), row(1))),
        ("put", ONE + row(1), row(1)),
        ("append", LISTS + row(1), long_checksum(row(1), element(b"x"))),
        ("delete", ONE + row(1), b""),
        ("delete range", ONE + row(1), ONE + row(3)),
    ],
)
def test_a_wrong_row_checksum_is_an_error(files: Files, change: Change) -> None:
    """A damaged row would be shown as if Spark had written it."""
    files.snapshot_with_families("1", {})
    files.tagged("2", change)
    store = files.open_lists(2, has_row_checksums=True)

    with pytest.raises(CorruptError) as caught:
        rows_of(store)

    assert caught.value.object_name == "memory://checkpoint/state/0/1/2.changelog"


def test_a_deleted_range_reaches_into_the_snapshot(files: Files) -> None:
    """Rows that Spark deleted with one record would live on."""
    files.snapshot_with_families("1", {ONE + row(number): row(0) for number in range(6)})
    files.tagged(
        "2",
        ("put", ONE + row(3), row(1)),
        ("delete range", ONE + row(2), ONE + row(5)),
        ("put", ONE + row(4), row(2)),
    )

    assert rows_of(files.open_lists(2)) == expected({0: 0, 1: 0, 4: 2, 5: 0})


def test_a_range_beyond_its_family_is_refused(files: Files) -> None:
    """The rows of another variable would be deleted or kept by mistake."""
    files.snapshot_with_families("1", {})
    files.tagged("2", ("delete range", ONE + row(2), LISTS))

    with pytest.raises(UnsupportedStateError, match="beyond its column family"):
        rows_of(files.open_lists(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("put", struct.pack("<h", 7) + row(1), row(1)), "unknown column family 7"),
        (("put", b"\x01", row(1)), "too short"),
        (("append", ONE + row(1), row(1)), "has no lists"),
    ],
)
def test_records_that_do_not_fit_the_families_are_an_error(
    files: Files, change: Change, message: str
) -> None:
    """Rows of an unknown family would be lost without a sign."""
    files.snapshot_with_families("1", {})
    files.tagged("2", change)

    with pytest.raises(CorruptError, match=message):
        rows_of(files.open_lists(2))


def test_a_changelog_of_the_other_kind_is_an_error(files: Files) -> None:
    """Keys with and without ids of families cannot be told apart."""
    files.snapshot_with_families("1", {})
    files.changelog("2", {1: 1})
    files.snapshot("3", {})
    files.tagged("4", ("put", ONE + row(1), row(1)))

    for version in (2, 4):
        with pytest.raises(CorruptError, match="disagree about column families"):
            rows_of(files.open_lists(version))


def test_column_families_without_a_snapshot_are_an_error(files: Files) -> None:
    """Rows of all variables would be shown as one, with two bytes in front of each key."""
    files.tagged("1", ("put", ONE + row(1), row(1)))

    with pytest.raises(CorruptError, match="no snapshot before the changelog names its"):
        rows_of(files.open_lists(1))


def test_damaged_changelogs_are_an_error(files: Files) -> None:
    """A changelog that is cut, goes on, or has impossible records would give wrong rows."""
    files.snapshot_with_families("1", {})
    whole = tagged([("put", ONE + row(1), row(1)), ("delete", ONE + row(1), b"")])
    put, minus = whole[:6], struct.pack(">i", -1)
    damaged = [whole[:-1], whole[:-3], whole[:9], whole + b"\0", b"\x02" + whole[1:]]
    damaged += [b"\x01" + minus + whole, b"\x10" + whole[1:], put[:5] + b"x" + minus + whole]

    for records in damaged:
        files.store("2.changelog", compressed(text("v2") + records))
        with pytest.raises(CorruptError) as caught:
            rows_of(files.open_lists(2))
        assert caught.value.object_name == "memory://checkpoint/state/0/1/2.changelog"


def test_the_checksum_of_a_snapshot_is_verified(files: Files) -> None:
    """A damaged list of files would open another database."""
    files.snapshot("1", {1: 1})
    put_file_checksum(files.objects, f"{FOLDER}/1.zip")

    assert rows_of(files.open(1)) == expected({1: 1})
    put_file_checksum(files.objects, f"{FOLDER}/1.zip", value=0)
    with pytest.raises(CorruptError, match="differs from its checksum"):
        files.open(1)


def test_an_sst_file_that_is_gone_or_cut_is_an_error(files: Files) -> None:
    """State would lack the rows of that file."""
    files.snapshot("1", {number: number for number in range(100)})
    (sst,) = [info.key for info in files.objects.list(f"{FOLDER}/SSTs/")]
    data = files.objects.get(sst).data

    files.objects.put(sst, data[:-9])
    with pytest.raises(CorruptError, match=sst):
        rows_of(files.open(1))
    files.objects.delete([sst])
    with pytest.raises(MissingError, match=sst):
        rows_of(files.open(1))


@pytest.mark.parametrize(
    "changed",
    [
        {"sstFiles": []},
        {"sstFiles": 7},
        {
            "sstFiles": [
                {"localFileName": "000008.sst", "dfsSstFileName": "../../x", "sizeBytes": 1}
            ]
        },
        {"columnFamilyMapping": {"a": 1, "b": 1}},
        {"columnFamilyMapping": {"a": 70_000}},
        {"columnFamilyTypeMap": {"default": "no"}},
    ],
)
def test_damaged_metadata_of_a_snapshot_are_an_error(
    files: Files, changed: dict[str, object]
) -> None:
    """Files outside the store would be read, or families taken for each other."""
    files.snapshot_with_families("1", {ONE + row(1): row(1)}, **changed)

    with pytest.raises(CorruptError) as caught:
        rows_of(files.open_lists(1))

    assert caught.value.object_name == "memory://checkpoint/state/0/1/1.zip"


def test_a_damaged_zip_is_an_error(files: Files) -> None:
    """An upload that broke off would end the program with an error of Python's own."""
    files.snapshot("1", {1: 1})
    whole = files.objects.get(f"{FOLDER}/1.zip").data
    damaged = [b"", b"PK", whole[:-30], whole[: len(whole) // 2], whole[:40] + b"x" + whole[41:]]
    damaged += [
        zipped({"metadata": b"v1\n{}"}),
        zipped({"CURRENT": b"../x\n", "metadata": b"v1\n"}),
    ]

    for data in damaged:
        files.store("1.zip", data)
        with pytest.raises(CairnError) as caught:
            files.open(1)
        assert caught.value.kind == "corrupt"
        assert caught.value.object_name == "memory://checkpoint/state/0/1/1.zip"


def test_an_unknown_version_of_metadata_is_refused(files: Files) -> None:
    """Its fields may mean something else."""
    members = {"CURRENT": b"MANIFEST-000001\n", "MANIFEST-000001": b"", "metadata": b"v2\n{}"}
    files.store("1.zip", zipped(members))

    with pytest.raises(FormatVersionError, match="v2"):
        files.open(1)
