"""The reply to a COMMIT, read as docs/protocol.md describes it."""

from __future__ import annotations

import struct
from typing import Any

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


def commit_reply(payload: bytes, rows: int) -> dict[str, Any]:
    """Return the fields of a payload with ``rows`` counts; these by the family's id as text."""
    end = _FIXED.size + rows * _COUNT.size
    counts = {str(cf): keys for cf, keys in _COUNT.iter_unpack(payload[_FIXED.size : end])}
    fields = dict(zip((*_NUMBERS, *_TIMES), _FIXED.unpack_from(payload), strict=True))
    return fields | {"counts": counts, "checkpoint_id": payload[end:].decode()}
