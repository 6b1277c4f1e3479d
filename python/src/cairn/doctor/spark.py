"""Java, Spark, and the jar for it.

Layer: doctor.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cairn.doctor.check import Check, ok, problem, warning
from cairn.errors import CairnError
from cairn.jar import jar_path
from cairn.release import RELEASE
from cairn.spark_minor import installed_minor, spark_jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_JAVA_MIN: Final = 17
_JAVA_TIMEOUT_S: Final = 30
_RELEASE_IN_JAR: Final = "io/cairn/spark/VERSION"
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_S3: Final = ("s3", "s3a", "s3n")
_HADOOP_AWS: Final = "hadoop-aws"
_JARS_OF_JOB: Final = ("spark.jars", "spark.jars.packages")
_HADOOP = re.compile(r"hadoop-client-api-(.+)\.jar")
_PY4J = re.compile(r"py4j-(.+)\.jar")


def check_java() -> Iterator[Check]:
    """Check the Java that pyspark and ``spark-submit`` start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        yield problem("java", "there is no java on PATH, and no JAVA_HOME", "install a JDK 17")
        return
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_JAVA_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        cure = "install a JDK 17, or correct JAVA_HOME"
        yield problem("java", f"cannot run {java}: {failure}", cure)
        return
    match = _JAVA_VERSION.search(done.stderr + done.stdout)
    if not match:
        text = (done.stderr + done.stdout).strip()[:200]
        yield problem("java", f"{java} does not say its version: {text}", "install a JDK 17")
    elif int(match[1]) < _JAVA_MIN:
        yield problem("java", f"{java} is Java {match[1]}", "install a JDK 17, set JAVA_HOME to it")
    elif int(match[1]) > _JAVA_MIN:
        cure = "use Java 17, with which Cairn is tested"
        yield warning("java", f"{java} is Java {match[1]}", cure)
    else:
        yield ok("java", f"Java {match[1]}, {java}")


def check_spark() -> Iterator[Check]:
    """Check the Spark that this Python starts, and Cairn's jar for it."""
    try:
        minor = installed_minor()
    except CairnError as failure:
        yield problem("spark", failure.message, failure.next_step or "")
        return
    jars = spark_jars()
    yield ok("spark", f"Spark {minor}, {jars[0].parent.parent}")
    yield from _check_pyspark(minor)
    yield from _check_py4j(jars)
    try:
        jar = jar_path()
    except CairnError as failure:
        yield problem("jar", failure.message, failure.next_step or "")
        return
    yield _check_release(jar)


def _check_pyspark(minor: str) -> Iterator[Check]:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return
    if not version.startswith(f"{minor}."):
        yield problem(
            "pyspark",
            f"the package pyspark is {version}, but SPARK_HOME has Spark {minor}",
            f"unset SPARK_HOME, or pip install 'pyspark=={minor}.*'",
        )


def _check_py4j(jars: list[Path]) -> Iterator[Check]:
    of_spark = next((match[1] for jar in jars if (match := _PY4J.fullmatch(jar.name))), None)
    try:
        own = metadata.version("py4j")
    except metadata.PackageNotFoundError:
        return  # a finding of the packages
    if of_spark is not None and of_spark != own:
        yield warning(
            "py4j",
            f"Spark has py4j {of_spark}, this Python has {own}",
            f"use a Spark with py4j {own}: the two talk to each other",
        )


def _check_release(jar: Path) -> Check:
    try:
        with zipfile.ZipFile(jar) as archive:
            release = archive.read(_RELEASE_IN_JAR).decode("ascii", "replace").strip()
    except (OSError, KeyError, zipfile.BadZipFile) as failure:
        return problem("jar", f"{jar} cannot be read: {failure}", "install the package again")
    if release != RELEASE:
        return problem(
            "jar",
            f"{jar} is of release {release}, this package of {RELEASE}",
            "install the package again; in a checkout run `make shims`",
        )
    return ok("jar", str(jar))


def check_s3_jars(location: str, job: Mapping[str, str]) -> Iterator[Check]:
    """Check that Spark itself can open a location on S3: it does not ship the jar for it."""
    if location.partition(":")[0].lower() not in _S3:
        return
    try:
        names = [jar.name for jar in spark_jars()]
    except CairnError:
        return  # a finding of another check
    of_job = " ".join(job.get(name, "") for name in _JARS_OF_JOB)
    if any(name.startswith(_HADOOP_AWS) for name in names) or _HADOOP_AWS in of_job:
        yield ok(_HADOOP_AWS, "among the jars of Spark, or of the job")
        return
    versions = (match[1] for name in names if (match := _HADOOP.fullmatch(name)))
    version = next(versions, "VERSION")
    yield warning(
        _HADOOP_AWS,
        "neither Spark's jars nor the settings that were given have it: Spark cannot open s3a://",
        f"spark-submit --packages org.apache.hadoop:{_HADOOP_AWS}:{version}",
    )
