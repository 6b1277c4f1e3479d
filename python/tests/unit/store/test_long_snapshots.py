"""Snapshots whose upload takes long or fails: calls go on, and lineages are bounded."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

from cairn.checkpoint import upload
from cairn.errors import AccessError, LineageTooLongError, UnavailableError
from cairn.protocol.calls import MaintainAnswer, MaintainRequest
from cairn.store.snapshot import lineage_bound, snapshot
from cairn.store.state.snapshot_runs import SnapshotDone

FAMILY = family(0, multi=False)
LIMIT = 6


@pytest.fixture
def new_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Return a function that opens a store at version 0, with settings."""
    rigs: list[Rig] = []

    def open_rig(**conf: int) -> Rig:
        settings = {"minDeltasForSnapshot": 100, "minBatchesToRetain": 2, **conf}
        rig = Rig(tmp_path / f"local{len(rigs)}", str(tmp_path / "objects"), 2, settings)
        rigs.append(rig)
        return rig

    yield open_rig
    for rig in rigs:
        rig.crash()


def write(rig: Rig, number: int, last: str | None) -> str:
    """Commit version ``number`` with a row of its own."""
    rig.write([(1, 0, b"%d" % number, b"v" * 100, 2)])
    last = str(rig.commit(number, last, [FAMILY])["checkpoint_id"])
    rig.load(number, last)
    return last


def fill(rig: Rig, versions: int) -> list[str | None]:
    """Commit versions from 1 and return their ids, by version."""
    rig.load(0, None)
    ids: list[str | None] = [None]
    for number in range(1, versions + 1):
        ids.append(write(rig, number, ids[-1]))
    return ids


def maintain(rig: Rig, wait_ms: int = 20_000) -> MaintainAnswer:
    return rig.instance.maintain(MaintainRequest(1, snapshot=True, cleanup=True, wait_ms=wait_ms))


def new_ssts(rig: Rig) -> int:
    return len(list(rig.state.checkpoint.objects.list("sst/")))


class Uploads:
    """The uploads of a store's objects, which a test stops or fails."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails_after: int | None = None
        self.stops_after = 0
        self.count = 0
        self.when_stopped: Callable[[Callable[[], None]], None] = lambda _: None
        objects = rig.state.checkpoint.objects
        upload = objects.upload

        def upload_late(
            key: str, path: Path, *, crc32c: int, moved: Callable[[], None]
        ) -> datetime:
            if self.fails_after is not None and self.count >= self.fails_after:
                moved()  # parts of a file that fails are no progress
                raise UnavailableError("the bucket answers 503", object_name=key)
            if self.count >= self.stops_after:
                self.when_stopped(moved)
                assert self.may_go_on.wait(20)
            self.count += 1
            return upload(key, path, crc32c=crc32c, moved=moved)

        monkeypatch.setattr(objects, "upload", upload_late)


def wait_until_stopped(uploads: Uploads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits wait in vain for a snapshot until its upload has stopped, and no longer."""
    has_stopped = threading.Event()
    uploads.when_stopped = lambda _: has_stopped.set()
    wait_for = snapshot.wait_for

    def wait_in_vain(run: Future[SnapshotDone], _: float) -> SnapshotDone | None:
        assert has_stopped.wait(20)
        return wait_for(run, 0 if not uploads.may_go_on.is_set() else 20)

    monkeypatch.setattr(snapshot, "wait_for", wait_in_vain)


