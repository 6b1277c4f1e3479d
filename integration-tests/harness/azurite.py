"""Azurite, an emulator of Azure's blob storage, on loopback, for `abfs://`.

It is an npm package, which `make azurite` installs. It loses races of conditional requests, so no
test has any there.
"""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.emulator import Emulator
from harness.hdfs import ABFS_JARS, hadoop_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cairn.storage.hadoop.server import FileServer

BUILD = Path(__file__).resolve().parents[2] / ".build"
ACCOUNT = "devstoreaccount1"
HOST = f"{ACCOUNT}.dfs.core.windows.net"


class Azurite(Emulator):
    """Azurite with one container and a random key."""

    program = BUILD / "azurite" / "node_modules" / ".bin" / "azurite-blob"
    made_by = "make azurite"

    def __init__(self) -> None:
        super().__init__(f"abfs://cairn@{HOST}")
        self._key = base64.b64encode(secrets.token_bytes(32)).decode()

    def _command(self, port: int) -> list[str]:
        return [
            *("--blobHost", "127.0.0.1", "--blobPort", str(port)),
            *("--location", "."),
            *("--skipApiVersionCheck", "--loose", "--silent", "--disableTelemetry"),
        ]

    def _environment(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self._key}"}

    def _prepare(self, port: int) -> dict[str, str]:
        azure = "fs.azure."
        return {
            azure + "abfs.endpoint": f"127.0.0.1:{port}",
            azure + f"account.key.{HOST}": self._key,
            azure + "account.hns.enabled": "false",
            azure + "fns.account.service.type": "BLOB",
            azure + "ingress.service.type": "BLOB",
            azure + "always.use.https": "false",
            azure + "networking.library": "JDK_HTTP_URL_CONNECTION",
            azure + "createRemoteFileSystemDuringInitialization": "true",
        }


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
