"""The rig of the engine's property test serves here too: an instance in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "property" / "engine"))

from rig import Rig, family

FAMILY = family(0, multi=False)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Return a store at version 0."""
    conf = {"minDeltasForSnapshot": 2, "minBatchesToRetain": 2}
    rig = Rig(tmp_path / "local", str(tmp_path / "objects"), 2, conf)
    rig.load(0, None)
    yield rig
    rig.crash()
