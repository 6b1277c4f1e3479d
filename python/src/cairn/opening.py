"""open_checkpoint: the way into the state reader.

Layer: cli's side (nothing below imports it); the reader is imported by its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.reader.checkpoint import Checkpoint


def open_checkpoint(
    location: str, *, storage_options: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Open the checkpoint of a query, to read its state; no request is sent yet.

    It may be one of Cairn's, or of Spark's HDFS-backed or RocksDB provider.

    Args:
        location: the query's ``checkpointLocation``: a folder, ``s3://bucket/path`` (``s3a``), or
            the URL of another file system that Hadoop reaches, such as ``hdfs://...``. For the last
            one a JVM runs until the checkpoint is closed, with the jars of the installed Spark and
            the settings in ``HADOOP_CONF_DIR``.
        storage_options: all optional. Of S3: ``endpoint_url``, ``region``, ``access_key``,
            ``secret_key``, ``session_token``, and the others of ``docs/reader.md``; absent ones
            come from the standard AWS chain. Of other file systems: ``hadoop_conf``, a mapping of
            Hadoop's settings, and ``jars``, a list of jars that Spark does not have.

    Raises:
        SchemeError: Hadoop has no such file system.
        ConfigError: an option, or the location, is malformed, or a JVM is needed and there is no
            Spark or no Java.
    """
    # The engine's processes, and drivers of Spark, need neither numpy nor Arrow for their start.
    from cairn.reader.checkpoint import open_at  # noqa: PLC0415

    return open_at(location, storage_options or {})
