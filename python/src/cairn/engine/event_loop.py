"""The loop of a worker's owner thread: sockets first, then a slice of other work.

Layer: engine. This thread alone touches RocksDB's rows. Between two looks at the sockets it does at
most one *slice*, some 2 ms: a task handed in by another thread, one step of a stepwise task, or
what ``idle_work`` finds (deltas to apply, long lists to join).
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol, TypeVar

from cairn.clock import SYSTEM_CLOCK, Clock
from cairn.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_FIRST_PAUSE_NS = 5_000_000
_LONGEST_PAUSE_NS = 1_000_000_000


class Readable(Protocol):
    """Who is called when a socket can be read or written."""

    def on_ready(self, events: int) -> None:
        """Read or write what is possible without blocking; never raise."""


class EventLoop:
    """Runs one thread; hand it work from others by ``run`` and ``run_stepwise``.

    Args:
        idle_work: does one slice of work that waits; returns whether any may be left. After an
            error it is called again, 10 ms later at first, then up to 1 s.
        clock: for those pauses.
    """

    def __init__(self, idle_work: Callable[[], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        self._idle_work = idle_work
        self._clock = clock
        self._idle_pause_ns = _FIRST_PAUSE_NS
        self._idle_from_ns = 0  # before then no idle work: it has just failed
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)  # noqa: FBT003 - by place in the standard library
        self._wake_sender.setblocking(False)  # noqa: FBT003 - by place in the standard library
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        self._tasks: deque[Callable[[], None]] = deque()
        # INVARIANT: generators in here are advanced by this thread alone.
        self._stepwise: deque[Callable[[], bool]] = deque()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="cairn-owner", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the slice under way and wait for it. Not from the owner itself."""
        self._stopping = True
        self.wake()
        self._thread.join()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def wake(self) -> None:
        """Make the loop look at its work. Any thread."""
        try:
            self._wake_sender.send(b"\0")
        except (BlockingIOError, OSError):
            return  # full: it will wake anyway

    def watch(self, channel: socket.socket, who: Readable, events: int) -> None:
        """Call ``who.on_ready`` when ``channel`` is ready. The owner, or before ``start``."""
        self._selector.register(channel, events, who)

    def rewatch(self, channel: socket.socket, who: Readable, events: int) -> None:
        """Change what is waited for. The owner only."""
        self._selector.modify(channel, events, who)

    def unwatch(self, channel: socket.socket) -> None:
        """Forget ``channel``. The owner only."""
        self._selector.unregister(channel)

    def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on the owner and return its result; from the owner itself, at once.

        Raises:
            ClosedError: the loop has ended.
        """
        if threading.current_thread() is self._thread:
            return work()
        answer: Future[Result] = Future()

        def task() -> None:
            try:
                answer.set_result(work())
            except BaseException as failure:  # noqa: BLE001 - it belongs to who waits
                answer.set_exception(failure)

        self.post(task)
        return self._wait(answer)

    def post(self, task: Callable[[], None]) -> None:
        """Run ``task``, which must not raise, on the owner some time soon. Any thread."""
        self._tasks.append(task)
        self.wake()

    def run_stepwise(self, steps: Generator[None, None, Result]) -> Result:
        """Advance ``steps`` on the owner, one step a slice, and return what it returns.

        Not from the owner itself. Each step should take at most 2 ms.
        """
        answer: Future[Result] = Future()

        def step() -> bool:
            try:
                next(steps)
            except StopIteration as end:
                answer.set_result(end.value)
                return False
            except BaseException as failure:  # noqa: BLE001 - it belongs to who waits
                answer.set_exception(failure)
                return False
            return True

        self.post_steps(step)
        return self._wait(answer)

    def post_steps(self, step: Callable[[], bool]) -> None:
        """Call ``step``, which must not raise, one call a slice, until it returns false.

        Any thread.
        """
        self.post(lambda: self._stepwise.append(step))

    def _wait(self, answer: Future[Result]) -> Result:
        while True:
            try:
                return answer.result(timeout=1.0)
            except TimeoutError:
                if answer.done():
                    return answer.result()
                if not self._thread.is_alive():
                    raise ClosedError("the worker is ending") from None

    def _loop(self) -> None:
        wait_s: float | None = None
        while not self._stopping:
            for key, events in self._selector.select(wait_s):
                who = key.data
                if who is None:
                    self._drain_wakes()
                else:
                    self._call(who, events)
            wait_s = self._slice()

    def _call(self, who: Readable, events: int) -> None:
        try:
            who.on_ready(events)
        except Exception:  # noqa: BLE001 - see below
            # A bug in one connection's service must not end the service of all.
            _LOG.exception("a connection failed")

    def _drain_wakes(self) -> None:
        try:
            while len(self._wake_receiver.recv(4096)) == 4096:  # noqa: PLR2004 - as asked for
                pass
        except BlockingIOError:
            return

    def _slice(self) -> float | None:
        """Do one slice; return how long to wait for a socket then, ``None``: until one wakes us."""
        if self._tasks:
            try:
                self._tasks.popleft()()
            except Exception:  # noqa: BLE001 - a bug in one task must not end the service of all
                _LOG.exception("a task failed")
            return 0
        if self._stepwise:
            step = self._stepwise.popleft()
            if step():
                self._stepwise.append(step)
            # Deltas go on between the steps, which may be waiting for them.
            self._idle()
            return 0
        return self._idle()

    def _idle(self) -> float | None:
        pause_ns = self._idle_from_ns - self._clock.monotonic_ns()
        if pause_ns > 0:
            return pause_ns / 1e9
        try:
            is_left = self._idle_work()
        except Exception:  # noqa: BLE001 - see below
            # A bug, or a database whose error nobody waits for. Others may wait for this very
            # work: it is tried again, ever less often, and all else goes on meanwhile.
            _LOG.exception("a slice of work failed")
            self._idle_pause_ns = min(2 * self._idle_pause_ns, _LONGEST_PAUSE_NS)
            self._idle_from_ns = self._clock.monotonic_ns() + self._idle_pause_ns
            return self._idle_pause_ns / 1e9
        self._idle_pause_ns = _FIRST_PAUSE_NS
        return 0 if is_left else None
