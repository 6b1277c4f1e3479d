"""The Spark settings that turn Cairn on, as one dictionary.

Layer: public surface.  Spec: docs/configuration.md.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

from cairn.config import explain_unknown, read_settings, size_bytes
from cairn.errors import ConfigError
from cairn.jar import jar_path

PROVIDER_CLASS = "io.cairn.spark.CairnStateStoreProvider"
EXTENSIONS_CLASS = "io.cairn.spark.CairnExtensions"
FILE_MANAGER_CLASS = "io.cairn.spark.CairnCheckpointFileManager"

_STATE_STORE = "spark.sql.streaming.stateStore."
_CHECKPOINT_FORMAT = _STATE_STORE + "checkpointFormatVersion"
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# With this, `spark-submit` and `pyspark` tell Python where the JVM is that they have started.
_GATEWAY = "PYSPARK_GATEWAY_PORT"
_MIB = 1024 * 1024
# Resident memory of a worker after its start, with an S3 client; measured on Linux x86-64.
_WORKER_BASE_MIB = 100
_SLOTS_PER_WORKER = 4
# The default of workerMemory, which the shim computes too.
_MEMORY_MIB = 256
_MEMORY_PER_WORKER_MIB = 128
# Spark's own minimum and shares of spark.executor.memoryOverhead; the larger share is that of
# Kubernetes for programs in Python.
_OVERHEAD_MIN_MIB = 384
_OVERHEAD_SHARE = 0.10
_OVERHEAD_SHARE_K8S_PYTHON = 0.40
_INT_MAX = 2**31 - 1
_Number = TypeVar("_Number", int, float)


def spark_conf(job: Mapping[str, str] | None = None, /, **settings: object) -> dict[str, str]:
    """Return the settings that turn Cairn on, for ``SparkConf`` or ``SparkSession.builder``.

    The dictionary has the provider class, the class that writes Spark's own files of a checkpoint,
    ``spark.jars`` with the jar for the installed Spark added, ``spark.sql.extensions`` with Cairn's
    class added, checkpoint format 2, the Python of the engine, and, where the master is YARN or
    Kubernetes, ``spark.executor.memoryOverhead`` with the memory of the engine's workers added. A
    query that already has a checkpoint keeps the provider and format written there: start with a
    new one.

    ``spark-submit`` and ``pyspark`` start the JVM before the job. Their settings, those of
    ``spark-defaults.conf`` included, then count as the job's, below those of ``job``. The
    dictionary has no ``spark.jars``, which would come too late, and would replace the jars of the
    command. Name Cairn's there: ``--jars "$(cairn jar)"``.

    Args:
        job: settings of the job, not those of an earlier call; nothing is changed. Its file
            manager, its checkpoint format and Cairn's own settings in it stay. The master, the
            executors' size, the Python, ``spark.jars`` and ``spark.sql.extensions`` are read.
            Without ``spark-submit`` name settings here that Spark reads from
            ``spark-defaults.conf``.
        settings: Cairn's own, by their names after ``spark.sql.streaming.stateStore.cairn.``, e.g.
            ``workers=2, cacheMemory="512m"``; names with dots as ``**{"s3.region": "eu-west-1"}``.

    Raises:
        ConfigError: Cairn has no such setting (the message names the one to use), a size or number
            cannot be read, no Spark is installed, the installation has no jar for it, or the JVM
            runs already without the jar: that of the command, or of an earlier session.
        SparkVersionError: this release does not support the installed Spark.
    """
    table = read_settings()
    faults = [
        explain_unknown(name, table.settings) for name in settings if name not in table.settings
    ]
    if faults:
        raise ConfigError("; ".join(faults), next_step="correct the settings of cairn.spark_conf()")
    job = {**_submitted(), **(job or {})}
    own = {name: job[table.prefix + name] for name in table.settings if table.prefix + name in job}
    own |= {name: _text(value) for name, value in settings.items() if value is not None}
    python = _engine_python(job)
    if python:
        own.setdefault("python", python)

    conf = {
        _STATE_STORE + "providerClass": PROVIDER_CLASS,
        _CHECKPOINT_FORMAT: job.get(_CHECKPOINT_FORMAT) or "2",
        _FILE_MANAGER: job.get(_FILE_MANAGER) or FILE_MANAGER_CLASS,
        **_jars(job),
        # A static setting: it has effect only before the session exists.
        "spark.sql.extensions": _added(job.get("spark.sql.extensions", ""), EXTENSIONS_CLASS),
        **{table.prefix + name: value for name, value in sorted(own.items())},
    }
    if _master(job).startswith(("yarn", "k8s")):
        conf["spark.executor.memoryOverhead"] = f"{_overhead_mib(job, own)}m"
    return conf


def _text(value: object) -> str:
    # Spark writes booleans in lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _master(job: Mapping[str, str]) -> str:
    return job.get("spark.master", os.environ.get("MASTER", ""))


def _jars(job: Mapping[str, str]) -> dict[str, str]:
    """Return ``spark.jars`` with Cairn's; nothing if the JVM was started before the job."""
    jar = str(jar_path())
    if _GATEWAY in os.environ:
        if not _is_loadable(PROVIDER_CLASS):
            raise ConfigError(
                "the JVM of this job was started without Cairn's jar",
                next_step='add --jars "$(cairn jar)" to the command: spark-submit or pyspark',
            )
        return {}
    if _lacks_jar_of_earlier_session():
        raise ConfigError(
            "an earlier Spark session of this Python process has started the JVM without Cairn's "
            "jar; all later sessions use this JVM, also after spark.stop()",
            next_step="start Python again, and give the settings of cairn.spark_conf() to the "
            "first session",
        )
    return {"spark.jars": _added(job.get("spark.jars", ""), jar)}


