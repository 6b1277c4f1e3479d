"""CommitThreads: each call runs once; a thread is started only if none is idle."""

from __future__ import annotations

import threading

import pytest

from cairn.engine.commit_threads import CommitThreads


def started_since(before: list[threading.Thread]) -> int:
    return len(set(threading.enumerate()) - set(before))


def test_calls_that_wait_for_each_other_run_together() -> None:
    """A commit that waits for its frames must not stop the commits of other stores."""
    threads = CommitThreads(3)
    together = threading.Barrier(4)

    for _ in range(3):
        threads.submit(lambda: together.wait(20))

    together.wait(20)


def test_at_the_limit_calls_wait_for_a_thread() -> None:
    """Each of hundreds of stores may commit at once; all of them must be served."""
    threads = CommitThreads(2)
    before = threading.enumerate()
    released, done = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        released.wait(20)
        done.release()

    for _ in range(10):
        threads.submit(call)

    assert started_since(before) == 2
    released.set()
    assert all(done.acquire(timeout=20) for _ in range(10))


def test_an_idle_thread_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    """A thread per batch would be started otherwise, also after an error."""
    count = 50
    threads = CommitThreads(count)
    before = threading.enumerate()
    done = threading.Semaphore(0)

    def call() -> None:
        done.release()
        raise ValueError("of this batch")

    for _ in range(count):
        threads.submit(call)
        assert done.acquire(timeout=20)

    # A call that comes before the last thread has logged its error needs another one. On a busy
    # machine more than half did.
    assert started_since(before) < count
    assert "of this batch" in caplog.text


def test_a_call_is_queued_only_if_a_thread_will_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was refused must not be done later; one that was accepted must be done."""
    threads = CommitThreads(64)
    before = threading.enumerate()
    ran: list[str] = []
    done, released = threading.Semaphore(0), threading.Event()

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def call(name: str) -> None:
        released.wait(20)
        ran.append(name)
        done.release()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            threads.submit(lambda: call("refused"))
    threads.submit(lambda: call("first"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        threads.submit(lambda: call("second"))
    released.set()

    assert all(done.acquire(timeout=20) for _ in range(2))
    assert ran == ["first", "second"]
    assert started_since(before) == 1
