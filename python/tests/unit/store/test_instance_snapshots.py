"""Snapshots and purges of an instance, concurrent with loads, commits and its close."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint.pending_upload import PendingUpload
from cairn.checkpoint.upload import SnapshotResult, SnapshotUploader
from cairn.errors import (
    ConfigError,
    CorruptError,
    CredentialsExpiredError,
    DiskFullError,
    MissingError,
    UnknownInstanceError,
)
from cairn.ids import VersionRef
from cairn.store.front.instance import ProviderInstance
from cairn.store.rows.deltas import Delta
from cairn.store.snapshot import snapshot

FAMILY = family(0, multi=False)


def fill(rig: Rig, versions: int, ids: list[str | None] | None = None) -> list[str | None]:
    """Commit more versions and return all ids by version."""
    ids = ids or [None]
    for _ in range(versions):
        number = len(ids)
        rig.write([(1, 0, b"%d" % number, b"v" * 100, 2)])
        ids.append(rig.commit(number, ids[-1], [FAMILY])["checkpoint_id"])
        rig.load(number, ids[-1])
    return ids


def maintain(rig: Rig) -> dict[str, Any]:
    return rig.maintain()


def lists(rig: Rig) -> int:
    return rig.state.checkpoint.objects.request_counts().get("ListObjectsV2", 0)


def test_maintenance_without_work_lists_nothing(rig: Rig) -> None:
    """Hundreds of stores are maintained each minute: LIST is for the daily sweep."""
    ids = fill(rig, 9)
    maintain(rig)
    for _ in range(3):
        ids = fill(rig, 3, ids)
        assert maintain(rig)["deleted_objects"] > 0
    before = lists(rig)

    for _ in range(5):
        maintain(rig)
    fill(rig, 1, ids)
    maintain(rig)

    assert lists(rig) == before


def test_a_purge_does_not_need_the_snapshot_before_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that is too large becomes smaller by a purge only."""
    ids = fill(rig, 3)
    maintain(rig)
    fill(rig, 3, ids)
    monkeypatch.setattr("cairn.format.manifest.MAX_OBJECT_BYTES", 100)

    with pytest.raises(ConfigError, match="over the limit of 100"):
        maintain(rig)

    changelogs = [path.name for path in (tmp_path / "objects" / "changelog").iterdir()]
    assert sorted(int(name.partition("_")[0]) for name in changelogs) == [4, 5, 6]


def between_hold_and_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> None:
    """Run ``act`` once a snapshot holds deltas back, before it waits for them."""
    local = rig.local
    hold = local.hold_above

    def hold_then_act(version: int, incarnation: int) -> bool:
        monkeypatch.setattr(local, "hold_above", hold)
        answer = hold(version, incarnation)
        # This is the event loop, which the load needs.
        thread = threading.Thread(target=act)
        thread.start()
        acting.append(thread)
        return answer

    acting: list[threading.Thread] = []
    wait = local.wait_until_written

    def wait_for_act(version: int, incarnation: int | None = None) -> None:
        if threading.current_thread() is not acting[0]:
            monkeypatch.setattr(local, "wait_until_written", wait)
            acting[0].join(30)
        wait(version, incarnation)

    monkeypatch.setattr(local, "hold_above", hold_then_act)
    monkeypatch.setattr(local, "wait_until_written", wait_for_act)


