"""Uploads that take longer than the grace period, that fail, and that other writers sweep under."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import pytest
from checkpoint_kit import (
    GRACE_MS,
    ModelVersion,
    World,
    attempt,
    changelog_ref,
    read_directory,
)
from running_query import Query

from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.orphans import SweepLimits, sweep_orphans
from cairn.checkpoint.pending_upload import PendingUpload
from cairn.checkpoint.upload import SnapshotResult
from cairn.errors import BusyError, UnavailableError
from cairn.storage.base import Payload, StoredObject
from cairn.storage.parallel import in_turns
from harness.processes import wait_until

T = TypeVar("T")
_GRACE_S = GRACE_MS / 1000


def at(wanted: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Return a fault hook that calls ``act`` at one point."""

    def hook(point: str) -> None:
        if point == wanted:
            act()

    return hook


def sweep(query: Query, fault: Callable[[str], None] = lambda _: None) -> int:
    """Sweep as another writer of the store does, which has just committed something."""
    world = query.world
    world.objects.put("changelog/900000.arrow", b"a young object: the storage's time")
    assert query.previous is not None
    return len(
        sweep_orphans(world.objects, query.previous, query.kept, SweepLimits(GRACE_MS), fault=fault)
    )


def grown(query: Query) -> ModelVersion:
    """Commit a version with other rows, so that its snapshot needs new SSTs."""
    number = query.newest.version + 1
    writes = {bytes([key]): b"new %d" % number for key in range(8)}
    return query.world.commit(query.newest, writes, attempt(number))


def snapshot(
    query: Query,
    model: ModelVersion,
    pending: PendingUpload | None = None,
    fault: Callable[[str], None] = lambda _: None,
) -> SnapshotResult:
    """Upload a snapshot of ``model``."""
    return query.world.snapshot(
        model,
        changelogs=(changelog_ref(model),),
        previous=query.previous,
        known=query.known,
        pending=pending,
        fault=fault,
    )


def content_of(world: World, result: SnapshotResult) -> dict[bytes, bytes]:
    """Return the rows of a snapshot, loaded on a fresh machine."""
    target = world.folder("load")
    recovery = world.recovery()
    recovery.materialize(recovery.fetch_manifest(result.manifest.ref), target)
    return read_directory(target)


def put_counts(world: World) -> int:
    """Return the number of PUTs so far."""
    return world.objects.request_counts().get("PutObject", 0)


def await_other_pin(world: World, former: list[str]) -> None:
    """Wait until the pins are others."""
    wait_until(lambda: world.names("pin/") != former, 20, "a new pin")


def test_an_upload_longer_than_the_grace_period_completes(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first snapshot of a large state takes hours, and sweeps of others run meanwhile."""
    monkeypatch.setattr("cairn.checkpoint.upload.KEEP_PIN_EVERY_S", 0.005)
    query.run(3)
    model = grown(query)
    world = query.world
    files = itertools.count(1)

    def a_slow_file() -> None:
        if next(files) > 1:
            return
        for _ in range(12):
            world.clock.advance(_GRACE_S * 0.3)
            before = world.names("pin/")
            await_other_pin(world, before)
            sweep(query)

    result = snapshot(query, model, None, at(FaultPoint.SNAPSHOT_AFTER_SST, a_slow_file))

    assert result.won
    assert content_of(world, result) == model.content
    assert world.names("pin/") == []


def test_a_short_upload_stores_no_pin(query: Query) -> None:
    """Each store takes a snapshot every ten versions: three more requests would double its cost.

    It looks whether the last manifest is there, which another uploader has stored.
    """
    query.run(3)
    model = grown(query)
    before = query.world.objects.request_counts()

    snapshot(query, model)

    sent = {
        name: count - before.get(name, 0)
        for name, count in query.world.objects.request_counts().items()
        if count != before.get(name, 0)
    }
    assert sent == {"GetObject": 1, "PutObject": 3}


def test_the_next_attempt_uploads_what_is_missing(query: Query) -> None:
    """Large uploads fail now and then; from the beginning each time they would never end."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()
    uploads = itertools.count(1)

    def the_second_fails() -> None:
        if next(uploads) == 2:
            raise UnavailableError("the storage does not answer")

    with pytest.raises(UnavailableError):
        snapshot(query, model, pending, at(FaultPoint.SNAPSHOT_BEFORE_SST, the_second_fails))
    assert len(pending.files) == 1
    assert pending.left_files == 1
    before = put_counts(world)
    result = snapshot(query, model, pending)

    assert put_counts(world) - before == 2  # a file, the manifest
    assert (result.uploaded_files, result.reused_files) == (1, 1)
    assert content_of(world, result) == model.content


def test_what_failed_attempts_uploaded_is_kept_for_days(query: Query) -> None:
    """The bucket refuses the manifest for longer than the grace period, and others sweep."""
    query.run(3)
    model = grown(query)
    pending = query.world.uploader().new_pending()

    def refuse() -> None:
        raise UnavailableError("the storage does not answer")

    for _ in range(12):
        with pytest.raises(UnavailableError):
            snapshot(query, model, pending, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, refuse))
        query.world.clock.advance(_GRACE_S * 0.4)
        sweep(query)
    before = put_counts(query.world)
    result = snapshot(query, model, pending)

    assert result.uploaded_files == 0
    assert put_counts(query.world) - before == 2  # the pin, the manifest
    assert content_of(query.world, result) == model.content


