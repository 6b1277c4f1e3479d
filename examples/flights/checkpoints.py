"""Counts the objects of the demo's query checkpoints, by their storage and not by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cairn.storage.hadoop.server import FileServer
from cairn.storage.open import open_store


@dataclass(frozen=True)
class CheckpointCount:
    """One query checkpoint in numbers.

    Attributes:
        batches_planned: micro-batches whose input is recorded.
        batches_committed: micro-batches that are complete.
        state_objects: objects under ``state/``.
        state_bytes: total size of these objects.
    """

    batches_planned: int
    batches_committed: int
    state_objects: int
    state_bytes: int


class CheckpointStorage(Protocol):
    """The storage of the query checkpoints, one folder per query."""

    @property
    def url(self) -> str:
        """The URL of the storage, for Spark."""

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield the path under the query's folder, and the size, of every object."""


class LocalCheckpoints:
    """Query checkpoints in a local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = folder.as_uri()

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield the path under the query's folder, and the size, of every object."""
        root = self._folder / query
        for path in root.rglob("*"):
            # Hadoop's checksum files are not objects of the checkpoint.
            if path.is_file() and not path.name.endswith(".crc"):
                yield path.relative_to(root).as_posix(), path.stat().st_size


class S3Checkpoints:
    """Query checkpoints under a prefix of a bucket; ``client`` is boto3's."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:  # noqa: ANN401 - boto3
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self.url = f"s3a://{bucket}/{prefix}"

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield the path under the query's folder, and the size, of every object."""
        root = f"{self._prefix}/{query}/"
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=root):
            for item in page.get("Contents", []):
                if not item["Key"].endswith("/"):  # s3a's markers of empty folders
                    yield item["Key"].removeprefix(root), item["Size"]


class HadoopCheckpoints:
    """Query checkpoints on a file system of Hadoop's, through a JVM that serves it."""

    def __init__(self, url: str, server: FileServer) -> None:
        self._store = open_store(url, server.settings, server.connections)
        self.url = url

    def objects(self, query: str) -> Iterator[tuple[str, int]]:
        """Yield the path under the query's folder, and the size, of every object."""
        for info in self._store.list(f"{query}/"):
            yield info.key.removeprefix(f"{query}/"), info.size_bytes


def count(storage: CheckpointStorage, query: str) -> CheckpointCount:
    """Count the present objects of one query checkpoint."""
    planned = committed = objects = size = 0
    for path, bytes_ in storage.objects(query):
        folder, _, name = path.partition("/")
        planned += folder == "offsets" and name.isdigit()
        committed += folder == "commits" and name.isdigit()
        # state/<operator>/_metadata is written by Spark under every provider.
        if folder == "state" and "/_metadata/" not in path:
            objects += 1
            size += bytes_
    return CheckpointCount(planned, committed, objects, size)
