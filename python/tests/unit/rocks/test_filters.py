"""Filters of SST files: no key that is there is denied, and few others are not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
from rocksdict import SstFileWriter

from cairn.rocks.options import file_options
from cairn.rocks.sst.bloom import BloomFilter
from cairn.rocks.sst.filters import may_have
from cairn.rocks.sst.reading import TableReader

ABSENT = 300
"""How many keys are looked for that are not there: one in a hundred is not denied."""


class File:
    """A file on the local disk, read whole."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._data = path.read_bytes()
        self.size_bytes = len(self._data)

    def read(self, offset: int, length: int) -> bytes:
        """Return a part."""
        return self._data[offset : offset + length]


@pytest.mark.parametrize("sizes", [range(1, 17), range(17, 65), range(65, 129)])
def test_files_of_rocksdb_are_asked_by_its_hash(tmp_path: Path, sizes: range) -> None:
    """The hash has another form for each range of sizes: a wrong one would hide rows."""
    random = Random(sizes.start)
    for size in sizes:
        keys = {random.randbytes(size) for _ in range(100)}
        reader = TableReader(File(written(tmp_path, keys)))
        others = {random.randbytes(size) for _ in range(ABSENT)} - keys

        assert all(map(reader.may_have, keys)), size
        assert sum(map(reader.may_have, others)) < ABSENT // 20, size


def test_a_longer_key_may_be_in_any_file(tmp_path: Path) -> None:
    """Its hash is not known: the block is read."""
    reader = TableReader(File(written(tmp_path, {b"k" * 129})))

    assert reader.may_have(b"k" * 129)
    assert reader.may_have(b"x" * 129)


@pytest.mark.parametrize("width", [1, 4, 7, 18])
def test_filters_of_the_own_writer_are_asked_by_theirs(width: int) -> None:
    """Files that were not merged yet have these."""
    keys = np.frombuffer(Random(width).randbytes(200 * width), np.uint8).reshape(-1, width)
    written = BloomFilter()
    written.add(keys)
    block = memoryview(written.finish())
    there = {key.tobytes() for key in keys}
    others = {Random(number).randbytes(width) for number in range(ABSENT)} - there

    assert all(may_have(block, key) for key in there)
    assert sum(may_have(block, key) for key in others) <= len(others) // 20


@pytest.mark.parametrize(
    "end", [b"\xff\x01\x06\0\0", b"\xff\0\x26\0\0", b"\xff\0\0\0\0", b"\x06\2\0\0\0"]
)
def test_an_unknown_filter_denies_no_key(end: bytes) -> None:
    """A later RocksDB may have others."""
    assert may_have(memoryview(bytes(64) + end), b"key")
    assert not may_have(memoryview(bytes(64) + b"\xff\0\x06\0\0"), b"key")


def written(folder: Path, keys: set[bytes]) -> Path:
    """Return a file of RocksDB's writer with these keys."""
    path = folder / "file.sst"
    writer = SstFileWriter(file_options())
    writer.open(str(path))
    for key in sorted(keys):
        writer[key] = b"value"
    writer.finish()
    return path
