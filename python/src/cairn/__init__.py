"""Cairn: a state store for Spark Structured Streaming: RocksDB in Python, durable on S3.

The public surface; users type every name here.  Spec: README.md, docs/configuration.md; for the
errors docs/troubleshooting.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import CairnError, ConfigError
from cairn.jar import jar_path
from cairn.release import RELEASE as __version__  # noqa: N811 - the name that Python's tools read
from cairn.spark_conf import spark_conf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.reader.checkpoint import Checkpoint

__all__ = [
    "CairnError",
    "ConfigError",
    "__version__",
    "jar_path",
    "open_checkpoint",
    "spark_conf",
]


def open_checkpoint(
    location: str, *, storage_options: Mapping[str, str] | None = None
) -> Checkpoint:
    """Open the checkpoint of a query, to read its state; no request is sent yet.

    It may be one of Cairn's, or of Spark's HDFS-backed or RocksDB provider.

    Args:
        location: the query's ``checkpointLocation``: a folder, or ``s3://bucket/path`` (``s3a``).
        storage_options: of S3, all optional: ``endpoint_url``, ``region``, ``access_key``,
            ``secret_key``, ``session_token``, and the others of ``docs/reader.md``. Absent ones
            come from the standard AWS chain.

    Raises:
        SchemeError: the location is on another storage.
        ConfigError: an option, or the location, is malformed.
    """
    # The engine's processes, and drivers of Spark, need neither numpy nor Arrow for their start.
    from cairn.reader.checkpoint import open_at  # noqa: PLC0415

    return open_at(location, storage_options or {})
