"""HdfsRows: the rows of one version from snapshots and deltas of Spark's HDFS-backed provider."""

from __future__ import annotations

import struct

import pytest
from spark_store_files import (
    Change,
    compressed,
    plain,
    put_file_checksum,
    row,
    rows_of,
    short_checksum,
)

from cairn.errors import CairnError, CorruptError, MissingError, UnsupportedStateError
from cairn.reader.stores import files
from cairn.reader.stores.base import ReadLimits
from cairn.reader.stores.hdfs import HdfsRows
from cairn.storage.memory import MemoryStore

FOLDER = "state/0/1"


def put(objects: MemoryStore, name: str, *changes: Change) -> None:
    """Store a delta or a snapshot."""
    objects.put(f"{FOLDER}/{name}", compressed(plain(changes)))


def written(number: int, value: int) -> Change:
    """Return the put of a row."""
    return "put", row(number), row(value)


def deleted(number: int) -> Change:
    """Return the delete of a row."""
    return "delete", row(number), b""


def expected(rows: dict[int, int]) -> dict[bytes, bytes]:
    """Return rows by number as bytes."""
    return {row(key): row(value) for key, value in rows.items()}


def opened(objects: MemoryStore, version: int, *, has_row_checksums: bool = False) -> HdfsRows:
    """Return the store at a version."""
    return HdfsRows(objects, FOLDER, version, has_row_checksums=has_row_checksums)


def test_a_version_is_its_deltas_in_order(objects: MemoryStore) -> None:
    """A later write or delete of a key would be lost, or an earlier one would win."""
    put(objects, "1.delta", written(1, 10), written(2, 20), written(3, 30), written(1, 11))
    put(objects, "2.delta", deleted(2), written(3, 31), written(4, 40), deleted(9))

    assert rows_of(opened(objects, 1)) == expected({1: 11, 2: 20, 3: 30})
    assert rows_of(opened(objects, 2)) == expected({1: 11, 3: 31, 4: 40})


def test_the_newest_snapshot_up_to_the_version_is_the_base(objects: MemoryStore) -> None:
    """Deltas before a snapshot are deleted: to need them would make the version unreadable."""
    put(objects, "5.snapshot", written(1, 5), written(2, 5))
    put(objects, "7.snapshot", written(1, 7), written(2, 7), written(3, 7))
    put(objects, "8.delta", written(2, 8), deleted(3))
    put(objects, "9.snapshot", written(9, 9))

    assert rows_of(opened(objects, 7)) == expected({1: 7, 2: 7, 3: 7})
    assert rows_of(opened(objects, 8)) == expected({1: 7, 2: 8})


def test_version_zero_is_empty_and_has_no_file(objects: MemoryStore) -> None:
    """A query that has not committed yet has empty state, not an error."""
    assert rows_of(opened(objects, 0)) == {}


def test_one_key_is_found_in_deltas_and_snapshot(objects: MemoryStore) -> None:
    """A look-up would miss a row, or show one that was deleted."""
    put(objects, "1.snapshot", written(1, 10), written(2, 20), written(3, 30))
    put(objects, "2.delta", written(2, 21), deleted(3))
    store = opened(objects, 2)

    found = [store.get("default", row(number)) for number in (1, 2, 3, 4)]

    assert found == [row(10), row(21), None, None]


def test_names_of_other_shapes_are_ignored(objects: MemoryStore) -> None:
    """Temporary files, checksums and other providers' files may lie in the folder."""
    put(objects, "1.delta", written(1, 1))
    for name in ("x.snapshot", "1.delta.tmp", "01.snapshot", "1_u.snapshot", "1.zip", "1"):
        objects.put(f"{FOLDER}/{name}", b"not a file of this provider")
    objects.put(f"{FOLDER}/left/1.snapshot", b"of another store")

    assert rows_of(opened(objects, 1)) == expected({1: 1})


def test_rows_are_cut_to_whole_words(objects: MemoryStore) -> None:
    """Old session windows stored rows with bytes behind them, so that no key would be equal."""
    put(objects, "1.delta", ("put", row(1) + b"\x07" * 3, row(2) + b"\x07"))

    assert rows_of(opened(objects, 1)) == expected({1: 2})


def test_many_rows_of_one_length_and_of_many_lengths_are_read_alike(objects: MemoryStore) -> None:
    """Rows of one length are found at once: a file with both kinds would lose some."""
    rows = {row(number, 2): row(number, 2 + number % 3) for number in range(3000)}
    rows |= {row(10_000 + number): row(number) for number in range(3000)}
    put(objects, "1.snapshot", *(("put", key, value) for key, value in rows.items()))

    assert rows_of(opened(objects, 1)) == rows


