"""Rows in the order of their keys, of which each comes once: a run of a local database.

Layer: offline.move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cairn.errors import InternalError
from cairn.store.rows.sorting import key_order

if TYPE_CHECKING:
    import pyarrow as pa


def in_key_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows by ascending family and key.

    Args:
        rows: at least one, with columns ``cf`` and ``key``.

    Raises:
        InternalError: two rows have the same key.
    """
    found = key_order(rows)
    if bool(found.repeats.any()):
        raise InternalError("a key was given twice")
    return rows if found.order is None else rows.take(cast("Any", found.order))
