"""Too many open files: CAIRN_OPEN_FILES, not a fault of the disk; nothing is lost or hangs."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from client import PUT, Channel, EngineError, Store, WorkerProcess

from harness.processes import wait_until

LIMIT = 120
LOW = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))"
ROWS = [(PUT, 0, b"%d" % n, b"x" * 100, 2) for n in range(50)]


@pytest.fixture
def worker(spawn: Callable[..., WorkerProcess]) -> WorkerProcess:
    """Return a worker that may open few files."""
    return spawn(patch=LOW)


def opened(worker: WorkerProcess, number: int, folder: Path) -> Store:
    store = Store(worker, number, str(folder / str(number)))
    store.load(0)
    return store


def committed(store: Store) -> None:
    store.write(ROWS)
    store.commit()


def open_many(worker: WorkerProcess, folder: Path, stores: list[Store]) -> None:
    """Open more stores than can be; ``stores`` receives them."""
    while len(stores) < LIMIT:
        stores.append(opened(worker, len(stores) + 1, folder))
        committed(stores[-1])


def connect_often(worker: WorkerProcess, held: ExitStack) -> None:
    for _ in range(LIMIT):
        held.callback(Channel(worker.ready["socket"], worker.token).close)


def descriptors(worker: WorkerProcess) -> int:
    return len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))


def test_more_stores_than_the_limit_allows_is_named(worker: WorkerProcess, tmp_path: Path) -> None:
    """Who reads "check the disk" looks at a disk that is well."""
    stores: list[Store] = []

    with pytest.raises(EngineError, match="CAIRN_OPEN_FILES") as failure:
        open_many(worker, tmp_path, stores)

    text = failure.value.fields["message"]
    assert failure.value.kind == "retry"
    assert f"its limit is {LIMIT} (hard limit {LIMIT})" in text
    # The last one failed at its open or its commit.
    assert f"it has {len(stores)} databases" in text or f"it has {len(stores) - 1} data" in text
    assert "ulimit -n" in failure.value.fields["next"]


def test_a_store_goes_on_when_others_are_closed(worker: WorkerProcess, tmp_path: Path) -> None:
    """The retry of the task finds what the first attempt had, once there are descriptors."""
    stores: list[Store] = []
    with pytest.raises(EngineError, match="CAIRN_OPEN_FILES"):
        open_many(worker, tmp_path, stores)
    for number in range(2, len(stores)):
        worker.call("close_instance", instance=number)

    first = stores[0]
    first.load(1, first.checkpoint_id)
    committed(first)
    again = opened(worker, LIMIT + 1, tmp_path)
    committed(again)

    first.load(2, first.checkpoint_id)
    assert [value for _, value in first.get([b"7"])] == [b"x" * 100]


def test_a_connection_that_has_no_descriptor_is_told_why(worker: WorkerProcess) -> None:
    """It stays in the queue otherwise: the task waits, and the worker's loop does not rest."""
    with ExitStack() as held, pytest.raises(EngineError, match="CAIRN_OPEN_FILES"):
        connect_often(worker, held)

    wait_until(lambda: descriptors(worker) < LIMIT // 2, 30, "the end of the connections")
    Channel(worker.ready["socket"], worker.token).close()


def test_the_worker_answers_calls_after_connections_without_descriptors(
    worker: WorkerProcess,
) -> None:
    """Py4J's server ends at the first error of an accept; the worker would be deaf for good."""
    with ExitStack() as held:
        connections = [
            held.enter_context(socket.create_connection(("127.0.0.1", worker.ready["port"]), 5))
            for _ in range(LIMIT)
        ]
        refused, _, _ = select.select(connections, [], [], 30)
        assert refused, "no connection was refused within 30 s"
        assert refused[0].recv(1) == b""

    wait_until(lambda: descriptors(worker) < LIMIT // 2, 30, "the end of the connections")
    assert "moved" in worker.exchange("activity")["ok"]
