"""Compiles the Java driver (java/) and runs one workload in a new JVM.

The driver calls `StateStoreProvider` directly, as Spark's tasks do.
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
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
BUILD = REPOSITORY / ".build" / "bench"
SHIM_JAR = REPOSITORY / "jvm-shim" / "build" / "libs" / "cairn-shim.jar"
CONF_PREFIX = "spark.sql.streaming.stateStore.cairn."
RUN_LIMIT_S = 1800

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
    """A provider class and its settings in the benchmark."""

    name: str
    title: str
    class_name: str
    conf: dict[str, str] = field(default_factory=dict)


class RunFailedError(Exception):
    """A run ended without a result; the message names the file of its output."""


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
    workload: str,
    provider: Provider,
    options: dict[str, int],
    *,
    heap: str = "4g",
    shim_jar: Path = SHIM_JAR,
    folder: Path | None = None,
) -> dict[str, float]:
    """Run one workload in a new JVM and a new folder; return its numbers.

    The folder is kept if the run fails, because it holds the output, or if the caller names it.

    Raises:
        RunFailedError: the JVM ended without a result, or was stopped at the time limit.
    """
    classes = compile_driver()
    run = folder or BUILD / f"run-{os.getpid()}"  # two benchmarks may run at once
    shutil.rmtree(run, ignore_errors=True)
    (run / "local").mkdir(parents=True)
    result = run / "result.json"
    command = [
        "java",
        f"-Xmx{heap}",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED_PACKAGES),
        f"-Djava.io.tmpdir={run / 'local'}",
        *("-cp", os.pathsep.join([str(classes), str(shim_jar), f"{pyspark_jars()}/*"])),
        "io.cairn.bench.Bench",
        *("--workload", workload),
        *("--provider-class", provider.class_name),
        *("--folder", str(run)),
        *("--result", str(result)),
        *(part for name, value in options.items() for part in (f"--{name}", str(value))),
        *(part for name, value in provider.conf.items() for part in ("--conf", f"{name}={value}")),
    ]
    _run(command, run)
    if not result.exists():
        last = (run / "stderr.txt").read_text(errors="replace").strip().splitlines()[-1:]
        message = f"{workload} under {provider.title} gave no result; read {run}/stderr.txt {last}"
        raise RunFailedError(message)
    numbers: dict[str, float] = json.loads(result.read_text())
    if folder is None:
        shutil.rmtree(run, ignore_errors=True)
    return numbers


def _run(command: list[str], run: Path) -> None:
    python_path = [str(REPOSITORY / "python" / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
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
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=RUN_LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also processes that outlived the JVM
            process.wait()
