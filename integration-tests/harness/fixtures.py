"""Fixtures of the folders that run Spark: import the names that a folder's conftest needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import processes
from harness.spark import hold_driver


@pytest.fixture(scope="session")
def nothing_survives() -> Iterator[str]:
    """Fail at the end of the session when a process that a test started is still there."""
    with processes.nothing_survives() as run:
        yield run


@pytest.fixture(scope="session")
def driver(nothing_survives: str) -> Iterator[None]:  # noqa: ARG001 - it ends after the driver
    """Keep the shared driver JVM while the folder's tests run."""
    with hold_driver().used():
        yield
