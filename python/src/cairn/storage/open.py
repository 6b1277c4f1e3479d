"""open_store: from a checkpoint location's URL to the store behind it.

Layer: storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.errors import SchemeError
from cairn.storage.local import LocalStore
from cairn.storage.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cairn.storage.base import ObjectStore

S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})
SUPPORTED = "s3, s3a, s3n, file, and plain paths"


def open_store(url: str, settings: Mapping[str, str]) -> ObjectStore:
    """Return a store for ``url``; asks the storage nothing yet.

    Args:
        url: ``s3://bucket/path`` (``s3a``, ``s3n``), ``file:///path``, ``/path``, and for tests
            ``memory://name/path``.
        settings: keys of ``S3Settings``; other schemes use none.

    Raises:
        SchemeError: no storage for that scheme.
        ConfigError: a setting, or the URL, is malformed.
    """
    scheme = url.partition(":")[0].lower() if ":" in url.partition("/")[0] else ""
    if scheme in {"", "file"}:
        return LocalStore(url)
    if scheme in S3_SCHEMES:
        # boto3 costs a third of a second and 15 MB, and file users need none of it.
        from cairn.storage.s3.settings import S3Settings  # noqa: PLC0415
        from cairn.storage.s3.store import S3Store  # noqa: PLC0415

        return S3Store(url, S3Settings.from_mapping(settings))
    if scheme == "memory":
        return MemoryStore(url)
    raise SchemeError(
        f"no storage for the scheme {scheme!r}; there are: {SUPPORTED}",
        object_name=url,
        next_step="put the checkpoint location on one of these",
    )
