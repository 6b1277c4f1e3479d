"""The binary way of having an S3 server, taken whichever way the other tests take."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from cairn.checksum import crc32c_file
from cairn.storage.open import open_store
from harness.s3 import S3Endpoint, fresh_bucket

if TYPE_CHECKING:
    from pathlib import Path


def test_a_store_works_against_the_binary(s3_binary_server: S3Endpoint, tmp_path: Path) -> None:
    """A machine without Docker runs all S3 tests; this keeps that way from rotting."""
    source = tmp_path / "1.sst"
    source.write_bytes(bytes(range(256)) * 100)

    with (
        fresh_bucket(s3_binary_server) as bucket,
        open_store(f"{bucket.url}/state", bucket.settings) as store,
    ):
        store.probe_conditional_put()
        checksum = crc32c_file(source)
        store.upload("sst/1.sst", source, crc32c=checksum)
        store.download("sst/1.sst", tmp_path / "back", size_bytes=25_600, crc32c=checksum)

    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert s3_binary_server.way == "binary"


def test_the_servers_counters_are_public(s3_binary_server: S3Endpoint) -> None:
    """Requests are counted at the server, so its counters must be readable without a token."""
    url = f"{s3_binary_server.endpoint_url}/minio/v2/metrics/cluster"

    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - ours, on loopback
        text = answer.read().decode()

    assert "minio_" in text
