"""EventLoop: a worker's one thread for sockets and RocksDB.

Layer: engine. Only this thread reads or writes rows in RocksDB. Between two rounds of requests it
runs at most one *slice* of some 2 ms: a task from another thread, one step of a stepwise task, or
``idle_work`` (deltas to apply, long lists to join).

A peer that reads key by key sends its next request some microseconds after a reply.

- A thread that sleeps needs longer to be woken than to answer such a request. So the loop polls for
  up to ``_GAP_NS`` before it sleeps. It stops this after ``_LONG_WAITS`` longer waits in a row, so
  that a slower peer costs no CPU. One longer wait does not count: the peer may just have been woken
  late, and if both sides then slept, each would wake the other late again.
- While slices wait, a round lasts until no peer has sent anything for ``_GAP_NS``, but at most
  ``_ROUND_NS``: otherwise each of these requests would wait for a whole slice.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from cairn.clock import SYSTEM_CLOCK, Clock
from cairn.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)
_WAKE_BYTES = 4096
_FIRST_PAUSE_NS = 5_000_000
_LONGEST_PAUSE_NS = 1_000_000_000
_ROUND_NS = 1_000_000
_GAP_NS = 40_000
_LONG_WAITS = 8
# By default each call of ``poll`` allocates room for a thousand events.
_MAX_EVENTS = 64
# Events of ``watch``.
READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT


class SocketHandler(Protocol):
    """The event loop calls it when its socket can be read or written."""

    def on_ready(self, events: int) -> None:
        """Read or write as much as is possible without blocking; never raise.

        Args:
            events: ``READABLE``, ``WRITABLE``, both, or neither after an error of the socket. It
                may be out of date: the socket may not be ready.
        """


class EventLoop:
    """Runs one thread; other threads give it work by ``run``, ``run_stepwise`` and ``post``.

    Args:
        idle_work: does one slice of waiting work; returns whether any may be left. After an error
            it is called again after a pause: 10 ms at first, later up to 1 s.
        clock: measures those pauses.
    """

    def __init__(self, idle_work: Callable[[], bool], clock: Clock = SYSTEM_CLOCK) -> None:
        self._idle_work = idle_work
        self._clock = clock
        self._idle_pause_ns = _FIRST_PAUSE_NS
        self._idle_from_ns = 0  # after a failure: no idle work before this time; else 0
        self._poll = select.epoll()
        self._handlers: dict[int, SocketHandler] = {}  # by the number of the watched socket
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)  # noqa: FBT003 - by place in the standard library
        self._wake_sender.setblocking(False)  # noqa: FBT003 - by place in the standard library
        self.watch(self._wake_receiver, self, READABLE)
        self._tasks: deque[Callable[[], None]] = deque()
        self._stepwise: deque[Callable[[], bool]] = deque()
        self._stopping = False
        self._polls_left = 0
        self._thread = threading.Thread(target=self._loop, name="cairn-event-loop", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop after its current slice and wait for that. Not from the loop's thread."""
        self._stopping = True
        self.wake()
        self._thread.join()
        self._poll.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def wake(self) -> None:
        """Make the loop look for work. Any thread."""
        with suppress(OSError):  # full: the loop will wake anyway; or closed
            self._wake_sender.send(b"\0")

    def watch(self, channel: socket.socket, handler: SocketHandler, events: int) -> None:
        """Call ``handler.on_ready`` at ``events``; 0: stop. On the loop, or before ``start``."""
        number = channel.fileno()
        if not events:
            del self._handlers[number]
            self._poll.unregister(number)
        elif number in self._handlers:
            self._poll.modify(number, events)
        else:
            self._poll.register(number, events)
            self._handlers[number] = handler

    def run(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` on the loop and return its result; on the loop itself, at once.

        Raises:
            ClosedError: the loop has ended.
        """
        if threading.current_thread() is self._thread:
            return work()
        answer: Future[Result] = Future()

        def task() -> None:
            try:
                answer.set_result(work())
            except BaseException as failure:  # noqa: BLE001 - it belongs to the caller
                answer.set_exception(failure)

        self.post(task)
        return self._wait(answer)

    def post(self, task: Callable[[], None], *, wakes: bool = True) -> None:
        """Run ``task`` on the loop soon; it must not raise. Any thread.

        Args:
            task: what to run.
            wakes: ``False``: the caller calls ``wake`` after work that must not share the GIL with
                ``task``.
        """
        self._tasks.append(task)
        if wakes:
            self.wake()

    def run_stepwise(self, steps: Generator[None, None, Result]) -> Result:
        """Advance ``steps`` on the loop, one step per slice, and return its result.

        Not from the loop's thread. Each step should take at most 2 ms.
        """
        answer: Future[Result] = Future()

        def step() -> bool:
            try:
                next(steps)
            except StopIteration as end:
                answer.set_result(end.value)
                return False
            except BaseException as failure:  # noqa: BLE001 - it belongs to the caller
                answer.set_exception(failure)
                return False
            return True

        self.post_steps(step)
        return self._wait(answer)

    def post_steps(self, step: Callable[[], bool]) -> None:
        """Call ``step`` once per slice until it returns false; it must not raise. Any thread."""
        self._stepwise.append(step)
        self.wake()

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
            if self._serve(wait_s) and wait_s == 0:
                self._serve_round()
            wait_s = self._slice()

    def _wait_for_sockets(self, wait_s: float | None) -> list[tuple[int, int]]:
        """Return the sockets that are ready, with their events; poll before a sleep, see above."""
        poll = self._poll.poll
        if wait_s == 0:
            return poll(0, _MAX_EVENTS)
        now_ns = self._clock.monotonic_ns
        began = now_ns()
        ready: list[tuple[int, int]] = []
        if self._polls_left:
            while not ready and now_ns() - began < _GAP_NS:
                ready = poll(0, _MAX_EVENTS)
        if not ready:
            ready = poll(wait_s, _MAX_EVENTS)
        if now_ns() - began < _GAP_NS:
            self._polls_left = _LONG_WAITS
        elif self._polls_left:
            self._polls_left -= 1
        return ready

    def _serve(self, wait_s: float | None) -> bool:
        """Wait for sockets that are ready, and serve them; return whether there were any."""
        ready = self._wait_for_sockets(wait_s)
        for number, events in ready:
            handler = self._handlers.get(number)
            if handler is None:
                continue  # another one has just closed it
            try:
                handler.on_ready(events)
            except Exception:  # noqa: BLE001 - a bug in one connection must not end the others
                _LOG.exception("a connection failed")
        return bool(ready)

    def _serve_round(self) -> None:
        """Serve the next requests too; see the module."""
        now = self._clock.monotonic_ns()
        end, last = now + _ROUND_NS, now
        while now < end and now - last < _GAP_NS:
            is_served = self._serve(0)
            now = self._clock.monotonic_ns()
            if is_served:
                last = now

    def on_ready(self, _events: int) -> None:
        """Drain the socket of ``wake``."""
        with suppress(BlockingIOError):
            while len(self._wake_receiver.recv(_WAKE_BYTES)) == _WAKE_BYTES:
                pass

    def _slice(self) -> float | None:
        """Do one slice; return how long to wait for a socket afterwards, ``None`` for no limit."""
        if self._tasks:
            try:
                self._tasks.popleft()()
            except Exception:  # noqa: BLE001 - a bug in one task must not end the loop
                _LOG.exception("a task failed")
            return 0
        if self._stepwise:
            step = self._stepwise.popleft()
            if step():
                self._stepwise.append(step)
            # Apply deltas between the steps: a step may wait for them.
            self._idle()
            return 0
        return self._idle()

    def _idle(self) -> float | None:
        if self._idle_from_ns:
            pause_ns = self._idle_from_ns - self._clock.monotonic_ns()
            if pause_ns > 0:
                return pause_ns / 1e9
            self._idle_from_ns = 0
        try:
            is_left = self._idle_work()
        except Exception:  # noqa: BLE001 - see below
            # A bug, or the error of a database that no call waits for. Other stores may need the
            # same work: try again, less and less often, and do other work in the meantime.
            _LOG.exception("a slice of work failed")
            self._idle_pause_ns = min(2 * self._idle_pause_ns, _LONGEST_PAUSE_NS)
            self._idle_from_ns = self._clock.monotonic_ns() + self._idle_pause_ns
            return self._idle_pause_ns / 1e9
        self._idle_pause_ns = _FIRST_PAUSE_NS
        return 0 if is_left else None
