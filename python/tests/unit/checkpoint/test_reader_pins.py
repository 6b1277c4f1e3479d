"""Pins of readers: what they protect, from purges and sweeps, and what they cost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from checkpoint_kit import GRACE_MS, STORE, ModelVersion, World
from running_query import KEEP, Query

from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.purge import Purger, PurgeSchedule
from cairn.checkpoint.reader_pins import PIN_AFTER_MS, RENEWAL_MS, ReaderPin, ReaderPins
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.store_checkpoint import StoreCheckpoint
from cairn.checkpoint.transfers import TransferResources
from cairn.checkpoint.upload import SnapshotWriter
from cairn.clock import SYSTEM_ENTROPY, FakeClock
from cairn.config import EngineConf
from cairn.errors import AccessError, MissingError, UnavailableError
from cairn.storage.base import Payload
from cairn.storage.memory import MemoryStore
from cairn.store.load.lineage import reading_of
from cairn.store.state.version import StoreVersion

PIN_AFTER_S = PIN_AFTER_MS / 1000
RENEWAL_S = RENEWAL_MS / 1000
LONG_GRACE_MS = 3_600_000


@dataclass
class Readers:
    """A worker that reads the versions of a query."""

    world: World
    objects: MemoryStore
    clock: FakeClock
    pins: ReaderPins
    checkpoint: StoreCheckpoint

    def begin(self, model: ModelVersion) -> ReaderPin:
        """Begin to read a version; its header is read, and nothing else."""
        pin = self.pins.begin(self.checkpoint)
        pin.reads(reading_of(self.version_of(model)))
        return pin

    def pinned(self, model: ModelVersion) -> ReaderPin:
        """Begin to read a version, and read until it is pinned."""
        pin = self.begin(model)
        self.clock.advance(PIN_AFTER_S)
        self.pins.keep()
        return pin

    def version_of(self, model: ModelVersion) -> StoreVersion:
        assert model.ref is not None
        head = self.checkpoint.read(model.ref.version, str(model.ref.checkpoint_id))
        return StoreVersion.of_header(head.header)

    def requests(self) -> dict[str, int]:
        return self.objects.request_counts()


def new_readers(world: World, folder: Path, grace_ms: int = LONG_GRACE_MS) -> Readers:
    clock = FakeClock()
    objects = world.connect()
    checkpoint = StoreCheckpoint(
        objects,
        STORE,
        world.checkpoint_format,
        EngineConf(orphan_grace_ms=grace_ms),
        SnapshotWriter("run", "reader", {}),
        TransferResources(SstCache(folder / "reader", 1 << 20), None, None, 2, clock),  # type: ignore[arg-type] # transfers nothing
    )
    return Readers(world, objects, clock, ReaderPins(clock, SYSTEM_ENTROPY), checkpoint)


@pytest.fixture
def readers(world: World, tmp_path: Path) -> Readers:
    """A worker that reads."""
    return new_readers(world, tmp_path)


def is_whole(query: Query, model: ModelVersion) -> bool:
    """Whether a version loads; with other rows it would fail."""
    assert model.ref is not None
    try:
        found = query.world.load(model.ref.version, model.ref.checkpoint_id)
    except MissingError:
        return False
    assert found == model.content
    return True


def pinned_after_eight(query: Query, readers: Readers) -> tuple[ModelVersion, ReaderPin]:
    """Commit eight versions and pin the last; return both."""
    query.run(8)
    model = query.all[-1]
    return model, readers.pinned(model)


def go_on(query: Query, versions: int) -> None:
    """Commit far beyond retention, with a snapshot and a purge every now and then."""
    for _ in range(versions // 3):
        query.run(3)
        query.purge()
    query.check()


# -- what a pin protects ---------------------------------------------------------------------------


def test_a_pinned_version_stays_and_the_versions_after_it_go(
    query: Query, readers: Readers
) -> None:
    """A reader of hours must not keep all that the query commits meanwhile."""
    model, _ = pinned_after_eight(query, readers)

    go_on(query, 30)

    assert is_whole(query, model)
    names = [name.split("_")[0].removesuffix(".arrow") for name in query.world.names()]
    assert [name for name in names if name.startswith("snapshot/")] == [
        "snapshot/33",
        "snapshot/36",
        "snapshot/6",
    ]
    changelogs = {int(name[10:]) for name in names if name.startswith("changelog/")}
    assert changelogs == {7, 8, *range(34, 39)}


def test_everything_goes_once_the_read_has_ended(query: Query, readers: Readers) -> None:
    """A pin that outlived its read would cost for ever."""
    model, pin = pinned_after_eight(query, readers)
    go_on(query, 12)

    pin.end()
    readers.pins.keep()
    go_on(query, 6)
    query.world.clock.advance(GRACE_MS / 1000)
    go_on(query, 6)

    assert not is_whole(query, model)
    assert query.world.names("pin/") == []
    versions = {name.split("_")[0].removesuffix(".arrow") for name in query.world.names()}
    assert not {"snapshot/6", "changelog/7", "changelog/8"} & versions
    assert query.previous is not None
    named = {name for entry in query.previous.retained for name in entry.objects}
    named |= {file.object_name for file in query.previous.files}
    named |= {entry.object_name for entry in query.previous.garbage}
    assert set(query.world.names("sst/")) == named


def test_a_dead_reader_protects_nothing_after_the_grace_period(
    query: Query, readers: Readers
) -> None:
    """Its process was killed: nobody deletes its pin but the sweep."""
    model, _ = pinned_after_eight(query, readers)
    go_on(query, 12)
    assert is_whole(query, model)

    query.world.clock.advance(GRACE_MS / 1000 + 1)
    go_on(query, 6)

    assert not is_whole(query, model)
    query.sweep()
    assert query.world.names("pin/") == []


def test_the_next_writer_knows_the_gap(query: Query, readers: Readers) -> None:
    """The chain has a gap above the pinned version; a later writer must find all of it."""
    model, pin = pinned_after_eight(query, readers)
    go_on(query, 12)
    base = query.newest.base.ref
    assert base is not None

    query.previous = query.world.recovery().fetch_manifest(base)
    query.known = {}
    go_on(query, 12)

    assert is_whole(query, model)
    pin.end()
    readers.pins.keep()
    go_on(query, 6)
    versions = {name.split("_")[0].removesuffix(".arrow") for name in query.world.names()}
    assert not {"snapshot/6", "changelog/7", "changelog/8"} & versions


def test_a_sweep_keeps_what_is_pinned(query: Query, readers: Readers) -> None:
    """The sweep of a writer whose chain does not name these versions."""
    model, _ = pinned_after_eight(query, readers)
    go_on(query, 3)
    query.run(12)
    query.world.clock.advance(GRACE_MS / 1000 / 2)
    readers.clock.advance(RENEWAL_S)
    readers.pins.keep()
    query.world.clock.advance(GRACE_MS / 1000 / 2 + 1)
    query.run(1)

    query.sweep()

    assert is_whole(query, model)
    assert query.sweep() == 0


def test_a_version_that_is_pinned_after_the_listing_is_not_deleted(
    query: Query, readers: Readers
) -> None:
    """A purge that has listed the pins found the version retained, so it does not delete it."""
    query.run(17)
    oldest = query.all[-KEEP]

    def pin(point: str) -> None:
        if point == FaultPoint.PURGE_AFTER_PINS:
            readers.pinned(oldest)

    result = query.purge(pin)

    assert result.deleted_objects
    go_on(query, 12)
    assert is_whole(query, oldest)


def test_a_pin_of_an_unknown_kind_stops_every_deletion(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """A savepoint of a later release protects objects that this release cannot know."""
    query.run(17)
    query.world.objects.put("pin/savepoint-1.json", b"of a later release")
    before = query.world.names()
    assert query.previous is not None
    purger = Purger(query.world.objects, query.world.checkpoint_format, grace_ms=GRACE_MS)

    result = purger.purge(query.previous, query.kept, query.world.clock.now())

    assert result is None
    query.world.clock.advance(GRACE_MS / 1000 + 1)
    query.world.objects.put("changelog/999.arrow", b"a young object: the storage's time")
    assert not sweep_orphans(query.world.objects, query.previous, query.kept, SweepLimits(GRACE_MS))
    assert query.world.names() == sorted([*before, "changelog/999.arrow"])
    assert "pin/savepoint-1.json" in caplog.text


# -- the reader's side -----------------------------------------------------------------------------


def test_a_short_read_sends_no_request(query: Query, readers: Readers) -> None:
    """Each task's load would cost two requests more."""
    query.run(4)
    pin = readers.begin(query.newest)
    before = readers.requests()

    readers.clock.advance(PIN_AFTER_S - 0.1)
    readers.pins.keep()
    pin.end()
    readers.pins.keep()

    assert readers.requests() == before
    assert query.world.names("pin/") == []


