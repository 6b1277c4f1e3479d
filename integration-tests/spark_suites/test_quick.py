"""Spark's own tests agree with Cairn: the quick subset, against what Spark's RocksDB provider does.

The control's outcomes are committed (control.toml), so this runs Cairn only. The whole list:
`make spark-suites`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parent / "run.py"


def test_what_the_control_passes_cairn_passes() -> None:
    """Spark's authors wrote these tests: a provider that fails one gives some query wrong rows."""
    command = [sys.executable, str(RUN), "--provider", "cairn", "--quick"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
