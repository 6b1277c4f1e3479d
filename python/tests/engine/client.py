# ruff: noqa: ANN401 - arguments go into JSON and Arrow unchanged
"""A worker as the shim sees it, in Python: spawn it, call it, exchange frames with it."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from commits import commit_reply, expected_rows
from lookups import lookup, lookup_rows
from py4j.protocol import CALL_PROXY_COMMAND_NAME, get_command_part, get_return_value

from cairn.protocol import frames
from cairn.protocol.calls import answer_in
from cairn.protocol.frames import WRITES_SCHEMA, Header
from cairn.protocol.session_id import SessionId
from cairn.release import RELEASE

PUT, DELETE, APPEND, DROP_CF = 1, 2, 3, 4
DEFAULT: dict[str, Any] = {
    "id": 0,
    "name": "default",
    "multi": False,
    "internal": False,
    "ordered": False,
    "key_type": "struct<k:bigint>",
    "value_type": "struct<v:bigint>",
    "key_encoder": "{}",
}
LISTS = DEFAULT | {"id": 1, "name": "lists", "multi": True}
ATTEMPT = {"run_id": "run", "app_start_ms": 1, "stage_id": 1, "stage_attempt": 0, "task_attempt": 0}


_JOBS = itertools.count(1)


class EngineError(Exception):
    """An error in a worker's answer."""

    def __init__(self, fields: dict[str, Any]) -> None:
        super().__init__(f"[{fields['code']}] {fields['message']}")
        self.fields = fields
        self.code = fields["code"]
        self.kind = fields["kind"]


