"""Empty commits in checkpoint format 2 write nothing, and their versions stay whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.retention import KeptVersions
from cairn.checkpoint.upload import SnapshotResult, SnapshotUploader
from cairn.errors import AccessError, CorruptError, MissingError
from cairn.format import changelog
from cairn.format.header import Base
from cairn.format.manifest import Manifest
from cairn.ids import VersionRef
from cairn.protocol.calls import ChangesRequest, LoadRequest
from cairn.protocol.session_id import SessionId

FAMILY = family(0, multi=False)
KEEP = 3
Ids = list[str | None]


class Stores:
    """Machines over one folder of objects."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rigs: list[Rig] = []

    def fresh(self, checkpoint_format: int = 2, **conf: int) -> Rig:
        """Return a store on another machine, at version 0."""
        rig = Rig(
            self.folder / f"local{len(self.rigs)}",
            str(self.folder / "objects"),
            checkpoint_format,
            {"minDeltasForSnapshot": 2, "minBatchesToRetain": KEEP, "orphanGraceMs": 0} | conf,
        )
        self.rigs.append(rig)
        rig.load(0, None)
        return rig

    def names(self, kind: str = "changelog") -> list[str]:
        """Return the versions that have an object."""
        names = (path.stem.split("_")[0] for path in (self.folder / "objects" / kind).glob("*"))
        return sorted(names, key=lambda name: int(name, 16))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Return machines that are ended afterwards."""
    stores = Stores(tmp_path)
    yield stores
    for rig in stores.rigs:
        rig.crash()


def commit(rig: Rig, ids: Ids, rows: dict[bytes, bytes] | None = None, **more: Any) -> str:  # noqa: ANN401
    """Commit a version with ``rows`` on the newest one."""
    if rows:
        rig.write([(1, 0, key, value, 0) for key, value in rows.items()])
    version = len(ids)
    answer = rig.commit(version, ids[-1], [FAMILY], **more)
    ids.append(answer["checkpoint_id"])
    rig.load(version, ids[-1])
    return str(ids[-1])


def rows_at(rig: Rig, ids: Ids, version: int) -> dict[bytes, bytes]:
    """Load a version and return its rows."""
    answer = rig.load(version, ids[version])
    found = rig.contents(0, version)
    assert (answer["version"], answer["checkpoint_id"]) == (version, ids[version])
    assert answer["counts"] == {"0": len(found)}
    return found


def test_an_empty_commit_writes_nothing(stores: Stores) -> None:
    """800 idle stores with a batch per second would be two billion PUTs per month."""
    rig = stores.fresh()
    ids: Ids = [None]
    first = commit(rig, ids, {b"a": b"1"})
    puts = rig.state.checkpoint.objects.request_counts()

    for _ in range(5):
        commit(rig, ids)

    assert rig.state.checkpoint.objects.request_counts() == puts
    assert ids[2:] == [f"={version}@1_{first}" for version in range(2, 7)]
    assert stores.names() == ["1"]
    assert rows_at(stores.fresh(), ids, 6) == {b"a": b"1"}


def test_writes_after_empty_commits_load(stores: Stores) -> None:
    """Their lineage leaves out the versions without an object."""
    rig = stores.fresh()
    ids: Ids = [None]
    for number in range(12):
        commit(rig, ids, {b"%d" % number: b"x"} if number % 4 == 0 else None)

    assert stores.names() == ["1", "5", "9"]
    for machine in (rig, stores.fresh()):
        for version in (12, 7, 1, 8, 9, 10, 4, 5):
            expected = {b"%d" % number: b"x" for number in range(0, version, 4)}
            assert rows_at(machine, ids, version) == expected


def test_the_first_version_has_an_object(stores: Stores) -> None:
    """No earlier version has its content: version 0 has no object, and no families."""
    rig = stores.fresh()
    ids: Ids = [None]

    commit(rig, ids)

    assert stores.names() == ["1"]
    assert rows_at(stores.fresh(), ids, 1) == {}


def test_the_first_version_after_a_store_loaded_empty_has_an_object(stores: Stores) -> None:
    """The object of the version before has other content."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"old": b"1"})
    rig.instance.load(LoadRequest(1, rig.next_session(), 1, ids[-1], load_empty=True))
    answer = rig.commit(2, None, [FAMILY])

    assert str(answer["checkpoint_id"]).startswith("u")
    ids.append(answer["checkpoint_id"])
    assert rows_at(stores.fresh(), ids, 2) == {}


