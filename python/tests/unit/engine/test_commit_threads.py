"""CommitThreads: each call runs once; a thread is started only if none is idle."""

from __future__ import annotations

import threading

import pytest

from cairn.engine.commit_threads import CommitThreads


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
    released, done = threading.Event(), threading.Semaphore(0)

    def call() -> None:
        released.wait(20)
        done.release()

    for _ in range(10):
        threads.submit(call)

    assert threads._count == 2
    released.set()
    assert all(done.acquire(timeout=20) for _ in range(10))


def test_an_idle_thread_is_used_again(caplog: pytest.LogCaptureFixture) -> None:
    """A thread per batch would be started otherwise, also after an error."""
    threads = CommitThreads(64)
    names: list[str] = []
    done = threading.Semaphore(0)

    def call() -> None:
        names.append(threading.current_thread().name)
        done.release()
        if len(names) == 1:
            raise ValueError("the first")

    for _ in range(5):
        threads.submit(call)
        assert done.acquire(timeout=20)
        while not threads._idle:
            pass

    assert set(names) == {"cairn-commit_1"}
    assert "the first" in caplog.text


def test_a_call_is_queued_only_if_a_thread_will_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was refused must not be done later; one that was accepted must be done."""
    threads = CommitThreads(64)
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
    assert threads._count == 1
