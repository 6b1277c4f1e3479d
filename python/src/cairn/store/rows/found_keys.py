"""FoundKeys: which committed keys the reads of a session have found, for its commit.

Layer: store. A commit must know which of the written keys exist. The shim knows it as long as its
cache has the key; most other keys were read by the same session shortly before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from cairn.protocol.frames import (
    ORIGIN_ABSENT,
    ORIGIN_COMMITTED,
    PRESENCE_ABSENT,
    PRESENCE_PRESENT,
    PRESENCE_UNKNOWN,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Presences = NDArray[np.uint8]

# Arrow's type hints cover neither plain numbers as operands nor the results.
pc: Any = pyarrow.compute

# More keys are not kept: the commit looks them up again.
_MAX_BYTES = 8 << 20
# To search the found keys, a commit makes an index of them: 0.1 to 0.2 us for each. To look up a
# wanted key in the database takes 1 to 3 us.
_FOUND_PER_WANTED = 32
# Of more keys, some are looked for first: if no read has found one, the others are left unknown.
_SAMPLED_FROM_KEYS = 2048
_SAMPLE_KEYS = 256
# By origin. The value of a spilled key hides whether there is a committed one.
_PRESENCES = np.full(256, PRESENCE_UNKNOWN, np.uint8)
_PRESENCES[ORIGIN_COMMITTED] = PRESENCE_PRESENT
_PRESENCES[ORIGIN_ABSENT] = PRESENCE_ABSENT


class FoundKeys:
    """See the module. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: list[tuple[pa.RecordBatch, Presences]] = []
        self._prefixes: list[_Prefixes] = []
        self._bytes = 0

    def add(self, names: pa.RecordBatch, origins: bytearray) -> None:
        """Take the answer of a read of the version that the session began with.

        Args:
            names: columns ``cf`` and ``key`` of the request; kept, not copied.
            origins: those of its first keys.
        """
        size = names.get_total_buffer_size()
        with self._lock:
            if self._bytes + size <= _MAX_BYTES:
                self._bytes += size
                presences = _PRESENCES[np.frombuffer(origins, np.uint8)]
                self._parts.append((names.slice(0, len(origins)), presences))

    def add_prefixes(self, cf: int, prefixes: Sequence[bytes], rows: pa.RecordBatch) -> None:
        """Take the answer of a read of all rows of some prefixes; see ``add``.

        Args:
            cf: their family.
            prefixes: all of one length, at least 1; none has spilled writes.
            rows: columns ``origin`` and ``key``, at least of these prefixes.
        """
        is_committed = pc.equal(rows.column("origin"), ORIGIN_COMMITTED)
        keys = rows.column("key").filter(is_committed)
        part = _Prefixes(cf, len(prefixes[0]), pa.array(prefixes, pa.binary()), keys)
        size = part.prefixes.nbytes + part.keys.nbytes
        with self._lock:
            if self._bytes + size <= _MAX_BYTES:
                self._bytes += size
                self._prefixes.append(part)

    def presences(self, keys_by_family: Sequence[tuple[int, pa.Array[Any]]]) -> Presences:
        """Return the presence of each key, in their order; ``PRESENCE_UNKNOWN``: not found out."""
        with self._lock:
            parts, prefixes = list(self._parts), list(self._prefixes)
        wanted_count = sum(len(keys) for _, keys in keys_by_family)
        if wanted_count * _FOUND_PER_WANTED < sum(names.num_rows for names, _ in parts):
            return np.full(wanted_count, PRESENCE_UNKNOWN, np.uint8)
        result = [np.zeros(0, np.uint8)]
        for cf, keys in keys_by_family:
            found = _presences_in(parts, cf, keys)
            _fill_by_prefix([part for part in prefixes if part.cf == cf], keys, found)
            result.append(found)
        return np.concatenate(result)

    def clear(self) -> None:
        """Free all keys."""
        with self._lock:
            self._parts, self._prefixes, self._bytes = [], [], 0


class _Prefixes(NamedTuple):
    cf: int
    length: int
    prefixes: pa.Array[Any]
    keys: pa.Array[Any]


def _fill_by_prefix(parts: Sequence[_Prefixes], keys: pa.Array[Any], found: Presences) -> None:
    """Set the presences of keys that begin with a prefix whose keys are known."""
    for length in sorted({part.length for part in parts}):
        of_length = [part for part in parts if part.length == length]
        prefixes = pa.concat_arrays([part.prefixes for part in of_length])
        if len(keys) > _SAMPLED_FROM_KEYS:
            sample = keys.take(np.linspace(0, len(keys) - 1, _SAMPLE_KEYS, dtype=np.int64))
            of_sample = pc.is_in(pc.binary_slice(sample, 0, length), value_set=prefixes)
            if not pc.any(of_sample).as_py():
                continue  # joins read other prefixes than they write
        present = pa.concat_arrays([part.keys for part in of_length])
        heads = pc.binary_slice(keys, 0, length)
        is_known = pc.is_in(heads, value_set=prefixes).to_numpy(zero_copy_only=False)
        is_present = pc.is_in(keys, value_set=present).to_numpy(zero_copy_only=False)
        is_known &= found == PRESENCE_UNKNOWN
        found[is_known] = np.where(is_present[is_known], PRESENCE_PRESENT, PRESENCE_ABSENT)


def _presences_in(
    parts: Sequence[tuple[pa.RecordBatch, Presences]], cf: int, keys: pa.Array[Any]
) -> Presences:
    result = np.full(len(keys), PRESENCE_UNKNOWN, np.uint8)
    columns, presences = [], []
    for names, of_part in parts:
        is_of_family = pc.equal(names.column("cf"), cf)
        columns.append(names.column("key").filter(is_of_family))
        presences.append(of_part[is_of_family.to_numpy(zero_copy_only=False)])
    if columns:
        places = pc.index_in(keys, value_set=pa.concat_arrays(columns)).fill_null(-1).to_numpy()
        is_found = places >= 0
        result[is_found] = np.concatenate(presences)[places[is_found]]
    return result
