"""Which keys of some rows are among the keys of others.

Layer: store. Hashes of the keys leave few rows, whose keys are then compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.store.sorting import BinaryColumn, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cairn.store.sorting import Flags

    Hashes = NDArray[np.uint32]

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

_HASH_BITS = 18
"""Of 10,000 keys that are searched for, other keys share the hashes of one in 26: 256 KiB."""
_HASHED_BYTES = 64
_WORD_BYTES = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(rows: pa.RecordBatch) -> Hashes | None:
    """Return a number below ``2 ** _HASH_BITS`` per row, equal for equal families and keys.

    Args:
        rows: have columns ``cf`` and ``key``.

    Returns:
        ``None`` if the keys differ in length: numpy would need many steps for each.
    """
    keys = BinaryColumn(rows.column("key"))
    if keys.width is None:
        return None
    result = rows.column("cf").to_numpy().astype(np.uint64)
    for skip in range(0, min(keys.width, _HASHED_BYTES), _WORD_BYTES):
        result ^= result >> np.uint64(32)
        result ^= keys.words(skip)
        result *= _FACTOR
    return (result >> np.uint64(64 - _HASH_BITS)).astype(np.uint32)


def are_among(
    parts: Sequence[tuple[pa.RecordBatch, Hashes | None]], others: Sequence[pa.RecordBatch]
) -> list[Flags]:
    """Return for each row of each part whether its family and key are among those of the others.

    Args:
        parts: rows with columns ``cf`` and ``key``, and their ``key_hashes``; at least one.
        others: the same columns; at least one batch.
    """
    is_hash_of_other = _table(others)
    ends = np.cumsum([rows.num_rows for rows, _ in parts])
    places = [_candidates(rows, hashes, is_hash_of_other) for rows, hashes in parts]
    chosen = np.concatenate(
        [part + start for part, start in zip(places, [0, *ends[:-1]], strict=True)]
    )
    found = np.zeros(int(ends[-1]), np.bool_)
    found[chosen] = _are_equal(
        take([_names(rows) for rows, _ in parts], chosen),
        pa.Table.from_batches([_names(rows) for rows in others]),
    )
    return np.split(found, ends[:-1])


def _names(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["cf", "key"])


def _table(others: Sequence[pa.RecordBatch]) -> Flags | None:
    """Return for each hash whether a key has it; ``None`` if there are keys without a hash."""
    result = np.zeros(1 << _HASH_BITS, np.bool_)
    for rows in others:
        if rows.num_rows:
            hashes = key_hashes(rows)
            if hashes is None:
                return None
            result[hashes] = True
    return result


def _candidates(
    rows: pa.RecordBatch, hashes: Hashes | None, is_hash_of_other: Flags | None
) -> NDArray[np.int64]:
    """Return the rows whose keys may be among the others."""
    if hashes is None or is_hash_of_other is None:
        return np.arange(rows.num_rows)
    return np.flatnonzero(is_hash_of_other[hashes])


def _are_equal(names: pa.RecordBatch, others: pa.Table) -> Flags:
    found = np.zeros(names.num_rows, np.bool_)
    cfs = names.column("cf").to_numpy()
    for cf in pc.unique(others["cf"]).to_pylist():
        keys = others["key"].filter(pc.equal(others["cf"], cf))
        is_equal = pc.is_in(names.column("key"), value_set=keys.combine_chunks())
        found |= is_equal.to_numpy(zero_copy_only=False) & (cfs == cf)
    return found
