"""`cairn.clone`: a new query with the state of another one at a batch, and of no other batch."""

from __future__ import annotations

import copy
import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from dying_store import DyingStore, Killed, Life
from running_checkpoint import RunningCheckpoint
from small_checkpoint import SmallCheckpoint

import cairn
from cairn.cli.clone import chosen
from cairn.cli.main import main
from cairn.clock import SYSTEM_CLOCK
from cairn.errors import AlreadyExistsError, ConfigError, CorruptError, InUseError, NotThereError
from cairn.format import hold, manifest
from cairn.format.spark_log import PARTITIONS
from cairn.offline.clone import ClonePlan
from cairn.storage.base import Tally
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryBucket, MemoryStore
from cairn.storage.open import open_store


def apply(location: Path, to: Path, **more: Any) -> ClonePlan:  # noqa: ANN401
    """Make a clone; return the plan."""
    with cairn.clone(str(location), to=str(to), **more) as plan:
        plan.apply()
    return plan


def rows_of(folder: Path | str, batch: int | None = None) -> list[tuple[int, int, int]]:
    """Return the state."""
    with cairn.open_checkpoint(str(folder)) as checkpoint:
        table = checkpoint.state(batch=batch).to_table().to_pylist()
    return sorted((row["user"], row["max"], row["max_2"]) for row in table)


def findings(folder: Path) -> list[str]:
    """Return what verify finds, but for the plan whose commit is not here."""
    with cairn.open_checkpoint(str(folder)) as checkpoint:
        return [str(one) for one in checkpoint.verify()]


