"""A model of Spark's driver over real instances: runs, tasks and what people do.

Each step is a name and a number, which seeds all that is random in it: a list of steps is a
history. A step that does not fit does nothing.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from checkpoint_folder import STORES, CheckpointFolder, Ids, Rows
from leftovers import needless_objects
from spark_executors import GRACE_S, LONG_S, Executor, Instance, Query, Run, Task, WrongError
from worker_storage import DeadError, Storage

from cairn.checkpoint.orphans import SWEEP_INTERVAL_MS
from cairn.clock import FakeClock
from cairn.errors import CairnError, MissingError
from cairn.ids import Attempt, StoreId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Step = tuple[str, int]

EXECUTORS = 3
EMPTY: Rows = {0: {}, 1: {}}
DAY_S = SWEEP_INTERVAL_MS // 1000


class Driver:
    """See the module."""

    def __init__(self, local: Path, query: Query) -> None:
        self.local = local
        self.query = query
        self.checkpoint_format = query.checkpoint_format
        self.clock = FakeClock()
        self.storage = Storage(self.clock, replaces_at_once=query.replaces_at_once)
        self.folder = CheckpointFolder(self.storage, "cp")
        self.executors: dict[int, Executor] = {}
        self.run: Run | None = None
        self.former: list[Instance] = []
        self.zombies: list[Task] = []
        self.copying: Iterator[CheckpointFolder] | None = None
        self.copy: CheckpointFolder | None = None
        self.moves = True
        self.takes_snapshots = False
        self.names = 0
        self.app_start_ms = self._now_ms()
        self.task_attempts = 0
        self.replayed: list[int] = []  # changelogs, by each load

    # -- what happens ------------------------------------------------------------------------------

    def play(self, steps: list[Step]) -> None:
        """Do all steps."""
        for name, number in steps:
            getattr(self, name)(Random(number))
            self.clock.advance(1)

    def batch(self, random: Random) -> None:
        """Run a batch."""
        self._run_batch(random)

    def batches(self, random: Random) -> None:
        """Run some batches, with maintenance between them."""
        for _ in range(random.randint(2, 5)):
            self._run_batch(random)
            self.maintain(random)
            self.clock.advance(random.choice([1, 12]))

    def idle(self, random: Random) -> None:
        """Run some batches without writes."""
        for _ in range(random.randint(1, self.query.kept + 1)):
            self._run_batch(random, idle=True)

    def broken_batch(self, random: Random) -> None:
        """The run ends within a batch: no store, some stores or all of them have committed."""
        self._run_batch(random, tasks=random.randint(0, STORES))
        self._end_run()

    def twins(self, random: Random) -> None:
        """Run a batch in which each task may have a twin, which writes something else."""
        self._run_batch(random, twins=True)

    def empty_stores(self, random: Random) -> None:
        """Run a batch that begins with empty stores, and not with the version before."""
        self._run_batch(random, is_empty=True)

    def requested_snapshots(self, random: Random) -> None:
        """Run a batch whose commits take snapshots, because Spark requests them."""
        self.takes_snapshots = True
        self._run_batch(random)
        self.takes_snapshots = False

    def cut_replacements(self, random: Random) -> None:
        """Processes end within the next replacements of an object, where these take two steps.

        An object of that name may be gone then, while a third attempt commits.
        """
        self.zombie(random)
        self.storage.cuts = random.randint(1, 2)
        self._run_batch(random, twins=True)
        self.zombies_commit(random)

    def restart(self, random: Random) -> None:
        """End the run and start the next one, in the same application or in a new one."""
        self._end_run()
        self._maybe_new_application(random)

    def kill(self, random: Random) -> None:
        """Kill an executor: its instances are gone."""
        self._kill(random.randrange(EXECUTORS))

    def maintain(self, random: Random) -> None:
        """Maintain instances of this run, also those that the store has left."""
        for _, instance in sorted(self.run.instances.items()) if self.run else ():
            if random.random() < 0.8:
                instance.maintain()

    def late_maintenance(self, random: Random) -> None:
        """Maintain instances of former runs once more; some are closed after that."""
        for instance in list(self.former):
            if random.random() < 0.7:
                with suppress(CairnError):
                    instance.maintain()
                if random.random() < 0.5:
                    self._close(instance)

    def slow_uploads(self, random: Random) -> None:
        """From now on uploads of some executors fail, or take long, beside what follows."""
        for executor in self.executors.values():
            if random.random() < 0.6:
                executor.uplink.slow_down(0.0)
                executor.uplink.fails = random.random() < 0.3

    def uploads_go_on(self, random: Random) -> None:
        """Uploads that take long end, perhaps."""
        for executor in self.executors.values():
            if random.random() < 0.7:
                executor.uplink.fails = False
                executor.uplink.let_through()
                executor.until_snapshots_end_or_stand()

    def zombie(self, random: Random) -> None:
        """A task of the next batch writes, and stalls."""
        run = self._running()
        folder, version, partition = self.folder, run.batch, random.randrange(STORES)
        if folder.has_gap() or folder.may_lack:
            return
        instance = self._new_instance(partition, random.randrange(EXECUTORS), run)
        base = instance.load(version, run.ids[partition])["checkpoint_id"]
        rows = instance.change(random, folder.truth[version][partition], idle=False)
        self.zombies.append(Task(instance, version + 1, base, self._next_attempt(run), rows))

    def zombies_commit(self, random: Random) -> None:
        """Stalled tasks go on and commit."""
        for zombie in list(self.zombies):
            if random.random() < 0.7:
                self.zombies.remove(zombie)
                self._commit_late(zombie)
                if zombie.instance not in self._all_instances():
                    self.former.append(zombie.instance)

    def time_passes(self, random: Random) -> None:
        """Nothing happens for a while."""
        self.clock.advance(random.choice([GRACE_S / 3, GRACE_S + 1, DAY_S + GRACE_S]))

    def roll_back(self, random: Random) -> None:
        """A person deletes the newest entries of both logs, or of the log of commits alone."""
        self._end_run()
        self._maybe_new_application(random)
        folder = self.folder
        targets = [
            number
            for number in folder.commits
            if number + 1 >= folder.floor and (number == 0 or number - 1 in folder.offsets)
        ]
        if not targets:
            return
        self._stop_copying()
        batch = random.choice(sorted(targets))
        if random.random() < 0.6:
            folder.keep_offsets_through(batch)
        folder.keep_commits_through(batch)

    def delete_root(self, random: Random) -> None:
        """A person deletes the whole folder and starts anew."""
        self._end_run()
        self._maybe_new_application(random)
        self._stop_copying()
        self.storage.drop(self.storage.names(f"{self.folder.name}/"))
        self.folder.clear()

    def empty_logs(self, random: Random) -> None:
        """A person empties both logs and leaves the state."""
        self._end_run()
        self._maybe_new_application(random)
        self._stop_copying()
        self.folder.clear()

    def begin_copy(self, random: Random) -> None:
        """A person begins to copy the folder, which goes on beside the next steps."""
        if self.copying is None:
            self.names += 1
            self.copying = self.folder.copied(f"copy{self.names}")
            self._copy_some(random)

    def start_copy(self, random: Random) -> None:
        """The copy is finished, and the query starts from it, in its place or in another one."""
        if self.copying is None:
            return
        copied = self.copy
        for copied in self.copying:  # noqa: B007 - to its end
            pass
        self._end_run()
        self._stop_copying()
        if copied is None or not (copied.offsets or copied.commits):
            return
        self._maybe_new_application(random)
        if random.random() < 0.5:
            self.folder.replace_by(copied)
        else:
            self.folder = copied

    # -- the driver --------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self.clock.now().timestamp() * 1000)

    def _maybe_new_application(self, random: Random) -> None:
        if random.random() < 0.5:
            self.app_start_ms, self.task_attempts = self._now_ms(), 0
            for number in range(EXECUTORS):
                if random.random() < 0.7:
                    self._kill(number)

    def _next_attempt(self, run: Run) -> Attempt:
        self.task_attempts += 1
        return Attempt(run.id, run.app_start_ms, 0, 0, self.task_attempts)

    def _running(self) -> Run:
        if self.run is None:
            batch, ids = self.folder.next_batch()
            self.names += 1
            if self.checkpoint_format == 1:
                ids = [None] * STORES
            self.run = Run(f"run{self.names}", self.app_start_ms, batch, ids)
        return self.run

    def _end_run(self) -> None:
        if self.run is not None:
            self.former += self.run.instances.values()
            self.run = None

    def _run_batch(
        self,
        random: Random,
        *,
        idle: bool | None = None,
        twins: bool = False,
        is_empty: bool = False,
        tasks: int | None = None,
    ) -> None:
        """Run the next batch.

        Args:
            random: of this batch.
            idle: whether no task writes, or every task does; ``None``: most do.
            twins: whether tasks may have twins.
            is_empty: whether the stores are empty, whatever the version before has.
            tasks: the driver is killed after so many of them.
        """
        run, folder = self._running(), self.folder
        version, has_gap = run.batch, folder.has_gap()
        folder.begin_batch(run.batch)
        self._copy_some(random)
        done: list[tuple[str, Rows]] = []
        for partition in range(STORES if tasks is None else tasks):
            instance = self._instance(random, partition, run)
            try:
                base = self._load(instance, version, run.ids[partition])
            except CairnError as failure:
                self._refused(failure, has_gap=has_gap)
                return
            if is_empty:
                base = instance.load_empty(version, run.ids[partition])["checkpoint_id"]
            has_twin = twins and random.random() < 0.7
            before = EMPTY if is_empty else folder.truth[version][partition]
            try:
                made = self._run_task(random, instance, base, before, idle=idle, has_twin=has_twin)
            except DeadError:
                made = self._repeat_task(random, instance)
            done.append(made)
            self._copy_some(random)
        if tasks is not None:
            return
        ids: Ids = [id_ for id_, _ in done]
        folder.end_batch(run.batch, ids, self.query.kept)
        folder.truth = {v: rows for v, rows in folder.truth.items() if v <= version}
        folder.truth[version + 1] = [rows for _, rows in done]
        folder.floor = max(folder.floor, version + 2 - self.query.kept)
        if folder.may_lack:
            folder.floor, folder.may_lack = version + 1, False
        run.batch += 1
        run.ids = ids if self.checkpoint_format == 2 else [None] * STORES
        self._copy_some(random)
        if self.former and random.random() < 0.3:
            with suppress(CairnError):
                random.choice(self.former).maintain()

    def _repeat_task(self, random: Random, instance: Instance) -> tuple[str, Rows]:
        """Run a task again whose process ended within its commit."""
        run = self._running()
        partition, version = instance.partition, run.batch
        for number, executor in list(self.executors.items()):
            if executor.uplink is instance.uplink:
                self._kill(number)
        self.storage.cuts = 0
        instance = self._instance(random, partition, run)
        base = self._load(instance, version, run.ids[partition])
        before = self.folder.truth[version][partition]
        return self._run_task(random, instance, base, before, idle=False, has_twin=False)

    def _run_task(
        self,
        random: Random,
        instance: Instance,
        base: str | None,
        before: Rows,
        *,
        idle: bool | None,
        has_twin: bool,
    ) -> tuple[str, Rows]:
        """Write and commit on a loaded version; return id and rows of the attempt that counts."""
        assert self.run is not None
        run, partition, version = self.run, instance.partition, self.run.batch
        rows = instance.change(random, before, idle=random.random() < 0.3 if idle is None else idle)
        attempt, snapshot = self._next_attempt(run), self.takes_snapshots
        first = Task(instance, version + 1, base, attempt, rows, takes_snapshot=snapshot)
        if not has_twin:
            return first.commit(), rows
        other = self._new_instance(partition, random.randrange(EXECUTORS), run)
        other.load(version, run.ids[partition])
        rows = other.change(random, before, idle=random.random() < 0.3)
        twin = Task(other, version + 1, base, self._next_attempt(run), rows)
        faster, slower = random.sample([first, twin], 2)
        self.former.append(other)
        id_, rows = faster.commit(), faster.rows
        if random.random() < 0.5:
            self.zombies.append(slower)  # it commits after the batch, perhaps
        elif self._commit_late(slower) and self.checkpoint_format == 1:
            rows = slower.rows  # docs/semantics.md#what-format-1-does-not-promise
        return id_, rows

    def _load(self, instance: Instance, version: int, id_: str | None) -> str | None:
        """Load a version and compare its rows; return its id."""
        answer = instance.load(version, id_)
        expected = self.folder.truth[version][instance.partition]
        found = instance.all_rows(version)
        if found != expected:
            raise WrongError(f"version {version} has {found}, should be {expected}")
        counts = {cf: len(rows) for cf, rows in found.items()} if version else {}
        if {int(cf): count for cf, count in answer["counts"].items()} != counts:
            raise WrongError(f"version {version} has the counts {answer['counts']}, not {counts}")
        self.replayed.append(int(answer["changelogs_replayed"]))
        id_ = answer["checkpoint_id"]
        return None if id_ is None else str(id_)

    def _refused(self, failure: CairnError, *, has_gap: bool) -> None:
        """Do what the documents say after a load that failed; that must be permitted."""
        folder = self.folder
        self._end_run()
        if not isinstance(failure, MissingError):
            raise WrongError("a load fails otherwise than the documents say") from failure
        if has_gap and self.checkpoint_format == 2:
            # docs/semantics.md: delete the entries of offsets above that of the newest commit.
            folder.keep_offsets_through(max(folder.commits, default=-1) + 1)
            if not folder.commits:
                folder.clear()
        elif folder.may_lack:
            self.storage.drop(self.storage.names(f"{folder.name}/"))
            folder.clear()
        else:
            raise WrongError("a version that is retained does not load") from failure

    # -- executors ---------------------------------------------------------------------------------

    def _instance(self, random: Random, partition: int, run: Run) -> Instance:
        if self.moves and random.random() < 0.25:
            run.places[partition] = random.randrange(EXECUTORS)
        place = run.places[partition]
        if (partition, place) not in run.instances:
            run.instances[partition, place] = self._new_instance(partition, place, run)
        return run.instances[partition, place]

    def _new_instance(self, partition: int, place: int, run: Run) -> Instance:
        return Instance(self, partition, self._executor(place), run)

    def _executor(self, place: int) -> Executor:
        if place not in self.executors:
            self.names += 1
            self.executors[place] = Executor(self.local / f"executor{self.names}", self.clock)
        return self.executors[place]

    def _commit_late(self, late: Task) -> bool:
        """Commit an attempt whose result Spark ignores; return whether that succeeded."""
        try:
            late.commit()
        except CairnError:
            return False
        return True

    def _maintain_all(self) -> None:
        for instance in self.run.instances.values() if self.run else ():
            instance.maintain()

    def _close(self, instance: Instance) -> None:
        self.former.remove(instance)
        self.zombies = [zombie for zombie in self.zombies if zombie.instance is not instance]
        instance.close(0.0 if instance.uplink.is_slow else LONG_S)
        instance.await_closed()

    def _kill(self, number: int) -> None:
        executor = self.executors.pop(number, None)
        if executor is None:
            return
        executor.die()
        gone = [i for i in self._all_instances() if i.resources is executor.worker.resources]
        for instance in gone:
            instance.crash()
        executor.worker.crash()
        self.former = [instance for instance in self.former if instance not in gone]
        self.zombies = [zombie for zombie in self.zombies if zombie.instance not in gone]
        if self.run is not None:
            kept = {k: i for k, i in self.run.instances.items() if i not in gone}
            self.run.instances = kept

    def _all_instances(self) -> list[Instance]:
        present = [] if self.run is None else list(self.run.instances.values())
        late = (zombie.instance for zombie in self.zombies)
        return list(dict.fromkeys([*self.former, *present, *late]))

    def close(self) -> None:
        """End all processes."""
        for number in list(self.executors):
            self._kill(number)

    # -- copies ------------------------------------------------------------------------------------

    def _copy_some(self, random: Random) -> None:
        if self.copying is not None:
            copies = list(islice(self.copying, random.choice([0, 1, 3, 10])))
            self.copy = copies[-1] if copies else self.copy

    def _stop_copying(self) -> None:
        self.copying = self.copy = None

    # -- the end -----------------------------------------------------------------------------------

    def check_retained(self) -> None:
        """Each retained version loads in a new worker, with its rows."""
        folder, newest = self.folder, max(self.folder.truth)
        executor = Executor(self.local / f"check{self.names}{newest}", self.clock)
        run = Run("check", self.app_start_ms, 0, [])
        for version in range(max(folder.floor, newest + 1 - self.query.kept, 1), newest + 1):
            ids = folder.commits.get(version - 1)
            if ids is None:
                continue
            for partition, id_ in enumerate(ids):
                instance = Instance(self, partition, executor, run)
                base = id_ if self.checkpoint_format == 2 else None
                try:
                    self._load(instance, version, base)
                except CairnError as failure:
                    raise WrongError(f"version {version} is retained") from failure
                finally:
                    instance.crash()
        executor.worker.crash()

    def finish(self) -> None:
        """The query goes on, and every retained version loads."""
        random = Random(1)
        for executor in self.executors.values():
            executor.uplink.fails = False
            executor.uplink.let_through()
        for _ in range(3):  # perhaps a refused load, what a person does then, and a batch
            self._run_batch(random)
        if self.run is None:
            raise WrongError("the query does not go on")
        self.check_retained()

    def settle(self) -> None:
        """Former runs end, and the query runs for some days: nothing is left that is not needed."""
        for instance in list(self.former):
            self._close(instance)
        self.moves = False
        self._some_days()
        needless = self._needless()
        self._some_days()
        self._deny(needless & self._needless())
        self.check_retained()

    def _deny(self, left: set[str]) -> None:
        if left:
            raise WrongError(f"nothing needs {sorted(left)}")

    def _objects(self) -> set[str]:
        stores = [(n, self.storage.store(self.folder.name, n)) for n in range(STORES)]
        return {f"{n}/{info.key}" for n, objects in stores for info in objects.list("")}

    def _some_days(self) -> None:
        random = Random(1)
        for number in range(2 * self.query.kept + 3 * self.query.due):
            self._run_batch(random, idle=False)
            self._maintain_all()
            self.clock.advance(DAY_S + GRACE_S if number % 3 == 2 else GRACE_S / 2)
            self._maintain_all()

    def _needless(self) -> set[str]:
        found: set[str] = set()
        for partition in range(STORES):
            objects = self.storage.store(self.folder.name, partition)
            retained = [
                (n + 1, ids[partition] if self.checkpoint_format == 2 else None)
                for n, ids in self.folder.commits.items()
                if n + 1 >= self.folder.floor
            ]
            names = needless_objects(objects, StoreId(0, partition), retained)
            found |= {f"{partition}/{name}" for name in names}
        return found
