"""FoundKeys: which committed keys the reads of a session have found, for its commit.

Layer: store. A commit must know which of the written keys exist. The shim knows it as long as its
cache has the key; most other keys were read by the same session shortly before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

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
# By origin. The value of a spilled key hides whether there is a committed one.
_PRESENCES = np.full(256, PRESENCE_UNKNOWN, np.uint8)
_PRESENCES[ORIGIN_COMMITTED] = PRESENCE_PRESENT
_PRESENCES[ORIGIN_ABSENT] = PRESENCE_ABSENT


class FoundKeys:
    """See the module. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: list[tuple[pa.RecordBatch, Presences]] = []
        self._bytes = 0

    def add(self, names: pa.RecordBatch, origins: Sequence[int]) -> None:
        """Take the answer of a read of the version that the session began with.

        Args:
            names: columns ``cf`` and ``key`` of the request; kept, not copied.
            origins: those of its first keys.
        """
        size = names.get_total_buffer_size()
        with self._lock:
            if self._bytes + size <= _MAX_BYTES:
                self._bytes += size
                self._parts.append((names.slice(0, len(origins)), _PRESENCES[list(origins)]))

    def presences(self, keys_by_family: Sequence[tuple[int, pa.Array[Any]]]) -> Presences:
        """Return the presence of each key, in their order; ``PRESENCE_UNKNOWN``: not found out."""
        with self._lock:
            parts = list(self._parts)
        found = [np.zeros(0, np.uint8)]
        found += [_presences_in(parts, cf, keys) for cf, keys in keys_by_family]
        return np.concatenate(found)

    def clear(self) -> None:
        """Free all keys."""
        with self._lock:
            self._parts, self._bytes = [], 0


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
