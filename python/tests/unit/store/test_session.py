"""A session's writes: if any is lost, the commit fails."""

from __future__ import annotations

import errno
import queue
import random
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from cairn.clock import SystemClock
from cairn.errors import CairnError, ClosedError
from cairn.format.ops import OP_APPEND, OP_DELETE, OP_DROP_CF, OP_PUT
from cairn.protocol.frames import WRITES_SCHEMA
from cairn.rocks import RocksDb, RocksMemory
from cairn.store.rows import reads, runs
from cairn.store.rows.committed import CommittedRows, ScanRequest
from cairn.store.rows.deltas import CommittedRun, Delta
from cairn.store.rows.merge import value_bytes
from cairn.store.rows.reads import read_keys, read_page
from cairn.store.rows.runs import Run, Runs
from cairn.store.rows.writes import coalesce
from cairn.store.write import spill as spills
from cairn.store.write.session import SessionThreads, StoreSession
from cairn.store.write.spill import RunFiles

Result = TypeVar("Result")
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


class Disk:
    """The background thread and the event loop of a session, and the bytes that it spilled."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.spilled: list[int] = []
        self.threads = SessionThreads(
            lambda job: void(pool.submit(job)), self.calls.put, self.spilled.append
        )

    def serve_event_loop(self) -> None:
        """Make the next call that waits for the event loop."""
        self.calls.get(timeout=20)()


@pytest.fixture
def disk(pool: ThreadPoolExecutor) -> Disk:
    return Disk(pool)


@pytest.fixture
def session(tmp_path: Path, disk: Disk) -> StoreSession:
    """Return a session that makes a run of every frame."""
    return StoreSession(1, tmp_path / "s1", disk.threads, run_bytes=1)


def void(_: object) -> None:
    """Ignore a value."""


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
    """Its rows must not count as committed without being in the changelog."""
    with monkeypatch.context() as broken:
        broken.setattr(spills, "coalesce", raising(failure))
        session.add_frame(1, puts([b"a"]))
        pool.submit(int).result()
    session.add_frame(2, puts([b"b"]))

    with pytest.raises(CairnError) as raised:
        session.complete(2, 2, 1)
    assert raised.value.code == code
    with pytest.raises(CairnError):
        _ = session.spill


class HeldRun:
    """Blocks the next runs until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        make = RunFiles.make

        def wait(files: RunFiles, batches: Sequence[pa.RecordBatch]) -> Run:
            self.begun.set()
            assert self.released.wait(20)
            return make(files, batches)

        monkeypatch.setattr(RunFiles, "make", wait)


