"""A bucket and a query on it, in both of Spark's checkpoint formats."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "kit"))

from checkpoint_kit import World
from running_query import Query


@pytest.fixture(params=[1, 2], ids=["format 1", "format 2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A bucket."""
    return World(tmp_path, request.param)


@pytest.fixture
def query(world: World) -> Query:
    """A query on a new checkpoint."""
    return Query(world)
