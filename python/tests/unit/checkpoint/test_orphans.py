"""The sweep: it takes what nobody names, and nothing that anybody may still want."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from checkpoint_kit import (
    GRACE_MS,
    Crash,
    Stand,
    attempt,
    commit,
    crash_at,
)
from running_query import Query

from cairn.checkpoint import faults
from cairn.checkpoint.orphans import SWEEP_INTERVAL_MS, SweepSchedule
from cairn.clock import FakeClock
from cairn.format.names import changelog_name


def test_sweep_takes_what_nobody_names(query: Query) -> None:
    """SSTs of an upload that failed, attempts that lost, manifests of nobody."""
    query.run(2)
    with pytest.raises(Crash):
        query.world.snapshot(
            query.stand,
            changelogs=(),
            fault=crash_at(faults.SNAPSHOT_BEFORE_MANIFEST),
        )
    loser, _ = commit(
        query.world.connect(), Stand(), {b"a": b"lost"}, attempt(-1), checkpoint_format=2
    )
    query.run(15)
    query.clean()
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)
    query.world.objects.put("snapshot/notes.txt", b"somebody's")

    swept = query.sweep()

    query.check()
    assert swept == 3
    assert loser.ref is not None
    assert changelog_name(loser.ref) not in query.world.names()
    assert "snapshot/notes.txt" in query.world.names()
    assert query.sweep() == 0


def test_sweep_spares_what_is_young(query: Query) -> None:
    """An upload that is under way."""
    query.run(3)
    with pytest.raises(Crash):
        query.world.snapshot(
            query.stand, changelogs=(), fault=crash_at(faults.SNAPSHOT_BEFORE_MANIFEST)
        )

    assert query.sweep() == 0


def test_zombie_sweep_spares_a_newer_writers_objects(query: Query) -> None:
    """The zombie's chain ends at version 6; the truth went on."""
    query.run(6)
    zombie = replace(query)
    query.run(12)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object, so that time is known")

    zombie.sweep()
    zombie.clean()

    query.check()


def test_sweep_with_an_unreadable_manifest_takes_no_sst(query: Query) -> None:
    """Nobody knows what it names."""
    query.run(6)
    with pytest.raises(Crash):
        query.world.snapshot(
            query.stand, changelogs=(), fault=crash_at(faults.SNAPSHOT_BEFORE_MANIFEST)
        )
    ssts = query.world.names("sst/")
    query.world.objects.put("snapshot/6_u" + "f" * 32 + ".json", b'{"magic":"CAIRN-MANIFEST"')
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)

    query.sweep()

    assert query.world.names("sst/") == ssts


class _Chance:
    def token(self, byte_count: int) -> str:
        return "0" * 2 * byte_count

    def jitter(self) -> float:
        return 0.5


def test_sweeps_are_daily_and_spread() -> None:
    """Partitions that start together do not list together."""
    clock = FakeClock()
    schedule = SweepSchedule(clock, _Chance())
    day = timedelta(milliseconds=SWEEP_INTERVAL_MS).total_seconds()

    clock.advance(day * 0.49)
    assert not schedule.is_due()
    clock.advance(day * 0.02)
    assert schedule.is_due()
    assert not schedule.is_due()
    clock.advance(day)
    assert schedule.is_due()
