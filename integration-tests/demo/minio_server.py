"""A MinIO of the demo's own: on a free loopback port, in a folder of its own, ended by its id."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import boto3

START_TIMEOUT_S = 30.0


class MinioServer:
    """A running MinIO with one empty bucket.

    Args:
        binary: the program, as `make minio` builds it.
        folder: for data and log; must exist.
        bucket: is made.
    """

    def __init__(self, binary: Path, folder: Path, bucket: str) -> None:
        self.bucket = bucket
        self.access_key = "demo"
        self.secret_key = secrets.token_urlsafe(24)
        self.endpoint = f"http://127.0.0.1:{_free_port()}"
        # Credentials go by environment, where other users of the machine cannot read them.
        environment = {
            **os.environ,
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_PROMETHEUS_AUTH_TYPE": "public",
        }
        address = self.endpoint.removeprefix("http://")
        self._log = folder / "minio.log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [str(binary), "server", str(folder / "data"), "--address", address, "--quiet"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C is for the demo, which ends this in its turn
            )
        try:
            self._wait_until_healthy()
            self.client().create_bucket(Bucket=bucket)
        except BaseException:
            self.end()
            raise

    def client(self) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
        """Return an S3 client for this server."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        )

    def request_counts(self) -> dict[str, int]:
        """Requests answered since the start, by S3 operation, by MinIO's own counters."""
        counts: dict[str, int] = {}
        url = f"{self.endpoint}/minio/v2/metrics/cluster"
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - our own server
            for line in answer.read().decode().splitlines():
                if line.startswith("minio_s3_requests_total{"):
                    labels, _, value = line.rpartition(" ")
                    name = labels.partition('api="')[2].partition('"')[0]
                    counts[name] = counts.get(name, 0) + int(float(value))
        return counts

    def end(self) -> None:
        """End the server; its folder is the caller's."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                break
            try:
                url = f"{self.endpoint}/minio/health/live"
                with urllib.request.urlopen(url, timeout=1):  # noqa: S310 - our own server
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError(f"MinIO did not start: {self._log.read_text(errors='replace')[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
