"""A run that has ended, whose checkpoint was deleted, and whose providers are maintained once more.

Spark maintains the providers of a stopped query for a while. Meanwhile a new run of the query may
have begun a checkpoint at the same place.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest
from rig import Rig, family

from cairn.checkpoint.faults import FaultPoint, no_fault
from cairn.clock import SYSTEM_CLOCK, Clock, FakeClock
from cairn.errors import UnavailableError
from cairn.store.snapshot.lineage_bound import take_now
from cairn.store.snapshot.purge import purge

FAMILY = family(0, multi=False)
KEEP = 2


class Place:
    """A checkpoint's place, where one run after the other has a store."""

    def __init__(self, tmp_path: Path, checkpoint_format: int) -> None:
        self._tmp_path = tmp_path
        self.checkpoint_format = checkpoint_format
        self.root = tmp_path / "checkpoint" / "state" / "0" / "3"
        self._runs = 0

    def run(self, clock: Clock = SYSTEM_CLOCK) -> Run:
        """Begin a run; ``clock`` is that of its worker."""
        self._runs += 1
        conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": KEEP, "orphanGraceMs": 0}
        local, name = self._tmp_path / f"local{self._runs}", f"run {self._runs}"
        rig = Rig(local, str(self.root), self.checkpoint_format, conf, run=name, clock=clock)
        return Run(self, rig, self._runs * 1000)

    def delete(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self._tmp_path / "checkpoint")

    def names(self) -> set[str]:
        """Return the names of all objects."""
        return {
            path.relative_to(self.root).as_posix()
            for path in self.root.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }


