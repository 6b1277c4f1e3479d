"""The Spark settings that turn Cairn on, as one dictionary.

Layer: public surface.  Spec: docs/configuration.md.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Any

from cairn.errors import ConfigError
from cairn.jar import jar_path

PROVIDER_CLASS = "io.cairn.spark.CairnStateStoreProvider"

_STATE_STORE = "spark.sql.streaming.stateStore."
_MIB = 1024 * 1024
# Resident memory of a worker after its start, S3 client included; measured on Linux x86-64.
_WORKER_BASE_MIB = 100
_SLOTS_PER_WORKER = 4
# Spark's own floor and shares of spark.executor.memoryOverhead; the larger share is that of
# Kubernetes for programs in Python.
_OVERHEAD_FLOOR_MIB = 384
_OVERHEAD_SHARE = 0.10
_OVERHEAD_SHARE_K8S_PYTHON = 0.40
_SIZE = re.compile(r"(?P<count>\d+)(?:(?P<unit>b)|(?P<binary>[kmgtp])(?:i?b)?)?", re.IGNORECASE)
_SIZE_UNITS = {unit: 1024**power for power, unit in enumerate("bkmgtp")}


def spark_conf(job: Mapping[str, str] | None = None, /, **settings: object) -> dict[str, str]:
    """Return all that a session needs to use Cairn, for ``SparkConf`` or ``SparkSession.builder``.

    The dictionary holds the provider class, the shim's jar (after those that the job names), the
    query checkpoint's format 2, the Python of the engine, and, where the master is YARN or
    Kubernetes, ``spark.executor.memoryOverhead`` with room for the engine's workers. A query that
    already has a checkpoint keeps the provider and format written there: start with a new one.

    Args:
        job: what the job sets already; read for the master, the executors' size and ``spark.jars``,
            never changed. Settings that Spark reads from elsewhere (``spark-defaults.conf``) have
            to be named here to be seen.
        settings: Cairn's own, by their names after ``spark.sql.streaming.stateStore.cairn.``, e.g.
            ``workers=2, cacheMemory="512m"``; names with dots as ``**{"s3.region": "eu-west-1"}``.

    Raises:
        ConfigError: a setting that Cairn does not have (the nearest one is named), a size that
            cannot be read, or an installation without the jar.
    """
    known, prefix = _known_settings()
    _refuse_unknown(settings, known)
    job = dict(job or {})
    own = {name: _text(value) for name, value in settings.items() if value is not None}
    python = _engine_python(job)
    if python:
        own.setdefault("python", python)

    conf = {
        _STATE_STORE + "providerClass": PROVIDER_CLASS,
        _STATE_STORE + "checkpointFormatVersion": "2",
        "spark.jars": _with_shim(job.get("spark.jars", "")),
        **{prefix + name: value for name, value in sorted(own.items())},
    }
    if _master(job).startswith(("yarn", "k8s")):
        conf["spark.executor.memoryOverhead"] = f"{_overhead_mib(job, own, known)}m"
    return conf


def _known_settings() -> tuple[dict[str, dict[str, Any]], str]:
    table = json.loads(resources.files("cairn").joinpath("settings.json").read_text("utf-8"))
    return {entry["name"]: entry for entry in table["settings"]}, table["prefix"]


def _refuse_unknown(settings: Mapping[str, object], known: Mapping[str, object]) -> None:
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            raise ConfigError(
                f"there is no setting cairn.{name}", next_step=f"did you mean {near[0]}?"
            )


def _text(value: object) -> str:
    # Spark writes its booleans in small letters.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _master(job: Mapping[str, str]) -> str:
    return job.get("spark.master", os.environ.get("MASTER", ""))


def _engine_python(job: Mapping[str, str]) -> str | None:
    """Name the Python of Spark's own workers: the engine's packages are installed beside theirs.

    Without a word from job or environment, a local master runs this very Python; elsewhere the
    executors decide.
    """
    named = job.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if named or not _master(job).startswith("local"):
        return named
    return sys.executable


def _with_shim(jars: str) -> str:
    named = [jar for jar in jars.split(",") if jar]
    shim = str(jar_path())
    return ",".join([*named, *([] if shim in named else [shim])])


def _overhead_mib(
    job: Mapping[str, str], own: Mapping[str, str], known: Mapping[str, dict[str, Any]]
) -> int:
    memory_mib = _size_mib("spark.executor.memory", job.get("spark.executor.memory", "1g"))
    given = job.get("spark.executor.memoryOverhead")
    if given:
        base_mib = _size_mib("spark.executor.memoryOverhead", given)
    else:
        on_k8s = _master(job).startswith("k8s")
        share = _OVERHEAD_SHARE_K8S_PYTHON if on_k8s else _OVERHEAD_SHARE
        share = float(job.get("spark.executor.memoryOverheadFactor", share))
        base_mib = max(_OVERHEAD_FLOOR_MIB, math.ceil(memory_mib * share))
    slots = int(job.get("spark.executor.cores", "1")) // int(job.get("spark.task.cpus", "1"))
    workers = int(own.get("workers", max(1, math.ceil(slots / _SLOTS_PER_WORKER))))
    bound = own.get("workerMemory", known["workerMemory"]["default"])
    return base_mib + workers * _WORKER_BASE_MIB + _size_mib("workerMemory", bound, bare=1)


def _size_mib(name: str, text: str, *, bare: int = _MIB) -> int:
    """Read a size as Spark writes it; ``bare`` is what a number without unit counts in."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ConfigError(f"{name} is not a size: {text!r}", next_step="write it as 512m or 4g")
    letter = match["unit"] or match["binary"]
    unit = _SIZE_UNITS[letter.lower()] if letter else bare
    return math.ceil(int(match["count"]) * unit / _MIB)
