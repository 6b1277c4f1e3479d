"""limit_sending, send_at_once: how a client of S3 sends a request.

Layer: storage. botocore has no public way to do either: these functions reach into private parts of
it. A release without these parts costs what they gain and one warning, never a request.
``python/tests/unit/storage/test_s3_sending.py`` fails if a new release is such a one.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

import botocore
from botocore import handlers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_LOG = logging.getLogger(__name__)


def limit_sending(s3: S3Client) -> None:
    """Let the read limit hold while later connections of a client send a request.

    urllib3 sends a request under the limit of connecting, which is short, and sets the read limit
    before the answer. A file of some MiB on a slow link, or for a busy server, needs longer.

    REQUIRES: no request was sent yet.
    """
    try:
        session: Any = s3._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001
        pools = session._pool_classes_by_scheme  # noqa: SLF001
        pools.update({scheme: _limiting(pools[scheme]) for scheme in ("http", "https")})
    except Exception as error:  # noqa: BLE001 - any change of botocore costs the limit only
        _warn(
            "a request that takes longer to send than cairn.s3.connectTimeoutMs fails, and is sent"
            " again",
            repr(error),
        )


def send_at_once(s3: S3Client) -> None:
    """Send PUTs without ``Expect: 100-continue``, which waits for an interim answer."""
    try:
        s3.meta.events.unregister("before-call.s3", handlers.add_expect_header)
    except Exception as error:  # noqa: BLE001 - any change of botocore costs the round trip only
        _warn("each PUT to S3 takes one round trip more", repr(error))


@functools.cache
def _warn(effect: str, error: str) -> None:
    _LOG.warning(
        "botocore %s differs from the releases that Cairn knows (%s): %s. Next: install an older"
        " botocore on every executor",
        botocore.__version__,
        error,
        effect,
    )


@functools.cache
def _limiting(pool_class: Any) -> Any:  # noqa: ANN401 - a class that is found at run time
    """Return a class of connection pools whose connections send under the read limit.

    Raises:
        Exception: the classes of botocore or urllib3 are not as expected.
    """

    class Connection(pool_class.ConnectionCls):  # type: ignore[misc]
        read_timeout_s: float | None = None

        def request(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
            """Connect under the present limit, if that is not done, and send under the other."""
            if self.sock is None:
                self.connect()
            self.timeout = self.read_timeout_s
            return super().request(*args, **kwargs)

    class Pool(pool_class):  # type: ignore[misc]
        ConnectionCls = Connection

        def _new_conn(self) -> Any:  # noqa: ANN401 - a protocol without this attribute
            connection = super()._new_conn()
            connection.read_timeout_s = self.timeout.read_timeout
            return connection

    _check(Pool("localhost", timeout=1.0))
    return Pool


def _check(pool: Any) -> None:  # noqa: ANN401 - of a class that was just made
    """Raise if the connections of a pool lack what sending uses. Connects to nothing."""
    connection = pool._new_conn()  # noqa: SLF001
    if connection.read_timeout_s != connection.timeout or connection.sock is not None:
        raise TypeError(f"{type(connection).__mro__[1]} has other limits than the known ones")
