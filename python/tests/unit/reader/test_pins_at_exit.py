"""Reads of Cairn's stores that nobody closes: what they leave in the checkpoint."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[4] / "examples/sample-checkpoint"
PROGRAM = """
import pathlib, sys
from cairn.checkpoint import reader_pins
reader_pins.PIN_AFTER_MS = 0
import cairn

reader = cairn.open_checkpoint(sys.argv[1]).state(0, "total").reader(batch_rows=1)
reader.read_next_batch()
while not list(pathlib.Path(sys.argv[1]).rglob("pin/reader-*")):
    pass
print("pinned", flush=True)
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError"])
def test_a_process_that_ends_within_a_read_leaves_no_pin(tmp_path: Path, end: str) -> None:
    """A notebook is shut down: nobody sweeps the checkpoint of a query that runs no more."""
    folder = tmp_path / "ck"
    shutil.copytree(SAMPLE, folder)

    result = subprocess.run(  # noqa: S603 - this file's own program
        [sys.executable, "-c", PROGRAM + end, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.stdout == "pinned\n", result.stderr
    assert list(folder.rglob("pin/reader-*")) == []
