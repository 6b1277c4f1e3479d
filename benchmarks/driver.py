"""Compiles the Java driver (java/) and runs one workload in a new JVM.

The driver calls `StateStoreProvider` directly, as Spark's tasks do, or runs a whole query.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from process_memory import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
BUILD = REPOSITORY / ".build" / "bench"
MINOR = ".".join(pyspark.__version__.split(".")[:2])
SHIM_JAR = REPOSITORY / "jvm-shim" / "build" / MINOR / "libs" / f"cairn-shim-{MINOR}.jar"
CONF_PREFIX = "spark.sql.streaming.stateStore.cairn."
RUN_LIMIT_S = 3600

OPENED_PACKAGES = [
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
]
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Provider:
    """A provider class and its settings in the benchmark.

    Attributes:
        name: name in bench.toml, on the command line and in the results.
        title: name in tables.
        class_name: the class that Spark creates.
        conf: settings of Spark.
        family: ``cairn``, ``spark`` or ``nothing``: selects a workload's settings.
    """

    name: str
    title: str
    class_name: str
    conf: dict[str, str] = field(default_factory=dict)
    family: str = "cairn"


@dataclass(frozen=True)
class Jvm:
    """What the JVM of a run has.

    Attributes:
        heap: largest heap, such as ``4g``.
        shim_jar: the jar of Cairn.
        jars: further jars of the class path.
        folder: folder of the run, which is then kept; default: a new one, deleted after success.
        checkpoint: URL of the checkpoint; default: a new folder.
        python: Python of the workers, which finds Cairn's package.
    """

    heap: str = "4g"
    shim_jar: Path = SHIM_JAR
    jars: Sequence[Path] = ()
    folder: Path | None = None
    checkpoint: str | None = None
    python: Path = Path(sys.executable)


class RunFailedError(Exception):
    """A run ended without a result; the message names the file of its output."""


def interrupt_at_sigterm() -> None:
    """Let SIGTERM end this program as Ctrl-C does: all processes that it started end before it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def load_settings() -> dict[str, Any]:
    """Return the content of bench.toml; a workload has what it does not say from its group."""
    settings = tomllib.loads((HERE / "bench.toml").read_text())
    settings["workload"] = [
        settings["groups"][entry["group"]].get("defaults", {}) | entry
        for entry in settings["workload"]
    ]
    return settings


def require_shim(jar: Path) -> None:
    """Check that there is a jar of Cairn.

    Raises:
        SystemExit: there is none.
    """
    if not jar.exists():
        message = f"no shim jar at {jar}: build it with `make shim`"
        raise SystemExit(message)


def cairn_conf(pairs: Sequence[str]) -> dict[str, str]:
    """Return the settings of Cairn that the command line has as ``name=value``."""
    return {CONF_PREFIX + name: value for name, value in (pair.split("=", 1) for pair in pairs)}


def load_provider(settings: dict[str, Any], name: str) -> Provider:
    """Return a provider of bench.toml."""
    entry = settings["providers"][name]
    return Provider(name, entry["title"], entry["class"], dict(entry["conf"]), entry["family"])


def pyspark_jars() -> Path:
    """Return the folder of the jars of the installed pyspark."""
    return Path(pyspark.__file__).resolve().parent / "jars"


def compile_driver() -> Path:
    """Return the folder of the compiled driver; compiles it if a source has changed."""
    sources = sorted((HERE / "java").rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    classes, stamp = BUILD / "classes", BUILD / "classes.stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return classes
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    subprocess.run(
        [
            "javac",
            *("--release", "17"),
            # not path: manifests of pyspark's jars name jars that do not exist
            *("-Xlint:all,-processing,-classfile,-path", "-Werror"),
            *("-cp", f"{pyspark_jars()}/*"),
            *("-d", str(classes)),
            *map(str, sources),
        ],
        check=True,
    )
    (classes / "log4j2.properties").write_text(LOGGING)
    stamp.write_text(digest)
    return classes


def run_workload(
    workload: str, provider: Provider, options: Mapping[str, object], jvm: Jvm | None = None
) -> dict[str, float]:
    """Run one workload in a new JVM and a new folder; return its numbers.

    Beside those of the driver there is ``peak_rss_bytes``: the largest resident memory of the JVM
    and all processes that it started. The folder is kept if the run fails, because it has the
    output.

    Args:
        workload: a workload of the Java driver.
        provider: the provider to measure.
        options: options of the Java driver, without ``--``.
        jvm: what the JVM has, if not the default.

    Raises:
        RunFailedError: the JVM ended without a result, or was stopped at the time limit.
    """
    jvm = jvm or Jvm()
    classes = compile_driver()
    run = jvm.folder or BUILD / f"run-{os.getpid()}"  # two benchmarks may run at once
    shutil.rmtree(run, ignore_errors=True)
    (run / "local").mkdir(parents=True)
    result = run / "result.json"
    options = {**options, **({"checkpoint": jvm.checkpoint} if jvm.checkpoint else {})}
    class_path = [str(classes), str(jvm.shim_jar), *map(str, jvm.jars), f"{pyspark_jars()}/*"]
    command = [
        "java",
        f"-Xmx{jvm.heap}",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES),
        f"-Djava.io.tmpdir={run / 'local'}",
        *("-cp", os.pathsep.join(class_path)),
        "io.cairn.bench.Bench",
        *("--workload", workload),
        *("--provider-class", provider.class_name),
        *("--folder", str(run)),
        *("--result", str(result)),
        *(part for name, value in options.items() for part in (f"--{name}", str(value))),
        *(part for name, value in provider.conf.items() for part in ("--conf", f"{name}={value}")),
    ]
    peak_bytes = _run(command, run, jvm.python)
    if not result.exists():
        printed = (run / "stderr.txt").read_text(errors="replace").splitlines()
        # The last line of an error: what follows it, indented, are its places in the code.
        reason = [line for line in printed if line and not line[0].isspace()][-1:]
        message = (
            f"{workload} under {provider.title} gave no result: {reason}; read {run}/stderr.txt"
        )
        raise RunFailedError(message)
    numbers: dict[str, float] = json.loads(result.read_text())
    if jvm.folder is None:
        shutil.rmtree(run, ignore_errors=True)
    return numbers | {"peak_rss_bytes": peak_bytes}


def _run(command: list[str], run: Path, python: Path) -> int:
    """Run a JVM to its end or its time limit; return the peak of its resident memory in bytes."""
    python_path = [str(REPOSITORY / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
    }
    with (run / "stdout.txt").open("wb") as out, (run / "stderr.txt").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=run,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            with PeakMemory(process.pid) as memory, contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=RUN_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also processes that outlived the JVM
            process.wait()
    return memory.peak_bytes
