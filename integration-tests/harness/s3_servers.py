"""S3 servers other than a plain MinIO, for the tests that every S3 server must pass.

    versitygw       objects are files below a folder; `make versitygw` builds it
    moto            objects are in memory; `make s3-servers` installs it; it accepts all credentials
    role            MinIO with TLS; a role may PUT only what SSE-KMS encrypts
    customer key    the same MinIO by an HTTP proxy (`make s3-servers`), with SSE-C

A ``conftest.py`` imports the fixtures.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from harness.minio import MinioProcess, find_minio_binary
from harness.processes import end_child, free_port, wait_until
from harness.s3 import S3Endpoint, endpoint_of, fresh_bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.s3 import S3Bucket

REPOSITORY = Path(__file__).resolve().parents[2]
VERSITYGW = REPOSITORY / ".build" / "tools" / "versitygw"
PROGRAMS = REPOSITORY / ".build" / "s3-servers" / "bin"
KMS_KEY = "cairn-key"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


def _program(path: Path, verb: str) -> str:
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make {verb}`")
    return str(path)


@contextmanager
def _running(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    is_up: Callable[[], bool],
) -> Iterator[None]:
    """Run a server until the block ends; it is up once ``is_up`` says so."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def answers() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        return is_up()

    try:
        wait_until(answers, _START_TIMEOUT_S, command[0], lambda: log.read_text(errors="replace"))
        yield
    finally:
        end_child(process, _STOP_TIMEOUT_S)


@contextmanager
def _running_server(
    command: Sequence[str], environment: Mapping[str, str], endpoint: S3Endpoint, folder: Path
) -> Iterator[S3Endpoint]:
    """Run an S3 server until the block ends; it is up once it lists its buckets."""
    client = endpoint.client()

    def lists() -> bool:
        try:
            client.list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    try:
        with _running(command, environment, folder, lists):
            yield endpoint
    finally:
        client.close()


def _endpoint(way: str) -> S3Endpoint:
    keys = "cairn" + secrets.token_hex(4), secrets.token_hex(16)
    return S3Endpoint(f"http://127.0.0.1:{free_port()}", *keys, way=way)


