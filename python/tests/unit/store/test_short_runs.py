"""Runs that end before Spark's first maintenance: most scheduled jobs, with ``availableNow``."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path

import pytest
from rig import STORE, Rig, family
from worker_storage import ArrivingStore

from cairn.checkpoint import store_checkpoint
from cairn.checkpoint.orphans import SWEEP_INTERVAL_MS
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.upload import SnapshotWriter
from cairn.checksum import crc32c
from cairn.clock import FakeClock
from cairn.errors import AccessError, UnavailableError
from cairn.format import manifest
from cairn.format.fields import dump_object
from cairn.format.names import manifest_name
from cairn.storage.base import ObjectInfo
from cairn.storage.memory import MemoryBucket
from cairn.store.front import instance
from cairn.store.snapshot import lineage_bound, snapshot
from cairn.store.snapshot.purge import purge
from cairn.store.state.snapshot_runs import SnapshotDone
from cairn.store.state.store_state import StoreState

FAMILY = family(0, multi=False)
DUE = 2
KEPT = 4
HOUR_S = 3600
DAY_S = SWEEP_INTERVAL_MS // 1000
STATE_ROWS, NEW_ROWS = 1000, 30


class SlowStore(ArrivingStore):
    """Objects whose uploads stand still until they are let through, or their worker is killed."""

    def __init__(self, bucket: MemoryBucket, clock: FakeClock) -> None:
        super().__init__("memory://bucket/state", bucket, clock)
        self.has_begun = threading.Event()
        self.may_upload = threading.Event()
        self.is_killed = False
        self.listed: list[str] = []

    def has_arrived(self, key: str) -> None:
        """See ``ArrivingStore``."""
        self.has_begun.set()
        assert self.may_upload.wait(20)
        if self.is_killed:
            raise UnavailableError("the worker was killed", object_name=key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore``."""
        self.listed.append(prefix)
        return super().list(prefix)


def objects_of(rig: Rig) -> SlowStore:
    """Return the objects as the worker of a run reaches them."""
    objects = rig.state.checkpoint.objects
    assert isinstance(objects, SlowStore)
    return objects