class Channel:
    """One connection of the data channel."""

    def __init__(self, path: str, token: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(path)
        try:
            self.send(frames.HELLO, 0, token.encode())
            self.receive()
        except BaseException:
            self.socket.close()
            raise

    def send(
        self,
        kind: int,
        session: int,
        payload: Any,
        *,
        sequence: int = 0,
        applied: int = 0,
        rows: int = 0,
    ) -> None:
        body = memoryview(payload)
        head = frames.encode_header(Header(kind, 0, session, sequence, applied, rows, len(body)))
        self.socket.sendall(head + body)

    def receive(self) -> tuple[Header, bytes]:
        header = frames.decode_header(self._exactly(frames.HEADER_BYTES))
        payload = self._exactly(header.payload_bytes)
        if header.kind == frames.ERROR:
            raise EngineError(json.loads(payload))
        return header, payload

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the worker closed the connection")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.socket.close()


def writes_batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Make a batch of ``(op, cf, key, value[, presence])``."""
    full = [row if len(row) == 5 else (*row, 0) for row in rows]
    columns: list[tuple[Any, ...]] = list(zip(*full, strict=True)) if full else [()] * 5
    return pa.record_batch(
        [
            pa.array(column, field.type)
            for column, field in zip(columns, WRITES_SCHEMA, strict=True)
        ],
        schema=WRITES_SCHEMA,
    )


@dataclass
class Job:
    """A control call that was begun; ``answer`` is the first one."""

    worker: WorkerProcess
    number: int
    answer: dict[str, Any]

    def wait(self, wait_ms: int = 1000) -> dict[str, Any]:
        return self.worker.exchange("await", job=self.number, answer_within_ms=wait_ms)

    def cancel(self) -> None:
        assert self.worker.exchange("cancel", job=self.number) == {"ok": {}}


class WorkerProcess:
    """A spawned ``python -m cairn.engine``.

    Args:
        local_dir: its local directory.
        patch: Python that runs first there.
        overrides: of the start line.

    Attributes:
        storage: the settings of its stores.
    """

    def __init__(self, local_dir: Path, *, patch: str = "", **overrides: Any) -> None:
        self.token = "ab" * 32
        self.storage: dict[str, str] = {}
        self.socket_dir = tempfile.mkdtemp(prefix="cairn-t-", dir="/tmp")
        patches = Path(f"{local_dir}-patches")
        if patch:
            patches.mkdir(exist_ok=True)
            (patches / "sitecustomize.py").write_text(patch, "utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "cairn.engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(patches), *sys.path])},
        )
        start = {
            "token": self.token,
            "worker": "w0",
            "protocol": 1,
            "release": RELEASE,
            "local_dir": str(local_dir),
            "socket_dir": self.socket_dir,
            "memory_bytes": 128 << 20,
            "local_disk_bytes": 1 << 30,
        } | overrides
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(start).encode() + b"\n")
        self.process.stdin.flush()
        self.ready = next(
            answer
            for line in self.process.stdout
            if (answer := answer_in(line.decode())) is not None
        )
        if "error" in self.ready:
            self.process.wait(10)
            self.process.stdin.close()
            self.process.stdout.close()
            self._remove_sockets()
            raise EngineError(self.ready["error"])
        self.pid = self.process.pid
        self._channels: list[Channel] = []

    def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a control method as the shim does, and wait for its result."""
        job = self.begin(method, **arguments)
        answer = job.answer
        while "running" in answer:
            answer = job.wait()
        if "error" in answer:
            raise EngineError(answer["error"])
        result: dict[str, Any] = answer["ok"]
        return result

    def begin(self, method: str, *, wait_ms: int = 1000, **arguments: Any) -> Job:
        """Begin a control call that may take long."""
        number = next(_JOBS)
        named = {"job": number, "answer_within_ms": wait_ms} | arguments
        return Job(self, number, self.exchange(method, **named))

    def exchange(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Send one message of the control channel and return its answer."""
        answer: dict[str, Any] = json.loads(self._raw_call(method, json.dumps(arguments)))
        return answer

    def _raw_call(self, method: str, arguments: str) -> str:
        with socket.create_connection(("127.0.0.1", self.ready["port"]), timeout=120) as peer:
            stream = peer.makefile("rwb")
            stream.write(f"A\n{self.token}\ne\n".encode())
            stream.flush()
            assert stream.readline() == b"!yv\n"
            command = (
                CALL_PROXY_COMMAND_NAME
                + "\nt\ncall\n"
                + get_command_part(method)
                + get_command_part(arguments)
                + "e\n"
            )
            stream.write(command.encode())
            stream.flush()
            line = stream.readline().decode().rstrip("\n")
            # "!y" "s" text: a return message, success, a string
            result: str = get_return_value(line[1:], None)
            return result

    def channel(self) -> Channel:
        channel = Channel(self.ready["socket"], self.token)
        self._channels.append(channel)
        return channel

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()
        self.process.wait(10)
        self._close_pipes()
        self._remove_sockets()

    def close(self) -> None:
        """End its standard input, as the JVM's death would.

        Raises:
            subprocess.TimeoutExpired: it did not end, and was killed.
        """
        try:
            if self.process.poll() is None:
                assert self.process.stdin is not None
                self.process.stdin.close()
                self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise
        finally:
            self._close_pipes()
            self._remove_sockets()

    def _remove_sockets(self) -> None:
        shutil.rmtree(self.socket_dir, ignore_errors=True)

    def _close_pipes(self) -> None:
        for channel in self._channels:
            channel.close()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Store:
    """One instance in a worker, with its sessions."""

    def __init__(
        self,
        worker: WorkerProcess,
        number: int,
        url: str,
        *,
        checkpoint_format: int = 2,
        conf: dict[str, str] | None = None,
        run_id: str = "run",
        storage: dict[str, str] | None = None,
    ) -> None:
        self.worker = worker
        self.number = number
        self.checkpoint_format = checkpoint_format
        self.families = [DEFAULT, LISTS]
        self.attempt = ATTEMPT | {"run_id": run_id}
        self.session_number = 0
        self.frames = self.rows = 0
        self.sent: list[tuple[Any, ...]] = []
        worker.call(
            "open_instance",
            instance=number,
            store={"operator": 0, "partition": 3, "name": "default"},
            url=url,
            storage=storage or worker.storage,
            conf=conf or {},
            run_id=run_id,
            checkpoint_format=checkpoint_format,
        )
        self.channel = worker.channel()
        self.version = 0
        self.checkpoint_id: str | None = None

    @property
    def session(self) -> int:
        return SessionId(self.number, self.session_number).pack()

    def load(self, version: int, checkpoint_id: str | None = None, **more: Any) -> dict[str, Any]:
        self.session_number += 1
        self.frames = self.rows = 0
        self.sent = []
        answer = self.worker.call(
            "load",
            **{
                "instance": self.number,
                "session": self.session,
                "version": version,
                "checkpoint_id": checkpoint_id,
                "load_empty": False,
            }
            | more,
        )
        self.version = version
        self.checkpoint_id = answer["checkpoint_id"]
        return answer

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        self.write_batch(writes_batch(rows))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.frames += 1
        self.rows += batch.num_rows
        self.sent += [tuple(row.values()) for row in batch.to_pylist()]
        self.channel.send(
            frames.WRITES,
            self.session,
            batch.serialize(),
            sequence=self.frames,
            rows=batch.num_rows,
        )

    def commit(self, **more: Any) -> dict[str, Any]:
        answer = self._commit(
            **{
                "frames": self.frames,
                "rows": self.rows,
                "version": self.version + 1,
                "base_checkpoint_id": self.checkpoint_id,
                "column_families": self.families,
                "max_cf_id": max(family["id"] for family in self.families),
                "attempt": self.attempt,
                "snapshot": False,
                "track_counts": True,
                "expected_rows": expected_rows(self.sent),
            }
            | more,
        )
        self.version += 1
        self.checkpoint_id = answer["checkpoint_id"]
        return answer

    def _commit(self, **arguments: Any) -> dict[str, Any]:
        self.channel.send(
            frames.COMMIT, self.session, json.dumps(arguments).encode(), sequence=self.version
        )
        header, payload = self.channel.receive()
        assert (header.kind, header.session) == (0x88, self.session)
        assert header.sequence == self.version
        return commit_reply(payload, header.rows) | {"applied_through": header.applied}

    def abort(self) -> None:
        self.worker.call("abort", instance=self.number, session=self.session)

    def get(self, keys: list[bytes], *, cf: int = 0, applied: int | None = None) -> list[Any]:
        """Return ``(origin, value)`` per key."""
        batch = pa.record_batch(
            [pa.array([cf] * len(keys), pa.uint16()), pa.array(keys, pa.binary())],
            schema=frames.GET_SCHEMA,
        )
        self.channel.send(
            frames.GET,
            self.session,
            batch.serialize(),
            applied=self.version if applied is None else applied,
            rows=len(keys),
        )
        header, payload = self.channel.receive()
        reply = frames.decode_rows(payload, frames.GET_REPLY_SCHEMA)
        assert header.rows == reply.num_rows == len(keys)
        return list(zip(reply[0].to_pylist(), reply[1].to_pylist(), strict=True))

    def look_up(self, keys: list[bytes], *, cf: int = 0, applied: int | None = None) -> list[Any]:
        """Return ``(origin, value)`` per key, as the shim reads a few keys."""
        self.channel.send(
            frames.LOOKUP,
            self.session,
            lookup(cf, keys),
            sequence=7,
            applied=self.version if applied is None else applied,
            rows=len(keys),
        )
        header, payload = self.channel.receive()
        assert (header.kind, header.session, header.sequence) == (0x86, self.session, 7)
        return lookup_rows(header, payload)

    def page(
        self,
        cf: int = 0,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        inclusive: bool = True,
        limit_rows: int = 1000,
        limit_bytes: int = 1 << 20,
    ) -> tuple[list[Any], bool]:
        """Return rows ``(origin, key, value)`` and whether more follow."""
        values: list[list[Any]] = [
            [cf],
            [start],
            [int(inclusive)],
            [end],
            [limit_rows],
            [limit_bytes],
        ]
        batch = pa.record_batch(
            [pa.array(v, f.type) for v, f in zip(values, frames.SCAN_SCHEMA, strict=True)],
            schema=frames.SCAN_SCHEMA,
        )
        self.channel.send(
            frames.SCAN, self.session, batch.serialize(), applied=self.version, rows=1
        )
        header, payload = self.channel.receive()
        reply = frames.decode_rows(payload, frames.SCAN_REPLY_SCHEMA)
        rows = list(zip(*(column.to_pylist() for column in reply.columns), strict=True))
        return rows, bool(header.flags & frames.FLAG_MORE)

    def scan(self, cf: int = 0, **bounds: Any) -> dict[bytes, bytes]:
        """Return all rows of a family, page by page."""
        found: dict[bytes, bytes] = {}
        start, inclusive = bounds.pop("start", None), True
        while True:
            rows, more = self.page(cf, start, inclusive=inclusive, **bounds)
            found |= {key: value for _, key, value in rows}
            if not more:
                return found
            start, inclusive = rows[-1][1], False
