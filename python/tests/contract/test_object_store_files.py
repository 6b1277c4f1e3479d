"""Contract of ObjectStore: upload and download of files. Every backend passes it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from cairn.checksum import crc32c, crc32c_file
from cairn.errors import (
    AlreadyExistsError,
    CorruptError,
    MissingError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cairn.storage.base import ObjectStore


def test_upload_and_download_keep_the_bytes_of_a_file(store: ObjectStore, tmp_path: Path) -> None:
    """An SST must come back byte for byte, also into a directory that does not exist yet."""
    source, target = (
        tmp_path / "000007.sst",
        tmp_path / "fresh" / "cache" / "000007.sst",
    )
    source.write_bytes(os.urandom(100_000))

    stored_at = store.upload("sst/7.sst", source, crc32c=crc32c_file(source))
    store.download("sst/7.sst", target, size_bytes=100_000, crc32c=crc32c_file(source))

    assert [(info.key, info.size_bytes) for info in store.list("")] == [("sst/7.sst", 100_000)]
    assert abs(stored_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert target.read_bytes() == source.read_bytes()
    assert [path.name for path in target.parent.iterdir()] == ["000007.sst"]


@pytest.mark.parametrize(
    "size_bytes",
    [0, (64 << 20), (64 << 20) + 1, (72 << 20) + 4097],
    ids=["empty", "last whole", "first in parts", "ragged"],
)
def test_a_file_of_any_size_is_returned_unchanged(
    store: ObjectStore, tmp_path: Path, size_bytes: int
) -> None:
    """A transfer in parts must not lose, repeat or swap a part."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(
        os.urandom(1 << 20) * (size_bytes >> 20) + os.urandom(size_bytes % (1 << 20))
    )
    checksum = crc32c_file(source)

    store.upload("sst/big.sst", source, crc32c=checksum)
    store.download("sst/big.sst", target, size_bytes=size_bytes, crc32c=checksum)

    assert target.stat().st_size == size_bytes
    assert crc32c_file(target) == checksum
    assert crc32c(store.get("sst/big.sst").data) == checksum


@pytest.mark.parametrize("size_bytes", [10, 65 << 20], ids=["small", "in parts"])
def test_upload_never_replaces(store: ObjectStore, tmp_path: Path, size_bytes: int) -> None:
    """SST names are unique; if one exists already, its manifest must stay valid."""
    source = tmp_path / "source"
    source.write_bytes(bytes(size_bytes))
    store.put("sst/1.sst", b"first")

    with pytest.raises(AlreadyExistsError):
        store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    assert store.get("sst/1.sst").data == b"first"


@pytest.mark.parametrize("size_bytes", [10, 65 << 20], ids=["small", "in parts"])
def test_upload_refuses_a_file_with_another_checksum(
    store: ObjectStore, tmp_path: Path, size_bytes: int
) -> None:
    """A faulty local disk must be detected before its bytes are stored."""
    source = tmp_path / "source"
    source.write_bytes(bytes(size_bytes))

    with pytest.raises(CorruptError, match=r"sst/1\.sst"):
        store.upload("sst/1.sst", source, crc32c=crc32c_file(source) ^ 1)

    assert list(store.list("")) == []


def test_upload_of_an_absent_file_is_missing(store: ObjectStore, tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(MissingError, match="nothing-here"):
        store.upload("sst/1.sst", tmp_path / "nothing-here", crc32c=0)


@pytest.mark.parametrize("size_bytes", [1000, 65 << 20], ids=["small", "in ranges"])
def test_download_refuses_corruption_and_leaves_no_file(
    store: ObjectStore, tmp_path: Path, size_bytes: int
) -> None:
    """RocksDB notices a flipped byte only when it reads it, as silently missing rows."""
    whole = os.urandom(size_bytes)
    flipped = bytearray(whole)
    flipped[size_bytes // 2] ^= 0x10
    store.put("sst/1.sst", flipped)
    target = tmp_path / "cache" / "1.sst"

    with pytest.raises(CorruptError) as raised:
        store.download("sst/1.sst", target, size_bytes=size_bytes, crc32c=crc32c(whole))

    assert raised.value.object_name == f"{store.url}/sst/1.sst"
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("actual", [0, 999, 1001, 65 << 20])
@pytest.mark.parametrize("named", [1000, (64 << 20) + 1], ids=["small", "in ranges"])
def test_download_refuses_another_size(
    store: ObjectStore, tmp_path: Path, actual: int, named: int
) -> None:
    """An object that is shorter or longer than its manifest says is corrupt."""
    store.put("sst/1.sst", bytes(actual))
    target = tmp_path / "cache" / "1.sst"

    with pytest.raises(CorruptError, match=r"sst/1\.sst"):
        store.download("sst/1.sst", target, size_bytes=named, crc32c=crc32c(bytes(actual)))

    assert not target.exists()


@pytest.mark.parametrize("size_bytes", [10, 65 << 20], ids=["small", "in ranges"])
def test_download_of_nothing_is_missing(
    store: ObjectStore, tmp_path: Path, size_bytes: int
) -> None:
    """The error names the object, and an existing file stays."""
    target = tmp_path / "1.sst"
    target.write_bytes(b"before")

    with pytest.raises(MissingError, match=r"sst/1\.sst"):
        store.download("sst/1.sst", target, size_bytes=size_bytes, crc32c=0)

    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
