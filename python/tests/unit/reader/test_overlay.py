"""LayeredRows: a base with changes above it, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cairn.errors import RowTooLargeError
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.reader.rows.stored import StoredRows
from cairn.reader.stores.base import Changes, ReadLimits
from cairn.reader.stores.overlay import LayeredRows
from cairn.reader.stores.records import OP_DELETE_RANGE

Write = tuple[int, bytes, bytes]
LARGE = pa.large_binary()


class Layers:
    """A store of one or more families, and how often its parts were read."""

    def __init__(
        self, base: dict[bytes, bytes], *versions: list[Write], memory_bytes: int = 1 << 20
    ) -> None:
        self.base = base
        self.versions = versions
        self.changes_reads = self.base_reads = 0
        limits = ReadLimits(memory_bytes=memory_bytes)
        self.rows = LayeredRows(self._base_rows, self._base_get, self._changes, limits)

    def all(self, family: int = 1) -> dict[bytes, bytes]:
        """Return all rows; each key must come once."""
        rows: dict[bytes, bytes] = {}
        for batch in self.rows.rows(family):
            assert len(batch.keys) == len(batch.values) > 0
            keys: list[Any] = batch.keys.to_pylist()
            for key, value in zip(keys, batch.values.to_pylist(), strict=True):
                assert key not in rows
                rows[key] = value or b""
        return rows

    def _base_rows(self, family: int) -> Iterator[StoredRows]:
        assert family == 1
        self.base_reads += 1
        items = list(self.base.items())
        for start in range(0, len(items), 7):
            keys, values = zip(*items[start : start + 7], strict=True)
            yield StoredRows(pa.array(keys, LARGE), pa.array(values, LARGE))

    def _base_get(self, family: int, key: bytes) -> bytes | None:
        assert family == 1
        return self.base.get(key)

    def _changes(self) -> Iterator[Changes]:
        self.changes_reads += 1
        for version in self.versions:
            ops, keys, values = zip(*version, strict=True)
            yield Changes(
                1, np.array(ops, np.uint8), pa.array(keys, LARGE), pa.array(values, LARGE)
            )


def test_changes_replace_and_delete_rows_of_the_base() -> None:
    """A row would come twice, or an old value would be shown."""
    layers = Layers(
        {b"a": b"1", b"b": b"2", b"c": b"3"},
        [(OP_PUT, b"b", b"20"), (OP_DELETE, b"c", b""), (OP_PUT, b"d", b"40")],
        [(OP_PUT, b"b", b"21"), (OP_DELETE, b"x", b"")],
    )

    assert layers.all() == {b"a": b"1", b"b": b"21", b"d": b"40"}
    assert [layers.rows.get(1, key) for key in (b"a", b"b", b"c", b"x")] == [
        b"1",
        b"21",
        None,
        None,
    ]


def test_without_changes_the_base_is_as_it_is() -> None:
    """The ordinary case after a snapshot must not copy or lose rows."""
    base = {bytes([number]): b"v" for number in range(40)}

    assert Layers(base).all() == base


def test_appends_go_on_where_the_newest_value_ends() -> None:
    """Elements of a list would be lost, doubled, or in another order."""
    layers = Layers(
        {b"base": b"1", b"put": b"1", b"deleted": b"1"},
        [
            (OP_APPEND, b"base", b"2"),
            (OP_APPEND, b"new", b"1"),
            (OP_APPEND, b"put", b"2"),
            (OP_PUT, b"put", b"5"),
            (OP_APPEND, b"put", b"6"),
            (OP_DELETE, b"deleted", b""),
            (OP_APPEND, b"deleted", b"7"),
        ],
        [(OP_APPEND, b"base", b"3"), (OP_APPEND, b"deleted", b"8"), (OP_APPEND, b"new", b"2")],
    )
    expected = {b"base": b"123", b"new": b"12", b"put": b"56", b"deleted": b"78"}

    assert layers.all() == expected
    assert {key: layers.rows.get(1, key) for key in expected} == expected


def test_a_deleted_range_hides_the_base_and_earlier_changes() -> None:
    """Rows that Spark deleted with one record would live on."""
    layers = Layers(
        {b"a": b"1", b"b": b"1", b"c": b"1", b"d": b"1"},
        [
            (OP_PUT, b"bb", b"2"),
            (OP_APPEND, b"c", b"2"),
            (OP_DELETE_RANGE, b"b", b"d"),
            (OP_APPEND, b"c", b"3"),
        ],
    )
    expected = {b"a": b"1", b"c": b"3", b"d": b"1"}

    assert layers.all() == expected
    assert [layers.rows.get(1, key) for key in (b"a", b"b", b"bb", b"c", b"d")] == [
        b"1",
        None,
        None,
        b"3",
        b"1",
    ]


def test_deleted_ranges_that_overlap_need_the_memory_of_one() -> None:
    """A query that deletes the past again and again would exceed any memory."""
    base = {b"%04d" % number: b"old" for number in range(1000)}
    ranges = [
        (OP_DELETE_RANGE, b"%04d" % start, b"%04d" % (start + length))
        for start, length in ((500, 10), (100, 100), (520, 5), (200, 1), (150, 100), (505, 18))
    ]
    many = [(OP_DELETE_RANGE, b"%04d" % start, b"%04d" % (start + 2)) for start in range(600, 990)]
    layers = Layers(base, ranges, [(OP_PUT, b"0110", b"new")], many, memory_bytes=1 << 14)
    gone = {*range(100, 250), *range(500, 525), *range(600, 991)} - {110}

    rows = layers.all()

    assert sorted(rows) == [b"%04d" % number for number in range(1000) if number not in gone]
    assert rows[b"0110"] == b"new"
    assert layers.changes_reads == 1


def test_a_dropped_family_hides_all_before_it_and_the_base_is_not_read() -> None:
    """A variable that was removed and added again would have its old rows."""
    layers = Layers(
        {b"a": b"1", b"b": b"1"},
        [(OP_PUT, b"c", b"2"), (OP_DROP_CF, b"", b""), (OP_APPEND, b"a", b"9")],
        [(OP_PUT, b"d", b"3")],
    )

    assert layers.all() == {b"a": b"9", b"d": b"3"}
    assert layers.base_reads == 0
    assert [layers.rows.get(1, key) for key in (b"a", b"b", b"c")] == [b"9", None, None]


def test_changes_are_read_once_for_all_scans_and_keys() -> None:
    """Each scan and each look-up would download all changelogs again."""
    layers = Layers({b"b": b"2"}, [(OP_PUT, b"a", b"1")])

    both = [layers.all(), layers.all()]
    found = layers.rows.get(1, b"a")

    assert both == [{b"a": b"1", b"b": b"2"}] * 2
    assert found == b"1"
    assert layers.changes_reads == 1


def test_changes_beyond_the_memory_are_read_in_parts() -> None:
    """A version with more changes than memory would end the process, or lose rows."""
    base = {b"key%d" % number: b"old" for number in range(0, 3000, 2)}
    writes: list[Write] = [(OP_PUT, b"key%d" % number, b"new" * 20) for number in range(2000)]
    writes += [(OP_DELETE, b"key%d" % number, b"") for number in range(0, 2000, 5)]
    writes += [(OP_APPEND, b"key%d" % number, b"+") for number in range(0, 3000, 10)]
    parts = [writes[start : start + 100] for start in range(0, len(writes), 100)]
    whole, split = Layers(base, *parts), Layers(base, *parts, memory_bytes=1 << 16)

    assert split.all() == whole.all()
    assert (whole.changes_reads, whole.base_reads) == (1, 1)
    assert split.base_reads > 4
    assert split.rows.get(1, b"key10") == b"+"
    assert split.rows.get(1, b"key2010") == b"old+"


def test_many_changes_of_few_keys_fit_into_little_memory() -> None:
    """A counter that each version rewrites would be held once per version."""
    rounds = [
        [(OP_PUT, b"key%d" % number, b"value %d" % count) for number in range(100)]
        for count in range(300)
    ]
    layers = Layers({}, *rounds, memory_bytes=1 << 17)

    rows = layers.all()

    assert rows == {b"key%d" % number: b"value 299" for number in range(100)}
    assert layers.changes_reads == 1


def test_one_key_that_exceeds_the_memory_is_an_error() -> None:
    """To split the keys further does not help: without a limit it would never end."""
    layers = Layers(
        {}, *([(OP_APPEND, b"key", bytes(1000))] for _ in range(100)), memory_bytes=8192
    )

    with pytest.raises(RowTooLargeError, match="larger memory_bytes"):
        layers.all()
    with pytest.raises(RowTooLargeError, match="larger memory_bytes"):
        layers.rows.get(1, b"key")
