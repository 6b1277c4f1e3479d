"""Runs one suite under one provider in a new JVM and reads its results.

The results come from scalatest's JUnit XML, or from the printed lines if the suite did not end
(time limit, crash, a class that does not link).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from suite_kit import HERE, IS_REFERENCE, REPOSITORY, Kit
from suite_list import Suite

PROVIDER_SETTING = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PASSED, FAILED, IGNORED = "passed", "failed", "ignored"
FROM_BEST_TO_WORST = (PASSED, IGNORED, FAILED)
ENDED, STOPPED, ABORTED = "ended", "stopped at its time limit", "aborted"
STOP_GRACE_S = 20
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC")
"""The JVM of a suite ends before the code of the optimizing compiler is worth its time: with these
options suites need half the CPU."""
FLAKY_RUNS = 3
"""How often a test that is known to be flaky runs; it passes if one of the runs does."""

OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)


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
    """The results of one suite under one provider.

    ``end`` says how the JVM ended, ``expected_count`` how many tests it announced. ``key`` names
    what was run: the test classes, and the provider's jar and worker. ``runs`` has all outcomes of
    a flaky test; ``outcomes`` has the best of them.
    """

    suite: str
    provider: str
    seconds: float
    end: str
    key: str = ""
    name_filter: str = ""
    expected_count: int = 0
    outcomes: dict[str, str] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)
    opened: dict[str, int] = field(default_factory=dict)
    managed: dict[str, int] = field(default_factory=dict)
    files: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether all tests ran."""
        return self.end == ENDED

    def names(self, outcome: str) -> list[str]:
        """Return the tests with this outcome, sorted."""
        return sorted(name for name, value in self.outcomes.items() if value == outcome)

    def save(self, file: Path) -> None:
        """Write as JSON; a reader sees the whole file or none."""
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False))
        part.replace(file)

    @classmethod
    def read(cls, file: Path) -> SuiteResult | None:
        """Return the result that ``save`` wrote; None if there is none of this version."""
        try:
            return cls(**json.loads(file.read_text()))
        except (FileNotFoundError, TypeError):
            return None


def run_suite(kit: Kit, suite: Suite, provider: Provider, folder: Path) -> SuiteResult:
    """Run ``suite`` under ``provider``, its flaky tests several times, all files in ``folder``."""
    with alone_in(folder):
        result = run_once(kit, suite, provider, folder)
        flaky = [test for test in suite.flaky if suite.name_filter in test]
        result.runs = {test: [result.outcomes.get(test, FAILED)] for test in flaky}
        for number in range(2, FLAKY_RUNS + 1) if flaky else ():
            again = run_once(kit, suite, provider, folder / f"flaky-{number}", flaky)
            result.seconds += again.seconds
            for test in flaky:
                result.runs[test].append(again.outcomes.get(test, FAILED))
                if again.outcomes.get(test) == PASSED:
                    result.outcomes[test] = PASSED
    return result


def run_together(
    kit: Kit, suites: Sequence[Suite], provider: Provider, folder: Path
) -> list[SuiteResult]:
    """Run ``suites`` one after the other in one JVM; return the results of those that ended.

    The JVM has the time limit of the first suite.
    """
    results = []
    with alone_in(folder):
        _run_jvm(kit, suites, provider, folder)
        for suite in suites:
            result = _new_result(suite, provider, 0.0, is_within_limit=True)
            result.opened = counted("opened", folder / "providers.txt", suite.class_name)
            result.managed = counted("managed", folder / "providers.txt", suite.class_name)
            _read_report(folder / "junit" / f"TEST-{suite.class_name}.xml", result)
            normalise(result, suite.random)
            results.append(result)
    return [result for result in results if result.is_ended]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of ``folder``, a file beside it; a run deletes the folder when it begins.

    Raises:
        SystemExit: another run holds the lock.
    """
    lock = folder.with_name(f"{folder.name}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another run uses {folder}: wait until it has ended, or end it"
            raise SystemExit(message) from None
        yield


def run_once(
    kit: Kit, suite: Suite, provider: Provider, folder: Path, tests: Sequence[str] = ()
) -> SuiteResult:
    """Run ``suite`` in a JVM of its own, all tests or these; return its results."""
    seconds, is_within_limit = _run_jvm(kit, [suite], provider, folder, tests)
    result = _new_result(suite, provider, seconds, is_within_limit=is_within_limit)
    result.opened = counted("opened", folder / "providers.txt")
    result.managed = counted("managed", folder / "providers.txt")
    for file in (folder / "junit").glob("*.xml"):
        _read_report(file, result)
    result.seconds = seconds
    text = (folder / "stdout.txt").read_text(errors="replace")
    count = re.search(r"^Run starting\. Expected test count is: (\d+)$", text, re.MULTILINE)
    result.expected_count = int(count.group(1)) if count else 0
    if not result.outcomes:
        result.outcomes, result.messages = outcomes_of_lines(text)
    normalise(result, suite.random)
    return result


def _new_result(
    suite: Suite, provider: Provider, seconds: float, *, is_within_limit: bool
) -> SuiteResult:
    return SuiteResult(
        suite=suite.name,
        provider=provider.label,
        seconds=seconds,
        end=ABORTED if is_within_limit else STOPPED,
        name_filter=suite.name_filter,
        files=suite.files,
    )


def _run_jvm(
    kit: Kit,
    suites: Sequence[Suite],
    provider: Provider,
    folder: Path,
    tests: Sequence[str] = (),
) -> tuple[float, bool]:
    """Run a JVM; return its seconds, and whether it ended within its limit."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("junit", "tmp"):
        (folder / name).mkdir(parents=True)
    started = time.monotonic()
    with (folder / "stdout.txt").open("wb") as out, (folder / "stderr.txt").open("wb") as err:
        process = subprocess.Popen(
            java_command(kit, suites, provider, folder, tests),
            cwd=folder,
            env=environment(kit, provider),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        is_within_limit = _wait(process, suites[0].limit_s)
    shutil.rmtree(folder / "tmp", ignore_errors=True)
    shutil.rmtree(folder / "spark-warehouse", ignore_errors=True)
    return round(time.monotonic() - started, 1), is_within_limit


def java_command(
    kit: Kit, suites: Sequence[Suite], provider: Provider, folder: Path, tests: Sequence[str] = ()
) -> list[str]:
    """Return the command line of the JVM of ``suites``; ``tests``: only those."""
    first = suites[0]  # suites of one JVM differ in their class and their filter only
    # For the reference there are only the test classes of an older minor version.
    agent = f"-javaagent:{kit.agent_jar}=report={{}};newer={str(IS_REFERENCE).lower()}"
    if provider.swap:
        agent += f";target={provider.class_name};names={'|'.join(provider.swap)}"
    executor_agent = agent.format(folder / "executor-%p-providers.txt")
    properties = {
        "java.io.tmpdir": folder / "tmp",
        "spark.testing": "1",
        "spark.test.home": kit.spark_home,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "spark-warehouse",
        "derby.system.home": folder / "tmp",
        "io.netty.tryReflectionSetAccessible": "true",
        "spark.executor.extraJavaOptions": f"{' '.join(SHORT_LIVED)} {executor_agent}",
        PROVIDER_SETTING: provider.class_name,
        **provider.file_settings.get(first.files, {}),
    }
    return [
        "java",
        "-ea",  # without it RocksDB's Java classes crash where a test expects AssertionError
        *SHORT_LIVED,
        *("-Xmx3g", "-Xss4m", "-XX:ReservedCodeCacheSize=256m", "-XX:-OmitStackTraceInFastThrow"),
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES),
        agent.format(folder / "providers.txt"),
        *(f"-D{key}={value}" for key, value in properties.items()),
        *("-cp", class_path(kit, provider)),
        "org.scalatest.tools.Runner",
        *("-oWN", "-u", str(folder / "junit")),
        *("-R", str(kit.classes)),
        *(part for suite in suites for part in _selected(suite, is_filtered=not tests)),
        *(part for test in tests for part in ("-t", test)),
    ]


