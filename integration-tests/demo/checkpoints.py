"""What the demo's checkpoints hold, read from their storage and not from Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.minio import MinioProcess


@dataclass(frozen=True)
class CheckpointCount:
    """One query checkpoint in numbers.

    Attributes:
        batches_planned: micro-batches whose input is written down.
        batches_committed: micro-batches that are done.
        state_objects: objects under ``state/``.
        state_bytes: their bytes.
    """

    batches_planned: int
    batches_committed: int
    state_objects: int
    state_bytes: int


class CheckpointStorage(Protocol):
    """Where the query checkpoints lie, one folder a query."""

    @property
    def url(self) -> str:
        """What Spark is told."""

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield path under the query's folder, and size, of every object."""


class LocalCheckpoints:
    """Query checkpoints in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = folder.as_uri()

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield path under the query's folder, and size, of every object."""
        root = self._folder / query
        for path in root.rglob("*"):
            # Hadoop's checksum files are not objects of the checkpoint.
            if path.is_file() and not path.name.endswith(".crc"):
                yield path.relative_to(root).as_posix(), path.stat().st_size


class MinioCheckpoints:
    """Query checkpoints in a bucket of a MinIO of the demo's own."""

    def __init__(self, server: MinioProcess, bucket: str, prefix: str) -> None:
        self._server = server
        self._bucket = bucket
        self._prefix = prefix
        self.url = f"s3a://{bucket}/{prefix}"

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield path under the query's folder, and size, of every object."""
        root = f"{self._prefix}/{query}/"
        pages = self._server.client().get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=root):
            for item in page.get("Contents", []):
                if not item["Key"].endswith("/"):  # s3a's marks of empty folders
                    yield item["Key"].removeprefix(root), item["Size"]


def count(storage: CheckpointStorage, query: str) -> CheckpointCount:
    """Count what one query checkpoint holds now."""
    planned = committed = objects = size = 0
    for path, bytes_ in storage.objects(query):
        folder, _, name = path.partition("/")
        planned += folder == "offsets" and name.isdigit()
        committed += folder == "commits" and name.isdigit()
        # state/<operator>/_metadata is Spark's own; every provider has it.
        if folder == "state" and "/_metadata/" not in path:
            objects += 1
            size += bytes_
    return CheckpointCount(planned, committed, objects, size)
