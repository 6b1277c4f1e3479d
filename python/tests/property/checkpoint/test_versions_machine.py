"""Commit and recovery against a dictionary per version, with crashes at all fault points.

Machines commit on top of any recent version, as Spark does after a failed batch: in the next
attempt of the same run, in a restarted run, or on two machines at once. They take snapshots, purge
and crash at any fault point. Every kept version loads with exactly its rows, on a fresh machine or
from a local state in its lineage.

Attempts at one version end in any order: twins before their batch is committed and after it, tasks
of former runs. The checkpoint is deleted and begun anew, before and within the maintenance of the
former run; its machine is maintained again.

Readers pin versions, renew their pins, and end or die, between and within purges and sweeps. A
version that was kept when its pin was stored loads with exactly its rows as long as the pin is
renewed. A version that a savepoint pins loads until its pin is deleted.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from checkpoint_kit import (
    GRACE_MS,
    STORE,
    Crash,
    ModelVersion,
    OneAfterTheOther,
    World,
    apply,
    attempt,
    changelog_ref,
    crash_at,
    fetch_changelogs,
    on_own_snapshot,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cairn.checkpoint.faults import FaultHook, FaultPoint, no_fault
from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.pending_upload import PendingUpload
from cairn.checkpoint.reader_pins import PIN_AFTER_MS, RENEWAL_MS, ReaderPin, ReaderPins
from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import SYSTEM_ENTROPY, FakeClock
from cairn.config import EngineConf
from cairn.errors import BusyError, FencedError, UnavailableError
from cairn.format.manifest import ChangelogRef, Manifest, SstFile
from cairn.format.names import new_savepoint_id, savepoint_pin_name
from cairn.format.spark_log import COMMITS_PREFIX, OFFSETS_PREFIX
from cairn.ids import Attempt, VersionRef
from cairn.store.load.lineage import reading_of
from cairn.store.state.root_check import RootCheck
from cairn.store.state.version import StoreVersion

assert settings.default is not None
EXAMPLES = settings.default.max_examples // 3
KEEP = 3
KEYS = st.integers(0, 6).map(lambda number: bytes([number]))
WRITES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=4)
COMMIT_FAULTS = st.sampled_from(
    [None, None, *(point for point in FaultPoint if point.startswith("commit."))]
)
OTHER_FAULTS = st.sampled_from(
    [None, None, *(point for point in FaultPoint if not point.startswith("commit."))]
)

UPLOAD_POINTS = st.sampled_from(
    [
        FaultPoint.SNAPSHOT_AFTER_SST,
        FaultPoint.SNAPSHOT_BEFORE_MANIFEST,
        FaultPoint.SNAPSHOT_AFTER_MANIFEST,
    ]
)


MAINTENANCE_POINTS = st.sampled_from(
    [point for point in FaultPoint if point.startswith(("purge.", "sweep."))]
)
READER_POINTS = st.none() | st.sampled_from(
    [
        FaultPoint.PURGE_AFTER_PINS,
        FaultPoint.PURGE_BEFORE_MANIFEST,
        FaultPoint.PURGE_BEFORE_CHANGELOGS,
        FaultPoint.SWEEP_AFTER_PINS,
        FaultPoint.SWEEP_BEFORE_DELETE,
    ]
)


def hook_of(point: str | None) -> FaultHook:
    """Return the hook that crashes there."""
    return no_fault if point is None else crash_at(point)


@dataclass
class Machine:
    """An executor: its loaded version, and its knowledge for the next snapshot."""

    version: ModelVersion = field(default_factory=ModelVersion)
    changelogs: dict[VersionRef, ChangelogRef] = field(default_factory=dict)
    previous: Manifest | None = None
    known: dict[str, SstFile] = field(default_factory=dict)
    pending: PendingUpload | None = None


@dataclass
class Reader:
    """A read that is pinned.

    Attributes:
        pins: of its worker.
        clock: of its worker.
        pin: of the read.
        model: the version that it reads.
        pinned_s: when the pin was stored, in seconds of the storage's clock.
    """

    pins: ReaderPins
    clock: FakeClock
    pin: ReaderPin
    model: ModelVersion
    pinned_s: float


@dataclass
class Former:
    """A machine of a run whose checkpoint was deleted.

    Attributes:
        machine: as it was then.
        newest: the version that it stands on, with the base and lineage of its commit.
        recent: the changelogs after its manifest.
        task: its task that has not ended.
    """

    machine: Machine
    newest: ModelVersion
    recent: tuple[ChangelogRef, ...]
    task: Attempt


class Versions(RuleBasedStateMachine):
    """One store; ``truth`` has the version of each batch that Spark's commit log names."""

    @initialize(checkpoint_format=st.sampled_from([1, 2]))
    def begin(self, checkpoint_format: int) -> None:
        """Start a query on an empty checkpoint."""
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-versions-"))
        self.world = World(self.folder, checkpoint_format, OneAfterTheOther())
        self.truth: list[ModelVersion] = [ModelVersion()]
        self.attempts = 0
        self.zombies: list[tuple[ModelVersion, int]] = []
        self.machine = Machine()
        self.readers: list[Reader] = []
        self.savepoints: dict[str, ModelVersion] = {}
        self.former: list[Former] = []

    def teardown(self) -> None:
        """Remove the machines' disks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def newest(self) -> ModelVersion:
        """The version on which the next batch starts."""
        return self.truth[-1]

    @property
    def recent(self) -> tuple[ChangelogRef, ...]:
        """The changelogs after the machine's manifest."""
        after = 0 if self.machine.previous is None else self.machine.previous.ref.version
        entries = sorted(self.machine.changelogs.items())
        return tuple(entry for ref, entry in entries if ref.version > after)

    def take_over(self) -> None:
        """Load the newest version on a fresh machine, as after a crash."""
        model = self.newest
        self.machine = Machine(version=model)
        if model.ref is None:
            return
        recovery = self.world.recovery()
        head = recovery.fetch_head(model.ref.version, model.ref.checkpoint_id).header
        for ref in head.lineage:
            header = recovery.fetch_head(ref.version, ref.checkpoint_id).header
            self.machine.changelogs[ref] = ChangelogRef(header.ref, header.base)
        if head.base.ref is not None:
            self.machine.previous = recovery.fetch_manifest(head.base.ref)
        self.machine.version = replace(model, base=head.base, lineage=head.lineage)

    @rule(writes=WRITES, point=COMMIT_FAULTS)
    def batch(self, writes: dict[bytes, bytes | None], point: str | None) -> None:
        """Run a batch: commit, and without a crash also Spark's batch commit."""
        self.attempts += 1
        try:
            model = self.world.commit(
                self.machine.version,
                writes,
                self.attempt(self.attempts),
                fault=hook_of(point),
            )
        except Crash:
            self.take_over()
            return
        assert model.ref is not None
        self.machine.changelogs[model.ref] = changelog_ref(model)
        self.machine.version = model
        self.commit_batch(model)

    def attempt(self, number: int) -> Attempt:
        """Return an attempt of the present run."""
        return attempt(number, run=self.world.run)

    def commit_batch(self, model: ModelVersion) -> None:
        """Let Spark's driver commit the batch of a version, and plan the next one."""
        self.truth.append(model)
        batch = model.version - 1
        self.world.log(COMMITS_PREFIX, batch)
        self.world.log(OFFSETS_PREFIX, batch, batch + 1)
        self.world.clock.advance(1)

    @rule(writes=WRITES, of_twin=WRITES, goes_on_with_twin=st.booleans())
    def twins(
        self,
        writes: dict[bytes, bytes | None],
        of_twin: dict[bytes, bytes | None],
        goes_on_with_twin: bool,  # noqa: FBT001
    ) -> None:
        """Two attempts end before the batch is committed; they write different rows."""
        self.attempts += 2
        base, machine = self.machine.version, self.machine
        first = self.world.commit(base, writes, self.attempt(self.attempts - 1))
        twin = self.world.commit(base, of_twin, self.attempt(self.attempts))
        assert first.ref is not None
        assert twin.ref is not None
        is_twin = self.world.checkpoint_format == 1
        # The executor of either has it in memory.
        machine.version = twin if is_twin and goes_on_with_twin else first
        machine.changelogs |= {ref.ref: ref for ref in (changelog_ref(machine.version),)}
        self.commit_batch(twin if is_twin else first)

    @precondition(lambda self: self.world.checkpoint_format == 2 and self.newest.version > 0)
    @rule(count=st.integers(1, KEEP + 2))
    def idle_batches(self, count: int) -> None:
        """Batches without writes for this store: empty commits."""
        for _ in range(count):
            model = self.machine.version
            model = replace(model, empty_commits=model.empty_commits + 1)
            self.machine.version = model
            self.commit_batch(model)

    @rule(key=KEYS)
    def batches_and_maintenance(self, key: bytes) -> None:
        """Run three batches, a snapshot and a purge."""
        for number in range(KEEP):
            self.batch({key: b"%d" % (self.attempts + number)}, None)
        if self.machine.version.lineage:
            self.snapshot(None)
        if self.machine.previous is not None:
            self.purge(None)

    @precondition(lambda self: self.newest.version > 0)
    @rule(writes=WRITES)
    def speculative_attempt_commits(self, writes: dict[bytes, bytes | None]) -> None:
        """A newer attempt, whose result Spark ignores, commits the newest version again."""
        self.attempts += 1
        try:
            self.world.commit(self.truth[-2], writes, self.attempt(self.attempts))
        except FencedError:
            assert self.world.checkpoint_format == 1
        else:
            assert self.world.checkpoint_format == 2

    @rule(writes=WRITES)
    def batch_without_batch_commit(self, writes: dict[bytes, bytes | None]) -> None:
        """The driver crashes between state commit and batch commit: the batch runs again."""
        self.attempts += 1
        self.world.commit(
            self.machine.version,
            writes,
            self.attempt(self.attempts),
        )
        self.take_over()

    @rule()
    def zombie_begins(self) -> None:
        """A task starts that will commit late."""
        self.attempts += 1
        self.zombies.append((self.newest, self.attempts))

    @precondition(lambda self: any(s.version < self.newest.version for s, _ in self.zombies))
    @rule(writes=WRITES)
    def zombie_commits(self, writes: dict[bytes, bytes | None]) -> None:
        """It commits after another attempt has committed the version."""
        model, number = next(z for z in self.zombies if z[0].version < self.newest.version)
        self.zombies.remove((model, number))
        if self.newest.version - model.version > KEEP:
            # Its version may be purged: then it is created, and swept.
            self.late_commit(model, writes, self.attempt(number))
            return
        form = self.world.checkpoint_format
        try:
            self.world.commit(model, writes, self.attempt(number))
        except FencedError:
            assert form == 1
        else:
            assert form == 2

    def late_commit(
        self, model: ModelVersion, writes: dict[bytes, bytes | None], task: Attempt
    ) -> None:
        """Commit a version that another attempt may have committed."""
        try:
            self.world.commit(model, writes, task)
        except FencedError:
            assert self.world.checkpoint_format == 1

    @precondition(lambda self: self.newest.ref is not None)
    @rule()
    def checkpoint_is_deleted(self) -> None:
        """A person deletes it, and starts the query anew at the same place."""
        self.attempts += 1
        task = self.attempt(self.attempts)
        former = Former(self.machine, self.newest, self.recent, task)
        # The machine may stand on another attempt than the one in ``truth``: on what it committed.
        own = former.machine.version
        if own.lineage:
            former.newest = own
        self.former = [*self.former[-1:], former]
        self.world.delete_checkpoint()
        self.world.run = f"run {self.attempts}"
        self.world.clock.advance(1)
        self.zombies, self.readers, self.savepoints = [], [], {}
        self.truth, self.machine = [ModelVersion()], Machine()

    @precondition(lambda self: self.former)
    @rule(which=st.integers(0, 1))
    def former_is_maintained(self, which: int) -> None:
        """Spark maintains the stores of the former run once more."""
        former = self.former[which % len(self.former)]
        machine = former.machine
        if not self.holds(former.newest):
            return
        present, self.world.run = self.world.run, former.task.run_id
        if machine.version.lineage:
            result = self.world.snapshot(
                machine.version,
                changelogs=former.recent,
                previous=machine.previous,
                known=machine.known,
            )
            machine.previous, former.recent = result.manifest, ()
            machine.version = on_own_snapshot(machine.version)
        if machine.previous is not None:
            kept = KeptVersions(former.newest.version, KEEP, former.recent)
            self.world.purge(machine.previous, kept, self.world.clock.now())
            sweep_orphans(self.world.objects, machine.previous, kept, SweepLimits(GRACE_MS))
        self.world.run = present

    def holds(self, model: ModelVersion) -> bool:
        """Return whether the checkpoint is still that of a machine that stands on a version."""
        version = replace(
            StoreVersion.empty(model.version),
            ref=model.ref,
            base=model.base,
            lineage=model.lineage,
        )
        return RootCheck(FakeClock()).holds(self.checkpoint_of("former"), version)

    @rule(point=MAINTENANCE_POINTS, batches=st.integers(1, 2 * KEEP))
    def checkpoint_is_deleted_within_maintenance(self, point: str, batches: int) -> None:
        """The former run has begun to purge or to sweep: there is something to delete."""
        for _ in range(2):
            for number in range(KEEP):
                self.batch({bytes([number]): b"former"}, None)
            self.try_snapshot(no_fault)
        self.world.clock.advance(GRACE_MS / 1000 + 1)
        if self.machine.previous is None:
            return  # the version had a manifest already
        machine, newest, recent = self.machine, self.newest, self.recent
        assert machine.previous is not None
        is_done = False

        def begin_anew(reached: str) -> None:
            nonlocal is_done
            if reached == point and not is_done:
                is_done = True
                self.checkpoint_is_deleted()
                for number in range(batches):
                    self.batch({bytes([number % 7]): b"new"}, None)

        kept = KeptVersions(newest.version, KEEP, recent)
        now = self.world.clock.now()
        result = self.world.purge(machine.previous, kept, now, fault=begin_anew)
        if not is_done:
            sweep_orphans(
                self.world.objects, result.manifest, kept, SweepLimits(GRACE_MS), fault=begin_anew
            )
        if not is_done:
            machine.previous = result.manifest

    @precondition(lambda self: self.former)
    @rule(which=st.integers(0, 1), writes=WRITES)
    def task_of_a_former_run_commits(self, which: int, writes: dict[bytes, bytes | None]) -> None:
        """It ends after the checkpoint was begun anew."""
        former = self.former[which % len(self.former)]
        self.late_commit(former.newest, writes, former.task)

    @precondition(lambda self: self.machine.version.lineage)
    @rule(point=OTHER_FAULTS)
    def snapshot(self, point: str | None) -> None:
        """Take a snapshot of the newest version; another machine may have done so already."""
        self.try_snapshot(hook_of(point))

    @precondition(lambda self: self.machine.version.lineage)
    @rule(point=UPLOAD_POINTS, graces=st.sampled_from([0.2, 0.4, 0.6, 1.2]), fails=st.booleans())
    def slow_snapshot(self, point: str, graces: float, fails: bool) -> None:  # noqa: FBT001
        """The upload stands still at a point while others sweep; perhaps it fails then."""

        def stand_still(reached: str) -> None:
            if reached != point:
                return
            self.world.clock.advance(graces * GRACE_MS / 1000)
            self.sweep_as_another()
            if fails:
                raise UnavailableError("the storage does not answer")

        try:
            self.try_snapshot(stand_still)
        except UnavailableError:
            assert fails  # the machine continues with what is uploaded
        except BusyError:
            assert self.machine.pending is not None
            assert self.machine.pending.is_lost

    def sweep_as_another(self) -> None:
        """Sweep as a writer that has the same newest manifest, and has just stored something."""
        machine = self.machine
        self.world.objects.put("changelog/900000.arrow", b"the storage's time")
        if machine.previous is not None:
            kept = KeptVersions(self.newest.version, KEEP, self.recent)
            sweep_orphans(self.world.objects, machine.previous, kept, SweepLimits(GRACE_MS))

    def try_snapshot(self, fault: FaultHook) -> None:
        """Take a snapshot with the files that earlier attempts of this machine have uploaded."""
        machine = self.machine
        model = machine.version
        if machine.pending is None or machine.pending.is_lost:
            machine.pending = self.world.uploader().new_pending()
        try:
            result = self.world.snapshot(
                model,
                changelogs=self.recent,
                previous=machine.previous,
                known=machine.known,
                pending=machine.pending,
                fault=fault,
            )
        except Crash:
            self.take_over()
            return
        if not result.won:
            return  # the next version gets a snapshot
        machine.pending = None
        machine.previous, machine.known = result.manifest, dict(result.known)
        machine.version = on_own_snapshot(model)

    @precondition(lambda self: self.machine.previous is not None)
    @rule(point=OTHER_FAULTS, reader_point=READER_POINTS, age=st.integers(1, KEEP))
    def purge(self, point: str | None, reader_point: str | None = None, age: int = 1) -> None:
        """Delete what retention allows, and sweep; a reader may pin a kept version meanwhile."""
        assert self.machine.previous is not None
        kept = KeptVersions(self.newest.version, KEEP, self.recent)
        crash = hook_of(point)

        def hook(reached: str) -> None:
            if reached == reader_point:
                self.reader_begins(age)
                self.savepoint_is_created(age)
            crash(reached)

        try:
            now = self.world.clock.now()
            result = self.world.purge(self.machine.previous, kept, now, fault=hook)
            self.machine.previous = result.manifest
            sweep_orphans(
                self.world.objects, result.manifest, kept, SweepLimits(GRACE_MS), fault=hook
            )
        except Crash:
            self.take_over()

    @rule(age=st.integers(1, KEEP))
    def reader_begins(self, age: int) -> None:
        """A reader on another machine pins one of the kept versions."""
        model = self.truth[-min(age, len(self.truth))]
        if model.ref is None:
            return
        clock = FakeClock()
        pins = ReaderPins(clock, SYSTEM_ENTROPY)
        checkpoint = self.checkpoint_of("reader")
        head = checkpoint.read(model.ref.version, str(model.ref.checkpoint_id)).header
        pin = pins.begin(checkpoint)
        pin.reads(reading_of(StoreVersion.of_header(head)))
        clock.advance(PIN_AFTER_MS / 1000)
        pins.keep()
        assert not pin.is_late
        self.readers.append(Reader(pins, clock, pin, model, self.seconds))

    def checkpoint_of(self, instance: str) -> StoreCheckpoint:
        """Return the store's objects on another machine."""
        return StoreCheckpoint(
            self.world.connect(),
            STORE,
            self.world.checkpoint_format,
            EngineConf(orphan_grace_ms=GRACE_MS),
            SnapshotWriter("run", instance, {}),
            self.world.transfers(),
        )

    @property
    def seconds(self) -> float:
        """The storage's clock."""
        return self.world.clock.now().timestamp()

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 9))
    def reader_renews_its_pin(self, which: int) -> None:
        """The read goes on."""
        reader = self.readers[which % len(self.readers)]
        reader.clock.advance(RENEWAL_MS / 1000)
        reader.pins.keep()
        reader.pinned_s = self.seconds
        assert not reader.pin.is_late

    @precondition(lambda self: self.readers)
    @rule(which=st.integers(0, 9), dies=st.booleans())
    def reader_ends(self, which: int, dies: bool) -> None:  # noqa: FBT001
        """The read ends, or its process is killed and leaves the pin."""
        reader = self.readers.pop(which % len(self.readers))
        if not dies:
            reader.pin.end()
            reader.pins.keep()

    @rule(age=st.integers(1, KEEP))
    def savepoint_is_created(self, age: int) -> None:
        """A command on another machine pins one of the kept versions."""
        model = self.truth[-min(age, len(self.truth))]
        if model.ref is None:
            return
        head = self.checkpoint_of("command").read(model.ref.version, str(model.ref.checkpoint_id))
        base, version = head.header.base.version, model.ref.version
        name = savepoint_pin_name(new_savepoint_id(SYSTEM_ENTROPY), base, version)
        self.world.objects.put(name, b"{}")
        self.savepoints[name] = model

    @precondition(lambda self: self.savepoints)
    @rule(which=st.integers(0, 9))
    def savepoint_is_deleted(self, which: int) -> None:
        """Nothing has to be kept any more."""
        name = list(self.savepoints)[which % len(self.savepoints)]
        del self.savepoints[name]
        self.world.objects.delete([name])

    @invariant()
    def savepoints_load(self) -> None:
        """However old they are, and whatever has the plain name of their version."""
        assert set(self.savepoints) <= set(self.world.names("pin/savepoint-"))
        for model in self.savepoints.values():
            assert model.ref is not None
            found = self.world.load(model.ref.version, str(model.ref.checkpoint_id))
            assert found == model.content

    @invariant()
    def pinned_versions_load(self) -> None:
        """A version that was kept when it was pinned loads until the pin is old."""
        oldest_s = self.seconds - GRACE_MS / 1000
        self.readers = [reader for reader in self.readers if reader.pinned_s > oldest_s]
        for reader in self.readers:
            model = reader.model
            assert self.world.load(model.version, model.checkpoint_id) == model.content

    @rule()
    def time_passes(self) -> None:
        """Longer than the grace period."""
        self.world.clock.advance(GRACE_MS / 1000 + 1)

    @rule()
    def partition_moves(self) -> None:
        """Another executor loads the store, without a crash."""
        self.take_over()

    @invariant()
    def kept_versions_load(self) -> None:
        """Each kept version loads on a fresh machine with exactly its rows."""
        for model in self.truth[-KEEP:]:
            if model.ref is not None:
                found = self.world.load(model.version, model.checkpoint_id)
                assert found == model.content
                if self.world.checkpoint_format == 1:
                    head = self.world.recovery().fetch_head(model.version, None).header
                    assert head.ref == model.ref

    @invariant()
    def replay_from_a_local_state_works(self) -> None:
        """A replay from the state of any kept version leads to the newest version."""
        if self.newest.ref is None:
            return
        recovery = self.world.recovery()
        head = recovery.fetch_head(self.newest.ref.version, self.newest.ref.checkpoint_id)
        wanted = replace(StoreVersion.of_header(head.header), version=self.newest.version)
        for local in self.truth[-KEEP:]:
            current = replace(StoreVersion.empty(local.version), ref=local.ref)
            rest = wanted.lineage_after(current)
            if not rest:
                continue
            content = dict(local.content)
            for found in [*fetch_changelogs(recovery, rest[:-1]), head]:
                apply(content, found.table)
            assert content == self.newest.content


TestVersions = Versions.TestCase
TestVersions.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
)
