"""Folders of several kinds of storage, each with what Spark and Cairn's commands need to use it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cairn.location import open_location
from harness.s3 import S3Bucket
from harness.spark import s3a_conf

_ONE_COPY = {"dfs.replication": "1"}  # there is one DataNode


@dataclass(frozen=True)
class Storage:
    """A folder of a storage.

    Attributes:
        folder: its path or URL.
        options: those by which Cairn's commands reach it.
        conf: settings by which Spark does.
    """

    folder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


def on_s3(bucket: S3Bucket) -> Storage:
    """Return the folder that is the root of a bucket."""
    return Storage(bucket.url, bucket.settings, s3a_conf(bucket.settings))


def on_hdfs(url: str) -> Storage:
    """Return a new folder of an HDFS."""
    return Storage(f"{url}/{uuid.uuid4().hex}", {"hadoop_conf": _ONE_COPY}, _ONE_COPY)


def copy_to(storage: Storage, name: str, checkpoint: Path) -> str:
    """Copy the files of a checkpoint that has ended to a storage; return their place there.

    The checksums that Hadoop keeps beside local files stay behind.
    """
    place = f"{storage.folder}/{name}"
    with open_location(place, storage.options) as objects:
        for path in checkpoint.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                objects.put(path.relative_to(checkpoint).as_posix(), path.read_bytes())
    return place
