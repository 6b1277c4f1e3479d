"""An empty store of objects, and the writers of Spark's files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "kit"))

from cairn.storage.memory import MemoryBucket, MemoryStore


@pytest.fixture
def objects() -> MemoryStore:
    """Return a store without objects."""
    return MemoryStore("memory://checkpoint", MemoryBucket())
