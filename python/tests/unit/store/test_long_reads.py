"""Reads that take long while the query goes on: on files, with a writer and a reader instance."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, family

import cairn.checkpoint.reader_pins
from cairn.checkpoint.reader_pins import PIN_AFTER_MS, ReaderPins
from cairn.clock import SYSTEM_ENTROPY, FakeClock
from cairn.errors import MissingError
from cairn.protocol.calls import ChangesRequest

FAMILY = family(0, multi=False)
READ = 7
LAST = 40
Rows = dict[bytes, bytes]


class Query:
    """A query that keeps two versions, and takes a snapshot of every second one."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.rows: list[Rows] = [{}]
        self.ids: list[str | None] = [None]
        rig.load(0, None)

    def run(self, versions: int) -> None:
        for _ in range(versions):
            number = len(self.ids)
            key, value = b"%d" % (number % 5), b"%d" % number * 50
            self.rig.write([(1, 0, key, value, 2)])
            self.ids.append(str(self.rig.commit(number, self.ids[-1], [FAMILY])["checkpoint_id"]))
            self.rows.append({**self.rows[-1], key: value})
            self.rig.load(number, self.ids[-1])
            self.rig.maintain()


class Reader:
    """An instance that reads; each request of a kind can be stopped."""

    def __init__(self, rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.clock = clock
        self.may_go_on = threading.Event()
        self.has_stopped = threading.Event()
        self._monkeypatch = monkeypatch
        self._threads = ThreadPoolExecutor(1)

    def stop_at(self, method: str) -> None:
        """Stop the next calls of a method of the object store."""
        objects = self.rig.state.checkpoint.objects
        real = getattr(objects, method)

        def late(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - any method's
            self.has_stopped.set()
            assert self.may_go_on.wait(20)
            return real(*args, **named)

        self._monkeypatch.setattr(objects, method, late)

    def load(self, version: int, id_: str | None) -> Future[dict[str, Any]]:
        """Begin a load, which stops before its first download."""
        self.stop_at("download")
        run = self._threads.submit(self.rig.load, version, id_)
        assert self.has_stopped.wait(20)
        return run

    def takes_long(self) -> None:
        """Let the time pass after which a read is pinned."""
        self.clock.advance(PIN_AFTER_MS / 1000)
        self.rig.resources.reader_pins.keep()

    def end(self) -> None:
        self.may_go_on.set()
        self._threads.shutdown()


@pytest.fixture
def new_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Return a function that opens an instance of the store."""
    rigs: list[Rig] = []

    def open_rig(name: str, pins: ReaderPins | None = None) -> Rig:
        conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 2}
        rig = Rig(tmp_path / name, str(tmp_path / "objects"), 2, conf, reader_pins=pins)
        rigs.append(rig)
        return rig

    yield open_rig
    for rig in rigs:
        rig.crash()


@pytest.fixture
def query(new_rig: Callable[..., Rig]) -> Query:
    """A query that has reached the version that is read."""
    query = Query(new_rig("writer"))
    query.run(READ)
    return query


@pytest.fixture
def reader(new_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """Another process that reads the store."""
    clock = FakeClock()
    reader = Reader(new_rig("reader", ReaderPins(clock, SYSTEM_ENTROPY)), clock, monkeypatch)
    yield reader
    reader.end()


def names(tmp_path: Path, kind: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / "objects" / kind).glob("*"))


def versions(tmp_path: Path, kind: str) -> list[int]:
    return sorted({int(name.split("_")[0]) for name in names(tmp_path, kind)})


def test_a_reader_loads_its_version_however_far_the_query_goes(
    query: Query, reader: Reader, tmp_path: Path
) -> None:
    """A load of an hour needs each object until its end; the versions after it may go."""
    run = reader.load(READ, query.ids[READ])
    reader.takes_long()
    assert len(names(tmp_path, "pin")) == 1

    query.run(LAST - READ)
    assert versions(tmp_path, "snapshot") == [READ - 1, LAST - 2, LAST]
    reader.may_go_on.set()
    answer = run.result(20)

    assert answer["snapshot_version"] == READ - 1
    assert reader.rig.contents(0, READ) == query.rows[READ]
    reader.rig.resources.reader_pins.keep()
    assert names(tmp_path, "pin") == []
    query.run(2)
    assert versions(tmp_path, "snapshot") == [LAST, LAST + 2]
    assert min(versions(tmp_path, "changelog")) > READ


def test_without_a_pin_the_objects_go_and_the_error_says_why(
    query: Query, reader: Reader, tmp_path: Path
) -> None:
    """A reader that stood still for longer than the grace period; it gets no older rows."""
    run = reader.load(READ, query.ids[READ])
    reader.takes_long()
    (pin,) = (tmp_path / "objects" / "pin").iterdir()
    os.utime(pin, (1, 1))

    query.run(LAST - READ)
    assert min(versions(tmp_path, "snapshot")) > READ
    for sst in (tmp_path / "objects" / "sst").iterdir():
        sst.unlink()  # as after the grace period
    reader.clock.advance(PIN_AFTER_MS)
    reader.rig.resources.reader_pins.keep()
    reader.may_go_on.set()

    with pytest.raises(MissingError, match="retention had left the version behind") as caught:
        run.result(20)
    assert "minBatchesToRetain" in str(caught.value)


def test_a_short_read_stores_no_pin(query: Query, reader: Reader, tmp_path: Path) -> None:
    """Each load of a task would cost requests."""
    run = reader.load(READ, query.ids[READ])
    reader.rig.resources.reader_pins.keep()
    reader.may_go_on.set()
    run.result(20)

    reader.takes_long()

    assert names(tmp_path, "pin") == []
    assert reader.rig.state.checkpoint.objects.request_counts().get("PutObject", 0) == 0


def test_a_change_feed_reads_to_its_end_however_far_the_query_goes(
    query: Query, reader: Reader, tmp_path: Path
) -> None:
    """It reads one changelog after the other, as slowly as its consumer."""
    feed = reader.rig.instance.changes
    answer = feed.versions(ChangesRequest(1, READ - 1, READ, query.ids[READ]))
    assert [version for version, _ in answer.versions] == [READ - 1, READ]
    reader.takes_long()

    query.run(LAST - READ)
    found: Rows = {}
    for version, id_ in answer.versions:
        page, more = feed.page(version, id_, 0, 100)
        assert page is not None
        assert not more
        rows = page.to_pydict()
        found |= dict(zip(rows["key"], rows["value"], strict=True))

    assert found == {
        key: value
        for key, value in query.rows[READ].items()
        if query.rows[READ - 2].get(key) != value
    }
    reader.rig.resources.reader_pins.keep()
    assert names(tmp_path, "pin") == []
    query.run(2)
    assert min(versions(tmp_path, "changelog")) > READ


def test_a_change_feed_that_is_closed_early_leaves_no_pin(
    query: Query, reader: Reader, tmp_path: Path
) -> None:
    """A `limit` ends the task before the last page."""
    answer = reader.rig.instance.changes.versions(
        ChangesRequest(1, READ - 1, READ, query.ids[READ])
    )
    assert answer.versions
    reader.takes_long()
    assert len(names(tmp_path, "pin")) == 1
    reader.rig.resources.reader_pins.start()

    reader.rig.instance.close()

    assert names(tmp_path, "pin") == []


def test_an_instance_is_closed_although_the_deletion_of_its_pin_hangs(
    query: Query, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 may take minutes to fail; meanwhile the worker could not close the store."""
    monkeypatch.setattr(cairn.checkpoint.reader_pins, "RELEASE_WAIT_S", 0)
    reader.rig.instance.changes.versions(ChangesRequest(1, READ - 1, READ, query.ids[READ]))
    reader.takes_long()
    reader.stop_at("delete")
    reader.rig.resources.reader_pins.start()

    reader.rig.instance.close()

    assert reader.rig.state.is_closed
    assert reader.has_stopped.wait(20)
    assert not reader.may_go_on.is_set()


def test_a_load_around_a_damaged_snapshot_pins_the_older_base(
    query: Query, reader: Reader, tmp_path: Path
) -> None:
    """The pin of the planned way does not protect the detour."""
    (damaged,) = (tmp_path / "objects" / "snapshot").glob(f"{READ - 1}_*")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    run = reader.load(READ, query.ids[READ])
    reader.takes_long()

    (pin,) = names(tmp_path, "pin")
    assert f"_{READ - 3}_{READ}_1.json" in pin
    query.run(LAST - READ)
    reader.may_go_on.set()
    run.result(20)

    assert reader.rig.contents(0, READ) == query.rows[READ]
