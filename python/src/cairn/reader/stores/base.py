"""What every provider's files are read into: the rows of one store at one version, as bytes.

Layer: reader.stores (below checkpoint and state, above rows and spark).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cairn.errors import CairnError
    from cairn.reader.rows.stored import StoredRows
    from cairn.reader.stores.columns import Column, Flags

DEFAULT_FAMILY = "default"
"""The only column family of a store without families."""


@dataclass(frozen=True, slots=True)
class StoredFamily:
    """One column family of a store.

    Attributes:
        family_id: its number in stored keys; 0 in a store without families.
        is_list: whether its values are lists; ``None`` if the store's files do not say it.
        is_internal: whether the operator has it for itself: Spark does not count its rows.
    """

    family_id: int
    is_list: bool | None = None
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Bounds of what one store takes.

    Attributes:
        memory_bytes: memory for the changes that are newer than a snapshot. Changes that need more
            are read several times, each time for a part of the keys. One row may have an eighth.
    """

    memory_bytes: int = 512 << 20

    @property
    def row_bytes(self) -> int:
        """What one row may have.

        Twice as much is held of changes, and to reduce these takes up to four times their size.
        """
        return self.memory_bytes // 8


@dataclass(frozen=True, slots=True)
class Changes:
    """Consecutive changes of one family, in the order of the writes.

    Attributes:
        family: its id.
        ops: of ``cairn.format.ops``, and ``OP_DELETE_RANGE``. An append adds its value to the end
            of the key's value. A drop hides all before it and has no key.
        keys: large_binary, without nulls; without the prefix of the family.
        values: likewise; empty where the op takes none.
    """

    family: int
    ops: NDArray[np.uint8]
    keys: Column
    values: Column

    def where(self, flags: Flags) -> Changes:
        """Return some of the changes."""
        if flags.all():
            return self
        mask = pa.array(flags)
        return Changes(
            self.family, self.ops[flags], self.keys.filter(mask), self.values.filter(mask)
        )

    def within(self, start: int, end: int) -> Changes:
        """Return the changes from one position to another."""
        return Changes(
            self.family, self.ops[start:end], self.keys[start:end], self.values[start:end]
        )


class StoreRows(Protocol):
    """One store at one version. Not thread-safe."""

    @property
    def families(self) -> Mapping[str, StoredFamily]:
        """The column families by name; ``DEFAULT_FAMILY`` alone if the store has none."""
        ...

    @property
    def gone_around(self) -> Sequence[CairnError]:
        """The damaged or missing objects without which rows were read; each error names one."""
        ...

    def stored_count(self, family: str) -> int | None:
        """Return the number of keys of a family, if a file that was read has it."""
        ...

    def rows(self, family: str) -> Iterator[StoredRows]:
        """Yield the rows of a family: each key once, in any order, in bounded memory.

        Raises:
            KeyError: the store has no such family.
            MissingError: a file was deleted since the store was opened.
            CorruptError: a file contradicts its checksum or its grammar.
            RowTooLargeError: a row, or the list of one key, is over the limits.
        """
        ...

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of one key, or ``None``; raises what ``rows`` does."""
        ...

    def writes(self, family: str) -> Iterator[Changes]:
        """Yield the writes of exactly this version to a family, in their order.

        An empty commit of Cairn's has none.

        Raises:
            MissingError: the file with the writes does not exist. Spark's RocksDB stores none
                without changelog checkpointing.
            CorruptError: as for ``rows``.
        """
        ...

    def rest(self) -> None:
        """Release the memory: the store is used later."""
        ...

    def close(self) -> None:
        """End the use, and release the memory; idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
