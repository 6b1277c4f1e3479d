"""fake-gcs-server, an emulator of Google's object storage, on loopback, for `gs://`.

`make gcs` builds it, and fetches Google's connector for Hadoop. Hadoop's own connector cannot be
tested: it has no setting for the address of the service.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.emulator import Emulator
from harness.hdfs import hadoop_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.storage.hadoop.server import FileServer

BUILD = Path(__file__).resolve().parents[2] / ".build"
GCS_JARS = BUILD / "gcs-jars"
BUCKET = "cairn"


class GcsServer(Emulator):
    """fake-gcs-server with one bucket; its objects are in its memory."""

    program = BUILD / "tools" / "fake-gcs-server"
    made_by = "make gcs"

    def __init__(self) -> None:
        super().__init__(f"gs://{BUCKET}")

    def _command(self, port: int) -> list[str]:
        address = f"127.0.0.1:{port}"
        return [
            *("-host", "127.0.0.1", "-port", str(port)),
            *("-scheme", "http", "-backend", "memory"),
            *("-public-host", address, "-external-url", f"http://{address}"),
        ]

    def _prepare(self, port: int) -> dict[str, str]:
        address = f"http://127.0.0.1:{port}/"
        request = urllib.request.Request(  # noqa: S310 - loopback
            f"{address}storage/v1/b?project=cairn",
            json.dumps({"name": BUCKET}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - loopback
            pass
        package = "com.google.cloud.hadoop.fs.gcs."
        return {
            "fs.gs.impl": package + "GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": package + "GoogleHadoopFS",
            "fs.gs.storage.root.url": address,
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": "cairn",
            # A request that fake-gcs-server does not know.
            "fs.gs.operation.move.enable": "false",
            # Hadoop 3.5's default is "64m", which Google's connector cannot read.
            "fs.gs.block.size": str(64 << 20),
        }


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    """The server of this test run."""
    with GcsServer() as started:
        yield started


@pytest.fixture(scope="session")
def gs_files(gcs: GcsServer) -> Iterator[FileServer]:
    """A JVM that serves its bucket to this process."""
    with hadoop_server(gcs.url, gcs.conf, GCS_JARS) as server:
        yield server
