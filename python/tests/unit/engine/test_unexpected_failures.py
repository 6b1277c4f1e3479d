"""What nobody foresaw (memory, Arrow's limits) still reaches the task that waits for it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cairn.engine import frames
from cairn.engine.channel import Connection
from cairn.engine.directories import WorkerDirectories
from cairn.engine.frames import Header
from cairn.engine.worker import Worker, WorkerLimits
from cairn.errors import CairnError
from cairn.store.writes import WRITES_SCHEMA

SESSION = 1 << 32 | 1
FAMILY = {
    "id": 0,
    "name": "default",
    "multi": False,
    "internal": False,
    "ordered": False,
    "key_type": "k",
    "value_type": "v",
    "key_encoder": "{}",
}
ATTEMPT = {"run_id": "run", "app_start_ms": 1, "stage_id": 1, "stage_attempt": 0, "task_attempt": 0}
ONE_PUT = pa.RecordBatch.from_pylist(
    [{"op": 1, "cf": 0, "key": b"a", "value": b"1", "presence": 2}], WRITES_SCHEMA
)
ONE_GET = pa.RecordBatch.from_pylist([{"cf": 0, "key": b"a"}], frames.GET_SCHEMA)


class Served:
    """A worker in this process, one connection to it, and one store at version 0."""

    def __init__(self, local: Path, sockets: Path) -> None:
        self.directories = WorkerDirectories(local, sockets)
        self.worker = Worker(
            self.directories, WorkerLimits(64 << 20, 1 << 20, 1, 1), token=b"token"
        )
        # A worker's sockets end with its process; here somebody must know them.
        self.connections: list[Connection] = []
        on_frame = self.worker.on_frame

        def note(header: Header, payload: memoryview, connection: Connection) -> None:
            if connection not in self.connections:
                self.connections.append(connection)
            on_frame(header, payload, connection)

        self.worker.on_frame = note  # type: ignore[method-assign]
        self.worker.start()
        self.peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.peer.settimeout(20)
        self.peer.connect(str(self.directories.socket_path))
        self.send(frames.HELLO, b"token")
        self.receive()
        self.call(
            "open_instance",
            store={"operator": 0, "partition": 0, "name": "default"},
            url=str(local / "objects"),
            storage={},
            run_id="run",
            checkpoint_format=2,
        )
        self.call("load", session=SESSION, version=0)
        self.instance = self.worker.instance(1)

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - as JSON has it
        return self.worker.find_method(method)({"instance": 1} | arguments)

    def commit(self) -> dict[str, Any]:
        return self.call(
            "commit",
            session=SESSION,
            frames=1,
            rows=1,
            version=1,
            column_families=[FAMILY],
            max_cf_id=0,
            attempt=ATTEMPT,
        )

    def send(
        self,
        kind: int,
        payload: bytes | pa.Buffer,
        *,
        session: int = SESSION,
        sequence: int = 0,
        applied: int = 0,
    ) -> None:
        body = bytes(memoryview(payload))
        self.peer.sendall(
            frames.encode_header(Header(kind, 0, session, sequence, applied, 1, len(body))) + body
        )

    def receive(self) -> tuple[Header, bytes]:
        stream = self.peer.makefile("rb", buffering=0)
        head = stream.read(frames.HEADER_BYTES)
        assert head is not None
        header = frames.decode_header(head)
        return header, b"" if not header.payload_bytes else stream.read(header.payload_bytes) or b""

    def close(self) -> None:
        self.peer.close()
        self.call("close_instance")
        owner = self.worker._owner
        owner.stop()
        self.worker._listener._socket.close()
        for connection in self.connections:
            connection._socket.close()
        services = self.worker._services
        pools = (services.background, services.maintenance, services.downloads, services.uploads)
        for pool in pools:
            pool.shutdown()
        os.close(self.directories._lock)
        self.directories.remove()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    sockets = Path(tempfile.mkdtemp(prefix="cairn-t-"))
    made = Served(tmp_path, sockets)
    yield made
    made.close()
    shutil.rmtree(sockets, ignore_errors=True)


def out_of_memory(*_: object, **__: object) -> None:
    raise MemoryError("malloc of size 3 failed")


def test_writes_are_never_replied_to(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply to writes would be taken for that of the next request, of whatever store."""
    with monkeypatch.context() as broken:
        broken.setattr(served.instance, "take_writes", out_of_memory)
        served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
        served.send(frames.GET, ONE_GET.serialize(), session=2 << 32 | 1, sequence=77)
        header, _ = served.receive()

    assert (header.session, header.sequence) == (2 << 32 | 1, 77)
    with pytest.raises(CairnError, match=r"CAIRN_BUSY.*memory") as failure:
        served.commit()
    assert failure.value.kind == "retry"


def test_a_read_that_waited_is_told_what_failed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer the task waits until its timeout, and so do those that wait beside it."""
    served.worker._owner.run(lambda: served.instance.local.hold_for(0, 1))
    served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
    served.commit()
    monkeypatch.setattr(served.instance, "get", out_of_memory)
    for sequence in (1, 2):
        served.send(
            frames.GET, ONE_GET.serialize(), session=SESSION + 1, sequence=sequence, applied=1
        )
    served.worker._owner.run(lambda: served.instance.local.release_hold(1))
    served.worker._owner.wake()
    replies = [served.receive() for _ in range(2)]

    assert [header.kind for header, _ in replies] == [frames.ERROR] * 2
    assert [json.loads(payload)["code"] for _, payload in replies] == ["CAIRN_BUSY"] * 2
    assert served.instance.local.applied_through == 1


def test_a_store_that_is_busy_keeps_no_other_from_opening(served: Served) -> None:
    """A load of minutes in one partition would stand in the way of all partitions' tasks."""
    instance = served.instance
    arguments = served.worker._asked[1]
    with ThreadPoolExecutor(2) as threads:
        with instance._lock:
            is_waiting, lock = threading.Event(), instance._lock

            class Noticed:
                def __enter__(self) -> None:
                    is_waiting.set()
                    lock.acquire()

                def __exit__(self, *_: object) -> None:
                    lock.release()

            instance._lock = Noticed()  # type: ignore[assignment]
            renewal = threads.submit(served.worker._open_instance, dict(arguments))
            assert is_waiting.wait(30)
            other = threads.submit(served.worker._open_instance, arguments | {"instance": 2})
            assert other.result(30) == {}
            assert not renewal.done()
        renewal.result(30)
        instance._lock = lock
    served.call("close_instance", instance=2)


def test_a_page_of_changes_that_fails_is_told(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in a thread of its own, whose errors nobody would see."""
    monkeypatch.setattr(served.instance.changes, "page", out_of_memory)
    asked: dict[str, list[Any]] = {
        "version": [1],
        "checkpoint_id": [b"u"],
        "from_row": [0],
        "limit_rows": [1],
    }
    served.send(
        frames.CHANGES, pa.RecordBatch.from_pydict(asked, frames.CHANGES_SCHEMA).serialize()
    )
    header, payload = served.receive()

    assert header.kind == frames.ERROR
    assert json.loads(payload)["code"] == "CAIRN_BUSY"