def test_maintenance_answers_during_a_long_upload(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shim ends a worker that is silent for long, and with it the uploads of all its stores."""
    rig = new_rig(minDeltasForSnapshot=2)
    fill(rig, 4)
    uploads = Uploads(rig, monkeypatch)
    uploads.may_go_on.clear()
    has_begun = threading.Event()
    uploads.when_stopped = lambda _: has_begun.set()

    first = maintain(rig, wait_ms=100)
    assert has_begun.wait(20)
    second = maintain(rig, wait_ms=100)

    assert first.snapshot_version == second.snapshot_version == 0
    assert second.engine["snapshot_left_files"] == 1
    assert second.engine["snapshot_left_bytes"] > 0
    uploads.may_go_on.set()
    done = maintain(rig)
    assert done.snapshot_version == 4
    assert done.engine["snapshot_left_files"] == done.engine["snapshot_left_bytes"] == 0
    assert uploads.count == 1


def test_commits_and_loads_go_on_during_a_long_upload(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first snapshot of hours must not stop the query."""
    rig = new_rig(minDeltasForSnapshot=2)
    ids = fill(rig, 4)
    uploads = Uploads(rig, monkeypatch)
    uploads.may_go_on.clear()
    has_begun = threading.Event()
    uploads.when_stopped = lambda _: has_begun.set()
    maintain(rig, wait_ms=50)
    assert has_begun.wait(20)

    for number in range(5, 12):
        ids.append(write(rig, number, ids[-1]))

    assert uploads.count == 0
    assert rig.state.snapshots.failure is None
    uploads.may_go_on.set()
    assert maintain(rig).snapshot_version >= 4
    assert maintain(rig).snapshot_version == 11


def test_files_of_a_failed_attempt_are_not_uploaded_again(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits go on between the attempts, so the next snapshot is of a later version."""
    rig = new_rig()
    ids = fill(rig, 2)
    for number in range(3, 6):  # a file of its own per version
        ids.append(write(rig, number, ids[-1]))
        rig.until_written(number)
    uploads = Uploads(rig, monkeypatch)
    uploads.fails_after = 2
    rig.state.chain.want_snapshot()

    with pytest.raises(UnavailableError, match="503"):
        maintain(rig)
    before = uploads.count
    assert before == 2
    uploads.fails_after = None
    ids.append(write(rig, 6, ids[-1]))
    done = maintain(rig)

    assert done.snapshot_version == 6
    assert done.reused_files == before
    assert new_ssts(rig) == before + done.uploaded_files


def test_the_log_tells_what_a_long_upload_has_still_to_do(
    new_rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first snapshot of hours: from its log a person sees that it moves, and when it will end."""
    monkeypatch.setattr(upload, "LOG_EVERY_NS", 1)
    monkeypatch.setattr(upload, "KEEP_PIN_EVERY_S", 0.005)
    rig = new_rig()
    ids = fill(rig, 1)
    for number in (2, 3):  # a file of its own per version
        value = random.Random(number).randbytes(3 << 20)
        rig.write([(1, 0, b"%d" % number, value, 2)])
        ids.append(str(rig.commit(number, ids[-1], [FAMILY])["checkpoint_id"]))
        rig.load(number, ids[-1])
        rig.until_written(number)
    uploads = Uploads(rig, monkeypatch)
    uploads.stops_after = 1
    uploads.may_go_on.clear()
    rig.state.chain.want_snapshot()

    expected = (
        "the snapshot of version 3 of store 0/3/default is being uploaded: 1 of 2 files, "
        "3 MiB are left"
    )
    with caplog.at_level(logging.WARNING):
        maintain(rig, wait_ms=1)
        until_ns = time.monotonic_ns() + 20_000_000_000
        while expected not in caplog.messages:
            assert time.monotonic_ns() < until_ns, caplog.messages
            time.sleep(0.01)
    uploads.may_go_on.set()

    assert maintain(rig).snapshot_version == 3


def test_a_new_database_does_not_use_the_files_of_the_former_one(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB numbers the files of each database from the beginning."""
    rig = new_rig()
    ids = fill(rig, 4)
    uploads = Uploads(rig, monkeypatch)
    objects = rig.state.checkpoint.objects
    put = objects.put_if_absent

    def refuse(key: str, _data: bytes) -> None:
        raise UnavailableError("the bucket answers 503", object_name=key)

    monkeypatch.setattr(objects, "put_if_absent", refuse)
    rig.state.chain.want_snapshot()
    with pytest.raises(UnavailableError):
        maintain(rig)
    monkeypatch.setattr(objects, "put_if_absent", put)
    rig.load(0, None)
    rig.load(4, ids[4])
    rig.state.chain.want_snapshot()
    done = maintain(rig)

    assert done.reused_files == 0
    assert uploads.count == 2
    other = new_rig()
    other.load(4, ids[4])
    assert other.contents(0, 4) == rig.contents(0, 4)


def test_a_lineage_ends_at_its_bound(new_rig: Callable[..., Rig]) -> None:
    """Without maintenance each changelog would name all versions, and a load replay all of them."""
    rig = new_rig(maxLineage=LIMIT, minBatchesToRetain=100)
    ids = fill(rig, 3 * LIMIT)

    lengths = [
        len(rig.state.checkpoint.read(number, ids[number]).header.lineage)
        for number in range(1, 3 * LIMIT + 1)
    ]

    assert lengths == [*range(1, LIMIT + 1)] * 3
    other = new_rig()
    assert other.load(3 * LIMIT, ids[-1])["changelogs_replayed"] <= LIMIT
    assert other.contents(0, 3 * LIMIT) == rig.contents(0, 3 * LIMIT)


def test_a_commit_at_the_bound_says_why_it_fails(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user must learn what is wrong with the uploads, and nothing may be committed."""
    rig = new_rig(maxLineage=LIMIT)
    ids = fill(rig, LIMIT)
    uploads = Uploads(rig, monkeypatch)
    uploads.fails_after = 0

    rig.write([(1, 0, b"x", b"v", 2)])
    with pytest.raises(LineageTooLongError) as raised:
        rig.commit(LIMIT + 1, ids[-1], [FAMILY])

    text = str(raised.value)
    assert text.startswith("[CAIRN_LINEAGE_TOO_LONG] 6 versions were committed")
    assert "[CAIRN_STORAGE_UNAVAILABLE] the bucket answers 503" in text
    assert "store=0/3/default, version=7, object=sst/" in text
    assert len(list(rig.state.checkpoint.objects.list("changelog/"))) == LIMIT
    uploads.fails_after = None
    rig.load(LIMIT, ids[-1])
    ids.append(write(rig, LIMIT + 1, ids[-1]))
    assert rig.state.chain.newest_version == LIMIT


def test_a_commit_at_the_bound_does_not_wait_for_ever(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shim would end the worker; the error says how much is left, and the upload goes on."""
    rig = new_rig(maxLineage=LIMIT)
    ids = fill(rig, LIMIT)
    uploads = Uploads(rig, monkeypatch)
    uploads.may_go_on.clear()
    rig.write([(1, 0, b"x", b"v", 2)])
    wait_until_stopped(uploads, monkeypatch)

    with pytest.raises(LineageTooLongError, match="does not move: 1 files, 0 MiB are left"):
        rig.commit(LIMIT + 1, ids[-1], [FAMILY])
    uploads.may_go_on.set()
    rig.load(LIMIT, ids[-1])
    maintain(rig)
    ids.append(write(rig, LIMIT + 1, ids[-1]))

    assert uploads.count == 1


def test_commits_go_on_while_the_upload_moves(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would end the query and its workers, and the next upload would begin at zero."""
    rig = new_rig(maxLineage=LIMIT)
    rig.load(0, None)
    ids: list[str | None] = [None]
    for number in range(1, LIMIT + 1):  # a file of its own per version
        ids.append(write(rig, number, ids[-1]))
        rig.until_written(number)
    uploads = Uploads(rig, monkeypatch)
    uploads.may_go_on.clear()
    uploads.stops_after = 3
    wait_until_stopped(uploads, monkeypatch)

    ids.append(write(rig, LIMIT + 1, ids[-1]))

    assert len(rig.state.checkpoint.read(LIMIT + 1, ids[-1]).header.lineage) == LIMIT + 1
    rig.write([(1, 0, b"x", b"v", 2)])
    with pytest.raises(LineageTooLongError, match="does not move"):
        rig.commit(LIMIT + 2, ids[-1], [FAMILY])
    uploads.may_go_on.set()
    rig.load(LIMIT + 1, ids[-1])
    ids.append(write(rig, LIMIT + 2, ids[-1]))
    assert len(rig.state.checkpoint.read(LIMIT + 2, ids[-1]).header.lineage) == 2


@pytest.mark.parametrize("of_other_store", [True, False])
def test_a_commit_goes_on_while_parts_or_the_files_of_other_stores_are_uploaded(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, *, of_other_store: bool
) -> None:
    """A store waits for its turn behind others, and a file of 256 MiB may take long."""
    rig = new_rig(maxLineage=LIMIT)
    ids = fill(rig, LIMIT)
    uploads = Uploads(rig, monkeypatch)
    uploads.may_go_on.clear()
    has_moved = threading.Event()

    def move(part_of_own: Callable[[], None]) -> None:
        (rig.resources.transfers.uploaded if of_other_store else part_of_own)()
        has_moved.set()

    def wait_in_vain(_run: object, _wait_s: float) -> None:
        assert has_moved.wait(20)

    uploads.when_stopped = move
    monkeypatch.setattr(snapshot, "wait_for", wait_in_vain)

    ids.append(write(rig, LIMIT + 1, ids[-1]))

    assert len(rig.state.checkpoint.read(LIMIT + 1, ids[-1]).header.lineage) == LIMIT + 1
    uploads.may_go_on.set()


def test_a_commit_at_the_bound_continues_an_upload_that_fails_now_and_then(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt uploads some files: together they are a snapshot."""
    rig = new_rig(maxLineage=LIMIT)
    rig.load(0, None)
    ids: list[str | None] = [None]
    for number in range(1, LIMIT + 1):
        ids.append(write(rig, number, ids[-1]))
        rig.until_written(number)
    uploads = Uploads(rig, monkeypatch)
    uploads.fails_after = 2
    objects = rig.state.checkpoint.objects
    upload = objects.upload

    def recover_later(key: str, path: Path, *, crc32c: int, moved: Callable[[], None]) -> datetime:
        try:
            return upload(key, path, crc32c=crc32c, moved=moved)
        except UnavailableError:
            uploads.fails_after = uploads.count + 2
            raise

    monkeypatch.setattr(objects, "upload", recover_later)

    ids.append(write(rig, LIMIT + 1, ids[-1]))

    assert rig.state.chain.newest_version == LIMIT
    assert uploads.count == new_ssts(rig)


def test_a_commit_at_the_bound_fails_when_only_the_manifest_is_refused(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first attempt uploaded is no progress of the later ones: they would never end."""
    rig = new_rig(maxLineage=LIMIT)
    ids = fill(rig, LIMIT)
    objects = rig.state.checkpoint.objects
    put, refused = objects.put_if_absent, []

    def refuse_manifests(key: str, data: bytes) -> None:
        if key.startswith("snapshot/"):
            refused.append(key)
            raise AccessError("the policy denies it", object_name=key)
        put(key, data)

    monkeypatch.setattr(objects, "put_if_absent", refuse_manifests)

    rig.write([(1, 0, b"x", b"v", 2)])
    with pytest.raises(LineageTooLongError, match=r"\[CAIRN_ACCESS_DENIED\] the policy denies it"):
        rig.commit(LIMIT + 1, ids[-1], [FAMILY])

    assert new_ssts(rig) > 0
    assert len(refused) == 2
    assert len(list(objects.list("changelog/"))) == LIMIT


def test_a_commit_without_writes_is_not_bounded(
    new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In checkpoint format 2 it adds nothing to the lineage: an idle store must not fail."""
    rig = new_rig(maxLineage=LIMIT)
    ids = fill(rig, LIMIT)
    Uploads(rig, monkeypatch).fails_after = 0

    answer = rig.commit(LIMIT + 1, ids[-1], [FAMILY])

    assert answer["changelog_bytes"] == 0


def test_the_log_warns_from_a_tenth_of_the_bound(
    new_rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at snapshots that fail, until commits wait for them."""
    rig = new_rig(maxLineage=20)
    Uploads(rig, monkeypatch).fails_after = 0
    with caplog.at_level(logging.WARNING):
        ids = fill(rig, 1)
        assert not caplog.records
        lineage_bound.take_now(rig.state, 20)
        caplog.clear()
        for number in range(2, 6):
            ids.append(write(rig, number, ids[-1]))

    warnings = [text for text in caplog.messages if "versions were committed since" in text]
    assert [text.split()[2] for text in warnings] == ["2", "4"]
    assert "503" in warnings[0]
    assert maintained_lineage(rig) == 5


def maintained_lineage(rig: Rig) -> Any:  # noqa: ANN401 - a figure
    """Return the metric of the lineage's length."""
    return rig.state.figures()["lineage_versions_count"]
