"""The demo as a user runs it: five queries, killed and resumed, on each kind of storage."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.spark import REPOSITORY

pytestmark = [pytest.mark.usefixtures("nothing_survives"), pytest.mark.slow]

PROGRAM = REPOSITORY / "examples" / "flights" / "run.py"
ALL_EQUAL = "Every sink has exactly the rows of its batch computation."
TIMEOUT_S = 900


@pytest.mark.parametrize("storage", ["disk", "minio", "hdfs"])
def test_the_demo_s_queries_killed_and_resumed_have_the_rows_of_the_batch_job(storage: str) -> None:
    """The five operators together, with the settings that `cairn.spark_conf()` gives."""
    command = [sys.executable, str(PROGRAM), "--provider", "cairn", "--storage", storage]

    demo = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert ALL_EQUAL in demo.stdout
