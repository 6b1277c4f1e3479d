"""The S3 server of the tests: the first of these kinds that is available.

    endpoint         CAIRN_TEST_S3_ENDPOINT with CAIRN_TEST_S3_ACCESS_KEY, _SECRET_KEY, _REGION
    testcontainers   a Docker engine answers; image CAIRN_TEST_MINIO_IMAGE, else cairn-minio:test
    binary           CAIRN_TEST_MINIO_BINARY, else .build/tools/minio

``CAIRN_TEST_S3_WAY`` selects one of them by name. If none is available, the tests fail. A
``conftest.py`` imports the fixtures.
"""

from __future__ import annotations

import os
import secrets
import time
import uuid
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from harness.docker_engine import DEFAULT_MINIO_IMAGE, engine_answers, ensure_minio_image
from harness.minio import (
    MinioProcess,
    await_health,
    await_users,
    find_minio_binary,
    s3_client,
)
from harness.s3_audit import AuditedS3, AuditServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_EMPTY_WITHIN_S = 60.0
_WAYS = ("endpoint", "testcontainers", "binary")
_NO_SERVER = (
    "tests need an S3 server: set CAIRN_TEST_S3_ENDPOINT, start a Docker engine, "
    "or build a minio binary with `make minio`"
)


@dataclass(frozen=True)
class S3Endpoint:
    """The URL and the credentials of a server; ``way`` is its kind.

    Attributes:
        ca_bundle: file of the certificates to trust, of a server with TLS.
        more_settings: settings in addition to address and credentials.
    """

    endpoint_url: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    way: str = "endpoint"
    ca_bundle: str | None = None
    more_settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def settings(self) -> dict[str, str]:
        """The settings for ``cairn.storage.open.open_store``."""
        return {
            "endpoint_url": self.endpoint_url,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "region": self.region,
            "path_style": "true",
            **({"ca_bundle": self.ca_bundle} if self.ca_bundle else {}),
            **self.more_settings,
        }

    def client(self) -> Any:  # noqa: ANN401 - boto3's client classes exist only at run time
        """Return a plain boto3 client for this server."""
        return s3_client(
            self.endpoint_url, self.access_key, self.secret_key, self.region, self.ca_bundle
        )


@dataclass(frozen=True)
class S3Bucket:
    """A bucket for one test."""

    name: str
    endpoint: S3Endpoint

    @property
    def url(self) -> str:
        """The bucket's root, as a checkpoint location names it."""
        return f"s3a://{self.name}"

    @property
    def settings(self) -> dict[str, str]:
        """The settings for ``cairn.storage.open.open_store``."""
        return self.endpoint.settings


@cache
def s3_way() -> str | None:
    """Return the kind of server to use, ``None`` if none is available."""
    selected = os.environ.get("CAIRN_TEST_S3_WAY", "")
    if selected:
        if selected not in _WAYS:
            message = f"CAIRN_TEST_S3_WAY is one of {', '.join(_WAYS)}, not {selected!r}"
            raise ValueError(message)
        return selected
    if os.environ.get("CAIRN_TEST_S3_ENDPOINT"):
        return "endpoint"
    if engine_answers():
        return "testcontainers"
    return "binary" if find_minio_binary() is not None else None


def s3_header() -> str:
    """Return the line for the header of a test run."""
    way = s3_way()
    detail = {
        "endpoint": os.environ.get("CAIRN_TEST_S3_ENDPOINT", ""),
        "testcontainers": os.environ.get("CAIRN_TEST_MINIO_IMAGE", DEFAULT_MINIO_IMAGE),
        "binary": str(find_minio_binary()),
    }
    return f"S3 server: {way} ({detail[way]})" if way else f"S3 server: none ({_NO_SERVER})"


@contextmanager
def s3_by_binary() -> Iterator[S3Endpoint]:
    """Run the MinIO binary."""
    binary = find_minio_binary()
    if binary is None:
        pytest.fail(_NO_SERVER)
    with MinioProcess(binary) as minio:
        yield endpoint_of(minio)


def endpoint_of(minio: MinioProcess) -> S3Endpoint:
    """Return the endpoint of a running MinIO process."""
    return S3Endpoint(
        minio.endpoint_url,
        minio.access_key,
        minio.secret_key,
        way="binary",
        ca_bundle=minio.ca_bundle,
    )


