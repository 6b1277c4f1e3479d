"""The state of a query goes to the files of another provider; what faults and kills leave of it."""

from __future__ import annotations

import functools
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from dying_store import Killed, killed_behind_the_commit
from running_checkpoint import RunningCheckpoint, age
from small_checkpoint import PARTITIONS, SmallCheckpoint, key_row, partition_of_user, value_row
from spark_store_files import Change, compressed, plain

import cairn
from cairn.clock import SYSTEM_CLOCK, SystemClock
from cairn.errors import (
    AlreadyExistsError,
    CairnError,
    ConfigError,
    CorruptError,
    DataError,
    InUseError,
    NotThereError,
)
from cairn.format.spark_log import PROVIDER, parse_commit, parse_offsets
from cairn.offline.migrate import MigrationPlan
from cairn.offline.move.moving import Location
from cairn.offline.move.running import MoveProgress
from cairn.offline.move.totals import MovedFamily
from cairn.reader.spark.logs import Provider
from cairn.storage.base import ObjectStore
from cairn.storage.local import LocalStore

NEWEST = 4
USERS = 40
PROVIDERS: tuple[Provider, ...] = ("cairn", "rocksdb", "hdfs")
Source = SmallCheckpoint | RunningCheckpoint


@pytest.fixture(params=["hdfs", "cairn-1", "cairn-2"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """Return a checkpoint of five batches whose query has ended long ago."""
    name, _, number = request.param.partition("-")
    written: Source
    if name == "hdfs":
        written = SmallCheckpoint(tmp_path / "source")
    else:
        written = RunningCheckpoint(tmp_path / "source", tmp_path / "engine", int(number))
    write(written)
    return written


@pytest.fixture
def small(tmp_path: Path) -> SmallCheckpoint:
    """Return one of the HDFS-backed provider."""
    written = SmallCheckpoint(tmp_path / "source")
    write(written)
    return written


def write(written: Source) -> None:
    """Write five batches, and let them be old."""
    for batch in range(NEWEST + 1):
        written.commit({user: (batch, user) for user in range(batch, USERS)} | {batch - 1: None})
        if isinstance(written, RunningCheckpoint):
            written.snapshot()
    if isinstance(written, RunningCheckpoint):
        written.stop()
    age_logs(written.folder)


def age_logs(folder: Path) -> None:
    """Let the query seem to have ended long ago."""
    for log in ("offsets", "commits"):
        for path in (folder / log).iterdir():
            age(path)


def former(source: Source) -> Provider:
    """Return whose files a checkpoint has."""
    return "cairn" if isinstance(source, RunningCheckpoint) else "hdfs"


def migrate(
    source: Path,
    to: Path | None,
    provider: Provider,
    **run: Any,  # noqa: ANN401
) -> tuple[MovedFamily, ...]:
    """Migrate in this process."""
    target = None if to is None else str(to)
    with cairn.migrate(str(source), to=target, provider=provider) as plan:
        return plan.apply(**{"processes": 1, **run})


def state_of(folder: Path, batch: int | None = None) -> dict[int, tuple[int, int]]:
    """Return the state as the reader has it."""
    with cairn.open_checkpoint(str(folder)) as checkpoint:
        table = checkpoint.state(batch=batch).to_table().to_pylist()
    return {row["user"]: (row["max"], row["max_2"]) for row in table}


def files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def logged(folder: Path) -> dict[str, set[int]]:
    """Return the batches of the logs."""
    return {
        log: {int(path.name) for path in (folder / log).iterdir()} for log in ("offsets", "commits")
    }


def others(source: Source) -> list[Provider]:
    """Return the providers that a checkpoint may go to."""
    return [one for one in PROVIDERS if one != former(source)]


# -- what is moved ---------------------------------------------------------------------------------


def test_a_new_checkpoint_has_the_state_of_the_last_batch(source: Source, tmp_path: Path) -> None:
    """Also in the files of the same provider; the source is only read."""
    before = files(source.folder)
    for provider in PROVIDERS:
        target = tmp_path / provider

        (moved,) = migrate(source.folder, target, provider)

        assert state_of(target) == source.rows[-1]
        assert (moved.partitions, moved.keys) == (PARTITIONS, len(source.rows[-1]))
        planned = parse_offsets((target / f"offsets/{NEWEST}").read_bytes())
        assert provider in planned.conf[PROVIDER].lower()
        assert logged(target) == {"offsets": {NEWEST - 1, NEWEST}, "commits": {NEWEST}}
        assert (target / "metadata").read_bytes() == (source.folder / "metadata").read_bytes()
        (record,) = target.glob("cairn-log/*/record.json")
        (done,) = json.loads(record.read_text())["done"]
        assert done["digest"] == moved.digest
        assert not list(target.glob("cairn-log/*/results/*"))
    assert files(source.folder) == before


def test_in_place_a_batch_without_input_has_the_state(source: Source, tmp_path: Path) -> None:
    """Earlier batches can still be read, and nothing of them is changed."""
    for provider in others(source):
        place = tmp_path / provider
        shutil.copytree(source.folder, place)
        age_logs(place)
        before = files(place)

        migrate(place, None, provider)

        assert state_of(place) == source.rows[-1]
        assert state_of(place, NEWEST - 1) == source.rows[-2]
        assert {key: data for key, data in files(place).items() if key in before} == before
        entries = [
            parse_offsets((place / f"offsets/{batch}").read_bytes())
            for batch in (NEWEST, NEWEST + 1)
        ]
        assert entries[0].sources == entries[1].sources
        assert entries[0].watermark_ms == entries[1].watermark_ms
        commits = [
            parse_commit((place / f"commits/{batch}").read_bytes())
            for batch in (NEWEST, NEWEST + 1)
        ]
        assert commits[0].watermark_ms == commits[1].watermark_ms


def test_the_first_batch_is_moved(tmp_path: Path) -> None:
    """Its version is the first one: what it builds on is that of an empty state."""
    written = SmallCheckpoint(tmp_path / "source")
    written.commit({user: (0, user) for user in range(USERS)})
    age_logs(written.folder)
    for provider in PROVIDERS:
        migrate(written.folder, tmp_path / provider, provider)

        assert state_of(tmp_path / provider) == written.rows[0]
    migrate(written.folder, None, "cairn")
    assert state_of(written.folder) == written.rows[0]


def test_a_state_without_rows_is_moved(tmp_path: Path) -> None:
    """All its keys have expired; the query goes on all the same."""
    written = SmallCheckpoint(tmp_path / "source")
    written.commit({1: (0, 1)})
    written.commit({1: None})
    age_logs(written.folder)
    for provider in PROVIDERS:
        (moved,) = migrate(written.folder, tmp_path / provider, provider)

        assert (moved.keys, state_of(tmp_path / provider)) == (0, {})


def test_a_query_of_a_spark_without_metadata_is_moved(
    small: SmallCheckpoint, tmp_path: Path
) -> None:
    """Before 4.0 Spark stored none: the files of the state show which stores there are."""
    shutil.rmtree(small.folder / "state/0/_metadata")
    for provider in PROVIDERS:
        migrate(small.folder, tmp_path / provider, provider)

        assert state_of(tmp_path / provider) == small.rows[-1]


def test_a_planned_batch_is_repeated_at_a_new_place_with_its_number(
    source: Source, tmp_path: Path
) -> None:
    """It may have reached the sink already: with another number its rows would be there twice."""
    source.plan(NEWEST + 1)
    age_logs(source.folder)
    for provider in PROVIDERS:
        target = tmp_path / provider

        migrate(source.folder, target, provider)

        assert logged(target)["offsets"] == {NEWEST - 1, NEWEST, NEWEST + 1}
        assert logged(target)["commits"] == {NEWEST}
        planned = parse_offsets((target / f"offsets/{NEWEST + 1}").read_bytes())
        assert provider in planned.conf[PROVIDER].lower()
        assert state_of(target) == source.rows[-1]


def test_in_place_a_planned_batch_is_refused(source: Source) -> None:
    """Spark would run the batch without input in its place, and lose its rows."""
    source.plan(NEWEST + 1)
    age_logs(source.folder)
    before = files(source.folder)

    with pytest.raises(InUseError, match="is planned, and not committed"):
        migrate(source.folder, None, others(source)[0])

    assert {key: data for key, data in files(source.folder).items() if key in before} == before
    assert logged(source.folder)["offsets"] == set(range(NEWEST + 2))


# -- what is refused -------------------------------------------------------------------------------


def test_a_place_that_is_not_empty_is_refused(small: SmallCheckpoint, tmp_path: Path) -> None:
    """Another query's checkpoint would be mixed with this one."""
    target = tmp_path / "target"
    (target / "data").mkdir(parents=True)
    (target / "data/file").write_bytes(b"of somebody")

    with pytest.raises(AlreadyExistsError, match="data/file"):
        migrate(small.folder, target, "cairn")

    assert files(target) == {"data/file": b"of somebody"}


def test_what_is_there_already_is_refused(small: SmallCheckpoint, tmp_path: Path) -> None:
    """A repetition behind the end must not touch a checkpoint that its query may use."""
    migrate(small.folder, tmp_path / "target", "cairn")
    before = files(tmp_path / "target")

    with pytest.raises(AlreadyExistsError):
        migrate(small.folder, tmp_path / "target", "cairn")
    with pytest.raises(ConfigError, match="already"):
        cairn.migrate(str(small.folder), to=None, provider="hdfs")
    with pytest.raises(ConfigError, match="no provider"):
        cairn.migrate(str(small.folder), to=None, provider="rocks")

    assert files(tmp_path / "target") == before


def test_without_a_committed_batch_there_is_nothing_to_move(tmp_path: Path) -> None:
    """The query starts with a new checkpoint."""
    written = SmallCheckpoint(tmp_path / "source")
    written.plan(0)

    with pytest.raises(NotThereError, match="not committed a batch"):
        cairn.migrate(str(written.folder), to=None, provider="cairn")


def test_a_query_that_runs_is_refused_in_place(small: SmallCheckpoint) -> None:
    """Its next batch and the one without input would have the same number."""
    small.commit({1: (9, 9)})

    with pytest.raises(InUseError):
        migrate(small.folder, None, "cairn")

    assert max(logged(small.folder)["offsets"]) == NEWEST + 1


@dataclass(frozen=True)
class OtherLocation(Location):
    """A location whose objects a test gives."""

    objects: Callable[[], ObjectStore] = lambda: LocalStore("/nowhere")

    def open(self) -> ObjectStore:
        """Return them."""
        return self.objects()


def plan_with(
    source: Path, target: Path | None, provider: Provider, store: Callable[[str], ObjectStore]
) -> MigrationPlan:
    """Return a plan whose writes go through other stores."""
    if target is None:
        place = OtherLocation(str(source), {}, lambda: store(str(source)))
        return MigrationPlan(place, None, provider, SYSTEM_CLOCK)
    to = OtherLocation(str(target), {}, lambda: store(str(target)))
    return MigrationPlan(Location(str(source)), to, provider, SYSTEM_CLOCK)


class CallingStore(LocalStore):
    """Calls a function before each call that writes, with its key."""

    def __init__(self, url: str, call: Callable[[str, Callable[[], None]], None]) -> None:
        super().__init__(url)
        self.call = call

    def at(self, url: str) -> CallingStore:
        return CallingStore(url, self.call)

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401
        self.call(key, lambda: super(CallingStore, self).put(key, data))

    def put_if_absent(self, key: str, data: Any) -> None:  # noqa: ANN401
        self.call(key, lambda: super(CallingStore, self).put_if_absent(key, data))

    def put_if_match(self, key: str, data: Any, etag: str) -> None:  # noqa: ANN401
        self.call(key, lambda: super(CallingStore, self).put_if_match(key, data, etag))

    def upload(
        self, key: str, path: Path, *, crc32c: int, moved: Callable[[], None] = lambda: None
    ) -> datetime:
        at: list[datetime] = []
        upload = super().upload
        self.call(key, lambda: at.append(upload(key, path, crc32c=crc32c, moved=moved)))
        return at[0]

    def delete(self, keys: Any) -> None:  # noqa: ANN401
        self.call(keys[0], lambda: super(CallingStore, self).delete(keys))


def test_a_query_that_has_gone_on_meanwhile_is_seen(small: SmallCheckpoint, tmp_path: Path) -> None:
    """Its new rows would be missing at the new place, of whose source they have been taken."""
    target = tmp_path / "target"
    began: list[str] = []

    def begin(key: str, write_: Callable[[], None]) -> None:
        if "results/" in key and not began:
            began.append(key)
            small.commit({1: (9, 9)})
        write_()

    plan = plan_with(small.folder, target, "cairn", lambda url: CallingStore(url, begin))
    with plan, pytest.raises(InUseError, match="has gone on while its state was moved"):
        plan.apply(processes=1)

    assert began
    assert "commits" not in {path.name for path in target.iterdir()}
    with pytest.raises(InUseError, match="makes this checkpoint"):
        cairn.repair(str(target))


def test_a_query_that_goes_on_ends_a_long_migration_soon(
    small: SmallCheckpoint, tmp_path: Path
) -> None:
    """Otherwise a person waits for hours, and hears then that it was in vain."""

    class LeapingClock(SystemClock):
        def monotonic_ns(self) -> int:
            return super().monotonic_ns() * 10**6

    seen: list[int] = []

    def go_on(done: MoveProgress) -> None:
        seen.append(done.stores)
        if seen == [0, 1]:
            small.commit({1: (9, 9)})

    target = tmp_path / "target"
    source, to = Location(str(small.folder)), Location(str(target))
    plan = MigrationPlan(source, to, "cairn", LeapingClock())
    with plan, pytest.raises(InUseError, match="has gone on while its state was moved"):
        plan.apply(processes=1, progress=go_on)

    assert seen[-1] < PARTITIONS


def test_a_driver_in_place_cannot_plan_its_batch_meanwhile(small: SmallCheckpoint) -> None:
    """The hold has the name of its next entry."""
    began: list[bool] = []

    def begin(key: str, write_: Callable[[], None]) -> None:
        if "results/" in key and not began:
            began.append((small.folder / f"offsets/{NEWEST + 1}").exists())
        write_()

    plan = plan_with(small.folder, None, "cairn", lambda url: CallingStore(url, begin))
    with plan:
        plan.apply(processes=1)

    assert began == [True]
    assert state_of(small.folder) == small.rows[-1]


@pytest.mark.parametrize("in_place", [False, True], ids=["new-place", "in-place"])
def test_a_second_migration_at_the_same_time_is_refused(
    small: SmallCheckpoint, tmp_path: Path, *, in_place: bool
) -> None:
    """Both would write the same stores."""
    target = None if in_place else tmp_path / "target"
    refused: list[CairnError] = []

    def again(key: str, write_: Callable[[], None]) -> None:
        if "results/" in key and not refused:
            with pytest.raises(CairnError) as failure:
                migrate(small.folder, target, "cairn")
            refused.append(failure.value)
        write_()

    plan = plan_with(small.folder, target, "cairn", lambda url: CallingStore(url, again))
    with plan:
        plan.apply(processes=1)

    assert len(refused) == 1
    assert isinstance(refused[0], InUseError | AlreadyExistsError)
    assert state_of(target or small.folder) == small.rows[-1]


# -- what is damaged -------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["missing", "cut", "changed"])
def test_a_damaged_object_is_named(small: SmallCheckpoint, tmp_path: Path, harm: str) -> None:
    """Whoever restores it repeats the command, which goes on with the stores that are left."""
    object_ = small.folder / "state/0/1/3.delta"
    whole = object_.read_bytes()
    object_.unlink()
    if harm == "cut":
        object_.write_bytes(whole[:-8])
    elif harm == "changed":
        object_.write_bytes(whole[:30] + bytes([whole[30] ^ 255]) + whole[31:])
    target = tmp_path / "target"

    with pytest.raises(DataError) as failure:
        migrate(small.folder, target, "cairn")
    stores: list[int] = []
    object_.write_bytes(whole)
    migrate(small.folder, target, "cairn", progress=lambda one: stores.append(one.stores))

    assert "state/0/1/3.delta" in str(failure.value.object_name)
    assert failure.value.store is not None
    assert failure.value.version is not None
    assert stores == [1, 2, 3]
    assert state_of(target) == small.rows[-1]


def test_a_damaged_snapshot_of_cairn_is_gone_around(
    stopped: RunningCheckpoint, tmp_path: Path
) -> None:
    """The changelogs lead to the version, too."""
    manifests = sorted(stopped.folder.glob("state/0/*/snapshot/*.json"))
    assert manifests
    for manifest in manifests:
        manifest.write_bytes(manifest.read_bytes()[:-20])

    migrate(stopped.folder, tmp_path / "target", "rocksdb")

    assert state_of(tmp_path / "target") == stopped.rows[-1]


def test_rows_that_were_written_wrong_are_seen(
    small: SmallCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that loses a row must not pass."""
    monkeypatch.setattr("cairn.offline.move.cairn_writer.CairnWriter.add", _lossy_add())

    with pytest.raises(CorruptError, match="read back with"):
        migrate(small.folder, tmp_path / "target", "cairn")


def _lossy_add() -> Callable[..., None]:
    from cairn.offline.move.cairn_writer import CairnWriter  # noqa: PLC0415

    add = CairnWriter.add

    def lossy(self: CairnWriter, family: str, rows: Any) -> None:  # noqa: ANN401
        add(self, family, rows.take(list(range(1, len(rows.keys)))))

    return lossy


def run_hdfs(folder: Path, batch: int, changes: dict[int, tuple[int, int]], *, all_: bool) -> None:
    """Let a query on the HDFS-backed provider commit a batch; ``all_``: as a snapshot, too."""
    for log in ("offsets", "commits"):
        shutil.copy(folder / f"{log}/{batch - 1}", folder / f"{log}/{batch}")
    before = state_of(folder, batch - 1)
    for partition in range(PARTITIONS):
        for suffix, rows in (("delta", changes), ("snapshot", before | changes if all_ else {})):
            if not rows:
                continue
            puts: list[Change] = [
                ("put", key_row(user), value_row(*row))
                for user, row in rows.items()
                if partition_of_user(user) == partition
            ]
            path = folder / f"state/0/{partition}/{batch + 1}.{suffix}"
            path.write_bytes(compressed(plain(puts)))


def test_versions_that_were_given_up_are_not_read_after_a_second_migration(tmp_path: Path) -> None:
    """In checkpoint format 1 a snapshot of the former life has the number of a later version."""
    written = RunningCheckpoint(tmp_path / "source", tmp_path / "engine", 1)
    write(written)
    age_logs(written.folder)
    folder, batch = written.folder, len(written.rows) - 1
    migrate(folder, None, "hdfs")
    run_hdfs(folder, batch + 2, {5: (111, 111)}, all_=True)
    age_logs(folder)
    with cairn.restore(str(folder), to_batch=batch) as plan:
        plan.apply()
    (folder / f"offsets/{batch + 1}").unlink(missing_ok=True)
    age_logs(folder)
    later = [folder / f"state/0/1/{batch + 3}.{one}" for one in ("delta", "snapshot", "zip")]
    later[-1].write_bytes(b"of the provider rocksdb")
    earlier = folder / "state/0/1/1.zip"
    earlier.write_bytes(b"of a version that may be needed")

    migrate(folder, None, "hdfs")

    assert [one for one in later if one.exists()] == []
    assert earlier.exists()
    run_hdfs(folder, batch + 2, {6: (222, 222)}, all_=False)
    assert state_of(folder) == written.rows[-1] | {6: (222, 222)}


def test_rocksdb_leaves_no_version_that_was_given_up(tmp_path: Path) -> None:
    """Its zips and changelogs have numbers, too."""
    written = RunningCheckpoint(tmp_path / "source", tmp_path / "engine", 1)
    write(written)
    age_logs(written.folder)
    version = len(written.rows) + 1
    stale = [
        written.folder / f"state/0/{partition}/{number}.{suffix}"
        for partition in range(PARTITIONS)
        for number in (version, version + 7)
        for suffix in ("changelog", "delta", "snapshot", "zip")
    ]
    for path in stale:
        path.write_bytes(b"of another life")

    migrate(written.folder, None, "rocksdb")

    left = [path for path in stale if path.exists()]
    assert [path.name for path in left] == [f"{version}.zip"] * PARTITIONS
    assert state_of(written.folder) == written.rows[-1]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_migration_that_was_killed_behind_its_commit_is_finished(
    small: SmallCheckpoint, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    """Also if the query has gone on since: only the record was left to end."""
    with killed_behind_the_commit(monkeypatch):
        migrate(small.folder, None, "cairn")
    (record,) = small.folder.glob("cairn-log/*/record.json")
    assert json.loads(record.read_text())["ended"] is None
    batches = len(small.rows)
    if goes_on:
        for log in ("offsets", "commits"):
            shutil.copy(small.folder / f"{log}/{batches}", small.folder / f"{log}/{batches + 1}")
    age_logs(small.folder)

    (moved,) = migrate(small.folder, None, "cairn")

    assert moved.keys == len(small.rows[-1])
    assert json.loads(record.read_text())["ended"] is not None
    assert len(list(small.folder.glob("cairn-log/*/record.json"))) == 1
    with pytest.raises(ConfigError, match="already"):
        migrate(small.folder, None, "cairn")


# -- kills -----------------------------------------------------------------------------------------


class Kill:
    """Ends the process before, or behind, one of its writes."""

    def __init__(self, point: int, *, is_behind: bool) -> None:
        self.left = point
        self.is_behind = is_behind
        self.lock = threading.Lock()

    def __call__(self, key: str, write_: Callable[[], None]) -> None:
        if "probe" in key:
            write_()
            return
        with self.lock:
            self.left -= 1
            if self.left < 0 or (self.left == 0 and not self.is_behind):
                self.left = -1
                raise Killed
            write_()
            if self.left == 0:
                self.left = -1
                raise Killed


# Each takes a hundred migrations; the others are slow tests.
QUICK_KILLS = {("cairn", False, False), ("cairn", True, True)}


@pytest.mark.parametrize(
    ("provider", "in_place", "is_behind"),
    [
        pytest.param(
            *case,
            id="-".join(
                (case[0], ("new-place", "in-place")[case[1]], ("before", "behind")[case[2]])
            ),
            marks=[] if case in QUICK_KILLS else [pytest.mark.slow],
        )
        for case in product(PROVIDERS, (False, True), (False, True))
    ],
)
def test_a_kill_at_any_point_leaves_what_the_same_command_finishes(
    tmp_path: Path,
    provider: Provider,
    *,
    in_place: bool,
    is_behind: bool,
) -> None:
    """Until the end no driver can use the target, and in place the state is the former one."""
    written: Source = (
        RunningCheckpoint(tmp_path / "source", tmp_path / "engine", 2)
        if provider == "hdfs"
        else SmallCheckpoint(tmp_path / "source")
    )
    write(written)
    point, points = 0, 0
    while True:
        point += 1
        source = written.folder
        target: Path | None = tmp_path / f"target{point}"
        if in_place:
            source = tmp_path / f"source{point}"
            shutil.copytree(written.folder, source)
            age_logs(source)
            target = None
        place = target or source
        kill = Kill(point, is_behind=is_behind)
        try:
            with plan_with(
                source, target, provider, functools.partial(CallingStore, call=kill)
            ) as plan:
                plan.apply(processes=1)
        except Killed:
            points += 1
        else:
            break
        is_done = (place / f"commits/{NEWEST + in_place}").exists()
        if in_place:
            age_logs(source)
        try:
            migrate(source, target, provider)
        except (AlreadyExistsError, ConfigError):
            assert is_done, f"point {point}"
        assert state_of(place) == written.rows[-1], f"point {point}"
        expected = set(range(NEWEST + 2)) if in_place else {NEWEST - 1, NEWEST}
        assert logged(place)["offsets"] == expected, f"point {point}"
        assert len(list(place.glob("cairn-log/*/record.json"))) == 1
        assert json.loads(next(place.glob("cairn-log/*/record.json")).read_text())["ended"]
    assert points > 8


def test_progress_tells_stores_rows_and_bytes(small: SmallCheckpoint, tmp_path: Path) -> None:
    """Who waits for hours sees how far it is."""
    seen: list[MoveProgress] = []

    migrate(small.folder, tmp_path / "target", "rocksdb", progress=seen.append, processes=2)

    assert [one.stores for one in seen] == [0, 1, 2, 3]
    assert {one.of_stores for one in seen} == {PARTITIONS}
    assert seen[-1].rows == len(small.rows[-1])
    assert seen[-1].stored_bytes > 0
    assert seen[0].seconds_left is None
    assert seen[-1].seconds_left == 0


def test_progress_tells_rows_of_a_store_that_is_not_done(
    small: SmallCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two large partitions would show nothing for minutes."""
    monkeypatch.setattr("cairn.offline.move.moving.REPORT_EVERY_S", 0)
    seen: list[MoveProgress] = []

    migrate(small.folder, tmp_path / "target", "hdfs", progress=seen.append, processes=1)

    assert any(one.rows for one in seen if one.stores == 0)
    assert [one.rows for one in seen] == sorted(one.rows for one in seen)


@pytest.mark.parametrize("processes", [1, 2])
def test_what_progress_raises_ends_the_move(
    small: SmallCheckpoint, tmp_path: Path, processes: int
) -> None:
    """Whoever ends it does not wait for the other stores; the same call goes on with them."""
    target = tmp_path / "target"

    def end(done: MoveProgress) -> None:
        if done.stores:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(small.folder, target, "cairn", progress=end, processes=processes)
    assert len(list(target.glob("cairn-log/*/results/*.json"))) < PARTITIONS

    migrate(small.folder, target, "cairn")
    assert state_of(target) == small.rows[-1]


def test_an_error_in_another_process_is_the_same_error(
    small: SmallCheckpoint, tmp_path: Path
) -> None:
    """It names store, version and object, as in this process."""
    (small.folder / "state/0/1/3.delta").unlink()

    failures = []
    for processes in (1, 2):
        with pytest.raises(DataError) as failure:
            migrate(small.folder, tmp_path / f"target{processes}", "cairn", processes=processes)
        failures.append(failure.value)

    assert str(failures[0]) == str(failures[1])
    assert type(failures[0]) is type(failures[1])
