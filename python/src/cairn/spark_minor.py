"""The minor versions of Spark that this release supports, and which of them is installed.

Layer: public surface.  The one place in Python that knows minors.  Spec: docs/adr/0006.
"""

import os
import re
from importlib.util import find_spec
from pathlib import Path

from cairn.errors import ConfigError, SparkVersionError

SUPPORTED = ("4.1", "4.2", "4.3")

_CORE_JAR = re.compile(r"spark-core_2\.\d+-(\d+\.\d+)\..*\.jar")
_VERSION = re.compile(r"(\d+\.\d+)(\.\d.*)?")


def require_supported(version: str) -> str:
    """Return the minor version, e.g. ``4.3``, of a version such as ``4.3`` or ``4.3.0``.

    Raises:
        SparkVersionError: this release has no jar for it.
    """
    match = _VERSION.fullmatch(version)
    minor = match[1] if match else version
    if minor not in SUPPORTED:
        raise SparkVersionError(
            f"Cairn has no jar for Spark {minor}; it has jars for {', '.join(SUPPORTED)}",
            next_step="install one of these versions of Spark, or a release of Cairn that has it",
        )
    return minor


def installed_minor() -> str:
    """Return the minor version of the Spark that this Python starts.

    It is the Spark in ``SPARK_HOME``, which pyspark and ``spark-submit`` use first, else the one
    inside the package pyspark. It is found by its jars; nothing is imported.

    Raises:
        ConfigError: there is no Spark.
        SparkVersionError: this release does not support it.
    """
    for folder in _jar_folders():
        for jar in folder.glob("spark-core_*.jar"):
            match = _CORE_JAR.fullmatch(jar.name)
            if match:
                return require_supported(match[1])
    raise ConfigError(
        "no Spark is installed: neither SPARK_HOME nor the package pyspark has its jars",
        next_step="set SPARK_HOME, install pyspark, or name the version: cairn jar --spark 4.3",
    )


def spark_jars() -> list[Path]:
    """Return the jars of the Spark that ``installed_minor`` finds.

    Raises:
        ConfigError, SparkVersionError: as for ``installed_minor``.
    """
    installed_minor()
    for folder in _jar_folders():
        if any(folder.glob("spark-core_*.jar")):
            return sorted(folder.glob("*.jar"))
    return []


def _jar_folders() -> list[Path]:
    home = os.environ.get("SPARK_HOME")
    package = find_spec("pyspark")
    folders = [Path(home) / "jars"] if home else []
    if package and package.origin:
        folder = Path(package.origin).parent
        # Inside a distribution of Spark the package is in python/pyspark.
        folders += [folder / "jars", folder.parents[1] / "jars"]
    return folders
