"""A load may take long: its caller sees that it moves, can give it up, and loses nothing."""

from __future__ import annotations

import random
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from client import PUT, EngineError, Job, Store, WorkerProcess

from cairn.protocol.frames import PRESENCE_ABSENT

CONF = {"minDeltasForSnapshot": "1"}
SNAPSHOTS = 6

THREADS = """
from cairn.checkpoint import transfers
transfers.DOWNLOAD_THREADS = {count}
"""
# While the file "gate" is there, a worker has as many downloads as its number; the next one waits.
# While "stuck" is there, requests of the kind that it names do not end; the first makes "held".
STORAGE = """
import os, time
from cairn.storage.local import LocalStore
folder = {folder!r}
begun = []
def patch(name, read):
    def patched(self, key, *arguments, **named):
        if name == 'download':
            gate = folder + '/gate'
            while os.path.exists(gate) and len(begun) >= int(open(gate).read() or 0):
                time.sleep(0.01)
            begun.append(key)
        while os.path.exists(folder + '/stuck') and open(folder + '/stuck').read() in name + key:
            open(folder + '/held', 'w').close()
            time.sleep(0.01)
        return read(self, key, *arguments, **named)
    setattr(LocalStore, name, patched)
for name in ('get', 'get_start', 'download', 'put'):
    patch(name, getattr(LocalStore, name))
"""


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """Return the folder whose files make the storage wait."""
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


@pytest.fixture
def patched(spawn: Callable[..., WorkerProcess], faults: Path) -> Callable[..., WorkerProcess]:
    """Return a function that spawns a worker whose storage obeys ``faults``."""
    patch = STORAGE.format(folder=str(faults))

    def start(*, download_threads: int = 1, **overrides: object) -> WorkerProcess:
        threads = THREADS.format(count=download_threads)
        return spawn(**{"patch": threads + patch} | overrides)

    return start


def committed(worker: WorkerProcess, url: str, *, extra_versions: int = 0) -> str:
    """Commit versions of 50 KB, each with a snapshot, and some without; return the last id.

    The commits state that the keys are new, so nothing is read: each version keeps its own file.
    """
    store = Store(worker, 1, url, conf=CONF)
    for version in range(1, SNAPSHOTS + 1 + extra_versions):
        store.load(version - 1, store.checkpoint_id)
        value = random.Random(version).randbytes(50_000)
        store.write([(PUT, 0, b"k%d" % version, value, PRESENCE_ABSENT)])
        store.commit()
        if version <= SNAPSHOTS:
            worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=False)
    assert store.checkpoint_id is not None
    return store.checkpoint_id


