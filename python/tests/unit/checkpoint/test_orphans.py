"""The sweep: it deletes objects that nothing names, and no object that may be needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from checkpoint_kit import (
    GRACE_MS,
    Crash,
    ModelVersion,
    World,
    attempt,
    changelog_ref,
    commit,
    crash_at,
)
from running_query import Query

from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.orphans import SWEEP_INTERVAL_MS, SweepLimits, next_sweep, sweep_orphans
from cairn.errors import AccessError
from cairn.format import manifest
from cairn.format.names import changelog_name, manifest_name, reader_pin_name
from cairn.format.spark_log import OFFSETS_PREFIX
from cairn.ids import StoreId
from cairn.storage.memory import MemoryStore


def upload_ssts_without_manifest(query: Query) -> None:
    """Crash between the upload of the SSTs and the manifest."""
    with pytest.raises(Crash):
        query.world.snapshot(
            query.newest, changelogs=(), fault=crash_at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST)
        )


def test_sweep_deletes_orphans(query: Query) -> None:
    """SSTs of an upload that failed, and an attempt that lost."""
    query.run(2)
    upload_ssts_without_manifest(query)
    loser = commit(
        query.world.connect(), ModelVersion(), {b"a": b"lost"}, attempt(-1), checkpoint_format=2
    )
    query.run(15)
    query.purge()
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)
    query.world.objects.put("snapshot/notes.txt", b"not of Cairn")

    swept = query.sweep()

    query.check()
    assert swept == 3
    assert loser.ref is not None
    assert changelog_name(loser.ref) not in query.world.names()
    assert "snapshot/notes.txt" in query.world.names()
    assert query.sweep() == 0


def test_sweep_keeps_young_objects(query: Query) -> None:
    """They may belong to an upload that is running."""
    query.run(3)
    upload_ssts_without_manifest(query)

    assert query.sweep() == 0


def test_sweep_of_a_zombie_keeps_the_objects_of_a_newer_writer(query: Query) -> None:
    """The zombie's chain ends at version 6; a newer writer has continued."""
    query.run(6)
    zombie = replace(query)
    query.run(12)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object: the storage's time")

    zombie.sweep()
    zombie.purge()

    query.check()


def begin_anew(query: Query) -> Query:
    """Return the query after Spark's logs were emptied: it begins with batch 0 on the old state."""
    query.world.log(OFFSETS_PREFIX)
    again = Query(query.world)
    again.first_attempt = 1000
    return again


def in_log(query: Query) -> Query:
    """Write the log of offsets as Spark has it."""
    query.world.log(OFFSETS_PREFIX, *range(query.newest.version))
    return query


def test_sweep_deletes_the_versions_of_a_run_whose_logs_were_emptied(query: Query) -> None:
    """They stayed until the new run had as many batches: perhaps for ever."""
    query.run(20)
    query.purge()
    former = set(query.world.names())
    again = begin_anew(query)
    again.run(6)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    again.run(1)
    in_log(again)

    assert again.sweep() > 0
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    again.run(1)
    in_log(again).sweep()  # the SSTs, after the manifests that named them

    again.check()
    left = former & set(query.world.names())
    if query.world.checkpoint_format == 2:
        assert not left
    else:
        # A commit of the new run replaces them, or may be about to.
        assert {name.partition("/")[0] for name in left} == {"changelog"}
        assert all("_" not in name for name in left)


def test_sweep_of_an_executor_that_lags_keeps_the_versions_of_another_one(query: Query) -> None:
    """It has not loaded them; the log of offsets says that batches wrote them."""
    query.run(6)
    lagging = replace(query)
    query.run(8)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object: the storage's time")

    lagging.sweep()  # no log: nothing is known
    in_log(query)
    lagging.sweep()

    query.check()


def test_sweep_keeps_the_version_of_a_batch_that_runs(query: Query) -> None:
    """Spark has planned the batch, and waits for other stores of it."""
    query.run(6)
    again = replace(query)
    query.run(1)
    query.world.log(OFFSETS_PREFIX, 5, 6)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object: the storage's time")

    again.sweep()

    query.check()


def test_sweep_keeps_the_versions_that_a_long_read_has_pinned(query: Query) -> None:
    """The read began before the logs were emptied."""
    query.run(20)
    query.purge()
    again = begin_anew(query)
    again.run(6)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    base = query.newest.base.version
    query.world.objects.put(reader_pin_name("0" * 16, base, 20, 1), b"{}")
    again.run(1)
    in_log(again).sweep()

    newest = query.newest
    assert newest.ref is not None
    assert query.world.load(20, newest.ref.checkpoint_id) == newest.content


class _DeniedLogs(MemoryStore):
    """Objects of a role that may only use the store's own folder."""

    def at(self, url: str) -> MemoryStore:
        raise AccessError("it may not be listed", object_name=url)


def test_sweep_without_the_right_to_read_the_log_deletes_what_it_knows(query: Query) -> None:
    """The rest stays."""
    query.run(20)
    again = begin_anew(query)
    again.run(6)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    again.run(1)
    in_log(again)
    names = set(query.world.names("snapshot/"))
    denied = _DeniedLogs("memory://bucket/state/0/3", query.world.bucket, query.world.clock)
    assert again.previous is not None

    sweep_orphans(denied, again.previous, again.kept, SweepLimits(GRACE_MS))

    assert set(query.world.names("snapshot/")) == names


