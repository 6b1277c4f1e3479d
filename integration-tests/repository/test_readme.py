"""Every block of README.md works, and so does the command of the operations page.

A job that consists of them keeps its state in Cairn.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.small_query import QUERY
from harness.spark import REPOSITORY, SHORT_LIVED

_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT_S = 240
_OWN_SESSION = """
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2).getOrCreate()
)
"""


def _blocks(page: str = "README.md") -> list[str]:
    return [block[1] for block in _BLOCK.finditer((REPOSITORY / page).read_text())]


def _block(words: str, page: str = "README.md") -> str:
    """Return the one block with these words."""
    (found,) = [block for block in _blocks(page) if words in block]
    return found


def _run(command: list[str], folder: Path) -> str:
    """Run in a folder, as in an active virtual environment; return what it prints."""
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED),
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def _changelogs(folder: Path) -> list[Path]:
    """Return Cairn's changelogs in the checkpoint."""
    return list(folder.glob("checkpoint/state/0/*/**/changelog/*.arrow"))


def test_the_session_of_the_python_block_keeps_its_state_in_cairn(tmp_path: Path) -> None:
    """A reader who copies the lines must not run Spark's own provider without noticing."""
    (tmp_path / "job.py").write_text(_block("cairn.spark_conf(") + QUERY)

    _run([sys.executable, "job.py"], tmp_path)

    assert _changelogs(tmp_path)


def test_the_python_block_can_be_submitted(tmp_path: Path) -> None:
    """The JVM runs before the job then, with the jars of the command."""
    (tmp_path / "job.py").write_text(_block("cairn.spark_conf(") + QUERY)
    readme = (REPOSITORY / "README.md").read_text()
    (command,) = re.findall(r"`(spark-submit [^`]* job\.py)`", readme)

    _run(["bash", "-euc", command], tmp_path)

    assert _changelogs(tmp_path)


def test_the_spark_submit_block_runs_a_job_on_cairn(tmp_path: Path) -> None:
    """A class name or a setting misspelled in the page fails a reader's first job."""
    (tmp_path / "job.py").write_text(_OWN_SESSION + QUERY)

    _run(["bash", "-euc", _block("spark-submit", "docs/operations.md")], tmp_path)

    assert _changelogs(tmp_path)


@pytest.mark.parametrize(
    ("verb", "words"), [("ls", "last_orders"), ("query", "291.80"), ("history", "199.40")]
)
def test_the_commands_of_the_reader_show_the_sample(verb: str, words: str) -> None:
    """The first thing that a person tries needs neither Spark nor a job of theirs."""
    (line,) = [
        line for line in _block("cairn ls ").splitlines() if line.startswith(f"cairn {verb}")
    ]

    shown = _run(shlex.split(line), REPOSITORY)

    assert words in shown


def test_every_other_block_has_verbs_of_make_or_the_package() -> None:
    """Commands that a reader types must exist; `.ci/run` runs `make test` itself."""
    package = tomllib.loads((REPOSITORY / "python" / "pyproject.toml").read_text())["project"]
    verbs = re.findall(r"^([a-z0-9-]+):.*## ", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    wheel = f"{package['name'].replace('-', '_')}-*.whl"  # of `make wheel`
    known = {f"pip install .build/wheel/{wheel}", *(f"make {verb}" for verb in verbs)}

    shown = [
        line
        for block in _blocks()
        if "cairn.spark_conf(" not in block and not block.startswith("cairn ")
        for line in block.splitlines()
    ]

    assert {"make demo", "make test"} <= set(shown)
    assert set(shown) <= known


@pytest.mark.parametrize(("page", "limit"), [("README.md", 110), ("docs/benchmarks.md", 250)])
def test_a_page_that_answers_stays_short(page: str, limit: int) -> None:
    """Such a page grows by one paragraph per change, until nobody reads it."""
    assert len((REPOSITORY / page).read_text().splitlines()) <= limit
