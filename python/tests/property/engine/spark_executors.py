"""What the model of Spark's driver runs: executors, provider objects, runs and tasks."""

from __future__ import annotations

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkpoint_folder import STORES, Ids, Rows
from rig import Rig, family
from worker_storage import Uplink

from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.errors import UnavailableError
from cairn.ids import Attempt, StoreId
from cairn.protocol.calls import LoadRequest, MaintainRequest

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from spark_driver import Driver

    from cairn.clock import FakeClock

PUT, DELETE, APPEND = 1, 2, 3
PLAIN, LISTS = 0, 1
FAMILIES = [family(PLAIN, multi=False), family(LISTS, multi=True)]
GRACE_S = 60
LONG_S = 20
_SLOW_S = 0.05
_SHORT_MS = 5


@dataclass(frozen=True)
class Query:
    """What does not change in a history.

    Attributes:
        checkpoint_format: Spark's, 1 or 2.
        kept: ``minBatchesToRetain``.
        due: ``minDeltasForSnapshot``.
        replaces_at_once: whether the storage replaces an object in one step.
    """

    checkpoint_format: int
    kept: int = 3
    due: int = 2
    replaces_at_once: bool = True

    @property
    def conf(self) -> dict[str, Any]:
        """Return the settings of each store."""
        return {
            "minDeltasForSnapshot": self.due,
            "minBatchesToRetain": self.kept,
            "orphanGraceMs": GRACE_S * 1000,
        }


class WrongError(AssertionError):
    """A promise is broken."""


class Instance(Rig):
    """Spark's provider object for one store, in one executor and run."""

    def __init__(self, driver: Driver, partition: int, executor: Executor, run: Run) -> None:
        self.driver, self.partition = driver, partition
        self.folder = driver.folder
        self.uplink = executor.uplink
        self.is_closed = False
        super().__init__(
            executor.new_disk(),
            "",
            driver.query.checkpoint_format,
            driver.query.conf,
            run=run.id,
            beside=executor.worker,
            clock=driver.clock,
        )

    def new_checkpoint(self, writer: str) -> StoreCheckpoint:
        """Open the store's objects."""
        return StoreCheckpoint(
            self.driver.storage.store(self.folder.name, self.partition, self.uplink),
            StoreId(0, self.partition),
            self.checkpoint_format,
            self.conf,
            SnapshotWriter(self.run, writer, {}),
            self.resources.transfers,
        )

    def load_empty(self, version: int, checkpoint_id: str | None) -> dict[str, Any]:
        """Begin a batch on an empty store, as Spark's ``loadEmptyStore``."""
        session = self.next_session()
        return self._load(LoadRequest(1, session, version, checkpoint_id, load_empty=True))

    def maintain(self, *, cleanup: bool = True) -> dict[str, Any]:
        """See ``Rig``. Spark's maintenance goes on without a snapshot that takes long or fails."""
        wait_ms = _SHORT_MS if self.uplink.is_slow else None
        request = MaintainRequest(1, snapshot=True, cleanup=cleanup, wait_ms=wait_ms)
        try:
            return dict(self.instance.maintain(request).to_json())
        except UnavailableError:
            if not self.uplink.fails:
                raise
            return {}

    def close(self, snapshot_wait_s: float) -> None:
        """Close it as Spark does; its snapshot may go on for so long, in the worker."""
        self.is_closed = True
        self.event_loop.run(self.connection.close)
        self.peer.close()
        self.instance.close(snapshot_wait_s)

    def await_closed(self) -> None:
        """Wait until the worker has nothing of it any more."""
        until = time.monotonic() + LONG_S
        while not self.state.is_closed:
            if time.monotonic() > until:
                raise WrongError("a store is not closed")
            time.sleep(0.001)

    def crash(self) -> None:
        """See ``Rig``."""
        if not self.is_closed:
            super().crash()

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
        self.uplink = Uplink()
        self.worker = Rig(local, "memory://unused", 2, {}, clock=clock)
        # As a worker has it: a snapshot that stands still does not keep others from their thread.
        self.worker.resources.maintenance = pool = ThreadPoolExecutor(32)
        self.worker.pools.append(pool)

    def new_disk(self) -> Path:
        """Return a folder for an instance."""
        self._disks += 1
        return self._local / f"instance{self._disks}"

    def until_snapshots_end_or_stand(self) -> None:
        """Wait until each snapshot and clean-up has ended, or its upload stands still."""
        until = time.monotonic() + LONG_S
        while len(self.worker.resources.snapshots.wait(0)) > self.uplink.standing:
            if time.monotonic() > until:
                raise WrongError("a snapshot does not end")
            time.sleep(0.001)

    def die(self) -> None:
        """End the worker's process. Its instances crash after that, then this worker."""
        self.uplink.die()
        if self.worker.resources.snapshots.wait(LONG_S):
            raise WrongError("a snapshot does not end")


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
    takes_snapshot: bool = False

    def commit(self) -> str:
        """Commit and return the id. A commit waits longer for an upload than the slowest takes."""
        uplink = self.instance.uplink
        slowness = threading.Timer(_SLOW_S, uplink.let_through)
        if uplink.is_slow:
            slowness.start()
        try:
            answer = self.instance.commit(
                self.version, self.base, FAMILIES, self.attempt, snapshot=self.takes_snapshot
            )
        finally:
            slowness.cancel()
        return str(answer["checkpoint_id"])
