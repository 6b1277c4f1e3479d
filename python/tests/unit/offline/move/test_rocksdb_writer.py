"""RocksDbWriter: what it writes is what the reader of Spark's files reads."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
from move_targets import LISTS, STORE, add_all, family, stored, target
from rocksdict import AccessType, Options, Rdict
from spark_store_files import element, row, rows_of

from cairn.checksum import crc32c
from cairn.clock import FakeClock
from cairn.errors import DiskFullError, InternalError
from cairn.offline.move import rocksdb_writer
from cairn.offline.move.rocksdb_writer import RocksDbWriter
from cairn.offline.move.target import TargetStore, Written
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import StoredFamily
from cairn.reader.stores.rocksdb import RocksDbRows
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryStore

FOLDER = STORE.folder
FAMILIES = (
    family("$internal", is_internal=True),
    family("lists", LISTS),
    family("default"),
    family("empty"),
)
WITH_FAMILIES: dict[str, Any] = {"has_families": True}


def shuffled(count: int, first: int = 0) -> dict[bytes, bytes]:
    """Return rows of many lengths whose keys are in no order."""
    numbers = list(range(first, first + count))
    random.Random(7).shuffle(numbers)
    return {row(number, 2 + number % 3): row(number, 1 + number % 5) for number in numbers}


def lists(count: int) -> dict[bytes, bytes]:
    """Return lists of one to nine elements, one of many, and one of elements of one length."""
    rows = {
        row(number): b"".join(element(row(each, 1 + each % 3)) for each in range(1 + number % 9))
        for number in range(count)
    }
    rows[row(count)] = b"".join(element(row(each, 1 + each % 4)) for each in range(5000))
    rows[row(count + 1)] = element(row(1)) * 70
    return rows


def write(
    objects: MemoryStore | LocalStore,
    folder: Path,
    of: TargetStore,
    **rows: dict[bytes, bytes],
) -> Written:
    """Write the rows of families by their names, some of each in turn."""
    with RocksDbWriter(objects, of, folder, clock=FakeClock()) as writer:
        for name, of_family in rows.items():
            add_all(writer, of_family, name.replace("internal", "$internal"))
        written = writer.finish()
    assert not folder.exists()
    return written


def read(
    objects: MemoryStore,
    checkpoint_id: str | None = None,
    delimiter: bytes = b"",
    *,
    has_row_checksums: bool = False,
) -> RocksDbRows:
    return RocksDbRows(
        objects,
        FOLDER,
        7,
        checkpoint_id=checkpoint_id,
        list_families={"lists"},
        list_delimiter=delimiter,
        has_row_checksums=has_row_checksums,
    )


def metadata(objects: MemoryStore, name: str = "7.zip") -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(objects.get(f"{FOLDER}/{name}").data)) as archive:
        head, _, body = archive.read("metadata").partition(b"\n")
    assert head == b"v1"
    found: dict[str, Any] = json.loads(body)
    return found


def test_rows_in_any_order(objects: MemoryStore, tmp_path: Path) -> None:
    """RocksDB finds a key only where its order says."""
    rows = shuffled(20_000)

    written = write(objects, tmp_path / "w", target("rocksdb"), default=rows)

    with read(objects) as store:
        assert rows_of(store) == rows
        for key in list(rows)[:50]:
            assert store.get("default", key) == rows[key]
    size = sum(info.size_bytes for info in objects.list(""))
    assert written == Written(None, {"default": len(rows)}, size)
    found = metadata(objects)
    ssts = {info.key for info in objects.list(f"{FOLDER}/SSTs/")}
    assert {f"{FOLDER}/SSTs/{one['dfsSstFileName']}" for one in found.pop("sstFiles")} == ssts
    assert found == {
        "numKeys": len(rows),
        "numInternalKeys": 0,
        "columnFamilyMapping": {},
        "columnFamilyTypeMap": {},
        "maxColumnFamilyId": 0,
    }


@pytest.mark.parametrize("kind", ["in order", "in no order"])
def test_more_rows_than_are_sorted_in_memory(
    objects: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Each run is sorted by itself; a key must not be found in the files of two."""
    monkeypatch.setattr(rocksdb_writer, "RUN_BYTES", 100_000)
    rows = shuffled(20_000)
    if kind == "in order":
        rows = dict(sorted(rows.items()))

    write(objects, tmp_path / "w", target("rocksdb"), default=rows)

    with read(objects) as store:
        assert rows_of(store) == rows
    count = len(list(objects.list(f"{FOLDER}/SSTs/")))
    assert count > 5 if kind == "in order" else count == 1


