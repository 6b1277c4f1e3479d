"""A MinIO server behind a delay: checkpoints of the benchmark on a distant S3.

Each answer of the server is delayed, so that a request costs at least the latency. A request of two
round trips (`Expect: 100-continue`) costs it twice. The proxy runs in this process.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driver import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "integration-tests"))

from harness.minio import MinioProcess, find_minio_binary
from harness.s3_audit import AuditServer
from harness.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class DistantS3:
    """A running server and the proxy in front of it."""

    server: MinioProcess
    proxy: TcpProxy
    bucket_count: int = 0
    audit: AuditServer | None = None  # to which the server reports its requests

    def new_checkpoint(self) -> str:
        """Create a bucket and return the URL of a checkpoint in it."""
        self.bucket_count += 1
        name = f"bench-{self.bucket_count}"
        client = self.server.client()
        client.create_bucket(Bucket=name)
        client.close()
        return f"s3a://{name}/query"

    def conf(self) -> dict[str, str]:
        """Return the settings of a job, which reach the server through the proxy."""
        return s3a_conf(self.server, self.proxy.url)


def s3a_conf(server: MinioProcess, url: str) -> dict[str, str]:
    """Return the settings of a job that reaches the server at ``url``."""
    return {
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": server.access_key,
        "spark.hadoop.fs.s3a.secret.key": server.secret_key,
    }


def s3a_jars(build: Path = REPOSITORY / ".build") -> list[Path]:
    """Return the jars that Spark needs for `s3a://`, and that of Spark's file manager for it.

    Raises:
        SystemExit: some of them were not fetched.
    """
    found = [sorted((build / name).glob("*.jar")) for name in ("s3a-jars", "bench-jars")]
    if not all(found):
        message = f"{build} has no jars for s3a://: run `make s3a-jars bench-jars`"
        raise SystemExit(message)
    return [jar for jars in found for jar in jars]


def minio_binary() -> Path:
    """Return the server's program.

    Raises:
        SystemExit: there is none.
    """
    binary = find_minio_binary()
    if binary is None:
        message = "no minio binary: run `make minio`"
        raise SystemExit(message)
    return binary


@contextmanager
def distant_s3(latency_ms: int, *, is_audited: bool = False) -> Iterator[DistantS3]:
    """Run a server that answers ``latency_ms`` later; ``is_audited``: it reports its requests.

    Raises:
        SystemExit: there is no MinIO binary, or the jars for `s3a://` are missing.
    """
    s3a_jars()
    with (
        AuditServer() if is_audited else nullcontext() as audit,
        MinioProcess(minio_binary(), audit.minio_environment if audit else None) as server,
        TcpProxy(server.endpoint_url, latency_ms=latency_ms) as proxy,
    ):
        yield DistantS3(server, proxy, audit=audit)
