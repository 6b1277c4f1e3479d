"""Keys that a session has read are not looked up again by its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import Rig, family

from cairn.format.ops import OP_PUT
from cairn.protocol.frames import (
    GET_SCHEMA,
    ORIGIN_ABSENT,
    ORIGIN_COMMITTED,
    ORIGIN_DELETED,
    ORIGIN_SPILL,
    PRESENCE_ABSENT,
    PRESENCE_PRESENT,
    PRESENCE_UNKNOWN,
)
from cairn.store.rows.found_keys import FoundKeys

if TYPE_CHECKING:
    from collections.abc import Generator

FAMILY = family(0, multi=False)
KEYS = [b"", b"a", b"a\x00", b"b", b"zz"]
PRESENCES = {
    ORIGIN_ABSENT: PRESENCE_ABSENT,
    ORIGIN_COMMITTED: PRESENCE_PRESENT,
    ORIGIN_SPILL: PRESENCE_UNKNOWN,
    ORIGIN_DELETED: PRESENCE_UNKNOWN,
}


def names(keys: list[tuple[int, bytes]]) -> pa.RecordBatch:
    """Return the payload of a GET."""
    columns: list[pa.Array[Any]] = [
        pa.array([cf for cf, _ in keys], pa.uint16()),
        pa.array([key for _, key in keys], pa.binary()),
    ]
    return pa.record_batch(columns, schema=GET_SCHEMA)


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KEYS)), max_size=6), max_size=4),
    st.dictionaries(
        st.tuples(st.integers(0, 2), st.sampled_from(KEYS)), st.sampled_from(list(PRESENCES))
    ),
)
def test_the_presences_of_read_keys_are_found(
    requests: list[list[tuple[int, bytes]]], origins: dict[tuple[int, bytes], int]
) -> None:
    """Other keys are unknown; a reply may have answered only the first keys of a request."""
    found, answered = FoundKeys(), set[tuple[int, bytes]]()
    for place, keys in enumerate(requests):
        first = keys[: len(keys) - place % 2]
        found.add(names(keys), bytearray(origins.get(name, ORIGIN_ABSENT) for name in first))
        answered.update(first)

    presences = found.presences([(cf, pa.array(KEYS, pa.binary())) for cf in (2, 0)])

    assert presences.tolist() == [
        PRESENCES[origins.get((cf, key), ORIGIN_ABSENT)]
        if (cf, key) in answered
        else PRESENCE_UNKNOWN
        for cf in (2, 0)
        for key in KEYS
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.sets(st.binary(min_size=2, max_size=2))), max_size=4),
    st.sets(st.binary(min_size=2, max_size=4)),
    st.lists(st.binary(max_size=4), unique=True, min_size=1),
)
def test_the_presences_of_keys_of_read_prefixes_are_found(
    requests: list[tuple[int, set[bytes]]], committed: set[bytes], wanted: list[bytes]
) -> None:
    """A key that is wrongly taken for absent or present makes the count of keys wrong for ever."""
    found, read = FoundKeys(), set[bytes]()
    for cf, prefixes in requests:
        keys = sorted(key for key in committed if key[:2] in prefixes)
        if prefixes:
            origins = pa.array([ORIGIN_COMMITTED] * len(keys), pa.uint8())
            columns: list[pa.Array[Any]] = [origins, pa.array(keys, pa.binary())]
            rows = pa.RecordBatch.from_arrays(columns, names=["origin", "key"])
            found.add_prefixes(cf, sorted(prefixes), rows)
        read |= prefixes if cf == 0 else set()

    presences = found.presences([(0, pa.array(wanted, pa.binary()))])

    known = {True: PRESENCE_PRESENT, False: PRESENCE_ABSENT}
    assert presences.tolist() == [
        known[key in committed] if len(key) > 1 and key[:2] in read else PRESENCE_UNKNOWN
        for key in wanted
    ]


@pytest.mark.parametrize(("read_count", "known_count"), [(4000, 4000), (1000, 1000), (0, 0)])
def test_many_keys_are_looked_for_only_if_reads_have_found_some(
    read_count: int, known_count: int
) -> None:
    """A join writes a hundred thousand keys a batch, and reads prefixes of other ones."""
    written = [b"%04d-%04d" % (number, number) for number in range(4000)]
    prefixes = [key[:4] for key in written[:read_count]] or [b"none"]
    columns: list[pa.Array[Any]] = [pa.array([], pa.uint8()), pa.array([], pa.binary())]
    found = FoundKeys()
    found.add_prefixes(0, prefixes, pa.RecordBatch.from_arrays(columns, names=["origin", "key"]))

    presences = found.presences([(0, pa.array(written, pa.binary()))]).tolist()

    unknown_count = len(written) - known_count
    assert presences == [PRESENCE_ABSENT] * known_count + [PRESENCE_UNKNOWN] * unknown_count


def test_a_few_keys_are_not_looked_for_among_many_read_ones() -> None:
    """The commit of a deduplication knows all of 100,000 keys, but for some."""
    found = FoundKeys()
    read = [b"%04d" % number for number in range(1000)]
    found.add(names([(0, key) for key in read]), bytearray([ORIGIN_COMMITTED] * len(read)))

    few, many = (found.presences([(0, pa.array(read[:count], pa.binary()))]) for count in (10, 100))

    assert few.tolist() == [PRESENCE_UNKNOWN] * 10
    assert many.tolist() == [PRESENCE_PRESENT] * 100


def test_the_memory_of_read_keys_is_bounded() -> None:
    """A session may read any number of keys."""
    found = FoundKeys()
    for number in range(40):
        found.add(names([(0, b"%d" % number + bytes(1 << 20))]), bytearray([ORIGIN_COMMITTED]))

    keys: pa.Array[Any] = pa.array([b"%d" % number + bytes(1 << 20) for number in (0, 39)])
    assert found.presences([(0, keys)]).tolist() == [PRESENCE_PRESENT, PRESENCE_UNKNOWN]


def test_a_commit_looks_up_only_keys_that_were_not_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a state larger than the memory each look-up decompresses a block."""
    looked_up: list[bytes | None] = []
    find = rig.instance.state.local.find_present

    def find_present(
        version: int, keys_by_family: list[tuple[int, pa.Array[Any]]]
    ) -> Generator[None, None, list[bool]]:
        looked_up.extend(key for _, keys in keys_by_family for key in keys.to_pylist())
        return find(version, keys_by_family)

    monkeypatch.setattr(rig.instance.state.local, "find_present", find_present)
    rig.load(0, None)
    rig.write([(OP_PUT, 0, key, b"1", PRESENCE_UNKNOWN) for key in (b"a", b"b")])
    first = rig.commit(1, None, [FAMILY])
    looked_up.clear()
    rig.load(1, first["checkpoint_id"])
    rig.until_applied(1)
    assert rig.get(0, [b"a", b"c"]) == [b"1", None]

    rig.write([(OP_PUT, 0, key, b"2", PRESENCE_UNKNOWN) for key in (b"a", b"b", b"c")])
    second = rig.commit(2, first["checkpoint_id"], [FAMILY])

    assert looked_up == [b"b"]
    assert second["counts"] == {"0": 3}


def test_a_commit_counts_keys_of_read_prefixes_and_not_those_that_were_spilled(rig: Rig) -> None:
    """A spilled key that a later read of its prefix returns is not committed: it adds to the count.

    The prefix was read before the spill, too, so its committed keys are known.
    """
    rig.load(0, None)
    rig.write([(OP_PUT, 0, b"aa", b"1", PRESENCE_UNKNOWN)])
    first = rig.commit(1, None, [FAMILY])
    rig.load(1, first["checkpoint_id"])
    rig.until_applied(1)
    prefixes: list[tuple[bytes, bytes | None]] = [(b"a", b"b"), (b"c", b"d")]
    assert rig.ranges(0, prefixes)[0] == [(b"aa", b"1")]
    rig.write([(OP_PUT, 0, b"ab", b"2", PRESENCE_UNKNOWN)])
    assert rig.ranges(0, prefixes)[0] == [(b"aa", b"1"), (b"ab", b"2")]

    rig.write([(OP_PUT, 0, key, b"3", PRESENCE_UNKNOWN) for key in (b"aa", b"ab", b"c")])
    second = rig.commit(2, first["checkpoint_id"], [FAMILY])

    assert second["counts"] == {"0": 3}