def test_a_store_without_rows(objects: MemoryStore, tmp_path: Path) -> None:
    """Each partition has a version, also those without a key."""
    written = write(objects, tmp_path / "w", target("rocksdb"), default={})

    assert written.keys == {"default": 0}
    with read(objects) as store:
        assert rows_of(store) == {}


@pytest.mark.parametrize("checksums", ["false", "true"])
@pytest.mark.parametrize("merge_operator", ["1", "2"])
def test_families_and_lists(
    objects: MemoryStore, tmp_path: Path, merge_operator: str, checksums: str
) -> None:
    """Spark tells families by their numbers, and elements by delimiters or none."""
    of = target(
        "rocksdb", *FAMILIES, merge_operator=merge_operator, checksums=checksums, **WITH_FAMILIES
    )
    rows = {"internal": shuffled(500), "lists": lists(300), "default": shuffled(700)}

    written = write(objects, tmp_path / "w", of, **rows)

    assert written.keys == {"$internal": 500, "lists": 302, "default": 700, "empty": 0}
    delimiter = {"1": b",", "2": b""}[merge_operator]
    with read(objects, delimiter=delimiter, has_row_checksums=checksums == "true") as store:
        assert store.families == {
            "default": StoredFamily(1, is_list=False),
            "$internal": StoredFamily(2, is_list=False, is_internal=True),
            "lists": StoredFamily(3, is_list=True),
            "empty": StoredFamily(4, is_list=False),
        }
        for name, expected in rows.items():
            assert rows_of(store, name.replace("internal", "$internal")) == expected
        assert rows_of(store, "empty") == {}
    found = metadata(objects)
    assert (found["numKeys"], found["numInternalKeys"]) == (1002, 500)
    assert found["maxColumnFamilyId"] == 4


def test_the_family_default_has_the_first_number(objects: MemoryStore, tmp_path: Path) -> None:
    """Spark creates it before all others, also in stores that have no use for it."""
    write(objects, tmp_path / "w", target("rocksdb", family("a"), **WITH_FAMILIES), a=shuffled(3))

    assert metadata(objects)["columnFamilyMapping"] == {"default": 1, "a": 2}
    with read(objects) as store:
        assert rows_of(store, "a") == shuffled(3)


def test_row_checksums(objects: MemoryStore, tmp_path: Path) -> None:
    """Without them Spark would take the first bytes of each value for one."""
    rows = shuffled(1000)
    write(objects, tmp_path / "w", target("rocksdb", checksums="true"), default=rows)

    with read(objects, has_row_checksums=True) as store:
        assert rows_of(store) == rows


def test_checkpoint_format_2(objects: MemoryStore, tmp_path: Path) -> None:
    """Spark finds the version by its id, and verifies the zip."""
    of = target("rocksdb", checkpoint_format=2)

    first = write(objects, tmp_path / "w", of, default=shuffled(10))
    second = write(objects, tmp_path / "w", of, default=shuffled(20))

    assert None not in {first.checkpoint_id, second.checkpoint_id}
    for written, count in ((first, 10), (second, 20)):
        with read(objects, checkpoint_id=written.checkpoint_id) as store:
            assert rows_of(store) == shuffled(count)
    data = objects.get(f"{FOLDER}/7_{second.checkpoint_id}.zip").data
    checksum = json.loads(objects.get(f"{FOLDER}/7_{second.checkpoint_id}.zip.crc").data)
    assert checksum["value"] & 0xFFFFFFFF == crc32c(data)
    assert checksum["mainFileSize"] == len(data)
    assert checksum["timestampMs"] == 1_767_225_600_000
    assert set(checksum["creator"]) == {"executorId", "taskInfo"}


def test_rows_are_not_counted_if_spark_does_not_count_them(
    objects: MemoryStore, tmp_path: Path
) -> None:
    """Spark stores -1 then."""
    write(objects, tmp_path / "w", target("rocksdb", counts_rows="false"), default=shuffled(10))

    found = metadata(objects)
    assert (found["numKeys"], found["numInternalKeys"]) == (-1, -1)


