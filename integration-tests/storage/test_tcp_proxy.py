"""The proxy of the tests and the benchmark delays answers as a distance does, and nothing else."""

from __future__ import annotations

import socket
import threading
import time

from harness.tcp_proxy import TcpProxy

LATENCY_MS = 150
PIECES = 4
ROUNDS = 40
ACKNOWLEDGED_MS = 35
"""Linux acknowledges a piece after 40 ms if nothing else is sent."""


def test_the_pieces_of_an_answer_are_delayed_together() -> None:
    """An answer with a body has several pieces: each of them must not add the latency again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_in_pieces, args=(listener,))
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with TcpProxy(url, latency_ms=LATENCY_MS) as proxy:
            port = int(proxy.url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                start = time.monotonic()
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
                received = b""
                while len(received) < PIECES:
                    received += client.recv(100)
                waited_ms = (time.monotonic() - start) * 1000
        server.join()

    assert received == b"x" * PIECES
    assert LATENCY_MS <= waited_ms < 2 * LATENCY_MS


def test_a_request_in_two_pieces_does_not_wait_for_an_acknowledgement() -> None:
    """HTTP clients send head and body apart; a proxy that collects them adds 40 ms to a request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_pairs, args=(listener,))
        server.start()
        with TcpProxy(f"http://127.0.0.1:{listener.getsockname()[1]}") as proxy:
            port = int(proxy.url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                waited_ms = []
                for _ in range(ROUNDS):
                    start = time.monotonic()
                    client.sendall(b"p")
                    time.sleep(0.002)  # the proxy forwards the first piece alone
                    client.sendall(b"b")
                    assert client.recv(1) == b"x"
                    waited_ms.append((time.monotonic() - start) * 1000)
        server.join()

    slow = [waited for waited in waited_ms if waited > ACKNOWLEDGED_MS]
    assert len(slow) < ROUNDS // 4, waited_ms


def answer_in_pieces(listener: socket.socket) -> None:
    """Answer one request with some bytes, each sent alone."""
    peer, _ = listener.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.recv(1000)
        for _ in range(PIECES):
            peer.sendall(b"x")
            time.sleep(0.005)


def answer_pairs(listener: socket.socket) -> None:
    """Answer each two bytes of one connection with one, until its end."""
    peer, _ = listener.accept()
    received = 0
    with peer:
        while data := peer.recv(2):
            received += len(data)
            if received % 2 == 0:
                peer.sendall(b"x")
