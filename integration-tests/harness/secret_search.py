"""Searches what a run shows and leaves behind for secrets: processes, folders, buckets."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cairn.format import changelog

if TYPE_CHECKING:
    from harness.s3 import S3Bucket

Found = tuple[str, bytes]
"""The name of a place, and what is there."""


def of_process(pid: int, name: str) -> Iterator[Found]:
    """Yield what every user, or the process's own user, can read of it."""
    for what in ("cmdline", "environ"):
        yield f"{name} {what}", Path(f"/proc/{pid}/{what}").read_bytes()


def of_folder(folder: Path, leave_out: Path | None = None) -> Iterator[Found]:
    """Yield all files below a folder, except the specification that the test itself wrote.

    A file that is removed meanwhile is not left: workers clear their folders when they end.
    """
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            if path.is_file() and not path.is_symlink() and path != leave_out:
                with suppress(FileNotFoundError):
                    yield from of_object(str(path), path.read_bytes())


def of_bucket(bucket: S3Bucket) -> Iterator[Found]:
    """Yield all objects with their metadata."""
    client = bucket.endpoint.client()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name):
        for item in page.get("Contents", []):
            answer = client.get_object(Bucket=bucket.name, Key=item["Key"])
            yield f"{item['Key']} metadata", repr(answer["Metadata"]).encode()
            yield from of_object(item["Key"], answer["Body"].read())
    client.close()


def of_object(name: str, data: bytes) -> Iterator[Found]:
    """Yield an object's bytes; of a changelog also its rows, which are compressed."""
    yield name, data
    if name.endswith(".arrow"):
        found = changelog.decode(data, object_name=name)
        yield name, b"\n".join(value or b"" for value in found.table["value"].to_pylist())


def with_secret(left: Iterable[Found], secret: str) -> list[str]:
    """Return the places that have the secret, as text or as it is written in URLs and headers."""
    plain = secret.encode()
    texts = (plain, secret.encode("utf-16-le"), quote(secret, safe="").encode())
    forms = (*texts, base64.b64encode(plain))
    return sorted({name for name, data in left if any(form in data for form in forms)})
