"""The data channel's bounds: a fast sender, and replies that would be too large."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from lookups import lookup, lookup_rows
from served import SESSION, Served, hold

from cairn.engine import frame_service
from cairn.protocol import frames
from cairn.protocol.frames import WRITES_SCHEMA, Header
from cairn.protocol.session_id import SessionId
from cairn.rocks import RocksDb
from cairn.store.write.session import StoreSession
from cairn.store.write.spill import RunFiles
from harness.processes import wait_until

MIB = 1 << 20


def put(key: bytes, value: bytes) -> pa.Buffer:
    row = {"op": 1, "cf": 0, "key": key, "value": value, "presence": 2}
    return pa.RecordBatch.from_pylist([row], WRITES_SCHEMA).serialize()


def get(*keys: bytes) -> pa.Buffer:
    rows = [{"cf": 0, "key": key} for key in keys]
    return pa.RecordBatch.from_pylist(rows, frames.GET_SCHEMA).serialize()


def test_a_sender_that_is_faster_than_the_disk_waits(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bound it fills the memory: 200 MB of frames, in a worker of 256 MB."""
    _, is_released = hold(monkeypatch, RunFiles, "make")
    is_paused, is_sent = threading.Event(), threading.Event()
    taken: list[int] = []
    add_frame, pause_if_full = StoreSession.add_frame, StoreSession.pause_if_full

    def add_noted(session: StoreSession, sequence: int, rows: pa.RecordBatch) -> None:
        taken.append(rows.nbytes)
        add_frame(session, sequence, rows)

    def pause_noted(session: StoreSession, resume: Callable[[], None]) -> bool:
        is_full = pause_if_full(session, resume)
        if is_full:
            is_paused.set()
        return is_full

    monkeypatch.setattr(StoreSession, "add_frame", add_noted)
    monkeypatch.setattr(StoreSession, "pause_if_full", pause_noted)
    count = 2 * 4 * served.limits.run_bytes // MIB

    def send() -> None:
        with served.connect() as peer:
            for sequence in range(1, count + 1):
                payload = put(b"%03d" % sequence, bytes(MIB))
                served.send(frames.WRITES, payload, sequence=sequence, peer=peer)
            is_sent.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert is_paused.wait(20)
    for _ in range(10):  # each time the worker looks at all connections
        assert look_up(served) == [(frames.ORIGIN_ABSENT, None)]
    held_bytes, was_sent = sum(taken), is_sent.is_set()

    is_released.set()

    sender.join(20)
    assert is_sent.is_set()
    assert not was_sent
    # Four runs, and the last frame.
    assert held_bytes <= 4 * served.limits.run_bytes + 2 * MIB
    answer = served.commit(frames=count, rows=count, expected_rows=count)
    assert answer["counts"] == {"0": count}


def test_keys_with_large_values_are_answered_in_part(served: Served) -> None:
    """A single reply would be an error above 1 GiB; a smaller one would use unbounded memory."""
    for number in range(6):
        value = b"%d" % number * 4 * MIB
        served.send(frames.WRITES, put(b"%d" % number, value), sequence=number + 1)
    keys = [b"%d" % number for number in range(6)]

    served.send(frames.GET, get(*keys))
    header, payload = served.receive()

    rows = frames.decode_rows(payload, frames.GET_REPLY_SCHEMA)
    assert (header.rows, header.flags) == (4, frames.FLAG_MORE)
    assert [(value or b"")[:1] for value in rows.column("value").to_pylist()] == keys[:4]
    served.send(frames.GET, get(*keys[4:]))
    header, _ = served.receive()
    assert (header.rows, header.flags) == (2, 0)


@pytest.mark.parametrize("cfs", [[], [0, 1]])
def test_a_get_of_no_or_several_families_is_refused(served: Served, cfs: list[int]) -> None:
    """The keys of the second family would be read in the first one."""
    rows = [{"cf": cf, "key": b"a"} for cf in cfs]

    served.send(frames.GET, pa.RecordBatch.from_pylist(rows, frames.GET_SCHEMA).serialize())
    header, payload = served.receive()

    assert header.kind == frames.ERROR
    assert b"several families, or empty" in bytes(payload)


