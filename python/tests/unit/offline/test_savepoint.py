"""`cairn.create_savepoint` and the others: a batch is kept while the query goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from rig import Rig
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS, SmallCheckpoint

import cairn
from cairn.checkpoint.faults import FaultPoint
from cairn.checkpoint.stored_versions import StoredVersions
from cairn.clock import FakeClock
from cairn.errors import AlreadyExistsError, BusyError, CairnError, ConfigError, NotThereError
from cairn.format import savepoint as savepoint_format
from cairn.format.names import ChangelogName, ManifestName, parse_name
from cairn.format.savepoint import Savepoint
from cairn.ids import StoreId
from cairn.offline.savepoint import create
from cairn.offline.savepoint_list import overview
from cairn.reader.stores.cairn import CairnRows
from cairn.storage.base import ObjectInfo, ObjectStart
from cairn.storage.local import LocalStore
from cairn.storage.open import open_store

KEEP = 4
_GRACE_MS = 1000
Rows = dict[bytes, bytes]


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCheckpoint]:
    """Return a checkpoint with six batches, of which the last four are retained."""
    conf = {"minBatchesToRetain": KEEP, "orphanGraceMs": _GRACE_MS}
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", request.param, conf)
    go_on(written, 6)
    yield written
    if written.stores:
        written.stop()


def go_on(written: RunningCheckpoint, batches: int) -> None:
    """Run batches with snapshots, purges, and Spark's own retention of its logs."""
    for _ in range(batches):
        batch = len(written.rows)
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        for rig in written.stores:
            with suppress(BusyError):  # a slow machine: its upload is older than the grace period
                rig.maintain()
        if batch > KEEP:
            for log in ("offsets", "commits"):
                (written.folder / log / str(batch - KEEP - 1)).unlink(missing_ok=True)


def kept_rows(written: RunningCheckpoint, kept: Savepoint) -> list[Rows]:
    """Return the rows of each partition, read from the objects by what the savepoint says."""
    found: list[Rows] = []
    for one in kept.stores:
        root = open_store(str(written.folder / one.store.folder), {})
        versions = StoredVersions(root, one.store, kept.checkpoint_format)
        with CairnRows(versions, one.ref.version, one.ref.checkpoint_id) as rows:
            assert rows.gone_around == ()
            found.append(
                {
                    key.as_py(): value.as_py()
                    for some in rows.rows("default")
                    for key, value in zip(some.keys, some.values, strict=True)
                }
            )
    return found


def engine_rows(written: RunningCheckpoint, kept: Savepoint, local: Path) -> list[Rows]:
    """Return the rows of each partition, as a new engine loads them."""
    found: list[Rows] = []
    for one in kept.stores:
        rig = Rig(
            local / str(one.store.partition),
            str(written.folder / one.store.folder),
            kept.checkpoint_format,
            {},
            run="load",
            store=one.store,
        )
        try:
            rig.load(one.ref.version, str(one.ref.checkpoint_id))
            found.append(rig.contents(0, one.ref.version))
        finally:
            rig.crash()
    return found


def objects_of(written: RunningCheckpoint) -> set[str]:
    """Return the names of all objects of stores."""
    found = {
        str(path.relative_to(written.folder)) for path in (written.folder / "state").rglob("*")
    }
    return {name for name in found if "/." not in name and "_metadata" not in name}


def pins_of(written: RunningCheckpoint) -> list[Path]:
    """Return the pins of savepoints."""
    return sorted(written.folder.glob("state/0/*/pin/savepoint-*"))


def findings_of(written: RunningCheckpoint) -> list[str]:
    """Return what verify finds about savepoints."""
    with cairn.open_checkpoint(str(written.folder)) as checkpoint:
        return [str(one) for one in checkpoint.verify() if one.rule == "savepoint-broken"]


def statuses_of(written: RunningCheckpoint) -> list[tuple[str | None, str]]:
    """Return the names and statuses of the list."""
    return [(one.name, one.status) for one in cairn.list_savepoints(str(written.folder))]