@contextmanager
def s3_by_testcontainers() -> Iterator[S3Endpoint]:
    """Run MinIO in a container."""
    # The reaper needs an image from a registry; this block ends the container itself.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - see above

        image = os.environ.get("CAIRN_TEST_MINIO_IMAGE", DEFAULT_MINIO_IMAGE)
        ensure_minio_image(image, find_minio_binary())
        access_key, secret_key = "cairn" + secrets.token_hex(4), secrets.token_hex(16)
        container = (
            DockerContainer(image)
            .with_env("MINIO_ROOT_USER", access_key)
            .with_env("MINIO_ROOT_PASSWORD", secret_key)
            .with_env("MINIO_PROMETHEUS_AUTH_TYPE", "public")
            .with_command("server /data --address :9000")
            .with_exposed_ports(9000)
        )
        container.start()
    try:
        host, port = container.get_container_host_ip(), container.get_exposed_port(9000)
        endpoint_url = f"http://{host}:{port}"
        await_health(endpoint_url, lambda: str(container.get_logs()))
        await_users(s3_client(endpoint_url, access_key, secret_key))
        yield S3Endpoint(endpoint_url, access_key, secret_key, way="testcontainers")
    finally:
        container.stop()


@contextmanager
def s3_by_endpoint() -> Iterator[S3Endpoint]:
    """Use the server that the environment variables name."""
    yield S3Endpoint(
        os.environ["CAIRN_TEST_S3_ENDPOINT"],
        os.environ["CAIRN_TEST_S3_ACCESS_KEY"],
        os.environ["CAIRN_TEST_S3_SECRET_KEY"],
        os.environ.get("CAIRN_TEST_S3_REGION", "us-east-1"),
    )


def _delete_bucket(client: Any, name: str) -> None:  # noqa: ANN401 - boto3 has no types
    """Delete a bucket and its objects, while a worker may still be uploading a snapshot to it."""
    deadline = time.monotonic() + _EMPTY_WITHIN_S
    while True:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            keys = [{"Key": item["Key"]} for item in page.get("Contents", [])]
            if keys:
                client.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
        try:
            client.delete_bucket(Bucket=name)
        except client.exceptions.ClientError as error:
            is_refilled = error.response["Error"]["Code"] == "BucketNotEmpty"
            if not is_refilled or time.monotonic() > deadline:
                raise
        else:
            return


@contextmanager
def fresh_bucket(endpoint: S3Endpoint) -> Iterator[S3Bucket]:
    """Create a bucket, and delete it with its objects at the end."""
    client = endpoint.client()
    name = f"cairn-test-{uuid.uuid4().hex[:16]}"
    client.create_bucket(Bucket=name)
    try:
        yield S3Bucket(name, endpoint)
    finally:
        _delete_bucket(client, name)
        client.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Endpoint]:
    """The S3 server of this test run."""
    way = s3_way()
    if way is None:
        pytest.fail(_NO_SERVER)
    starts = {
        "endpoint": s3_by_endpoint,
        "testcontainers": s3_by_testcontainers,
        "binary": s3_by_binary,
    }
    with starts[way]() as endpoint:
        yield endpoint


@pytest.fixture
def s3_bucket(s3_server: S3Endpoint) -> Iterator[S3Bucket]:
    """A bucket for this test only."""
    with fresh_bucket(s3_server) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def s3_binary_server() -> Iterator[S3Endpoint]:
    """A server from the binary, whichever kind the other tests use."""
    with s3_by_binary() as endpoint:
        yield endpoint


@pytest.fixture
def s3_audited() -> Iterator[AuditedS3]:
    """A server for this test only that reports each request, with a bucket in it."""
    binary = find_minio_binary()
    if binary is None:
        pytest.fail(_NO_SERVER)
    with AuditServer() as audit, MinioProcess(binary, audit.minio_environment) as minio:
        endpoint = endpoint_of(minio)
        with fresh_bucket(endpoint) as bucket:
            client = endpoint.client()
            audited = AuditedS3(audit, client, bucket.name, bucket.settings)
            audited.restart_count()  # the server reports from here on
            yield audited
            client.close()
