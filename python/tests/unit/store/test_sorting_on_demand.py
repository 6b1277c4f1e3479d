"""What is done with committed deltas depends on whether somebody reads them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

import pytest
from rig import Rig, family

from cairn.rocks import Ingestion, RocksDb
from cairn.store.local import arrivals, merging
from cairn.store.rows.deltas import CommittedRun, Delta

FAMILY = family(0, multi=False)
VERSIONS = 5


@pytest.fixture
def sorts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the first and last version of each sort and merge."""
    seen: list[tuple[int, int]] = []

    def noted(parts: Any) -> CommittedRun:  # noqa: ANN401 - passes on what it gets
        seen.append((parts[0].first, parts[-1].last))
        return CommittedRun(parts)

    monkeypatch.setattr(merging, "CommittedRun", noted)
    return seen


def commit(rig: Rig, first: int, last: int, base: str | None = None) -> str:
    """Commit versions whose presence the shim knows, so that no commit reads; load the last one."""
    found = base
    for version in range(first, last + 1):
        presence = 2 if version == 1 else 1
        rig.write([(1, 0, b"%03d" % version, b"v", 2), (1, 0, b"all", b"%d" % version, presence)])
        found = rig.commit(version, found, [FAMILY])["checkpoint_id"]
        rig.load(version, found)
    rig.event_loop.run(lambda: None)
    assert found is not None
    return found


def expected(last: int) -> dict[bytes, bytes]:
    return {b"%03d" % version: b"v" for version in range(1, last + 1)} | {b"all": b"%d" % last}


def test_nothing_is_sorted_until_the_first_read(rig: Rig, sorts: list[tuple[int, int]]) -> None:
    """The shim's cache answers most reads: sorting costs as much CPU as the rest of a commit."""
    commit(rig, 1, VERSIONS)
    assert sorts == []
    assert rig.local.applied_through == VERSIONS  # the shim may drop what it has cached

    found = rig.look_up(0, [b"all", b"002"], 0)

    assert found == [b"%d" % VERSIONS, b"v"]
    assert sorts == [(1, VERSIONS)]
    assert rig.contents(0, VERSIONS) == expected(VERSIONS)


