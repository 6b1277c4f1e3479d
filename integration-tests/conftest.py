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
from harness.azurite import abfs_files, azurite  # noqa: F401 - fixtures
from harness.gcs import gcs, gs_files  # noqa: F401 - fixtures
from harness.hdfs import hdfs, hdfs_files, hdfs_url  # noqa: F401 - fixtures; the path comes first
from harness.s3 import (  # noqa: F401 - fixtures; the path comes first
    s3_audited,
    s3_binary_server,
    s3_bucket,
    s3_header,
    s3_server,
)
from harness.s3_servers import (  # noqa: F401 - fixtures; the path comes first
    role_bucket,
    tls_server,
)
from harness.spark import MINOR, running_driver

processes.interrupt_on_sigterm()


def pytest_report_header() -> list[str]:
    """Name the Spark and the S3 server in use."""
    return [f"Spark: {MINOR}", s3_header()]


# What Spark itself does not do in older versions: these, parts of a test's id, and the reason.
BEFORE_4_3 = {"4.1", "4.2"}
LACKING = (
    (
        BEFORE_4_3,
        ("_v4",),
        "before 4.3 Spark has joins with state format 4 for its own tests at most",
    ),
    ({"4.1"}, ("test_without_the_extension",), "Spark 4.1 needs no extension"),
    ({"4.1"}, ("test_repartition.py",), "Spark has offline repartition since 4.2"),
    (
        BEFORE_4_3,
        ("test_the_change_feed", "[transform_"),
        "before 4.3 the change feed of Spark's provider lacks values that a batch appends together",
    ),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what an older Spark does not have."""
    for minors, parts, reason in LACKING:
        for item in items:
            if MINOR in minors and all(part in item.nodeid for part in parts):
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