@pytest.fixture(scope="module")
def of_module(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return versions with a snapshot each, which tests copy, and the last id."""
    folder = tmp_path_factory.mktemp("committed")
    worker = WorkerProcess(folder / "local")
    try:
        return folder / "store", committed(worker, str(folder / "store"))
    finally:
        worker.close()


@pytest.fixture
def last(of_module: tuple[Path, str], url: str) -> str:
    """Copy the versions to the test's place; return the last id."""
    folder, checkpoint_id = of_module
    shutil.copytree(folder, url)
    return checkpoint_id


def begin_load(store: Store, version: int, checkpoint_id: str) -> Job:
    """Begin a load, and return while it runs."""
    store.session_number += 1
    store.version = version
    store.checkpoint_id = checkpoint_id
    job = store.worker.begin(
        "load",
        wait_ms=50,
        instance=store.number,
        session=store.session,
        version=version,
        checkpoint_id=checkpoint_id,
        load_empty=False,
    )
    assert "running" in job.answer, job.answer
    return job


def until_moved(job: Job, kind: str, count: int) -> None:
    """Wait until the load has downloaded ("has") or replayed ("has replayed") so many objects."""
    deadline = time.monotonic() + 20
    found = None
    while found is None or int(found[1]) < count:
        assert time.monotonic() < deadline
        found = re.match(rf"{kind} (\d+) of", job.wait(20)["running"]["text"])


def until_held(faults: Path) -> None:
    """Wait until a request does not end."""
    deadline = time.monotonic() + 20
    while not (faults / "held").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def keys_of(store: Store) -> list[bytes]:
    return sorted(store.scan())


ALL_KEYS = [b"k%d" % version for version in range(1, SNAPSHOTS + 1)]


def test_a_slow_load_answers_every_message_and_shows_that_it_moves(
    patched: Callable[..., WorkerProcess], last: str, url: str, faults: Path, tmp_path: Path
) -> None:
    """A load of an hour must not look like a worker that is stuck."""
    (faults / "gate").write_text("0")
    store = Store(patched(local=tmp_path / "other"), 1, url, conf=CONF)
    job = begin_load(store, SNAPSHOTS, last)
    moves: list[tuple[int, str]] = []
    answer = job.answer

    while "running" in answer:
        moves.append((answer["running"]["moved"], answer["running"]["text"]))
        (faults / "gate").write_text(str(len(moves)))
        began = time.monotonic()
        answer = job.wait(50)
        assert time.monotonic() - began < 5

    assert answer["ok"]["source"] == "snapshot"
    assert len({count for count, _ in moves}) >= 3
    assert any("files" in text and "MiB" in text for _, text in moves)
    assert [count for count, _ in moves] == sorted(count for count, _ in moves)
    assert keys_of(store) == ALL_KEYS


@pytest.mark.parametrize("disk_bytes", [1 << 30, 0])
def test_a_load_that_was_given_up_leaves_its_files_to_the_next(
    patched: Callable[..., WorkerProcess],
    last: str,
    url: str,
    faults: Path,
    tmp_path: Path,
    disk_bytes: int,
) -> None:
    """Also if the SST cache has no place for them: else a large state never gets loaded."""
    (faults / "gate").write_text("3")
    worker = patched(local=tmp_path / "other", local_disk_bytes=disk_bytes)
    store = Store(worker, 1, url, conf=CONF)
    job = begin_load(store, SNAPSHOTS, last)
    until_moved(job, "has", 3)

    job.cancel()
    (faults / "gate").write_text("1000")

    answer = store.load(SNAPSHOTS, last)
    assert answer["source"] == "snapshot"
    assert 0 < answer["bytes_downloaded"] <= (SNAPSHOTS - 2) * 55_000
    assert keys_of(store) == ALL_KEYS


def test_a_load_after_a_crash_uses_what_the_dead_worker_downloaded(
    patched: Callable[..., WorkerProcess], last: str, url: str, faults: Path, tmp_path: Path
) -> None:
    """A worker that dies in a long load must not make it start anew."""
    (faults / "gate").write_text("4")
    first = patched(local=tmp_path / "other", keeps_cache=True)
    job = begin_load(Store(first, 1, url, conf=CONF), SNAPSHOTS, last)
    until_moved(job, "has", 4)

    first.kill()

    store = Store(patched(local=tmp_path / "other", keeps_cache=True), 1, url, conf=CONF)
    assert store.load(SNAPSHOTS, last)["bytes_downloaded"] < 3 * 55_000
    assert keys_of(store) == ALL_KEYS


def test_a_replay_continues_where_it_was_given_up(
    patched: Callable[..., WorkerProcess], url: str, faults: Path, tmp_path: Path
) -> None:
    """The changelogs that were applied need not be read again."""
    more = 4  # with more, a commit would begin a snapshot
    last = committed(patched(), url, extra_versions=more)
    worker = patched(local=tmp_path / "other", download_threads=4)
    store = Store(worker, 1, url, conf=CONF)
    (faults / "stuck").write_text(f"getchangelog/{SNAPSHOTS + more - 1}_")
    job = begin_load(store, SNAPSHOTS + more, last)
    until_moved(job, "has replayed", 2)

    job.cancel()
    (faults / "stuck").unlink()

    answer = store.load(SNAPSHOTS + more, last)
    assert answer["source"] == "replay"
    assert answer["changelogs_replayed"] == 2
    assert len(keys_of(store)) == SNAPSHOTS + more


@pytest.mark.parametrize("kind", ["get_start", "getsnapshot", "downloadsst"])
def test_a_stuck_storage_holds_neither_a_later_load_nor_the_end_of_the_instance(
    patched: Callable[..., WorkerProcess],
    last: str,
    url: str,
    faults: Path,
    tmp_path: Path,
    kind: str,
) -> None:
    """The task that is tried again, and Spark's unloading, must not wait for dead requests."""
    worker = patched(local=tmp_path / "other")
    store = Store(worker, 1, url, conf=CONF)
    (faults / "stuck").write_text(kind)
    job = begin_load(store, SNAPSHOTS, last)
    until_held(faults)
    began = time.monotonic()

    job.cancel()
    store.load(0)
    worker.call("close_instance", instance=1)

    assert time.monotonic() - began < 5
    (faults / "stuck").unlink()
    again = Store(worker, 2, url, conf=CONF)
    again.load(SNAPSHOTS, last)
    assert keys_of(again) == ALL_KEYS


def test_a_load_that_is_cancelled_before_it_arrives_changes_nothing(
    worker: WorkerProcess, store: Store
) -> None:
    """It would take the store from the task that has it now."""
    store.load(0)
    store.write([(PUT, 0, b"k", b"v")])
    worker.exchange("cancel", job=1 << 40)

    answer = worker.exchange(
        "load",
        job=1 << 40,
        answer_within_ms=10_000,
        instance=store.number,
        session=store.session + 1,
        version=0,
        checkpoint_id=None,
        load_empty=False,
    )

    assert answer["error"]["code"] == "CAIRN_CANCELLED"
    assert store.commit()["counts"]["0"] == 1


def test_an_instance_is_closed_while_it_loads(
    patched: Callable[..., WorkerProcess], last: str, url: str, faults: Path, tmp_path: Path
) -> None:
    """Spark closes a provider under a lock that all maintenance needs."""
    worker = patched(local=tmp_path / "other")
    (faults / "stuck").write_text("downloadsst")
    job = begin_load(Store(worker, 1, url, conf=CONF), SNAPSHOTS, last)
    until_held(faults)
    began = time.monotonic()

    worker.call("close_instance", instance=1)

    assert time.monotonic() - began < 5
    assert job.wait()["error"]["code"] == "CAIRN_CANCELLED"


def test_new_credentials_do_not_wait_for_a_load(
    patched: Callable[..., WorkerProcess], last: str, url: str, faults: Path, tmp_path: Path
) -> None:
    """A load of an hour must not hold up the maintenance that brings them."""
    worker = patched(local=tmp_path / "other")
    store = Store(worker, 1, url, conf=CONF)
    (faults / "stuck").write_text("downloadsst")
    job = begin_load(store, SNAPSHOTS, last)
    until_held(faults)
    began = time.monotonic()

    Store(worker, 1, url, conf=CONF)  # opens the instance again

    assert time.monotonic() - began < 5
    (faults / "stuck").unlink()
    answer = job.wait(5000)
    assert answer["ok"]["source"] == "snapshot", answer
    assert keys_of(store) == ALL_KEYS


def test_a_commit_that_is_stuck_does_not_hold_the_end_of_its_instance(
    patched: Callable[..., WorkerProcess], url: str, faults: Path, tmp_path: Path
) -> None:
    """The instance ends after its commit, whose outcome nobody waits for."""
    worker = patched(local=tmp_path / "other")
    store = Store(worker, 1, url, conf=CONF)
    store.load(0)
    store.write([(PUT, 0, b"k", b"v")])
    (faults / "stuck").write_text("putchangelog")
    committing = threading.Thread(target=store.commit)
    committing.start()
    until_held(faults)
    began = time.monotonic()

    worker.call("close_instance", instance=1)

    assert time.monotonic() - began < 5
    (faults / "stuck").unlink()
    committing.join(20)
    assert not committing.is_alive()
    folder = Path(tmp_path / "other")
    deadline = time.monotonic() + 10
    while any(path.name == "i1" for root in folder.iterdir() for path in root.iterdir()):
        assert time.monotonic() < deadline
    assert len(list((Path(url) / "changelog").iterdir())) == 1


def test_a_result_is_given_out_once(worker: WorkerProcess, store: Store) -> None:
    """A job whose result was received leaves nothing behind in the worker."""
    job = worker.begin("abort", instance=store.number, session=store.session)

    assert job.answer == {"ok": {}}
    assert job.wait()["error"]["code"] == "CAIRN_PROTOCOL"
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
        worker.call("nonsense")
