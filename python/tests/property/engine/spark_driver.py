"""A model of Spark's driver over real instances: runs, executors, tasks and what people do.

Each step is a name and a number, which seeds all that is random in it: a list of steps is a
history. A step that does not fit does nothing.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

from checkpoint_folder import STORES, CheckpointFolder, Ids, Rows, Storage
from leftovers import needless_objects
from rig import Rig, family

from cairn.checkpoint.orphans import SWEEP_INTERVAL_MS
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import FakeClock
from cairn.errors import CairnError
from cairn.ids import Attempt, StoreId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Step = tuple[str, int]

PUT, DELETE, APPEND = 1, 2, 3
PLAIN, LISTS = 0, 1
FAMILIES = [family(PLAIN, multi=False), family(LISTS, multi=True)]
KEEP = 3
GRACE_S = 60
EXECUTORS = 3
CONF = {
    "minDeltasForSnapshot": 2,
    "minBatchesToRetain": KEEP,
    "orphanGraceMs": GRACE_S * 1000,
}
_DAY_S = SWEEP_INTERVAL_MS / 1000


class WrongError(AssertionError):
    """A promise is broken."""


class Instance(Rig):
    """Spark's provider object for one store, in one executor and run."""

    def __init__(self, driver: Driver, partition: int, executor: Executor, run: Run) -> None:
        self.driver, self.partition = driver, partition
        self.folder = driver.folder
        super().__init__(
            executor.new_disk(),
            "",
            driver.checkpoint_format,
            CONF,
            run=run.id,
            beside=executor.worker,
            clock=driver.clock,
        )

    def new_checkpoint(self, writer: str) -> StoreCheckpoint:
        """Open the store's objects."""
        return StoreCheckpoint(
            self.driver.storage.store(self.folder.name, self.partition),
            StoreId(0, self.partition),
            self.checkpoint_format,
            self.conf,
            SnapshotWriter(self.run, writer, {}),
            self.resources.transfers,
        )

    def all_rows(self, version: int) -> Rows:
        """Return the rows of the loaded version."""
        return {cf: self.contents(cf, version, page_rows=1000) for cf in (PLAIN, LISTS)}

    def change(self, random: Random, before: Rows, *, idle: bool) -> Rows:
        """Write at random, or nothing; return the rows after that."""
        after = copy.deepcopy(before)
        rows: list[tuple[int, int, bytes, bytes | None, int]] = []
        for _ in range(0 if idle else random.randint(1, 5)):
            cf = random.choice([PLAIN, PLAIN, LISTS])
            key, value = b"k%d" % random.randrange(6), b"%d," % random.randrange(10**6)
            if any(row[1:3] == (cf, key) for row in rows):
                continue
            kind = random.choice([PUT, PUT, DELETE] if cf == PLAIN else [PUT, APPEND, DELETE])
            rows.append((kind, cf, key, None if kind == DELETE else value, 0))
            if kind == DELETE:
                after[cf].pop(key, None)
            else:
                after[cf][key] = (after[cf].get(key, b"") if kind == APPEND else b"") + value
        if rows:
            self.write(rows)
        return after


class Executor:
    """A worker, and its place on the local disk."""

    def __init__(self, local: Path, clock: FakeClock) -> None:
        self._local = local
        self._disks = 0
        self.worker = Rig(local, "memory://unused", 2, {}, clock=clock)

    def new_disk(self) -> Path:
        """Return a folder for an instance."""
        self._disks += 1
        return self._local / f"instance{self._disks}"


@dataclass
class Run:
    """A run of the query.

    Attributes:
        id: Spark's.
        app_start_ms: when its application started.
        batch: the next one.
        ids: those of the version that it loads.
        instances: by partition and executor.
        places: the executor of each partition.
    """

    id: str
    app_start_ms: int
    batch: int
    ids: Ids
    instances: dict[tuple[int, int], Instance] = field(default_factory=dict)
    places: list[int] = field(default_factory=lambda: [0] * STORES)


@dataclass
class Task:
    """An attempt that has written, and commits in time, late or never."""

    instance: Instance
    version: int
    base: str | None
    attempt: Attempt
    rows: Rows

    def commit(self) -> str:
        """Commit and return the id."""
        answer = self.instance.commit(self.version, self.base, FAMILIES, self.attempt)
        return str(answer["checkpoint_id"])