class Run:
    """One run, on one executor."""

    def __init__(self, place: Place, rig: Rig, first_attempt: int) -> None:
        self._place = place
        self.rig = rig
        self._attempt = first_attempt
        self.ids: list[str | None] = [None]
        rig.load(0, None)

    def commit(self, versions: int = 1) -> None:
        """Commit versions, each of which changes one row."""
        for _ in range(versions):
            version = len(self.ids)
            self.rig.write([(1, 0, b"%d" % (version % 5), self.value(version), 0)])
            self._attempt += 1
            answer = self.rig.commit(version, self.ids[-1], [FAMILY], self._attempt)
            self.ids.append(answer["checkpoint_id"])
            self.rig.load(version, self.id_at(version))

    def value(self, version: int) -> bytes:
        """Return the value that a version writes."""
        return b"%d of %d" % (version, self._attempt // 1000)

    def id_at(self, version: int) -> str | None:
        """Return Spark's id of a version."""
        return self.ids[version] if self._place.checkpoint_format == 2 else None

    def file(self, version: int) -> str:
        """Return the name of a version's changelog."""
        id_ = self.id_at(version)
        return f"{version}.arrow" if id_ is None else f"{version}_{id_}.arrow"

    def maintain(self) -> int:
        """Maintain as Spark does; return how many objects were deleted."""
        return int(self.rig.maintain()["deleted_objects"])

    def check(self, place: Place) -> None:
        """Load each version that is retained on another executor."""
        newest = len(self.ids) - 1
        for version in range(max(1, newest - KEEP + 1), newest + 1):
            other = place.run()
            other.rig.load(version, self.id_at(version))
            rows = {b"%d" % (v % 5): self.value(v) for v in range(1, version + 1)}
            assert other.rig.contents(0, version) == rows
            other.rig.crash()


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a place without a checkpoint."""
    return Place(tmp_path, request.param)


def former_run(place: Place) -> Run:
    """Return a run that has snapshots, was stopped, and whose checkpoint was deleted."""
    former = place.run()
    former.commit(5)
    former.maintain()
    former.commit(6)
    former.maintain()
    former.commit(2)
    place.delete()
    return former


def test_a_former_run_changes_nothing_in_the_checkpoint_of_the_next_one(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Its snapshot made its purge legitimate, and that deleted changelogs by number."""
    former, new = former_run(place), place.run()
    new.commit(4)
    before = place.names()

    with caplog.at_level(logging.WARNING):
        deleted = [former.maintain() for _ in range(3)]

    assert place.names() == before
    assert deleted == [0, 0, 0]
    new.check(place)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert "0/3/default" in warnings[0]
    assert "version 13" in warnings[0]
    for run in (former, new):
        run.rig.crash()


def test_a_task_of_a_former_run_that_commits_late_does_not_prove_its_checkpoint(
    place: Place,
) -> None:
    """Its changelog lies in the new checkpoint, but nothing that it was built on."""
    former, new = former_run(place), place.run()
    new.commit(2)
    former.commit(1)
    before = place.names()
    assert any(name.startswith("changelog/14") for name in before)

    assert former.maintain() == 0

    assert place.names() == before
    new.commit(2)
    new.check(place)
    for run in (former, new):
        run.rig.crash()


def test_the_late_commit_of_a_former_run_does_not_hold_up_the_new_one(place: Place) -> None:
    """In format 1 it has the name of a version that the new run will commit."""
    former, new = former_run(place), place.run()
    new.commit(11)
    former.commit(1)

    new.commit(6)
    new.maintain()

    new.check(place)
    for run in (former, new):
        run.rig.crash()


@pytest.mark.parametrize(
    "point", [FaultPoint.SNAPSHOT_AFTER_SST, FaultPoint.SNAPSHOT_BEFORE_MANIFEST], ids=str
)
def test_no_snapshot_is_stored_if_the_checkpoint_is_replaced_during_its_upload(
    place: Place, point: FaultPoint
) -> None:
    """An upload may take hours."""
    clock = FakeClock()
    former = place.run(clock)
    former.commit(5)
    runs: list[Run] = []

    def replace(reached: str) -> None:
        if reached == point and not runs:
            clock.advance(60)
            place.delete()
            runs.append(place.run())
            runs[0].commit(6)

    former.rig.fault = replace
    take_now(former.rig.state, 20)

    assert not any(name.startswith("snapshot/") for name in place.names())
    runs[0].check(place)
    for run in (former, *runs):
        run.rig.crash()


def test_a_snapshot_that_is_repeated_looks_whether_the_checkpoint_is_still_there(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt failed because a person deleted the checkpoint: that takes a while."""
    former = place.run()
    former.commit(5)

    def refuse(*_: object, **__: object) -> None:
        raise UnavailableError("the folder is being deleted")

    with monkeypatch.context() as patched:
        patched.setattr(former.rig.state.checkpoint.objects, "upload", refuse)
        take_now(former.rig.state, 20)
    place.delete()
    new = place.run()
    new.commit(4)
    before = place.names()

    former.maintain()

    assert place.names() == before
    new.check(place)
    for run in (former, new):
        run.rig.crash()


def test_a_query_that_runs_on_has_whole_snapshots_again(place: Place) -> None:
    """A person has deleted its checkpoint; what was uploaded before is not there."""
    clock = FakeClock()
    run = place.run(clock)
    run.commit(5)

    def delete(reached: str) -> None:
        if reached == FaultPoint.SNAPSHOT_BEFORE_MANIFEST:
            run.rig.fault = no_fault
            clock.advance(60)
            place.delete()

    run.rig.fault = delete
    take_now(run.rig.state, 20)
    run.commit(5)
    run.maintain()

    other = place.run()
    other.rig.load(10, run.id_at(10))
    assert other.rig.contents(0, 10) == {b"%d" % (v % 5): run.value(v) for v in range(6, 11)}
    for each in (run, other):
        each.rig.crash()


@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.PURGE_AFTER_PINS,
        FaultPoint.PURGE_BEFORE_MANIFEST,
        FaultPoint.PURGE_BEFORE_CHANGELOGS,
    ],
    ids=str,
)
def test_a_purge_spares_a_checkpoint_that_replaces_its_own_meanwhile(
    place: Place, point: FaultPoint
) -> None:
    """Only names that the chain has are deleted, and a name that is shared only if it is theirs."""
    former = place.run()
    former.commit(6)
    former.rig.maintain(cleanup=False)
    former.commit(6)
    former.rig.maintain(cleanup=False)
    former.commit(2)
    runs: list[Run] = []

    def replace(reached: str) -> None:
        if reached == point and not runs:
            place.delete()
            runs.append(place.run())
            runs[0].commit(8)

    former.rig.fault = replace
    with former.rig.state.snapshots.lock:
        purge(former.rig.state, None)

    (new,) = runs
    assert {f"changelog/{new.file(v)}" for v in range(1, 9)} <= place.names()
    new.check(place)
    for run in (former, new):
        run.rig.crash()


def test_a_former_run_changes_nothing_in_a_copy_that_was_restored(
    place: Place, tmp_path: Path
) -> None:
    """The copy is older than the run: it has its objects, but needs those that the run does not."""
    former = place.run()
    former.commit(6)
    former.maintain()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    former.commit(6)
    former.maintain()
    former.commit(3)
    place.delete()
    shutil.copytree(tmp_path / "copy", tmp_path / "checkpoint")
    before = place.names()

    assert former.maintain() == 0

    assert place.names() == before
    del former.ids[7:]
    former.check(place)
    former.rig.crash()


def test_a_sweep_of_a_former_run_spares_the_new_checkpoint(place: Place) -> None:
    """It lists the store, and takes for orphans what its own versions do not need."""
    former, new = former_run(place), place.run()
    new.commit(4)
    before = place.names()

    with former.rig.state.snapshots.lock:
        purge(former.rig.state, None, sweeps=True)

    assert place.names() == before
    for run in (former, new):
        run.rig.crash()


def test_an_idle_store_whose_checkpoint_is_gone_sends_no_requests(place: Place) -> None:
    """Spark maintains it each minute until it unloads it."""
    former = former_run(place)
    former.maintain()
    objects = former.rig.state.checkpoint.objects
    before = objects.request_counts()

    for _ in range(5):
        former.maintain()

    assert objects.request_counts() == before
    former.rig.crash()


def test_a_store_that_was_loaded_from_its_own_snapshot_is_maintained(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The changelog of the loaded version is gone: the snapshot proves the checkpoint."""
    place = Place(tmp_path, 2)  # only Spark's id leads to such a snapshot
    run = place.run()
    run.commit(6)
    run.maintain()
    (place.root / "changelog" / run.file(6)).unlink()
    other = place.run()
    other.ids = run.ids
    other.rig.load(6, run.ids[6])

    other.maintain()
    other.commit(2)
    other.maintain()

    assert f"snapshot/7_{other.ids[7]}.json" in place.names()
    assert not [record for record in caplog.records if "deleted or replaced" in record.message]
    for each in (run, other):
        each.rig.crash()
