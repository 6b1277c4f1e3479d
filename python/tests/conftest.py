"""Fixtures shared with the integration tests: one S3 server, one header line."""

from __future__ import annotations

import sys
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
for _path in (_REPOSITORY / "integration-tests", _REPOSITORY / "python" / "src"):
    if str(_path) not in sys.path:
        sys.path.insert(0, str(_path))

from hypothesis import HealthCheck, settings  # noqa: E402 - the path comes first

from harness import processes  # noqa: E402 - the path comes first
from harness.azurite import abfs_files, azurite  # noqa: E402, F401 - the path comes first
from harness.gcs import gcs, gs_files  # noqa: E402, F401 - the path comes first
from harness.hdfs import hdfs, hdfs_files, hdfs_url  # noqa: E402, F401 - the path comes first
from harness.s3 import s3_bucket, s3_header, s3_server  # noqa: E402, F401 - the path comes first
from harness.s3_servers import (  # noqa: E402, F401 - the path comes first
    customer_key_bucket,
    http_proxy,
    moto_bucket,
    moto_server,
    role_bucket,
    tls_server,
    versitygw_bucket,
    versitygw_server,
)

processes.interrupt_on_sigterm()

# No test measures speed: on a loaded machine none may fail. Tests whose examples are costly take a
# share of max_examples. `make test-all` reads more examples: --hypothesis-profile=thorough.
for _name, _examples in (("cairn", 60), ("thorough", 500)):
    settings.register_profile(
        _name,
        deadline=None,
        max_examples=_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("cairn")


def pytest_report_header() -> str:
    """Say which S3 server is in use."""
    return s3_header()
