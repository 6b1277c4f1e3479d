"""Retention and purge: objects that a kept version needs are never deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_kit import (
    GRACE_MS,
    Crash,
    ModelVersion,
    World,
    attempt,
    changelog_ref,
    crash_at,
)
from running_query import KEEP, Query

from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.purge import PurgeResult
from cairn.checkpoint.retention import KeptVersions, plan_retention
from cairn.format.names import changelog_name, manifest_name


def test_kept_versions_load_and_old_objects_are_deleted(query: Query) -> None:
    """Versions 14 to 17 stay; their lowest base is the manifest of 12."""
    query.run(17)

    result = query.purge()

    query.check()
    names = [name.split("_")[0].removesuffix(".arrow") for name in query.world.names()]
    assert [name for name in names if name.startswith("snapshot/")] == [
        "snapshot/12",
        "snapshot/15",
    ]
    assert [name for name in names if name.startswith("changelog/")] == [
        f"changelog/{version}" for version in range(13, 18)
    ]
    assert result.deleted_objects == 3 + 12


def test_ssts_are_deleted_after_the_grace_period(query: Query) -> None:
    """Until then the chain names them, also in the next manifest."""
    query.run(17)
    query.purge()
    waiting = len(query.previous.garbage) if query.previous else 0
    before = len(query.world.names("sst/"))

    query.run(3)
    query.world.clock.advance(GRACE_MS / 1000)
    query.purge()

    query.check()
    assert waiting == 6
    assert len(query.world.names("sst/")) == before + 2 - waiting


def test_few_versions_are_all_kept(query: Query) -> None:
    """Nothing can be deleted yet."""
    query.run(KEEP)

    assert query.purge().deleted_objects == 0
    query.check()


def test_the_version_before_the_newest_is_always_kept(query: Query) -> None:
    """With one batch to retain, a crash before the batch commit would lose the query."""
    query.run(12)
    assert query.previous is not None

    plan = plan_retention(query.previous, KeptVersions(12, 1, ()), now_ms=10**13, grace_ms=0)

    assert manifest_name(plan.manifests[-1]).startswith("snapshot/6_")
    assert max(ref.version for ref in plan.changelogs) == 9


def test_nothing_is_deleted_while_a_base_is_unknown(query: Query) -> None:
    """The chain does not reach back to the oldest kept version."""
    query.run(17)
    assert query.previous is not None
    short = replace(
        query.previous,
        changelogs=(),
        retained=tuple(replace(entry, changelogs=()) for entry in query.previous.retained),
    )

    plan = plan_retention(short, query.kept, now_ms=10**13, grace_ms=0)

    assert plan.object_count == 0


def test_version_committed_during_an_upload_keeps_its_older_base(query: Query) -> None:
    """The snapshot of 6 was not complete when 7 was committed on the base 3."""
    query.run(6)
    late = replace(query.newest, base=query.all[3].base, lineage=query.all[5].lineage)
    query.newest = query.world.commit(late, {b"x": b"y"}, attempt(7))
    query.all.append(query.newest)
    query.since = [changelog_ref(query.newest)]

    query.purge()

    query.check()
    assert len(query.world.names("snapshot/")) == 2


@pytest.mark.parametrize(
    "point", [point for point in FaultPoint if point.startswith("purge.")], ids=str
)
def test_the_next_purge_completes_one_that_crashed(query: Query, point: FaultPoint) -> None:
    """Every kept version loads after the crash, and every object is deleted in the end."""
    query.run(12)
    query.purge()
    query.world.clock.advance(GRACE_MS / 1000)
    query.run(5)

    with pytest.raises(Crash):
        query.purge(crash_at(point))

    query.check()
    # Another machine takes over and knows only the newest manifest.
    base = query.newest.base.ref
    assert base is not None
    query.previous = query.world.recovery().fetch_manifest(base)
    query.known = {}
    query.purge()
    query.check()
    assert {name.split("_")[0] for name in query.world.names("snapshot/")} == {
        "snapshot/12",
        "snapshot/15",
    }
    query.run(3)
    query.world.clock.advance(GRACE_MS / 1000)
    query.purge()
    query.check()
    named = {name for entry in query.previous.retained for name in entry.objects}
    named |= {file.object_name for file in query.previous.files}
    waiting = {entry.object_name for entry in query.previous.garbage}
    assert set(query.world.names("sst/")) == named | waiting


def test_both_names_of_format_1_are_deleted(tmp_path: Path) -> None:
    """The copy of a replaced attempt is deleted with its version if the lineage named it."""
    query = Query(World(tmp_path, 1))
    query.run(1)
    one = query.newest
    query.world.commit(ModelVersion(), {b"a": b"other"}, attempt(99))
    query.run(16)

    query.purge()

    query.check()
    assert one.ref is not None
    assert changelog_name(one.ref) not in query.world.names("changelog/")
    assert "changelog/1.arrow" not in query.world.names("changelog/")


def test_purge_gets_the_time_from_the_storage(query: Query) -> None:
    """A snapshot that uploaded nothing has no time of the storage."""
    query.run(17)
    assert query.previous is not None
    before = query.world.objects.request_counts()

    query.world.purge(query.previous, query.kept, None)

    after = query.world.objects.request_counts()
    of_pins = 1
    assert after["ListObjectsV2"] - before.get("ListObjectsV2", 0) == of_pins + 1
    query.check()


def test_the_grace_period_begins_when_the_manifest_is_deleted(query: Query) -> None:
    """An idle query's newest manifest may be hours old: its time would be no grace at all."""
    query.run(9)
    assert query.previous is not None
    query.world.clock.advance(3 * GRACE_MS / 1000)
    query.run(1)
    age_ms = 3 * GRACE_MS + 1000

    result = query.world.purge(query.previous, query.kept, None, age_ms=age_ms)

    assert result.manifest.garbage
    now_ms = query.world.clock.now().timestamp() * 1000
    for entry in result.manifest.garbage:
        assert now_ms - entry.dropped_at_ms < GRACE_MS / 10