def _lacks_jar_of_earlier_session() -> bool:
    """Return whether this process has a JVM, and knows that it is without Cairn's jar."""
    # The client of Spark Connect has no SparkContext.
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if getattr(context, "_gateway", None) is None:
        return False
    from py4j.protocol import Py4JError  # noqa: PLC0415 - most callers do not need it

    try:
        return not _is_loadable(PROVIDER_CLASS)
    except (Py4JError, OSError):  # the JVM has ended
        return False


def _submitted() -> dict[str, str]:
    """Return the settings with which the JVM was started; none if it does not run yet."""
    if _GATEWAY not in os.environ:
        return {}
    from pyspark import SparkConf  # noqa: PLC0415 - most callers do not need it

    _started_jvm()
    return dict(SparkConf().getAll())


def _is_loadable(class_name: str) -> bool:
    """Return whether the JVM that runs already has a class."""
    return bool(_started_jvm().org.apache.spark.util.Utils.classIsLoadable(class_name))


def _started_jvm() -> Any:  # noqa: ANN401 - Py4J has no types
    """Return Py4J's view of the JVM that runs already."""
    from pyspark import SparkContext  # noqa: PLC0415 - most callers do not need it

    SparkContext._ensure_initialized()  # noqa: SLF001 - as each class of PySpark does
    return SparkContext._jvm  # noqa: SLF001


def _engine_python(job: Mapping[str, str]) -> str | None:
    """Return the Python of Spark's own workers, which must have the engine's packages too.

    If neither job nor environment names one, a local master uses this Python; on other masters the
    executors choose.
    """
    is_local = _master(job).startswith("local")
    # A local master has no environment of executors.
    of_executors = None if is_local else job.get("spark.executorEnv.PYSPARK_PYTHON")
    named = job.get("spark.pyspark.python") or of_executors or os.environ.get("PYSPARK_PYTHON")
    return named or (sys.executable if is_local else None)


def _added(named: str, one: str) -> str:
    """Return a list of names, separated by commas, that includes ``one``."""
    names = [name for name in named.split(",") if name]
    return ",".join([*names, *([] if one in names else [one])])


def _overhead_mib(job: Mapping[str, str], own: Mapping[str, str]) -> int:
    memory_mib = _size_mib("spark.executor.memory", job.get("spark.executor.memory", "1g"))
    given = job.get("spark.executor.memoryOverhead")
    if given:
        base_mib = _size_mib("spark.executor.memoryOverhead", given)
    else:
        on_k8s = _master(job).startswith("k8s")
        share = _OVERHEAD_SHARE
        if on_k8s:
            name = "spark.kubernetes.memoryOverheadFactor"
            share = _number(job, name, _OVERHEAD_SHARE_K8S_PYTHON, float)
        share = _number(job, "spark.executor.memoryOverheadFactor", share, float)
        least = job.get("spark.executor.minMemoryOverhead", f"{_OVERHEAD_MIN_MIB}m")
        least_mib = _size_mib("spark.executor.minMemoryOverhead", least)
        base_mib = max(least_mib, math.ceil(memory_mib * share))
    cores = _number(job, "spark.executor.cores", 1, int)
    slots = cores // _number(job, "spark.task.cpus", 1, int)
    workers = _number(own, "workers", max(1, slots // _SLOTS_PER_WORKER), int)
    if "workerMemory" in own:
        bound_mib = _size_mib("workerMemory", own["workerMemory"], bare=1)
    else:
        bound_mib = max(_MEMORY_MIB, workers * _MEMORY_PER_WORKER_MIB)
    return base_mib + workers * _WORKER_BASE_MIB + bound_mib


def _number(
    settings: Mapping[str, str], name: str, default: _Number, kind: type[_Number]
) -> _Number:
    """Return a positive number of the settings, of Java's size at most."""
    try:
        value = kind(settings.get(name, default))
    except ValueError:
        value = kind(0)
    if not 0 < value <= _INT_MAX:
        raise ConfigError(
            f"{name} is not a positive number up to {_INT_MAX}: {settings[name]!r}",
            next_step="correct it",
        )
    return value


def _size_mib(name: str, text: str, *, bare: int = _MIB) -> int:
    """Return a size in Spark's notation as MiB; ``bare`` is the unit of a number without one."""
    size = size_bytes(text, bare=bare)
    if size is None:
        raise ConfigError(f"{name} is not a size: {text!r}", next_step="write it as 512m or 4g")
    return math.ceil(size / _MIB)
