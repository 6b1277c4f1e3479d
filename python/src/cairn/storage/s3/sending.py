"""limit_sending: the read limit of a client also holds while it sends a request.

Layer: storage. urllib3 sends a request under the limit of connecting, which is short, and sets the
read limit before the answer. A file of some MiB on a slow link, or for a busy server, needs longer.

botocore has no public way to do this: ``limit_sending`` reaches into its HTTP session.
``python/tests/unit/storage/test_s3_sending.py`` fails if a new release does not work in this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def limit_sending(s3: S3Client) -> None:
    """Give a client's later connections the read limit. REQUIRES: no request was sent yet."""
    session: Any = s3._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001
    session._pool_classes_by_scheme.update(http=_HttpPool, https=_HttpsPool)  # noqa: SLF001


class _HttpConnection(AWSHTTPConnection):
    read_timeout_s: float | None = None

    def request(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        """Connect under the present limit, if that is not done, and send under the other one."""
        if self.sock is None:
            self.connect()
        self.timeout = self.read_timeout_s
        return super().request(*args, **kwargs)


class _HttpsConnection(_HttpConnection, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _HttpPool(AWSHTTPConnectionPool):
    ConnectionCls = _HttpConnection

    def _new_conn(self) -> Any:  # noqa: ANN401 - a protocol without this attribute
        connection: Any = super()._new_conn()
        connection.read_timeout_s = self.timeout.read_timeout
        return connection


class _HttpsPool(_HttpPool, AWSHTTPSConnectionPool):
    ConnectionCls = _HttpsConnection
