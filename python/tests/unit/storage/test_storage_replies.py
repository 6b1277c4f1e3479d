"""Replies on a storage connection that no shim sends: one error that names the file, in time."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from cairn.clock import SYSTEM_CLOCK, Clock, FakeClock
from cairn.errors import CairnError, ProtocolError, UnavailableError
from cairn.protocol import files, frames
from cairn.protocol.frames import Header
from cairn.storage.hadoop import files as remote_files
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.store import HadoopStore
from harness.fake_shim import FILE_SYSTEM, FakeShim

TIMEOUT_MS = 400
URL = "hdfs://host/state"
LIST = files.FILE_LIST | frames.REPLY
READ = files.FILE_READ | frames.REPLY
MORE = frames.FLAG_MORE


@dataclass
class OddShim(FakeShim):
    """Sends what it is told, and then nothing."""

    reply: Callable[[Header], Iterator[bytes]] = lambda _: iter([])

    def _answers(self, header: Header, _payload: bytes, _data: bytes) -> Iterator[bytes]:
        yield from self.reply(header)


def failure(
    reply: Callable[[Header], Iterator[bytes]], call: str = "get", clock: Clock = SYSTEM_CLOCK
) -> CairnError:
    """Return the error of a call that is answered so."""
    connections = StorageConnections(clock)
    OddShim(reply=reply).connect(connections)
    settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": str(TIMEOUT_MS)}
    store = HadoopStore(URL, settings, connections)
    began = time.monotonic()
    with pytest.raises(CairnError) as raised:
        list(store.list("")) if call == "list" else store.get("a")
    connections.close()
    assert time.monotonic() - began < 5
    assert (raised.value.object_name or "").startswith(URL)
    return raised.value


def frame(request: Header, kind: int, payload: bytes = b"", **fields: int) -> bytes:
    """Return a frame of a reply."""
    header = request._replace(kind=kind, payload_bytes=len(payload))._replace(**fields)
    return frames.encode_header(header) + payload


def row(path: bytes, modified_ms: int = 1) -> bytes:
    """Return one row of a listing."""
    return struct.pack("<QQI", 5, modified_ms, len(path)) + path


@pytest.mark.parametrize("path", [b"../b", b"a//b", b"/a", b"a/./b", b"", b"a/.."])
def test_a_path_that_leads_elsewhere_is_refused(path: bytes) -> None:
    """What is listed may be deleted: never outside the store."""
    refused = failure(lambda request: iter([frame(request, LIST, row(path), rows=1)]), "list")

    assert isinstance(refused, ProtocolError)
    assert "a listing has the path" in str(refused)


def test_a_time_that_no_file_has_is_refused() -> None:
    """Python has no date after the year 9999."""
    late = row(b"a", 2**63)

    refused = failure(lambda request: iter([frame(request, LIST, late, rows=1)]), "list")

    assert "ms after 1970" in str(refused)


@pytest.mark.parametrize("payload", [b"", row(b"a")], ids=["without rows", "with rows"])
def test_a_listing_without_an_end_is_refused(
    payload: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fill the memory of the worker, or hold its thread for ever."""
    monkeypatch.setattr(remote_files, "MAX_LISTED_FILES", 1000)

    def endless(request: Header) -> Iterator[bytes]:
        while True:
            yield frame(request, LIST, payload, rows=1 if payload else 0, flags=MORE)

    assert "does not end" in str(failure(endless, "list"))


def test_a_frame_over_the_limit_is_refused_by_its_header() -> None:
    """Its bytes need not even come."""
    refused = failure(lambda request: iter([frame(request, READ, payload_bytes=60 << 20)]))

    assert f"over the limit of {files.MAX_REPLY_BYTES}" in str(refused)


def test_the_answer_to_another_request_is_refused() -> None:
    """The bytes of another file would be taken for those of this one."""
    status = struct.pack("<QQ", 0, 1)

    refused = failure(lambda request: iter([frame(request, READ, status, sequence=7)]))

    assert "answered another request" in str(refused)


def test_an_error_that_is_no_json_is_refused() -> None:
    """Deep nesting ends Python's parser with another error than wrong text."""
    refused = failure(lambda request: iter([frame(request, frames.ERROR, b"[" * 100_000)]))

    assert "not JSON" in str(refused)


def test_a_reply_in_drops_is_given_up_in_time() -> None:
    """A shim that sends a byte now and then does not answer."""
    clock = FakeClock()

    def drops(request: Header) -> Iterator[bytes]:
        # More than the socket holds: no time passes after the last byte.
        for byte in frame(request, READ, bytes(1 << 20)):
            yield bytes([byte])
            clock.advance(TIMEOUT_MS / 4000)

    late = failure(drops, clock=clock)

    assert isinstance(late, UnavailableError)
    assert f"within {TIMEOUT_MS} ms" in str(late)


def test_connections_that_have_ended_do_not_pile_up() -> None:
    """The newest is used first: older ones that the shim has left would stay open for ever."""
    connections, ended = StorageConnections(), []
    for _ in range(200):
        ours, theirs = socket.socketpair()
        connections.add(theirs)
        ours.close()
        ended.append(theirs)

    assert sum(peer.fileno() >= 0 for peer in ended) <= 64
    connections.close()
