"""Plan: the base of what changes a checkpoint: it has the checkpoint's objects, and closes them.

Layer: offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from cairn.clock import Clock
    from cairn.storage.base import ObjectStore


class Plan:
    """See the module.

    Args:
        checkpoint: at the query's checkpoint location; ``close`` closes it.
        clock: tells the time.
    """

    def __init__(self, checkpoint: ObjectStore, clock: Clock) -> None:
        # Making a plan changes nothing.
        checkpoint.cleans = False
        self._checkpoint = checkpoint
        self._clock = clock

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._checkpoint.close()

    def __enter__(self) -> Self:
        """Return the plan."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()
