"""A store whose query runs on and on, for the tests of what is deleted behind it."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_kit import (
    GRACE_MS,
    Stand,
    World,
    attempt,
    commit,
    on_snapshot,
    ref_of,
)

from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.orphans import sweep_orphans
from cairn.checkpoint.purge import CleanupResult, clean_up
from cairn.checkpoint.retention import KeptVersions
from cairn.format.manifest import ChangelogRef, Manifest, SstFile

KEEP = 4
EVERY = 3


@dataclass
class Query:
    """A store that runs: commits, snapshots every third version, and remembers all of it."""

    world: World
    stand: Stand = field(default_factory=Stand)
    all: list[Stand] = field(default_factory=list)
    since: list[ChangelogRef] = field(default_factory=list)
    previous: Manifest | None = None
    known: dict[str, SstFile] = field(default_factory=dict)

    def run(self, versions: int) -> None:
        """Commit so many versions; keys change in every one."""
        for _ in range(versions):
            number = self.stand.version + 1
            self.stand, _ = commit(
                self.world.objects,
                self.stand,
                {bytes([number % 7]): b"%d" % number},
                attempt(number),
                checkpoint_format=self.world.checkpoint_format,
            )
            self.all.append(self.stand)
            self.since.append(ref_of(self.stand))
            self.world.clock.advance(1)
            if number % EVERY == 0:
                self.snapshot()

    def snapshot(self) -> None:
        """Make a snapshot of the newest version."""
        result = self.world.snapshot(
            self.stand,
            changelogs=tuple(self.since),
            previous=self.previous,
            known=self.known,
        )
        assert result.won
        self.previous, self.known, self.since = result.manifest, dict(result.known), []
        self.stand = on_snapshot(self.stand)

    @property
    def kept(self) -> KeptVersions:
        """What retention must keep."""
        return KeptVersions(self.stand.version, KEEP, tuple(self.since))

    def clean(self, fault: FaultHook = no_fault) -> CleanupResult:
        """Clean up as the writer of the newest manifest does."""
        assert self.previous is not None
        result = clean_up(
            self.world.objects,
            self.previous,
            self.kept,
            grace_ms=GRACE_MS,
            checkpoint_format=self.world.checkpoint_format,
            store_time=self.world.clock.now(),
            fault=fault,
        )
        self.previous = result.manifest
        return result

    def sweep(self) -> int:
        """Sweep orphans."""
        assert self.previous is not None
        return sweep_orphans(self.world.objects, self.previous, self.kept, grace_ms=GRACE_MS)

    def check(self) -> None:
        """Every kept version loads with its rows."""
        for stand in self.all[-KEEP:]:
            assert stand.ref is not None
            assert self.world.load(stand.ref.version, stand.ref.checkpoint_id) == stand.content
