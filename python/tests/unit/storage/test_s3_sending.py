"""How long S3 may take to receive a request: it may be slow, but it must not stand still."""

from __future__ import annotations

import ssl
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
        threading.Event().wait(0.8)
        return stream.read(length)

    stub.read_body = pause_first

    with open_at(stub, tmp_path, connect_ms=400, read_ms=30_000) as store:
        for key in ("sst/1.sst", "sst/2.sst"):  # the second one on the same connection
            store.upload(key, source, crc32c=crc32c_file(source))

    assert [len(put.body) for put in stub.of("PUT")] == [SIZE, SIZE]


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
