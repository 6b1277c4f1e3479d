"""Commit and recovery against a dictionary per version, whatever crashes in between.

Machines commit upon any version of the last few, as Spark does after a failed batch: by the same
run's next attempt, by a run restarted, or by two machines at once. They snapshot, clean up and die
at any fault point. Every version that was committed and is kept loads on a fresh machine, or from a
local state in its lineage, with exactly its rows.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from checkpoint_kit import (
    GRACE_MS,
    Crash,
    Stand,
    World,
    apply,
    attempt,
    commit,
    crash_at,
    on_snapshot,
    ref_of,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cairn.checkpoint import faults
from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.purge import clean_up
from cairn.checkpoint.retention import KeptVersions
from cairn.errors import FencedError
from cairn.format.manifest import ChangelogRef, Manifest, SstFile
from cairn.ids import VersionRef
from cairn.store.version import StoreVersion

KEEP = 3
KEYS = st.integers(0, 6).map(lambda number: bytes([number]))
WRITES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=4)
COMMIT_FAULTS = st.sampled_from(
    [None, None, *(point for point in faults.FAULT_POINTS if point.startswith("commit."))]
)
OTHER_FAULTS = st.sampled_from(
    [None, None, *(point for point in faults.FAULT_POINTS if not point.startswith("commit."))]
)


def hook_of(point: str | None) -> FaultHook:
    """Return what breaks there."""
    return no_fault if point is None else crash_at(point)


@dataclass
class Machine:
    """An executor's half: where it stands, and what it knows for its next snapshot."""

    stand: Stand = field(default_factory=Stand)
    changelogs: dict[VersionRef, ChangelogRef] = field(default_factory=dict)
    previous: Manifest | None = None
    known: dict[str, SstFile] = field(default_factory=dict)