class Job:
    """A job that is started again and again; each run has a worker of its own.

    Attributes:
        conf: of the next run.
        ids: the checkpoint ids by version.
        rows: what the state has.
    """

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self.clock = FakeClock()
        self.bucket = MemoryBucket()
        self.ids: list[str | None] = [None]
        self.rows: dict[bytes, bytes] = {}
        self.runs = 0
        self.conf = {
            "minDeltasForSnapshot": DUE,
            "minBatchesToRetain": KEPT,
            "orphanGraceMs": HOUR_S * 1000,
        }

    def objects(self) -> SlowStore:
        return SlowStore(self.bucket, self.clock)

    def start(self) -> Rig:
        job = self

        class OnClock(Rig):
            def new_checkpoint(self, writer: str) -> StoreCheckpoint:
                return StoreCheckpoint(
                    job.objects(),
                    STORE,
                    2,
                    self.conf,
                    SnapshotWriter("run", writer, {}),
                    self.resources.transfers,
                )

        self.runs += 1
        return OnClock(self._tmp_path / f"run{self.runs}", "", 2, self.conf)

    def begin_snapshot(self) -> Rig:
        """Start a run with one batch; return it when the upload that the commit began stands."""
        rig = self.start()
        self.batch(rig)
        assert objects_of(rig).has_begun.wait(20)
        return rig

    def batch(self, rig: Rig) -> None:
        version = len(self.ids)
        rig.load(version - 1, self.ids[-1])
        source = random.Random(version)
        count = NEW_ROWS if self.rows else STATE_ROWS
        rows = {source.randbytes(16): source.randbytes(100) for _ in range(count)}
        rig.write([(1, 0, key, value, 2) for key, value in rows.items()])
        answer = rig.commit(version, self.ids[-1], [FAMILY])
        self.ids.append(str(answer["checkpoint_id"]))
        self.rows.update(rows)

    def end(self, rig: Rig, *, uploads_end: bool) -> list[str]:
        """End the run as the shim does; return the stores whose snapshots were lost."""
        objects = objects_of(rig)
        if uploads_end:
            objects.may_upload.set()
        elif rig.state.snapshots.run is not None:
            assert objects.has_begun.wait(20)
        left = rig.resources.snapshots.wait(20 if uploads_end else 0.01)
        objects.is_killed = True
        objects.may_upload.set()
        rig.crash()
        return left

    def run(self, *, uploads_end: bool = True) -> list[str]:
        """Run one batch."""
        rig = self.start()
        self.batch(rig)
        self.clock.advance(HOUR_S)
        return self.end(rig, uploads_end=uploads_end)

    def names(self) -> Counter[str]:
        return Counter(info.key.partition("/")[0] for info in self.objects().list(""))

    def sst_bytes(self) -> int:
        return sum(info.size_bytes for info in self.objects().list("sst/"))

    def newest_manifest(self) -> manifest.Manifest:
        names = [info.key for info in self.objects().list("snapshot/")]
        name = max(names, key=lambda key: int(key.removeprefix("snapshot/").partition("_")[0]))
        return manifest.decode(self.objects().get(name).data, object_name=name)

    def lineage(self) -> int:
        """Return how many changelogs the next load replays."""
        rig = self.start()
        answer = rig.load(len(self.ids) - 1, self.ids[-1])
        found = rig.contents(0, len(self.ids) - 1, page_rows=1000)
        rig.crash()
        assert found == self.rows
        return int(answer["changelogs_replayed"])


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job that has not run yet."""
    return Job(tmp_path)


def test_forty_short_runs_have_snapshots_and_leave_no_garbage(job: Job) -> None:
    """No run lives until Spark's maintenance: its state must not grow until it cannot be loaded."""
    for _ in range(40):
        assert job.run() == []

    assert job.lineage() <= DUE
    assert job.sst_bytes() <= 4 * sum(len(key + value) for key, value in job.rows.items())
    assert job.names()["snapshot"] <= KEPT
    assert job.names()["changelog"] <= KEPT + 2 * (DUE + 1)


