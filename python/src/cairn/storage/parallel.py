"""Parallel transfers: several calls at a time.

Layer: storage.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Executor, Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")

_MEANWHILE_S = 1.0


def run_all(executor: Executor, work: Callable[..., T], calls: Iterable[Any]) -> list[T]:
    """Run ``work`` once per tuple of arguments; return the results in order, or raise a failure.

    When this returns or raises, no call is running.
    """
    futures: list[Future[T]] = [executor.submit(work, *call) for call in calls]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        started = [future for future in futures if not future.cancel()]
        wait(started)
    return [future.result() for future in started]


def run_in_turns(
    executor: Executor,
    work: Callable[..., T],
    calls: Sequence[tuple[Any, ...]],
    *,
    at_once: int,
    meanwhile: Callable[[], None],
) -> list[T]:
    """Do as ``run_all``, but leave the executor to other callers in between.

    At most ``at_once`` calls wait in the executor or run, so callers take turns: a caller of few
    calls does not wait until all calls of another one have run.

    Args:
        executor: shared by the callers.
        work: called once per tuple of arguments, in other threads.
        calls: the tuples.
        at_once: the executor's threads: enough to use all of them.
        meanwhile: called in this thread after calls have ended, and every second or so.
    """
    results: dict[int, T] = {}
    running: dict[Future[T], int] = {}
    try:
        while len(results) < len(calls):
            for index in range(len(results) + len(running), len(calls)):
                if len(running) >= at_once:
                    break
                running[executor.submit(work, *calls[index])] = index
            done, _ = wait(running, timeout=_MEANWHILE_S, return_when=FIRST_COMPLETED)
            for future in done:
                results[running.pop(future)] = future.result()
            meanwhile()
    finally:
        wait([future for future in running if not future.cancel()])
    return [results[index] for index in range(len(calls))]
