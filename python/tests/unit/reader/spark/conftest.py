"""Fixtures of the tests of Spark's files."""

from __future__ import annotations

import pytest

from cairn.storage.memory import MemoryBucket, MemoryStore


@pytest.fixture
def checkpoint() -> MemoryStore:
    """Return an empty checkpoint."""
    return MemoryStore("memory://bucket/ck", MemoryBucket())
