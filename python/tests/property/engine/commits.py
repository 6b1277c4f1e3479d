"""What a COMMIT says of its session's writes, and its reply, as docs/protocol.md describes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from cairn.format.ops import OP_DELETE, OP_DROP_CF
from cairn.protocol.frames import PRESENCE_ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBERS = (
    "changelog_bytes",
    "snapshot_version",
    "estimated_keys",
    "memtable_bytes",
    "sst_bytes",
    "snapshot_bytes_left",
    "lineage_versions",
)
_TIMES = ("wait_us", "encode_us", "put_us", "memory_wait_us", "snapshot_wait_us")
_FIXED = struct.Struct("<6Q6I")
_COUNT = struct.Struct("<HQ")


def expected_rows(sent: Sequence[tuple[Any, ...]]) -> int:
    """Return ``expected_rows`` of a session that has sent these writes.

    Args:
        sent: ``(op, cf, key, value, presence)`` of each write in its order.
    """
    dropped = {cf for op, cf, *_ in sent if op == OP_DROP_CF}
    # Deletes of absent keys need not be sent.
    return len(dropped) + sum(
        cf not in dropped and (op, presence) != (OP_DELETE, PRESENCE_ABSENT)
        for op, cf, _, _, presence in sent
        if op != OP_DROP_CF
    )


def commit_reply(payload: bytes, rows: int) -> dict[str, Any]:
    """Return the fields of a payload with ``rows`` counts; these by the family's id as text."""
    end = _FIXED.size + rows * _COUNT.size
    counts = {str(cf): keys for cf, keys in _COUNT.iter_unpack(payload[_FIXED.size : end])}
    fields = dict(zip((*_NUMBERS, *_TIMES), _FIXED.unpack_from(payload), strict=True))
    return fields | {"counts": counts, "checkpoint_id": payload[end:].decode()}
