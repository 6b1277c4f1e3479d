"""Unexpected failures (memory, Arrow's limits) reach the task that waits."""

from __future__ import annotations

import json
import operator
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from lookups import lookup
from served import SESSION, RefusedError, Served, hold

from cairn.protocol import frames
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.protocol.session_id import SessionId
from cairn.rocks import Ingestion, RocksDb
from cairn.store.rows.runs import Run
from cairn.store.write.session import StoreSession

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cairn.errors import CairnError

ONE_PUT = pa.RecordBatch.from_pylist(
    [{"op": 1, "cf": 0, "key": b"a", "value": b"1", "presence": 2}], WRITES_SCHEMA
)
ONE_GET = pa.RecordBatch.from_pylist([{"cf": 0, "key": b"a"}], frames.GET_SCHEMA)


SECOND = SessionId(2, 1).pack()


def out_of_memory(*_: object, **__: object) -> None:
    raise MemoryError("malloc of size 3 failed")


def test_writes_are_never_replied_to(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply to writes would be taken for the reply to the next request, of any store."""
    with monkeypatch.context() as broken:
        broken.setattr(StoreSession, "add_frame", out_of_memory)
        served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
        served.send(frames.GET, ONE_GET.serialize(), session=SECOND, sequence=77)
        header, _ = served.receive()

    assert (header.session, header.sequence) == (SECOND, 77)
    with pytest.raises(RefusedError, match=r"CAIRN_BUSY.*memory") as failure:
        served.commit()
    assert failure.value.kind == "retry"


def test_a_commit_that_fails_is_answered_and_logged(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer the task waits until the shim ends the worker."""
    monkeypatch.setattr(served.instance, "commit", out_of_memory)

    with pytest.raises(RefusedError, match=r"CAIRN_BUSY.*memory"):
        served.commit()

    assert "malloc of size 3 failed" in caplog.text


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"version": "seven"}'])
def test_a_commit_with_wrong_arguments_is_refused(served: Served, payload: bytes) -> None:
    """The connection stays usable: another session may use it."""
    served.send(frames.COMMIT, payload, sequence=5, rows=0)
    header, body = served.receive()

    assert (header.kind, header.sequence) == (frames.ERROR, 5)
    assert json.loads(body)["code"] == "CAIRN_PROTOCOL"
    served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
    assert served.commit()["counts"] == {"0": 1}


def test_a_read_that_waited_gets_the_error(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an answer the task waits until its timeout, and so do all other waiting tasks."""
    instance = served.instance
    is_sorting, is_released = hold(monkeypatch, Run, "__init__")
    waiting = threading.Semaphore(0)
    when_applied = instance.when_applied

    def noted(version: int, act: Callable[[CairnError | None], None]) -> None:
        when_applied(version, act)
        waiting.release()

    monkeypatch.setattr(instance, "when_applied", noted)
    monkeypatch.setattr(instance, "get", out_of_memory)
    served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
    served.commit()
    for sequence in (1, 2):
        served.send(
            frames.GET, ONE_GET.serialize(), session=SESSION + 1, sequence=sequence, applied=1
        )
    assert all(waiting.acquire(timeout=20) for _ in range(2))
    assert is_sorting.wait(20)
    is_released.set()
    replies = [served.receive() for _ in range(2)]

    assert [header.kind for header, _ in replies] == [frames.ERROR] * 2
    assert [json.loads(payload)["code"] for _, payload in replies] == ["CAIRN_BUSY"] * 2
    assert instance.state.local.applied_through == 1


CHANGES = pa.RecordBatch.from_pydict(
    {"version": [1], "checkpoint_id": [b"u"], "from_row": [0], "limit_rows": [1]},
    frames.CHANGES_SCHEMA,
)
SCAN = pa.RecordBatch.from_pydict(
    {
        "cf": [0],
        "from": [None],
        "from_inclusive": [1],
        "to": [None],
        "limit_rows": [1],
        "limit_bytes": [1],
    },
    frames.SCAN_SCHEMA,
)


@pytest.mark.parametrize(
    ("request_frame", "broken", "version"),
    [
        ((frames.GET, ONE_GET.serialize(), 1), "get", 0),
        ((frames.LOOKUP, lookup(0, [b"a"]), 1), "look_up", 0),
        ((frames.LOOKUP, lookup(0, [b"a", b"b"]), 2), "get", 0),
        ((frames.SCAN, SCAN.serialize(), 1), "scan", 0),
        ((frames.CHANGES, CHANGES.serialize(), 1), "changes.page", 1),
    ],
    ids=["get", "lookup of one", "lookup", "scan", "changes"],
)
def test_a_read_that_fails_names_its_store_and_is_logged(
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    request_frame: tuple[int, bytes | pa.Buffer, int],
    broken: str,
    version: int,
) -> None:
    """One task of a thousand shows the error; a page of changes is read in its own thread."""
    holder, _, name = f"instance.{broken}".rpartition(".")
    monkeypatch.setattr(operator.attrgetter(holder)(served), name, out_of_memory)
    kind, request, rows = request_frame
    served.send(kind, request, rows=rows)
    header, payload = served.receive()

    assert header.kind == frames.ERROR
    body = json.loads(payload)
    assert (body["code"], body["store"], body["version"]) == ("CAIRN_BUSY", "0/0/default", version)
    assert "malloc of size 3 failed" in caplog.text


def test_a_store_that_cannot_write_does_not_block_reads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is read from memory until its file is complete."""
    release = threading.Event()
    write = Ingestion.write

    def write_late(ingestion: Ingestion, is_wanted: Callable[[], bool]) -> bool:
        assert release.wait(30)
        return write(ingestion, is_wanted)

    monkeypatch.setattr(Ingestion, "write", write_late)
    local = served.instance.state.local
    served.send(frames.WRITES, ONE_PUT.serialize(), sequence=1)
    served.commit()
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(local.wait_until_written, 1)
        served.send(frames.GET, ONE_GET.serialize(), session=SESSION + 1, applied=1)
        header, _ = served.receive()

        assert header.kind == frames.GET | frames.REPLY
        assert (local.applied_through, local.written_through) == (1, 0)
        release.set()
        written.result(30)
    assert local.written_through == 1


def test_a_busy_store_blocks_neither_others_nor_its_own_new_credentials(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load of minutes in one partition would block the tasks of all partitions."""
    instance = served.instance
    renewed: list[Mapping[str, str]] = []
    monkeypatch.setattr(instance.state.checkpoint.objects, "renew", renewed.append)
    is_loading, is_released = hold(monkeypatch, RocksDb, "__init__")
    with ThreadPoolExecutor(2) as threads:
        loaded = threads.submit(
            served.call, "load", session=SESSION + 1, version=7, load_empty=True
        )
        assert is_loading.wait(20)
        for number in (1, 2):
            opened = {**served.opened, "instance": number, "storage": {"token": "new"}}
            threads.submit(served.call, "open_instance", **opened).result(30)
        assert not loaded.done()
        is_released.set()
        loaded.result(30)

    assert renewed == [{"token": "new"}]
    served.call("close_instance", instance=2)
