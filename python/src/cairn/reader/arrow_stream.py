"""ArrowStream: rows that any Arrow tool takes as a stream.

Layer: reader.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowStream(ABC):
    """Rows that are read anew by each stream."""

    @abstractmethod
    def reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches, which can be read once.

        Raises:
            DataError: while it is read: an object is damaged or gone; names it.
        """

    def to_table(self) -> pa.Table:
        """Return all rows as an Arrow table, in memory."""
        return self.reader().read_all()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows as a capsule of Arrow's C stream interface."""
        reader: Any = self.reader()
        return reader.__arrow_c_stream__(requested_schema)
