"""Jobs: cancellations and calls arrive on several connections, in any order."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from cairn.engine import jobs as jobs_module
from cairn.engine.jobs import Jobs
from cairn.errors import ProtocolError
from cairn.protocol.calls import Answer, Json
from cairn.storage.progress import Activity, Progress


class Calls:
    """Runs a call: it ends when it may, or when it is cancelled."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()
        self.run_methods: list[str] = []

    def run(self, method: str, _arguments: Json, progress: Progress) -> Answer:
        self.has_begun.set()
        if method == "load":
            progress.run(lambda: self.may_end.wait(20))
        else:
            assert self.may_end.wait(20)
        self.run_methods.append(method)
        return Answer()


@pytest.fixture
def calls() -> Calls:
    """Calls that may not end yet."""
    return Calls()


@pytest.fixture
def jobs(calls: Calls) -> Jobs:
    """The jobs of a worker."""
    return Jobs(calls.run, Activity())


def test_a_load_that_is_cancelled_before_it_arrives_ends_at_once(calls: Calls, jobs: Jobs) -> None:
    """It would hold the store's lock for hours, and nobody would cancel it again."""
    jobs.cancel(7)

    answer = jobs.begin(7, "load", {}, 10)

    assert answer["error"]["code"] == "CAIRN_CANCELLED"
    assert calls.run_methods == []


def test_another_call_that_is_cancelled_before_it_arrives_runs_and_keeps_no_result(
    calls: Calls, jobs: Jobs
) -> None:
    """An instance must be closed, but nobody fetches the result."""
    jobs.cancel(7)

    assert "running" in jobs.begin(7, "close_instance", {}, 0)

    with pytest.raises(ProtocolError, match="no job 7"):
        jobs.wait(7, 0)
    assert calls.has_begun.wait(20)
    calls.may_end.set()


def test_a_load_that_is_cancelled_while_it_runs_ends(calls: Calls, jobs: Jobs) -> None:
    """The ordinary order."""
    with ThreadPoolExecutor(1) as task:
        answer = task.submit(jobs.begin, 7, "load", {}, 10)
        assert calls.has_begun.wait(20)

        jobs.cancel(7)

        assert answer.result(20)["error"]["code"] == "CAIRN_CANCELLED"
    with pytest.raises(ProtocolError, match="no job 7"):
        jobs.wait(7, 0)
    assert calls.run_methods == []


def test_only_so_many_cancelled_numbers_are_remembered(
    calls: Calls, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most cancellations come after the end of their job: their numbers never begin."""
    monkeypatch.setattr(jobs_module, "MAX_CANCELLED", 2)
    calls.may_end.set()
    for number in (1, 2, 3):
        jobs.cancel(number)

    assert jobs.begin(1, "load", {}, 20) == {"ok": {}}
    assert "error" in jobs.begin(2, "load", {}, 20)
    assert "error" in jobs.begin(3, "load", {}, 20)
