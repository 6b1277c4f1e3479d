"""Every request that a MinIO server answered, with the prefix that a listing asked for.

The harness's audit server keeps keys only; a provider that lists must be charged for its listings
too.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

QUIET_S = 2.0
POLL_S = 0.2


@dataclass(frozen=True)
class Request:
    """One request: its API, and the key or the listed prefix."""

    api: str
    key: str
    status: int


class RequestLog:
    """The other end of MinIO's audit webhook, up between ``__enter__`` and ``__exit__``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[Request] = []
        self._arrived = time.monotonic()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                owner._take(body)  # its own inner half

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def minio_environment(self) -> dict[str, str]:
        """What makes MinIO report here."""
        port = self._server.server_address[1]
        return {
            "MINIO_AUDIT_WEBHOOK_ENABLE_BENCH": "on",
            "MINIO_AUDIT_WEBHOOK_ENDPOINT_BENCH": f"http://127.0.0.1:{port}/",
        }

    def requests(self) -> list[Request]:
        """Requests reported since the last ``restart``."""
        with self._lock:
            return list(self._requests)

    def settle(self) -> None:
        """Wait until no report has arrived for two seconds: they come after the answers."""
        while time.monotonic() - self._arrived < QUIET_S:
            time.sleep(POLL_S)

    def restart(self) -> None:
        """Forget what was reported so far, once all of it has arrived."""
        self.settle()
        with self._lock:
            self._requests.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _take(self, body: bytes) -> None:
        for line in body.splitlines():
            report = json.loads(line)
            api = report.get("api") or {}
            if not api.get("name"):
                continue
            query = report.get("requestQuery") or {}
            key = api.get("object") or query.get("prefix") or ""
            with self._lock:
                self._requests.append(Request(api["name"], key, int(api.get("statusCode", 0))))
                self._arrived = time.monotonic()
