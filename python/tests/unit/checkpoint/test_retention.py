"""Retention and clean-up: what a retained version needs is never deleted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoint_kit import (
    GRACE_MS,
    Crash,
    Stand,
    World,
    attempt,
    commit,
    crash_at,
    ref_of,
)
from running_query import KEEP, Query

from cairn.checkpoint import faults
from cairn.checkpoint.purge import CleanupResult, clean_up
from cairn.checkpoint.retention import KeptVersions, plan_retention
from cairn.format.names import changelog_name, manifest_name


def test_kept_versions_load_and_old_objects_go(query: Query) -> None:
    """Versions 14..17 stay; their lowest base is the manifest of 12."""
    query.run(17)

    result = query.clean()

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


def test_ssts_go_when_the_grace_period_has_passed(query: Query) -> None:
    """Until then the chain remembers them, also in the next manifest."""
    query.run(17)
    query.clean()
    waiting = len(query.previous.garbage) if query.previous else 0
    before = len(query.world.names("sst/"))

    query.run(3)
    query.world.clock.advance(GRACE_MS / 1000)
    query.clean()

    query.check()
    assert waiting == 6
    assert len(query.world.names("sst/")) == before + 2 - waiting


def test_few_versions_lose_nothing(query: Query) -> None:
    """There is nothing to delete yet."""
    query.run(KEEP)

    assert query.clean().deleted_objects == 0
    query.check()


def test_newest_but_one_is_always_kept(query: Query) -> None:
    """With one batch to retain, a crash before the batch commit would lose the query."""
    query.run(12)
    assert query.previous is not None

    plan = plan_retention(query.previous, KeptVersions(12, 1, ()), now_ms=10**13, grace_ms=0)

    assert manifest_name(plan.manifests[-1]).startswith("snapshot/6_")
    assert max(ref.version for ref in plan.changelogs) == 9


def test_nothing_is_deleted_while_a_base_is_unknown(query: Query) -> None:
    """A chain that does not reach back to the oldest kept version."""
    query.run(17)
    assert query.previous is not None
    torn = replace(
        query.previous,
        changelogs=(),
        retained=tuple(replace(entry, changelogs=()) for entry in query.previous.retained),
    )

    plan = plan_retention(torn, query.kept, now_ms=10**13, grace_ms=0)

    assert plan.is_empty


def test_version_committed_during_an_upload_keeps_its_older_base(query: Query) -> None:
    """The snapshot of 6 was not complete when 7 was committed upon the base 3."""
    query.run(6)
    one = query.stand
    late = replace(one, base=query.all[3].base, lineage=query.all[5].lineage)
    query.stand, _ = commit(
        query.world.objects,
        late,
        {b"x": b"y"},
        attempt(7),
        checkpoint_format=query.world.checkpoint_format,
    )
    query.all.append(query.stand)
    query.since = [ref_of(query.stand)]

    query.clean()

    query.check()
    assert len(query.world.names("snapshot/")) == 2


@pytest.mark.parametrize(
    "point",
    [
        faults.CLEANUP_BEFORE_MANIFEST,
        faults.CLEANUP_BEFORE_CHANGELOGS,
        faults.CLEANUP_BEFORE_SSTS,
        faults.CLEANUP_AFTER,
    ],
)
def test_crash_inside_a_clean_up_is_finished_by_the_next(query: Query, point: str) -> None:
    """Every kept version loads at once, and nothing is forgotten."""
    query.run(12)
    query.clean()
    query.world.clock.advance(GRACE_MS / 1000)
    query.run(5)

    with pytest.raises(Crash):
        query.clean(crash_at(point))

    query.check()
    # Another machine takes over: it knows what the newest manifest says.
    base = query.stand.base.ref
    assert base is not None
    query.previous = query.world.recovery().fetch_manifest(base)
    query.known = {}
    query.clean()
    query.check()
    assert {name.split("_")[0] for name in query.world.names("snapshot/")} == {
        "snapshot/12",
        "snapshot/15",
    }
    query.run(3)
    query.world.clock.advance(GRACE_MS / 1000)
    query.clean()
    query.check()
    named = {name for entry in query.previous.retained for name in entry.objects}
    named |= {file.object_name for file in query.previous.files}
    waiting = {entry.object_name for entry in query.previous.garbage}
    assert set(query.world.names("sst/")) == named | waiting


def test_both_names_of_format_1_go(tmp_path: Path) -> None:
    """A replaced attempt's copy goes with its version if the lineage named it."""
    query = Query(World(tmp_path, 1))
    query.run(1)
    one = query.stand
    commit(query.world.objects, Stand(), {b"a": b"other"}, attempt(99), checkpoint_format=1)
    query.run(16)

    query.clean()

    query.check()
    assert one.ref is not None
    assert changelog_name(one.ref) not in query.world.names("changelog/")
    assert "changelog/1.arrow" not in query.world.names("changelog/")


def test_clean_up_asks_the_storage_for_its_time(query: Query) -> None:
    """A snapshot that uploaded nothing has no answer to take it from."""
    query.run(17)
    assert query.previous is not None
    before = query.world.objects.request_counts()

    clean_up(
        query.world.objects,
        query.previous,
        query.kept,
        grace_ms=GRACE_MS,
        checkpoint_format=query.world.checkpoint_format,
        store_time=None,
    )

    after = query.world.objects.request_counts()
    assert after["ListObjectsV2"] - before.get("ListObjectsV2", 0) == 1
    query.check()


def test_clean_up_with_nothing_to_do_asks_nothing(query: Query) -> None:
    """It runs for each store in every maintenance interval: a request each would add up."""
    query.run(17)
    query.clean()
    assert query.previous is not None
    assert query.previous.garbage
    before = query.world.objects.request_counts()

    result = clean_up(
        query.world.objects,
        query.previous,
        query.kept,
        grace_ms=GRACE_MS,
        checkpoint_format=query.world.checkpoint_format,
        store_time=None,
        is_garbage_young=True,
    )

    assert query.world.objects.request_counts() == before
    assert result == CleanupResult(query.previous, 0)


def test_writer_whose_manifest_is_gone_deletes_nothing(query: Query) -> None:
    """Another writer is far ahead; what this one knows is no ground to delete on."""
    query.run(17)
    assert query.previous is not None
    query.world.objects.delete([manifest_name(query.previous.ref)])
    before = query.world.names()

    result = clean_up(
        query.world.objects,
        query.previous,
        query.kept,
        grace_ms=0,
        checkpoint_format=query.world.checkpoint_format,
        store_time=None,
    )

    assert result.deleted_objects == 0
    assert query.world.names() == before