def expected(rows: dict[Any, tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return rows of a checkpoint's record in the form of ``rows_of``."""
    return sorted((user, *values) for user, values in rows.items())


@pytest.mark.parametrize("batch", [None, 6])
def test_a_clone_has_the_state_of_the_batch(
    written: RunningCheckpoint, tmp_path: Path, batch: int | None
) -> None:
    """Also when the source is gone, and nothing else of it."""
    number = 9 if batch is None else batch
    before = set(written.folder.rglob("*"))
    plan = apply(written.folder, tmp_path / "clone", batch=batch)
    assert set(written.folder.rglob("*")) - before <= {
        path for path in written.folder.rglob("*") if path.name in {"pin", ".cairn.lock"}
    }
    whole = expected(written.rows[number])
    written.stop()
    shutil.rmtree(written.folder)

    assert (plan.batch, plan.provider) == (number, "cairn")
    assert rows_of(tmp_path / "clone") == whole
    assert findings(tmp_path / "clone") == []
    objects = open_store(str(tmp_path / "clone"), {})
    stored = {info.key for info in objects.list("state/")}
    assert stored == {one.target for one in plan.objects}
    for key in stored:
        if "/snapshot/" in key:
            found = manifest.decode(objects.get(key).data, object_name=key)
            assert (found.retained, found.garbage, found.changelogs) == ((), (), ())


def test_the_clone_goes_on_and_cleans_up(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Its engine loads, commits, takes snapshots and purges; the source does not notice."""
    apply(written.folder, tmp_path / "clone", batch=7)
    of_source = rows_of(written.folder)
    clone = copy.copy(written)
    conf = {"minBatchesToRetain": 2, "orphanGraceMs": 1000}
    clone.go_on_at(tmp_path / "clone", tmp_path / "local2", 7, conf)
    for batch in range(8, 20):
        clone.commit({user: (batch, user) for user in range(batch, batch + 20)})
        for rig in clone.stores:
            rig.maintain()
    clone.stop()

    assert rows_of(tmp_path / "clone") == expected(clone.rows[-1])
    assert [one for one in findings(tmp_path / "clone") if "note" not in one] == []
    assert not list((tmp_path / "clone").glob("state/0/*/changelog/8[._]*"))
    assert rows_of(written.folder) == of_source


def test_a_savepoint_is_cloned_when_its_batch_is_gone(
    written: RunningCheckpoint, tmp_path: Path
) -> None:
    """Its own files take the place of Spark's logs."""
    cairn.create_savepoint(str(written.folder), name="kept", batch=9)
    for batch in range(10, 16):
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        written.snapshot()
    for batch in range(12):
        for log in ("offsets", "commits"):
            (written.folder / log / str(batch)).unlink()
    plan = apply(written.folder, tmp_path / "clone", savepoint="kept")
    whole = expected(written.rows[9])
    written.stop()
    shutil.rmtree(written.folder)

    assert plan.savepoint == "kept"
    assert rows_of(tmp_path / "clone") == whole
    assert findings(tmp_path / "clone") == []


def test_a_rolled_back_attempt_is_not_in_a_clone(
    written: RunningCheckpoint, tmp_path: Path
) -> None:
    """In format 1 the plain name has another attempt then: the savepoint knows its own."""
    cairn.create_savepoint(str(written.folder), name="kept", batch=9)
    whole = expected(written.rows[9])
    written.stop()
    with cairn.restore(str(written.folder), to_batch=7) as plan:
        plan.apply()
    written.go_back(7)
    written.start()
    for batch in range(8, 11):
        written.commit({user: (100 + batch, user) for user in range(5)})
    apply(written.folder, tmp_path / "clone", savepoint="kept")
    apply(written.folder, tmp_path / "newest")

    assert rows_of(tmp_path / "clone") == whole
    assert rows_of(tmp_path / "newest") == expected(written.rows[10])
    assert findings(tmp_path / "clone") == []


@pytest.mark.parametrize("batch", [None, 1])
def test_a_checkpoint_of_sparks_is_cloned(tmp_path: Path, batch: int | None) -> None:
    """The files of the HDFS-backed provider that lead to the batch, and their checksums."""
    source = SmallCheckpoint(tmp_path / "source")
    for number in range(4):
        source.commit({user: (number, user) for user in range(number, 20)})
    (source.folder / "state/0/0/2.delta.crc").write_bytes(b"{}")
    (source.folder / "state/0/0/.2.delta.crc").write_bytes(b"of Hadoop's")
    plan = apply(source.folder, tmp_path / "clone", batch=batch)
    (tmp_path / "clone/state/0/0/2.delta.crc").unlink()
    shutil.rmtree(source.folder)

    number = 3 if batch is None else batch
    assert plan.provider == "hdfs"
    assert len(plan.objects) == 3 * (number + 1) + 1
    assert rows_of(tmp_path / "clone") == expected(source.rows[number])
    assert findings(tmp_path / "clone") == []
    assert not (tmp_path / "clone/state/0/0/.2.delta.crc").exists()


def test_what_is_gone_is_named(tmp_path: Path) -> None:
    """Spark's own purges know no pins."""
    source = SmallCheckpoint(tmp_path / "source")
    for number in range(4):
        source.commit({1: (number, number)})
    (source.folder / "state/0/1/2.delta").unlink()

    with pytest.raises(NotThereError, match=r"state of batch 3.*1/2.delta.*minBatchesToRetain"):
        cairn.clone(str(source.folder), to=str(tmp_path / "clone"))


def test_what_goes_while_it_is_copied_is_named(tmp_path: Path) -> None:
    """The place stays held; with the file put back the same command finishes it."""
    source = SmallCheckpoint(tmp_path / "source")
    for number in range(4):
        source.commit({1: (number, number)})
    gone = source.folder / "state/0/1/2.delta"
    with cairn.clone(str(source.folder), to=str(tmp_path / "clone")) as plan:
        data = gone.read_bytes()
        gone.unlink()
        with pytest.raises(NotThereError, match=r"state of batch 3.*minBatchesToRetain"):
            plan.apply()
    assert hold.parse((tmp_path / "clone/offsets/5").read_bytes()) is not None
    gone.write_bytes(data)
    source.commit({1: (5, 5)})
    plan = apply(source.folder, tmp_path / "clone")

    assert plan.batch == 3
    assert rows_of(tmp_path / "clone") == [(1, 3, 3)]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"batch": 12}, "there is no batch 12 to clone; committed are: 0 to 9"),
        ({"savepoint": "x"}, "no savepoint 'x'"),
    ],
)
def test_what_does_not_exist_is_not_cloned(
    written: RunningCheckpoint, tmp_path: Path, more: dict[str, Any], text: str
) -> None:
    """The error says what there is."""
    with pytest.raises(NotThereError, match=text):
        cairn.clone(str(written.folder), to=str(tmp_path / "clone"), **more)
    assert not (tmp_path / "clone").exists()


def test_a_query_that_is_changed_is_not_cloned(written: RunningCheckpoint, tmp_path: Path) -> None:
    """A command may be removing the entries of the batch."""
    left = hold.Hold("repair", "elsewhere", 1, "", "t", 0)
    (written.folder / "offsets/10").write_bytes(hold.encode(left))

    with pytest.raises(InUseError):
        cairn.clone(str(written.folder), to=str(tmp_path / "clone"))