def test_sweep_keeps_a_plain_name_that_has_another_object_since_the_listing(
    tmp_path: Path,
) -> None:
    """A new run may have begun a checkpoint at the same place, with the same numbers."""
    query = Query(World(tmp_path, 1))
    query.run(1)
    query.world.commit(ModelVersion(), {b"a": b"lost"}, attempt(99, run="another"))
    query.run(16)
    query.purge()
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)
    assert "changelog/1.arrow" in query.world.names()
    assert query.previous is not None

    def begin_anew(point: str) -> None:
        if point == FaultPoint.SWEEP_BEFORE_DELETE:
            query.world.objects.put("changelog/1.arrow", b"of the new run")

    sweep_orphans(
        query.world.objects, query.previous, query.kept, SweepLimits(GRACE_MS), fault=begin_anew
    )
    assert query.world.objects.get("changelog/1.arrow").data == b"of the new run"

    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)
    query.sweep()
    assert "changelog/1.arrow" in query.world.names()  # it is younger than what is kept

    query.run(9)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)
    query.sweep()
    assert "changelog/1.arrow" not in query.world.names()


def test_sweep_keeps_ssts_that_another_writer_will_delete(query: Query) -> None:
    """A third one may be about to share them: their manifest has just been deleted."""
    query.run(6)
    assert query.previous is not None
    third = replace(query, previous=replace(query.previous, retained=()))
    query.run(9)
    query.purge()
    query.run(3)
    garbage = {entry.object_name for entry in query.previous.garbage}
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object: the storage's time")

    third.sweep()

    assert garbage
    assert garbage <= set(query.world.names("sst/"))


def test_sweep_with_an_unreadable_manifest_deletes_no_sst(query: Query) -> None:
    """The SSTs that the manifest names are unknown."""
    query.run(6)
    upload_ssts_without_manifest(query)
    ssts = query.world.names("sst/")
    query.world.objects.put("snapshot/6_u" + "f" * 32 + ".json", b'{"magic":"CAIRN-MANIFEST"')
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)

    query.sweep()

    assert query.world.names("sst/") == ssts


def test_sweep_keeps_what_leads_around_a_damaged_snapshot(query: Query) -> None:
    """Version 7 is kept: its base is gone, and is not in the chain of those who went around it."""
    query.run(3)
    earlier = query.previous
    query.run(5)
    base = query.all[5].ref
    assert base is not None
    query.world.objects.delete([manifest_name(base)])
    query.previous, query.known = earlier, {}
    query.since = [changelog_ref(version) for version in query.all[3:]]
    query.snapshot()
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(2)

    query.purge()
    query.sweep()

    assert query.kept.first == 7
    names = {name.split("_")[0].removesuffix(".arrow") for name in query.world.names()}
    assert names >= {"snapshot/3", "changelog/4", "changelog/5", "changelog/6"}


def test_a_purge_keeps_what_leads_around_a_snapshot_that_is_gone(query: Query) -> None:
    """The next snapshot has found that: its chain must not make the missing one a base."""
    query.run(8)
    base = query.all[5].ref
    assert base is not None
    query.world.objects.delete([manifest_name(base)])
    query.run(2)

    query.purge()

    assert query.kept.first == 7
    names = {name.split("_")[0].removesuffix(".arrow") for name in query.world.names()}
    assert names >= {"snapshot/3", *(f"changelog/{version}" for version in range(4, 9))}
    query.run(6)
    query.purge()
    names = {name.split("_")[0].removesuffix(".arrow") for name in query.world.names()}
    assert not names & {"snapshot/3", "changelog/4", "changelog/8"}
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(3)
    query.purge()
    query.check()
    assert query.sweep() == 0


@pytest.mark.parametrize("over_bytes", [0, 1])
def test_sweep_reads_no_manifest_over_the_limit(query: Query, over_bytes: int) -> None:
    """It would take the worker's memory. Its SSTs are unknown, so no SST is deleted."""
    query.run(6)
    upload_ssts_without_manifest(query)
    ssts = query.world.names("sst/")
    assert query.previous is not None
    data = manifest.encode(query.previous).ljust(manifest.MAX_OBJECT_BYTES + over_bytes)
    query.world.objects.put("snapshot/6_u" + "f" * 32 + ".json", data)
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.run(1)

    query.sweep()

    assert (query.world.names("sst/") == ssts) == bool(over_bytes)


DAY = timedelta(milliseconds=SWEEP_INTERVAL_MS)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_sweeps_are_daily_by_the_manifests_and_spread() -> None:
    """Partitions that start together must not list together; a process may live for a minute."""
    firsts = []
    for partition in range(100):
        store = StoreId(0, partition)
        swept, is_due = next_sweep(0, store, NOW)
        assert not is_due
        hours = [NOW + hour * DAY / 24 for hour in range(25)]
        at = next(time for time in hours if next_sweep(swept, store, time)[1])
        firsts.append(at)
        swept, is_due = next_sweep(swept, store, at)
        assert is_due
        assert next_sweep(swept, store, at + DAY * 0.99) == (swept, False)
        assert next_sweep(swept, store, at + DAY)[1]

    assert max(firsts.count(at) for at in firsts) < 20


def test_the_time_of_a_sweep_is_not_believed_if_it_lies_ahead() -> None:
    """The checkpoint may have been copied from a storage whose clock was wrong by years."""
    store = StoreId(0, 0)
    ahead = int((NOW + 900 * DAY).timestamp() * 1000)

    swept, is_due = next_sweep(ahead, store, NOW)

    assert not is_due
    assert next_sweep(swept, store, NOW + DAY)[1]


def test_no_sweep_is_due_while_the_time_is_not_known() -> None:
    """A snapshot that uploads no file has no time of the storage's clock."""
    assert next_sweep(5, StoreId(0, 0), None) == (5, False)
