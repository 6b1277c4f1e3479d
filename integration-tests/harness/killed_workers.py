"""Workers that are killed while a query runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from threading import Event, Thread, Timer

from harness.differential import Run
from harness.processes import Process, engines_of
from harness.spark import driver_pid

KILL_STEP_S = 0.08
WORK_POLL_S = 0.002


def kill_engines() -> list[Process]:
    """Kill and return all engines of the driver JVM."""
    engines = engines_of(driver_pid())
    for engine in engines:
        engine.kill()
    return engines


def kill_during(run: Run, batches: Iterable[int]) -> list[Process]:
    """Kill the engines in each of these batches, each time later in it; the returned list grows.

    Not after the end of the query: the engines belong to the next test then.
    """
    killed: list[Process] = []
    for number, batch in enumerate(batches, 1):
        timer = Timer(KILL_STEP_S * number, lambda: killed.extend(kill_engines()))
        run.before_batch[batch] = timer.start
        run.at_end.append(partial(_end, timer))
    return killed


def kill_at_work(run: Run, batch: int, cpu_s: float = 0.03) -> list[Process]:
    """Kill the engines once they have worked so long for this batch; the returned list grows.

    A kill after so long a time of the clock can come too late on a fast machine.
    """
    killed: list[Process] = []
    is_over = Event()

    def watch(engines: list[Process], until_s: float) -> None:
        while not is_over.wait(WORK_POLL_S):
            if sum(engine.cpu_s() for engine in engines) >= until_s:
                killed.extend(kill_engines())
                return

    def start() -> None:
        engines = engines_of(driver_pid())
        until_s = sum(engine.cpu_s() for engine in engines) + cpu_s
        watcher = Thread(target=watch, args=(engines, until_s))
        run.at_end.extend((is_over.set, watcher.join))
        watcher.start()

    run.before_batch[batch] = start
    return killed


def _end(timer: Timer) -> None:
    timer.cancel()
    if timer.is_alive():
        timer.join()