def test_a_new_family_or_a_requested_snapshot_needs_an_object(stores: Stores) -> None:
    """A version with another schema is another version; Spark finds a snapshot by its version."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})

    commit(rig, ids, snapshot=True)
    answer = rig.commit(3, ids[-1], [FAMILY, family(1, multi=False)])

    assert stores.names() == ["1", "2", "3"]
    assert stores.names("snapshot") == ["2"]
    assert answer["counts"] == {"0": 1, "1": 0}


def test_in_format_1_every_version_has_an_object(stores: Stores) -> None:
    """Spark names no ids there: a version is found by its number alone."""
    rig = stores.fresh(checkpoint_format=1)
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})

    commit(rig, ids)
    commit(rig, ids)

    assert stores.names() == ["1", "2", "3"]
    assert rows_at(stores.fresh(checkpoint_format=1), ids, 3) == {b"a": b"1"}


def idle(rig: Rig, ids: Ids, count: int) -> None:
    """Commit empty versions, with maintenance as Spark runs it."""
    for _ in range(count):
        commit(rig, ids)
        rig.maintain()


def sweep(rig: Rig) -> None:
    """Delete orphans now, as once a day."""
    manifest, version = rig.state.chain.manifest, rig.state.version
    assert manifest is not None
    assert version is not None
    version = rig.state.chain.rebased(version)
    kept = KeptVersions(version.version, KEEP, rig.state.chain.changelogs(version.lineage))
    sweep_orphans(rig.state.checkpoint.objects, manifest, kept, SweepLimits(-1))


def test_a_store_idle_for_longer_than_retention_loads(stores: Stores) -> None:
    """The real version leaves the window, and every kept version needs its changelog."""
    rig = stores.fresh()
    ids: Ids = [None]
    for number in range(7):
        commit(rig, ids, {b"%d" % number: b"x"})
        rig.maintain()

    idle(rig, ids, 5 * KEEP)
    sweep(rig)

    assert stores.names()[-1] == "7"
    for version in range(len(ids) - KEEP, len(ids)):
        assert len(rows_at(stores.fresh(), ids, version)) == 7


def test_activity_after_a_long_idle_time_keeps_what_the_window_needs(stores: Stores) -> None:
    """The oldest kept version is an empty commit of a version far below the window."""
    rig = stores.fresh()
    ids: Ids = [None]
    expected: list[int] = [0]
    keys = 0
    for activity in (4, 0, 9, 2, 1, 0, 6, 3):
        for _ in range(activity):
            keys += 1
            commit(rig, ids, {b"%d" % keys: b"x"})
            expected.append(keys)
            rig.maintain()
        idle(rig, ids, activity + 1)
        expected += [keys] * (activity + 1)
        sweep(rig)
        for version in range(max(1, len(ids) - KEEP), len(ids)):
            assert len(rows_at(stores.fresh(), ids, version)) == expected[version]

    assert len(stores.names("snapshot")) <= KEEP + 1
    assert int(stores.names()[0]) > 20


def test_a_restart_from_an_empty_commit_continues_retention(stores: Stores) -> None:
    """The next executor knows the manifest's chain and the lineage only."""
    rig = stores.fresh()
    ids: Ids = [None]
    expected: list[dict[bytes, bytes]] = [{}]

    def commit_one(key: bytes) -> None:
        commit(rig, ids, {key: b"x"})
        expected.append(expected[-1] | {key: b"x"})

    def stay_idle(count: int) -> None:
        idle(rig, ids, count)
        expected.extend(expected[-1:] * count)

    for number in range(5):
        commit_one(b"%d" % number)
        rig.maintain()
    stay_idle(2 * KEEP)
    for round_ in range(4):
        rig = stores.fresh()
        rig.load(len(ids) - 1, ids[-1])
        stay_idle(KEEP + 1)
        for number in range(2):
            commit_one(b"%d-%d" % (round_, number))
        rig.maintain()
        stay_idle(round_)
        for version in range(len(ids) - KEEP, len(ids)):
            assert rows_at(stores.fresh(), ids, version) == expected[version]

    assert len(expected[-1]) == 5 + 4 * 2
    assert len(stores.names("snapshot")) <= KEEP + 1
    assert "1" not in stores.names()