def _selected(suite: Suite, *, is_filtered: bool) -> list[str]:
    """Return the runner's options for a suite; its filter is for the suite before it."""
    part = ["-z", suite.name_filter] if suite.name_filter and is_filtered else []
    return ["-s", suite.class_name, *part]


def class_path(kit: Kit, provider: Provider) -> str:
    """Return the class path of a suite's JVM, and of the executors of its local cluster."""
    parts = [
        str(HERE / "conf"),
        str(kit.own_classes),
        str(kit.classes),
        f"{kit.libraries}/*",
        *map(str, provider.jars),
        f"{kit.pyspark_jars}/*",
    ]
    return os.pathsep.join(parts)


def environment(kit: Kit, provider: Provider) -> dict[str, str]:
    """Return the environment of a suite's JVM, and of the workers and executors below it."""
    python_path = [str(REPOSITORY / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "SPARK_TESTING": "1",
        "SPARK_HOME": str(kit.spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_DIST_CLASSPATH": class_path(kit, provider),
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


def counted(what: str, report: Path, class_name: str = "") -> dict[str, int]:
    """Return the agent's counts of opened stores, or of file managers, by class.

    ``class_name``: only those of this suite. Counts of executors, whose reports lie beside the
    driver's, belong to no suite.
    """
    counts: dict[str, int] = {}
    reports = (report, *report.parent.glob("executor-*-providers.txt"))
    for line in "".join(file.read_text() for file in reports if file.exists()).splitlines():
        suite, counted, provider, count = line.split(" ")
        if counted == what and class_name in ("", suite):
            counts[provider] = counts.get(provider, 0) + int(count)
    return counts


def _read_report(file: Path, result: SuiteResult) -> None:
    """Read the JUnit report of a suite, if there is one."""
    if not file.exists():
        return
    if result.end == ABORTED:
        result.end = ENDED  # scalatest writes the file after the suite's last test
    report = ET.parse(file).getroot()  # noqa: S314 - written by our own JVM
    result.seconds = float(report.attrib["time"])
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


def normalise(result: SuiteResult, random: str) -> None:
    """Write ``*`` for each part of the tests' names that ``random`` matches.

    Tests whose names are then the same become one, with the worst of their outcomes.
    """
    if not random:
        return
    outcomes, messages = result.outcomes, result.messages
    result.outcomes, result.messages = {}, {}
    for name, outcome in outcomes.items():
        common = re.sub(random, "*", name)
        known = result.outcomes.get(common, outcome)
        result.outcomes[common] = max(known, outcome, key=FROM_BEST_TO_WORST.index)
        if name in messages:
            result.messages.setdefault(common, f"{name}: {messages[name]}")


def outcomes_of_lines(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read outcomes and messages from scalatest's lines ``- name``, in the order of the tests.

    A test that did not pass has a mark behind its name, and its message in the next line.
    """
    marks = {"*** FAILED ***": FAILED, "!!! IGNORED !!!": IGNORED, "(pending)": IGNORED}
    outcomes, messages = {}, {}
    for line, after in re.findall(r"^- (.+)\n(?:  (.*))?", text + "\n", re.MULTILINE):
        mark = next((mark for mark in marks if line.endswith(mark)), None)
        name = line if mark is None else line.removesuffix(mark).rstrip()
        outcomes[name] = PASSED if mark is None else marks[mark]
        if outcomes[name] == FAILED:
            messages[name] = after[:2000]
    return outcomes, messages
