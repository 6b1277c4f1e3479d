"""A store with a running query, for the tests of deletion."""

from __future__ import annotations

from dataclasses import dataclass, field

from checkpoint_kit import (
    GRACE_MS,
    ModelVersion,
    World,
    attempt,
    changelog_ref,
    on_own_snapshot,
)

from cairn.checkpoint.faults import FaultHook, no_fault
from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.purge import PurgeResult
from cairn.checkpoint.retention import KeptVersions
from cairn.format.manifest import ChangelogRef, Manifest, SstFile

KEEP = 4
EVERY = 3


@dataclass
class Query:
    """A store that commits, takes snapshots, and remembers all versions.

    A snapshot is taken of every ``every``-th version; the last ``keep`` versions are kept.
    """

    world: World
    newest: ModelVersion = field(default_factory=ModelVersion)
    all: list[ModelVersion] = field(default_factory=list)
    since: list[ChangelogRef] = field(default_factory=list)
    previous: Manifest | None = None
    known: dict[str, SstFile] = field(default_factory=dict)
    keep: int = KEEP
    every: int = EVERY
    first_attempt: int = 0

    def run(self, versions: int, seconds_per_commit: float = 1) -> None:
        """Commit ``versions`` versions; each changes one key."""
        for _ in range(versions):
            number = self.newest.version + 1
            writes = {bytes([number % 7]): b"%d" % number}
            self.newest = self.world.commit(
                self.newest, writes, attempt(self.first_attempt + number)
            )
            self.all.append(self.newest)
            self.since.append(changelog_ref(self.newest))
            self.world.clock.advance(seconds_per_commit)
            if number % self.every == 0:
                self.snapshot()

    def snapshot(self) -> None:
        """Take a snapshot of the newest version."""
        result = self.world.snapshot(
            self.newest,
            changelogs=tuple(self.since),
            previous=self.previous,
            known=self.known,
        )
        assert result.won
        self.previous, self.known, self.since = result.manifest, dict(result.known), []
        self.newest = on_own_snapshot(self.newest)

    @property
    def kept(self) -> KeptVersions:
        """The versions that retention must keep."""
        return KeptVersions(self.newest.version, self.keep, tuple(self.since))

    def purge(self, fault: FaultHook = no_fault) -> PurgeResult:
        """Purge as the writer of the newest manifest does."""
        assert self.previous is not None
        now = self.world.clock.now()
        result = self.world.purge(self.previous, self.kept, now, fault=fault)
        self.previous = result.manifest
        return result

    def sweep(self) -> int:
        """Sweep orphans."""
        assert self.previous is not None
        return len(
            sweep_orphans(self.world.objects, self.previous, self.kept, SweepLimits(GRACE_MS))
        )

    def check(self) -> None:
        """Load every kept version and compare its rows."""
        for version in self.all[-self.keep :]:
            assert version.ref is not None
            found = self.world.load(version.ref.version, version.ref.checkpoint_id)
            assert found == version.content