def test_the_snapshot_of_an_empty_commit_is_that_of_its_real_version(stores: Stores) -> None:
    """It is found by the version alone, and by the id in Spark's commit log."""
    rig = stores.fresh(minBatchesToRetain=100)
    ids: Ids = [None]
    for number in range(3):
        commit(rig, ids, {b"%d" % number: b"x"})
    commit(rig, ids)
    commit(rig, ids)
    assert rig.maintain()["snapshot_version"] == 5
    for number in range(3, 6):
        commit(rig, ids, {b"%d" % number: b"x"})
    commit(rig, ids)

    assert stores.names("snapshot") == ["3"]
    reader = stores.fresh()
    for end in (8, 9):
        for snapshot in (3, 4, 5):
            for id_ in (None, ids[snapshot]):
                answer = reader.load_snapshot(end, ids[end], snapshot, id_)
                assert answer["snapshot_version"] == 3
                assert answer["changelogs_replayed"] == 3
                assert len(reader.contents(0, end)) == 6
    # A version of the snapshot itself, and empty commits on it, need no changelog at all.
    assert reader.load_snapshot(5, ids[5], 4, ids[4])["changelogs_replayed"] == 0
    assert len(reader.contents(0, 5)) == 3
    with pytest.raises(MissingError):
        reader.load_snapshot(9, ids[9], 5, f"=5@2_{ids[2]}")


def test_an_idle_store_with_a_snapshot_does_not_lag(stores: Stores) -> None:
    """Spark requests a snapshot in every batch of a store whose newest one is reported as old."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"1": b"x"})
    before = rig.maintain()["snapshot_version"]
    commit(rig, ids, snapshot=True)

    reported = []
    for _ in range(3):
        commit(rig, ids)
        reported.append(rig.maintain()["snapshot_version"])
    commit(rig, ids, {b"2": b"x"})

    assert (before, reported) == (0, [3, 4, 5])
    assert rig.maintain()["snapshot_version"] == 2
    assert stores.names("snapshot") == ["2"]


def idle_with_snapshot(stores: Stores) -> tuple[Rig, Ids]:
    """Commit three versions, store a snapshot, and commit two without writes."""
    rig = stores.fresh()
    ids: Ids = [None]
    for number in range(3):
        commit(rig, ids, {b"%d" % number: b"x"})
    rig.maintain()
    idle(rig, ids, 2)
    return rig, ids


def test_a_restart_of_an_idle_store_uploads_no_second_snapshot(stores: Stores) -> None:
    """Its changelog names an older base: 800 idle stores would upload all of their state again."""
    _, ids = idle_with_snapshot(stores)
    objects = stores.names("sst")

    other = stores.fresh()
    other.load(5, ids[5])
    answer = other.maintain()
    for number in range(3, 6):
        commit(other, ids, {b"%d" % number: b"x"})
    other.maintain()

    assert (answer["uploaded_files"], answer["snapshot_version"]) == (0, 5)
    assert len(stores.names("snapshot")) == 2
    assert set(objects) <= set(stores.names("sst"))
    assert len(rows_at(stores.fresh(), ids, 8)) == 6


def test_a_restarted_idle_store_does_not_use_a_snapshot_without_its_files(stores: Stores) -> None:
    """A sweep deleted them, and the writer could not delete its manifest."""
    rig, ids = idle_with_snapshot(stores)
    objects = rig.state.checkpoint.objects
    objects.delete([info.key for info in objects.list("sst/")])

    other = stores.fresh()
    other.load(5, ids[5])
    before = other.maintain()
    commit(other, ids, {b"3": b"x"})
    after = other.maintain()

    assert (before["snapshot_version"], after["snapshot_version"]) == (0, 6)
    assert other.state.checkpoint.read(6, ids[6]).header.base.ref is None
    assert len(rows_at(stores.fresh(), ids, 6)) == 4


def test_a_restarted_idle_store_may_not_list_the_bucket(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 denies access to an absent object then: it may be the snapshot of the idle version."""
    ids: Ids = [None]
    rig = stores.fresh()
    for number in range(3):
        commit(rig, ids, {b"%d" % number: b"x"})
    for _ in range(2):
        commit(rig, ids)
    other = stores.fresh()
    other.load(5, ids[5])
    recovery = other.state.checkpoint.recovery

    def denied(ref: VersionRef) -> Manifest:
        raise AccessError("the policy denies it", object_name=str(ref))

    monkeypatch.setattr(recovery, "fetch_manifest", denied)

    assert other.maintain()["snapshot_version"] == 5


