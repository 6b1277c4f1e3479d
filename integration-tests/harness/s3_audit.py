"""Every request that a MinIO server answered, one by one, by its audit webhook.

MinIO's totals say how many requests of a kind there were; this says by whom and on what, so that a
test can say "under ``state/``, by our client: four PutObject a batch and nothing else".
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
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

CAIRN_USER_AGENT = "cairn-state"
_MARK = "audit-mark-"
_MARK_AGAIN_S = 3.0
_QUIET_S = 0.3
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class AuditEntry:
    """One request, answered; ``key`` of a listing is the prefix that it asked for."""

    api: str
    bucket: str
    key: str
    status: int
    user_agent: str


class AuditServer:
    """The other end of the webhook, up between ``__enter__`` and ``__exit__``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[AuditEntry] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
                owner._take(body)

            def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the base class has it
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def minio_environment(self) -> dict[str, str]:
        """What makes MinIO report here."""
        port = self._server.server_address[1]
        return {
            "MINIO_AUDIT_WEBHOOK_ENABLE_CAIRN": "on",
            "MINIO_AUDIT_WEBHOOK_ENDPOINT_CAIRN": f"http://127.0.0.1:{port}/",
        }

    def entries(self) -> list[AuditEntry]:
        """Return what has been reported so far, in order of arrival."""
        with self._lock:
            return list(self._entries)

    def clear(self) -> None:
        """Forget what has been reported so far."""
        with self._lock:
            self._entries.clear()

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
        audit: where the reports arrive.
        client: boto3's, for the test itself.
        bucket: the bucket's name.
        settings: what ``cairn.storage.open.open_store`` takes.
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
        """Count from here on."""
        self.settled()
        self.audit.clear()

    def settled(self) -> list[AuditEntry]:
        """Return all requests so far; waits until the server has reported the last one.

        Raises:
            TimeoutError: it does not within a minute.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        mark, sent_at, count = "", -math.inf, -1
        while time.monotonic() < deadline:
            entries = self.audit.entries()
            is_reported = any(entry.key == mark for entry in entries)
            # Reports of requests that ran at once may overtake one another.
            if is_reported and len(entries) == count:
                return [entry for entry in entries if not entry.key.startswith(_MARK)]
            # A server that has just started reports nothing yet.
            if not is_reported and time.monotonic() - sent_at > _MARK_AGAIN_S:
                mark, sent_at = _MARK + uuid.uuid4().hex, time.monotonic()
                with suppress(self.client.exceptions.ClientError):
                    self.client.head_object(Bucket=self.bucket, Key=mark)
            count = len(entries)
            time.sleep(_QUIET_S)
        message = "the server's audit reports did not arrive"
        raise TimeoutError(message)

    def counted(
        self,
        prefix: str,
        *,
        user_agent: str = CAIRN_USER_AGENT,
        leave_out: tuple[str, ...] = (),
    ) -> dict[str, int]:
        """Return how many requests of each kind touched keys under ``prefix``.

        A listing of more than that counts too.

        Args:
            prefix: of the key.
            user_agent: a part of the client's; empty for all clients.
            leave_out: parts of keys that do not count, for instance ``/snapshot/``.
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
        """Assert that Cairn made exactly these requests under ``prefix``."""
        found = self.counted(prefix, leave_out=leave_out)
        assert found == expected, f"under {prefix}: {found}, expected {expected}"