def test_a_long_read_is_renewed_and_then_deleted(query: Query, readers: Readers) -> None:
    """With each renewal there is one object, not older than the renewal."""
    query.run(4)
    pin = readers.pinned(query.newest)
    first = query.world.names("pin/")

    readers.clock.advance(RENEWAL_S - 0.1)
    readers.pins.keep()
    assert query.world.names("pin/") == first
    readers.clock.advance(0.1)
    readers.pins.keep()
    second = query.world.names("pin/")
    assert len(first) == len(second) == 1
    assert second[0] == first[0].replace("_1.json", "_2.json")

    pin.end()
    readers.pins.keep()
    assert query.world.names("pin/") == []
    assert pin.is_over


def test_a_short_grace_period_renews_more_often(query: Query, world: World, tmp_path: Path) -> None:
    """Otherwise the pin is dead between two renewals."""
    readers = new_readers(world, tmp_path, grace_ms=GRACE_MS)
    query.run(4)
    readers.pinned(query.newest)

    readers.clock.advance(GRACE_MS / 1000 / 4)
    readers.pins.keep()

    (name,) = query.world.names("pin/")
    assert name.endswith("_2.json")


def test_a_read_that_needs_an_older_base_pins_it_at_once(query: Query, readers: Readers) -> None:
    """A load that goes around a damaged snapshot continues from the one before."""
    query.run(8)
    pin = readers.pinned(query.all[-1])
    older = readers.version_of(query.all[4])
    newest = readers.version_of(query.all[-1])
    assert older.base.version == 3

    reading = reading_of(newest)
    pin.reads(type(reading)(3, reading.version, reading.checkpoint_id, reading.oldest))
    readers.pins.keep()

    (name,) = query.world.names("pin/")
    assert "_3_8_2.json" in name