def test_a_file_larger_than_a_part_is_read_in_parts(
    objects: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot of some gigabytes would not fit into memory."""
    changes = [written(number, number * 7919) for number in range(5000)]
    put(objects, "1.snapshot", *changes)
    monkeypatch.setattr(files, "PART_BYTES", 1000)

    assert len(rows_of(opened(objects, 1))) == len(changes)
    put_file_checksum(objects, f"{FOLDER}/1.snapshot", value=1)
    with pytest.raises(CorruptError, match="differs from its checksum"):
        rows_of(opened(objects, 1))


def test_a_missing_delta_is_named(objects: MemoryStore) -> None:
    """A version without one of its deltas would lack rows without a sign."""
    put(objects, "1.snapshot", written(1, 1))
    put(objects, "3.delta", written(3, 3))

    with pytest.raises(MissingError) as caught:
        opened(objects, 3)

    assert caught.value.object_name == "memory://checkpoint/state/0/1/2.delta"
    assert caught.value.version == 3


def test_a_file_that_was_purged_meanwhile_is_missing(objects: MemoryStore) -> None:
    """A reader beside a running query must know that it may take a newer batch."""
    put(objects, "1.delta", written(1, 1))
    store = opened(objects, 1)
    objects.delete([f"{FOLDER}/1.delta"])

    with pytest.raises(MissingError, match="read a newer batch"):
        rows_of(store)


def test_row_checksums_are_verified_and_left_out(objects: MemoryStore) -> None:
    """With the checksum inside, each value would be shifted by four bytes."""
    key, other = row(1), row(2)
    put(objects, "1.delta", ("put", key, short_checksum(key, row(10))))
    put(objects, "2.delta", ("put", other, short_checksum(other, row(20))))
    put(objects, "3.delta", ("delete", short_checksum(key), b""))

    assert rows_of(opened(objects, 2, has_row_checksums=True)) == expected({1: 10, 2: 20})
    assert rows_of(opened(objects, 3, has_row_checksums=True)) == expected({2: 20})


@pytest.mark.parametrize(
    "change",
    [
        ("put", row(1), short_checksum(row(2), row(10))),
        ("put", row(1), b"abc"),
        ("delete", short_checksum(row(1))[:-1] + b"\xff", b""),
        ("delete", b"ab", b""),
    ],
)
def test_a_wrong_row_checksum_is_an_error(objects: MemoryStore, change: Change) -> None:
    """A damaged row would be shown as if Spark had written it."""
    put(objects, "1.delta", change)

    with pytest.raises(CorruptError, match="checksum") as caught:
        rows_of(opened(objects, 1, has_row_checksums=True))

    assert caught.value.object_name == "memory://checkpoint/state/0/1/1.delta"


def test_the_checksum_of_a_file_is_verified(objects: MemoryStore) -> None:
    """A damaged file whose records still parse would give wrong rows."""
    put(objects, "1.delta", written(1, 1))
    name = f"{FOLDER}/1.delta"
    put_file_checksum(objects, name)

    assert rows_of(opened(objects, 1)) == expected({1: 1})
    for changed in ({"value": 77}, {"mainFileSize": 3}, {"value": "x"}):
        put_file_checksum(objects, name, **changed)
        with pytest.raises(CorruptError, match="checksum"):
            rows_of(opened(objects, 1))
    put_file_checksum(objects, name, algorithm="SHA")
    with pytest.raises(UnsupportedStateError, match="SHA"):
        rows_of(opened(objects, 1))


def test_deletes_in_a_snapshot_are_an_error(objects: MemoryStore) -> None:
    """Spark writes none: the file is not what its name says."""
    put(objects, "1.snapshot", written(1, 1), deleted(2))

    with pytest.raises(CorruptError, match="has deletes"):
        rows_of(opened(objects, 1))


WHOLE = plain([written(1, 1), written(2, 2)])


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[:-1],
        WHOLE[:-4],
        WHOLE[:-5],
        WHOLE[:30],
        WHOLE[:3],
        WHOLE + b"\0",
        WHOLE[:-4] + struct.pack(">i", -2),
        struct.pack(">i", -7) + WHOLE,
        struct.pack(">i", 2**31 - 1) + WHOLE,
        struct.pack(">i", 16) + row(1) + struct.pack(">i", 2**31 - 1) + row(1),
        struct.pack(">i", 16) + row(1) + struct.pack(">i", -9) + WHOLE,
    ],
)
def test_damaged_records_are_an_error(objects: MemoryStore, content: bytes) -> None:
    """A file that is cut, goes on, or has impossible lengths would give fewer or wrong rows."""
    objects.put(f"{FOLDER}/1.delta", compressed(content))

    with pytest.raises(CorruptError) as caught:
        rows_of(opened(objects, 1))

    assert caught.value.object_name == "memory://checkpoint/state/0/1/1.delta"


@pytest.mark.parametrize("length", [0, 1, 20, 40])
def test_a_cut_file_is_an_error(objects: MemoryStore, length: int) -> None:
    """An upload that broke off would look like a smaller state."""
    put(objects, "1.snapshot", *(written(number, number) for number in range(50)))
    data = objects.get(f"{FOLDER}/1.snapshot").data
    objects.put(f"{FOLDER}/1.snapshot", data[:length])

    with pytest.raises(CairnError) as caught:
        rows_of(opened(objects, 1))

    assert caught.value.kind == "corrupt"


def test_a_length_beyond_the_limit_takes_no_memory(objects: MemoryStore) -> None:
    """A file of a few bytes that claims rows of gigabytes would end the process."""
    zeros = struct.pack(">i", 2**31 - 1) + bytes(96 << 20)
    objects.put(f"{FOLDER}/1.delta", compressed(zeros))
    store = HdfsRows(objects, FOLDER, 1, limits=ReadLimits(memory_bytes=64 << 20))

    with pytest.raises(CairnError, match="a record has more than 8388608 bytes"):
        rows_of(store)
