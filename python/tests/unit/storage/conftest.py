"""The path to the stub of an S3 server, and a record of the S3 clients that were closed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cairn.storage.s3.client import SharedClient

sys.path.insert(0, str(Path(__file__).parent / "kit"))


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[SharedClient]:
    """Return the S3 clients that were closed, in that order."""
    clients: list[SharedClient] = []
    close = SharedClient.close

    def recorded(client: SharedClient) -> None:
        clients.append(client)
        close(client)

    monkeypatch.setattr(SharedClient, "close", recorded)
    return clients