def test_the_change_feed_leaves_out_empty_commits(stores: Stores) -> None:
    """They have no changes; also if the feed begins or ends with them, after retention has run."""
    rig = stores.fresh()
    ids: Ids = [None]
    for number in range(4):
        commit(rig, ids, {b"%d" % number: b"x"})
        rig.maintain()
    idle(rig, ids, 2 * KEEP)
    commit(rig, ids, {b"later": b"x"})
    idle(rig, ids, 1)
    newest = len(ids) - 1

    def changes(start: int, end: int) -> list[tuple[int, str]]:
        return rig.instance.changes.versions(ChangesRequest(1, start, end, ids[end])).versions

    later = (newest - 1, str(ids[newest - 1]))
    assert changes(newest, newest) == []
    assert changes(newest - 1, newest) == [later]
    assert changes(newest - KEEP + 1, newest) == [later]
    assert changes(newest - 2, newest - 2) == []
    assert changes(4, newest) == [(4, str(ids[4])), later]
    page, more = rig.instance.changes.page(later[0], later[1], 0, 100)
    assert page is not None
    assert (page.num_rows, more) == (1, False)


def test_a_zombie_s_empty_commit_does_not_hide_the_winner_s_rows(stores: Stores) -> None:
    """Both made version 3; the zombie's database is at an empty one, and is reused after."""
    zombie = stores.fresh()
    ids: Ids = [None]
    commit(zombie, ids, {b"a": b"1"})
    commit(zombie, ids, {b"b": b"1"})
    winner_ids = list(ids)
    commit(zombie, ids)

    winner = stores.fresh()
    winner.load(2, winner_ids[2])
    commit(winner, winner_ids, {b"won": b"1"})
    commit(winner, winner_ids)
    commit(winner, winner_ids, {b"next": b"1"})

    for version in (3, 4, 5):
        zombie.load(2, ids[2])
        zombie.load(3, ids[3])
        rows = rows_at(zombie, winner_ids, version)
        assert (b"won" in rows, b"next" in rows) == (True, version == 5)
    zombie.maintain()
    assert len(rows_at(stores.fresh(), winner_ids, 5)) == 4


def test_a_winner_s_empty_commit_is_not_a_zombie_s_version(stores: Stores) -> None:
    """The zombie wrote an object for the version that Spark records as empty."""
    zombie = stores.fresh()
    ids: Ids = [None]
    commit(zombie, ids, {b"a": b"1"})
    winner_ids = list(ids)
    commit(zombie, ids, {b"zombie": b"1"})
    winner = stores.fresh()
    winner.load(1, winner_ids[1])

    commit(winner, winner_ids)
    commit(winner, winner_ids, {b"b": b"1"})

    for machine in (zombie, stores.fresh()):
        assert rows_at(machine, winner_ids, 2) == {b"a": b"1"}
        assert rows_at(machine, winner_ids, 3) == {b"a": b"1", b"b": b"1"}


def test_a_batch_that_runs_again_after_an_empty_commit(stores: Stores) -> None:
    """The database is at the empty version, whose batch Spark did not commit."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})
    commit(rig, ids)
    commit(rig, ids)
    del ids[3]

    rig.load(2, ids[2])
    commit(rig, ids, {b"b": b"1"})

    assert stores.names() == ["1", "3"]
    for machine in (rig, stores.fresh()):
        assert rows_at(machine, ids, 3) == {b"a": b"1", b"b": b"1"}


def test_a_later_empty_commit_needs_no_request(stores: Stores) -> None:
    """Another executor had the partition meanwhile, and nothing changed."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})
    other = stores.fresh()
    other.load(1, ids[1])
    for _ in range(3):
        commit(other, ids)
    requests = rig.state.checkpoint.objects.request_counts()

    answer = rig.load(4, ids[4])

    assert answer["source"] == "local"
    assert rig.state.checkpoint.objects.request_counts() == requests
    assert rig.local.applied_through == 4


