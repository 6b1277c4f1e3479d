"""A JVM that an earlier session of the same Python process has started without Cairn's jar."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import cairn
from pyspark.sql import SparkSession

def say(when):
    try:
        cairn.spark_conf()
    except cairn.ConfigError as error:
        print(when, error)

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
say("beside it:")
spark.stop()
say("after it:")
"""


@pytest.mark.slow
def test_the_settings_are_refused_where_they_come_too_late(tmp_path: Path) -> None:
    """The query would end with a ClassNotFoundException, which does not say why."""
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )

    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["beside it", "after it"], done.stderr
    assert all(
        "earlier Spark session" in line and "Next: start Python again" in line for line in lines
    )
