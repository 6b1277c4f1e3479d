"""The event loop: it interleaves the work of other threads; an error reaches its caller."""

from __future__ import annotations

import select
import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from cairn.clock import FakeClock
from cairn.engine.event_loop import READABLE, EventLoop
from cairn.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.fixture
def event_loop() -> Iterator[EventLoop]:
    running = EventLoop(lambda: False)
    running.start()
    yield running
    running.stop()


def test_work_runs_on_one_thread_and_returns(event_loop: EventLoop) -> None:
    """RocksDB's rows belong to one thread."""
    names = {event_loop.run(lambda: threading.current_thread().name) for _ in range(3)}

    assert names == {"cairn-event-loop"}


def test_an_error_reaches_the_caller_and_the_loop_continues(event_loop: EventLoop) -> None:
    """One bad request must not end the worker."""

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        event_loop.run(fail)

    assert event_loop.run(lambda: 1) == 1


def test_other_work_runs_between_steps(event_loop: EventLoop) -> None:
    """A long replay must not keep a read waiting."""
    steps: list[str] = []
    begun = threading.Event()

    def work() -> Generator[None, None, int]:
        while "other" not in steps:
            steps.append("step")
            begun.set()
            yield
        return len(steps)

    result: list[int] = []
    thread = threading.Thread(target=lambda: result.append(event_loop.run_stepwise(work())))
    thread.start()
    assert begun.wait(20)
    event_loop.run(lambda: steps.append("other"))
    thread.join(20)

    assert result[0] > 1


def test_work_after_the_end_is_refused() -> None:
    """A caller must not wait for a thread that is gone."""
    ended = EventLoop(lambda: False)
    ended.start()
    ended.stop()

    with pytest.raises(ClosedError):
        ended.run(lambda: 1)


def test_steps_are_served_while_idle_work_fails(caplog: pytest.LogCaptureFixture) -> None:
    """After idle work failed, the loop must not sleep while a load waits for its steps."""
    may_succeed, has_succeeded = threading.Event(), threading.Event()
    calls: list[int] = []

    def idle_work() -> bool:
        calls.append(1)
        if not may_succeed.is_set():
            raise RuntimeError("a store that always fails")
        has_succeeded.set()
        return False

    event_loop = EventLoop(idle_work)
    event_loop.start()

    def work() -> Generator[None, None, str]:
        for _ in range(1000):
            yield
        return "done"

    assert event_loop.run_stepwise(work()) == "done"
    assert len(calls) < 100  # work that always fails must not cause a busy loop
    may_succeed.set()
    assert has_succeeded.wait(20), "the loop tries again without being woken"
    event_loop.stop()
    assert "a slice of work failed" in caplog.text


class _SteppingClock(FakeClock):
    """Ten microseconds pass between two looks at it."""

    step_s = 0.00001

    def monotonic_ns(self) -> int:
        self.advance(self.step_s)
        return super().monotonic_ns()


class _Poll:
    """An epoll that tells whether its thread sleeps in it, until there is an event."""

    is_asleep = threading.Event()

    def __init__(self) -> None:
        self.real = select.epoll()

    def poll(self, timeout: float | None, limit: int) -> list[tuple[int, int]]:
        if timeout is None:
            self.is_asleep.set()
        found = self.real.poll(timeout, limit)
        self.is_asleep.clear()
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


@pytest.fixture
def is_asleep(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set while the loops that are created afterwards sleep."""
    monkeypatch.setattr(_Poll, "is_asleep", threading.Event())
    fake = SimpleNamespace(epoll=_Poll)
    monkeypatch.setattr("cairn.engine.event_loop.select", fake)
    return _Poll.is_asleep


def test_the_loop_sleeps_soon_after_the_last_request(is_asleep: threading.Event) -> None:
    """It polls for the next request of a quick peer, but an idle worker must cost no CPU."""
    clock = _SteppingClock()
    event_loop = EventLoop(lambda: False, clock)
    event_loop.start()
    for _ in range(50):
        event_loop.run(lambda: None)

    before = clock.monotonic_ns()
    assert is_asleep.wait(20)
    passed = clock.monotonic_ns() - before
    event_loop.stop()

    assert passed <= 200_000, "it has polled for longer than a quick peer needs"


def test_the_loop_polls_until_several_requests_in_a_row_came_late(
    is_asleep: threading.Event,
) -> None:
    """One that comes late says nothing: its peer may have been woken late."""
    clock = _SteppingClock()
    clock.step_s = 1e-9
    event_loop = EventLoop(lambda: False, clock)
    event_loop.start()
    for _ in range(10):
        event_loop.run(lambda: None)  # it comes at once, by this clock
    clock.step_s = _SteppingClock.step_s

    waits = []  # in looks at the clock
    for _ in range(12):
        clock.advance(0.001)
        before = clock.monotonic_ns()
        event_loop.run(lambda: None)
        assert is_asleep.wait(20)  # now it has polled, if it does
        waits.append((clock.monotonic_ns() - before) // 10_000)
    event_loop.stop()

    assert min(waits[:5]) > max(waits[-3:])


@pytest.mark.parametrize(
    ("ready_count", "least", "most"), [(1 << 30, 50, 110), (3, 1, 3)], ids=["endless", "few"]
)
def test_requests_in_quick_succession_wait_for_one_slice_together(
    ready_count: int, least: int, most: int
) -> None:
    """One slice per request takes a hundred times as long; without slices no delta is applied."""
    here, there = socket.socketpair()
    served: list[int] = []
    counts: list[int] = []
    done = threading.Event()

    class Peer:
        def on_ready(self, _events: int) -> None:
            served.append(1)
            if sum(served) >= ready_count:
                here.recv(1)

    def idle_work() -> bool:
        counts.append(len(served))
        served.clear()
        if len(counts) > 5:
            done.set()
        return True

    event_loop = EventLoop(idle_work, _SteppingClock())
    event_loop.watch(here, Peer(), READABLE)
    there.send(b"x")

    event_loop.start()
    assert done.wait(20)
    event_loop.stop()
    here.close()
    there.close()

    rounds = [count for count in counts[1:] if count]
    assert rounds
    assert all(least <= count <= most for count in rounds)