def test_ssts_that_another_writer_s_snapshot_names_stay(query: Query) -> None:
    """An executor that was at an older version has stored a newer snapshot with the same base.

    It may go on from there, and a reader may have pinned that snapshot.
    """
    query.run(3)
    query.newest = query.world.commit(query.newest, {b"\2": b"4"}, attempt(4))
    query.all.append(query.newest)
    query.since.append(changelog_ref(query.newest))
    other = query.world.snapshot(
        query.newest,
        changelogs=tuple(query.since),
        previous=query.previous,
        known=query.known,
        instance="another",
    )
    assert other.reused_files == 1

    for _ in range(4):
        query.run(6)
        query.world.clock.advance(GRACE_MS / 1000)
        query.purge()

    named = {file.object_name for file in other.manifest.files}
    assert named <= set(query.world.names("sst/"))
    assert query.previous is not None
    assert not any(entry.ref.version < 10 for entry in query.previous.retained)
    query.check()

    query.world.objects.delete([manifest_name(other.manifest.ref)])
    query.run(6)
    query.purge()

    shared = named & {entry.object_name for entry in query.previous.garbage}
    assert not shared & set(query.world.names("sst/"))
    assert len(named & set(query.world.names("sst/"))) == 1  # the other one is an orphan


def test_while_another_manifest_cannot_be_read_no_sst_is_deleted(query: Query) -> None:
    """It may name any of them."""
    query.run(3)
    query.world.objects.put(f"snapshot/4_u{'0' * 32}.json", b"not a manifest")

    for _ in range(4):
        query.run(6)
        query.world.clock.advance(GRACE_MS / 1000)
        before = query.world.names("sst/")
        query.purge()
        assert query.world.names("sst/") == before

    query.check()


def test_purge_without_work_sends_no_request(query: Query) -> None:
    """It runs for each store in every maintenance interval: one request each would be many."""
    query.run(17)
    query.purge()
    assert query.previous is not None
    assert query.previous.garbage
    before = query.world.objects.request_counts()

    result = query.world.purge(query.previous, query.kept, None, is_garbage_young=True)

    assert query.world.objects.request_counts() == before
    assert result == PurgeResult(query.previous, 0)


def test_writer_whose_manifest_is_missing_deletes_nothing(query: Query) -> None:
    """A later writer has purged it; this writer's knowledge is too old to delete by."""
    query.run(17)
    assert query.previous is not None
    query.world.objects.delete([manifest_name(query.previous.ref)])
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    before = query.world.names()

    result = query.world.purge(query.previous, query.kept, None)

    assert result.deleted_objects == 0
    assert query.world.names() == before


def test_the_real_version_of_the_oldest_kept_one_stays(query: Query) -> None:
    """Versions 14 to 17 are kept, as empty commits of 13; its base is the manifest of 12."""
    query.run(13)
    assert query.previous is not None

    plan = plan_retention(
        query.previous, KeptVersions(17, KEEP, tuple(query.since)), now_ms=10**13, grace_ms=0
    )

    assert [ref.version for ref in plan.changelogs] == list(range(1, 13))
    assert [ref.version for ref in plan.manifests] == [3, 6, 9]


def test_a_real_version_with_a_snapshot_keeps_its_changelog(query: Query) -> None:
    """A load of an empty commit of 12 reads changelog 12 first, however old it is."""
    query.run(12)
    assert query.previous is not None

    plan = plan_retention(query.previous, KeptVersions(999, KEEP, ()), now_ms=10**13, grace_ms=0)

    assert [ref.version for ref in plan.changelogs] == list(range(1, 10))
    assert plan.remaining.changelogs[-1].ref.version == 12
    assert (
        plan_retention(
            plan.remaining, KeptVersions(9999, KEEP, ()), now_ms=10**13, grace_ms=0
        ).remaining
        == plan.remaining
    )


def test_an_empty_commit_below_the_chain_deletes_nothing(query: Query) -> None:
    """The real version of the oldest kept one is not known."""
    query.run(17)
    assert query.previous is not None
    short = replace(query.previous, changelogs=query.previous.changelogs[1:], retained=())

    plan = plan_retention(short, KeptVersions(16, KEEP, ()), now_ms=10**13, grace_ms=0)

    assert plan.object_count == 0
