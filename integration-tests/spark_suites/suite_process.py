"""Runs one suite under one provider in a new JVM and reads its results.

The results come from scalatest's JUnit XML, or from the printed lines if the suite did not end
(time limit, crash).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from suite_kit import HERE, REPOSITORY, Kit

PROVIDER_SETTING = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PASSED, FAILED, IGNORED = "passed", "failed", "ignored"
STOP_GRACE_S = 20

OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)


@dataclass(frozen=True)
class Suite:
    """A suite class, its time limit, and a part of the names of the tests to run.

    A suite of the checkpoint file manager has the place of its files, ``s3`` or ``local``.
    """

    name: str
    class_name: str
    limit_s: int
    name_filter: str = ""
    files: str = ""


@dataclass(frozen=True)
class Provider:
    """A provider under test; it replaces the provider classes in ``swap``.

    ``file_settings`` are further properties of suites of the checkpoint file manager, by the place
    of their files.
    """

    label: str
    class_name: str
    swap: tuple[str, ...] = ()
    jars: tuple[Path, ...] = ()
    file_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass
class SuiteResult:
    """The results of one suite under one provider."""

    suite: str
    provider: str
    seconds: float
    is_ended: bool
    exit_code: int
    name_filter: str = ""
    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    managed: dict[str, int] = field(default_factory=dict)
    files: str = ""

    def names(self, outcome: str) -> list[str]:
        """Return the tests with this outcome, sorted."""
        return sorted(name for name, value in self.outcomes.items() if value == outcome)

    def save(self, file: Path) -> None:
        """Write as JSON."""
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False))

    @classmethod
    def read(cls, file: Path) -> SuiteResult:
        """Return the result that ``save`` wrote."""
        return cls(**json.loads(file.read_text()))


def run_suite(kit: Kit, suite: Suite, provider: Provider, folder: Path) -> SuiteResult:
    """Run ``suite`` in a JVM under ``provider``; all its files are written to ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("junit", "tmp"):
        (folder / name).mkdir(parents=True)
    started = time.monotonic()
    with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
        process = subprocess.Popen(
            java_command(kit, suite, provider, folder),
            cwd=folder,
            env=environment(kit),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        is_ended = _wait(process, suite.limit_s)
    result = SuiteResult(
        suite=suite.name,
        provider=provider.label,
        seconds=round(time.monotonic() - started, 1),
        is_ended=is_ended,
        exit_code=process.returncode,
        name_filter=suite.name_filter,
        opened=_counted("opened", folder / "providers.txt"),
        managed=_counted("managed", folder / "providers.txt"),
        files=suite.files,
    )
    _read_outcomes(folder, result)
    result.save(folder / "result.json")
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    shutil.rmtree(folder / "spark-warehouse", ignore_errors=True)
    return result


def java_command(kit: Kit, suite: Suite, provider: Provider, folder: Path) -> list[str]:
    """Return the command line of a suite's JVM."""
    class_path = [
        str(HERE / "conf"),
        str(kit.classes),
        f"{kit.libraries}/*",
        *map(str, provider.jars),
        f"{kit.pyspark_jars}/*",
    ]
    agent = f"report={folder / 'providers.txt'}"
    if provider.swap:
        agent += f";target={provider.class_name};names={'|'.join(provider.swap)}"
    properties = {
        "java.io.tmpdir": folder / "tmp",
        "spark.testing": "1",
        "spark.test.home": kit.spark_home,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "spark-warehouse",
        "derby.system.home": folder / "tmp",
        "io.netty.tryReflectionSetAccessible": "true",
        PROVIDER_SETTING: provider.class_name,
        **provider.file_settings.get(suite.files, {}),
    }
    return [
        "java",
        *("-Xmx3g", "-Xss4m", "-XX:ReservedCodeCacheSize=256m", "-XX:-OmitStackTraceInFastThrow"),
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES),
        f"-javaagent:{kit.agent_jar}={agent}",
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", os.pathsep.join(class_path)),
        "org.scalatest.tools.Runner",
        *("-oWN", "-u", str(folder / "junit")),
        *("-R", str(kit.classes)),
        *("-s", suite.class_name),
        *(("-z", suite.name_filter) if suite.name_filter else ()),
    ]


def environment(kit: Kit) -> dict[str, str]:
    """Return the environment of a suite's JVM and of the workers below it."""
    python_path = [str(REPOSITORY / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "SPARK_TESTING": "1",
        "SPARK_HOME": str(kit.spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
    }


def _wait(process: subprocess.Popen[bytes], limit_s: int) -> bool:
    """Wait for the JVM, end all its processes, and return whether it ended within its limit."""
    try:
        process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)  # the agent still writes its report
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_GRACE_S)
        is_ended = False
    else:
        is_ended = True
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # processes that outlived the JVM
    process.wait()
    return is_ended


def _counted(what: str, report: Path) -> dict[str, int]:
    """Return the agent's counts of opened stores, or of file managers, by class."""
    counts = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        counted, class_name, count = line.split(" ")
        if counted == what:
            counts[class_name] = int(count)
    return counts


def _read_outcomes(folder: Path, result: SuiteResult) -> None:
    for file in (folder / "junit").glob("*.xml"):
        report = ET.parse(file).getroot()  # noqa: S314 - written by our own JVM
        for case in report.iter("testcase"):
            name = case.attrib["name"]
            problem = next(
                (case.find(tag) for tag in ("failure", "error") if case.find(tag) is not None), None
            )
            if problem is not None:
                result.outcomes[name] = FAILED
                text = problem.attrib.get("message") or problem.text or ""
                result.messages[name] = text.strip()[:2000]
            else:
                result.outcomes[name] = IGNORED if case.find("skipped") is not None else PASSED
    if not result.outcomes:
        text = (folder / "stdout.txt").read_text(errors="replace")
        result.outcomes = outcomes_of_lines(text)


def outcomes_of_lines(text: str) -> dict[str, str]:
    """Read outcomes from scalatest's lines ``- name``; a test that did not pass has a mark."""
    marks = {"*** FAILED ***": FAILED, "!!! IGNORED !!!": IGNORED, "(pending)": IGNORED}
    outcomes = {}
    for line in re.findall(r"^- (.+)$", text, re.MULTILINE):
        mark = next((mark for mark in marks if line.endswith(mark)), None)
        name = line if mark is None else line.removesuffix(mark).rstrip()
        outcomes[name] = PASSED if mark is None else marks[mark]
    return outcomes