def test_frames_arrive_while_a_run_is_written(
    session: StoreSession, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop takes them and serves all other stores: it must not wait for a disk."""
    held = HeldRun(monkeypatch)
    session.add_frame(1, puts([b"a"]))
    assert held.begun.wait(20)
    session.add_frame(2, puts([b"b"]))
    session.add_frame(3, puts([b"c"]))
    assert not held.released.is_set()

    held.released.set()

    assert keys_of(session.complete(3, 3, 20)) == [b"a", b"b", b"c"]
    pool.submit(int).result()
    assert keys_of(session.complete(3, 3, 20)) == [b"a", b"b", b"c"]


def test_a_session_closed_while_a_run_is_written_leaves_nothing(
    session: StoreSession,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """There may be thousands of aborted tasks; the local disk is shared."""
    held = HeldRun(monkeypatch)
    session.add_frame(1, puts([b"a"]))
    assert held.begun.wait(20)
    session.close()
    held.released.set()
    pool.submit(int).result()

    assert not list(tmp_path.iterdir())
    with pytest.raises(ClosedError):
        session.complete(1, 1, 1)


def test_writes_are_committed_once(session: StoreSession, pool: ThreadPoolExecutor) -> None:
    """A second commit of the session would create an empty version."""
    session.add_frame(1, puts([b"a"]))
    pool.submit(int).result()
    assert keys_of(session.complete(1, 1, 1)) == [b"a"]
    session.forget_frames()

    with pytest.raises(ClosedError):
        session.complete(1, 1, 1)


def test_a_read_waits_for_the_run_and_the_event_loop_does_not(
    session: StoreSession, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run written on the event loop would stop every store of the worker meanwhile."""
    held = HeldRun(monkeypatch)
    seen: list[bytes] = []
    session.add_frame(1, puts([b"a"]))
    session.add_frame(2, puts([b"b"]))
    session.when_readable(lambda: seen.extend(keys_of(session.spill.batches())))
    assert held.begun.wait(20)
    assert not seen
    held.released.set()

    disk.serve_event_loop()

    assert sorted(seen) == [b"a", b"b"]


def test_the_end_of_a_session_is_reported_to_all_that_wait_for_a_run(
    session: StoreSession, disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read without an answer blocks its task until the timeout; a paused connection, forever."""
    held = HeldRun(monkeypatch)
    called: list[str] = []
    session.add_frame(1, puts([b"a"], b"v" * KIB))
    session.when_readable(lambda: called.append("reader"))
    assert session.pause_if_full(lambda: called.append("sender"))

    session.close()
    disk.serve_event_loop()
    disk.serve_event_loop()

    assert sorted(called) == ["reader", "sender"]
    held.released.set()
    pool.submit(int).result()


def test_frames_that_arrive_while_a_run_is_written_are_in_the_next(
    tmp_path: Path, disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they stay in memory until the next frame: 200 MB, in a worker of 256 MB."""
    session = StoreSession(1, tmp_path / "s1", disk.threads, run_bytes=8 * KIB)
    held = HeldRun(monkeypatch)
    for sequence in range(1, 41):
        session.add_frame(sequence, puts([b"%d" % sequence], b"v" * KIB))
    assert session.pause_if_full(lambda: None)
    held.released.set()

    disk.serve_event_loop()

    pool.submit(int).result()
    in_memory = 40 - len(keys_of(session.spill.batches()))
    assert in_memory < 8
    assert len(keys_of(session.complete(40, 40, 20))) == 40


def test_a_read_after_every_frame_writes_each_row_a_few_times(
    tmp_path: Path, disk: Disk, pool: ThreadPoolExecutor
) -> None:
    """Reads and writes alternate in a large state: no frame may rewrite all before it."""
    session = StoreSession(1, tmp_path / "s1", disk.threads, run_bytes=64 * KIB)
    frame_count = 64
    for sequence in range(1, frame_count + 1):
        session.add_frame(sequence, puts([b"%03d" % sequence], b"v" * KIB))
        session.when_readable(lambda: None)
        disk.serve_event_loop()
        pool.submit(int).result()

    assert sum(disk.spilled) < 8 * frame_count * 1.1 * KIB
    assert len(session.spill.runs) <= 8
    assert len(set(keys_of(session.spill.batches()))) == frame_count


def test_a_gap_pauses_no_sender(
    session: StoreSession, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """The frame that fills it may be the next on the same connection."""
    session.add_frame(2, puts([b"b"], b"v" * KIB))
    assert not session.pause_if_full(lambda: None)

    session.add_frame(1, puts([b"a"]))

    assert keys_of(session.complete(2, 2, 20)) in ([b"a", b"b"], [b"b", b"a"])
    session.close()
    pool.submit(int).result()  # a run in progress removes its folder itself
    assert not list(tmp_path.iterdir())


@pytest.fixture
def committed(tmp_path: Path) -> Iterator[CommittedRows]:
    opened = RocksDb(tmp_path / "db", RocksMemory(8 * MIB, 8 * MIB, 100), create=True)
    yield CommittedRows(opened)
    opened.close()


def run_of(tmp_path: Path, rows: pa.RecordBatch) -> Run:
    return RunFiles(tmp_path / "s", MIB, void).make([rows])


class HurriedClock(SystemClock):
    """Every step of a read is over at once."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += 1_000_000_000
        return self._now_ns


def all_steps(steps: Generator[None, None, Result]) -> tuple[int, Result]:
    """Return how often a read yielded, and what it returned."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def test_a_page_over_a_spill_is_bounded_by_bytes(tmp_path: Path, committed: CommittedRows) -> None:
    """16,384 rows of 5 KiB are more than a message holds."""
    keys = [b"%05d" % number for number in range(3000)]
    spill = Runs((run_of(tmp_path, puts(keys, b"x" * 5 * KIB)),))
    found: list[bytes] = []
    start, more = None, True
    while more:
        request = ScanRequest(0, start, not found, None, 16_384, MIB)
        _, page = all_steps(read_page(committed, spill, request, SystemClock()))
        assert value_bytes(page.rows) <= MIB + 6 * KIB
        found += keys_of([page.rows])
        start, more = found[-1], page.through is not None

    assert found == keys


def test_a_page_over_many_deleted_keys_yields(tmp_path: Path, committed: CommittedRows) -> None:
    """120,000 of them in one step would stop every store of the worker for 3.6 s."""
    keys = [b"%06d" % number for number in range(10_000)]
    committed.add(run_in_memory(puts(keys)))
    rows = [{"op": 2, "cf": 0, "key": key, "value": None, "presence": 1} for key in keys[:-1]]
    spill = Runs((run_of(tmp_path, pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)),))
    request = ScanRequest(0, None, True, None, 1000, MIB)  # noqa: FBT003 - as the frame has it

    yields, page = all_steps(read_page(committed, spill, request, HurriedClock()))

    assert (keys_of([page.rows]), page.through) == (keys[-1:], None)
    assert yields >= len(keys) // 1000 - 1  # not after the last step


@pytest.mark.parametrize(("rows_per_key", "run_steps"), [(256, 1), (0, 8)])
def test_many_keys_are_looked_up_in_steps(
    tmp_path: Path,
    committed: CommittedRows,
    monkeypatch: pytest.MonkeyPatch,
    rows_per_key: int,
    run_steps: int,
) -> None:
    """4,096 keys over eight large runs in one step would occupy the event loop for 0.1 s."""
    monkeypatch.setattr(runs, "READ_ROWS_PER_KEY", rows_per_key)
    keys = [b"%06d" % number for number in range(4096)]
    spill = Runs(tuple(run_of(tmp_path, puts(keys[start::9], b"%d" % start)) for start in range(8)))

    yields, (origins, values) = all_steps(read_keys(committed, spill, 0, keys, HurriedClock()))

    assert yields >= len(spill.runs) * run_steps + len(keys) // 512
    expected = [b"%d" % (row % 9) if row % 9 < 8 else None for row in range(len(keys))]
    assert values == expected
    assert list(origins) == [0 if value is None else 2 for value in expected]


@pytest.mark.parametrize("rows_per_key", [256, 0])
def test_many_keys_of_a_spill_are_read_as_one_by_one(
    tmp_path: Path, committed: CommittedRows, monkeypatch: pytest.MonkeyPatch, rows_per_key: int
) -> None:
    """A key that the search in bulk misses would be read in its committed, older value."""
    monkeypatch.setattr(runs, "READ_ROWS_PER_KEY", rows_per_key)
    chance = random.Random(7)
    keys = [b"%d" % chance.randrange(10**12) for _ in range(600)] + [b"", b"1", b"\xff" * 20]
    committed.add(run_in_memory(puts(keys[::2], b"c")))
    spill = Runs(tuple(run_of(tmp_path, some_writes(chance, keys)) for _ in range(3)))
    wanted = sorted(set(keys) | {key + b"0" for key in keys[::3]})

    _, (origins, values) = all_steps(read_keys(committed, spill, 0, wanted, SystemClock()))

    expected = [reads.with_spill(spill, 0, key, committed.get(0, key)) for key in wanted]
    assert list(zip(origins, values, strict=True)) == expected
    assert {0, 1, 2, 3} == set(origins)


def some_writes(chance: random.Random, keys: list[bytes]) -> pa.RecordBatch:
    """Make puts, deletes and appends of a third of the keys."""
    rows = [
        {
            "op": op,
            "cf": 0,
            "key": key,
            "value": None if op == OP_DELETE else b"%d" % op,
            "presence": 2,
        }
        for key in chance.sample(sorted(set(keys)), len(keys) // 3)
        for op in [chance.choice([OP_PUT, OP_DELETE, OP_APPEND])]
    ]
    return coalesce([pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)])


@pytest.mark.parametrize("row_count", [1, 63, 64, 65, 128, 200])
def test_every_key_of_a_run_is_found_and_no_other(tmp_path: Path, row_count: int) -> None:
    """There is a fence at every 64th row."""
    keys = [b"%04d" % (2 * number) for number in range(row_count)]
    run = run_of(tmp_path, puts(keys))

    assert all(run.find(0, key) == (1, b"v") for key in keys)
    assert all(run.find(0, key + b"x") is None for key in (b"", *keys))
    assert run.find(1, keys[0]) is None
    for row, key in enumerate(keys):
        assert run.rows_of_range(0, key, None) == (row, row_count)
        assert run.rows_of_range(0, None, key) == (0, row)


def test_ranges_end_at_their_limits(
    tmp_path: Path, committed: CommittedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shim takes the ranges before the last row's as answered: the flag must be exact."""
    keys = [b"%04d" % number for number in range(100)]
    write_to_database(committed, keys)
    spill = Runs((run_of(tmp_path, puts([b"0011", b"00115"], b"spilled")),))
    ranges: list[tuple[bytes, bytes | None]] = [
        (b"%04d" % low, b"%04d" % (low + 3)) for low in range(0, 100, 10)
    ]
    expected = [key for key in keys if int(key) % 10 < 3]
    expected.insert(5, b"00115")

    def read(limit_rows: int, limit_bytes: int, spilled: Runs = spill) -> tuple[list[bytes], bool]:
        monkeypatch.setattr(reads, "MAX_PAGE_ROWS", limit_rows)
        monkeypatch.setattr(reads, "MAX_RANGES_BYTES", limit_bytes)
        yields, page = all_steps(reads.read_ranges(committed, spilled, 0, ranges, HurriedClock()))
        assert yields >= 1
        origins, keys, values = page.rows.to_pydict().values()
        assert origins == [2 if value == b"spilled" else 1 for value in values]
        return keys, page.through is not None

    assert read(1000, MIB) == (expected, False)
    assert read(len(expected), MIB) == (expected, False)
    for limit in range(1, len(expected)):
        assert read(limit, MIB) == (expected[:limit], True)
    assert read(1000, 8) == (expected[:2], True)
    plain = [key for key in expected if key != b"00115"]
    assert read(1000, 30 * 4, Runs()) == (plain, False)
    assert read(1000, 29 * 4, Runs()) == (plain[:29], True)


def test_a_page_of_ranges_that_has_no_row_is_the_last(
    tmp_path: Path, committed: CommittedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shim looks for the range of the last row, if more follow."""
    keys = [b"%04d" % number for number in range(40)]
    write_to_database(committed, keys)
    rows = [{"op": 2, "cf": 0, "key": key, "value": None, "presence": 1} for key in keys[:30]]
    spill = Runs((run_of(tmp_path, pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)),))
    monkeypatch.setattr(reads, "MAX_RANGES_BYTES", 5 * 4)
    ranges: list[tuple[bytes, bytes | None]] = [(b"0000", b"0002"), (b"0002", b"0033")]
    whole: list[tuple[bytes, bytes | None]] = [(b"", None)]
    for some, expected in ((ranges, keys[30:33]), (whole, keys[30:35])):
        _, page = all_steps(reads.read_ranges(committed, spill, 0, some, SystemClock()))

        assert keys_of([page.rows]) == expected
        assert (page.through is not None) == (expected == keys[30:35])


def test_a_dropped_family_stays_empty_while_its_ranges_are_read(committed: CommittedRows) -> None:
    """The run with the drop may be written into the database between two steps."""
    keys = [b"%04d" % number for number in range(40)]
    drop = [{"op": OP_DROP_CF, "cf": 0, "key": b"", "value": None, "presence": 0}]
    for rows in (puts(keys), pa.RecordBatch.from_pylist(drop, WRITES_SCHEMA)):
        committed.add(run_in_memory(rows))
    steps = reads.read_ranges(
        committed, Runs(), 0, [(key, key + b"0") for key in keys], HurriedClock()
    )
    next(steps)

    committed.replace(committed.newer)

    _, page = all_steps(steps)
    assert keys_of([page.rows]) == []


@pytest.mark.parametrize("steps_before", [0, 1, 2, 3, 4, 9])
def test_appends_are_read_once_while_their_run_is_written(
    tmp_path: Path,
    committed: CommittedRows,
    monkeypatch: pytest.MonkeyPatch,
    steps_before: int,
) -> None:
    """Between two steps the rows of a run may become rows of the database."""
    monkeypatch.setattr(reads, "RANGES_PER_STEP", 4)
    committed.database.multi_families = frozenset({0})
    keys = [b"%04d" % number for number in range(40)]
    rows = [{"op": OP_APPEND, "cf": 0, "key": key, "value": b"1", "presence": 1} for key in keys]
    appends = pa.RecordBatch.from_pylist(rows, WRITES_SCHEMA)
    more = [{**row, "value": b"2"} for row in rows[::4]]
    spill = Runs((run_of(tmp_path, pa.RecordBatch.from_pylist(more, WRITES_SCHEMA)),))
    committed.add(run_in_memory(appends))
    ranges: list[tuple[bytes, bytes | None]] = [(key, key + b"0") for key in keys]

    steps = reads.read_ranges(committed, spill, 0, ranges, HurriedClock())
    for _ in islice(steps, steps_before):
        assert committed.runs
    write_rows(committed, appends)
    committed.replace(committed.newer)

    _, page = all_steps(steps)
    assert keys_of([page.rows]) == keys
    values = page.rows.to_pydict()["value"]
    assert values == [b"1" if int(key) % 4 else b"12" for key in keys]


def run_in_memory(rows: pa.RecordBatch) -> CommittedRun:
    return CommittedRun([Delta(2, [changes_of(rows)], frozenset())])


def changes_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(["op", "cf", "key", "value"])


def write_to_database(committed: CommittedRows, keys: list[bytes]) -> None:
    write_rows(committed, puts(keys))


def write_rows(committed: CommittedRows, rows: pa.RecordBatch) -> None:
    database = committed.database
    ingestion = database.new_ingestion(changes_of(rows), 1, database.multi_families)
    ingestion.add(1000)
    ingestion.finish()
    database.ingest(ingestion)
