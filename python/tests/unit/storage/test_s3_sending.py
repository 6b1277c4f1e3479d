"""How long S3 may take to receive a request: it may be slow, but it must not stand still."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from s3_stub import S3Stub

from cairn.checksum import crc32c_file
from cairn.errors import UnavailableError
from cairn.storage.open import open_store
from harness.minio import create_certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase
    from pathlib import Path

    from cairn.storage.base import ObjectStore

SIZE = 24 << 20
"""More than the system keeps between two sockets of one machine."""


@pytest.fixture(params=["http", "https"])
def stub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[S3Stub]:
    """A server, without and with TLS."""
    tls = None
    if request.param == "https":
        create_certificate(tmp_path / "tls")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(tmp_path / "tls" / "public.crt", tmp_path / "tls" / "private.key")
    with S3Stub(tls=tls) as stub:
        yield stub


def open_at(stub: S3Stub, tmp_path: Path, *, connect_ms: int, read_ms: int) -> ObjectStore:
    """Open a store with these limits."""
    limits = {"connect_timeout_ms": str(connect_ms), "read_timeout_ms": str(read_ms)}
    if stub.tls is not None:
        limits["ca_bundle"] = str(tmp_path / "tls" / "public.crt")
    return open_store("s3://bucket/state", {**stub.settings, **limits})


def test_a_server_may_take_a_body_later_than_it_accepts_a_connection(
    stub: S3Stub, tmp_path: Path
) -> None:
    """On a slow link each PUT of an SST failed, after the limit of connecting."""
    source = tmp_path / "source"
    source.write_bytes(bytes(SIZE))

    def pause_first(stream: BufferedIOBase, length: int) -> bytes:
        threading.Event().wait(0.8)  # this time is the subject: twice the limit of connecting
        return stream.read(length)

    stub.read_body = pause_first

    with open_at(stub, tmp_path, connect_ms=400, read_ms=30_000) as store:
        for key in ("sst/1.sst", "sst/2.sst"):  # the second one on the same connection
            store.upload(key, source, crc32c=crc32c_file(source))

    assert [len(put.body) for put in stub.of("PUT")] == [SIZE, SIZE]


IMPORTS = """
from botocore import awsrequest, handlers, httpsession
import boto3.session
from cairn.storage.open import open_store
"""
POOLS_UNDER_ANOTHER_NAME = """
init = httpsession.URLLib3Session.__init__
def renamed(self, *args, **kwargs):
    init(self, *args, **kwargs)
    self.pools = self.__dict__.pop("_pool_classes_by_scheme")
httpsession.URLLib3Session.__init__ = renamed
"""
POOLS_BY_A_FUNCTION = """
pool = awsrequest.AWSHTTPConnectionPool
awsrequest.AWSHTTPConnectionPool = lambda *args, **kwargs: pool(*args, **kwargs)
"""
CONNECTIONS_WITHOUT_LIMIT = """
awsrequest.AWSHTTPConnection.timeout = property(lambda self: None, lambda self, value: None)
"""
NO_HANDLER = "del handlers.add_expect_header"


def put_in_new_process(stub: S3Stub, patch: str, packages: Path | None = None) -> list[str]:
    """Put an object by each of two stores, after a patch of botocore; return what is logged.

    Args:
        stub: the server.
        patch: a piece of program, before the puts.
        packages: a folder of packages that come before those of the environment.
    """
    puts = f"""
for name in ("first", "second"):
    with open_store("s3://bucket/state", {stub.settings!r}) as store:
        store.put(name, name.encode())
"""
    done = subprocess.run(  # noqa: S603 - the lines of this file
        [sys.executable, "-c", IMPORTS + patch + puts],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=None if packages is None else {**os.environ, "PYTHONPATH": str(packages)},
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("stub", ["http"], indirect=True)
def test_the_installed_botocore_has_the_parts(stub: S3Stub) -> None:
    """If this fails, users of the release have neither the limit nor PUTs of one round trip."""
    assert put_in_new_process(stub, "") == []


@pytest.mark.slow
@pytest.mark.parametrize("stub", ["http"], indirect=True)
def test_the_newest_botocore_has_the_parts(stub: S3Stub, tmp_path: Path) -> None:
    """Pip installs it for users, also if it is newer than the release of Cairn."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", "--target", str(tmp_path), "boto3"], check=True, timeout=300)  # noqa: S603
    is_newest = f"import botocore; assert botocore.__file__.startswith({str(tmp_path)!r})\n"

    assert put_in_new_process(stub, is_newest, tmp_path) == []


@pytest.mark.parametrize("stub", ["http"], indirect=True)
@pytest.mark.parametrize(
    ("patch", "effect"),
    [
        (POOLS_UNDER_ANOTHER_NAME, "connectTimeoutMs"),
        (POOLS_BY_A_FUNCTION, "connectTimeoutMs"),
        (CONNECTIONS_WITHOUT_LIMIT, "connectTimeoutMs"),
        (NO_HANDLER, "one round trip more"),
    ],
)
def test_a_botocore_without_the_parts_costs_what_they_gain(
    stub: S3Stub, patch: str, effect: str
) -> None:
    """Pip installs the newest one, and every job on S3 would stop."""
    logged = put_in_new_process(stub, patch)

    assert [put.body for put in stub.of("PUT")] == [b"first", b"second"]
    assert len(logged) == 1
    assert effect in logged[0]
    assert "botocore" in logged[0]


@pytest.mark.parametrize("stub", ["http"], indirect=True)
def test_a_server_that_takes_nothing_is_given_up(stub: S3Stub, tmp_path: Path) -> None:
    """A task must not wait for ever."""
    release = threading.Event()

    def wait(_stream: BufferedIOBase, _length: int) -> bytes:
        release.wait(30)
        return b""

    stub.read_body = wait

    with open_at(stub, tmp_path, connect_ms=20_000, read_ms=500) as store:
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            store.put("changelog/1.arrow", bytes(SIZE))
        took_s = time.monotonic() - began

    release.set()
    assert took_s < 10