def test_the_first_read_never_sorts_more_than_some_versions(
    rig: Rig,
    sorts: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait too long after a day of tiny commits."""
    monkeypatch.setattr(arrivals, "MAX_UNSORTED", 3)

    commit(rig, 1, 6)
    rig.until_applied(4)

    assert sorts[0] == (1, 4)


def test_a_read_may_come_before_an_empty_delta_is_noted(rig: Rig) -> None:
    """An empty commit has no rows to sort."""
    commit(rig, 1, 1)
    rig.look_up(0, [b"all"], 0)
    failures: list[object] = []

    def read_at_once() -> None:
        rig.local.enqueue(Delta(2, [], frozenset()))
        rig.local.when_readable(2, failures.append)

    rig.event_loop.run(read_at_once)

    rig.until_applied(2)
    assert failures == [None]


def test_the_estimate_of_keys_has_rows_that_the_database_lacks(rig: Rig) -> None:
    """The shim reads a state without counts into its cache if it seems to fit."""
    commit(rig, 1, VERSIONS)

    assert rig.state.figures()["estimated_keys_count"] == 2 * VERSIONS

    rig.look_up(0, [b"all"], 0)  # sorts and merges them
    assert rig.state.figures()["estimated_keys_count"] == VERSIONS + 1


def test_a_database_is_told_whether_reads_search_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between each two writes: it then merges its files early."""
    told: list[bool] = []
    note_use = RocksDb.note_use

    def noted(database: RocksDb, *, is_read: bool) -> None:
        told.append(is_read)
        note_use(database, is_read=is_read)

    monkeypatch.setattr(RocksDb, "note_use", noted)
    last, through = commit(rig, 1, 1), 1

    def write(*, is_read: bool) -> list[bool]:
        """Commit a version, read perhaps, write it; return what the database was told."""
        nonlocal last, through
        last, through = commit(rig, through + 1, through + 1, last), through + 1
        if is_read:
            rig.look_up(0, [b"all"], 0)
        told.clear()
        rig.local.wait_until_written(through)
        return list(told)

    for is_read in (False, True, False, True, True, False):
        assert write(is_read=is_read) == [is_read]
    assert rig.contents(0, through) == expected(through)


def commit_above_a_snapshot(rig: Rig) -> int:
    """Commit six versions, of which a snapshot holds back those above 3; return the incarnation."""
    last = commit(rig, 1, 3)
    incarnation = rig.local.incarnation
    assert rig.event_loop.run(lambda: rig.local.hold_above(3, incarnation))
    commit(rig, 4, 6, last)
    return incarnation


def test_newer_versions_are_read_while_a_snapshot_holds_them_back(
    rig: Rig, sorts: list[tuple[int, int]]
) -> None:
    """A snapshot may take minutes: a read neither waits for it nor keeps the event loop busy."""
    incarnation = commit_above_a_snapshot(rig)
    steps = 0

    def counted() -> Generator[None]:
        nonlocal steps
        for _ in rig.local.until_readable(6):
            steps += 1
            yield

    rig.event_loop.run_stepwise(counted())

    assert steps < 500, "each step waits a millisecond for the sort"
    assert sorts == [(1, 3), (4, 6)]
    assert rig.local.written_through == 0
    assert rig.contents(0, 6) == expected(6)
    rig.event_loop.run(lambda: rig.local.release_held(incarnation))


def test_rows_to_be_written_are_written_with_a_version_that_arrives_before_their_sort(
    rig: Rig, sorts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run has both. If it is not written, no store of the worker writes to free memory."""
    last = commit(rig, 1, 1)
    may_sort = threading.Event()
    submit = rig.resources.sorting.submit

    def submit_late(sort: Callable[..., None], *parts: Any) -> Future[None]:  # noqa: ANN401
        def run() -> None:
            assert may_sort.wait(20)
            sort(*parts)

        return submit(run)

    monkeypatch.setattr(rig.resources.sorting, "submit", submit_late)
    rig.event_loop.run(lambda: rig.local.when_readable(1, lambda _: None))  # begins a sort
    last = commit(rig, 2, 2, last)
    rig.event_loop.run(rig.local.writer.write_runs)
    commit(rig, 3, 3, last)
    written = rig.resources.background.submit(rig.until_written, 2)

    may_sort.set()

    written.result(20)
    assert sorts[:2] == [(1, 1), (2, 3)]
    is_due = rig.event_loop.run(lambda: rig.local.writer.is_write_due)
    assert (is_due, rig.local.written_through) == (False, 3)
    assert rig.contents(0, 3) == expected(3)


def test_rows_that_must_be_written_may_arrive_after_others_are(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot may begin before the rows of its version arrive: it would wait for ever."""
    last = commit(rig, 1, 1)

    def write_all() -> None:
        rig.local.writer.need(2)  # as a snapshot of version 2
        rig.local.writer.write_runs()  # as another store that needs memory

    rig.event_loop.run(write_all)
    rig.until_written(1)
    has_written = threading.Event()
    ingest = RocksDb.ingest

    def noted(database: RocksDb, ingestion: Ingestion) -> None:
        ingest(database, ingestion)
        has_written.set()

    monkeypatch.setattr(RocksDb, "ingest", noted)
    commit(rig, 2, 2, last)

    assert has_written.wait(20)
    assert rig.event_loop.run(lambda: rig.local.written_through) == 2


def test_a_snapshot_holds_back_a_run_that_is_written_with_an_earlier_one(
    rig: Rig, sorts: list[tuple[int, int]]
) -> None:
    """The snapshot's database must have no row above its version."""
    incarnation = commit_above_a_snapshot(rig)

    rig.event_loop.run(rig.local.writer.write_runs)
    rig.until_written(3)
    rig.until_applied(6)

    assert sorts == [(1, 3), (4, 6)]
    assert rig.event_loop.run(lambda: rig.local.written_through) == 3
    rig.event_loop.run(lambda: rig.local.release_held(incarnation))
    rig.until_written(6)
    assert rig.contents(0, 6) == expected(6)
