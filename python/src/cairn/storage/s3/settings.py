"""S3Settings: how to reach a bucket, as values.

Layer: storage. The shim fills it from the job's ``fs.s3a.*`` settings; what is absent comes from
the standard AWS chain (environment, profile, web identity, container, instance). Secrets are in no
``repr``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SSE_KINDS = frozenset({"AES256", "aws:kms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Settings of an S3 client. Equal settings share one client, its connections and its threads.

    Attributes:
        endpoint_url: ``http(s)://host[:port]``; absent: AWS's own for the region.
        region: absent: from the AWS chain, else ``us-east-1`` beside an ``endpoint_url``.
        access_key: absent, with ``secret_key``: from the AWS chain.
        secret_key: belongs to ``access_key``.
        session_token: belongs to ``access_key``, where it is temporary.
        path_style: bucket in the path rather than in the host name; absent: path beside an
            ``endpoint_url``, host name on AWS.
        sse: server-side encryption, ``AES256`` or ``aws:kms``; absent: the bucket's default.
        sse_kms_key: key id or ARN; with ``aws:kms`` only.
        anonymous: sign nothing.
        max_connections: of the pool that equal settings share.
        connect_timeout_ms: for one connection attempt.
        read_timeout_ms: without a byte from the server.
        max_attempts: of one request, the first included.
    """

    endpoint_url: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    sse: str | None = None
    sse_kms_key: str | None = None
    anonymous: bool = False
    max_connections: int = 32
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 30_000
    max_attempts: int = 5

    def __post_init__(self) -> None:
        faults = [text for is_fault, text in self._rules() if is_fault]
        if faults:
            raise ConfigError("S3 settings: " + "; ".join(faults))

    def _rules(self) -> list[tuple[bool, str]]:
        parts = urlsplit(self.endpoint_url or "http://none")
        counts = ("max_connections", "connect_timeout_ms", "read_timeout_ms", "max_attempts")
        return [
            (
                parts.scheme not in {"http", "https"} or not parts.hostname,
                "endpoint_url is http(s)://host[:port]",
            ),
            (
                bool(parts.username or parts.password),
                "endpoint_url carries credentials; use access_key and secret_key",
            ),
            (
                (self.access_key is None) != (self.secret_key is None),
                "access_key and secret_key come together or not at all",
            ),
            (
                self.session_token is not None and self.access_key is None,
                "session_token belongs to an access_key",
            ),
            (
                self.anonymous and self.access_key is not None,
                "anonymous contradicts access_key",
            ),
            (
                self.sse is not None and self.sse not in _SSE_KINDS,
                f"sse is one of {', '.join(sorted(_SSE_KINDS))}",
            ),
            (
                self.sse_kms_key is not None and self.sse != "aws:kms",
                "sse_kms_key belongs to sse=aws:kms",
            ),
            *((getattr(self, name) < 1, f"{name} is at least 1") for name in counts),
        ]

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, str]) -> Self:
        """Return settings from strings; an empty string means absent.

        Raises:
            ConfigError: an unknown key (names the nearest known one), or a value that is none of
                its type; values are not repeated, they may be secret.
        """
        known = {item.name: _PARSERS[item.name] for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in mapping.items():
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"S3 settings: {name!r} is unknown", next_step=f"write {nearest!r}, or leave it"
                )
            if text != "":
                values[name] = known[name](name, text)
        return cls(**values)

    @property
    def endpoint_shown(self) -> str:
        """What errors call the endpoint."""
        if self.endpoint_url is None:
            return f"AWS S3 ({self.region or 'default region'})"
        parts = urlsplit(self.endpoint_url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _text(_: str, text: str) -> str:
    return text


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ConfigError(f"S3 settings: {name} is true or false")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(f"S3 settings: {name} is a whole number")
    return int(text)


_PARSERS: dict[str, Callable[[str, str], Any]] = {
    "endpoint_url": _text,
    "region": _text,
    "access_key": _text,
    "secret_key": _text,
    "session_token": _text,
    "path_style": _flag,
    "sse": _text,
    "sse_kms_key": _text,
    "anonymous": _flag,
    "max_connections": _number,
    "connect_timeout_ms": _number,
    "read_timeout_ms": _number,
    "max_attempts": _number,
}
