"""SlowMove: a move whose stores take long, and tell at their beginning that they have rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

from cairn.offline.move.moving import Move, Moved, StoreMover, StoreRef

SECONDS = 20


@dataclass(frozen=True, slots=True)
class SlowMove(Move):
    """See the module; pickled, as any move."""

    def mover(self) -> StoreMover:
        """See ``Move``."""
        return _SlowMover(self)


class _SlowMover(StoreMover):
    def move(self, ref: StoreRef) -> Moved:
        if self.on_rows is not None:
            self.on_rows(1)
        time.sleep(SECONDS)  # the test ends the process before
        return super().move(ref)