def test_a_snapshot_overtaken_by_a_reload_has_the_current_version(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retried stage loads an earlier version: its rows must not be taken for the later one's."""
    ids = fill(rig, 6)
    between_hold_and_wait(rig, monkeypatch, lambda: rig.load(3, ids[3]))

    answer = maintain(rig)

    assert answer["snapshot_version"] == 3
    manifests = [path.name for path in (tmp_path / "objects" / "snapshot").iterdir()]
    assert manifests == [f"3_{ids[3]}.json"]


def test_a_snapshot_overtaken_by_a_later_version_does_not_have_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is then past the version that the manifest would name."""
    ids = fill(rig, 6)
    rig.load(3, ids[3])
    between_hold_and_wait(rig, monkeypatch, lambda: (rig.load(0, None), rig.load(6, ids[6])))

    assert maintain(rig)["snapshot_version"] == 6
    assert not list((tmp_path / "objects" / "snapshot").glob("3_*"))


def test_a_snapshot_overtaken_by_a_reload_at_its_first_request_has_the_current_version(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bases of the changelogs that it would name are those of another database."""
    ids = fill(rig, 6)
    checkpoint = rig.state.checkpoint
    has_changelog = checkpoint.has_changelog

    def overtaken(ref: VersionRef) -> bool:
        monkeypatch.setattr(checkpoint, "has_changelog", has_changelog)
        answer = has_changelog(ref)
        rig.load(0, None)
        rig.load(3, ids[3])
        return answer

    monkeypatch.setattr(checkpoint, "has_changelog", overtaken)

    assert maintain(rig)["snapshot_version"] == 3
    assert [path.name for path in (tmp_path / "objects" / "snapshot").iterdir()] == [
        f"3_{ids[3]}.json"
    ]


def test_after_a_reload_during_an_upload_maintenance_continues(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The upload's result belongs to a closed database; with it every later snapshot would fail."""
    ids = fill(rig, 6)
    upload = SnapshotUploader.upload

    def upload_late(*arguments: Any, **more: Any) -> SnapshotResult:  # noqa: ANN401
        result = upload(*arguments, **more)
        # The stage runs again from version 4 before the result is noted.
        rig.load(0, None)
        rig.load(4, ids[4])
        monkeypatch.undo()
        return result

    monkeypatch.setattr(SnapshotUploader, "upload", upload_late)
    maintain(rig)
    ids = fill(rig, 4, ids[:5])
    assert rig.resources.snapshots.wait(20) == []  # the load replayed so much that one was due
    ids = fill(rig, 4, ids)

    assert maintain(rig)["snapshot_version"] == 12
    assert maintain(rig)["uploaded_files"] == 0
    current = rig.state.chain.rebased(rig.state.version)  # type: ignore[arg-type]
    assert current.lineage == ()
    other = Rig(tmp_path / "other", str(tmp_path / "objects"), 2, {})
    assert other.load(12, ids[12])["counts"] == {"0": 12}
    other.crash()


def test_a_snapshot_whose_base_is_damaged_is_mended_by_the_next_load(
    rig: Rig, tmp_path: Path
) -> None:
    """Another executor stored the base, so no load of this one has read its manifest."""
    manifest, ids = with_a_damaged_base(rig, tmp_path)
    ids = fill(rig, 2, ids)

    with pytest.raises(CorruptError, match=manifest.name):
        rig.maintain(cleanup=False)
    before = rig.contents(0, 6)
    loaded = rig.load(6, ids[6])

    assert loaded["repairs"] == 1
    assert rig.contents(0, 6) == before
    assert maintain(rig)["snapshot_version"] == 6


def new_store(tmp_path: Path, conf: dict[str, Any]) -> Rig:
    """Return a store at version 0 with settings of its own."""
    rig = Rig(tmp_path / "own", str(tmp_path / "objects"), 2, conf)
    rig.load(0, None)
    return rig


def with_a_damaged_base(rig: Rig, tmp_path: Path) -> tuple[Path, list[str | None]]:
    """Load version 4, and damage the manifest of its base; return that and the ids."""
    ids = fill(rig, 3)
    other = Rig(tmp_path / "other", str(tmp_path / "objects"), 2, {"minDeltasForSnapshot": 2})
    other.load(3, ids[3])
    assert maintain(other)["snapshot_version"] == 3
    other.write([(1, 0, b"4", b"v", 2)])
    ids.append(str(other.commit(4, ids[3], [FAMILY])["checkpoint_id"]))
    other.crash()
    rig.load(4, ids[4])
    (manifest,) = (tmp_path / "objects" / "snapshot").iterdir()
    manifest.write_bytes(b"{" + manifest.read_bytes())
    return manifest, ids


def test_a_commit_at_the_bound_of_the_lineage_asks_for_a_load_around_a_damaged_base(
    tmp_path: Path,
) -> None:
    """No load comes while a store stays on its executor: its queries ended at the bound."""
    rig = new_store(tmp_path, {"maxLineage": 6, "minDeltasForSnapshot": 9})
    manifest, ids = with_a_damaged_base(rig, tmp_path)

    def commit_next() -> None:
        rig.next_session()
        rig.write([(1, 0, b"%d" % len(ids), b"v", 2)])
        ids.append(rig.commit(len(ids), ids[-1], [FAMILY])["checkpoint_id"])

    while len(ids) <= 9:
        commit_next()
    with pytest.raises(UnknownInstanceError) as refused:
        commit_next()
    assert manifest.name in str(refused.value.__cause__)

    assert rig.load(9, ids[9])["repairs"] == 1
    commit_next()
    rig.load(10, ids[10])

    assert rig.contents(0, 10).keys() == {b"%d" % number for number in range(1, 11)}
    assert snapshot.newest_with_snapshot(rig.state) == 9
    rig.crash()


def test_objects_before_a_damaged_snapshot_stay_while_a_kept_version_needs_them(
    tmp_path: Path,
) -> None:
    """The load went around it by a later snapshot; the version before has no other way."""
    conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 4}
    own = new_store(tmp_path, conf)
    ids = fill(own, 2)
    assert own.maintain(cleanup=False)["snapshot_version"] == 2
    ids = fill(own, 2, ids)
    assert own.maintain(cleanup=False)["snapshot_version"] == 4
    ids = fill(own, 2, ids)
    other = Rig(tmp_path / "other", str(tmp_path / "objects"), 2, conf)
    other.load(6, ids[6])
    ids = fill(own, 1, ids)  # its base is version 4
    assert other.maintain(cleanup=False)["snapshot_version"] == 6
    (damaged,) = (tmp_path / "objects" / "snapshot").glob("4_*")
    damaged.unlink()

    third = Rig(tmp_path / "third", str(tmp_path / "objects"), 2, conf)
    assert third.load(7, ids[7])["repairs"] == 1
    ids = fill(third, 1, ids)
    assert third.maintain()["snapshot_version"] == 8

    fourth = Rig(tmp_path / "fourth", str(tmp_path / "objects"), 2, conf)
    fourth.load(5, ids[5])
    assert fourth.contents(0, 5).keys() == {b"%d" % number for number in range(1, 6)}
    for rig in (own, other, third, fourth):
        rig.crash()


def test_a_load_in_progress_uses_renewed_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens live for an hour, and a load may take several: it failed when the first expired."""
    own = new_store(tmp_path, {"minDeltasForSnapshot": 1})
    ids: list[str | None] = [None]
    for _ in range(3):
        ids = fill(own, 1, ids)
        own.maintain(cleanup=False)
    own.crash()
    rig = Rig(tmp_path / "new", str(tmp_path / "objects"), 2, {})
    rig.resources.transfers = replace(rig.resources.transfers, download_threads=1)
    rig.instance = ProviderInstance(rig.new_checkpoint("1"), tmp_path / "i2", rig.resources)
    objects = rig.state.checkpoint.objects
    download, tokens, used = objects.download, ["first"], list[str]()

    def download_by_token(name: str, *arguments: Any, **more: Any) -> None:  # noqa: ANN401
        if tokens[-1] in used:
            raise CredentialsExpiredError("the token has expired")
        used.append(tokens[-1])
        download(name, *arguments, **more)
        rig.instance.renew({"token": f"after {name}"})

    monkeypatch.setattr(objects, "download", download_by_token)
    monkeypatch.setattr(objects, "renew", lambda settings: tokens.append(settings["token"]))

    assert rig.load(3, ids[3])["source"] == "snapshot"

    assert len(used) > 1
    assert rig.contents(0, 3).keys() == {b"1", b"2", b"3"}
    rig.crash()


@pytest.fixture
def around_own_snapshot(rig: Rig, tmp_path: Path) -> Iterator[tuple[Rig, list[str | None]]]:
    """A store that was loaded without the snapshot of its version, which lacks a file; its ids."""
    ids = fill(rig, 5)
    assert maintain(rig)["snapshot_version"] == 5
    for lost in (tmp_path / "objects" / "sst").iterdir():
        lost.unlink()
    other = Rig(tmp_path / "other", str(tmp_path / "objects"), 2, {"maxLineage": 5})
    assert other.load(5, ids[5])["repairs"] == 1
    yield other, ids
    other.crash()


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_damaged_snapshot_of_the_current_version_is_no_base(
    around_own_snapshot: tuple[Rig, list[str | None]], *, has_rows: bool
) -> None:
    """Its manifest is intact: the next changelogs would name it, and each load go around it."""
    rig, ids = around_own_snapshot

    before = maintain(rig)["snapshot_version"]
    rows = [(1, 0, b"6", b"v", 2)] if has_rows else []
    if rows:
        rig.write(rows)
    ids.append(str(rig.commit(6, ids[5], [FAMILY])["checkpoint_id"]))
    after = maintain(rig)["snapshot_version"]

    assert before == 0
    assert after == (6 if has_rows else 0)
    changelog = rig.state.checkpoint.read(6, ids[6]).header
    assert changelog.base.ref is None
    assert len(changelog.lineage) == (6 if has_rows else 5)


def test_a_damaged_snapshot_does_not_stop_commits_at_the_bound_of_the_lineage(
    around_own_snapshot: tuple[Rig, list[str | None]],
) -> None:
    """The version cannot have another snapshot: only the next one can."""
    rig, ids = around_own_snapshot

    for number in (6, 7):
        rig.write([(1, 0, b"%d" % number, b"v", 2)])
        ids.append(str(rig.commit(number, ids[-1], [FAMILY])["checkpoint_id"]))
        rig.load(number, ids[-1])

    lineages = [
        len(rig.state.checkpoint.read(number, ids[number]).header.lineage) for number in (6, 7)
    ]
    assert lineages == [6, 1]


@pytest.fixture
def behind(rig: Rig, tmp_path: Path) -> Iterator[tuple[Rig, list[str | None]]]:
    """A store of whose version another executor has stored the snapshot; its ids."""
    ids = fill(rig, 3)
    other = Rig(
        tmp_path / "other",
        str(tmp_path / "objects"),
        2,
        {"minDeltasForSnapshot": 2, "maxLineage": 3, "minBatchesToRetain": 2},
    )
    other.load(3, ids[3])
    assert maintain(rig)["snapshot_version"] == 3
    yield other, ids
    other.crash()


def test_the_manifest_of_another_writer_is_no_base(
    behind: tuple[Rig, list[str | None]], tmp_path: Path
) -> None:
    """Perhaps that writer deletes it, because a sweep has deleted its files."""
    rig, ids = behind
    before = maintain(rig)
    sent = rig.state.checkpoint.objects.request_counts()
    for _ in range(3):
        maintain(rig)
    assert rig.state.checkpoint.objects.request_counts() == sent  # a store may be idle for days
    for path in (tmp_path / "objects" / "snapshot").iterdir():
        path.unlink()

    fill(rig, 1, ids)
    after = maintain(rig)

    assert (before["snapshot_version"], after["snapshot_version"]) == (0, 4)
    assert after["reused_files"] > 0  # what the attempt has uploaded
    changelog = rig.state.checkpoint.read(4, ids[4]).header
    assert changelog.base.ref is None
    assert len(changelog.lineage) == 4
    assert len(rig.contents(0, 4)) == 4


def test_the_manifest_of_another_writer_does_not_stop_commits_at_the_bound_of_the_lineage(
    behind: tuple[Rig, list[str | None]],
) -> None:
    """The version cannot have another snapshot: only the next one can."""
    rig, ids = behind

    fill(rig, 2, ids)

    lineages = [
        len(rig.state.checkpoint.read(number, ids[number]).header.lineage) for number in (4, 5)
    ]
    assert lineages == [4, 1]


def test_a_snapshot_begins_in_the_middle_of_a_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new version is current before its commit has ended."""
    ids = fill(rig, 2)
    enqueue = rig.local.enqueue
    answers: list[dict[str, Any]] = []

    def enqueue_and_maintain(delta: Delta, *, wakes: bool) -> None:
        enqueue(delta, wakes=wakes)
        answers.append(maintain(rig))

    monkeypatch.setattr(rig.local, "enqueue", enqueue_and_maintain)
    rig.write([(1, 0, b"3", b"v", 2)])
    rig.commit(3, ids[2], [FAMILY])

    assert answers[0]["snapshot_version"] == 3


def test_a_commit_does_not_wait_for_the_requests_that_begin_a_snapshot(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that does not answer the snapshot may still answer the commit."""
    ids = fill(rig, 4)
    is_probing, may_go_on = threading.Event(), threading.Event()
    new_pending = SnapshotUploader.new_pending

    def new_pending_late(uploader: SnapshotUploader) -> PendingUpload:
        is_probing.set()
        assert may_go_on.wait(30)
        return new_pending(uploader)

    monkeypatch.setattr(SnapshotUploader, "new_pending", new_pending_late)
    with ThreadPoolExecutor(2) as threads:
        snapshot = threads.submit(maintain, rig)
        assert is_probing.wait(30)
        rig.write([(1, 0, b"5", b"v", 2)])
        commit = threads.submit(rig.commit, 5, ids[4], [FAMILY])
        try:
            assert commit.result(30)["checkpoint_id"]
            assert not snapshot.done()
        finally:
            may_go_on.set()

        assert snapshot.result(30)["snapshot_version"] == 4


def test_the_oldest_kept_snapshot_can_be_loaded(rig: Rig) -> None:
    """Its own changelog is gone: the state reader requests it by snapshotStartBatchId."""
    ids: list[str | None] = [None]
    for _ in range(12):
        ids = fill(rig, 1, ids)
        maintain(rig)
    names = [one.key for one in rig.state.checkpoint.objects.list("")]
    oldest = min(int(name[9:].split("_")[0]) for name in names if name.startswith("snapshot/"))
    assert f"changelog/{oldest}_{ids[oldest]}.arrow" not in names

    answer = rig.load_snapshot(12, ids[12], oldest, ids[oldest])

    assert answer["snapshot_version"] == oldest
    assert answer["changelogs_replayed"] == 12 - oldest
    assert len(rig.contents(0, 12)) == 12
    with pytest.raises(MissingError, match="nothing leads"):
        rig.load_snapshot(12, ids[12], oldest, "u" + "f" * 32)


def test_a_commit_that_waits_for_a_snapshot_blocks_no_load(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upload may take half an hour; loads of the store must not take as long."""
    ids = fill(rig, 2)
    is_waiting = threading.Event()
    real = rig.state.snapshots.lock

    class Running:
        """The lock, held by an upload until the test releases it."""

        def acquire(self, *arguments: Any, **more: Any) -> bool:  # noqa: ANN401
            is_waiting.set()
            return real.acquire(*arguments, **more)

        def release(self) -> None:
            real.release()

        __enter__ = acquire

        def __exit__(self, *_: object) -> None:
            real.release()

    monkeypatch.setattr(rig.state.snapshots, "lock", Running())
    rig.write([(1, 0, b"3", b"v", 2)])
    with ThreadPoolExecutor(2) as threads:
        with real:
            commit = threads.submit(rig.commit, 3, ids[2], [FAMILY], snapshot=True)
            assert is_waiting.wait(30)
            changelog = next((tmp_path / "objects" / "changelog").glob("3_*"))
            load = threads.submit(rig.load, 3, changelog.stem.partition("_")[2])
            assert load.result(30)["source"] == "local"
            assert not commit.done()

        assert commit.result(30)["snapshot_version"] == 3


def test_a_store_closed_during_its_upload_is_not_a_bug(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark unloads a store at any time: its directory disappears during the upload."""
    fill(rig, 4)
    upload = SnapshotUploader.upload

    def upload_of_a_missing_file(*arguments: Any, **more: Any) -> SnapshotResult:  # noqa: ANN401
        rig.instance.close()
        return upload(*arguments, **more)

    monkeypatch.setattr(SnapshotUploader, "upload", upload_of_a_missing_file)

    assert maintain(rig)["snapshot_version"] == 0


def test_a_full_local_disk_after_an_upload_does_not_fail_the_snapshot(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache only saves time: a file that it does not have is downloaded again."""
    fill(rig, 4)

    def no_space(*_: object) -> None:
        raise DiskFullError("no space for an SST file")

    monkeypatch.setattr(rig.resources.transfers.cache, "adopt", no_space)

    assert maintain(rig)["snapshot_version"] == 4


def test_the_estimated_size_counts_a_key_once(rig: Rig) -> None:
    """The shim caches a whole state if it fits; rewritten keys would make it seem too large."""
    keys = [b"%06d" % number for number in range(2000)]
    last: str | None = None
    for version in range(1, 6):
        presence = 2 if version == 1 else 1
        rig.write([(1, 0, key, b"v" * 94, presence) for key in keys])
        last = rig.commit(version, last, [FAMILY])["checkpoint_id"]
        rig.load(version, last)
        rig.until_written(version)

    estimate = rig.state.data_bytes(is_new=True)

    assert 0.8 * 2000 * 100 < estimate < 1.2 * 2000 * 100
