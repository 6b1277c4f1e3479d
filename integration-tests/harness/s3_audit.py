"""Records every request that a MinIO server answers, through its audit webhook.

MinIO's counters count requests by kind. The records also have the client and the key, so that a
test can assert "under ``state/``, by Cairn: four PutObject per batch and nothing else".
"""

from __future__ import annotations

import json
import math
import threading
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CAIRN_USER_AGENT = "cairn-state"
_MARK = "audit-mark-"
_MARK_AGAIN_S = 3.0
_QUIET_S = 0.3
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AuditEntry:
    """One answered request; the ``key`` of a listing is its prefix."""

    api: str
    bucket: str
    key: str
    status: int
    user_agent: str


class AuditServer:
    """The receiver of the webhook, up between ``__enter__`` and ``__exit__``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[AuditEntry] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                server.add(body)

            def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base class has it
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def minio_environment(self) -> dict[str, str]:
        """The environment with which MinIO reports to this server."""
        port = self._server.server_address[1]
        return {
            "MINIO_AUDIT_WEBHOOK_ENABLE_CAIRN": "on",
            "MINIO_AUDIT_WEBHOOK_ENDPOINT_CAIRN": f"http://127.0.0.1:{port}/",
        }

    def entries(self) -> list[AuditEntry]:
        """Return the reported requests in order of arrival."""
        with self._lock:
            return list(self._entries)

    def clear(self) -> None:
        """Drop the reported requests."""
        with self._lock:
            self._entries.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, body: bytes) -> None:
        """Note the requests that MinIO reports in the body of one of its own."""
        for line in body.splitlines():
            try:
                report = json.loads(line)
            except ValueError:
                continue
            api = report.get("api") or {}
            if not api.get("name"):
                continue
            query = report.get("requestQuery") or {}
            entry = AuditEntry(
                api["name"],
                api.get("bucket", ""),
                api.get("object") or query.get("prefix") or "",
                int(api.get("statusCode", 0)),
                report.get("userAgent", ""),
            )
            with self._lock:
                self._entries.append(entry)


@dataclass(frozen=True)
class AuditedS3:
    """A server that reports its requests, and a bucket in it.

    Attributes:
        audit: receives the reports.
        client: a boto3 client for the test itself.
        bucket: the bucket's name.
        settings: the settings for ``cairn.storage.open.open_store``.
    """

    audit: AuditServer
    client: Any
    bucket: str
    settings: dict[str, str]

    @property
    def url(self) -> str:
        """The bucket's root, as a checkpoint location names it."""
        return f"s3a://{self.bucket}"

    def restart_count(self) -> None:
        """Count requests from now on."""
        self.settled()
        self.audit.clear()

    def settled(self) -> list[AuditEntry]:
        """Wait until the server has reported all requests so far, and return them.

        Raises:
            TimeoutError: the reports do not arrive within a minute.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        mark, sent_at, count = "", -math.inf, -1
        while time.monotonic() < deadline:
            entries = self.audit.entries()
            is_reported = any(entry.key == mark for entry in entries)
            # Reports of concurrent requests may arrive in another order.
            if is_reported and len(entries) == count:
                return [entry for entry in entries if not entry.key.startswith(_MARK)]
            # A server that has just started does not report yet.
            if not is_reported and time.monotonic() - sent_at > _MARK_AGAIN_S:
                mark, sent_at = _MARK + uuid.uuid4().hex, time.monotonic()
                with suppress(self.client.exceptions.ClientError):
                    self.client.head_object(Bucket=self.bucket, Key=mark)
            count = len(entries)
            time.sleep(_QUIET_S)
        message = "the server's audit reports did not arrive"
        raise TimeoutError(message)

    def counted(
        self, prefix: str, *, user_agent: str = CAIRN_USER_AGENT, leave_out: tuple[str, ...] = ()
    ) -> dict[str, int]:
        """Count the requests of each kind for keys under ``prefix``.

        A listing counts if its results may contain such keys.

        Args:
            prefix: prefix of the key.
            user_agent: part of the client's user agent; empty for all clients.
            leave_out: requests with these parts in their keys do not count.
        """
        counts = Counter(
            entry.api
            for entry in self.settled()
            if entry.bucket == self.bucket
            and user_agent in entry.user_agent
            and (entry.key.startswith(prefix) or prefix.startswith(entry.key))
            and not any(part in entry.key for part in leave_out)
        )
        return dict(counts)

    def assert_only(
        self, prefix: str, expected: dict[str, int], *, leave_out: tuple[str, ...] = ()
    ) -> None:
        """Assert that Cairn sent exactly these requests under ``prefix``."""
        found = self.counted(prefix, leave_out=leave_out)
        assert found == expected, f"under {prefix}: {found}, expected {expected}"
