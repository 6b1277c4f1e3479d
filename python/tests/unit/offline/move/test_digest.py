"""Digest: equal for the same rows in any order and batches, and for no others."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from move_targets import stored

from cairn.checksum import xxh3
from cairn.offline.move.digest import Digest
from cairn.reader.rows.stored import StoredRows

ROWS = st.dictionaries(st.binary(max_size=40), st.binary(max_size=60), max_size=30)
MASK = 2**64 - 1


def mixed(number: int) -> int:
    """Return the last steps of SplitMix64."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def part(data: bytes) -> int:
    if len(data) > 4096:
        return xxh3(data)
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
    weights = [mixed((place + 1) * 0x9E3779B97F4A7C15 & MASK) for place in range(len(words))]
    return len(data) + sum(mixed(one + w & MASK) for one, w in zip(words, weights, strict=True))


def digest_of(*batches: StoredRows) -> tuple[int, int]:
    digest = Digest()
    for batch in batches:
        digest.add(batch)
    return digest.rows, digest.value


@given(ROWS)
def test_it_is_the_sum_that_its_module_says(rows: dict[bytes, bytes]) -> None:
    """A later release must find the same numbers in the record of a migration."""
    wanted = sum(mixed(part(key) + mixed(part(value) & MASK) & MASK) for key, value in rows.items())

    assert digest_of(stored(rows)) == (len(rows), wanted & MASK)


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 30))
def test_order_and_batches_do_not_matter(
    rows: dict[bytes, bytes], random: Random, cut: int
) -> None:
    """Two providers return the rows in other orders."""
    items = list(rows.items())
    random.shuffle(items)
    parts = [stored(dict(items[:cut])), stored(dict(items[cut:]))]

    assert digest_of(*parts) == digest_of(stored(rows))
    whole = stored(dict(items))
    sliced = StoredRows(whole.keys.slice(cut), whole.values.slice(cut))
    assert digest_of(stored(dict(items[:cut])), sliced) == digest_of(stored(rows))


@given(ROWS.filter(bool), st.data())
def test_a_changed_row_changes_it(rows: dict[bytes, bytes], data: st.DataObject) -> None:
    """One bit, a byte that moves between key and value, a value that two keys have exchanged."""
    key = data.draw(st.sampled_from(sorted(rows)))
    value = rows[key]
    others = {name: one for name, one in rows.items() if name != key}
    changed = data.draw(st.binary(max_size=60).filter(lambda one: one != value))

    assert digest_of(stored({**rows, key: changed})) != digest_of(stored(rows))
    moved = (key + value[:1], value[1:])
    if value and moved[0] not in others:
        assert digest_of(stored({**others, moved[0]: moved[1]})) != digest_of(stored(rows))


def test_long_rows_and_many_rows_count() -> None:
    """Rows are summed some at a time, long ones by another function."""
    rows = {bytes([place % 251, place // 251]) * 30: b"x" * (place * 7) for place in range(2000)}

    whole = digest_of(stored(rows))

    first = next(iter(rows))
    assert digest_of(stored({**rows, first: b"y"})) != whole
    last = list(rows)[-1]
    assert digest_of(stored({**rows, last: rows[last][:-1] + b"y"})) != whole
    keys: Any = pa.array([], pa.large_binary())
    assert digest_of(StoredRows(keys, keys)) == (0, 0)
