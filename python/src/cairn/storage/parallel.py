"""Parallel transfers: several calls at a time.

Layer: storage.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, Executor, Future, wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


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
