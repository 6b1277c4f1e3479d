"""The schedule, the bookkeeping and the checks of a chaos run."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import shutil
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from cairn.format import manifest
from cairn.ids import CheckpointId, VersionRef
from chaos.checks import (
    GROWTH_BYTES,
    LONG_LIFE_S,
    WARM_UP_S,
    Memory,
    all_batches,
    input_by_batch,
)
from chaos.driver import SinkBatch
from chaos.faults import LATE_ERROR_S, Damage, Faults, Hit
from chaos.leftovers import Leftovers
from chaos.run import (
    REPAIRS,
    WORK,
    Options,
    Outcome,
    Run,
    command,
    parse_options,
    show,
)
from chaos.schedule import KINDS, Fault, schedule
from chaos.ways import header_of
from chaos.world import BUCKET, Failure
from harness.differential import Run as QueryRun
from harness.event_log import Twins, metrics, twins
from harness.events import Events
from harness.operators import BY_NAME
from harness.spark import STATE_STORE, SUBJECT, driver_jvm
from harness.tcp_proxy import Fault as HttpFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.world import World
    from harness.processes import Process

pytestmark = [pytest.mark.tools, pytest.mark.usefixtures("driver")]

SEED = 11
LATE = 3


def test_a_seed_repeats_its_schedule_and_has_every_kind() -> None:
    """A run that found a fault must be repeatable."""
    faults = schedule(SEED, minutes=60, every_s=3, without=frozenset())

    assert faults == schedule(SEED, minutes=60, every_s=3, without=frozenset())
    assert faults != schedule(SEED + 1, minutes=60, every_s=3, without=frozenset())
    assert {fault.kind for fault in faults} == {kind.name for kind in KINDS}
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)


class UpForAWhile:
    """A driver that ends when each fault was tried three times, and the world around it."""

    def __init__(self, folder: Path, count: int, tries: list[int]) -> None:
        self.folder = folder
        self.driver = self
        self._numbers = range(1, count + 1)
        self._tries = tries

    @property
    def exit_code(self) -> int | None:
        return 0 if all(self._tries.count(number) >= LATE for number in self._numbers) else None

    def batches(self) -> list[int]:
        return [1]

    def engines(self) -> list[Process]:
        return []

    def tail(self) -> str:
        return "its log"


class LateTargets(Faults):
    """Faults of which each first one finds a target at its third try, and no other one does."""

    tries: list[int]

    def begin(self, fault: Fault) -> Hit | None:
        self.tries.append(fault.number)
        is_late = fault.number == 1 and self.tries.count(1) == LATE
        return Hit("a process that was started late") if is_late else None


def test_a_fault_without_a_target_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a driver starts there is no engine, and a run in which no fault hits shows nothing."""
    monkeypatch.setattr("chaos.run.RETRY_S", 0.0)
    monkeypatch.setattr("chaos.run.POLL_S", 0.0)
    options = Options(SEED, 0.03, 0.5, [])
    count = len(schedule(SEED, options.minutes, options.every_s, frozenset()))
    tries: list[int] = []
    world = cast("World", UpForAWhile(tmp_path, count, tries))
    one = Run(world, options)
    one.faults = LateTargets(world)
    one.faults.tries = tries

    one.go(Memory())

    assert [fault.number for fault, _ in one.outcome.hits] == [1]
    assert tries.count(1) == LATE
    assert count > 1
    assert [fault.number for fault in one.outcome.missed] == list(range(2, count + 1))
    assert not one.outcome.findings


class OnePut:
    """A proxy that each fault finds with one request."""

    def add(self, http: HttpFault) -> None:
        http.applied += http.matches(b"PUT /bucket/key HTTP/1.1")


class UpWithAProxy(UpForAWhile):
    """A driver that has ended, in a world with that proxy."""

    proxy = OnePut()