def test_what_lost_uploads_leave_is_swept_by_short_runs(job: Job) -> None:
    """The sweep was due at a random time of a process, which each process drew anew."""
    for _ in range(6):
        job.run(uploads_end=False)
    lost = {info.key for info in job.objects().list("sst/")}
    assert len(lost) >= 4

    for _ in range(DAY_S // HOUR_S + 2 * DUE + 2):
        job.run()

    found = {info.key for info in job.objects().list("sst/")}
    newest = job.newest_manifest()
    named = {name for entry in (*newest.retained, newest.as_retained()) for name in entry.objects}
    assert not found & lost
    assert found == named | {entry.object_name for entry in newest.garbage}


def test_a_sweep_is_daily_however_often_the_job_runs(job: Job) -> None:
    """It lists the whole store: a process that remembers nothing must not do so each time."""
    sweeps = 0
    for _ in range(3 * DAY_S // (2 * HOUR_S)):
        rig = job.start()
        objects = objects_of(rig)
        job.batch(rig)
        job.clock.advance(2 * HOUR_S)
        job.end(rig, uploads_end=True)
        sweeps += objects.listed.count("changelog/")

    assert 2 <= sweeps <= 3


def test_a_sweep_that_fails_costs_no_snapshot(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Perhaps the job may not list the bucket. The sweep is tried again after a day."""

    def refuse(*_: object, **__: object) -> int:
        raise AccessError("ListBucket is not allowed")

    for _ in range(DUE + 1):
        job.run()
    job.clock.advance(DAY_S)
    monkeypatch.setattr(store_checkpoint, "sweep_orphans", refuse)

    for _ in range(2 * DUE + 2):
        job.run()

    assert job.lineage() <= DUE
    assert sum("ListBucket is not allowed" in message for message in caplog.messages) == 1


def test_a_clean_up_that_fails_costs_no_maintenance(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark would unload the store, or report the same error again and again."""

    def fail(*_: object, **__: object) -> int:
        raise MemoryError

    rig = job.start()
    objects = objects_of(rig)
    objects.may_upload.set()
    for _ in range(DUE):
        job.batch(rig)
    with monkeypatch.context() as patched:
        patched.setattr(snapshot, "purge", fail)
        lineage_bound.take_now(rig.state, 20)
        assert rig.resources.snapshots.wait(20) == []

    rig.maintain()

    assert any("ran out of memory" in message for message in caplog.messages)
    rig.crash()


def lose_uploads(job: Job, times: int) -> None:
    """Run a job that ends before its uploads do."""
    for _ in range(times):
        job.run(uploads_end=False)
    assert job.names()["snapshot"] == 0


def test_a_commit_waits_for_the_snapshot_that_earlier_runs_did_not_finish(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a container does not wait: without this commit, no run would get further."""
    lose_uploads(job, 4 * DUE + 1)
    rig = job.start()
    objects = objects_of(rig)
    waits: list[bool] = []
    wait_for = snapshot.wait_for

    def noted(run: Future[SnapshotDone], wait_s: float) -> SnapshotDone | None:
        waits.append(run.done())
        objects.may_upload.set()
        return wait_for(run, wait_s)

    monkeypatch.setattr(snapshot, "wait_for", noted)

    job.batch(rig)

    assert waits == [False]
    assert job.names()["snapshot"] == 1
    job.end(rig, uploads_end=True)
    assert job.lineage() == 0


def test_only_one_commit_of_a_run_waits(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first upload of hours must not stop each batch for ten minutes."""
    lose_uploads(job, 4 * DUE + 1)
    monkeypatch.setattr(instance, "REQUESTS_PER_SNAPSHOT", 0.001)
    rig = job.start()
    waits = []
    take_now = lineage_bound.take_now

    def counted(state: StoreState, wait_s: float) -> None:
        waits.append(len(job.ids))
        take_now(state, wait_s)

    monkeypatch.setattr(lineage_bound, "take_now", counted)

    for _ in range(3):
        job.batch(rig)

    assert waits == [4 * DUE + 2]
    job.end(rig, uploads_end=True)
    assert job.lineage() <= 3


def test_at_the_bound_of_lineages_a_run_waits_as_long_as_its_upload_moves(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where each run ends before its upload, going on would never end that."""
    lose_uploads(job, 6)
    monkeypatch.setattr(instance, "REQUESTS_PER_SNAPSHOT", 0.001)  # 0.12 s
    job.conf["maxLineage"] = 6
    rig = job.start()
    objects = objects_of(rig)

    def waits_on() -> bool:
        return any("waits on" in message for message in caplog.messages)

    def move() -> None:
        until = time.monotonic() + 20
        while not waits_on() and time.monotonic() < until:
            rig.resources.transfers.uploaded()
            time.sleep(0.01)
        objects.may_upload.set()

    thread = threading.Thread(target=move)
    thread.start()
    job.batch(rig)
    thread.join()

    assert job.names()["snapshot"] == 1
    assert waits_on()
    job.end(rig, uploads_end=True)


def test_a_snapshot_that_ends_after_the_last_commit_is_found(job: Job) -> None:
    """No changelog names it. Each run would upload the whole state again."""
    for _ in range(DUE):
        job.run()
    rig = job.begin_snapshot()
    for _ in range(4):
        job.batch(rig)
    job.end(rig, uploads_end=True)
    stored = job.newest_manifest()

    rig = job.start()
    answer = rig.load(len(job.ids) - 1, job.ids[-1])
    rig.crash()

    assert stored.ref.version == DUE + 1
    assert answer["source"] == "snapshot"
    assert answer["snapshot_version"] == stored.ref.version
    assert answer["changelogs_replayed"] == 4
    assert job.lineage() == 4


def test_it_is_found_after_few_versions_too(job: Job) -> None:
    """Each run would store one beside the chain. It names garbage, which no purge deletes then."""
    job.conf["minDeltasForSnapshot"] = 1
    job.run()
    rig = job.begin_snapshot()
    job.batch(rig)
    job.end(rig, uploads_end=True)

    assert job.newest_manifest().ref.version == 2
    assert job.lineage() == 1


@pytest.mark.parametrize("batches_after", [0, 4])
def test_a_snapshot_of_a_newer_release_that_no_changelog_names_is_left_out(
    job: Job, batches_after: int
) -> None:
    """Who goes back to an older release of Cairn can load what was committed before."""
    for _ in range(2 * DUE):
        job.run(uploads_end=False)
    rig = job.begin_snapshot()
    for _ in range(batches_after):
        job.batch(rig)
    job.end(rig, uploads_end=True)
    name = manifest_name(job.newest_manifest().ref)
    fields = json.loads(job.objects().get(name).data) | {"format": 1000}
    del fields["crc32c"]
    fields["crc32c"] = crc32c(dump_object(fields).encode())
    job.objects().put(name, dump_object(fields).encode())

    assert job.lineage() == len(job.ids) - 1


def test_a_job_that_may_not_list_loads_from_the_snapshot_that_its_version_names(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing only makes a load shorter."""
    for _ in range(2 * DUE + 3):
        job.run()
    rig = job.start()

    def refuse(_: object) -> None:
        raise AccessError("ListBucket is not allowed")

    monkeypatch.setattr(rig.state.checkpoint.objects, "list", refuse)
    rig.load(len(job.ids) - 1, job.ids[-1])

    assert rig.contents(0, len(job.ids) - 1, page_rows=1000) == job.rows
    rig.crash()


def await_closed(rig: Rig) -> None:
    until = time.monotonic() + 20
    while not rig.state.is_closed:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_store_that_is_closed_ends_its_snapshot_first(job: Job) -> None:
    """Spark closes the stores of a query that has ended; its application may go on for long."""
    for _ in range(DUE):
        job.run(uploads_end=False)
    rig = job.start()
    job.batch(rig)

    rig.instance.close(snapshot_wait_s=20)

    objects = objects_of(rig)
    assert not rig.state.is_closed
    objects.may_upload.set()
    assert rig.resources.snapshots.wait(20) == []
    assert job.names()["snapshot"] == 1
    await_closed(rig)
    rig.crash()


def test_a_store_that_is_closed_ends_the_clean_up_of_its_snapshot_first(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may not have begun. The manifest says already that it sweeps: none would for a day."""
    for _ in range(DUE):
        job.run(uploads_end=False)
    may_clean_up = threading.Event()

    def late(state: StoreState, store_time: datetime | None, *, sweeps: bool) -> int:
        assert may_clean_up.wait(20)
        return purge(state, store_time, sweeps=sweeps)

    monkeypatch.setattr(snapshot, "purge", late)
    rig = job.start()
    objects = objects_of(rig)
    objects.may_upload.set()
    job.batch(rig)
    run = rig.state.snapshots.run
    if run is not None:
        run.result(20)

    rig.instance.close(snapshot_wait_s=20)

    assert not rig.state.is_closed
    may_clean_up.set()
    await_closed(rig)
    assert rig.resources.snapshots.wait(0) == []
    rig.crash()


def test_a_store_whose_upload_stands_still_is_closed_in_time(job: Job) -> None:
    """Its local disk and memory must not stay in use."""
    for _ in range(DUE):
        job.run(uploads_end=False)
    rig = job.start()
    job.batch(rig)

    objects = objects_of(rig)
    assert objects.has_begun.wait(20)
    rig.instance.close(snapshot_wait_s=0.1)

    await_closed(rig)
    assert job.end(rig, uploads_end=False) == [str(STORE)]
