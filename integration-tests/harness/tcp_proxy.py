"""A TCP proxy on loopback that drops, cuts and delays the answers of an HTTP server.

It is between a client and a real server: the server executes the request, but the client does not
receive the answer. A fault applies to a request that it recognises by its first bytes.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK_BYTES = 1 << 16
_IDLE_TIMEOUT_S = 60.0

Answers = queue.SimpleQueue[tuple[float, bytes] | None]
"""Pieces of answers with the times when they are due; ``None`` ends them."""


@dataclass
class Fault:
    """A fault of the requests that match.

    Attributes:
        starts_with: the request's first bytes, such as ``b"PUT "``.
        contains: another part of its head in lower case, such as ``b"if-none-match"``.
        times: number of requests to which it applies.
        before: is called before the request reaches the server.
        drops_answer: the connection is closed instead of the server's answer.
        cuts_answer_after_bytes: the client receives this many bytes of the answer, with its head.
        answer: the client receives these bytes; the server does not receive the request.
    """

    starts_with: bytes
    contains: bytes = b""
    times: int = 1
    before: Callable[[], object] | None = None
    drops_answer: bool = False
    cuts_answer_after_bytes: int | None = None
    answer: bytes = b""
    applied: int = field(default=0, init=False)

    def matches(self, head: bytes) -> bool:
        """Return whether it applies to a request with this head."""
        return (
            self.applied < self.times
            and head.startswith(self.starts_with)
            and self.contains in head.lower()
        )


@dataclass
class Connection:
    """A client's connection, and the one to the server for it."""

    client: socket.socket
    server: socket.socket
    fault: Fault | None = None
    sent_bytes: int = 0

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class TcpProxy:
    """The proxy, up between ``__enter__`` and ``__exit__``.

    Args:
        target_url: the server's ``http://host:port``.
        latency_ms: how much later than the server sent it the client receives each piece of an
            answer.

    Attributes:
        is_down: whether new connections are closed at once.
        hidden_header: name, in lower case, of a request header that is hidden from the server.
    """

    def __init__(self, target_url: str, *, latency_ms: int = 0) -> None:
        parts = urlsplit(target_url)
        self._target = (parts.hostname or "", parts.port or 80)
        self.latency_ms = latency_ms
        self.is_down = False
        self.hidden_header = b""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._connections: list[Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def connection_count(self) -> int:
        """The number of connections that clients have opened so far."""
        return len(self.connections)

    @property
    def connections(self) -> list[Connection]:
        """The connections that clients have opened so far."""
        with self._lock:
            return list(self._connections)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def add(self, fault: Fault) -> Fault:
        """Apply ``fault`` from now on, after those that were added earlier."""
        with self._lock:
            self._faults.append(fault)
        return fault

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target, timeout=_IDLE_TIMEOUT_S)
            except OSError:
                client.close()
                continue
            client.settimeout(_IDLE_TIMEOUT_S)
            for end in (client, server):
                # A request in two pieces would wait 40 ms for an acknowledgement of the first one.
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(client, server)
            with self._lock:
                self._connections.append(connection)
            answers: Answers = queue.SimpleQueue()
            threads = (
                (self._pump_requests, (connection,)),
                (self.receive_answers, (connection, answers)),
                (self._send_answers, (connection, answers)),
            )
            for target, arguments in threads:
                threading.Thread(target=target, args=arguments, daemon=True).start()

    def _pump_requests(self, connection: Connection) -> None:
        with suppress(OSError):
            while data := connection.client.recv(_CHUNK_BYTES):
                fault = self._fault_of(data)
                if fault is not None:
                    connection.fault, connection.sent_bytes = fault, 0
                    if fault.before is not None:
                        fault.before()
                    if fault.answer:
                        self._answer(connection, fault.answer)
                        break
                connection.server.sendall(self._without_header(data))
        connection.close()

    def _answer(self, connection: Connection, answer: bytes) -> None:
        """Answer instead of the server, and discard the rest of the request."""
        connection.client.sendall(answer)
        connection.client.shutdown(socket.SHUT_WR)
        while connection.client.recv(_CHUNK_BYTES):
            pass

    def _fault_of(self, data: bytes) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.matches(data):
                    fault.applied += 1
                    return fault
        return None

    def _without_header(self, data: bytes) -> bytes:
        """Rename the hidden header to a name of the same length."""
        if not self.hidden_header:
            return data
        name = self.hidden_header
        disguise = b"x-" + b"h" * (len(name) - 2)
        return re.sub(
            rb"(?i)(\r\n)" + re.escape(name) + rb"(?=:)", rb"\1" + disguise, data, count=1
        )

    def receive_answers(self, connection: Connection, answers: Answers) -> None:
        """Receive the pieces of a server's answers until their end, without a delay."""
        with suppress(OSError):
            while data := connection.server.recv(_CHUNK_BYTES):
                answers.put((time.monotonic() + self.latency_ms / 1000, data))
        answers.put(None)

    def _send_answers(self, connection: Connection, answers: Answers) -> None:
        with suppress(OSError):
            while (piece := answers.get()) is not None:
                due, data = piece
                time.sleep(max(0.0, due - time.monotonic()))
                fault = connection.fault
                is_interim = data.startswith(b"HTTP/1.1 100")
                if fault is not None and not is_interim:
                    if fault.drops_answer:
                        break
                    if fault.cuts_answer_after_bytes is not None:
                        left = fault.cuts_answer_after_bytes - connection.sent_bytes
                        if len(data) >= left:
                            connection.client.sendall(data[:left])
                            break
                        connection.sent_bytes += len(data)
                connection.client.sendall(data)
        connection.close()
