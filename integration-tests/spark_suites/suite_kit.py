"""Prepares the files for Spark's suites once: test classes, libraries, own suites, the agent.

Gradle fetches the jars (build.gradle in this folder). Spark's test jars are unpacked into one
folder, because suites open their resources as plain files. The JDK's compiler compiles the agent
and the subclasses of Spark's abstract suites.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
REFERENCE = "4.3"
"""The minor version of Spark whose control is recorded, and on which all suites run."""
MINOR = ".".join(pyspark.__version__.split(".")[:2])
IS_REFERENCE = MINOR == REFERENCE
BUILD = REPOSITORY / ".build" / ("spark-suites" if IS_REFERENCE else f"spark-suites-{MINOR}")
AGENT_SOURCES = sorted((HERE / "agent").glob("*.java"))
AGENT_CLASS = "io.cairn.suites.ProviderSwapAgent"
OWN_PACKAGE = "io.cairn.suites."
OWN_SUITES = sorted((HERE / "suites").glob("*.java"))


@dataclass(frozen=True)
class Kit:
    """The folders that every suite's JVM uses."""

    classes: Path
    own_classes: Path
    libraries: Path
    agent_jar: Path
    spark_home: Path
    pyspark_jars: Path

    def digest(self) -> str:
        """Return a digest of all that the kit was made from."""
        return _digest(HERE / "build.gradle", *AGENT_SOURCES, *OWN_SUITES)


def pyspark_jars() -> Path:
    """Return the folder of the jars of the installed pyspark."""
    return Path(pyspark.__file__).resolve().parent / "jars"


def prepare(build: Path = BUILD) -> Kit:
    """Fetch, unpack and compile what is missing or older than its source."""
    build.mkdir(parents=True, exist_ok=True)
    kit = Kit(
        classes=build / "classes",
        own_classes=build / "own-classes",
        libraries=build / "jars" / "libraries",
        agent_jar=build / "provider-swap-agent.jar",
        spark_home=build / "home",
        pyspark_jars=pyspark_jars(),
    )
    with _when_changed(build / "fetched.stamp", HERE / "build.gradle") as is_changed:
        if is_changed:
            _fetch(build)
            _unpack(build / "jars" / "spark-tests", kit.classes)
            _make_spark_home(kit)
    with _when_changed(build / "agent.stamp", *AGENT_SOURCES) as is_changed:
        if is_changed:
            _compile_agent(kit, build / "agent-classes")
    if not IS_REFERENCE:
        return kit  # own suites extend classes as they are in the reference version
    with _when_changed(
        build / "own-suites.stamp", HERE / "build.gradle", *OWN_SUITES
    ) as is_changed:
        if is_changed:
            _compile_own_suites(kit)
    return kit


@contextmanager
def _when_changed(stamp: Path, *sources: Path) -> Iterator[bool]:
    """Yield whether ``sources`` differ from those of ``stamp``; without an error, renew it."""
    wanted = _digest(*sources)
    is_changed = not stamp.exists() or stamp.read_text() != wanted
    yield is_changed
    if is_changed:
        stamp.write_text(wanted)


def _digest(*files: Path) -> str:
    """Return one digest of all ``files``."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _fetch(build: Path) -> None:
    gradle = shutil.which("gradle")
    if gradle is None:
        message = "gradle is not installed; on Debian: apt-get install gradle"
        raise SystemExit(message)
    print("fetching Spark's test classes with Gradle", flush=True)
    subprocess.run(
        [
            gradle,
            "--no-daemon",
            "-q",
            *("-p", str(HERE)),
            *("--project-cache-dir", str(build / "gradle-cache")),
            "fetch",
            f"-PsparkMinor={MINOR}",
            f"-PjarsDir={build / 'jars'}",
        ],
        check=True,
    )


def _unpack(jars: Path, target: Path) -> None:
    print(f"unpacking {len(list(jars.glob('*.jar')))} jars", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for jar in sorted(jars.glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(target)


def _compile_agent(kit: Kit, classes: Path) -> None:
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    subprocess.run(
        [
            "javac",
            *("--release", "17"),
            *("-Xlint:all,-processing,-classfile", "-Werror"),
            *("-cp", f"{kit.libraries}{os.sep}*"),
            *("-d", str(classes)),
            *map(str, AGENT_SOURCES),
        ],
        check=True,
    )
    new_jar = kit.agent_jar.with_suffix(".new")
    with zipfile.ZipFile(new_jar, "w") as jar:
        manifest = f"Manifest-Version: 1.0\r\nPremain-Class: {AGENT_CLASS}\r\n\r\n"
        jar.writestr("META-INF/MANIFEST.MF", manifest)
        for file in sorted(classes.rglob("*.class")):
            jar.write(file, file.relative_to(classes).as_posix())
    new_jar.replace(kit.agent_jar)  # a running JVM keeps the old file


def _compile_own_suites(kit: Kit) -> None:
    """Compile the subclasses of Spark's abstract suites."""
    shutil.rmtree(kit.own_classes, ignore_errors=True)
    kit.own_classes.mkdir(parents=True)
    class_path = [str(kit.classes), f"{kit.libraries}/*", f"{kit.pyspark_jars}/*"]
    subprocess.run(
        [
            "javac",
            *("--release", "17"),
            *("-Xlint:all,-processing,-classfile,-path", "-Werror"),
            *("-cp", os.pathsep.join(class_path)),
            *("-d", str(kit.own_classes)),
            *map(str, OWN_SUITES),
        ],
        check=True,
    )


def _make_spark_home(kit: Kit) -> None:
    """Create a folder like Spark's source tree: some suites find their resources from its root."""
    resources = kit.spark_home / "sql" / "core" / "src" / "test" / "resources"
    resources.parent.mkdir(parents=True, exist_ok=True)
    if not resources.is_symlink():
        resources.symlink_to(kit.classes)