@pytest.fixture(scope="session")
def versitygw_server() -> Iterator[S3Endpoint]:
    """A versitygw process over a temporary folder."""
    endpoint = _endpoint("versitygw")
    port = endpoint.endpoint_url.rpartition(":")[2]
    with tempfile.TemporaryDirectory(prefix="cairn-versitygw-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        program = _program(VERSITYGW, "versitygw")
        command = [program, "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
        environment = {
            "ROOT_ACCESS_KEY": endpoint.access_key,
            "ROOT_SECRET_KEY": endpoint.secret_key,
        }
        with _running_server([*command, str(folder / "data")], environment, endpoint, folder):
            yield endpoint


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Endpoint]:
    """A process of moto's server."""
    endpoint = _endpoint("moto")
    port = endpoint.endpoint_url.rpartition(":")[2]
    with tempfile.TemporaryDirectory(prefix="cairn-moto-") as name:
        command = [_program(PROGRAMS / "moto_server", "s3-servers"), "-H", "127.0.0.1", "-p", port]
        with _running_server(command, {}, endpoint, Path(name)):
            yield endpoint


@pytest.fixture
def versitygw_bucket(versitygw_server: S3Endpoint) -> Iterator[S3Bucket]:
    """A bucket for this test only."""
    with fresh_bucket(versitygw_server) as bucket:
        yield bucket


@pytest.fixture
def moto_bucket(moto_server: S3Endpoint) -> Iterator[S3Bucket]:
    """A bucket for this test only."""
    with fresh_bucket(moto_server) as bucket:
        yield bucket


@pytest.fixture(scope="session")
def tls_server() -> Iterator[S3Endpoint]:
    """A MinIO with TLS and a key to encrypt with."""
    binary = find_minio_binary()
    if binary is None:
        pytest.fail("the MinIO binary is missing: run `make minio`")
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    with MinioProcess(binary, {"MINIO_KMS_SECRET_KEY": f"{KMS_KEY}:{key}"}, has_tls=True) as minio:
        yield endpoint_of(minio)


def role_policy(bucket: str) -> str:
    """Return the policy of a role that may use one bucket, and may PUT only with SSE-KMS.

    SSTs are excepted: MinIO asks for the header in each request of an upload in parts, and S3's
    protocol has it in the first one only.
    """
    root = f"arn:aws:s3:::{bucket}"
    parts = ("changelog/", "snapshot/", ".cairn-probe", "offsets/", "commits/", "metadata")
    whole = [f"{root}/*/{part}*" for part in parts]
    header = {"StringNotEquals": {"s3:x-amz-server-side-encryption": "aws:kms"}}
    rules = [
        {"Effect": "Allow", "Action": ["s3:*"], "Resource": [root, f"{root}/*"]},
        {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": whole, "Condition": header},
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": rules})


@pytest.fixture
def role_bucket(tls_server: S3Endpoint) -> Iterator[S3Bucket]:
    """A bucket that is reached in a role, as ``role_policy`` restricts it."""
    with fresh_bucket(tls_server) as bucket:
        settings = {
            "sse": "aws:kms",
            "sse_kms_key": KMS_KEY,
            "role_arn": "arn:aws:iam::123456789012:role/cairn",
            "role_policy": role_policy(bucket.name),
            "sts_endpoint_url": tls_server.endpoint_url,
        }
        yield replace(bucket, endpoint=replace(tls_server, more_settings=settings))


def trust_options(certificate: str, folder: Path) -> str:
    """Return the options of a JVM that trusts one certificate; writes its trust store."""
    path = folder / "trust.p12"
    password = "changeit"  # noqa: S105 - the file holds a public certificate
    command = ["keytool", "-importcert", "-noprompt", "-alias", "s3", "-file", certificate]
    command += ["-keystore", str(path), "-storepass", password]
    subprocess.run(command, check=True, capture_output=True)
    trust = "-Djavax.net.ssl.trustStore"
    return f"{trust}={path} {trust}Password={password}"


def temporary_keys(settings: Mapping[str, str], role: Mapping[str, str]) -> dict[str, str]:
    """Return temporary keys of a role: hadoop-aws takes no STS endpoint with a port.

    Args:
        settings: of the S3 server, which is MinIO: it is the token service, too.
        role: arguments of the request.
    """
    sts = boto3.client(
        "sts",
        endpoint_url=settings.get("sts_endpoint_url", settings["endpoint_url"]),
        aws_access_key_id=settings["access_key"],
        aws_secret_access_key=settings["secret_key"],
        region_name=settings["region"],
        verify=settings.get("ca_bundle"),
    )
    keys = sts.assume_role(RoleSessionName="cairn", **role)["Credentials"]
    sts.close()
    return {
        "access_key": keys["AccessKeyId"],
        "secret_key": keys["SecretAccessKey"],
        "session_token": keys["SessionToken"],
    }


@pytest.fixture(scope="session")
def http_proxy() -> Iterator[str]:
    """The URL of an HTTP proxy with a password, which opens tunnels for TLS."""
    port = free_port()
    password = secrets.token_hex(8)
    with tempfile.TemporaryDirectory(prefix="cairn-proxy-") as name:
        command = [_program(PROGRAMS / "proxy", "s3-servers"), "--hostname", "127.0.0.1"]
        command += ["--port", str(port), "--num-workers", "1", "--num-acceptors", "1"]
        command += ["--basic-auth", f"cairn:{password}", "--data-dir", name]

        def accepts() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        with _running(command, {}, Path(name), accepts):
            yield f"http://cairn:{password}@127.0.0.1:{port}"


@pytest.fixture
def customer_key_bucket(tls_server: S3Endpoint, http_proxy: str) -> Iterator[S3Bucket]:
    """A bucket behind a proxy, whose objects are encrypted with the customer's key."""
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    settings = {"sse_customer_key": key, "proxy_url": http_proxy}
    with fresh_bucket(tls_server) as bucket:
        yield replace(bucket, endpoint=replace(tls_server, more_settings=settings))
