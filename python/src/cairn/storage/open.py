"""open_store: the object store for the URL of a checkpoint location.

Layer: storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import SchemeError
from cairn.storage.hadoop.store import FILE_SYSTEM, HadoopStore
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.storage.base import ObjectStore
    from cairn.storage.hadoop.connections import StorageConnections


def open_store(
    url: str, settings: Mapping[str, str], connections: StorageConnections | None = None
) -> ObjectStore:
    """Return a store for ``url``, without a request to the storage.

    Args:
        url: ``s3://bucket/path`` (``s3a``, ``s3n``), ``file:///path``, ``/path``, for tests
            ``memory://name/path``, and with ``connections`` any URL of Hadoop's.
        settings: keys of ``S3Settings``, or those of ``HadoopStore``.
        connections: to the JVM that reaches the file system.

    Raises:
        SchemeError: Cairn has no storage for that scheme.
        ConfigError: a setting, or the URL, is malformed.
    """
    scheme = url.partition(":")[0].lower() if ":" in url.partition("/")[0] else ""
    if scheme in {"", "file"}:
        return LocalStore(url)
    if scheme in {"s3", "s3a", "s3n"}:
        # boto3 costs a third of a second and 15 MB, which local files do not need.
        from cairn.storage.s3.settings import S3Settings  # noqa: PLC0415
        from cairn.storage.s3.store import S3Store  # noqa: PLC0415

        return S3Store(url, S3Settings.from_mapping(settings))
    if scheme == "memory":
        return MemoryStore(url)
    if connections is None or FILE_SYSTEM not in settings:
        raise SchemeError(
            f"the scheme {scheme!r} is not one of s3, s3a, s3n and file, and there is no JVM that "
            "reaches other file systems",
            object_name=url,
            next_step="use the command `cairn`, or a Spark job, for this location",
        )
    return HadoopStore(url, settings, connections)
