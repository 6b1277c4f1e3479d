"""Azurite, an emulator of Azure's blob storage, on loopback, for `abfs://`.

It is an npm package, which `make azurite` installs. It loses races of conditional requests, so no
test has any there.
"""

from __future__ import annotations

import base64
import secrets
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from harness.hdfs import ABFS_JARS, hadoop_server
from harness.processes import end_child, free_port, server_environment, wait_until_serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.storage.hadoop.server import FileServer

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = REPOSITORY / ".build" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
ACCOUNT = "devstoreaccount1"
HOST = f"{ACCOUNT}.dfs.core.windows.net"
STOP_TIMEOUT_S = 10.0


class Azurite:
    """The emulator between ``__enter__`` and ``__exit__``.

    Attributes:
        url: of a container, without a slash at the end.
        conf: Hadoop's settings for it.
    """

    def __init__(self) -> None:
        self.url = f"abfs://cairn@{HOST}"
        self.conf: dict[str, str] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            RuntimeError, TimeoutError: it is not installed, or did not start; the message has its
                log.
        """
        if not PROGRAM.exists():
            raise RuntimeError("there is no Azurite to start: run `make azurite`")
        self._folder = tempfile.TemporaryDirectory(prefix="cairn-azurite-")
        port, key = free_port(), base64.b64encode(secrets.token_bytes(32)).decode()
        log = Path(self._folder.name, "azurite.log")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    str(PROGRAM),
                    *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
                    *("--location", self._folder.name),
                    *("--skipApiVersionCheck", "--loose", "--silent", "--disableTelemetry"),
                ],
                env={**server_environment(), "AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until_serving(self._process, f"http://127.0.0.1:{port}/", "Azurite", log)
        except BaseException:
            self.__exit__()
            raise
        azure = "fs.azure."
        self.conf = {
            azure + "abfs.endpoint": f"127.0.0.1:{port}",
            azure + f"account.key.{HOST}": key,
            azure + "account.hns.enabled": "false",
            azure + "fns.account.service.type": "BLOB",
            azure + "ingress.service.type": "BLOB",
            azure + "always.use.https": "false",
            azure + "networking.library": "JDK_HTTP_URL_CONNECTION",
            azure + "createRemoteFileSystemDuringInitialization": "true",
        }
        return self

    def __exit__(self, *_: object) -> None:
        """End it and remove its data."""
        if self._process is not None:
            end_child(self._process, STOP_TIMEOUT_S)
        if self._folder is not None:
            self._folder.cleanup()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """The Azurite of this test run."""
    with Azurite() as started:
        yield started


@pytest.fixture(scope="session")
def abfs_files(azurite: Azurite) -> Iterator[FileServer]:
    """A JVM that serves its container to this process."""
    with hadoop_server(azurite.url, azurite.conf, ABFS_JARS) as server:
        yield server