@pytest.mark.parametrize(("merge_operator", "delimiter"), [("1", b","), ("2", b"")])
def test_a_program_that_goes_by_the_options_appends_to_lists(
    objects: MemoryStore, tmp_path: Path, merge_operator: str, delimiter: bytes
) -> None:
    """RocksDB itself drops an empty delimiter from the file, and then reads a comma."""
    rows = {row(1): element(row(1)) + element(row(2))}
    of = target("rocksdb", family("lists", LISTS), merge_operator=merge_operator, **WITH_FAMILIES)
    write(objects, tmp_path / "w", of, lists=rows)
    folder = tmp_path / "db"
    with zipfile.ZipFile(io.BytesIO(objects.get(f"{FOLDER}/7.zip").data)) as archive:
        archive.extractall(folder)
        names = archive.namelist()
    for one in metadata(objects)["sstFiles"]:
        data = objects.get(f"{FOLDER}/SSTs/{one['dfsSstFileName']}").data
        assert len(data) == one["sizeBytes"]
        (folder / one["localFileName"]).write_bytes(data)

    database = Rdict(str(folder), Options(raw_mode=True), access_type=AccessType.read_only())
    found = dict(database.items())
    database.close()
    options = next(folder.glob("OPTIONS-*")).read_text()

    expected = element(row(1)) + delimiter + element(row(2))
    assert found == {b"\2\0" + row(1): expected}
    line = f"merge_operator={{id=StringAppendOperator;delimiter={delimiter.decode()};}}"
    assert line in options
    assert "rocksdict-config.json" not in names
    assert {"CURRENT", "metadata"} < set(names)


def test_tables_are_of_the_version_that_the_settings_name(
    objects: MemoryStore, tmp_path: Path
) -> None:
    """The RocksDB of an older Spark reads no newer ones."""
    write(objects, tmp_path / "w", target("rocksdb"), default=shuffled(2000))

    (sst,) = [info.key for info in objects.list(f"{FOLDER}/SSTs/")]
    footer = objects.get(sst).data[-12:]
    assert int.from_bytes(footer[:4], "little") == 5


def test_what_an_earlier_attempt_stored_is_replaced(objects: MemoryStore, tmp_path: Path) -> None:
    """A move that was interrupted is done again; its files are not mixed with those of before."""
    write(objects, tmp_path / "w", target("rocksdb"), default=shuffled(100))
    write(objects, tmp_path / "w", target("rocksdb"), default=shuffled(200))

    with read(objects) as store:
        assert rows_of(store) == shuffled(200)


def test_nothing_leads_to_the_rows_before_the_end(objects: MemoryStore, tmp_path: Path) -> None:
    """Spark would load a part of the state."""
    with RocksDbWriter(objects, target("rocksdb"), tmp_path / "w") as writer:
        add_all(writer, shuffled(100))
        assert not list(objects.list(""))
    assert not list(objects.list(""))
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("run_bytes", [1, 1 << 20])
def test_a_key_that_is_given_twice_is_a_bug(
    objects: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bytes: int
) -> None:
    """One of its values would be lost, and the number of keys would be wrong."""
    monkeypatch.setattr(rocksdb_writer, "RUN_BYTES", run_bytes)
    with RocksDbWriter(objects, target("rocksdb"), tmp_path / "w") as writer:
        writer.add("default", stored({row(1): row(1), row(2): row(2)}))
        writer.add("default", stored({row(1): row(3)}))
        with pytest.raises(InternalError):
            writer.finish()
    assert not list(objects.list(""))


def test_a_full_disk_has_its_error(objects: MemoryStore, tmp_path: Path) -> None:
    """The caller says which disk, and tries again."""
    folder = tmp_path / "w"
    with RocksDbWriter(objects, target("rocksdb"), folder) as writer:
        (folder / "run.sst").symlink_to("/dev/full")
        writer.add("default", stored(shuffled(1000)))
        with pytest.raises(DiskFullError):
            writer.finish()

    assert not folder.exists()


def test_slices_are_written_as_they_are(objects: MemoryStore, tmp_path: Path) -> None:
    """A reader's batches are parts of larger columns."""
    of = target("rocksdb", *FAMILIES, merge_operator="1", checksums="true", **WITH_FAMILIES)
    whole = stored(lists(20))
    with RocksDbWriter(objects, of, tmp_path / "w") as writer:
        writer.add("lists", StoredRows(whole.keys[2:5], whole.values[2:5]))
        writer.add("default", StoredRows(whole.keys[7:8], whole.values[7:8]))
        writer.finish()

    with read(objects, delimiter=b",", has_row_checksums=True) as store:
        assert rows_of(store, "lists") == {row(n): lists(20)[row(n)] for n in (2, 3, 4)}
        assert rows_of(store) == {row(7): lists(20)[row(7)]}


def test_a_local_folder_is_a_target_too(tmp_path: Path) -> None:
    """Hadoop's checksum of a file that is replaced would refuse the new one."""
    objects = LocalStore(str(tmp_path / "ck"))
    write(objects, tmp_path / "w", target("rocksdb"), default=shuffled(10))
    crc = tmp_path / "ck" / FOLDER / ".7.zip.crc"
    crc.write_bytes(b"of the former file")

    write(objects, tmp_path / "w", target("rocksdb"), default=shuffled(20))

    assert not crc.exists()
    assert rows_of(RocksDbRows(objects, FOLDER, 7)) == shuffled(20)
