"""The kits of other tests, and an empty store of objects."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.extend(
    str(Path(__file__).parents[2] / folder) for folder in ("reader/kit", "offline/move/kit")
)

from cairn.storage.memory import MemoryBucket, MemoryStore


@pytest.fixture
def objects() -> MemoryStore:
    """Return a store without objects."""
    return MemoryStore("memory://checkpoint", MemoryBucket())
