"""Jobs: control calls that run in threads of their own, so that every message is answered soon.

Layer: engine.  Spec: docs/protocol.md#calls.

The shim begins a job, and asks for its result in short calls: it learns that the job moves, and a
cancelled task need not wait.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from cairn.errors import CairnError, ProtocolError, unexpected
from cairn.storage.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.protocol.calls import Answer, Json
    from cairn.storage.progress import Activity

    Run = Callable[[str, Json, Progress], Answer]

_LOG = logging.getLogger(__name__)
_MAX_WAIT_S = 10.0
MAX_CANCELLED = 1_000
"""A begin overtakes or follows its cancellation by less than that many other cancellations."""


def answer_of(method: str, run: Callable[[], Json]) -> Json:
    """Return what ``run`` returns, or ``{"error": …}``.

    Never raises, and no message contains a secret.
    """
    try:
        return run()
    except CairnError as failure:
        return {"error": failure.to_dict()}
    except (KeyError, TypeError, ValueError) as failure:
        _LOG.exception("%s failed", method)
        # The text may contain arguments, and thereby secrets: only the kind is sent.
        error: CairnError = ProtocolError(
            f"{method} failed on its arguments: {type(failure).__name__}"
        )
        return {"error": error.to_dict()}
    except Exception as failure:  # noqa: BLE001 - it never raises
        _LOG.exception("%s failed", method)
        return {"error": unexpected(failure).to_dict()}


class _Job:
    def __init__(self, activity: Activity) -> None:
        self.progress = Progress(activity)
        self.result: Future[Json] = Future()


class Jobs:
    """The jobs of a worker, by the numbers that the shim gives them. Thread-safe.

    Args:
        run: runs a method with its arguments.
        activity: the worker's.
    """

    def __init__(self, run: Run, activity: Activity) -> None:
        self._run = run
        self._activity = activity
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        # The numbers that were cancelled while there was no such job, in their order.
        self._cancelled: dict[int, None] = {}

    def begin(self, number: int, method: str, arguments: Json, wait_s: float) -> Json:
        """Begin a job, or join the one of this number; return as ``wait``.

        If it was cancelled before, a load ends at once; other jobs run, and keep no result.
        """
        with self._lock:
            job = self._jobs.get(number)
            is_new = job is None
            if job is None:
                job = _Job(self._activity)
                if number in self._cancelled:
                    job.progress.cancel()
                else:
                    self._jobs[number] = job
        if is_new:
            thread = threading.Thread(
                target=self._work, args=(job, method, arguments), name="cairn-call", daemon=True
            )
            thread.start()
        return self._wait(number, job, wait_s)

    def _work(self, job: _Job, method: str, arguments: Json) -> None:
        def run() -> Json:
            return {"ok": self._run(method, arguments, job.progress).to_json()}

        job.result.set_result(answer_of(method, run))

    def wait(self, number: int, wait_s: float) -> Json:
        """Return a job's result, once; ``{"running": …}`` if it does not end within the time.

        Args:
            number: the job's number.
            wait_s: at most 10 s.

        Raises:
            ProtocolError: there is no such job, or its result was returned before.
        """
        job = self._jobs.get(number)
        if job is None:
            raise ProtocolError(f"there is no job {number}")
        return self._wait(number, job, wait_s)

    def _wait(self, number: int, job: _Job, wait_s: float) -> Json:
        try:
            result = job.result.result(max(0.0, min(wait_s, _MAX_WAIT_S)))
        except TimeoutError:
            return {"running": {"moved": self._activity.count, "text": job.progress.text}}
        with self._lock:
            self._jobs.pop(number, None)
        return result

    def cancel(self, number: int) -> None:
        """Make a job end soon, if it can; nobody waits for it any more.

        The message that begins it may arrive later, on another connection.
        """
        with self._lock:
            job = self._jobs.pop(number, None)
            if job is None:
                self._cancelled[number] = None
                if len(self._cancelled) > MAX_CANCELLED:
                    del self._cancelled[next(iter(self._cancelled))]
        if job is not None:
            job.progress.cancel()