def test_a_fault_that_changed_no_request_is_no_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries may send no request of its method while it lasts: then it shows nothing."""
    monkeypatch.setattr("chaos.run.POLL_S", 0.0)
    error_of_put = Fault(1, at_s=0, kind="s3_error", lasts_s=0.01, choice=0)
    lost_get = Fault(2, at_s=0, kind="s3_lost_answer", lasts_s=0.01, choice=0.5)
    cut_get = Fault(3, at_s=0, kind="s3_cut_answer", lasts_s=0.02, choice=0)
    faults = [error_of_put, lost_get, cut_get]
    monkeypatch.setattr("chaos.run.schedule", lambda *_: faults)
    one = Run(cast("World", UpWithAProxy(tmp_path, 0, [])), Options(SEED, 0, 1, []))

    one.go(Memory())

    assert one.outcome.hits == [(error_of_put, "PUT x1")]
    assert one.outcome.missed == [lost_get, cut_get]
    assert not one.outcome.findings


def test_a_report_counts_faults_without_a_target_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """A run whose faults all missed shows nothing, and must not look as if it did."""
    one, two, three = schedule(SEED, minutes=60, every_s=3, without=frozenset())[:3]
    missed = [replace(two, kind="kill_engine"), replace(three, kind="kill_engine")]
    outcome = Outcome(hits=[(replace(one, kind="s3_slow"), "all connections")], missed=missed)

    show(outcome, Options(SEED, 60, 3, []))

    shown = capsys.readouterr().out
    assert "1 faults hit, 2 found no target" in shown
    assert "NOT TESTED: no fault of kind kill_engine found a target" in shown
    assert "NOT TESTED: no fault of kind s3_slow" not in shown


def test_a_report_says_whether_a_task_had_a_twin(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a twin nothing shows that two attempts of a task change no row."""
    options = Options(SEED, 60, 3, [])

    show(Outcome(twins=Twins(3, 2)), options)

    shown = capsys.readouterr().out
    assert "twins of tasks         3  (2 of stateful tasks were first)" in shown
    assert "NOT TESTED: no twin" not in shown

    show(Outcome(twins=Twins(1, 0), not_tested=["no worker lived"]), options)

    shown = capsys.readouterr().out
    assert "NOT TESTED: no twin of a stateful task was first" in shown
    assert "NOT TESTED: no worker lived" in shown


def task_event(kind: str, *, twin: bool, reason: str = "Success", metric: str = "") -> str:
    """Return a line of Spark's event log."""
    info = {"Speculative": twin, "Accumulables": [{"Name": metric}]}
    event = {"Event": f"SparkListenerTask{kind}", "Task Info": info}
    return json.dumps({**event, "Task End Reason": {"Reason": reason}}, separators=(",", ":"))


def test_twins_are_counted_in_the_logs_of_all_drivers(tmp_path: Path) -> None:
    """A driver that is killed leaves half a line."""
    commit = "time to commit changes"
    lines = [
        task_event("Start", twin=True),
        task_event("Start", twin=False),
        task_event("End", twin=True, metric=commit),
        task_event("End", twin=True, metric="number of output rows"),
        task_event("End", twin=True, reason="TaskKilled", metric=commit),
        task_event("End", twin=False, metric=commit),
    ]
    for driver in ("one", "two.inprogress"):
        (tmp_path / driver).write_text("\n".join(lines) + "\n" + lines[0][:-9])

    assert twins(tmp_path) == Twins(started=2, won=2)


def test_metrics_are_summed_over_the_batches_of_all_drivers(tmp_path: Path) -> None:
    """They say what a run had occasion to check."""

    def progress(spills: int, repairs: int) -> str:
        operator = {"customMetrics": {"cairnSpills": spills, "cairnRepairs": repairs}}
        kind = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
        event = {"Event": kind, "progress": {"stateOperators": [operator, operator]}}
        return json.dumps(event, separators=(",", ":"))

    (tmp_path / "one").write_text(f"{progress(1, 0)}\n{task_event('Start', twin=True)}\n")
    (tmp_path / "two.inprogress").write_text(f"{progress(2, 1)}\n{progress(9, 9)[:-9]}")

    assert metrics(tmp_path) == {"cairnSpills": 6, "cairnRepairs": 2}


