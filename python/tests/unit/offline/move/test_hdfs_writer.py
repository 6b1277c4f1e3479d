"""HdfsWriter: what it writes is what the reader of Spark's files reads."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from move_targets import LISTS, VERSIONED, add_all, family, stored, target
from spark_store_files import row, rows_of

from cairn.errors import DiskFullError, UnsupportedStateError
from cairn.offline.move.hdfs_writer import HdfsWriter
from cairn.offline.move.target import TargetStore, Written
from cairn.reader.spark.compression import codec_of
from cairn.reader.stores.hdfs import HdfsRows
from cairn.storage.memory import MemoryStore

KEY = "state/0/1/7.snapshot"
EVEN = {row(number): row(number, 3) for number in range(10_000)}
UNEVEN = {row(number, 2 + number % 3): row(number, 2 + number % 5) for number in range(10_000)}


def write(
    objects: MemoryStore, folder: Path, rows: dict[bytes, bytes], of: TargetStore | None = None
) -> Written:
    with HdfsWriter(objects, of or target("hdfs"), folder) as writer:
        add_all(writer, rows)
        written = writer.finish()
    assert not folder.exists()
    return written


def read(objects: MemoryStore, *, has_row_checksums: bool = False) -> dict[bytes, bytes]:
    return rows_of(HdfsRows(objects, "state/0/1", 7, has_row_checksums=has_row_checksums))


@pytest.mark.parametrize(
    ("setting", "codec"),
    [
        ("lz4", "lz4"),
        ("org.apache.spark.io.LZ4CompressionCodec", "lz4"),
        ("ZSTD", "zstd"),
        ("org.apache.spark.io.ZStdCompressionCodec", "zstd"),
        ("snappy", "snappy"),
        ("lzf", "lzf"),
    ],
)
def test_spark_reads_the_codec_of_its_settings(
    objects: MemoryStore, tmp_path: Path, setting: str, codec: str
) -> None:
    """Spark does not look which codec a file has."""
    for rows in (EVEN, UNEVEN, {}):
        written = write(objects, tmp_path / "w", rows, target("hdfs", codec=setting))

        data = objects.get(KEY).data
        assert codec_of(data) == codec
        assert (written.keys, written.stored_bytes) == ({"default": len(rows)}, len(data))
        assert written.checkpoint_id is None
        assert read(objects) == rows


def test_another_codec_is_refused(objects: MemoryStore, tmp_path: Path) -> None:
    """Spark could not read what Cairn would write instead."""
    with pytest.raises(UnsupportedStateError, match="brotli"):
        HdfsWriter(objects, target("hdfs", codec="com.example.brotli"), tmp_path / "w")


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "lzf"])
def test_content_that_no_codec_makes_smaller(
    objects: MemoryStore, tmp_path: Path, codec: str
) -> None:
    """Blocks of it are stored as they are; and one row may have many blocks."""
    chance = random.Random(7)
    rows = {row(number): chance.randbytes(8 * chance.randrange(6000)) for number in range(40)}
    rows[row(99)] = chance.randbytes(1 << 20)

    write(objects, tmp_path / "w", rows, target("hdfs", codec=codec))

    assert read(objects) == rows


@pytest.mark.parametrize("rows", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_row_checksums(objects: MemoryStore, tmp_path: Path, rows: dict[bytes, bytes]) -> None:
    """Without them Spark would take the first bytes of each value for one."""
    write(objects, tmp_path / "w", rows, target("hdfs", checksums="true"))

    assert read(objects, has_row_checksums=True) == rows
    assert all(len(value) % 8 == 0 for value in read(objects).values())  # 4 bytes are cut off
    assert read(objects) != rows


def test_slices_are_written_as_they_are(objects: MemoryStore, tmp_path: Path) -> None:
    """A reader's batches are parts of larger columns."""
    whole = stored({row(number): row(number, 3) for number in range(6)})
    with HdfsWriter(objects, target("hdfs"), tmp_path / "w") as writer:
        writer.add("default", type(whole)(whole.keys[2:4], whole.values[2:4]))
        writer.add("default", type(whole)(whole.keys[4:4], whole.values[4:4]))
        writer.finish()

    assert read(objects) == {row(number): row(number, 3) for number in (2, 3)}


def test_what_an_earlier_attempt_stored_is_replaced(objects: MemoryStore, tmp_path: Path) -> None:
    """A move that was interrupted is done again."""
    write(objects, tmp_path / "w", EVEN)
    write(objects, tmp_path / "w", UNEVEN)

    assert read(objects) == UNEVEN


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_nothing_is_stored_before_the_end(objects: MemoryStore, tmp_path: Path, codec: str) -> None:
    """Spark would load a part of the state."""
    with HdfsWriter(objects, target("hdfs", codec=codec), tmp_path / "w") as writer:
        add_all(writer, EVEN)
        assert not list(objects.list(""))
    assert not list(objects.list(""))
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (target("hdfs", checkpoint_format=2), "no checkpoint format 2"),
        (target("hdfs", family("a"), family("b"), has_families=True), "column families"),
        (target("hdfs", family("default", LISTS)), "no lists"),
        (target("hdfs", family("default", VERSIONED)), "without a version"),
    ],
)
def test_what_the_provider_cannot_have_is_refused(
    objects: MemoryStore, tmp_path: Path, of: TargetStore, reason: str
) -> None:
    """The query would fail at its start, or lose rows."""
    with pytest.raises(UnsupportedStateError, match=reason):
        HdfsWriter(objects, of, tmp_path / "w")


def test_a_full_disk_has_its_error(objects: MemoryStore, tmp_path: Path) -> None:
    """The caller says which disk, and tries again."""
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "snapshot").symlink_to("/dev/full")

    with HdfsWriter(objects, target("hdfs"), folder) as writer, pytest.raises(DiskFullError):
        add_all(writer, EVEN)

    assert not folder.exists()
