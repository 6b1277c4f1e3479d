"""The checkpoints of the reader's tests serve here too, and an engine in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.extend(
    str(Path(__file__).parents[2] / folder)
    for folder in ("unit/reader/kit", "unit/offline/kit", "property/engine")
)

from running_checkpoint import RunningCheckpoint


@pytest.fixture(params=[1, 2], ids=["format1", "format2"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCheckpoint]:
    """Return a checkpoint with ten batches and several snapshots, whose engine runs."""
    written = RunningCheckpoint(tmp_path / "ck", tmp_path / "local", request.param)
    for batch in range(10):
        written.commit({user: (batch, user) for user in range(batch, batch + 20)})
        written.snapshot()
    yield written
    if written.stores:
        written.stop()


@pytest.fixture
def stopped(written: RunningCheckpoint) -> RunningCheckpoint:
    """Return the same one, whose engine has ended."""
    written.stop()
    return written
