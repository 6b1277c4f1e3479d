"""Work on many stores at a time.

Layer: offline.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cairn.reader.verify import Progress

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    progress: Progress | None = None,
) -> list[Result]:
    """Return the results of all items, in their order.

    Args:
        work: called in a thread.
        items: its arguments.
        threads: how many calls run at a time.
        progress: called with the number of items that are done, and of all.

    Raises:
        Exception: that of the first item that failed; no other item is being worked on then.
    """
    todo = list(items)
    results: list[Result] = []
    with ThreadPoolExecutor(max(1, min(threads, len(todo)))) as pool:
        runs = [pool.submit(work, item) for item in todo]
        try:
            for run in runs:
                results.append(run.result())
                if progress is not None:
                    progress(len(results), len(todo))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return results
