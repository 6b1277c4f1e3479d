"""Plan: the base of what changes a checkpoint: it has the checkpoint's objects, and closes them.

``CommittedPlan`` is that of what starts from the last committed batch.

Layer: offline.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from cairn.offline.appended_batch import committed_batch
from cairn.reader.batch import BatchView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.clock import Clock
    from cairn.offline.move.moving import Location
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


class CommittedPlan(Plan):
    """See the module.

    Args:
        location: the query's checkpoint, also for other processes.
        clock: tells the time.

    Attributes:
        batch: the last committed one.

    Raises:
        NotThereError: no batch is committed.
        InUseError: another command makes the checkpoint.
    """

    def __init__(self, location: Location, clock: Clock) -> None:
        super().__init__(location.open(), clock)
        self._location = location
        with self._closed_on_failure():
            self.batch = committed_batch(self._checkpoint)
            self._view = BatchView(self._checkpoint, self.batch)

    @contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Close the connections if the plan cannot be made."""
        try:
            yield
        except BaseException:
            self.close()
            raise
