"""A MinIO server process with its own data directory, on a free loopback port."""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from harness.processes import end_child, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_NOT_READY = "XMinioServerNotInitialized"


def find_minio_binary() -> Path | None:
    """Return ``CAIRN_TEST_MINIO_BINARY``, else the binary of `make minio`, else ``None``."""
    named = os.environ.get("CAIRN_TEST_MINIO_BINARY")
    if named:
        path = Path(named)
        if not path.is_file():
            message = f"CAIRN_TEST_MINIO_BINARY is not a file: {path}"
            raise FileNotFoundError(message)
        return path
    built = REPOSITORY / ".build" / "tools" / "minio"
    return built if built.is_file() else None


def s3_client(
    endpoint_url: str,
    access_key: str,
    secret_key: str,
    region: str = "us-east-1",
    ca_bundle: str | None = None,
) -> Any:  # noqa: ANN401 - boto3's client classes exist only at run time
    """Return a plain boto3 client, to inspect what Cairn wrote."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=region,
        verify=ca_bundle,
        config=Config(s3={"addressing_style": "path"}, user_agent_extra="cairn-harness"),
    )


def await_health(endpoint_url: str, log: Callable[[], str], ca_bundle: str | None = None) -> None:
    """Wait until a MinIO server is healthy.

    Args:
        endpoint_url: URL of the server.
        log: returns the server's output; may raise if the server has ended.
        ca_bundle: file of the certificates to trust.

    Raises:
        TimeoutError: it is not healthy within 30 s; the message contains the log.
    """
    tls = ssl.create_default_context(cafile=ca_bundle) if ca_bundle else None
    url = f"{endpoint_url}/minio/health/live"
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            # The tests' own server, on loopback.
            with urllib.request.urlopen(url, timeout=2, context=tls):  # noqa: S310
                return
        except (urllib.error.URLError, OSError):
            printed = log()
            if time.monotonic() > deadline:
                message = f"minio is not up after {_START_TIMEOUT_S} s:\n{printed}"
                raise TimeoutError(message) from None
        time.sleep(0.05)


def await_users(client: Any) -> None:  # noqa: ANN401 - as above
    """Wait until a healthy MinIO server knows its users: until then it refuses requests.

    Args:
        client: of the server; closed.
    """

    def knows_users() -> bool:
        try:
            client.list_buckets()
        except ClientError as error:
            if _NOT_READY in str(error):
                return False
            raise
        return True

    try:
        wait_until(knows_users, _START_TIMEOUT_S, "minio to know its users")
    finally:
        client.close()


def create_certificate(folder: Path) -> None:
    """Write ``public.crt`` and ``private.key`` of a server on 127.0.0.1, for two days."""
    folder.mkdir()
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(folder / "private.key"), "-out", str(folder / "public.crt")]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)


class MinioProcess:
    """A MinIO server from the binary, up between ``__enter__`` and ``__exit__``.

    Counters are public: ``<endpoint_url>/minio/v2/metrics/cluster``.

    Args:
        binary: the MinIO program.
        environment: further environment variables of the server.
        folder: an existing folder for data and log, which is kept; default: a temporary one.
        has_tls: the server has a certificate of its own, ``ca_bundle``.
    """

    def __init__(
        self,
        binary: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        *,
        has_tls: bool = False,
    ) -> None:
        self.access_key = "cairn" + secrets.token_hex(4)
        self.secret_key = secrets.token_hex(16)
        self.endpoint_url = ""
        self._binary = binary
        self._environment = dict(environment or {})
        self._folder = folder
        self._has_tls = has_tls
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The server's process id. REQUIRES: it runs."""
        assert self._process is not None
        return self._process.pid

    @property
    def ca_bundle(self) -> str | None:
        """File of the certificates to trust; ``None`` without TLS. REQUIRES: it runs."""
        return str(self._certificates / "public.crt") if self._has_tls else None

    @property
    def _certificates(self) -> Path:
        return self._directory / "certificates"

    def log(self) -> str:
        """Return the server's output so far."""
        path = self._directory / "minio.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def client(self) -> Any:  # noqa: ANN401 - boto3's client classes exist only at run time
        """Return an S3 client for this server."""
        return s3_client(
            self.endpoint_url, self.access_key, self.secret_key, ca_bundle=self.ca_bundle
        )

    def request_counts(self) -> dict[str, int]:
        """Return MinIO's counts of answered requests since the start, by S3 operation."""
        counts: dict[str, int] = {}
        url = f"{self.endpoint_url}/minio/v2/metrics/cluster"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the tests' own server
            for line in answer.read().decode().splitlines():
                if line.startswith("minio_s3_requests_total{"):
                    labels, _, value = line.rpartition(" ")
                    name = labels.partition('api="')[2].partition('"')[0]
                    counts[name] = counts.get(name, 0) + int(float(value))
        return counts

    def __enter__(self) -> Self:
        self._directory = self._folder or Path(tempfile.mkdtemp(prefix="cairn-minio-"))
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        port, console_port = free_port(), free_port()
        self.endpoint_url = f"{'https' if self._has_tls else 'http'}://127.0.0.1:{port}"
        if self._has_tls:
            create_certificate(self._certificates)
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self._directory),
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            **self._environment,
        }
        with (self._directory / "minio.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binary),
                    "server",
                    f"--address=127.0.0.1:{port}",
                    f"--console-address=127.0.0.1:{console_port}",
                    f"--certs-dir={self._certificates}",
                    str(self._directory / "data"),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C goes to the caller, which ends the server
            )
        await_health(self.endpoint_url, self._log_if_ended, self.ca_bundle)
        await_users(self.client())

    def _log_if_ended(self) -> str:
        assert self._process is not None
        if self._process.poll() is not None:
            message = f"minio ended with {self._process.returncode}:\n{self.log()}"
            raise RuntimeError(message)
        return self.log()

    def _stop(self) -> None:
        if self._process is not None:
            end_child(self._process, _STOP_TIMEOUT_S)
        if self._folder is None:
            shutil.rmtree(self._directory, ignore_errors=True)
