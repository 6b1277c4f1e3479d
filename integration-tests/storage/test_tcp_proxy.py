"""The proxy of the tests and the benchmark delays answers as a distance does, and nothing else."""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from harness.tcp_proxy import Connection, TcpProxy

if TYPE_CHECKING:
    from harness.tcp_proxy import Answers

pytestmark = pytest.mark.tools

HOUR_MS = 3_600_000
PIECES = 4


def test_the_pieces_of_an_answer_are_delayed_together() -> None:
    """An answer with a body has several pieces: each of them must not add the latency again."""
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps the pieces
    answers: Answers = queue.SimpleQueue()
    began = time.monotonic()
    for _ in range(PIECES):
        client.send(b"x")
    client.close()

    with server, TcpProxy("http://127.0.0.1:1", latency_ms=HOUR_MS) as proxy:
        proxy.receive_answers(Connection(server, server), answers)

    received = [answers.get() for _ in range(PIECES + 1)]
    assert received.pop() is None
    pieces = [piece for piece in received if piece is not None]
    assert [data for _, data in pieces] == [b"x"] * PIECES
    assert all(began <= due - HOUR_MS / 1000 <= time.monotonic() for due, _ in pieces)


def test_a_request_in_two_pieces_does_not_wait_for_an_acknowledgement() -> None:
    """HTTP clients send head and body apart; a proxy that collects them adds 40 ms to a request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_once, args=(listener,))
        server.start()
        with TcpProxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            port = int(proxy.url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"p")
                assert client.recv(1) == b"x"
                ends = [end for one in proxy.connections for end in (one.client, one.server)]
                options = [end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for end in ends]
        server.join()

    assert len(options) == 2
    assert all(options)


def answer_once(listener: socket.socket) -> None:
    """Answer one byte of one connection, and wait for its end."""
    peer, _ = listener.accept()
    with peer:
        peer.recv(1)
        peer.sendall(b"x")
        peer.recv(1)
