"""What a COMMIT says of its session's writes, and its reply, as docs/protocol.md describes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from cairn.format.ops import OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import COMMITTED_PRESENCE, EARLY_PUT, PRESENCE_ABSENT

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
        sent: ``(op, cf, key, value, presence)`` of each write in its order, without early ones that
            do not count.
    """
    dropped = {cf for op, cf, *_ in sent if op == OP_DROP_CF}
    spilled = sum(
        cf not in dropped and is_counted(op, presence)
        for op, cf, _, _, presence in sent
        if op != OP_DROP_CF
    )
    # Each row of a key that was sent early stands for both.
    replaced = sum(
        cf not in dropped and is_counted(OP_PUT if presence & EARLY_PUT else OP_DELETE, presence)
        for _, cf, _, _, presence in sent
        if presence > COMMITTED_PRESENCE
    )
    return len(dropped) + spilled - replaced


def is_counted(op: int, presence: int) -> bool:
    """Deletes of absent keys need not be sent."""
    return (op, presence & COMMITTED_PRESENCE) != (OP_DELETE, PRESENCE_ABSENT)


def commit_reply(payload: bytes, rows: int) -> dict[str, Any]:
    """Return the fields of a payload with ``rows`` counts; these by the family's id as text."""
    end = _FIXED.size + rows * _COUNT.size
    counts = {str(cf): keys for cf, keys in _COUNT.iter_unpack(payload[_FIXED.size : end])}
    fields = dict(zip((*_NUMBERS, *_TIMES), _FIXED.unpack_from(payload), strict=True))
    return fields | {"counts": counts, "checkpoint_id": payload[end:].decode()}
