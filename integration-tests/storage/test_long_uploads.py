"""Uploads that take longer than the grace period, by a real worker to a real server."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.retention import KeptVersions
from cairn.format import manifest as manifest_format
from cairn.format.manifest import ChangelogRef, Manifest
from cairn.ids import CheckpointId, VersionRef
from cairn.storage.open import open_store
from harness.processes import wait_until
from harness.tcp_proxy import Fault, TcpProxy

ENGINE_TESTS = Path(__file__).parents[2] / "python" / "tests"
sys.path[:0] = [str(ENGINE_TESTS / "engine"), str(ENGINE_TESTS / "property" / "engine")]

from client import PUT, EngineError, Store, WorkerProcess

if TYPE_CHECKING:
    from cairn.storage.base import ObjectStore
    from harness.s3 import S3Bucket

GRACE_MS = 6_000
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
TWO_THREADS = "from cairn.checkpoint import transfers; transfers.UPLOAD_THREADS = 2"
CONF = {"minDeltasForSnapshot": "2", "minBatchesToRetain": "10", "orphanGraceMs": str(GRACE_MS)}


class Scene:
    """A store with a snapshot, in a worker that reaches its bucket through a proxy."""

    def __init__(self, bucket: S3Bucket, proxy: TcpProxy, folder: Path) -> None:
        self.url = f"{bucket.url}/state/0/3"
        self.folder = folder
        self.settings = bucket.settings
        self.objects: ObjectStore = open_store(self.url, bucket.settings)
        self.proxy = proxy
        self.workers: list[WorkerProcess] = []
        self.rows: dict[bytes, bytes] = {}
        self.store = self.open({**bucket.settings, "endpoint_url": proxy.url})
        self.store.load(0)
        self.write(2)
        self.maintain(cleanup=False)
        self.first = self.newest_manifest()
        self.write(3)

    def open(self, settings: dict[str, str]) -> Store:
        """Open the store in a new worker with a disk of its own."""
        self.workers.append(WorkerProcess(self.folder / f"local{len(self.workers)}"))
        self.workers[-1].storage = settings
        return Store(self.workers[-1], 1, self.url, conf=CONF)

    def write(self, versions: int) -> None:
        """Commit versions with rows of their own."""
        for _ in range(versions):
            number = self.store.version + 1
            rows = {b"%d-%d" % (number, n): b"v%d" % n for n in range(300)}
            self.store.write([(PUT, 0, key, value) for key, value in rows.items()])
            self.store.commit()
            self.rows |= rows
            self.store.load(number, self.store.checkpoint_id)

    def maintain(self, *, cleanup: bool = True) -> int:
        """Run maintenance; return the newest version with a snapshot."""
        answer = self.store.worker.call(
            "maintain",
            instance=1,
            storage=None,
            snapshot=True,
            cleanup=cleanup,
            wait_ms=100_000,
        )
        return int(answer["snapshot_version"])

    def newest_manifest(self) -> Manifest:
        """Return the manifest of the highest version."""
        names = [info.key for info in self.objects.list("snapshot/")]
        name = max(names, key=lambda name: int(name.split("/")[1].split("_")[0]))
        return manifest_format.decode(self.objects.get(name).data, object_name=name)

    def sweep(self) -> int:
        """Sweep as another writer, which begins with the store's first manifest."""
        self.objects.put("changelog/900000.arrow", b"a young object: the server's time")
        version = VersionRef(self.store.version, CheckpointId(str(self.store.checkpoint_id)))
        base = self.first.changelogs[-1].base
        recent = (ChangelogRef(version, base),)
        kept = KeptVersions(self.store.version, 10, recent)
        return len(sweep_orphans(self.objects, self.first, kept, SweepLimits(GRACE_MS)))

    def count(self, prefix: str) -> int:
        """Return the number of objects."""
        return len(list(self.objects.list(prefix)))

    def all_ssts(self) -> set[str]:
        """Return the SSTs that manifests name."""
        names = [info.key for info in self.objects.list("snapshot/")]
        manifests = [
            manifest_format.decode(self.objects.get(name).data, object_name=name) for name in names
        ]
        return {file.object_name for one in manifests for file in one.files}

    def unnamed_ssts(self) -> dict[str, datetime]:
        """Return the SSTs that no manifest names, with the times of their uploads."""
        named = self.all_ssts()
        ssts = self.objects.list("sst/")
        return {info.key: info.last_modified for info in ssts if info.key not in named}

    def has_swept_beyond_grace(self) -> bool:
        """Sweep; return whether an SST that no manifest names was older than the grace period."""
        oldest = min(self.unnamed_ssts().values())
        self.sweep()
        (young,) = self.objects.list("changelog/900000.arrow")
        return young.last_modified - oldest > timedelta(milliseconds=GRACE_MS)

    def check(self, checkpoint_id: str | None) -> Store:
        """Load the newest version in a new worker and compare all rows."""
        other = self.open(self.settings)
        other.load(self.store.version, checkpoint_id)
        assert other.scan() == self.rows
        return other

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.close()
        self.objects.close()