@pytest.mark.parametrize("batch", [None, 3], ids=["newest", "older"])
def test_the_state_of_a_savepoint_stays_while_the_query_goes_on(
    written: RunningCheckpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int | None,
) -> None:
    """It is read again after retention has left it far behind."""
    monkeypatch.setattr("cairn.offline.savepoint.SETTLING_S", 0)
    folder = str(written.folder)
    entries = {
        key: (written.folder / key).read_bytes()
        for key in (f"offsets/{batch or 5}", f"commits/{batch or 5}", "metadata")
    }
    made = cairn.create_savepoint(folder, name="before-release", batch=batch)
    whole = kept_rows(written, made)
    others = {path.parent.parent.name: path for path in pins_of(written)}

    go_on(written, 30)
    time.sleep(1.1 * _GRACE_MS / 1000)  # files go with their snapshot after that
    go_on(written, 3)

    assert len(others) == PARTITIONS
    (info,) = cairn.list_savepoints(folder)
    assert (info.name, info.batch, info.stores, info.status) == (
        "before-release",
        batch or 5,
        PARTITIONS,
        "whole",
    )
    assert findings_of(written) == []
    assert sum(map(len, whole)) == len(written.rows[batch or 5])
    assert kept_rows(written, made) == whole
    assert engine_rows(written, made, tmp_path / "again") == whole
    data = (written.folder / made.key).read_bytes()
    files = {one.key: one.data for one in savepoint_format.parse(data, object_name="").files}
    assert {key: files[key] for key in entries} == entries
    beside = {f"offsets/{(batch or 5) - 1}"} | ({f"offsets/{batch + 1}"} if batch else set())
    assert set(files) - set(entries) == beside | {
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
    }
    assert not (written.folder / "offsets" / str(batch or 5)).exists()


def test_what_a_deleted_savepoint_kept_goes_with_the_next_purge(
    written: RunningCheckpoint,
) -> None:
    """It would be paid for ever."""
    made = cairn.create_savepoint(str(written.folder), name="one")
    go_on(written, 12)
    # Not the SSTs: their names are random.
    versions = {f"/{one.ref.version}{end}" for one in made.stores for end in "_."}
    kept = {name for name in objects_of(written) if any(one in name for one in versions)}
    assert kept

    cairn.delete_savepoint(str(written.folder), "one")
    assert pins_of(written) == []
    go_on(written, 12)

    assert objects_of(written) & kept == set()
    assert statuses_of(written) == []


def test_an_attempt_that_was_replaced_after_a_rollback_is_still_found(
    written: RunningCheckpoint, tmp_path: Path
) -> None:
    """In checkpoint format 1 the later attempt has the plain name."""
    folder = str(written.folder)
    made = cairn.create_savepoint(folder, name="given-up")
    whole = kept_rows(written, made)
    written.stop()
    for log in ("offsets", "commits"):
        (written.folder / log / "5").unlink()
    written.go_back(4)
    written.start()
    written.commit({user: (777, user) for user in range(40)})
    for rig in written.stores:
        rig.maintain()
    go_on(written, 12)

    assert kept_rows(written, made) == whole
    assert engine_rows(written, made, tmp_path / "again") == whole
    assert findings_of(written) == []


def test_empty_commits_are_kept_by_their_real_versions(tmp_path: Path) -> None:
    """Their ids name an earlier version, and they have no object."""
    conf = {"minBatchesToRetain": KEEP, "orphanGraceMs": _GRACE_MS}
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", 2, conf)
    go_on(written, 3)
    for _ in range(3):
        written.commit({})
    made = cairn.create_savepoint(str(written.folder))
    whole = kept_rows(written, made)
    go_on(written, 20)

    assert {one.ref.version for one in made.stores} == {3}
    assert made.name.startswith("batch-5-")
    assert kept_rows(written, made) == whole
    assert sum(map(len, whole)) == len(written.rows[2])
    written.stop()