class Driver:
    """See the module."""

    def __init__(self, local: Path, checkpoint_format: int) -> None:
        self.local = local
        self.checkpoint_format = checkpoint_format
        self.clock = FakeClock()
        self.storage = Storage(self.clock)
        self.folder = CheckpointFolder(self.storage, "cp")
        self.executors: dict[int, Executor] = {}
        self.run: Run | None = None
        self.former: list[Instance] = []
        self.zombies: list[Task] = []
        self.copying: Iterator[CheckpointFolder] | None = None
        self.copy: CheckpointFolder | None = None
        self.moves = True
        self.names = 0
        self.app_start_ms = self._now_ms()
        self.task_attempts = 0

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
        for _ in range(random.randint(1, KEEP + 1)):
            self._run_batch(random, idle=True)

    def broken_batch(self, random: Random) -> None:
        """The run ends within a batch: no store, some stores or all of them have committed."""
        self._run_batch(random, tasks=random.randint(0, STORES))
        self._end_run()

    def twins(self, random: Random) -> None:
        """Run a batch in which each task may have a twin, which writes something else."""
        self._run_batch(random, twins=True)

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
        self.clock.advance(random.choice([GRACE_S / 3, GRACE_S + 1, _DAY_S + GRACE_S]))

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
        self, random: Random, *, idle: bool = False, twins: bool = False, tasks: int | None = None
    ) -> None:
        """Run the next batch; with ``tasks`` the driver is killed after so many of them."""
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
            has_twin = twins and random.random() < 0.7
            done.append(self._run_task(random, instance, base, idle=idle, has_twin=has_twin))
            self._copy_some(random)
        if tasks is not None:
            return
        ids: Ids = [id_ for id_, _ in done]
        folder.end_batch(run.batch, ids, KEEP)
        folder.truth = {v: rows for v, rows in folder.truth.items() if v <= version}
        folder.truth[version + 1] = [rows for _, rows in done]
        folder.floor = max(folder.floor, version + 2 - KEEP)
        if folder.may_lack:
            folder.floor, folder.may_lack = version + 1, False
        run.batch += 1
        run.ids = ids if self.checkpoint_format == 2 else [None] * STORES
        self._copy_some(random)
        if self.former and random.random() < 0.3:
            with suppress(CairnError):
                random.choice(self.former).maintain()

    def _run_task(
        self, random: Random, instance: Instance, base: str | None, *, idle: bool, has_twin: bool
    ) -> tuple[str, Rows]:
        """Write and commit on a loaded version; return id and rows of the attempt that counts."""
        assert self.run is not None
        run, partition, version = self.run, instance.partition, self.run.batch
        before = self.folder.truth[version][partition]
        rows = instance.change(random, before, idle=idle or random.random() < 0.3)
        first = Task(instance, version + 1, base, self._next_attempt(run), rows)
        if not has_twin:
            return first.commit(), rows
        other = self._new_instance(partition, random.randrange(EXECUTORS), run)
        other.load(version, run.ids[partition])
        rows = other.change(random, before, idle=random.random() < 0.3)
        twin = Task(other, version + 1, base, self._next_attempt(run), rows)
        faster, slower = random.sample([first, twin], 2)
        id_, rows = faster.commit(), faster.rows
        self.former.append(other)
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
        id_ = answer["checkpoint_id"]
        return None if id_ is None else str(id_)

    def _refused(self, failure: CairnError, *, has_gap: bool) -> None:
        """Do what the documents say after a load that failed; that must be permitted."""
        folder = self.folder
        self._end_run()
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
        if place not in self.executors:
            self.names += 1
            self.executors[place] = Executor(self.local / f"executor{self.names}", self.clock)
        return Instance(self, partition, self.executors[place], run)

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
        instance.crash()

    def _kill(self, number: int) -> None:
        executor = self.executors.pop(number, None)
        if executor is None:
            return
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
        for version in range(max(folder.floor, newest + 1 - KEEP, 1), newest + 1):
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
        left = needless & self._needless()
        if left:
            raise WrongError(f"nothing needs {sorted(left)}")
        self.check_retained()

    def _some_days(self) -> None:
        random = Random(1)
        for number in range(KEEP + 3):
            self._run_batch(random)
            self._maintain_all()
            self.clock.advance(_DAY_S + GRACE_S if number % 3 == 2 else GRACE_S / 2)
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