@pytest.mark.parametrize("kind", [frames.GET, frames.SCAN], ids=["get", "scan"])
def test_the_error_of_a_too_large_list_names_it(
    served: Served, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """The error must name the store, and must not be a bug."""
    monkeypatch.setattr(frame_service, "MAX_VALUES_BYTES", 10)
    served.send(frames.WRITES, put(b"a", b"12345678901"), sequence=1)
    request = {"cf": 0, "from_inclusive": 1, "limit_rows": 1, "limit_bytes": 1}
    scan = pa.RecordBatch.from_pylist([request], frames.SCAN_SCHEMA).serialize()

    served.send(kind, get(b"a") if kind == frames.GET else scan)
    header, payload = served.receive()

    assert header.kind == frames.ERROR
    error = json.loads(payload)
    assert (error["code"], error["kind"]) == ("CAIRN_ROW_TOO_LARGE", "invalid")
    assert (error["store"], error["version"]) == ("0/0/default", 0)
    assert error["next"]


def look_up(served: Served) -> list[tuple[int, bytes | None]]:
    served.send(frames.LOOKUP, lookup(0, [b"a"]), session=SESSION + 1)
    header, payload = served.receive()
    assert header.kind == frames.LOOKUP | frames.REPLY, payload
    return lookup_rows(header, payload)


def test_reads_are_answered_while_another_database_is_opened(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of a query opens a hundred databases; the running queries read meanwhile."""
    second = {"instance": 2, "session": SessionId(2, 1).pack()}
    served.call("open_instance", **(served.opened | second))
    is_entered, is_released = hold(monkeypatch, RocksDb, "__init__")

    with ThreadPoolExecutor(1) as threads:
        loaded = threads.submit(served.call, "load", version=0, **second)
        assert is_entered.wait(20)
        found = look_up(served)
        assert not loaded.done()
        is_released.set()
        loaded.result(20)

    assert found == [(frames.ORIGIN_ABSENT, None)]


def test_neither_reads_nor_the_load_wait_while_a_database_is_closed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close writes the memtable, although the directory is removed afterwards."""
    former = served.instance.state.local.db
    is_entered, is_released = hold(monkeypatch, RocksDb, "close")

    served.call("load", session=SESSION + 1, version=7, load_empty=True)

    assert is_entered.wait(20)
    assert look_up(served) == [(frames.ORIGIN_ABSENT, None)]
    assert former.directory.exists()
    is_released.set()
    wait_until(lambda: not former.directory.exists(), 20, "the end of the former database")


@pytest.mark.parametrize("size", [0, 10, 16 << 20])
def test_a_reply_of_another_thread_arrives_whole(served: Served, size: int) -> None:
    """The rest of a reply that the socket does not take at once is sent by the event loop."""
    served.send(frames.WRITES, put(b"a", b"1"), sequence=1)
    served.commit()
    request = Header(frames.COMMIT, 0, SESSION, 7, 0, 0, 0)
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)

    served.connections[0].reply_from_thread(request, payload, rows=2, applied=3)
    header, body = served.receive()

    assert (header.kind, header.session, header.sequence) == (0x88, SESSION, 7)
    assert (header.applied, header.rows) == (3, 2)
    assert body == payload


def test_a_reply_of_another_thread_to_a_closed_connection_is_dropped(served: Served) -> None:
    """The peer is gone, and its socket's number may belong to another connection."""
    served.send(frames.WRITES, put(b"a", b"1"), sequence=1)
    served.commit()
    connection = served.connections[0]
    served.peer.shutdown(socket.SHUT_WR)
    assert served.peer.recv(1) == b"", "the worker has closed its end"

    request = Header(frames.COMMIT, 0, SESSION, 7, 0, 0, 0)
    connection.reply_from_thread(request, b"{}", rows=0, applied=3)

    assert served.peer.recv(1) == b""
