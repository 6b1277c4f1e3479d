"""The doctor looks at this machine: each fault is found, with a cure."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest

from cairn import jar, spark_minor
from cairn.doctor import packages
from cairn.doctor.check import Check
from cairn.doctor.machine import check_folders, check_hadoop, check_open_files
from cairn.doctor.packages import check_packages, check_python, fits
from cairn.doctor.spark import check_java, check_s3_jars, check_spark
from cairn.release import RELEASE
from cairn.spark_minor import installed_minor

LOCAL_DIR = "spark.sql.streaming.stateStore.cairn.localDir"


def statuses(checks: Iterable[Check]) -> dict[str, str]:
    """Return the status by the name; whatever is not ok has a cure."""
    found = list(checks)
    assert all(bool(one.cure) == (one.status != "ok") for one in found)
    return {one.name: one.status for one in found}


def only(checks: Iterable[Check]) -> Check:
    """Return the only check."""
    (found,) = checks
    return found


# -- Python and its packages ---------------------------------------------------------------------


def test_the_environment_of_these_tests_is_fit() -> None:
    """A doctor who finds faults in a healthy one is not believed."""
    found = statuses([*check_python(), *check_packages(), *check_java(), *check_spark()])

    assert set(found.values()) == {"ok"}
    assert {"python", "package pyarrow", "package rocksdict", "java", "spark", "jar"} <= set(found)


@pytest.mark.parametrize(
    ("version", "bounds", "is_fit"),
    [
        ("0.10.9.9", "==0.10.9.9", True),
        ("0.10.9.7", "==0.10.9.9", False),
        ("2", ">=2.0", True),
        ("1.26.4", ">=2.0", False),
        ("2.9.post0", ">=2.7", True),
        ("2.1.0rc1", ">=2.1", True),
        ("4.3.0", "<4.4,>=4.1", True),
        ("4.4.0.dev1", "<4.4,>=4.1", False),
        ("10.0", ">=9", True),
        ("3.0", "!=3.0.0", False),
        ("3.0", "<=3.0,>2", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, bounds: str, is_fit: bool) -> None:  # noqa: FBT001
    """As texts, 10 would be older than 9."""
    assert fits(version, bounds) == is_fit


def test_packages_that_do_not_fit_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extra that is absent stops nothing; development needs no check."""
    required = [
        "cairn-absent>=1",
        "numpy>=99",
        "click>=8.1",
        "absent-extra>=1; extra == 'query'",
        'pyarrow<2; extra == "avro"',
        "absent-tool; extra == 'dev'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: required)

    assert statuses(check_packages()) == {
        "package cairn-absent": "problem",
        "package numpy": "problem",
        "package click": "ok",
        "package absent-extra": "ok",
        "package pyarrow": "warning",
    }


def test_a_package_that_cannot_be_imported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed, but a library of the system that it needs is too old."""

    def refuse(name: str) -> None:
        raise ImportError(f"{name}: version GLIBC_2.34 not found")

    monkeypatch.setattr(metadata, "requires", lambda _: ["numpy>=1"])
    monkeypatch.setattr(packages, "import_module", refuse)

    found = only(check_packages())

    assert found.status == "problem"
    assert "GLIBC_2.34" in found.found


def test_a_folder_of_code_is_no_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONPATH alone nobody knows which packages are there."""

    def absent(_: str) -> list[str]:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", absent)

    assert only(check_packages()).status == "warning"


# -- Java and Spark ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", "ok"),
        ("echo 'openjdk version \"21\" 2023-09-19' >&2", "warning"),
        ("echo 'java version \"1.8.0_352\"' >&2", "problem"),
        ("echo 'no such thing' >&2; exit 1", "problem"),
        (None, "problem"),
    ],
)
def test_java_is_the_one_of_java_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, status: str
) -> None:
    """Spark starts that one, whatever is on PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if script:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)

    assert statuses(check_java()) == {"java": status}


def test_no_java_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither PATH nor JAVA_HOME has one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert statuses(check_java()) == {"java": "problem"}


def spark_home(folder: Path, *names: str) -> str:
    """Create a Spark of which only names of jars are there; return its home."""
    (folder / "jars").mkdir()
    for name in names:
        (folder / "jars" / name).touch()
    return str(folder)


def test_a_spark_that_does_not_fit_pyspark_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SPARK_HOME of a former installation is a common trap."""
    home = spark_home(tmp_path, "spark-core_2.13-4.1.4.jar", "py4j-0.10.9.7.jar")
    monkeypatch.setenv("SPARK_HOME", home)

    found = statuses(check_spark())

    assert found["spark"] == "ok"
    assert found["pyspark"] == "problem"
    assert found["py4j"] == "warning"


@pytest.mark.parametrize("version", ["3.5.1", None])
def test_a_spark_without_a_jar_of_ours_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None
) -> None:
    """The message says which versions there are."""
    names = [f"spark-core_2.13-{version}.jar"] if version else []
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, *names))
    monkeypatch.setattr(spark_minor, "find_spec", lambda _: None)

    assert statuses(check_spark()) == {"spark": "problem"}


@pytest.mark.parametrize(
    ("content", "status"),
    [(RELEASE, "ok"), ("0.0.1", "problem"), (None, "problem"), ("absent", "problem")],
)
def test_the_jar_must_be_of_this_release(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, status: str
) -> None:
    """Shim and engine of two releases do not understand each other."""
    file = tmp_path / f"cairn-shim-{installed_minor()}.jar"
    monkeypatch.setattr(jar, "BUILT", tmp_path / "nowhere")
    monkeypatch.setattr(jar, "PACKAGED", tmp_path)
    if content is None:
        file.write_bytes(b"no zip")
    elif content != "absent":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("io/cairn/spark/VERSION", f"{content}\n")

    assert statuses(check_spark())["jar"] == status


