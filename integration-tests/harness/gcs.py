"""fake-gcs-server, an emulator of Google's object storage, on loopback, for `gs://`.

`make gcs` builds it, and fetches Google's connector for Hadoop. Hadoop's own connector cannot be
tested: it reaches no other host than the service's.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from harness.hdfs import hadoop_server
from harness.processes import end_child, free_port, server_environment, wait_until_serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.storage.hadoop.server import FileServer

BUILD = Path(__file__).resolve().parents[2] / ".build"
PROGRAM = BUILD / "tools" / "fake-gcs-server"
GCS_JARS = BUILD / "gcs-jars"
BUCKET = "cairn"
STOP_TIMEOUT_S = 10.0


class GcsServer:
    """The emulator between ``__enter__`` and ``__exit__``; its objects are in its memory.

    Attributes:
        url: of a bucket, without a slash at the end.
        conf: Hadoop's settings for it.
    """

    def __init__(self) -> None:
        self.url = f"gs://{BUCKET}"
        self.conf: dict[str, str] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            RuntimeError, TimeoutError: it is not built, or did not start; the message has its log.
        """
        if not PROGRAM.exists():
            raise RuntimeError(f"{PROGRAM} is missing: run `make gcs`")
        self._folder = tempfile.TemporaryDirectory(prefix="cairn-gcs-")
        address = f"127.0.0.1:{free_port()}"
        log = Path(self._folder.name, "gcs.log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    str(PROGRAM),
                    *("-host", "127.0.0.1", "-port", address.rpartition(":")[2]),
                    *("-scheme", "http", "-backend", "memory"),
                    *("-public-host", address, "-external-url", f"http://{address}"),
                ],
                env=server_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            buckets = f"http://{address}/storage/v1/b?project=cairn"
            wait_until_serving(self._process, buckets, "fake-gcs-server", log)
            request = urllib.request.Request(buckets, json.dumps({"name": BUCKET}).encode())
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - loopback
                pass
        except BaseException:
            self.__exit__()
            raise
        package = "com.google.cloud.hadoop.fs.gcs."
        self.conf = {
            "fs.gs.impl": package + "GoogleHadoopFileSystem",
            "fs.AbstractFileSystem.gs.impl": package + "GoogleHadoopFS",
            "fs.gs.storage.root.url": f"http://{address}/",
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": "cairn",
            # A request that fake-gcs-server does not know.
            "fs.gs.operation.move.enable": "false",
            # Hadoop 3.5's default is "64m", which Google's connector cannot read.
            "fs.gs.block.size": str(64 << 20),
        }
        return self

    def __exit__(self, *_: object) -> None:
        """End it; its objects are gone."""
        if self._process is not None:
            end_child(self._process, STOP_TIMEOUT_S)
        if self._folder is not None:
            self._folder.cleanup()


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
