"""One S3 client for all stores of equal settings: its connections, its threads.

Layer: storage. An executor has hundreds of stores; a botocore client costs tens of milliseconds,
some megabytes and a connection pool of its own, and is thread-safe.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

import boto3.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from cairn.storage.s3.errors import translate

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cairn.storage.s3.settings import S3Settings

TRANSFER_THREADS = 4
"""Parts in flight of all stores together; parts have 8 MiB, so their memory is 32 MiB at most."""
_USER_AGENT = "cairn-state"


class SharedClient:
    """A botocore client and the threads that carry parts. Made and given back by this module."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        self.s3 = _new_client(settings)
        self.transfers = ThreadPoolExecutor(TRANSFER_THREADS, thread_name_prefix="cairn-s3")
        self.users = 0
        # Buckets that are known to honour If-None-Match: asked once, not by each store.
        self.probed_buckets: set[str] = set()

    def close(self) -> None:
        """End threads and connections. REQUIRES: nobody uses it."""
        self.transfers.shutdown(wait=False)
        self.s3.close()


_LOCK = threading.Lock()
_CLIENTS: dict[S3Settings, SharedClient] = {}
"""INVARIANT: at most one client in here has no users: the last one given back."""


def acquire(settings: S3Settings) -> SharedClient:
    """Return the client of these settings; ``release`` it once for each call.

    Raises:
        ConfigError, AccessError: botocore cannot make one of these settings.
    """
    with _LOCK:
        client = _CLIENTS.get(settings)
        if client is None:
            client = _CLIENTS[settings] = SharedClient(settings)
        client.users += 1
        return client


def release(client: SharedClient) -> None:
    """Give a client back. The last one is kept, since stores come and go one by one."""
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
        # Slows down by itself while the server answers 503.
        retries={"mode": "adaptive", "total_max_attempts": settings.max_attempts},
        tcp_keepalive=True,
        s3={"addressing_style": _addressing_style(settings)},
        # Puts carry our CRC32C and gets compare it: a second checksum would only cost.
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
        return session.client(
            "s3", endpoint_url=settings.endpoint_url, region_name=region, config=config
        )
    except (BotoCoreError, ValueError) as error:
        shown = settings.endpoint_shown
        raise translate(error, endpoint=shown, object_name=shown) from error


def _addressing_style(settings: S3Settings) -> Literal["auto", "path"]:
    if settings.path_style is None:
        return "path" if settings.endpoint_url else "auto"
    # "auto" is host style, but for names and addresses that cannot be part of a host name.
    return "path" if settings.path_style else "auto"
