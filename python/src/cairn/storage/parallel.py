"""Parallel transfers: several calls at a time.

Layer: storage.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

from cairn.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from concurrent.futures import Executor

S = TypeVar("S")
T = TypeVar("T")


def in_turns(
    executor: Executor,
    work: Callable[[S], T],
    items: Iterable[S],
    *,
    at_once: int,
    await_some: Callable[[Collection[Future[T]]], Collection[Future[T]]],
) -> Iterator[T]:
    """Run ``work`` once per item, and yield the results as the calls end, in any order.

    At most ``at_once`` calls wait in the executor or run, so callers take turns: a caller of few
    calls does not wait until all calls of another one have run.

    After a failure no call is running, except after a ``CancelledError``: its caller does not wait.

    Args:
        executor: shared by the callers.
        work: called in it.
        items: its arguments, in the order of the calls.
        at_once: the executor's threads: enough to use all of them.
        await_some: waits until some of the running calls have ended or some time has passed, and
            returns those that have ended.
    """
    waiting, running = deque(items), set[Future[T]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.add(executor.submit(work, waiting.popleft()))
            for future in await_some(running):
                running.discard(future)
                yield future.result()
    except CancelledError:
        for future in running:
            future.cancel()
        raise
    except BaseException:
        wait([future for future in running if not future.cancel()])
        raise