def test_an_id_that_names_a_missing_version_is_an_error(stores: Stores) -> None:
    """Never an older state: somebody deleted the object."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})
    real = VersionRef.named(1, str(ids[1]))
    commit(rig, ids)
    (stores.folder / "objects" / "changelog" / f"{real}.arrow").unlink()

    with pytest.raises(MissingError, match="version 1"):
        stores.fresh().load(2, ids[2])


@pytest.mark.parametrize("issued_for", [1, 2, 3, 4, 5, 6])
def test_an_id_leads_to_no_other_version(stores: Stores, issued_for: int) -> None:
    """Spark passes an older batch's ids on if entries of its commit log are gone.

    A query that went on from them would lack the rows of the batches between. Version 4 and 5 are
    empty commits of 3. Refused before anything changes: the session in progress commits.
    """
    rig = stores.fresh()
    ids: Ids = [None]
    for number in range(3):
        commit(rig, ids, {b"%d" % number: b"x"})
    commit(rig, ids)
    commit(rig, ids)
    commit(rig, ids, {b"6": b"x"})
    id_ = ids[issued_for]
    version = rig.state.version

    for machine in (rig, stores.fresh()):
        before = machine.state.version
        for wanted in set(range(1, 10)) - {issued_for}:
            requests: list[Callable[[], object]] = [
                partial(machine.load, wanted, id_),
                partial(machine.load_snapshot, wanted, id_, 1, None),
                partial(
                    machine.instance.changes.versions,
                    ChangesRequest(1, min(wanted, 2), wanted, id_),
                ),
            ]
            if wanted < 6:
                requests.append(partial(machine.load_snapshot, 6, ids[6], wanted, id_))
            for request in requests:
                with pytest.raises(MissingError):
                    request()
        assert machine.state.version == before
    assert rig.state.version == version
    assert len(rows_at(rig, ids, 6)) == 4


@pytest.mark.parametrize("checkpoint_format", [1, 2])
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lineage_that_lost_an_entry_is_not_one_with_an_empty_commit(
    stores: Stores, checkpoint_format: int, lost: int
) -> None:
    """All checksums hold, whoever wrote it: each changelog says on which one it was written."""
    rig = stores.fresh(checkpoint_format)
    ids: Ids = [None]
    for number in range(5):
        commit(rig, ids, {b"%d" % number: b"x"})
    newest = rig.state.checkpoint.read(5, ids[5])
    header = newest.header
    if lost == 1:
        # The first entry: the base is then the empty state of a later version.
        changed = replace(header, base=Base(1, None), lineage=header.lineage[1:])
    else:
        changed = replace(
            header, lineage=tuple(ref for ref in header.lineage if ref.version != lost)
        )
    data = changelog.encode(changed, newest.table.to_batches())
    (path,) = (stores.folder / "objects" / "changelog").glob("5*")
    path.write_bytes(data)

    with pytest.raises(CorruptError, match="was not written on") as failure:
        stores.fresh(checkpoint_format).load(5, ids[5])

    assert "changelog/" in str(failure.value.object_name)
    assert len(rows_at(stores.fresh(checkpoint_format), ids, 4)) == 4


def test_a_refused_id_names_the_next_step(stores: Stores) -> None:
    """Whoever copied the checkpoint must learn what it lacks."""
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"a": b"1"})
    commit(rig, ids)
    requests = rig.state.checkpoint.objects.request_counts()
    rig.write([(1, 0, b"b", b"1", 0)])

    with pytest.raises(MissingError) as refused:
        rig.instance.load(LoadRequest(1, SessionId(1, rig.number + 1), 4, ids[2]))

    error = refused.value.to_dict()
    assert (error["code"], error["store"], error["version"]) == ("CAIRN_MISSING", "0/3/default", 4)
    assert "issued for version 2" in str(error["message"])
    assert "commits" in str(error["next"])
    assert rig.state.checkpoint.objects.request_counts() == requests
    rig.commit(3, ids[2], [FAMILY])  # the session in progress has not ended


def test_the_base_of_an_empty_commit_is_that_of_its_real_version(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 3 was committed before the snapshot of 2 was complete: its header names no snapshot.

    The empty commits on it know the snapshot. Retention must keep what version 3 names.
    """
    rig = stores.fresh()
    ids: Ids = [None]
    commit(rig, ids, {b"1": b"x"})
    commit(rig, ids, {b"2": b"x"})
    upload = SnapshotUploader.upload

    def upload_late(*arguments: Any, **more: Any) -> SnapshotResult:  # noqa: ANN401
        monkeypatch.undo()
        commit(rig, ids, {b"3": b"x"})
        return upload(*arguments, **more)

    monkeypatch.setattr(SnapshotUploader, "upload", upload_late)
    assert rig.maintain()["snapshot_version"] == 2

    idle(rig, ids, 2 * KEEP)
    sweep(rig)

    assert stores.names() == ["1", "2", "3"]
    assert len(rows_at(stores.fresh(), ids, len(ids) - 1)) == 3
