"""A session's writes: none is lost without its commit hearing of it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from cairn.errors import CairnError, ClosedError
from cairn.rocks import RocksDb, RocksMemory
from cairn.store import spill as spills
from cairn.store.cursors import ScanRequest, read_page
from cairn.store.session import StoreSession
from cairn.store.spill import Spill
from cairn.store.writes import WRITES_SCHEMA

KIB = 1 << 10
MIB = 1 << 20


def puts(keys: list[bytes], value: bytes = b"v") -> pa.RecordBatch:
    rows = [{"op": 1, "cf": 0, "key": key, "value": value, "presence": 2} for key in keys]
    return pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)


def keys_of(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [key for batch in batches for key in batch.to_pydict()["key"]]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as running:
        yield running


@pytest.fixture
def session(tmp_path: Path, pool: ThreadPoolExecutor) -> StoreSession:
    """Return one that makes a run of every frame."""
    return StoreSession(1, tmp_path / "s1", lambda job: void(pool.submit(job)), run_bytes=1)


def void(_: object) -> None:
    """Take what nobody wants."""


def raising(failure: Exception) -> Callable[..., pa.RecordBatch]:
    def fail(*_: object) -> pa.RecordBatch:
        raise failure

    return fail


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (MemoryError("malloc of size 8 failed"), "CAIRN_BUSY"),
        (pa.ArrowInvalid("offset overflow"), "CAIRN_INTERNAL"),
        (OSError(errno.ENOSPC, "No space left on device"), "CAIRN_DISK_FULL"),
    ],
    ids=["memory", "arrow", "disk"],
)
def test_a_spill_that_fails_fails_its_commit(
    session: StoreSession,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
    code: str,
) -> None:
    """Its rows were once counted as committed, and were not in the changelog."""
    with monkeypatch.context() as broken:
        broken.setattr(spills, "coalesce", raising(failure))
        session.add_frame(1, puts([b"a"]))
        pool.submit(int).result()
    session.add_frame(2, puts([b"b"]))

    with pytest.raises(CairnError) as told:
        session.complete(2, 2, 1)
    assert told.value.code == code
    with pytest.raises(CairnError):
        session.written()


class HeldRun:
    """Makes the next run wait until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        stored = Spill._stored

        def wait(spill: Spill, rows: pa.RecordBatch) -> pa.RecordBatch:
            self.begun.set()
            assert self.let_go.wait(20)
            return stored(spill, rows)

        monkeypatch.setattr(Spill, "_stored", wait)


def test_frames_come_in_while_a_run_is_made(
    session: StoreSession, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner takes them, and serves all other stores: it must not wait for a disk."""
    held = HeldRun(monkeypatch)
    session.add_frame(1, puts([b"a"]))
    assert held.begun.wait(20)
    session.add_frame(2, puts([b"b"]))
    session.add_frame(3, puts([b"c"]))
    assert not held.let_go.is_set()

    held.let_go.set()

    assert keys_of(session.complete(3, 3, 20)) == [b"a", b"b", b"c"]
    pool.submit(int).result()
    assert keys_of(session.complete(3, 3, 20)) == [b"a", b"b", b"c"]


def test_a_session_closed_while_a_run_is_made_leaves_nothing(
    session: StoreSession,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Aborted tasks come by the thousand; the local disk is shared."""
    held = HeldRun(monkeypatch)
    session.add_frame(1, puts([b"a"]))
    assert held.begun.wait(20)
    session.close()
    held.let_go.set()
    pool.submit(int).result()

    assert not list(tmp_path.iterdir())
    with pytest.raises(ClosedError):
        session.complete(1, 1, 1)


def test_writes_are_committed_once(session: StoreSession, pool: ThreadPoolExecutor) -> None:
    """A second commit of the session would make an empty version."""
    session.add_frame(1, puts([b"a"]))
    pool.submit(int).result()
    assert keys_of(session.complete(1, 1, 1)) == [b"a"]
    session.forget_frames()

    with pytest.raises(ClosedError):
        session.complete(1, 1, 1)


def test_a_page_over_a_spill_is_bounded_by_bytes(tmp_path: Path) -> None:
    """16,384 rows of 5 KiB are more than a message takes."""
    database = RocksDb(tmp_path / "db", RocksMemory(8 * MIB, 8 * MIB, 100), create=True)
    keys = [b"%05d" % number for number in range(3000)]
    spill = Spill(tmp_path / "s")
    spill.add([puts(keys, b"x" * 5 * KIB)])
    found: list[bytes] = []
    start, more = None, True
    while more:
        page = read_page(database, spill, ScanRequest(0, start, not found, None, 16_384, MIB))
        assert sum(map(len, page.values)) <= MIB + 6 * KIB
        found += page.keys
        start, more = found[-1], page.more

    assert found == keys
    database.close()
