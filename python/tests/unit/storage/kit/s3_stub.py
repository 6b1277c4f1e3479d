"""An S3 server of a test's own: it keeps objects in memory, notes requests, and refuses on demand.

It knows as much of S3 as ``S3Store`` needs, and checks no signature. For what real servers do, the
contract suite runs against them.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from io import BufferedIOBase

_DATE = "Mon, 02 Jan 2023 00:00:00 GMT"


@dataclass
class Request:
    """A request as it arrived; ``key`` has bucket and key."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        """Bucket and key, without the query."""
        return urlsplit(self.path).path.lstrip("/")

    @property
    def access_key(self) -> str:
        """The key that signed the request; empty if it is not signed."""
        credential = self.headers.get("authorization", "").partition("Credential=")[2]
        return credential.partition("/")[0]


Answer = tuple[int, dict[str, str], bytes]


def refusal(status: int, code: str) -> Answer:
    """Return an error of S3."""
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
    return status, {"Content-Type": "application/xml"}, body


@dataclass
class S3Stub:
    """The server; up between ``__enter__`` and ``__exit__``.

    Attributes:
        answer: asked first; ``None``: the server does as S3 does.
        tls: serves HTTPS.
        ignores_conditions: PUTs always succeed.
        read_body: reads the body of a request, of a given length; a shorter one has no answer.
    """

    answer: Callable[[Request], Answer | None] = lambda _: None
    tls: ssl.SSLContext | None = None
    ignores_conditions: bool = False
    read_body: Callable[[BufferedIOBase, int], bytes] = lambda stream, length: stream.read(length)
    requests: list[Request] = field(default_factory=list)
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = stub.read_body(self.rfile, length)
                if len(body) < length:  # the client has given up
                    self.close_connection = True
                    return
                request = Request(self.command, self.path, headers, body)
                with stub.lock:
                    stub.requests.append(request)
                status, sent, answer = stub.answer(request) or stub.serve(request)
                self.send_response(status)
                for name, value in sent.items():
                    self.send_header(name, value)
                if "Content-Length" not in sent:
                    self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                if self.command != "HEAD":
                    with suppress(ConnectionError):  # the client has read enough
                        self.wfile.write(answer)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The endpoint."""
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a store on this server."""
        keys = {"access_key": "AK", "secret_key": "SK"}
        return {"endpoint_url": self.url, "region": "us-east-1", "max_attempts": "1", **keys}

    def of(self, method: str) -> list[Request]:
        """Return the requests of a method, so far."""
        with self.lock:
            return [request for request in self.requests if request.method == method]

    def serve(self, request: Request) -> Answer:
        """Answer as S3 does."""
        with self.lock:
            present = self.objects.get(request.key)
            if request.method == "PUT":
                return self._put(request, present)
            if request.method == "DELETE":
                self.objects.pop(request.key, None)
                return 204, {}, b""
            if request.method == "POST":
                return 200, {"Content-Type": "application/xml"}, b"<DeleteResult></DeleteResult>"
            if "list-type" in parse_qs(urlsplit(request.path).query):
                return self._list(request)
            if present is None:
                return refusal(404, "NoSuchKey")
            data, metadata = present
            headers = {**_described(data), "Content-Length": str(len(data)), **metadata}
            return 200, headers, data

    def _put(self, request: Request, present: tuple[bytes, dict[str, str]] | None) -> Answer:
        if not self.ignores_conditions:
            etag = request.headers.get("if-match")
            if present is None and etag is not None:
                return refusal(404, "NoSuchKey")
            if present is not None and "if-none-match" in request.headers:
                return refusal(412, "PreconditionFailed")
            if present is not None and etag not in (None, _described(present[0])["ETag"]):
                return refusal(412, "PreconditionFailed")
        kept = {k: v for k, v in request.headers.items() if k.startswith("x-amz-meta-")}
        self.objects[request.key] = request.body, kept
        return 200, {**_described(request.body), "Date": formatdate(usegmt=True)}, b""

    def _list(self, request: Request) -> Answer:
        prefix = parse_qs(urlsplit(request.path).query).get("prefix", [""])[0]
        bucket = request.key
        items = "".join(
            f"<Contents><Key>{key.removeprefix(bucket + '/')}</Key><Size>{len(data)}</Size>"
            "<LastModified>2023-01-02T00:00:00.000Z</LastModified></Contents>"
            for key, (data, _) in sorted(self.objects.items())
            if key.startswith(f"{bucket}/{prefix}")
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        return 200, {"Content-Type": "application/xml"}, body.encode()


def _described(data: bytes) -> dict[str, str]:
    etag = hashlib.md5(data).hexdigest()  # noqa: S324 - S3's own
    return {"ETag": f'"{etag}"', "Last-Modified": _DATE}