class Versions(RuleBasedStateMachine):
    """One store; ``truth`` is what Spark's commit log says of each version."""

    @initialize(checkpoint_format=st.sampled_from([1, 2]))
    def begin(self, checkpoint_format: int) -> None:
        """Start a query on an empty checkpoint."""
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-versions-"))
        self.world = World(self.folder, checkpoint_format)
        self.truth: list[Stand] = [Stand()]
        self.attempts = 0
        self.zombies: list[tuple[Stand, int]] = []
        self.machine = Machine()

    def teardown(self) -> None:
        """Remove the machines' disks."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def newest(self) -> Stand:
        """The version that the next batch begins from."""
        return self.truth[-1]

    def take_over(self) -> None:
        """Load the newest version on a machine that knows nothing, as after a crash."""
        stand = self.newest
        self.machine = Machine(stand=stand)
        if stand.ref is None:
            return
        recovery = self.world.recovery()
        head = recovery.fetch_head(stand.version, stand.ref.checkpoint_id).header
        for ref in head.lineage:
            header = recovery.fetch_changelog(ref).header
            self.machine.changelogs[ref] = ChangelogRef(header.ref, header.base)
        if head.base.ref is not None:
            self.machine.previous = recovery.fetch_manifest(head.base.ref)
        self.machine.stand = Stand(head.ref, stand.content, head.base, head.lineage)

    @rule(writes=WRITES, point=COMMIT_FAULTS)
    def batch(self, writes: dict[bytes, bytes | None], point: str | None) -> None:
        """Run a batch: commit, and if nothing died, Spark's batch commit too."""
        self.attempts += 1
        try:
            stand, _ = commit(
                self.world.objects,
                self.machine.stand,
                writes,
                attempt(self.attempts),
                checkpoint_format=self.world.checkpoint_format,
                fault=hook_of(point),
            )
        except Crash:
            self.take_over()
            return
        assert stand.ref is not None
        self.truth.append(stand)
        self.machine.changelogs[stand.ref] = ref_of(stand)
        self.machine.stand = stand
        self.world.clock.advance(1)

    @rule(key=KEYS)
    def batches_and_maintenance(self, key: bytes) -> None:
        """Time goes on: three batches, a snapshot, a clean-up."""
        for number in range(KEEP):
            self.batch({key: b"%d" % (self.attempts + number)}, None)
        if self.machine.stand.lineage:
            self.snapshot(None)
            self.clean(None)

    @precondition(lambda self: self.newest.version > 0)
    @rule(writes=WRITES)
    def speculative_twin_commits(self, writes: dict[bytes, bytes | None]) -> None:
        """A newer attempt whose result Spark did not take writes the newest version again."""
        self.attempts += 1
        commit(
            self.world.objects,
            self.truth[-2],
            writes,
            attempt(self.attempts),
            checkpoint_format=self.world.checkpoint_format,
        )

    @rule(writes=WRITES)
    def batch_without_batch_commit(self, writes: dict[bytes, bytes | None]) -> None:
        """The driver dies between state commit and batch commit: the batch will run again."""
        self.attempts += 1
        commit(
            self.world.objects,
            self.machine.stand,
            writes,
            attempt(self.attempts),
            checkpoint_format=self.world.checkpoint_format,
        )
        self.take_over()

    @rule()
    def zombie_begins(self) -> None:
        """A task is started that will commit late."""
        self.attempts += 1
        self.zombies.append((self.newest, self.attempts))

    @precondition(lambda self: any(s.version < self.newest.version for s, _ in self.zombies))
    @rule(writes=WRITES)
    def zombie_commits(self, writes: dict[bytes, bytes | None]) -> None:
        """It commits after the version was built by another attempt."""
        stand, number = next(z for z in self.zombies if z[0].version < self.newest.version)
        self.zombies.remove((stand, number))
        if self.newest.version - stand.version > KEEP:
            return  # Its version is purged: what it writes is an orphan that nobody reads.
        form = self.world.checkpoint_format
        try:
            commit(self.world.objects, stand, writes, attempt(number), checkpoint_format=form)
        except FencedError:
            assert form == 1
        else:
            assert form == 2

    @precondition(lambda self: self.machine.stand.lineage)
    @rule(point=OTHER_FAULTS)
    def snapshot(self, point: str | None) -> None:
        """Snapshot the newest version; a twin may have done so already."""
        machine = self.machine
        stand = machine.stand
        after = 0 if machine.previous is None else machine.previous.ref.version
        try:
            result = self.world.snapshot(
                stand,
                changelogs=tuple(
                    entry
                    for ref, entry in sorted(machine.changelogs.items())
                    if ref.version > after
                ),
                previous=machine.previous,
                known=machine.known,
                fault=hook_of(point),
            )
        except Crash:
            self.take_over()
            return
        machine.previous, machine.known = result.manifest, dict(result.known)
        machine.stand = on_snapshot(stand)

    @precondition(lambda self: self.machine.previous is not None)
    @rule(point=OTHER_FAULTS)
    def clean(self, point: str | None) -> None:
        """Delete what retention allows, and sweep."""
        assert self.machine.previous is not None
        recent = tuple(
            entry
            for ref, entry in sorted(self.machine.changelogs.items())
            if ref.version > self.machine.previous.ref.version
        )
        kept = KeptVersions(self.newest.version, KEEP, recent)
        try:
            result = clean_up(
                self.world.objects,
                self.machine.previous,
                kept,
                grace_ms=GRACE_MS,
                checkpoint_format=self.world.checkpoint_format,
                store_time=self.world.clock.now(),
                fault=hook_of(point),
            )
            self.machine.previous = result.manifest
            sweep_orphans(
                self.world.objects, result.manifest, kept, grace_ms=GRACE_MS, fault=hook_of(point)
            )
        except Crash:
            self.take_over()

    @rule()
    def time_passes(self) -> None:
        """Longer than the grace period."""
        self.world.clock.advance(GRACE_MS / 1000 + 1)

    @rule()
    def partition_moves(self) -> None:
        """Another executor takes over, without a crash."""
        self.take_over()

    @invariant()
    def kept_versions_load(self) -> None:
        """Each kept version loads on a fresh machine with exactly its rows."""
        for stand in self.truth[-KEEP:]:
            if stand.ref is not None:
                found = self.world.load(stand.version, stand.ref.checkpoint_id)
                assert found == stand.content
        if self.world.checkpoint_format == 1 and self.newest.ref is not None:
            # By version alone the same rows come, unless a batch ran that was never committed.
            head = self.world.recovery().fetch_head(self.newest.version, None).header
            assert head.ref.version == self.newest.version

    @invariant()
    def local_state_goes_on(self) -> None:
        """From any kept version's state, replay leads to the newest."""
        if self.newest.ref is None:
            return
        recovery = self.world.recovery()
        head = recovery.fetch_head(self.newest.version, self.newest.ref.checkpoint_id)
        for local in self.truth[-KEEP:]:
            stands = replace(StoreVersion.empty(local.version), ref=local.ref)
            rest = StoreVersion.of_header(head.header).lineage_after(stands)
            if not rest:
                continue
            content = dict(local.content)
            for found in [*map(recovery.fetch_changelog, rest[:-1]), head]:
                apply(content, found.table)
            assert content == self.newest.content


TestVersions = Versions.TestCase
TestVersions.settings = settings(
    max_examples=50,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
