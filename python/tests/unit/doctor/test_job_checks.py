"""The doctor looks at settings and location of a job: names, values, access, clocks."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import cairn
from cairn.clock import FakeClock
from cairn.config import read_settings
from cairn.doctor.check import Check
from cairn.doctor.examine import examine
from cairn.doctor.location import check_clock, check_location
from cairn.doctor.settings import check_engine_python, check_settings
from cairn.errors import ConditionalPutUnsupportedError
from cairn.release import RELEASE
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryBucket, MemoryStore

PREFIX = "spark.sql.streaming.stateStore.cairn."
SAMPLE = Path(__file__).resolve().parents[4] / "examples" / "sample-checkpoint"


def statuses(checks: Iterable[Check]) -> dict[str, str]:
    """Return the status by the name; whatever is not ok has a cure."""
    found = list(checks)
    assert all(bool(one.cure) == (one.status != "ok") for one in found)
    return {one.name: one.status for one in found}


# -- settings ------------------------------------------------------------------------------------


def test_what_spark_conf_returns_has_no_finding() -> None:
    """Two tools of one package must agree."""
    job = {"spark.master": "local[4]"}

    found = statuses(check_settings(job | cairn.spark_conf(job, workers=2, cacheMemory="512m")))

    assert set(found.values()) == {"ok"}
    assert found[f"{PREFIX}workers"] == "ok"


def test_without_settings_nothing_is_said_about_them() -> None:
    """They may all be in spark-defaults.conf."""
    assert list(check_settings({})) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (f"{PREFIX}wokers", "2", f"{PREFIX}workers"),
        ("cairn.workers", "2", "nobody reads it"),
        ("spark.cairn.localDir", "/x", f"{PREFIX}localDir"),
        (f"{PREFIX}workers", "0", "a whole number from 1 to 64"),
        (f"{PREFIX}workers", "two", "a whole number"),
        (f"{PREFIX}cacheMemory", "1x", "a size, such as 512m"),
        (f"{PREFIX}cacheMemory", "1k", "of at least 1048576"),
        (f"{PREFIX}optimizePlans", "yes", "true or false"),
        (f"{PREFIX}s3.credentials", "none", "hadoop, aws, anonymous"),
        (f"{PREFIX}localDir", " ", "not empty"),
    ],
)
def test_wrong_settings_of_cairn_are_found(name: str, value: str, words: str) -> None:
    """The job would start, and end with the first batch; or nobody would read the setting."""
    job = cairn.spark_conf() | {name: value}

    found = [one for one in check_settings(job) if one.name == name]

    assert [one.status for one in found] == ["problem"]
    assert words in found[0].found


def test_each_default_is_a_value() -> None:
    """The rules of the table are those of the shim."""
    for setting in read_settings().settings.values():
        if setting.default is not None:
            assert setting.fault(str(setting.default).lower()) is None, setting.name


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"spark.sql.streaming.stateStore.providerClass": None}, "providerClass", "problem"),
        ({"spark.sql.streaming.stateStore.providerClass": "x.Y"}, "providerClass", "problem"),
        (
            {"spark.sql.streaming.stateStore.checkpointFormatVersion": None},
            "checkpointFormatVersion",
            "warning",
        ),
        ({"spark.sql.extensions": "x.Y"}, "extensions", "warning"),
        (
            {"spark.sql.streaming.checkpointFileManagerClass": None},
            "checkpointFileManagerClass",
            "warning",
        ),
        ({"spark.jars": None}, "jars", "warning"),
        ({"spark.jars": "/nowhere/cairn-shim-4.3.jar"}, "jars", "problem"),
        ({"spark.jars": "s3://b/cairn-shim-3.5.jar"}, "jars", "problem"),
        ({f"{PREFIX}cacheMemory": "2g"}, "cacheMemory", "problem"),
        (
            {
                f"{PREFIX}cacheMemory": "2g",
                "spark.master": "local[2]",
                "spark.executor.memory": "8g",
            },
            "cacheMemory",
            "problem",
        ),
        ({f"{PREFIX}cacheMemory": "2g", "spark.executor.memory": "8192"}, "cacheMemory", "ok"),
    ],
)
def test_what_a_job_lacks_is_found(changes: dict[str, str | None], name: str, status: str) -> None:
    """Without the provider Spark's own would keep the state, without a word."""
    job = {key: value for key, value in (cairn.spark_conf() | changes).items() if value is not None}

    found = {one.name.rpartition(".")[2]: one.status for one in check_settings(job)}

    assert found[name] == status


def script(folder: Path, text: str) -> str:
    """Return the path of a program."""
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (f"echo noise; echo '{json.dumps([RELEASE, '3.12.1'])}'", "ok"),
        ('echo \'["0.0.1", "3.12.1"]\'', "problem"),
        ("echo 'ModuleNotFoundError: No module named pyarrow' >&2; exit 1", "problem"),
        ("exit 0", "problem"),
    ],
)
def test_the_python_of_the_workers_is_started(tmp_path: Path, text: str, status: str) -> None:
    """Another Python than that of this command is where packages are missing."""
    job = {f"{PREFIX}python": script(tmp_path, text)}

    assert statuses(check_engine_python(job)) == {"engine python": status}


