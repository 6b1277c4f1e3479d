"""S3 servers other than MinIO, for the tests that every S3 server must pass.

    versitygw    objects are files below a folder; `make versitygw` builds it
    moto         objects are in memory; `make moto` installs it; it accepts all credentials

A ``conftest.py`` imports the fixtures.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from harness.processes import end_child, free_port, wait_until
from harness.s3 import S3Endpoint, fresh_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.s3 import S3Bucket

REPOSITORY = Path(__file__).resolve().parents[2]
VERSITYGW = REPOSITORY / ".build" / "tools" / "versitygw"
MOTO = REPOSITORY / ".build" / "moto-venv" / "bin" / "moto_server"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0


def _program(path: Path, verb: str) -> str:
    if not path.is_file():
        pytest.fail(f"{path} is missing: run `make {verb}`")
    return str(path)


@contextmanager
def _running(
    command: Sequence[str], environment: Mapping[str, str], endpoint: S3Endpoint, folder: Path
) -> Iterator[S3Endpoint]:
    """Run a server until the block ends; it is up once it lists its buckets."""
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
    client = endpoint.client()

    def answers() -> bool:
        assert process.poll() is None, log.read_text(errors="replace")
        try:
            client.list_buckets()
        except (BotoCoreError, ClientError):
            return False
        return True

    try:
        wait_until(answers, _START_TIMEOUT_S, command[0], lambda: log.read_text(errors="replace"))
        yield endpoint
    finally:
        client.close()
        end_child(process, _STOP_TIMEOUT_S)


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
        with _running([*command, str(folder / "data")], environment, endpoint, folder):
            yield endpoint


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Endpoint]:
    """A process of moto's server."""
    endpoint = _endpoint("moto")
    port = endpoint.endpoint_url.rpartition(":")[2]
    with tempfile.TemporaryDirectory(prefix="cairn-moto-") as name:
        command = [_program(MOTO, "moto"), "-H", "127.0.0.1", "-p", port]
        with _running(command, {}, endpoint, Path(name)):
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