@pytest.fixture
def scene(s3_bucket: S3Bucket, tmp_path: Path) -> Iterator[Scene]:
    """A store in a bucket."""
    with TcpProxy(s3_bucket.endpoint.endpoint_url) as proxy:
        made = Scene(s3_bucket, proxy, tmp_path)
        yield made
        made.close()


def test_stores_that_wait_for_few_threads_all_get_their_snapshot(
    s3_bucket: S3Bucket, tmp_path: Path
) -> None:
    """A large first snapshot of many stores: the time in the queue must not count."""
    conf = CONF | {"orphanGraceMs": "4000"}
    with TcpProxy(s3_bucket.endpoint.endpoint_url) as proxy, ThreadPoolExecutor(12) as threads:
        worker = WorkerProcess(tmp_path / "local", patch=TWO_THREADS)
        worker.storage = {**s3_bucket.settings, "endpoint_url": proxy.url}

        def open_and_fill(number: int) -> None:
            store = Store(worker, number, f"{s3_bucket.url}/state/0/{number}", conf=conf)
            store.load(0)
            for version in range(1, 4):
                store.write([(PUT, 0, b"%d" % version, b"v" * 1000)])
                store.commit()
                store.load(version, store.checkpoint_id)

        def maintain(number: int) -> int:
            answer = worker.call(
                "maintain",
                instance=number,
                storage=None,
                snapshot=True,
                cleanup=False,
                wait_ms=100_000,
            )
            return int(answer["snapshot_version"])

        try:
            list(threads.map(open_and_fill, range(1, 13)))
            # Twelve files on two threads: the last one ends after one and a half grace periods.
            slow = proxy.add(
                Fault(b"PUT ", contains=b"/sst/", times=100, before=lambda: time.sleep(1))
            )
            versions = list(threads.map(maintain, range(1, 13)))
        finally:
            worker.close()

    assert slow.applied == 12
    assert versions == [3] * 12


def begin_slow_upload(scene: Scene, go_on: threading.Event) -> threading.Thread:
    """Continue a failed upload, and let its second SST wait for an event; return with the pin."""
    refused = scene.proxy.add(Fault(b"PUT ", contains=b"/snapshot/", answer=FORBIDDEN))
    with suppress(EngineError):
        scene.maintain()
    assert refused.applied == 1
    assert len(scene.unnamed_ssts()) == 1
    scene.write(1)

    def wait() -> None:
        go_on.wait(60)

    scene.proxy.add(Fault(b"PUT ", contains=b"/sst/", before=wait))

    def maintain() -> None:
        with suppress(Exception):  # the worker may be killed
            scene.maintain()

    maintenance = threading.Thread(target=maintain)
    maintenance.start()
    wait_until(lambda: scene.count("pin/") > 0, 30, "the pin of the upload")
    return maintenance


def test_sweeps_keep_the_files_of_an_upload_beyond_the_grace_period(scene: Scene) -> None:
    """A first snapshot of hours must end, and its files must be there then."""
    go_on = threading.Event()
    maintenance = begin_slow_upload(scene, go_on)
    before = {info.key for info in scene.objects.list("pin/")}
    uploaded = scene.unnamed_ssts()

    wait_until(scene.has_swept_beyond_grace, 30, "the end of the file's grace period")
    assert scene.unnamed_ssts() == uploaded
    assert not before & {info.key for info in scene.objects.list("pin/")}, "it was not renewed"
    go_on.set()
    maintenance.join(60)
    scene.sweep()

    assert scene.newest_manifest().ref.version == 6
    assert uploaded.keys() <= scene.all_ssts()
    assert scene.count("pin/") == 0
    scene.check(scene.store.checkpoint_id)


def test_after_kill_9_in_a_long_upload_no_row_and_no_object_is_left(scene: Scene) -> None:
    """The next worker continues, and the dead one's files and pin are swept after their time."""
    go_on = threading.Event()
    maintenance = begin_slow_upload(scene, go_on)
    scene.workers[0].kill()
    go_on.set()
    maintenance.join(30)

    scene.store = scene.check(scene.store.checkpoint_id)
    assert scene.unnamed_ssts()
    assert scene.maintain(cleanup=False) == 6
    wait_until(
        lambda: (scene.sweep(), scene.count("pin/"))[1] == 0, 60, "the sweep of the dead pin"
    )
    wait_until(
        lambda: (scene.sweep(), scene.count("sst/"))[1] == len(scene.all_ssts()),
        60,
        "the sweep of the dead worker's files",
    )

    scene.check(scene.store.checkpoint_id)