@pytest.mark.parametrize(
    ("location", "name", "job", "status"),
    [
        ("s3a://b/ck", "hadoop-client-api-3.5.0.jar", {}, "warning"),
        ("s3a://b/ck", "hadoop-aws-3.5.0.jar", {}, "ok"),
        ("s3a://b/ck", "x.jar", {"spark.jars.packages": "a:b:1,org.x:hadoop-aws:3.5.0"}, "ok"),
        ("ck", "x.jar", {}, None),
    ],
)
def test_spark_needs_a_jar_for_s3(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    location: str,
    name: str,
    job: dict[str, str],
    status: str | None,
) -> None:
    """The first query on S3 fails with a class that is not found; versions must fit, too."""
    monkeypatch.setenv("SPARK_HOME", spark_home(tmp_path, "spark-core_2.13-4.3.0.jar", name))

    found = list(check_s3_jars(location, job))

    assert [one.status for one in found] == ([status] if status else [])
    assert all("hadoop-aws:3.5.0" in one.cure for one in found if one.cure)


# -- open files, folders, Hadoop -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("hard", "partitions", "status"),
    [
        (1024, None, "problem"),
        (1024, "8", "ok"),
        (65_536, None, "ok"),
        (65_536, "10000", "problem"),
        (65_536, "many", "ok"),
        (65_536, "9" * 5_000, "ok"),
        (resource.RLIM_INFINITY, "10000", "ok"),
    ],
)
def test_the_limit_of_open_files_must_fit_the_partitions(
    monkeypatch: pytest.MonkeyPatch, hard: int, partitions: str | None, status: str
) -> None:
    """The batch that opens one file too many would fail, in the middle of the night."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    job = {} if partitions is None else {"spark.sql.shuffle.partitions": partitions}

    assert statuses(check_open_files(job)) == {"open files": status}


@pytest.fixture
def short() -> Iterable[Path]:
    """Return a folder with a short path; those of pytest are long."""
    folder = Path(tempfile.mkdtemp(prefix="c"))
    yield folder
    shutil.rmtree(folder)


def tmpdir(folder: Path) -> dict[str, str]:
    """Return the settings of a job whose Java has this temporary folder."""
    return {"spark.executor.extraJavaOptions": f"-Xss1m -Djava.io.tmpdir={folder}"}


def test_a_socket_is_created_and_removed(short: Path) -> None:
    """A check leaves nothing behind."""
    found = statuses(check_folders(tmpdir(short)))

    assert found["java.io.tmpdir"] == "ok"
    assert list(short.iterdir()) == []


def test_folders_that_have_no_socket_are_found(short: Path) -> None:
    """Worker and command both would fail at their start."""
    long = short / ("x" * 80)
    long.mkdir()
    file = short / "file"
    file.touch()

    for folder in (long, file, short / "absent"):
        assert statuses(check_folders(tmpdir(folder)))["java.io.tmpdir"] == "problem", folder


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` returns."""

    total: int
    used: int
    free: int


@pytest.mark.parametrize(
    ("free_mib", "local_bytes", "of_tmp", "of_local"),
    [
        (50, "10g", "problem", "problem"),
        (500, "10g", "warning", "warning"),
        (5_000, "10g", "ok", "warning"),
        (5_000, "1g", "ok", "ok"),
    ],
)
def test_a_full_disk_is_found(
    monkeypatch: pytest.MonkeyPatch, free_mib: int, local_bytes: str, of_tmp: str, of_local: str
) -> None:
    """The cache of files may grow to its bound."""
    usage = Usage(1 << 50, 0, free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    found = statuses(check_folders({f"{LOCAL_DIR.removesuffix('Dir')}DiskBytes": local_bytes}))

    assert (found["java.io.tmpdir space"], found["localDir space"]) == (of_tmp, of_local)


def test_a_local_folder_must_be_private(tmp_path: Path) -> None:
    """The engine refuses one that other users can write to."""
    own, shared, link = tmp_path / "own", tmp_path / "shared", tmp_path / "link"
    own.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o777)
    link.symlink_to(own)

    found = {
        folder.name: statuses(check_folders({LOCAL_DIR: str(folder)}))["localDir"]
        for folder in (own, shared, link, tmp_path / "new")
    }

    assert found == {"own": "ok", "shared": "problem", "link": "problem", "new": "ok"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_local_folder_of_another_user_is_found(tmp_path: Path) -> None:
    """A job that ran as root before has left it."""
    folder = tmp_path / "other"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12_345, 12_345)

    assert statuses(check_folders({LOCAL_DIR: str(folder)}))["localDir"] == "problem"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ("<configuration/>", "ok"),
        ("<configuration>", "problem"),
        ("<other/>", "problem"),
        (None, "warning"),
        ("no folder", "problem"),
        ("not set", "ok"),
    ],
)
def test_hadoops_settings_must_be_readable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None, status: str
) -> None:
    """Hadoop's own message for a broken file is a stack trace of the executor."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if content == "no folder":
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "absent"))
    elif content == "not set":
        monkeypatch.delenv("HADOOP_CONF_DIR")
    elif content is not None:
        (tmp_path / "core-site.xml").write_text(content)

    assert statuses(check_hadoop()) == {"HADOOP_CONF_DIR": status}


def test_python_and_system_are_those_that_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel can be installed on a Mac; a job does not run there."""
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))

    assert statuses(check_python()) == {"python": "problem", "system": "problem"}