def test_a_plan_writes_nothing(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Neither here nor there."""
    before = {path: path.stat().st_mtime_ns for path in written.folder.rglob("*")}
    with cairn.clone(str(written.folder), to=str(tmp_path / "clone")):
        pass

    assert {path: path.stat().st_mtime_ns for path in written.folder.rglob("*")} == before
    assert not (tmp_path / "clone").exists()


def test_batch_and_savepoint_exclude_each_other(tmp_path: Path) -> None:
    """Which of both is meant is not known."""
    with pytest.raises(ConfigError):
        cairn.clone(str(tmp_path), to=str(tmp_path / "x"), batch=1, savepoint="x")


class Watching(LocalStore):
    """Calls a function when an object of the state is stored."""

    watch: Callable[[str], None]

    def copy_within(self, source: Any, source_key: str, key: str, *, size_bytes: int) -> bool:  # noqa: ANN401
        self.watch(key)
        return super().copy_within(source, source_key, key, size_bytes=size_bytes)

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401
        if "/snapshot/" in key:
            self.watch(key)
        super().put(key, data)


def test_the_batch_is_pinned_while_it_is_copied(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Purges of the running query would delete it otherwise."""
    pins: dict[str, int] = {}
    target = Watching(str(tmp_path / "clone"))
    target.watch = lambda key: pins.update(
        {key: len(list(written.folder.glob("state/0/*/pin/reader-*")))}
    )
    with ClonePlan(open_store(str(written.folder), {}), target, SYSTEM_CLOCK, batch=5) as plan:
        plan.apply()

    assert pins == {one.target: 3 for one in plan.objects}
    assert list(written.folder.glob("state/0/*/pin/*")) == []


class Truncating(LocalStore):
    """Has short copies of some objects."""

    def copy_within(self, source: Any, source_key: str, key: str, *, size_bytes: int) -> bool:  # noqa: ANN401
        done = super().copy_within(source, source_key, key, size_bytes=size_bytes)
        if "/changelog/" in key:
            path = Path(self.url, key)
            path.write_bytes(path.read_bytes()[:-1])
        return done


def test_a_copy_of_another_size_is_no_clone(written: RunningCheckpoint, tmp_path: Path) -> None:
    """What the storage itself copies is looked at, too."""
    target = Truncating(str(tmp_path / "clone"))
    plan = ClonePlan(open_store(str(written.folder), {}), target, SYSTEM_CLOCK)
    with plan, pytest.raises(CorruptError, match="instead of"):
        plan.apply()

    with pytest.raises(InUseError):
        cairn.repair(str(tmp_path / "clone"))
    apply(written.folder, tmp_path / "clone")
    assert rows_of(tmp_path / "clone") == expected(written.rows[9])


class Counting(LocalStore):
    """Counts the copies."""

    copied: list[str]

    def copy_within(self, source: Any, source_key: str, key: str, *, size_bytes: int) -> bool:  # noqa: ANN401
        self.copied.append(key)
        return super().copy_within(source, source_key, key, size_bytes=size_bytes)


class DyingAtLogs(LocalStore):
    """Ends the process when all is copied, and the logs are to be written."""

    def put(self, key: str, data: Any) -> None:  # noqa: ANN401
        if key.startswith("offsets/"):
            raise Killed
        super().put(key, data)


def test_what_was_copied_before_a_kill_is_not_copied_again(
    written: RunningCheckpoint, tmp_path: Path
) -> None:
    """Only names that never get other bytes are taken for copied."""
    first = DyingAtLogs(str(tmp_path / "clone"))
    with (
        ClonePlan(open_store(str(written.folder), {}), first, SYSTEM_CLOCK) as plan,
        pytest.raises(Killed),
    ):
        plan.apply()
    foreign = tmp_path / "clone/state/0/0/changelog/77.arrow"
    foreign.write_bytes(b"of another way")
    target = Counting(str(tmp_path / "clone"))
    target.copied = []
    with ClonePlan(open_store(str(written.folder), {}), target, SYSTEM_CLOCK) as plan:
        plan.apply()

    again = {one.target for one in plan.objects if not one.is_unique and not one.is_manifest}
    assert set(target.copied) == again
    assert not foreign.exists()
    assert rows_of(tmp_path / "clone") == expected(written.rows[9])


def test_a_second_clone_at_the_same_place_is_refused(
    written: RunningCheckpoint, tmp_path: Path
) -> None:
    """The first one may run already."""
    apply(written.folder, tmp_path / "clone")
    with (
        cairn.clone(str(written.folder), to=str(tmp_path / "clone"), batch=5) as plan,
        pytest.raises(AlreadyExistsError),
    ):
        plan.apply()


def test_a_clone_goes_to_another_storage(
    written: RunningCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bytes go through this process then, and are compared with the checksums."""
    monkeypatch.setattr("cairn.storage.copying.IN_MEMORY_BYTES", 100)
    bucket = MemoryBucket()
    target = MemoryStore("memory://clone/x", bucket)
    with ClonePlan(open_store(str(written.folder), {}), target, SYSTEM_CLOCK) as plan:
        plan.apply()
        sst = next(one for one in plan.objects if "/sst/" in one.key)
    target = MemoryStore("memory://clone/x", bucket)  # the plan has closed the other one
    assert {info.key for info in target.list("state/")} == {one.target for one in plan.objects}
    other = MemoryStore("memory://clone/y", MemoryBucket())
    path = written.folder / sst.key
    path.write_bytes(bytes(path.stat().st_size))
    with (
        ClonePlan(open_store(str(written.folder), {}), other, SYSTEM_CLOCK) as plan,
        pytest.raises(CorruptError, match="CRC32C"),
    ):
        plan.apply()


class SlowRequests(Tally):
    """Lets each request take 20 ms, as on S3; counts how many run at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._running = 0
        self._order = threading.Lock()

    def add(self, api: str, requests: int) -> None:
        super().add(api, requests)
        with self._order:
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(0.02)
        with self._order:
            self._running -= 1


def test_the_requests_of_200_partitions_wait_beside_each_other(tmp_path: Path) -> None:
    """One after the other they would take twenty seconds."""
    source = SmallCheckpoint(tmp_path / "source", {PARTITIONS: "200"}, partitions=200)
    source.commit({1: (1, 1)})
    for partition in range(3, 200):
        shutil.copytree(source.folder / "state/0/1", source.folder / f"state/0/{partition}")
    checkpoint, target = (open_store(str(one), {}) for one in (source.folder, tmp_path / "clone"))
    checkpoint.tally = target.tally = requests = SlowRequests()
    with ClonePlan(checkpoint, target, SYSTEM_CLOCK) as plan:
        plan.apply()

    assert len(plan.objects) == 200
    assert requests.most > 10


def test_the_command_shows_and_makes_it(written: RunningCheckpoint, tmp_path: Path) -> None:
    """Without --apply nothing is there."""
    arguments = ["clone", f"{written.folder}@7", "--to", str(tmp_path / "clone"), "-o", "json"]
    planned = CliRunner().invoke(main, arguments)
    assert not (tmp_path / "clone").exists()
    done = CliRunner().invoke(main, [*arguments, "--apply"])

    assert (planned.exit_code, done.exit_code) == (3, 0), done.output
    (row,) = json.loads(done.stdout)
    assert (row["batch"], row["provider"], row["done"]) == (7, "cairn", True)
    assert rows_of(tmp_path / "clone") == expected(written.rows[7])


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("/a/b", ("/a/b", None, None)),
        ("/a/b@7", ("/a/b", 7, None)),
        ("s3://bucket/x@before-1.2", ("s3://bucket/x", None, "before-1.2")),
        ("/a@b/c", ("/a@b/c", None, None)),
        ("/a/b@", ("/a/b@", None, None)),
    ],
)
def test_a_location_names_a_batch_or_a_savepoint(
    location: str, found: tuple[str, int | None, str | None]
) -> None:
    """Behind the last ``@`` of its last part."""
    assert chosen(location) == found


