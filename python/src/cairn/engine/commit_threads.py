"""CommitThreads: threads that run what a task waits for.

Layer: engine. A ``ThreadPoolExecutor`` gives the same and a result that nobody needs: a lock, a
condition and semaphores per call, in code that runs once per batch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class CommitThreads:
    """Runs calls in threads, in their order; starts a thread only if none is idle.

    ``submit`` is called by one thread, the event loop. The threads end with the process.

    Args:
        limit: the most threads; further calls wait for one of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._idle: deque[None] = deque()  # one item per idle thread

    def submit(self, call: Callable[[], object]) -> None:
        """Run ``call`` in one of the threads soon; an error is logged.

        Raises:
            RuntimeError: there is no thread and none can be started; the call will not run.
        """
        if self._idle:
            self._idle.pop()
        elif self._count < self._limit:
            self._start()
        self._calls.put(call)

    def _start(self) -> None:
        name = f"cairn-commit_{self._count + 1}"
        try:
            threading.Thread(target=self._run, name=name, daemon=True).start()
        except RuntimeError:
            if not self._count:
                raise
            # The machine has no more threads: the call waits for one of ours.
            return
        self._count += 1

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call()
            except Exception:  # noqa: BLE001 - the thread must stay
                _LOG.exception("a call in a thread of commits failed")
            del call  # it may refer to the rows of a batch
            self._idle.append(None)
