"""Files written with numpy against files of RocksDB's own writer: both give the same answers.

A wrong block or filter would lose rows without an error, so each file is read in all ways.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.format.changelog import CHANGELOG_SCHEMA
from cairn.format.ops import OP_DELETE, OP_PUT
from cairn.rocks import RocksDb, RocksMemory
from cairn.rocks import ingestion as ingestions
from cairn.rocks.sst.rows import MAX_KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 4
CF = 3
MAX_ROWS = 20_000
# All rows of one example, so that it takes a second at most.
MAX_BYTES = 2 << 20

Rows = dict[bytes, bytes | None]


@dataclass(frozen=True)
class Shape:
    """How rows are drawn; two draws of one shape have many keys in common.

    Attributes:
        key_bytes: 1 .. 80, or around the width above which RocksDB's writer makes every file.
        value_bytes: 0 .. 300.
        count: at most so many rows.
        alphabet: the bytes that keys are made of.
        dense: the first bytes of all keys are equal.
        deletes: share of rows that are deletes.
    """

    key_bytes: int
    value_bytes: int
    count: int
    alphabet: bytes
    dense: bool
    deletes: float

    def rows(self, seed: int) -> Rows:
        random = np.random.default_rng(seed)
        count = min(self.count, MAX_BYTES // (self.key_bytes + self.value_bytes))
        cells = random.integers(0, len(self.alphabet), (count, self.key_bytes))
        if self.dense:
            cells[:, : max(0, self.key_bytes - 3)] = 0
        table = np.frombuffer(self.alphabet, np.uint8)[cells]
        keys = sorted({key.tobytes() for key in table})
        deleted = random.random(len(keys)) < self.deletes
        values = random.integers(0, 4, (len(keys), self.value_bytes), np.uint8)
        return {
            key: None if gone else value.tobytes()
            for key, gone, value in zip(keys, deleted, values, strict=True)
        }


SHAPES = st.builds(
    Shape,
    key_bytes=st.one_of(
        st.integers(1, 80),
        st.sampled_from([1, 2, 3, 8, 16, 17]),
        st.sampled_from([MAX_KEY_BYTES - 1, MAX_KEY_BYTES, MAX_KEY_BYTES + 1, 70_000]),
    ),
    value_bytes=st.one_of(st.integers(0, 300), st.sampled_from([0, 1, 8, 127, 128])),
    count=st.one_of(st.integers(1, 40), st.integers(1, MAX_ROWS)),
    alphabet=st.sampled_from([b"\x00\xff", b"\x00\x01\xfe\xff", bytes(range(256)), b"ab\x7f\x80"]),
    dense=st.booleans(),
    deletes=st.sampled_from([0.0, 0.0, 0.02, 0.5, 1.0]),
)


def batch(rows: Rows) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [OP_DELETE if value is None else OP_PUT for value in rows.values()],
        [CF] * len(rows),
        list(rows),
        list(rows.values()),
    ]
    fields = zip(columns, CHANGELOG_SCHEMA, strict=True)
    return pa.record_batch([pa.array(c, f.type) for c, f in fields], schema=CHANGELOG_SCHEMA)


def by_numpy(db: RocksDb, rows: Rows, version: int) -> None:
    ingestion = db.new_ingestion(batch(rows), version, frozenset())
    if len(next(iter(rows))) > MAX_KEY_BYTES:
        assert not db.write(ingestion, lambda: True)
        by_rocksdb(db, rows, version)
        return
    assert db.write(ingestion, lambda: True)
    db.ingest(ingestion)


def by_rocksdb(db: RocksDb, rows: Rows, version: int) -> None:
    ingestion = db.new_ingestion(batch(rows), version, frozenset())
    while ingestion.rows_left:
        ingestion.add(1000)
    ingestion.finish()
    db.ingest(ingestion)


def alternately(db: RocksDb, rows: Rows, version: int) -> None:
    """Compactions and gets meet both kinds of files."""
    (by_numpy if version % 2 else by_rocksdb)(db, rows, version)


def scan(db: RocksDb, start: bytes | None, limit: int) -> dict[bytes, bytes]:
    page = db.scan(CF, start=start, limit_rows=limit, limit_bytes=1 << 30)
    return dict(zip(page.keys, page.values, strict=True))


def check(db: RocksDb, state: dict[bytes, bytes], keys: set[bytes], seed: int) -> None:
    """Compare all ways to read ``db`` with the expected ``state``."""
    everything = sorted(state.items())
    assert list(scan(db, None, 1 << 30).items()) == everything
    names = sorted(keys)
    assert db.get_many(CF, names) == [state.get(key) for key in names]
    random = np.random.default_rng(seed)
    for index in random.integers(0, len(names), 200):
        key = names[index]
        assert db.get(CF, key) == state.get(key)
    near = sorted(change(names[index], random) for index in random.integers(0, len(names), 60))
    for start in near:
        assert db.get(CF, start) == state.get(start)
        expected = [pair for pair in everything if pair[0] >= start][:40]
        assert list(scan(db, start, 40).items()) == expected
    assert db.present(CF, near) == [key in state for key in near]


def change(key: bytes, random: np.random.Generator) -> bytes:
    """Return a key near another one: longer, shorter, or with another byte."""
    kind, place = random.integers(0, 4), random.integers(0, len(key))
    if kind == 0:
        return key + bytes(random.integers(0, 2))
    if kind == 1:
        return key[:place]
    return key[:place] + bytes([random.integers(0, 256)]) + key[place + 1 :]


@contextmanager
def directory() -> Iterator[Path]:
    """Yield a directory of one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.parametrize("write", [by_numpy, by_rocksdb, alternately])
@settings(max_examples=EXAMPLES)
@given(
    shape=SHAPES,
    files=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
    part_rows=st.sampled_from([1, 16, 100, 1 << 14]),
)
def test_reads_equal_a_dictionary(
    write: Callable[[RocksDb, Rows, int], None], shape: Shape, files: int, seed: int, part_rows: int
) -> None:
    """After ingestions, a compaction, a reopen, and from a checkpoint."""
    with directory() as root, pytest.MonkeyPatch.context() as patched:
        # Many parts of few rows take long; they need no more rows than these.
        patched.setattr(ingestions, "_PART_ROWS", max(part_rows, shape.count // 50))
        memory = RocksMemory(1 << 20, 4 << 20)
        db = RocksDb(root / "db", memory, create=True)
        state: dict[bytes, bytes] = {}
        keys: set[bytes] = set()
        for version in range(1, files + 1):
            rows = shape.rows(seed + version)
            write(db, rows, version)
            keys |= rows.keys()
            state |= {key: value for key, value in rows.items() if value is not None}
            for key, value in rows.items():
                if value is None:
                    state.pop(key, None)
        check(db, state, keys, seed)

        db.flush()
        db.checkpoint(root / "copy")
        db.close()
        for name in ("db", "copy"):
            again = RocksDb(root / name, RocksMemory(1 << 20, 4 << 20), create=False)
            check(again, state, keys, seed + 1)
            again._db.compact_range(None, None)
            check(again, state, keys, seed + 2)
            again.close()