def test_the_python_of_the_workers_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is on the executors: only there it can be checked."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python3")
    of_executors = statuses(check_engine_python({}))
    own = statuses(check_engine_python({"spark.pyspark.python": sys.executable}))
    monkeypatch.delenv("PYSPARK_PYTHON")

    assert of_executors == {"engine python": "warning"}
    assert own == {"engine python": "ok"}
    assert list(check_engine_python({})) == []


def test_this_python_can_start_the_engine(tmp_path: Path) -> None:
    """The program that the doctor lets it run is a right one."""
    job = {f"{PREFIX}python": script(tmp_path, f'exec {sys.executable} "$@"')}

    assert statuses(check_engine_python(job)) == {"engine python": "ok"}


# -- location ------------------------------------------------------------------------------------


def of_location(location: Path | str, *, may_write: bool = False) -> dict[str, str]:
    """Return the status of each check of a location."""
    return statuses(check_location(str(location), {}, may_write=may_write))


def test_a_checkpoint_is_listed_and_read() -> None:
    """What the first batch will do."""
    assert of_location(SAMPLE) == {"location list": "ok", "location get": "ok", "checkpoint": "ok"}


def test_nothing_is_written_without_leave(tmp_path: Path) -> None:
    """Someone else's checkpoint is not the place for experiments."""
    copy = tmp_path / "ck"
    shutil.copytree(SAMPLE, copy)
    before = sorted(copy.rglob("*"))

    without = of_location(copy)
    unwritten = sorted(copy.rglob("*"))
    written = of_location(copy, may_write=True)

    assert "location write" not in without
    assert unwritten == before
    assert written["location write"] == "ok"
    assert sorted(one for one in copy.rglob("*") if one.is_file()) == [
        one for one in before if one.is_file()
    ]


def test_a_new_location_is_right(tmp_path: Path) -> None:
    """A query creates it."""
    assert of_location(tmp_path / "new") == {"location list": "ok"}


def test_another_folder_than_a_checkpoint_is_found(tmp_path: Path) -> None:
    """The folder above the checkpoint is a common slip."""
    (tmp_path / "file").touch()

    assert of_location(tmp_path)["location get"] == "warning"


def test_a_checkpoint_of_sparks_keeps_its_provider(tmp_path: Path) -> None:
    """Settings of Cairn have no effect on it."""
    shutil.copytree(SAMPLE, tmp_path / "ck")
    for entry in (tmp_path / "ck/offsets").iterdir():
        spark = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        entry.write_text(entry.read_text().replace("io.cairn.spark.CairnStateStoreProvider", spark))

    assert of_location(tmp_path / "ck")["checkpoint"] == "warning"


def test_a_location_that_cannot_be_opened_is_a_problem() -> None:
    """The message is that of the job."""
    (found,) = check_location("s3://b/x", {"endpoint_url": "minio:9000"}, may_write=False)

    assert found.status == "problem"
    assert "endpoint_url must be http(s)://" in found.found


def test_storage_without_conditional_put_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Format 2 works there: it is no problem, but one should know."""

    def refuse(_: LocalStore) -> None:
        raise ConditionalPutUnsupportedError("ignores If-None-Match", next_step="use format 2")

    monkeypatch.setattr(LocalStore, "probe_conditional_put", refuse)

    assert of_location(tmp_path, may_write=True)["location write"] == "warning"


def test_a_folder_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    """A file is where the folder should be."""
    (tmp_path / "file").touch()

    assert of_location(tmp_path / "file" / "ck", may_write=True)["location write"] == "problem"


class Elsewhere(MemoryStore):
    """A store whose server has a clock of its own."""

    def __init__(self, time: datetime | None) -> None:
        super().__init__("memory://clock", MemoryBucket())
        self._time = time

    def server_time(self) -> datetime | None:
        """Return that clock's time."""
        return self._time


@pytest.mark.parametrize(
    ("skew_s", "status"),
    [(1, "ok"), (-59, "ok"), (61, "warning"), (-899, "warning"), (901, "problem")],
)
def test_a_wrong_clock_is_found(skew_s: int, status: str) -> None:
    """S3 refuses requests whose time differs by a quarter of an hour."""
    now = datetime(2026, 1, 1, tzinfo=UTC)

    found = check_clock(Elsewhere(now + timedelta(seconds=skew_s)), FakeClock(now))

    assert statuses(found) == {"clock": status}


def test_storage_with_this_machines_clock_has_no_skew() -> None:
    """Local files."""
    assert list(check_clock(Elsewhere(None), FakeClock())) == []


def test_all_checks_together_find_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check is asked, in the order in which a job meets them."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)

    names = list(statuses(examine(str(SAMPLE), {}, cairn.spark_conf(workers=2))))

    some = ["python", "package numpy", "java", "spark", "open files", "HADOOP_CONF_DIR"]
    some += [f"{PREFIX}workers", "location list"]
    assert [name for name in names if name in some] == some
