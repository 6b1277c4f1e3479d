"""The start and the end of a worker, and what the next one finds."""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from client import APPEND, DELETE, PUT, Channel, EngineError, Store, WorkerProcess

from cairn.protocol import frames
from harness.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_the_end_of_standard_input_ends_the_worker_and_its_directories(
    worker: WorkerProcess, store: Store, tmp_path: Path
) -> None:
    """However an executor dies, its workers end and leave nothing on the disk."""
    store.write([(PUT, 0, b"a", b"1")])
    store.commit()
    store.write([(PUT, 0, b"open", b"1")])

    assert worker.process.stdin is not None
    worker.process.stdin.close()

    assert worker.process.wait(5) == 0
    assert list((tmp_path / "local").iterdir()) == []
    assert not os.path.exists(worker.ready["socket"])  # noqa: PTH110 - a socket's path


@pytest.mark.parametrize("others", [{}, {"protocol": 99}], ids=["", "and protocol"])
@pytest.mark.parametrize("release", ["0.0.9", None])
def test_a_jar_of_another_release_is_refused(
    spawn: Callable[..., WorkerProcess],
    tmp_path: Path,
    release: str | None,
    others: dict[str, int],
) -> None:
    """Frames of one protocol may still differ in meaning between releases."""
    with pytest.raises(EngineError) as refused:
        spawn(release=release, **others)

    assert refused.value.code == "CAIRN_RELEASE"
    assert not list(tmp_path.glob("local/*"))


def test_sigterm_ends_it_and_sigint_does_not(
    worker: WorkerProcess, store: Store, tmp_path: Path
) -> None:
    """Ctrl-C goes to the whole group: the driver must still be able to commit."""
    worker.process.send_signal(signal.SIGINT)
    store.write([(PUT, 0, b"a", b"1")])
    store.commit()
    assert worker.process.poll() is None

    worker.process.send_signal(signal.SIGTERM)

    assert worker.process.wait(5) == 0
    assert list((tmp_path / "local").iterdir()) == []


def test_after_kill_9_the_next_worker_loads_every_version(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path
) -> None:
    """Durability depends only on the objects; the dead worker's directories are removed."""
    first = spawn()
    store = Store(first, 1, url)
    store.load(0)
    ids: list[str | None] = [None]
    for version in range(1, 4):
        store.write([(PUT, 0, b"v", b"%d" % version)])
        store.commit()
        ids.append(store.checkpoint_id)
        store.load(version, store.checkpoint_id)
    first.kill()
    left = set((tmp_path / "local").iterdir())

    again = Store(spawn(), 1, url)

    # Its own directory, and the slot of the dead worker's cache.
    assert len(list((tmp_path / "local").iterdir())) == 2
    assert len(left & set((tmp_path / "local").iterdir())) == 1
    for version in (3, 1, 2):
        again.load(version, ids[version])
        assert again.scan() == {b"v": b"%d" % version}


def test_after_kill_9_the_next_worker_downloads_no_sst_again(
    spawn: Callable[..., WorkerProcess], url: str, tmp_path: Path
) -> None:
    """Otherwise each death of a worker would download gigabytes of state."""
    first = spawn()
    store = Store(first, 1, url, conf={"minDeltasForSnapshot": "1"})
    store.load(0)
    store.write([(PUT, 0, b"%05d" % row, b"v" * 50) for row in range(5000)])
    store.commit()
    store.load(1, store.checkpoint_id)
    first.call("maintain", instance=1, storage=None, snapshot=True, cleanup=False)
    store.write([(PUT, 0, b"later", b"1")])
    store.commit()
    last = store.checkpoint_id
    first.kill()

    again = Store(spawn(), 1, url)
    answer = again.load(2, last)

    assert (answer["source"], answer["changelogs_replayed"]) == ("snapshot", 1)
    changelog = Path(url) / "changelog" / f"2_{last}.arrow"
    assert answer["bytes_downloaded"] == changelog.stat().st_size
    assert len(again.scan()) == 5001
    assert len(list((tmp_path / "local").iterdir())) == 2


@pytest.mark.parametrize("ending", ["end of the executor", "kill -9 of the worker"])
def test_a_restart_downloads_no_sst_that_the_machine_has(
    spawn: Callable[..., WorkerProcess], url: str, ending: str
) -> None:
    """Also in another worker than the one that had the store."""
    workers = [spawn(keeps_cache=True), spawn(keeps_cache=True)]
    stores = []
    for number, worker in enumerate(workers):
        store = Store(worker, 1, f"{url}/{number}", conf={"minDeltasForSnapshot": "1"})
        store.load(0)
        store.write([(PUT, 0, b"%05d" % row, b"v" * 50) for row in range(5000)])
        store.commit()
        store.load(1, store.checkpoint_id)
        worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=False)
        store.commit()
        store.load(2, store.checkpoint_id)
        store.write([(PUT, 0, b"later", b"1")])
        store.commit()
        stores.append(store)
    for worker in workers:
        if ending == "kill -9 of the worker":
            worker.kill()
        else:
            # Its standard input ends, in order or by a kill -9 of the executor.
            worker.close()

    # One worker now, with the stores of two: one cache is its own, the other one is found.
    only = spawn(keeps_cache=True)
    for number, store in enumerate(stores):
        again = Store(only, 1 + number, f"{url}/{number}")
        answer = again.load(3, store.checkpoint_id)
        changelog = Path(url) / str(number) / "changelog" / f"3_{store.checkpoint_id}.arrow"
        assert answer["source"] == "snapshot"
        assert answer["bytes_downloaded"] == changelog.stat().st_size
        assert len(again.scan()) == 5001


