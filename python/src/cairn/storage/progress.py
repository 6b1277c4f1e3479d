"""Activity and Progress: whether a worker moves, how far a long call has come, its cancellation.

Layer: storage. Time limits measure silence: a call that moves may take hours.
"""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


class Activity:
    """Counts what a worker finishes: files, objects, changelogs. Thread-safe.

    Attributes:
        count: a wait for the worker has not been in vain if this has changed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0

    def moved(self) -> None:
        """Note that something was finished."""
        with self._lock:
            self.count += 1


class Progress:
    """How far one call has come, and whether its caller has given it up. Thread-safe.

    Args:
        activity: the worker's.

    Attributes:
        text: what the call has done, for logs: "downloaded 3 of 8 files".
        count_bytes: called with the size of each download.
    """

    def __init__(self, activity: Activity | None = None) -> None:
        self._activity = activity or Activity()
        self._cancelled: Future[None] = Future()
        self.text = ""
        self.count_bytes: Callable[[int], None] = _ignore

    def note(self, text: str) -> None:
        """Note a step that was finished."""
        self.text = text
        self._activity.moved()

    def cancel(self) -> None:
        """Make the call raise ``CancelledError`` soon. Idempotent."""
        with suppress(InvalidStateError):
            self._cancelled.set_result(None)

    def check(self) -> None:
        """Raise ``CancelledError`` if the call was cancelled."""
        if self._cancelled.done():
            raise CancelledError(
                "the load was cancelled", next_step="none: its caller does not wait for it any more"
            )

    def wait(self, futures: Iterable[Future[Any]]) -> set[Future[Any]]:
        """Wait until at least one future has ended, and return those that have.

        Raises:
            CancelledError: the call was cancelled; the futures go on.
        """
        ended, _ = wait({*futures, self._cancelled}, return_when=FIRST_COMPLETED)
        self.check()
        return ended

    def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread of its own and return its result.

        Raises:
            CancelledError: the call was cancelled; the thread ends with ``work``.
        """
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as failure:  # noqa: BLE001 - it belongs to the caller
                result.set_exception(failure)

        self.check()
        threading.Thread(target=run, name="cairn-request", daemon=True).start()
        self.wait([result])
        return result.result()


def _ignore(_count: int) -> None:
    """Count nothing."""