def test_a_report_says_what_small_budgets_did_not_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A run without a spill or a repair shows nothing about them."""
    options = Options(SEED, 60, 3, [])
    (fault,) = schedule(SEED, minutes=60, every_s=3, without=frozenset())[:1]
    hits = [(replace(fault, kind="flip_bit"), "an object")]
    names = [*WORK, REPAIRS]

    show(Outcome(hits=hits, metrics=Counter(dict.fromkeys(names, 7))), options)

    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines() if "cairn" in line] == [
        [name, "7"] for name in names
    ]
    assert "in no finished batch" not in shown
    assert "a load went around" not in shown

    show(Outcome(hits=hits, metrics=Counter(cairnSpills=1)), options)

    shown = capsys.readouterr().out
    assert "spilled" not in shown
    assert "NOT TESTED: in no finished batch the state cache evicted a slab" in shown
    assert "NOT TESTED: in no finished batch a changelog was replayed" in shown
    assert "NOT TESTED: in no finished batch a load went around a damaged object" in shown

    show(Outcome(), options)

    assert "a load went around" not in capsys.readouterr().out


def test_the_printed_command_repeats_a_run() -> None:
    """Its faults depend on the mean time between them and on the kinds that were left out, too."""
    only = ["flip_bit", "s3_slow"]
    words = ["--seed", "7", "--minutes", "1.23456789", "--every", "2.4", "--only", *only]
    options, _ = parse_options([*words, "--queries", "sessions", "windows_append"])

    python, program, *printed = shlex.split(command(options))

    assert (python, program) == ("python", "integration-tests/chaos/run.py")
    assert parse_options(printed)[0] == options
    by_default, _ = parse_options(["--seed", "7"])
    assert parse_options(shlex.split(command(by_default))[2:])[0] == by_default
    assert by_default.without == frozenset()


class Life:
    """A worker whose memory is measured every second of a fake time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.memory = Memory(lambda: self.now_s)

    def goes_on(self, seconds: float, size_bytes: int, growth_bytes: int = 0) -> None:
        for second in range(int(seconds) + 1):
            self.now_s += 1
            self.memory.add(1, size_bytes + growth_bytes * second // int(seconds))


def test_a_worker_that_grows_below_the_bound_is_found() -> None:
    """A leak shows only in a worker that lives long, and most are killed early."""
    life = Life()
    life.goes_on(WARM_UP_S, 0, 40 << 20)
    life.goes_on(LONG_LIFE_S, 40 << 20, 2 * GROWTH_BYTES)

    (finding,) = life.memory.findings()

    assert "worker 1 grew from" in finding
    assert life.memory.not_tested() == []


def test_a_worker_that_fills_its_caches_does_not_grow() -> None:
    """What it needs to start with is no leak; nor is one sample of a large batch."""
    life = Life()
    life.goes_on(WARM_UP_S, 0, 100 << 20)
    life.goes_on(LONG_LIFE_S, 100 << 20, GROWTH_BYTES // 2)
    life.goes_on(1, 180 << 20)

    assert life.memory.findings() == []


def test_workers_that_were_all_killed_early_show_no_growth() -> None:
    """Then the check has compared nothing, and must say so."""
    life = Life()
    life.goes_on(LONG_LIFE_S / 2, 40 << 20)

    assert life.memory.findings() == []

    (reason,) = life.memory.not_tested()
    assert "no worker lived for 120 s" in reason


@pytest.fixture(scope="module", params=[1, 2], ids=["format1", "format2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the checkpoint of a run with a snapshot of most versions, in each format."""
    form: int = request.param
    folder = tmp_path_factory.mktemp("leftovers")
    events = Events(folder / "input")
    events.add_files(0, 9)
    conf = {
        STATE_STORE + "minDeltasForSnapshot": "1",
        STATE_STORE + "maintenanceInterval": "100ms",
        "spark.sql.streaming.minBatchesToRetain": "100",
    }
    checkpoint = str(folder / "checkpoint")
    run = QueryRun(BY_NAME["windows_update"], events, checkpoint, SUBJECT, form, conf)
    run.advance()
    # Ends the maintenance, which may still delete objects.
    driver_jvm().org.apache.spark.sql.execution.streaming.state.StateStore.stop()
    return Path(run.checkpoint)


@pytest.fixture
def store(checkpoint: Path, tmp_path: Path) -> Path:
    """Return a copy of it: the folder of one store."""
    shutil.copytree(checkpoint, tmp_path / "copy")
    return tmp_path / "copy" / "state" / "0" / "0"


def leftovers(store: Path) -> Leftovers:
    """Return the check of a copy."""
    checkpoint_format = 2 if "_" in newest(store, "changelog") else 1
    return Leftovers(str(store.parents[2]), {}, 3, checkpoint_format)


class Folder:
    """A client of S3 whose bucket is a folder: as much of boto3's as `Faults` calls."""

    class exceptions:  # noqa: N801 - boto3's name
        """Errors of the client."""

        NoSuchKey = FileNotFoundError
        ClientError = OSError

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_paginator(self, _: str) -> Folder:
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        assert Bucket == BUCKET
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        keys = (str(path.relative_to(self.folder)) for path in paths)
        at = datetime.now(UTC)
        yield {"Contents": [{"Key": k, "LastModified": at} for k in keys if k.startswith(Prefix)]}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        assert Bucket == BUCKET
        return {"Body": io.BytesIO((self.folder / Key).read_bytes())}

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, str]:  # noqa: N803
        data = self.get_object(Bucket=Bucket, Key=Key)["Body"].read()
        return {"ETag": hashlib.sha256(data).hexdigest()}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> dict[str, str]:  # noqa: N803
        (self.folder / Key).write_bytes(Body)
        return self.head_object(Bucket=Bucket, Key=Key)


class Judged:
    """A run whose queries fail with the errors that a test makes up, on a copy of a checkpoint."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.folder = store.parents[3]
        self.client = Folder(self.folder)
        self.run = Run(cast("World", self), Options(SEED, 1, 1, []))
        self.faults = self.run.faults

    def damage(self, name: str) -> None:
        """Delete an object, as a fault does."""
        key = str((self.store / name).relative_to(self.folder))
        data = (self.store / name).read_bytes()
        (self.store / name).unlink()
        self.faults.note_damage(Damage(key, data, None))

    def findings(self, *names: str, code: str = "CAIRN_MISSING", later_s: float = 0) -> list[str]:
        """Return what the judge finds if a query ends with an error that names objects."""
        urls = " ".join(f"s3a://{BUCKET}/{self.store.relative_to(self.folder)}/{n}" for n in names)
        failure = Failure("windows", f"[{code}] {urls}", time.time() + later_s)
        self.run.judge(failure, "the driver")
        return self.run.outcome.findings


def last_version(store: Path) -> int:
    """Return the newest version of a store."""
    return max(versions(store, "changelog"))


def newest(store: Path, kind: str) -> str:
    """Return the name of the newest object of a kind that has versions."""
    return name_of(store, kind, max(versions(store, kind)))


def name_of(store: Path, kind: str, version: int) -> str:
    """Return the name of the only object of a kind that a version has."""
    (path,) = store.glob(f"{kind}/{version}[_.]*")
    return str(path.relative_to(store))


def test_a_damaged_changelog_may_end_a_query(store: Path) -> None:
    """It is on most ways to the version; its error names it, and it is given back."""
    judged = Judged(store)
    name = newest(store, "changelog")
    judged.damage(name)

    assert judged.findings(name) == []

    assert (store / name).exists()
    assert judged.findings(name) == []  # of the second driver, an instant later


def test_an_error_long_after_its_object_was_restored_is_found(store: Path) -> None:
    """The query ends although all its objects are whole: a damage must not excuse that for ever."""
    judged = Judged(store)
    name = newest(store, "changelog")
    judged.damage(name)
    assert judged.findings(name) == []

    (finding,) = judged.findings(name, later_s=LATE_ERROR_S + 1)

    assert name in finding


def test_an_error_that_names_a_whole_object_is_found(store: Path) -> None:
    """Damage elsewhere explains nothing."""
    judged = Judged(store)
    judged.damage(newest(store, "changelog"))

    (finding,) = judged.findings(newest(store, "snapshot"))

    assert "snapshot/" in finding


@pytest.mark.parametrize("kind", ["snapshot", "sst"])
def test_a_query_that_ends_at_a_damaged_snapshot_is_found(store: Path, kind: str) -> None:
    """Its store has earlier snapshots and all changelogs: the load had to go around it."""
    name = newest(store, "snapshot")
    if kind == "sst":
        name = json.loads((store / name).read_text())["files"][0]["object"]
    judged = Judged(store)
    judged.damage(name)

    (finding,) = judged.findings(name)

    assert name in finding
    assert (store / name).exists()


def test_a_damaged_snapshot_may_end_a_query_whose_changelog_is_damaged_too(store: Path) -> None:
    """The load needs both, and names what it began with; the changelog may be whole again."""
    name, changelog = newest(store, "snapshot"), newest(store, "changelog")
    judged = Judged(store)
    judged.damage(changelog)
    judged.damage(name)
    assert judged.findings(changelog) == []

    assert judged.findings(name) == []


@pytest.mark.parametrize("checkpoint", [1], indirect=True)
def test_a_replaced_changelog_of_format_1_is_given_back_as_its_copy(store: Path) -> None:
    """A twin whose version was deleted creates it anew; others may have built on the deleted one.

    Cairn would have kept that one as a copy, so a run that destroys it must do so, too.
    """
    judged = Judged(store)
    name = newest(store, "changelog")
    data = (store / name).read_bytes()
    own = header_of(data)["checkpoint_id"]
    judged.damage(name)
    (store / name).write_bytes(b"of a twin")

    # The load finds the id under neither name, and names the plain one.
    assert judged.findings(name) == []

    assert (store / name).read_bytes() == b"of a twin"
    assert (store / name.replace(".arrow", f"_{own}.arrow")).read_bytes() == data


@pytest.mark.parametrize("checkpoint", [1], indirect=True)
def test_a_deleted_copy_of_format_1_is_named_by_the_plain_name(store: Path) -> None:
    """A load looks for an attempt under both names, and its error has the plain one only."""
    judged = Judged(store)
    plain = newest(store, "changelog")
    copy = plain.replace(".arrow", f"_u{'1' * 32}.arrow")
    (store / copy).write_bytes((store / plain).read_bytes())
    judged.damage(copy)

    assert judged.findings(plain) == []

    assert (store / copy).exists()


def test_a_manifest_of_a_newer_release_may_end_a_query(store: Path) -> None:
    """One flipped bit makes it one; a load never goes around what it does not understand."""
    name = newest(store, "snapshot")
    judged = Judged(store)
    judged.damage(name)

    assert judged.findings(name, code="CAIRN_FORMAT_VERSION") == []


def test_a_damaged_snapshot_may_end_a_query_after_retention(store: Path) -> None:
    """What led to its version without it is kept no longer."""
    name = newest(store, "snapshot")
    (store / name_of(store, "changelog", max(versions(store, "snapshot")))).unlink()
    judged = Judged(store)
    judged.damage(name)

    assert judged.findings(name) == []


def versions(store: Path, kind: str) -> list[int]:
    """Return the versions of a store that have objects of a kind."""
    names = (path.name for path in (store / kind).iterdir())
    return sorted(int(name.partition("_")[0].partition(".")[0]) for name in names)


def test_what_a_sweep_finds_is_no_leftover(store: Path) -> None:
    """Lost attempts, failed uploads and dead pins are left by any fault; none may stay."""
    upload = "0123456789abcdef"
    (store / "pin").mkdir()
    orphans = [
        store / "sst" / f"{upload}{upload}.sst",
        store / "pin" / f"upload-{upload}_1.json",
        store / "pin" / f"reader-{upload}_1_2_1.json",
        store / "changelog" / f"1_u{upload * 2}.arrow",
        store / "snapshot" / f"1_u{upload * 2}.json",
    ]
    some = next((store / "snapshot").iterdir())
    for orphan in orphans:
        orphan.write_bytes(some.read_bytes())
    check = leftovers(store)

    assert check.findings() == []

    assert check.stores == 2
    assert check.deleted > len(orphans)
    assert not [orphan for orphan in orphans if orphan.exists()]
    oldest = versions(store, "snapshot")[0]
    assert oldest > 1
    # None is left if the newest version has a snapshot.
    assert all(version > oldest for version in versions(store, "changelog"))


def test_a_sweep_finds_the_ssts_of_a_manifest_that_it_deleted_before(store: Path) -> None:
    """A load around a damaged manifest leaves that one outside of the chain of later ones."""
    oldest = header_of((store / name_of(store, "changelog", last_version(store) - 2)).read_bytes())
    # There is a later snapshot too, if maintenance was fast enough; else it is the newest one.
    version = min(oldest["base"]["version"], versions(store, "snapshot")[-2])
    data = (store / name_of(store, "snapshot", version)).read_bytes()
    found = manifest.decode(data, object_name="the oldest base")
    ref = VersionRef(version, CheckpointId(f"u{'7' * 32}"))
    (file,) = found.files[:1]
    only = replace(file, object_name=f"sst/{'7' * 32}.sst")
    orphan = manifest.encode(replace(found, ref=ref, files=(only,)))
    (store / "snapshot" / f"{version}_{ref.checkpoint_id}.json").write_bytes(orphan)
    (store / only.object_name).write_bytes(b"left")

    assert leftovers(store).findings() == []

    assert not (store / only.object_name).exists()


def test_a_snapshot_of_the_newest_version_deletes_its_garbage_in_time(store: Path) -> None:
    """The newest version has an older base: its own snapshot is that of the versions to come."""
    name = name_of(store, "changelog", last_version(store))
    own = header_of((store / name).read_bytes())["checkpoint_id"]
    base = versions(store, "snapshot")[-1]
    data = (store / name_of(store, "snapshot", base)).read_bytes()
    found = manifest.decode(data, object_name="the newest snapshot")
    ref = VersionRef(last_version(store), CheckpointId(own))
    garbage = f"sst/{'7' * 32}.sst"
    entry = manifest.Garbage(garbage, dropped_at_ms=1)
    (store / "snapshot" / f"{ref.version}_{own}.json").write_bytes(
        manifest.encode(replace(found, ref=ref, garbage=(*found.garbage, entry)))
    )
    (store / garbage).write_bytes(b"left")

    assert leftovers(store).findings() == []

    assert not (store / garbage).exists()


@pytest.mark.parametrize("name", ["sst/x.sst", "changelog/1.arrow.tmp", "stray"])
def test_what_no_sweep_finds_is_a_finding(store: Path, name: str) -> None:
    """A name that the clean-up does not know stays, and costs, for ever."""
    (store / name).parent.mkdir(exist_ok=True)
    (store / name).write_bytes(b"left")

    (finding,) = leftovers(store).findings()

    assert f"nothing deletes {name}" in finding


def test_a_pin_of_an_unknown_kind_stops_every_deletion(store: Path) -> None:
    """A later release may have stored it for a version that is retained no longer."""
    (store / "pin").mkdir()
    (store / "pin" / "other").write_bytes(b"left")
    before = versions(store, "changelog"), versions(store, "snapshot")

    (finding,) = leftovers(store).findings()

    assert "nothing deletes" in finding
    assert (versions(store, "changelog"), versions(store, "snapshot")) == before


def test_a_sweep_that_does_nothing_is_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check must not take Cairn's word for what is needed."""
    monkeypatch.setattr("chaos.leftovers.sweep_orphans", lambda *_, **__: 0)
    orphan = store / "sst" / f"{'0' * 32}.sst"
    orphan.write_bytes(b"left")

    (finding,) = leftovers(store).findings()

    assert orphan.name in finding


@pytest.mark.parametrize("kind", ["changelog", "snapshot", "sst"])
def test_an_object_that_a_retained_version_needs_is_missed(store: Path, kind: str) -> None:
    """A clean-up that deletes too much is worse than one that leaves something."""
    changelog = store / newest(store, "changelog")
    with pa.ipc.open_stream(changelog.read_bytes()) as stream:
        base = json.loads(stream.schema.metadata[b"cairn.header"])["base"]
    snapshot = store / "snapshot" / f"{base['version']}_{base['checkpoint_id']}.json"
    sst = store / json.loads(snapshot.read_text())["files"][0]["object"]
    {"changelog": changelog, "snapshot": snapshot, "sst": sst}[kind].unlink()

    findings = leftovers(store).findings()

    assert len(findings) == 1
    assert "retained versions" in findings[0]


def test_the_control_reads_the_files_of_each_batch_at_once(tmp_path: Path) -> None:
    """A driver that is killed between two of Spark's logs makes one batch of two files."""
    events = Events(tmp_path / "input", rows_per_file=2)
    events.add_files(0, 4)
    ends = [(1, 1), (3, 2), (4, 3), (4, 4)]
    files = [{"left": left, "right": right} for left, right in ends]

    joined = input_by_batch(events, files, tmp_path / "control")

    def texts(of: Events, side: str) -> list[str]:
        return [path.read_text() for path in sorted(Path(of.side(side)).iterdir())]

    left = texts(events, "left")
    assert texts(joined, "left") == [left[0], left[1] + left[2], left[3]]
    assert texts(joined, "right") == texts(events, "right")


def test_a_batch_that_only_a_second_driver_wrote_keeps_its_place() -> None:
    """Without it the control would read each later batch's files one batch too early."""
    first = {0: SinkBatch(["a"], {"left": 1}), 2: SinkBatch(["c"], {"left": 3})}
    second = {1: SinkBatch(["b"], {"left": 2}), 2: SinkBatch(["other"], {"left": 3})}

    batches = all_batches(first, [second])

    assert [batches[batch].files["left"] for batch in sorted(batches)] == [1, 2, 3]
    assert [batches[batch].rows for batch in sorted(batches)] == [["a"], ["b"], ["c"]]