def test_after_kill_9_during_idle_batches_every_version_loads(
    spawn: Callable[..., WorkerProcess], url: str
) -> None:
    """The session continues in another worker, from an empty commit, as the shim does it."""
    conf = {"minDeltasForSnapshot": "1", "minBatchesToRetain": "3", "orphanGraceMs": "0"}
    worker = spawn()
    store = Store(worker, 1, url, conf=conf)
    store.load(0)
    ids: list[str | None] = [None]
    rows: list[dict[bytes, bytes]] = [{}]
    for version in range(1, 21):
        if version % 10 == 3:  # never in a version in which the worker is killed
            store.write([(PUT, 0, b"%d" % version, b"1")])
            rows.append(rows[-1] | {b"%d" % version: b"1"})
        else:
            rows.append(rows[-1])
        if version % 4 == 0:
            worker.kill()
            worker = spawn()
            store = Store(worker, 1, url, conf=conf)
            store.load(version - 1, ids[-1])
        store.commit()
        ids.append(store.checkpoint_id)
        if version % 4 == 2:
            worker.kill()
            worker = spawn()
            store = Store(worker, 1, url, conf=conf)
        store.load(version, ids[-1])
        assert store.scan() == rows[-1]
        worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=True)

    kept = {path.name.split("_")[0] for path in (Path(url) / "changelog").iterdir()}
    assert "1" not in kept
    assert not {str(version) for version in range(14, 21)} & kept
    for version in (18, 20, 19):
        store.load(version, ids[version])
        assert store.scan() == rows[version]


def test_a_second_worker_keeps_the_first_ones_directories(
    spawn: Callable[..., WorkerProcess], url: str
) -> None:
    """Two workers of one executor share the folder."""
    store = Store(spawn(), 1, url)
    store.load(0)
    store.write([(PUT, 0, b"a", b"1")])

    spawn()

    store.commit()
    store.load(1, store.checkpoint_id)
    assert store.scan() == {b"a": b"1"}


def test_a_wrong_token_is_refused_on_both_channels(worker: WorkerProcess) -> None:
    """Another user of the machine must not read state."""
    with pytest.raises((EngineError, ConnectionError)):
        Channel(worker.ready["socket"], "no" * 32)

    with socket.create_connection(("127.0.0.1", worker.ready["port"]), timeout=5) as peer:
        peer.sendall(b"A\nwrong\ne\n")
        assert not peer.recv(100).startswith(b"!yv")


def test_a_broken_connection_fails_only_itself(worker: WorkerProcess, store: Store) -> None:
    """A task that sends garbage must not disturb another."""
    broken = worker.channel()
    broken.socket.sendall(b"\0" * 100)

    with pytest.raises(EngineError, match="CRNF"):
        broken.receive()

    store.write([(PUT, 0, b"a", b"1")])
    assert store.commit()["counts"]["0"] == 1


def test_the_answer_to_a_malformed_record_batch_is_an_error(store: Store) -> None:
    """The connection stays usable: its next request is served."""
    store.channel.send(frames.GET, store.session, b"nonsense" * 4, rows=1)
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
        store.channel.receive()
    assert store.get([b"a"]) == [(0, None)]

    store.channel.send(frames.WRITES, store.session, b"nonsense" * 4, sequence=1, rows=1)
    store.frames, store.rows = 1, 1
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
        store.commit()


def test_another_protocol_is_refused_at_the_start(tmp_path: Path) -> None:
    """A jar and a wheel of two builds of one release must not work together."""
    with pytest.raises(EngineError, match="uses protocol 99"):
        WorkerProcess(tmp_path, protocol=99)


def test_a_local_dir_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """The message names the setting."""
    (tmp_path / "file").write_text("")

    with pytest.raises(EngineError) as failed:
        WorkerProcess(tmp_path / "file" / "below")

    assert failed.value.code == "CAIRN_CONFIG"
    assert "localDir" in failed.value.fields["next"]


def test_an_unknown_method_and_bad_arguments_are_errors_as_data(worker: WorkerProcess) -> None:
    """Py4J would send a traceback with the arguments, including secrets."""
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL"):
        worker.call("nonsense")
    with pytest.raises(EngineError, match="CAIRN_PROTOCOL") as failed:
        worker.call("load", storage={"secret": "s3cr3t"})
    assert "s3cr3t" not in str(failed.value.fields)