def test_a_batch_that_is_not_retained_is_refused_and_the_next_one_named(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pins would protect nothing."""
    monkeypatch.setattr("cairn.offline.savepoint.SETTLING_S", 0)
    for batch in range(6, 11):
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        written.snapshot()
    written.stop()
    floor = 6
    for kind in ("changelog", "snapshot"):
        for path in (written.folder / "state/0/1" / kind).iterdir():
            match parse_name(f"{kind}/{path.name}"):
                case ChangelogName(version, _) if version <= floor:
                    path.unlink()
                case ManifestName(version, _) if version < floor:
                    path.unlink()

    with pytest.raises(
        NotThereError, match=r"batch 3 is not retained.*choose batch [67] or a later"
    ):
        cairn.create_savepoint(str(written.folder), batch=3)

    assert pins_of(written) == []
    assert statuses_of(written) == []


@pytest.mark.parametrize("batch", [0, 6, 99])
def test_a_batch_that_is_not_committed_is_refused(written: RunningCheckpoint, batch: int) -> None:
    """The logs have others."""
    with pytest.raises(NotThereError, match=r"not committed; committed are: \d to 5"):
        cairn.create_savepoint(str(written.folder), batch=batch)


def test_a_purge_that_has_listed_the_pins_is_waited_for(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes the oldest objects after the pins were stored and looked at."""
    clock = FakeClock()
    slept: list[float] = []

    def purge(seconds: float) -> None:
        slept.append(seconds)
        next((written.folder / "state/0/2/changelog").glob("4*")).unlink()

    monkeypatch.setattr(clock, "sleep", purge)
    with (
        open_store(str(written.folder), {}) as objects,
        pytest.raises(NotThereError, match="batch 3 is not retained"),
    ):
        create(objects, batch=3, clock=clock)

    assert slept == [10]
    assert pins_of(written) == []


@pytest.mark.parametrize(
    "point",
    [
        FaultPoint.PURGE_AFTER_PINS,
        FaultPoint.PURGE_BEFORE_MANIFEST,
        FaultPoint.PURGE_BEFORE_CHANGELOGS,
        FaultPoint.PURGE_AFTER,
    ],
)
def test_a_savepoint_within_a_purge_is_whole(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, point: FaultPoint
) -> None:
    """The purge has listed the pins before, or has not; what it deletes is not of the batch."""
    clock = FakeClock()
    monkeypatch.setattr(clock, "sleep", lambda seconds: pytest.fail(f"slept {seconds}"))
    made: list[Savepoint] = []
    whole: list[list[Rows]] = []

    def begin(reached: str) -> None:
        if reached == point and not made:
            with open_store(str(written.folder), {}) as objects:
                made.append(create(objects, name="within", clock=clock))
            whole.append(kept_rows(written, made[0]))

    written.stores[0].fault = begin
    go_on(written, 16)

    assert made, "no purge came there"
    assert kept_rows(written, made[0]) == whole[0]
    assert findings_of(written) == []


def test_the_newest_batch_needs_no_waiting(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All writers retain it, whatever they have listed."""
    clock = FakeClock()
    monkeypatch.setattr(clock, "sleep", lambda seconds: pytest.fail(f"slept {seconds}"))
    written.plan(6)
    with open_store(str(written.folder), {}) as objects:
        create(objects, batch=5, clock=clock)
        create(objects, batch=5, name="again", clock=clock)


def test_a_creation_that_took_too_long_is_given_up(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean-up may have taken its pins for those of a dead process."""
    clock = FakeClock()
    real = LocalStore.put_if_absent

    def slow(self: LocalStore, key: str, data: bytes) -> None:
        clock.advance(1801)
        real(self, key, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", slow)
    with (
        open_store(str(written.folder), {}) as objects,
        pytest.raises(CairnError, match="CAIRN_BUSY"),
    ):
        create(objects, clock=clock)

    assert pins_of(written) == []
    assert statuses_of(written) == []


def test_names(written: RunningCheckpoint) -> None:
    """A name is a part of an object's key, and of one savepoint."""
    folder = str(written.folder)
    cairn.create_savepoint(folder, name="v1.2_a-B")
    for name in ("", ".hidden", "a/b", "a b", "é", "x" * 101):
        with pytest.raises(ConfigError, match="no name of a savepoint"):
            cairn.create_savepoint(folder, name=name)
        with pytest.raises(ConfigError, match="no name of a savepoint"):
            cairn.delete_savepoint(folder, name)
    with pytest.raises(AlreadyExistsError, match=r"there is a savepoint 'v1.2_a-B'"):
        cairn.create_savepoint(folder, name="v1.2_a-B")
    with pytest.raises(NotThereError, match=r"no savepoint 'other'; there are: v1.2_a-B"):
        cairn.delete_savepoint(folder, "other")
    cairn.create_savepoint(folder, name="x" * 100)

    assert statuses_of(written) == [("v1.2_a-B", "whole"), ("x" * 100, "whole")]
    assert len(pins_of(written)) == 2 * PARTITIONS


def test_a_savepoint_under_another_name_is_refused(written: RunningCheckpoint) -> None:
    """A person has copied its object: deleting the copy must not end the savepoint."""
    folder = str(written.folder)
    made = cairn.create_savepoint(folder, name="one")
    copy = written.folder / savepoint_format.key_of("copy")
    copy.write_bytes((written.folder / made.key).read_bytes())

    assert sorted(map(str, statuses_of(written))) == ["('copy', 'broken')", "('one', 'whole')"]
    cairn.delete_savepoint(folder, "copy")

    assert statuses_of(written) == [("one", "whole")]
    assert findings_of(written) == []


def test_of_two_of_one_name_one_is_created(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one leaves no pin."""
    both = threading.Barrier(2)
    real = LocalStore.put_if_absent

    def together(self: LocalStore, key: str, data: bytes) -> None:
        if "cairn-savepoints" in key:
            both.wait(20)
        real(self, key, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", together)
    with ThreadPoolExecutor(2) as threads:
        runs = [
            threads.submit(cairn.create_savepoint, str(written.folder), name="one")
            for _ in range(2)
        ]
        failures = [run.exception() for run in runs]

    assert sorted(map(str, map(type, failures))) == sorted(
        map(str, (type(None), AlreadyExistsError))
    )
    assert statuses_of(written) == [("one", "whole")]
    assert len(pins_of(written)) == PARTITIONS


def test_a_checkpoint_of_sparks_is_refused(tmp_path: Path) -> None:
    """Nothing would keep its files."""
    other = SmallCheckpoint(tmp_path / "ck")
    other.commit({1: (1, 1)})

    with pytest.raises(CairnError, match="CAIRN_UNSUPPORTED_STATE"):
        cairn.create_savepoint(str(other.folder))
    assert not (other.folder / "cairn-savepoints").exists()


class KilledError(BaseException):
    """The process was killed."""


def killed_after(patch: pytest.MonkeyPatch, calls: int) -> None:
    """Let the process die after some writes, before or after the next one reached the storage."""
    left = [calls // 2]
    lock = threading.Lock()

    def dies(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            with lock:
                left[0] -= 1
                if left[0] < 0:
                    if left[0] == -1 and calls % 2:
                        real(*args, **kwargs)
                    raise KilledError
                return real(*args, **kwargs)

        return call

    for name in ("put", "put_if_absent", "delete"):
        patch.setattr(LocalStore, name, dies(getattr(LocalStore, name)))


@pytest.mark.parametrize("calls", range(9))
def test_a_creation_that_was_killed_is_whole_or_unfinished(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """A savepoint that is listed must hold; what is left is cleaned up later, never too early."""
    folder = str(written.folder)
    with monkeypatch.context() as patch, suppress(KilledError):
        killed_after(patch, calls)
        cairn.create_savepoint(folder, name="one")
    found = statuses_of(written)
    assert found in ([], [("one", "whole")], [(None, "unfinished")])

    cairn.create_savepoint(folder, name="one" if ("one", "whole") not in found else "two")
    go_on(written, 12)

    assert findings_of(written) == []
    written.stop()
    with cairn.gc(folder, grace_s=0) as plan:
        assert [one for one in plan.orphans if "savepoint" in one.object_name] == []
    whole = sum(one.status == "whole" for one in cairn.list_savepoints(folder))
    for path in pins_of(written):
        age(path)
    with cairn.gc(folder) as plan:
        plan.apply()
    assert len(pins_of(written)) == whole * PARTITIONS
    assert {status for _, status in statuses_of(written)} == {"whole"}
    assert findings_of(written) == []


@pytest.mark.parametrize("calls", range(5))
def test_a_deletion_that_was_killed_leaves_no_broken_savepoint(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """It is repeated, or cleaned up."""
    folder = str(written.folder)
    cairn.create_savepoint(folder, name="one")
    with monkeypatch.context() as patch, suppress(KilledError):
        killed_after(patch, calls)
        cairn.delete_savepoint(folder, "one")

    assert statuses_of(written) in ([], [("one", "whole")], [(None, "unfinished")])
    with suppress(NotThereError):
        cairn.delete_savepoint(folder, "one")
    written.stop()
    for path in pins_of(written):
        age(path)
    with cairn.gc(folder) as plan:
        plan.apply()
    assert statuses_of(written) == []
    assert pins_of(written) == []


def test_gc_keeps_what_a_savepoint_keeps(written: RunningCheckpoint) -> None:
    """It deletes what no batch of the logs needs."""
    made = cairn.create_savepoint(str(written.folder), name="one")
    whole = kept_rows(written, made)
    go_on(written, 12)
    written.stop()
    for path in (written.folder / "state").rglob("*"):
        if path.is_file():
            age(path)

    with cairn.gc(str(written.folder)) as plan:
        plan.apply()

    assert kept_rows(written, made) == whole
    assert statuses_of(written) == [("one", "whole")]


def test_no_pin_is_dead_while_a_savepoint_cannot_be_read(written: RunningCheckpoint) -> None:
    """It may be one of its own."""
    folder = str(written.folder)
    made = cairn.create_savepoint(folder, name="one")
    (written.folder / made.key).write_bytes(b"{}")
    for path in pins_of(written):
        age(path)
    written.stop()

    with cairn.gc(folder) as plan:
        assert [one for one in plan.orphans if "savepoint" in one.object_name] == []
    assert statuses_of(written) == [("one", "broken")]
    assert len(findings_of(written)) == 1
    cairn.delete_savepoint(folder, "one")
    with cairn.gc(folder) as plan:
        plan.apply()
    assert pins_of(written) == []


@pytest.mark.parametrize("pattern", ["pin/savepoint-*", "changelog/6*", "snapshot/*", "sst/*"])
def test_a_savepoint_without_one_of_its_objects_is_a_finding(
    written: RunningCheckpoint, pattern: str
) -> None:
    """A person trusts it until it is needed."""
    made = cairn.create_savepoint(str(written.folder), name="one")
    assert made.stores[1].base.ref is not None
    assert findings_of(written) == []
    for path in (written.folder / "state/0/1").glob(pattern):
        path.unlink()

    found = findings_of(written)

    assert found
    assert all("savepoint one needs it" in one for one in found)
    assert all("in 0/1/default" in one for one in found)


class SlowStore(LocalStore):
    """Each request takes 20 ms. Counts those that are under way at once."""

    lock = threading.Lock()
    running = 0
    most = 0
    count = 0

    def _wait(self) -> None:
        with SlowStore.lock:
            SlowStore.count += 1
            SlowStore.running += 1
            SlowStore.most = max(SlowStore.most, SlowStore.running)
        time.sleep(0.02)
        with SlowStore.lock:
            SlowStore.running -= 1

    def at(self, url: str) -> LocalStore:
        return SlowStore(url)

    def put(self, key: str, data: bytes) -> None:  # type: ignore[override]
        self._wait()
        super().put(key, data)

    def get_start(self, key: str, length: int) -> ObjectStart:
        self._wait()
        return super().get_start(key, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._wait()
        return super().list(prefix)


def test_stores_are_pinned_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 partitions take seconds, not minutes: the query may have gone on meanwhile."""
    partitions = 200
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", 1)
    written.commit({user: (1, user) for user in range(20)})
    written.stop()
    planned = written.folder / "offsets/0"
    planned.write_text(planned.read_text().replace('"3"', f'"{partitions}"'))
    whole = written.folder / "state/0/0/changelog/1.arrow"
    data = whole.read_bytes()
    for number in range(1, partitions):
        copy = written.folder / f"state/0/{number}/changelog/1.arrow"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(data)
    # The copies are of partition 0.
    monkeypatch.setattr(StoredVersions, "__init__", _of_partition_0(StoredVersions.__init__))
    objects = SlowStore(str(written.folder))

    made = create(objects, name="all")

    assert len(made.stores) == len(pins_of(written)) == partitions
    assert SlowStore.most > 20
    # Per store a header, a pin, and a look at both names that the oldest changelog may have.
    assert SlowStore.count <= 4 * partitions + 20
    assert [one.status for one in overview(objects)] == ["whole"]


def _of_partition_0(real: Callable[..., None]) -> Callable[..., None]:
    def init(self: StoredVersions, objects: LocalStore, store: StoreId, *rest: object) -> None:
        real(self, objects, StoreId(store.operator, 0, store.name), *rest)

    return init
