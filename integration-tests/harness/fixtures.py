"""Fixtures of the tests that run Spark; the conftest of a folder imports those it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness import processes
from harness.spark import hold_driver


@pytest.fixture(scope="session")
def nothing_survives() -> Iterator[str]:
    """Fail at the end of the session if a process that a test started is still alive."""
    with processes.nothing_survives() as run:
        yield run


@pytest.fixture(scope="session")
def driver(nothing_survives: str) -> Iterator[None]:  # noqa: ARG001 - ends after the driver
    """Keep the shared driver JVM alive while the folder's tests run."""
    with hold_driver().used():
        yield
