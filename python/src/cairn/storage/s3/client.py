"""One S3 client, with its connections, for all stores of equal settings.

Layer: storage. An executor has hundreds of stores. A botocore client is thread-safe, and costs tens
of milliseconds, some megabytes and a connection pool.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

import boto3.session
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from cairn.errors import ConfigError
from cairn.storage.s3.assumed_role import assume_role
from cairn.storage.s3.connections import ConnectionKeeper, open_connections
from cairn.storage.s3.errors import translate
from cairn.storage.s3.sending import limit_sending, send_at_once

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from cairn.storage.s3.settings import S3Settings

_USER_AGENT = "cairn-state"
_RETRIES: Final = "standard"
_RETRIES_IN_BULK: Final = "adaptive"
# Connections that a client keeps; requests beyond them open others for themselves. The requests of
# a worker that are common at one time, a commit per task slot, eight downloads and snapshots, fit.
_POOL_CONNECTIONS = 32


class SharedClient:
    """A botocore client for requests, and one for large transfers; see ``acquire``, ``release``."""

    def __init__(self, settings: S3Settings) -> None:
        self.settings = settings
        # Two: adaptive retries slow down all requests of a client after a 503.
        self.s3, self.bulk = _new_clients(settings)
        self._are_refused = False  # the keys of these
        self._renewal = threading.Lock()
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="cairn-s3")
        self._keeper = ConnectionKeeper(self._open_soon)
        self.users = 0
        # The result of the probe of each bucket, so that it is probed once, not once per store.
        self.probed_buckets: dict[str, str] = {}
        # Buckets that refuse deletions in bulk.
        self.deletes_singly: set[str] = set()

    def prepare(self, bucket: str) -> None:
        """Open connections to a bucket soon; returns at once, and sends no request."""
        self._keeper.prepare(bucket)

    def _open_soon(self, bucket: str) -> None:
        self._opening.submit(open_connections, self.s3, bucket)

    def close(self) -> None:
        """End the connections. REQUIRES: ``users`` is 0. Requests in progress end as they began."""
        self._opening.shutdown(wait=False)
        self.s3.close()
        self.bulk.close()

    def of(self, *, is_bulk: bool) -> S3Client:
        """Return the client for requests, or that for large transfers.

        Raises:
            ConfigError, AccessError: the keys were refused, and there are no others.
        """
        if self._are_refused:
            with self._renewal:
                if self._are_refused:
                    self.s3, self.bulk = _new_clients(self.settings)
                    self._are_refused = False
        return self.bulk if is_bulk else self.s3

    def note_refusal(self, refused: S3Client) -> None:
        """Let the next request read its keys anew, unless that was done since this one.

        The AWS chain reads files and services then, and STS gives other keys of a role. Keys of the
        settings are not read anew: the next settings have others. Requests in progress end as they
        began, and leave the former clients to the garbage collector.
        """
        if self.settings.access_key is not None and self.settings.role_arn is None:
            return
        with self._renewal:
            self._are_refused |= refused in (self.s3, self.bulk)


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


def _new_clients(settings: S3Settings) -> tuple[S3Client, S3Client]:
    """Return a client for requests, and one for large transfers."""
    session = _new_session(settings)
    requests = _new_client(session, settings, _RETRIES)
    return requests, _new_client(session, settings, _RETRIES_IN_BULK)


def _new_session(settings: S3Settings) -> boto3.session.Session:
    try:
        core = botocore.session.Session()
        session = boto3.session.Session(
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
            botocore_session=core,
        )
        if settings.role_arn is not None:
            assume_role(core, settings.role_arn, settings, _transport(settings, _RETRIES))
    except (BotoCoreError, ValueError) as error:
        shown = settings.endpoint_shown
        raise translate(error, endpoint=shown, object_name=shown) from error
    return session


def _new_client(
    session: boto3.session.Session, settings: S3Settings, retries: Literal["standard", "adaptive"]
) -> S3Client:
    if settings.ca_bundle is not None and not Path(settings.ca_bundle).is_file():
        raise ConfigError(
            f"the file of certificates {settings.ca_bundle} does not exist here",
            next_step="correct spark.sql.streaming.stateStore.cairn.s3.caBundle",
        )
    config = _transport(settings, retries).merge(
        Config(
            signature_version=UNSIGNED if settings.anonymous else None,
            max_pool_connections=_POOL_CONNECTIONS,
            tcp_keepalive=True,
            use_fips_endpoint=settings.use_fips or None,
            s3={"addressing_style": _addressing_style(settings)},
            # PUTs send a CRC32C and GETs verify it, so a second checksum is useless.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
    )
    try:
        region = session.region_name or ("us-east-1" if settings.endpoint_url else None)
        client = session.client(
            "s3",
            endpoint_url=settings.endpoint_url,
            region_name=region,
            config=config,
            verify=settings.ca_bundle,
        )
    except (BotoCoreError, ValueError) as error:
        shown = settings.endpoint_shown
        raise translate(error, endpoint=shown, object_name=shown) from error
    send_at_once(client)
    limit_sending(client)
    return client


def _transport(settings: S3Settings, retries: Literal["standard", "adaptive"]) -> Config:
    """Return what requests to S3 and to STS have in common."""
    proxies = settings.proxy_url and {"http": settings.proxy_url, "https": settings.proxy_url}
    return Config(
        user_agent_extra=_USER_AGENT,
        connect_timeout=settings.connect_timeout_ms / 1000,
        read_timeout=settings.read_timeout_ms / 1000,
        retries={"mode": retries, "total_max_attempts": settings.max_attempts},
        proxies=proxies or None,
    )


def _addressing_style(settings: S3Settings) -> Literal["auto", "path", "virtual"]:
    if settings.access_point is not None:
        return "auto"  # its name is a host
    if settings.endpoint_url is None:
        # "auto" is host style at AWS, except for buckets that cannot be part of a host name.
        return "path" if settings.path_style else "auto"
    if settings.path_style is not False:
        return "path"
    # "auto" is path style at any other endpoint, "virtual" at IP addresses only. A name without a
    # dot, such as `localhost`, is rarely known with a bucket before it.
    host = urlsplit(settings.endpoint_url).hostname or ""
    return "virtual" if "." in host else "auto"
