"""The output of `cairn diff` where the state has columns of the same names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from click.testing import Result
from small_checkpoint import SmallCheckpoint

Run: TypeAlias = Callable[..., Result]


def test_a_column_of_the_state_may_be_named_change(run: Run, tmp_path: Path) -> None:
    """It must neither end the command nor be taken for what has happened to the row."""
    written = SmallCheckpoint(tmp_path / "ck")
    written.declare({"change": "long"}, {"batch": "long", "sum": "long"})
    written.commit({})
    written.commit({1: (7, 8)})

    done = run("diff", str(written.folder), "0", "1", "-o", "ndjson")

    assert done.exit_code == 3
    row = json.loads(done.stdout)
    assert (row["change"], row["key"], row["value"]) == (
        "added",
        {"change_2": 1},
        {"batch": 7, "sum": 8},
    )
