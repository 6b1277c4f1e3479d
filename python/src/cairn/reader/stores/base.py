"""What every provider's files are read into: the rows of one store at one version, as bytes.

Layer: reader.stores (below checkpoint and state, above rows and spark).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cairn.reader.rows.stored import StoredRows

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


class StoreRows(Protocol):
    """One store at one version. Not thread-safe."""

    @property
    def families(self) -> Mapping[str, StoredFamily]:
        """The column families by name; ``DEFAULT_FAMILY`` alone if the store has none."""
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

    def close(self) -> None:
        """Release the memory; idempotent."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