def test_a_worker_that_stood_still_uses_none_of_its_files(query: Query) -> None:
    """A stopped process renews nothing; a manifest that names deleted files cannot be loaded."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()

    def refuse() -> None:
        world.clock.advance(_GRACE_S * 0.3)
        pending.keep(world.objects)
        raise UnavailableError("the storage does not answer")

    with pytest.raises(UnavailableError):
        snapshot(query, model, pending, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, refuse))
    assert len(world.names("pin/")) == 1
    world.clock.advance(_GRACE_S * 1.1)
    swept = sweep(query)

    with pytest.raises(BusyError, match="pin of a snapshot"):
        snapshot(query, model, pending)

    assert swept == 2
    assert pending.is_lost
    assert [name for name in world.names("snapshot/") if f"/{model.version}_" in name] == []
    again = snapshot(query, model)
    assert content_of(world, again) == model.content


@pytest.mark.parametrize(
    ("stopped_at", "is_left"),
    [
        pytest.param(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, False, id="before"),
        # Another writer may have built on it, and have purged what it replaces.
        pytest.param(FaultPoint.SNAPSHOT_AFTER_MANIFEST, True, id="after"),
    ],
)
def test_a_writer_that_stood_still_beside_its_manifest_notices_a_sweep(
    query: Query, stopped_at: str, *, is_left: bool
) -> None:
    """The sweep has found its pin old by then. It deletes a manifest that it has just stored."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()

    def stand_still(point: str) -> None:
        if point == FaultPoint.SNAPSHOT_BEFORE_MANIFEST:
            world.clock.advance(_GRACE_S * 0.3)
            pending.keep(world.objects)
        if point == stopped_at:
            world.clock.advance(_GRACE_S * 1.1)
            sweep(query)

    with pytest.raises(BusyError, match="pin of a snapshot"):
        snapshot(query, model, pending, stand_still)

    left = [name for name in world.names("snapshot/") if f"/{model.version}_" in name]
    assert bool(left) == is_left


def test_a_manifest_that_was_stored_during_a_sweep_keeps_its_files(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep found the pin old, but it was there when the writer looked: that is in time."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()
    is_sweeping, is_stored = threading.Event(), threading.Event()
    delete = world.objects.delete

    def delete_pins_late(keys: list[str]) -> None:
        if threading.current_thread() is sweeper and keys[0].startswith("pin/"):
            is_sweeping.set()
            assert is_stored.wait(10)
        delete(keys)

    def stand_still() -> None:
        world.clock.advance(_GRACE_S * 1.1)
        sweeper.start()
        assert is_sweeping.wait(10)

    def slow() -> None:
        world.clock.advance(_GRACE_S * 0.2)

    sweeper = threading.Thread(target=lambda: sweep(query))
    monkeypatch.setattr(world.objects, "delete", delete_pins_late)

    def hook(point: str) -> None:
        at(FaultPoint.SNAPSHOT_AFTER_SST, slow)(point)
        at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, stand_still)(point)

    result = snapshot(query, model, pending, hook)
    is_stored.set()
    sweeper.join(10)

    assert result.won
    assert content_of(world, result) == model.content


