"""What a commit waits for after its PUT: the rows of its own store, or memory that is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rig import Rig, family

from cairn.rocks import RocksDb
from cairn.store.front import instance
from cairn.store.shared.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from cairn.rocks import Ingestion

FAMILY = family(0, multi=False)
PENDING_BYTES = 1 << 20
LIMIT_S = 60


class SlowWrites:
    """Lets files of rows of more than some bytes wait until ``release``."""

    def __init__(self) -> None:
        self.is_held = threading.Event()
        self.is_free = threading.Event()

    def write(self, database: RocksDb, ingestion: Ingestion, is_wanted: Any) -> bool:  # noqa: ANN401
        if ingestion.row_bytes > PENDING_BYTES // 2:
            self.is_held.set()
            assert self.is_free.wait(LIMIT_S)
        return _write(database, ingestion, is_wanted)


_write = RocksDb.write


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowWrites]:
    """Hold back the writes of large rows."""
    slow = SlowWrites()
    monkeypatch.setattr(instance, "MAX_PENDING_WAIT_S", 10 * LIMIT_S)
    # A bound method would not get the database.
    monkeypatch.setattr(RocksDb, "write", lambda db, *others: slow.write(db, *others))  # noqa: PLW0108
    yield slow
    slow.is_free.set()


@pytest.fixture
def other(rig: Rig, tmp_path: Path) -> Iterator[Rig]:
    """Return another store of the same worker."""
    assert rig.resources.pending.limit_bytes == PENDING_BYTES
    other = Rig(
        tmp_path / "other",
        str(tmp_path / "other-objects"),
        2,
        {"minDeltasForSnapshot": 2, "minBatchesToRetain": 2},
        beside=rig,
    )
    other.load(0, None)
    yield other
    other.crash()


def in_thread(call: Callable[[], dict[str, Any]]) -> tuple[threading.Thread, list[dict[str, Any]]]:
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    return thread, answers


def commit_large_rows(rig: Rig, slow: SlowWrites) -> tuple[threading.Thread, list[dict[str, Any]]]:
    """Begin a commit above the bound, whose rows do not reach the database yet."""
    rig.write([(1, 0, b"large%d" % number, bytes(PENDING_BYTES * 5 // 9), 2) for number in (1, 2)])
    begun = in_thread(lambda: rig.commit(1, None, [FAMILY]))
    assert slow.is_held.wait(LIMIT_S)
    return begun


def test_a_small_commit_does_not_wait_for_the_rows_of_another_store(
    rig: Rig, other: Rig, slow: SlowWrites
) -> None:
    """A second query in the worker stood still for as long as the large rows of the first took."""
    large, answers = commit_large_rows(rig, slow)

    other.write([(1, 0, b"small", b"v", 2)])
    small, of_small = in_thread(lambda: other.commit(1, None, [FAMILY]))
    small.join(LIMIT_S)

    assert [answer["memory_wait_us"] for answer in of_small] == [0]
    assert large.is_alive(), "its own rows need the memory"
    slow.is_free.set()
    large.join(LIMIT_S)
    assert [answer["memory_wait_us"] > 0 for answer in answers] == [True]


def test_a_commit_that_must_wait_has_the_rows_of_its_own_store_written(
    rig: Rig, other: Rig, slow: SlowWrites
) -> None:
    """Rows of one store at a time were written, and the slow ones held up all others."""
    large, _ = commit_large_rows(rig, slow)

    rows = [(1, 0, b"%04d" % number, bytes(1000), 2) for number in range(1000)]
    other.write(rows)
    middle, of_middle = in_thread(lambda: other.commit(1, None, [FAMILY]))
    middle.join(LIMIT_S)

    assert [answer["memory_wait_us"] > 0 for answer in of_middle] == [True]
    assert other.local.written_through == 1
    assert large.is_alive(), "these rows were to be written beside the large ones"
    other.load(1, of_middle[0]["checkpoint_id"])
    assert other.contents(0, 1, page_rows=1000) == {key: value for _, _, key, value, _ in rows}


class Store:
    """A store with some slices of work; notes when they are done."""

    run_bytes = waiting_since_ns = 0
    is_write_due = True

    def __init__(self, name: str, slices: int, scheduler: Scheduler, done: list[str]) -> None:
        self.name, self.slices, self.scheduler, self.done = name, slices, scheduler, done

    def write_slice(self) -> None:
        self.slices -= 1
        self.done.append(self.name)
        if not self.slices:
            del self.scheduler.writing[self]  # type: ignore[arg-type] # it has what this needs


def test_stores_that_write_take_turns(rig: Rig) -> None:
    """The few rows of a store whose commit waits are not behind all rows of another one."""
    done: list[str] = []
    scheduler = Scheduler(1 << 20, rig.resources.background)
    for store in (Store("large", 4, scheduler, done), Store("small", 1, scheduler, done)):
        scheduler.writing[store] = None  # type: ignore[index] # it has what this needs

    while scheduler.run_slice():
        pass

    assert done == ["large", "small", "large", "large", "large"]
