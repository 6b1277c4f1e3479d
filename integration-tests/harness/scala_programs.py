"""The Scala programs of the tests: compiled once, by the compiler that pyspark carries.

Their jar is on the class path of every driver; their plans are called through Py4J.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame

SOURCES = sorted((Path(__file__).parent / "scala").glob("*.scala"))
PLANS = Path(__file__).parent / "scala" / "Transforms.scala"
"""The programs whose plans run under Spark's provider, too: recorded results depend on them."""
COMPILED = Path(__file__).resolve().parents[2] / ".build" / "scala-tests"
JARS = Path(pyspark.__file__).parent / "jars"
COMPILER = ("scala.tools.nsc.Main", "-usejavacp", "-release", "17", "-deprecation", "-Werror")


def scala_jar() -> Path:
    """Return the jar of the programs; compile them first if they or pyspark have changed.

    Raises:
        subprocess.CalledProcessError: they do not compile; the compiler has printed why.
    """
    digest = hashlib.sha256(pyspark.__version__.encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    jar = COMPILED / f"{digest.hexdigest()[:16]}.jar"
    if not jar.exists():
        COMPILED.mkdir(parents=True, exist_ok=True)
        # Another test run may compile at the same time.
        with tempfile.TemporaryDirectory(dir=COMPILED) as folder:
            new = Path(folder, "programs.jar")
            command = ["java", "-cp", f"{JARS}{os.sep}*", *COMPILER, "-d", str(new)]
            subprocess.run([*command, *map(str, SOURCES)], check=True)
            new.rename(jar)
    return jar


def plan_in_scala(name: str, *frames: DataFrame) -> DataFrame:
    """Call a plan of `io.cairn.tests.Transforms`."""
    spark = frames[0].sparkSession
    programs: Any = spark._jvm.io.cairn.tests.Transforms  # type: ignore[union-attr] # noqa: SLF001
    jvm_frames = [frame._jdf for frame in frames]  # noqa: SLF001 - there is no public way
    return DataFrame(getattr(programs, name)(*jvm_frames), spark)


def opaque_plan(name: str, *frames: DataFrame) -> DataFrame:
    """Call a plan of `io.cairn.tests.OpaqueStates`, of which nothing is recorded."""
    spark = frames[0].sparkSession
    programs: Any = spark._jvm.io.cairn.tests.OpaqueStates  # type: ignore[union-attr] # noqa: SLF001
    jvm_frames = [frame._jdf for frame in frames]  # noqa: SLF001 - there is no public way
    return DataFrame(getattr(programs, name)(*jvm_frames), spark)