@pytest.mark.parametrize("is_behind", [False, True], ids=["before", "behind"])
def test_a_clone_that_is_killed_anywhere_is_finished_by_the_same_command(
    written: RunningCheckpoint, tmp_path: Path, *, is_behind: bool
) -> None:
    """While the query goes on, and another batch has become the newest."""
    whole = expected(written.rows[9])
    source = open_store(str(written.folder), {})
    killed = 0
    written.commit({1: (10, 1)})
    for point in range(1, 100):
        folder = tmp_path / f"clone{point}"
        target = DyingStore(str(folder), Life(point, is_behind=is_behind))
        try:
            with ClonePlan(source, target, SYSTEM_CLOCK, batch=9) as plan:
                plan.apply()
            break
        except Killed:
            killed += 1
            source = open_store(str(written.folder), {})
        logs = {path.name for path in folder.glob("offsets/*")}
        batch = 9
        if "11" in logs:
            batch = apply(written.folder, folder).batch
        elif not logs:
            apply(written.folder, folder, batch=9)
        assert rows_of(folder) == (whole if batch == 9 else expected(written.rows[10])), point
        assert batch == 9 or point < 4
        assert hold.parse((folder / f"offsets/{batch}").read_bytes()) is None
        assert not (folder / f"offsets/{batch + 2}").exists()
    assert killed > 20
