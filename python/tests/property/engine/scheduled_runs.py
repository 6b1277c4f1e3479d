"""A scheduler starts the query: runs of some batches that end before Spark's first maintenance.

Each run is an application with a worker of its own. Nothing maintains its stores: what it stores
and deletes, its commits and its end must do.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

from checkpoint_folder import STORES
from spark_driver import DAY_S, EXECUTORS, Driver
from spark_executors import GRACE_S, LONG_S, WrongError

if TYPE_CHECKING:
    from spark_executors import Executor

UPLOADS = ("fast", "slow", "failing")
ENDS = ("finish", "close", "kill")
_BATCHES = 2
_HOUR_S = DAY_S // 24
_SHORT_S = 0.01
_SLOW_S = 0.01
_DELETION_S = 0.003


class ScheduledDriver(Driver):
    """See the module."""

    def scheduled_runs(self, random: Random) -> None:
        """Play some runs; some are killed, or end before their uploads."""
        self._end_run()
        for _ in range(random.randint(1, 5)):
            uploads, end = random.choice(UPLOADS), random.choice(ENDS)
            count, waits = random.randint(1, 3), random.random() < 0.7
            self._scheduled_run(random, count, uploads, end, waits=waits)
            self.clock.advance(random.choice([1, GRACE_S / 3, _HOUR_S, DAY_S + GRACE_S]))

    def _scheduled_run(
        self,
        random: Random,
        batch_count: int,
        uploads: str,
        end: str,
        *,
        waits: bool,
        idle: bool | None = None,
    ) -> None:
        """Play one run.

        Args:
            random: of this run.
            batch_count: how many batches it has.
            uploads: "fast"; "slow": none ends before the run, unless a commit waits for it; or
                "failing".
            end: "finish": the hook of the JVM finishes the workers; "close": Spark closes the
                stores before; "kill": all processes are killed.
            waits: whether the end waits as long as slow uploads take.
            idle: as for ``_run_batch``.
        """
        self.app_start_ms, self.task_attempts = self._now_ms(), 0
        place, run = EXECUTORS + self.names, self._running()
        run.places = [place] * STORES
        moves, self.moves = self.moves, False
        executor = self._executor(place)
        executor.uplink.fails = uploads == "failing"
        if uploads == "slow":
            executor.uplink.slow_down(_DELETION_S)
        for _ in range(batch_count):
            self._run_batch(random, idle=idle)
            if self.run is not run:
                break  # a load was refused
            executor.until_snapshots_end_or_stand()
        self.moves = moves
        self._end_run()
        if end != "kill" and self.executors.get(place) is executor:
            self._end_worker(executor, end, waits=waits)
        self._kill(place)

    def _end_worker(self, executor: Executor, end: str, *, waits: bool) -> None:
        bound_s = LONG_S if waits else _SHORT_S
        slowness = threading.Timer(_SLOW_S, executor.uplink.let_through)
        if waits:
            slowness.start()
        if end == "close":
            stores = [i for i in self.former if i.uplink is executor.uplink]
            for instance in stores:
                self.former.remove(instance)
                instance.close(bound_s)
            for instance in stores:
                instance.await_closed()
        elif executor.worker.resources.snapshots.wait(bound_s) and waits:
            raise WrongError("the end of a run loses a snapshot")
        slowness.cancel()

    # -- the end -----------------------------------------------------------------------------------

    def settle_by_runs(self) -> None:
        """Former runs end, and only scheduled runs follow: lineages are bounded, nothing stays."""
        self._end_run()
        for instance in list(self.former):
            self._close(instance)
        self.storage.cuts = 0
        # No end waits for an upload: commits must, once the lineage is long.
        due = self.query.due
        self._runs("kill", 2 * due + 3, every_s=_HOUR_S, longest=4 * due + _BATCHES)
        longest = due - 1 + _BATCHES
        before = self._objects()
        self._runs("finish", 6, every_s=_HOUR_S, longest=longest)
        needless = self._needless() - before
        self._runs("finish", 6, every_s=_HOUR_S, longest=longest)
        # Retention deletes it. Attempts that have been replaced wait for the daily sweep.
        left = needless & self._needless()
        self._deny({name for name in left if not self._is_replaced(name)})
        needless = self._needless()
        self._runs("close", 8, every_s=DAY_S // 2, longest=longest)
        self._deny(needless & self._needless())
        if due == 1:
            self._run_long()
        self.check_retained()

    def _runs(self, end: str, count: int, *, every_s: int, longest: int) -> None:
        """Play runs with slow uploads, one after another; no load replays more than ``longest``."""
        for number in range(count):
            self.replayed = []
            self._scheduled_run(Random(number), _BATCHES, "slow", end, waits=True, idle=False)
            if number and max(self.replayed) > longest:
                raise WrongError(f"a load replays {max(self.replayed)} changelogs")
            self.clock.advance(every_s)

    def _run_long(self) -> None:
        """Play many quick batches: a run purges after its second snapshot, too, and the next."""
        between, before = 4 * self.query.due + 1, self._objects()
        self._scheduled_run(Random(1), 5 * between, "fast", "finish", waits=True, idle=False)
        new = self._objects() - before
        changelogs = [name for name in new if name.startswith("0/changelog/")]
        if len(changelogs) > 2 * between + self.query.kept + 2:
            raise WrongError(f"a run leaves {len(changelogs)} changelogs")

    def _is_replaced(self, name: str) -> bool:
        return self.checkpoint_format == 1 and "/changelog/" in name and "_" in name
