"""open_checkpoint: the way into the state reader.

Layer: cli's side (nothing below imports it); the reader is imported by its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.reader.checkpoint import Checkpoint


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