@pytest.mark.parametrize(
    "reached",
    [
        None,  # no snapshot was begun
        "one",  # the local directory: the request was sent
        "one/**/*.sst",
        "checkpoint/**/*.sst",
        "checkpoint/**/snapshot/*.json",
    ],
)
def test_kill_9_with_versions_in_memory_loses_none(
    spawn: Callable[..., WorkerProcess], tmp_path: Path, url: str, reached: str | None
) -> None:
    """Committed versions wait in memory for a snapshot; the kill lands when a file is there."""
    first = spawn(local=tmp_path / "one")
    store = Store(first, 1, url, conf={"minDeltasForSnapshot": "1", "minBatchesToRetain": "100"})
    store.load(0)
    expected: dict[bytes, bytes] = {}
    for version in range(1, 13):
        keys = [b"%06d" % (number * 7919 % 50_000) for number in range(version, version + 4000)]
        rows = {key: b"%d-" % version + key for key in keys}
        removed = [key for key in list(expected)[:50] if key not in rows]
        store.write(
            [(PUT, 0, key, value) for key, value in rows.items()]
            + [(DELETE, 0, key, None) for key in removed]
            + [(APPEND, 1, b"L", b"%d," % version)]
        )
        store.commit()
        expected |= rows
        for key in removed:
            del expected[key]
        store.load(version, store.checkpoint_id)
    assert store.scan() == expected
    last = store.checkpoint_id
    maintenance = threading.Thread(target=lambda: suppressed(lambda: maintain(first)))
    if reached is not None:
        maintenance.start()
        wait_until(lambda: any(tmp_path.glob(reached)), 30, reached)
    first.kill()
    if reached is not None:
        maintenance.join(30)

    again = Store(spawn(local=tmp_path / "two"), 1, url)
    again.load(12, last)

    assert again.scan() == expected
    assert again.scan(1) == {b"L": b"".join(b"%d," % version for version in range(1, 13))}


def maintain(worker: WorkerProcess) -> None:
    worker.call("maintain", instance=1, storage=None, snapshot=True, cleanup=False)


def suppressed(act: Callable[[], None]) -> None:
    """Ignore the error of a call whose worker is killed."""
    with suppress(Exception):
        act()


# An upload makes "uploads", and does not end before "go" is there.
HELD_UPLOADS = """
import pathlib, time
from cairn.storage.local import LocalStore
upload, folder = LocalStore.upload, pathlib.Path({folder!r})
def held(self, *arguments, **named):
    (folder / 'uploads').touch()
    while not (folder / 'go').exists():
        time.sleep(0.01)
    return upload(self, *arguments, **named)
LocalStore.upload = held
"""


@pytest.fixture
def short_run(tmp_path: Path, url: str) -> Iterator[WorkerProcess]:
    """Return a worker whose snapshot has begun, and ends after ``go`` is there."""
    worker = WorkerProcess(tmp_path / "local", patch=HELD_UPLOADS.format(folder=str(tmp_path)))
    store = Store(worker, 1, url, conf={"minDeltasForSnapshot": "2"})
    store.load(0)
    for number in range(9):
        store.write([(PUT, 0, b"%d" % number, b"1")])
        store.commit()
        store.load(store.version, store.checkpoint_id)
    wait_until((tmp_path / "uploads").exists, 20, "the snapshot's first upload")
    yield worker
    worker.close()


def manifests(tmp_path: Path) -> list[str]:
    return [path.name for path in tmp_path.rglob("snapshot/*.json")]


def test_a_snapshot_may_end_before_its_worker_does(
    short_run: WorkerProcess, tmp_path: Path
) -> None:
    """Most scheduled runs end within seconds after their only commits."""
    finish = short_run.begin("finish", wait_ms=100, snapshot_wait_ms=20_000)
    assert "running" in finish.answer
    (tmp_path / "go").touch()

    assert finish.wait(20_000) == {"ok": {"left": []}}

    short_run.close()
    assert len(manifests(tmp_path)) == 1


def test_a_worker_does_not_wait_longer_for_a_snapshot_than_it_is_told(
    short_run: WorkerProcess, tmp_path: Path
) -> None:
    """A container that is ended is killed after a while, with what it does then."""
    finish = short_run.begin("finish", wait_ms=20_000, snapshot_wait_ms=100)
    short_run.close()

    assert finish.answer == {"ok": {"left": ["0/3/default"]}}
    assert manifests(tmp_path) == []


def test_a_store_is_closed_after_its_snapshot(short_run: WorkerProcess, tmp_path: Path) -> None:
    """Spark closes the stores of an ended query while its application goes on."""
    short_run.call("close_instance", instance=1, snapshot_wait_ms=20_000)
    assert manifests(tmp_path) == []
    (tmp_path / "go").touch()

    wait_until(lambda: len(manifests(tmp_path)) == 1, 20, "the manifest")
    wait_until(lambda: not list(tmp_path.rglob("i1/d*")), 20, "the end of the database")
