"""A scheduler starts the query: runs of some batches that end before Spark's first maintenance.

Each run is an application with a worker of its own. Nothing maintains its stores: what it stores
and deletes, its commits and its end must do.
"""

from __future__ import annotations

import threading
from random import Random

from checkpoint_folder import STORES
from spark_driver import DAY_S, EXECUTORS, Driver
from spark_executors import GRACE_S, LONG_S, Run, WrongError

UPLOADS = ("fast", "slow", "failing")
ENDS = ("finish", "close", "kill")
MAX_BATCHES = 3
_SHORT_S = 0.01
_SLOW_S = 0.01
_DELETION_S = 0.003
_HOUR_S = DAY_S // 24


class ScheduledDriver(Driver):
    """See the module."""

    def scheduled_runs(self, random: Random) -> None:
        """Play some runs; some are killed, or end before their uploads."""
        self._end_run()
        for _ in range(random.randint(1, 5)):
            self._scheduled_run(
                random,
                uploads=random.choice(UPLOADS),
                end=random.choice(ENDS),
                waits=random.random() < 0.7,
            )
            self.clock.advance(random.choice([1, GRACE_S / 3, _HOUR_S, DAY_S + GRACE_S]))

    def _scheduled_run(self, random: Random, *, uploads: str, end: str, waits: bool) -> None:
        """Play one run.

        Args:
            random: of this run.
            uploads: whether they are "fast"; "slow": none ends before the run, unless a commit
                waits for it; or "failing".
            end: whether the JVM's hook finishes the workers; or Spark closes the stores; or all
                processes are killed.
            waits: whether the end waits as long as the uploads take.
        """
        self.app_start_ms, self.task_attempts = self._now_ms(), 0
        place = EXECUTORS + self.names
        run: Run | None = self._running()
        assert run is not None
        run.places = [place] * STORES
        moves, self.moves = self.moves, False
        executor = self._executor(place)
        executor.uplink.fails = uploads == "failing"
        if uploads == "slow":
            executor.uplink.stop_uploads()
            executor.uplink.delay_s = _DELETION_S
        for _ in range(random.randint(1, MAX_BATCHES)):
            self._run_batch(random)
            if self.run is not run:
                break  # a load was refused
            if place in self.executors:
                executor.until_snapshots_end_or_stand()
        self.moves = moves
        self._end_run()
        if self.executors.get(place) is executor and end != "kill":
            stores = [i for i in self.former if i.uplink is executor.uplink]
            bound_s = LONG_S if waits else _SHORT_S
            slowness = threading.Timer(_SLOW_S, executor.uplink.let_through)
            if waits:
                slowness.start()
            if end == "close":
                for instance in stores:
                    self.former.remove(instance)
                    instance.close(bound_s)
                for instance in stores:
                    instance.await_closed()
            elif executor.worker.resources.snapshots.wait(bound_s) and waits:
                raise WrongError("the end of a run loses a snapshot")
            slowness.cancel()
        self._kill(place)

    # -- the end -----------------------------------------------------------------------------------

    def settle_by_runs(self) -> None:
        """Former runs end, and only scheduled runs follow: lineages are bounded, nothing stays."""
        for instance in list(self.former):
            self._close(instance)
        self._end_run()
        self.storage.cuts = 0
        self._lose_uploads()
        before = self._objects()
        self._runs("finish", every_s=_HOUR_S)
        needless = self._needless() - before
        self._runs("finish", every_s=_HOUR_S)
        self._deny(needless & self._needless())  # a purge deletes it, no daily sweep
        needless = self._needless()
        self._runs("close", every_s=DAY_S // 3)
        self._runs("close", every_s=DAY_S // 3)
        self._deny(needless & self._needless())
        self.check_retained()

    def _lose_uploads(self) -> None:
        """No end of a run waits for uploads: commits must, once the lineage is long."""
        longest = 4 * self.query.due + MAX_BATCHES
        for number in range(2 * self.query.due + 4):
            lineage = self._play_run(number, "kill")
            if number and lineage > longest:
                raise WrongError(f"a load replays {lineage} changelogs")
            self.clock.advance(_HOUR_S)

    def _runs(self, end: str, *, every_s: int) -> None:
        """Play some runs whose ends wait for their uploads."""
        longest = self.query.due - 1 + MAX_BATCHES
        for number in range(6):
            lineage = self._play_run(number, end)
            if number and lineage > longest:
                raise WrongError(f"a load replays {lineage} changelogs")
            self.clock.advance(every_s)

    def _play_run(self, number: int, end: str) -> int:
        """Play a run whose uploads are slow; return how many changelogs its loads have replayed."""
        self.replayed = []
        self._scheduled_run(Random(number), uploads="slow", end=end, waits=True)
        return max(self.replayed)
