"""What a commit rests on: the shim and the worker count the session's writes apart, and compare.

Layer: store.  Spec: docs/protocol.md#what-a-commit-rests-on.

The shim counts the writes of its buffer, the worker those that it has received. If a write is lost
between them, the numbers differ, and the commit is refused before anything is stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checksum import crc32c
from cairn.errors import ProtocolError
from cairn.format.ops import OP_APPEND, OP_PUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from cairn.protocol.calls import CommitRequest
    from cairn.store.rows.tally import Tally


def check_rows(request: CommitRequest, written: Tally) -> None:
    """Refuse a commit whose rows are not those that the shim has counted.

    Args:
        request: has the expected number of rows.
        written: the tally of the session's frames.

    Raises:
        ProtocolError: the numbers differ.
    """
    if written.expected_rows != request.expected_rows:
        raise _differs(f"{written.expected_rows} rows, not {request.expected_rows}")


def check_digest(request: CommitRequest, batches: Sequence[pa.RecordBatch]) -> None:
    """Refuse a commit that has other keys than the calls of its session left, if it says which.

    Raises:
        ProtocolError: the digests differ.
    """
    if request.expected_digest is None:
        return
    lists = {family.id for family in request.column_families if family.multi}
    if digest(batches, lists) != request.expected_digest:
        raise _differs("rows with other keys or values than its session has left")


def digest(batches: Sequence[pa.RecordBatch], lists: set[int]) -> int:
    """Return the digest of the keys that exist after these rows. Slow: for tests.

    Args:
        batches: have ``WRITES_SCHEMA``, and one row per key.
        lists: the ids of the families of lists, whose values are not compared.
    """
    total = 0
    for batch in batches:
        columns = batch.select(["op", "cf", "key", "value"]).to_pydict().values()
        for op, cf, key, value in zip(*columns, strict=True):
            if op in (OP_PUT, OP_APPEND):
                name = cf.to_bytes(2, "little") + len(key).to_bytes(4, "little") + key
                total += crc32c(name if cf in lists else name + value)
    return total


def _differs(what: str) -> ProtocolError:
    return ProtocolError(
        f"the commit would store {what}: shim and worker disagree about the session's writes",
        next_step="restart the query from its checkpoint, and report it with the log",
    )
