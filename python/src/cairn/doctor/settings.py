"""The settings of a job that were given: names, values, and what they lack for Cairn.

Layer: doctor. Those of ``spark-defaults.conf`` are not read: they belong to the cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from cairn.config import explain_unknown, read_settings, size_bytes
from cairn.doctor.check import Check, ok, problem, warning
from cairn.errors import CairnError
from cairn.release import RELEASE
from cairn.spark_conf import EXTENSIONS_CLASS, FILE_MANAGER_CLASS, PROVIDER_CLASS
from cairn.spark_minor import installed_minor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_STATE_STORE: Final = "spark.sql.streaming.stateStore."
_PROVIDER: Final = _STATE_STORE + "providerClass"
_FORMAT: Final = _STATE_STORE + "checkpointFormatVersion"
_FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_EXTENSIONS: Final = "spark.sql.extensions"
_JARS: Final = "spark.jars"
_OWN_JAR: Final = "cairn-shim-"
_ADD: Final = "add what `cairn conf` prints: spark-submit $(cairn conf) job.py"
_ENGINE_TIMEOUT_S: Final = 120
_ENGINE: Final = (
    "import json, sys; from cairn.release import RELEASE; import cairn.engine.worker; "
    "print(json.dumps([RELEASE, sys.version.split()[0]]))"
)


def check_settings(job: Mapping[str, str]) -> Iterator[Check]:
    """Check the settings of a job; none: nothing is said about them."""
    if not job:
        return
    yield from _check_own(job)
    yield from _check_classes(job)
    yield from _check_jars(job)
    yield from _check_memory(job)


def _check_own(job: Mapping[str, str]) -> Iterator[Check]:
    """Check Cairn's own settings, as the shim does at the start of a query."""
    table = read_settings()
    known = {table.prefix + name: setting for name, setting in table.settings.items()}
    for name, value in job.items():
        if name in known:
            fault = known[name].fault(value)
            if fault:
                yield problem(name, f"{value!r} must be {fault}", "correct the value")
            else:
                yield ok(name, value)
        elif name.startswith(table.prefix):
            yield problem(name, explain_unknown(name, known), "correct the name")
        elif ".cairn." in f".{name}".lower():
            text = f"nobody reads it: {explain_unknown(name, known)}"
            yield problem(name, text, "correct the name")


def _check_classes(job: Mapping[str, str]) -> Iterator[Check]:
    provider = job.get(_PROVIDER)
    if provider != PROVIDER_CLASS:
        found = f"it is {provider}" if provider else "it is not among the settings"
        yield problem(_PROVIDER, f"{found}: Spark's own provider would keep the state", _ADD)
        return
    yield ok(_PROVIDER, provider)
    if job.get(_FORMAT) != "2":
        found = f"checkpoint format {job.get(_FORMAT, '1, the default')}"
        yield warning(_FORMAT, f"{found}: stores without writes send requests too", _ADD)
    if EXTENSIONS_CLASS not in job.get(_EXTENSIONS, "").split(","):
        yield warning(
            _EXTENSIONS, f"{EXTENSIONS_CLASS} is missing: no transformWithState, slower reads", _ADD
        )
    if job.get(_FILE_MANAGER) != FILE_MANAGER_CLASS:
        yield warning(
            _FILE_MANAGER,
            f"it is not {FILE_MANAGER_CLASS}: some 50 requests more per batch on S3, and two "
            "drivers on one checkpoint are not stopped",
            _ADD,
        )


def _check_jars(job: Mapping[str, str]) -> Iterator[Check]:
    jars = [jar for jar in job.get(_JARS, "").split(",") if jar]
    own = [jar for jar in jars if jar.rpartition("/")[2].startswith(_OWN_JAR)]
    if not own:
        yield warning(
            _JARS,
            "Cairn's jar is not among them",
            'add it here, or to the command: spark-submit --jars "$(cairn jar)"',
        )
    for jar in jars:
        if "://" not in jar and not os.path.isfile(jar):  # noqa: PTH113 - as Spark reads it
            yield problem(_JARS, f"there is no file {jar}", "correct the path")
    try:
        minor = installed_minor()
    except CairnError:
        return  # a finding of another check
    for jar in own:
        name = jar.rpartition("/")[2]
        if name.startswith(_OWN_JAR) and name != f"{_OWN_JAR}{minor}.jar":
            text = f"{name} is for another Spark than the installed {minor}"
            yield problem(_JARS, text, 'use the jar that "cairn jar" prints')


def _check_memory(job: Mapping[str, str]) -> Iterator[Check]:
    """Check that the state cache fits into the heap."""
    name = read_settings().prefix + "cacheMemory"
    is_local = job.get("spark.master", "").startswith("local")
    heap_name = "spark.driver.memory" if is_local else "spark.executor.memory"
    cache, heap = size_bytes(job.get(name, "")), size_bytes(job.get(heap_name, "1g"), bare=1 << 20)
    if cache is not None and heap is not None and cache > heap:
        text = f"{job[name]} is more than the heap: {heap_name} is {job.get(heap_name, '1g')}"
        yield problem(name, text, f"raise {heap_name}, or lower the cache")


def check_engine_python(job: Mapping[str, str]) -> Iterator[Check]:
    """Start the Python of the workers, if it is another one and on this machine."""
    named = (
        job.get(read_settings().prefix + "python")
        or job.get("spark.pyspark.python")
        or job.get("spark.executorEnv.PYSPARK_PYTHON")
        or os.environ.get("PYSPARK_PYTHON")
    )
    if not named:
        return
    path = shutil.which(named)
    cure = "name a Python that has the package cairn-state of this release, on every executor"
    if path is None:
        text = f"{named} is not on this machine: the executors must have it"
        yield warning("engine python", text, f"run cairn doctor there; {cure}")
        return
    if os.path.samefile(path, sys.executable):  # noqa: PTH121 - two texts
        yield ok("engine python", f"{named}: this Python")
        return
    yield _started(path, cure)


def _started(path: str, cure: str) -> Check:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Python
            [path, "-c", _ENGINE],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ENGINE_TIMEOUT_S,
            cwd="/",
        )
        release, version = json.loads(done.stdout.strip().rpartition("\n")[2])
    except (OSError, subprocess.TimeoutExpired) as failure:
        return problem("engine python", f"cannot run {path}: {failure}", cure)
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2]
        return problem("engine python", f"{path} cannot start the engine: {last}", cure)
    if release != RELEASE:
        text = f"{path} has release {release}, this Python {RELEASE}"
        return problem("engine python", text, cure)
    return ok("engine python", f"{path}: Python {version}, release {release}")
