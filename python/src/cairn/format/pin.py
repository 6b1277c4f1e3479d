"""Pin: the object that protects the SSTs of a long upload, or a version.

Layer: format (bytes only; ``checkpoint.pins`` stores it).
Spec: docs/checkpoint-format.md#pin. Its name says all; nobody reads its content but people.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cairn.format.fields import dump_object

if TYPE_CHECKING:
    from cairn.ids import CheckpointId, StoreId

FORMAT_VERSION = 1

_MAGIC = "CAIRN-PIN"


def encode(
    store: StoreId,
    *,
    run_id: str,
    instance: str,
    written_at_ms: int,
    checkpoint_id: CheckpointId | None = None,
) -> bytes:
    """Return the object's bytes; ``checkpoint_id``: of the version that is pinned."""
    fields: dict[str, object] = {
        "magic": _MAGIC,
        "format": FORMAT_VERSION,
        "store": asdict(store),
        "writer": {"run_id": run_id, "instance": instance},
        "written_at_ms": written_at_ms,
    }
    if checkpoint_id is not None:
        fields["checkpoint_id"] = checkpoint_id
    return dump_object(fields).encode()
