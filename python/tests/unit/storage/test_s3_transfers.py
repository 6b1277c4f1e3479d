"""How files travel to and from S3: one request each, as many at once as the caller has threads."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, cast
from urllib.parse import urlsplit

import pytest

from cairn.checksum import crc32c_file
from cairn.storage.base import ObjectStore
from cairn.storage.open import open_store
from cairn.storage.s3.requests import S3Requests
from cairn.storage.s3.transfer import upload_parts

THREADS = 8
FULL_SST_BYTES = (16 << 20) + 64 * 1024
"""What RocksDB makes of a target of 16 MiB."""


class MeetingServer:
    """Stores objects like S3; requests are answered once ``THREADS`` of them are in progress."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        self.meeting = threading.Barrier(THREADS)
        self.is_alone = False
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                served.count("PUT")
                served.objects[urlsplit(self.path).path] = body
                self._reply(b"")

            def do_GET(self) -> None:
                served.count("GET")
                self._reply(served.objects[urlsplit(self.path).path])

            def do_POST(self) -> None:
                served.count("POST")
                self.send_error(501)  # no multipart upload

            def _reply(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("ETag", '"0"')
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def count(self, method: str) -> None:
        """Count a request and wait for the others."""
        self.counts[method] += 1
        if not self.is_alone:
            self.meeting.wait(30)

    def close(self) -> None:
        """End the server."""
        self.meeting.abort()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[MeetingServer]:
    """A server for one test."""
    meeting = MeetingServer()
    yield meeting
    meeting.close()


def open_at(server: MeetingServer) -> ObjectStore:
    """Open a store at the server, without retries."""
    settings = {
        "endpoint_url": server.url,
        "access_key": "key",
        "secret_key": "secret",
        "max_attempts": "1",
        "read_timeout_ms": "60000",
    }
    return open_store("s3://bucket/state/0/0", settings)


def test_full_ssts_use_all_threads_with_one_request_each(
    server: MeetingServer, tmp_path: Path
) -> None:
    """The settings of threads must have an effect on the most common files."""
    source = tmp_path / "000007.sst"
    source.write_bytes(os.urandom(1 << 16) * (FULL_SST_BYTES >> 16))
    checksum = crc32c_file(source)

    def upload(number: int) -> None:
        store.upload(f"sst/{number}.sst", source, crc32c=checksum)

    def download(number: int) -> Path:
        target = tmp_path / f"{number}.sst"
        store.download(f"sst/{number}.sst", target, size_bytes=FULL_SST_BYTES, crc32c=checksum)
        return target

    with open_at(server) as store, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(upload, range(THREADS)))
        targets = list(threads.map(download, range(THREADS)))

    assert server.counts == {"PUT": THREADS, "GET": THREADS}
    assert all(crc32c_file(target) == checksum for target in targets)


def test_a_file_of_64_mib_is_one_request(server: MeetingServer, tmp_path: Path) -> None:
    """The parts of a multipart upload are paid for, and need two requests more."""
    server.is_alone = True
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        file.truncate(64 << 20)
    checksum = crc32c_file(source)

    with open_at(server) as store:
        store.upload("sst/7.sst", source, crc32c=checksum)
        store.download("sst/7.sst", target, size_bytes=64 << 20, crc32c=checksum)

    assert server.counts == {"PUT": 1, "GET": 1}
    assert crc32c_file(target) == checksum


class Parts:
    """Stands for ``S3Requests``; notes the requests."""

    encryption: ClassVar[dict[str, str]] = {}

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def call(self, operation: str, _key: str, **_: object) -> dict[str, str]:
        """Answer a request."""
        self._log.append(operation)
        return {"UploadId": "1", "ETag": "2"}


def test_each_part_shows_that_an_upload_moves(tmp_path: Path) -> None:
    """A commit may wait for a file that takes hours; it must see that it is not in vain."""
    (tmp_path / "file").write_bytes(bytes(20 << 20))
    log: list[str] = []
    requests = cast("S3Requests", Parts(log))

    upload_parts(requests, "k", tmp_path / "file", 20 << 20, {}, {}, lambda: log.append("moved"))

    parts = ["UploadPart", "moved"] * 3
    assert log == ["CreateMultipartUpload", *parts, "CompleteMultipartUpload"]
