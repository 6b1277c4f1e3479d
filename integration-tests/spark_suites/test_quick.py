"""Cairn passes the quick subset of Spark's own tests that Spark's RocksDB provider passes.

The control's outcomes are committed (control.toml), so this runs Cairn only. `make spark-suites`
runs all suites.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools

RUN = Path(__file__).resolve().parent / "run.py"


def test_cairn_passes_what_the_control_passes() -> None:
    """Spark's authors wrote these tests: a provider that fails one returns wrong rows."""
    command = [sys.executable, str(RUN), "--provider", "cairn", "--quick"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
