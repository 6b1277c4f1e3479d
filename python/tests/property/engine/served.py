"""A worker in this process with one connection, so that a test can inspect and block it."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from commits import commit_reply

from cairn.engine.channel import Connection
from cairn.engine.directories import WorkerDirectories
from cairn.engine.resources import WorkerLimits
from cairn.engine.worker import Worker
from cairn.protocol import frames
from cairn.protocol.frames import Header
from cairn.protocol.session_id import SessionId

SESSION = SessionId(1, 1).pack()
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


class RefusedError(Exception):
    """The worker answered with an error."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(f"[{fields['code']}] {fields['message']}")
        self.kind = fields["kind"]


def hold(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> tuple[threading.Event, threading.Event]:
    """Make a method of a class set the first event and wait for the second."""
    is_entered, is_released = threading.Event(), threading.Event()
    real = getattr(owner, method)

    def slow(*arguments: object, **named: object) -> object:
        is_entered.set()
        assert is_released.wait(20)
        return real(*arguments, **named)

    monkeypatch.setattr(owner, method, slow)
    return is_entered, is_released


class Served:
    """A worker in this process, one connection to it, and one store at version 0."""

    def __init__(self, local: Path, sockets: Path) -> None:
        self.directories = WorkerDirectories(local, sockets)
        self.limits = WorkerLimits(64 << 20, 1 << 20)
        self.worker = Worker(self.directories, self.limits, token=b"token")
        # A worker's sockets end with its process; here the test must close them.
        self.connections: list[Connection] = []
        service: Any = self.worker._listener._dispatcher
        on_frame = service.on_frame

        def note(header: Header, payload: memoryview, connection: Connection) -> None:
            if connection not in self.connections:
                self.connections.append(connection)
            on_frame(header, payload, connection)

        service.on_frame = note
        self.worker.start()
        self.peer = self.connect()
        self.opened: dict[str, Any] = {
            "store": {"operator": 0, "partition": 0, "name": "default"},
            "url": str(local / "objects"),
            "storage": {},
            "conf": {},
            "run_id": "run",
            "checkpoint_format": 2,
        }
        self.writes: dict[str, Any] = {
            "session": SESSION,
            "frames": 1,
            "rows": 1,
            "expected_rows": 1,
            "version": 1,
            "column_families": [FAMILY],
            "max_cf_id": 0,
            "attempt": ATTEMPT,
        }
        self.call("open_instance", **self.opened)
        self.call("load", session=SESSION, version=0)
        self.instance = self.worker.instance(1)

    def connect(self) -> socket.socket:
        """Open a connection that may send frames."""
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.settimeout(20)
        peer.connect(str(self.directories.socket_path))
        self.send(frames.HELLO, b"token", peer=peer)
        self.receive(peer)
        return peer

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - as JSON has it
        answer = self.worker.call(method, {"instance": 1} | arguments)
        return dict(answer.to_json())

    def commit(self, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as JSON has it
        arguments = {name: value for name, value in self.writes.items() if name != "session"}
        session = more.pop("session", SESSION)
        body = json.dumps(arguments | more).encode()
        self.send(frames.COMMIT, body, session=session, sequence=99, rows=0)
        header, payload = self.receive()
        if header.kind == frames.ERROR:
            raise RefusedError(json.loads(payload))
        assert (header.kind, header.session, header.sequence) == (0x88, session, 99)
        return commit_reply(payload, header.rows)

    def send(
        self,
        kind: int,
        payload: bytes | pa.Buffer,
        *,
        session: int = SESSION,
        sequence: int = 0,
        applied: int = 0,
        rows: int = 1,
        peer: socket.socket | None = None,
    ) -> None:
        body = bytes(memoryview(payload))
        (peer or self.peer).sendall(
            frames.encode_header(Header(kind, 0, session, sequence, applied, rows, len(body)))
            + body
        )

    def receive(self, peer: socket.socket | None = None) -> tuple[Header, bytes]:
        header = frames.decode_header(self._exactly(frames.HEADER_BYTES, peer))
        return header, self._exactly(header.payload_bytes, peer)

    def _exactly(self, count: int, peer: socket.socket | None) -> bytes:
        data = b""
        while len(data) < count:
            piece = (peer or self.peer).recv(count - len(data))
            assert piece, "the worker closed the connection"
            data += piece
        return data

    def close(self) -> None:
        self.peer.close()
        for number in list(self.worker._instances):
            self.call("close_instance", instance=number)
        self.worker._event_loop.stop()
        self.worker._listener._socket.close()
        for connection in self.connections:
            connection._socket.close()
        resources = self.worker._resources
        for pool in (
            resources.background,
            resources.sorting,
            resources.maintenance,
            resources.transfers.downloads,
            resources.transfers.uploads,
        ):
            pool.shutdown()
        self.directories.close()
        self.directories.remove()