def test_without_write_permission_it_reads_on_and_says_so_once(
    query: Query,
    readers: Readers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An analyst may have the right to read only."""
    query.run(4)
    denied: list[str] = []

    def deny(key: str, _: Payload) -> None:
        denied.append(key)
        raise AccessError("access is denied", object_name=key)

    monkeypatch.setattr(readers.objects, "put_if_absent", deny)
    with caplog.at_level(logging.WARNING):
        pins = [readers.pinned(query.newest), readers.pinned(query.all[-2])]
        readers.clock.advance(RENEWAL_S)
        readers.pins.keep()
        for pin in pins:
            pin.end()
        readers.pins.keep()

    assert len(denied) == len(pins)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not pinned" in caplog.text
    assert all(pin.is_over and pin.is_given_up for pin in pins)


def test_a_pin_that_is_not_stored_is_tried_again(
    query: Query, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage that does not answer for a moment must not cost the protection."""
    query.run(4)
    put, fails = readers.objects.put_if_absent, [True]

    def put_later(key: str, data: Payload) -> None:
        if fails.pop() if fails else False:
            raise UnavailableError("no answer", object_name=key)
        put(key, data)

    monkeypatch.setattr(readers.objects, "put_if_absent", put_later)
    readers.pinned(query.newest)
    assert query.world.names("pin/") == []

    readers.clock.advance(30)
    readers.pins.keep()

    assert len(query.world.names("pin/")) == 1


def test_a_thread_stores_and_deletes_the_pins(
    query: Query, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read itself never waits for its pin."""
    query.run(4)
    stored, deleted = threading.Event(), threading.Event()
    put, delete = readers.objects.put_if_absent, readers.objects.delete

    def put_and_say(key: str, data: Payload) -> None:
        put(key, data)
        stored.set()

    def delete_and_say(keys: Sequence[str]) -> None:
        delete(keys)
        deleted.set()

    monkeypatch.setattr(readers.objects, "put_if_absent", put_and_say)
    monkeypatch.setattr(readers.objects, "delete", delete_and_say)
    readers.pins.start()

    pin = readers.begin(query.newest)
    readers.clock.advance(PIN_AFTER_S)
    assert stored.wait(20)
    pin.end()
    assert deleted.wait(20)
    assert query.world.names("pin/") == []


def test_a_read_that_was_too_late_says_so(query: Query, readers: Readers) -> None:
    """The user learns that retention was faster, not only that an object is missing."""
    query.run(8)
    model = query.all[-1]
    pin = readers.begin(model)
    go_on(query, 30)

    readers.clock.advance(PIN_AFTER_S)
    readers.pins.keep()

    assert pin.is_late
    error = MissingError("the object does not exist", next_step="restore it")
    pin.explain(error)
    assert "retention" in str(error)
    assert "minBatchesToRetain" in str(error)


def test_a_read_that_was_in_time_blames_nothing(query: Query, readers: Readers) -> None:
    """An object that is missing for another reason must be restored."""
    query.run(8)
    pin = readers.pinned(query.all[-1])

    error = MissingError("the object does not exist", next_step="restore it")
    pin.explain(error)

    assert not pin.is_late
    assert error.next_step == "restore it"


def test_a_read_of_a_version_without_a_snapshot_looks_for_its_first_changelog(
    query: Query, readers: Readers
) -> None:
    """It begins with the empty state."""
    query.run(2)
    pin = readers.begin(query.newest)
    other = readers.begin(query.all[0])
    assert query.newest.ref is not None
    query.world.objects.delete(query.world.names("changelog/"))

    readers.clock.advance(PIN_AFTER_S)
    readers.pins.keep()

    assert pin.is_late
    assert other.is_late
    assert {name.split("_", 1)[1] for name in query.world.names("pin/")} == {
        "0_1_1.json",
        "0_2_1.json",
    }


# -- when a purge is due ---------------------------------------------------------------------------


def test_a_purge_waits_for_time_or_for_work() -> None:
    """Each purge lists the pins: one LIST per snapshot would be many."""
    clock = FakeClock()
    schedule = PurgeSchedule(clock, LONG_GRACE_MS)

    assert schedule.is_due(10, 100)
    schedule.done(10)
    assert not schedule.is_due(109, 100)
    assert schedule.is_due(110, 100)
    clock.advance(599)
    assert not schedule.is_due(20, 100)
    clock.advance(1)
    assert schedule.is_due(20, 100)
    schedule.done(20)
    assert not schedule.is_due(20, 100)


@pytest.mark.parametrize(("seconds_per_commit", "most_lists"), [(1, 10), (10, 30)])
def test_how_often_a_purge_lists(world: World, seconds_per_commit: int, most_lists: int) -> None:
    """1,000 commits, a snapshot per 10, 100 versions retained; pins, and manifests for old SSTs."""
    query = Query(world, keep=100, every=10)
    schedule = PurgeSchedule(world.clock, LONG_GRACE_MS)
    purger = Purger(world.objects, world.checkpoint_format, grace_ms=LONG_GRACE_MS)

    def run(snapshots: int) -> None:
        for _ in range(snapshots):
            query.run(10, seconds_per_commit)
            assert query.previous is not None
            now = world.clock.now()
            result = purger.purge(query.previous, query.kept, now, schedule=schedule)
            query.previous = query.previous if result is None else result.manifest

    run(30)
    before = world.objects.request_counts()
    run(100)

    lists = world.objects.request_counts()["ListObjectsV2"] - before["ListObjectsV2"]
    assert 0 < lists <= most_lists
    assert len(world.names("changelog/")) < 2 * 100 + 20
