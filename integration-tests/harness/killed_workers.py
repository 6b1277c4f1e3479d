"""Workers that are killed while a query runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from threading import Timer

from harness.differential import Run
from harness.processes import Process, engines_of
from harness.spark import driver_pid

KILL_STEP_S = 0.08


def kill_engines() -> list[Process]:
    """Kill and return all engines of the driver JVM."""
    engines = engines_of(driver_pid())
    for engine in engines:
        engine.kill()
    return engines


def kill_during(run: Run, batches: Iterable[int]) -> list[Process]:
    """Kill the engines in each of these batches, each time later in it; the returned list grows."""
    return kill_after(run, {batch: KILL_STEP_S * number for number, batch in enumerate(batches, 1)})


def kill_after(run: Run, after_s: Mapping[int, float]) -> list[Process]:
    """Kill the engines so long after each of these batches began; the returned list grows.

    Not after the end of the query: the engines belong to the next test then.
    """
    killed: list[Process] = []
    for batch, wait_s in after_s.items():
        timer = Timer(wait_s, lambda: killed.extend(kill_engines()))
        run.before_batch[batch] = timer.start
        run.at_end.append(partial(_end, timer))
    return killed


def _end(timer: Timer) -> None:
    timer.cancel()
    if timer.is_alive():
        timer.join()