def test_a_pin_that_is_renewed_during_a_sweep_keeps_its_files(query: Query) -> None:
    """The sweep found the former object old; the renewed one protects the files."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()
    delete = world.objects.delete

    def renew_before(keys: list[str]) -> None:
        patch.undo()
        pending.keep(world.objects)
        delete(keys)

    def refuse() -> None:
        world.clock.advance(_GRACE_S * 0.3)
        pending.keep(world.objects)
        world.clock.advance(_GRACE_S * 1.1)
        raise UnavailableError("the storage does not answer")

    with pytest.raises(UnavailableError):
        snapshot(query, model, pending, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, refuse))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.objects, "delete", renew_before)
        assert sweep(query) == 0
    result = snapshot(query, model, pending)

    assert result.uploaded_files == 0
    assert content_of(world, result) == model.content


def test_a_pin_of_an_unknown_kind_protects_every_sst(query: Query) -> None:
    """A newer release may pin a version for a reader or a copy."""
    query.run(6)
    loser = query.world.uploader().new_pending()

    def refuse() -> None:
        raise UnavailableError("the storage does not answer")

    with pytest.raises(UnavailableError):
        snapshot(query, grown(query), loser, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, refuse))
    query.world.objects.put("pin/savepoint-1.json", b"{}")
    query.world.clock.advance(_GRACE_S * 2)
    before = query.world.names("sst/")

    sweep(query)

    assert query.world.names("sst/") == before
    query.world.objects.delete(["pin/savepoint-1.json"])
    assert sweep(query) == 2


def test_a_lost_answer_to_a_renewal_loses_no_file(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The renewed pin was stored, and the worker does not know it."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()
    put = world.objects.put_if_absent
    lost = itertools.count(1)

    def lose_some_answers(key: str, data: Payload) -> None:
        put(key, data)
        if key.startswith("pin/") and next(lost) % 2:
            raise UnavailableError("no answer")

    monkeypatch.setattr(world.objects, "put_if_absent", lose_some_answers)

    def refuse() -> None:
        raise UnavailableError("the storage does not answer")

    for _ in range(20):
        with pytest.raises(UnavailableError):
            snapshot(query, model, pending, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, refuse))
        world.clock.advance(_GRACE_S * 0.13)
        sweep(query)
    assert next(lost) > 8
    monkeypatch.undo()
    result = snapshot(query, model, pending)

    assert content_of(world, result) == model.content
    assert world.names("pin/") == []


def test_pins_of_dead_writers_are_swept(query: Query) -> None:
    """Their files too: a killed worker leaves gigabytes."""
    query.run(3)
    world = query.world
    pending = world.uploader().new_pending()

    def die() -> None:
        world.clock.advance(_GRACE_S * 0.3)
        pending.keep(world.objects)
        raise UnavailableError("the worker ends")

    with pytest.raises(UnavailableError):
        snapshot(query, grown(query), pending, at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, die))
    ssts = len(world.names("sst/"))
    world.clock.advance(_GRACE_S * 0.9)
    assert sweep(query) == 0
    world.clock.advance(_GRACE_S * 0.2)

    assert sweep(query) == 2

    assert world.names("pin/") == []
    assert len(world.names("sst/")) == ssts - 2


@pytest.mark.parametrize("is_old", [False, True])
def test_a_pin_that_cannot_be_checked_gives_up_no_file(
    query: Query, monkeypatch: pytest.MonkeyPatch, *, is_old: bool
) -> None:
    """The pin is there, but the answer is not. A pin that was renewed lately needs no answer."""
    query.run(3)
    model = grown(query)
    world = query.world
    pending = world.uploader().new_pending()
    get = world.objects.get
    failures = itertools.count(1)

    def fail_once(key: str, **limit: int) -> StoredObject:
        if key.startswith("pin/") and next(failures) == 1:
            raise UnavailableError("no answer")
        return get(key, **limit)

    monkeypatch.setattr(world.objects, "get", fail_once)

    def long() -> None:
        world.clock.advance(_GRACE_S * 0.3)
        pending.keep(world.objects)
        world.clock.advance(_GRACE_S * 0.6 if is_old else 0)

    fault = at(FaultPoint.SNAPSHOT_BEFORE_MANIFEST, long)
    if is_old:
        with pytest.raises(UnavailableError):
            snapshot(query, model, pending, fault)
        result = snapshot(query, model, pending)
        assert result.uploaded_files == 0
    else:
        result = snapshot(query, model, pending, fault)

    assert next(failures) > 1
    assert content_of(world, result) == model.content


def first(running: Collection[Future[T]]) -> Collection[Future[T]]:
    """Wait until a call has ended."""
    return wait(running, return_when=FIRST_COMPLETED).done


def test_stores_take_turns() -> None:
    """A store of two files must not wait until the thousands of another one are uploaded."""
    order: list[str] = []
    go_on = threading.Event()
    submitted = threading.Semaphore(0)

    class Shared(ThreadPoolExecutor):
        def submit(self, *call: Any, **named: Any) -> Future[Any]:  # noqa: ANN401 - any call's
            future = super().submit(*call, **named)
            submitted.release()
            return future

    def work(name: str) -> None:
        go_on.wait(10)
        order.append(name)

    with Shared(2) as shared, ThreadPoolExecutor(2) as callers:

        def run(name: str, count: int) -> list[None]:
            return list(in_turns(shared, work, [name] * count, at_once=2, await_some=first))

        large = callers.submit(run, "large", 200)
        assert all(submitted.acquire(timeout=10) for _ in range(2))
        small = callers.submit(run, "small", 2)
        assert all(submitted.acquire(timeout=10) for _ in range(2))
        go_on.set()
        small.result(20)
        large.result(20)

    assert len(order) == 202
    assert order.index("small") < 10
    assert len(order) - order[::-1].index("small") < 20


def test_turns_end_with_the_first_failure() -> None:
    """No call is running or waiting when the failure is raised, and the others' files are known."""
    ended: list[int] = []
    other_runs, is_found = threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number == 3:
            assert other_runs.wait(10)
            raise UnavailableError("the storage does not answer")
        if number > 3:
            other_runs.set()
            assert is_found.wait(10)
            # Time for a wrong one to raise the failure while this call runs.
            threading.Event().wait(0.05)
        ended.append(number)
        return number

    def noted(running: Collection[Future[int]]) -> Collection[Future[int]]:
        done = first(running)
        if any(future.exception() for future in done):
            is_found.set()
        return done

    with ThreadPoolExecutor(2) as shared:
        with pytest.raises(UnavailableError):
            list(in_turns(shared, work, range(1, 51), at_once=2, await_some=noted))
        count = len(ended)

    assert len(ended) == count
    assert count < 10
