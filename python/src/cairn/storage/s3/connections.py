"""open_connections: connections to a bucket that are open before a request needs them.

Layer: storage. A new connection costs one round trip, with TLS two or three. No request is sent.

botocore has no public way to do this: the functions here reach into its HTTP session and into the
pool of urllib3. ``integration-tests/storage/test_s3_requests.py`` fails if a new release of them
does not work in this way.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cairn.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client

CONNECTIONS = 4
"""As many as the task slots that one worker serves by default."""
_CHECK_INTERVAL_NS = 5_000_000_000


class ConnectionKeeper:
    """Decides when the connections of a client are worth a look. Thread-safe.

    Servers close connections that are idle for some seconds, so a look is repeated, but at most
    once in five seconds.

    Args:
        open_soon: opens the connections to a bucket, in another thread.
        clock: measures the interval.
    """

    def __init__(self, open_soon: Callable[[str], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._open_soon = open_soon
        self._clock = clock
        self._lock = threading.Lock()
        self._checked_ns: dict[str, int] = {}

    def prepare(self, bucket: str) -> None:
        """Open the connections to a bucket soon, unless that was done just now."""
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            checked_ns = self._checked_ns.get(bucket)
            if checked_ns is not None and now_ns - checked_ns < _CHECK_INTERVAL_NS:
                return
            self._checked_ns[bucket] = now_ns
        self._open_soon(bucket)


def open_connections(s3: S3Client, bucket: str) -> None:
    """Open connections to a bucket until ``CONNECTIONS`` of the client's pool are open.

    Connections that the server has closed are opened again. It does nothing behind a proxy, and
    nothing is reported if it fails: each request opens the connection that it lacks.
    """
    try:
        _open(s3, bucket)
    except Exception:  # noqa: BLE001 - the next request reports what is wrong
        return


def bucket_url(s3: S3Client, bucket: str) -> str:
    """Return the URL of requests to a bucket, with the rules for host style and regions.

    That of a presigned request has AWS's global host where these have that of the region.
    """
    client: Any = s3
    head = client.meta.service_model.operation_model("HeadBucket")
    context = {"client_region": client.meta.region_name, "client_config": client.meta.config}
    url, *_ = client._resolve_endpoint_ruleset(head, {"Bucket": bucket}, context)  # noqa: SLF001
    return str(url)


def _open(s3: S3Client, bucket: str) -> None:
    url = bucket_url(s3, bucket)
    session: Any = s3._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001
    if session._proxy_config.proxy_url_for(url):  # noqa: SLF001
        return
    pool = session._manager.connection_from_url(url)  # noqa: SLF001
    session._setup_ssl_cert(pool, url, session._verify)  # noqa: SLF001
    taken = []
    try:
        for _ in range(CONNECTIONS):
            connection = pool._get_conn()  # noqa: SLF001 - closes it if the server has done so
            taken.append(connection)
            if connection.is_closed:
                connection.connect()
    finally:
        for connection in taken:
            pool._put_conn(connection)  # noqa: SLF001
