"""Fixtures of the integration tests, and a header that names the S3 server in use."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for _path in (HERE, HERE.parent / "python" / "src"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from harness.s3 import (  # noqa: F401 - fixtures; the path comes first
    s3_audited,
    s3_binary_server,
    s3_bucket,
    s3_header,
    s3_server,
)


def pytest_report_header() -> str:
    """Name the S3 server in use."""
    return s3_header()
