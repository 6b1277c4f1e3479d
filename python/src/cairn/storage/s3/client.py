"""One S3 client, with its connections, for all stores of equal settings.

Layer: storage. An executor has hundreds of stores. A botocore client is thread-safe, and costs tens
of milliseconds, some megabytes and a connection pool.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import boto3.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.handlers import add_expect_header

from cairn.storage.s3.connections import ConnectionKeeper, open_connections
from cairn.storage.s3.errors import translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cairn.storage.s3.settings import S3Settings

_USER_AGENT = "cairn-state"


class SharedClient:
    """A botocore client; see ``acquire`` and ``release``."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self.s3 = _new_client(settings)
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="cairn-s3")
        self._keeper = ConnectionKeeper(self._open_soon)
        self.users = 0
        # Buckets that honour conditional PUTs: each is probed once, not once per store.
        self.probed_buckets: set[str] = set()

    def prepare(self, bucket: str) -> None:
        """Open connections to a bucket soon; returns at once, and sends no request."""
        self._keeper.prepare(bucket)

    def _open_soon(self, bucket: str) -> None:
        self._opening.submit(open_connections, self.s3, bucket)

    def close(self) -> None:
        """End the connections. REQUIRES: ``users`` is 0."""
        self._opening.shutdown(wait=False)
        self.s3.close()


_LOCK = threading.Lock()
_CLIENTS: dict[S3Settings, SharedClient] = {}
"""INVARIANT: at most one client in here has no users: the one that was released last."""


def acquire(settings: S3Settings) -> SharedClient:
    """Return the client of these settings; the caller must ``release`` it once per call.

    Raises:
        ConfigError, AccessError: botocore cannot create a client with these settings.
    """
    with _LOCK:
        client = _CLIENTS.get(settings)
        if client is None:
            client = _CLIENTS[settings] = SharedClient(settings)
        client.users += 1
        return client


def release(client: SharedClient) -> None:
    """Release a client. The last one without users is kept: the next store may need it."""
    with _LOCK:
        client.users -= 1
        if client.users:
            return
        for settings, other in list(_CLIENTS.items()):
            if not other.users and other is not client:
                del _CLIENTS[settings]
                other.close()


def _new_client(settings: S3Settings) -> S3Client:
    config = Config(
        user_agent_extra=_USER_AGENT,
        signature_version=UNSIGNED if settings.anonymous else None,
        max_pool_connections=settings.max_connections,
        connect_timeout=settings.connect_timeout_ms / 1000,
        read_timeout=settings.read_timeout_ms / 1000,
        # The adaptive mode slows down while the server answers 503.
        retries={"mode": "adaptive", "total_max_attempts": settings.max_attempts},
        tcp_keepalive=True,
        s3={"addressing_style": _addressing_style(settings)},
        # PUTs send a CRC32C and GETs verify it, so a second checksum is useless.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = boto3.session.Session(
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
        )
        region = session.region_name or ("us-east-1" if settings.endpoint_url else None)
        client = session.client(
            "s3", endpoint_url=settings.endpoint_url, region_name=region, config=config
        )
    except (BotoCoreError, ValueError) as error:
        shown = settings.endpoint_shown
        raise translate(error, endpoint=shown, object_name=shown) from error
    # "Expect: 100-continue" makes each PUT wait for an interim answer: one more round trip.
    client.meta.events.unregister("before-call.s3", add_expect_header)
    return client


def _addressing_style(settings: S3Settings) -> Literal["auto", "path"]:
    if settings.path_style is None:
        return "path" if settings.endpoint_url else "auto"
    # "auto" is host style, except for names and addresses that cannot be part of a host name.
    return "path" if settings.path_style else "auto"
