"""Fixtures of the integration tests, and a header that names the S3 server in use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for _path in (HERE, HERE.parent / "python" / "src"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from harness import processes
from harness.s3 import (  # noqa: F401 - fixtures; the path comes first
    s3_audited,
    s3_binary_server,
    s3_bucket,
    s3_header,
    s3_server,
)
from harness.spark import MINOR, running_driver


def pytest_report_header() -> list[str]:
    """Name the Spark and the S3 server in use."""
    return [f"Spark: {MINOR}", s3_header()]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what an older Spark does not have."""
    if MINOR == "4.1":
        reason = "Spark 4.1 has no joins with state format 4"
        for item in items:
            if "_v4" in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def nothing_survives() -> Iterator[str]:
    """Fail at the end of the session if a process that a test started is still alive."""
    with processes.nothing_survives() as run:
        yield run


@pytest.fixture(scope="session")
def driver(nothing_survives: str) -> Iterator[None]:  # noqa: ARG001 - ends after the driver
    """Keep the shared driver JVM alive while the tests run."""
    with running_driver():
        yield
