"""S3Settings: the settings of an S3 client, as values.

Layer: storage. The shim fills them from the job's ``fs.s3a.*`` settings. Absent ones come from the
standard AWS chain (environment, profile, web identity, container, instance). ``repr`` shows no
secret.
"""

from __future__ import annotations

import base64
import difflib
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from cairn.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS_MAX = 9
_SSE_KINDS = ("AES256", "aws:kms", "aws:kms:dsse")
_CUSTOMER_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Settings of an S3 client. Equal settings share one client.

    Attributes:
        endpoint_url: ``http(s)://host[:port]``; absent: that of AWS for the region.
        region: absent: from the AWS chain, else ``us-east-1`` if there is an ``endpoint_url``.
        access_key: if it and ``secret_key`` are absent: from the AWS chain.
        secret_key: the secret of ``access_key``.
        session_token: token of a temporary ``access_key``.
        path_style: whether the bucket is in the path instead of the host name; absent: true if
            there is an ``endpoint_url``. Also if it is false, the bucket is in the path where it
            cannot be in the host name: at IP addresses and hosts without a dot, and see
            ``for_bucket``.
        use_fips: whether the endpoint of AWS must be one of FIPS 140; contradicts ``endpoint_url``.
        sse: server-side encryption, ``AES256``, ``aws:kms`` or ``aws:kms:dsse``; absent: the
            bucket's default.
        sse_kms_key: key id or ARN; with ``aws:kms`` and ``aws:kms:dsse`` only.
        sse_customer_key: SSE-C: base64 of the 32 bytes with which the server encrypts each object.
        anonymous: requests are not signed.
        access_point: ARN of the access point through which the bucket is reached.
        proxy_url: ``http(s)://[user:password@]host:port``; absent: from the environment.
        ca_bundle: file of the certificates to trust; absent: those of botocore and of the
            environment.
        role_arn: the role to assume; the other settings and keys are those of the caller.
        role_session_name: names the caller in the service's audit log.
        role_external_id: the id that the role's owner demands.
        role_policy: JSON that restricts the role further.
        role_duration_s: how long one token is valid.
        sts_endpoint_url: of the service that gives the token; absent: that of AWS.
        sts_region: its region; absent: ``region``.
        connect_timeout_ms: limit of one connection attempt.
        read_timeout_ms: longest wait for the server within a request: for its answer, or until it
            has taken the next 128 KiB.
        max_attempts: number of attempts of one request, including the first. Each pause is about
            twice as long as the last: those of five take some seconds. A server that is away for
            longer is left to Spark's retry of the task. Only tests set another number.
    """

    endpoint_url: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    use_fips: bool = False
    sse: str | None = None
    sse_kms_key: str | None = None
    sse_customer_key: str | None = field(default=None, repr=False)
    anonymous: bool = False
    access_point: str | None = None
    proxy_url: str | None = field(default=None, repr=False)
    ca_bundle: str | None = None
    role_arn: str | None = None
    role_session_name: str = "cairn"
    role_external_id: str | None = field(default=None, repr=False)
    role_policy: str | None = None
    role_duration_s: int = 3_600
    sts_endpoint_url: str | None = None
    sts_region: str | None = None
    connect_timeout_ms: int = 5_000
    read_timeout_ms: int = 30_000
    max_attempts: int = 5

    def __post_init__(self) -> None:
        has_key, has_secret = self.access_key is not None, self.secret_key is not None
        counts = (
            "connect_timeout_ms",
            "read_timeout_ms",
            "max_attempts",
            "role_duration_s",
        )
        has_kms = self.sse is not None and self.sse.startswith("aws:kms")
        rules = {
            "endpoint_url must be http(s)://host[:port]": _is_url(self.endpoint_url),
            "endpoint_url contains credentials; use access_key and secret_key": not (
                _has_credentials(self.endpoint_url)
            ),
            "use_fips contradicts endpoint_url": not (self.use_fips and self.endpoint_url),
            "proxy_url must be http(s)://host:port": _is_url(self.proxy_url),
            "sts_endpoint_url must be http(s)://host[:port], without credentials": (
                _is_url(self.sts_endpoint_url) and not _has_credentials(self.sts_endpoint_url)
            ),
            "access_point must be an ARN": (self.access_point or "arn:").startswith("arn:"),
            "role_arn must be an ARN": (self.role_arn or "arn:").startswith("arn:"),
            "anonymous contradicts role_arn": not (self.anonymous and self.role_arn),
            "set both access_key and secret_key, or neither": has_key == has_secret,
            "session_token belongs to an access_key": has_key or self.session_token is None,
            "anonymous contradicts access_key": not (self.anonymous and has_key),
            f"sse must be one of {', '.join(_SSE_KINDS)}": self.sse is None
            or self.sse in _SSE_KINDS,
            "sse_kms_key belongs to sse=aws:kms": self.sse_kms_key is None or has_kms,
            "sse_customer_key contradicts sse": not (self.sse_customer_key and self.sse),
            "sse_customer_key must be base64 of 32 bytes": _is_customer_key(self.sse_customer_key),
            **{f"{name} must be at least 1": getattr(self, name) >= 1 for name in counts},
        }
        faults = [rule for rule, holds in rules.items() if not holds]
        if faults:
            raise ConfigError("S3 settings: " + "; ".join(faults))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Self:
        """Return settings from strings, or from values of Python; ``""`` and ``None``: absent.

        Raises:
            ConfigError: an unknown key (the error names the nearest known one), or a malformed
                value; the error repeats no value, it may be secret.
        """
        kinds = {item.name: str(item.type) for item in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in mapping.items():
            if name not in kinds:
                nearest = difflib.get_close_matches(name, kinds, n=1, cutoff=0.0)[0]
                raise ConfigError(
                    f"S3 settings: {name!r} is unknown",
                    next_step=f"write {nearest!r}, or leave it out",
                )
            if (text := _text(name, value)) != "":
                values[name] = _parse(name, kinds[name], text)
        return cls(**values)

    def for_bucket(self, bucket: str) -> Self:
        """Return the settings for requests to one bucket: with path style if its name has a dot.

        A certificate for the names of one endpoint does not cover two labels before it.
        """
        is_host_style = self.endpoint_url is not None and self.path_style is False
        return replace(self, path_style=True) if is_host_style and "." in bucket else self

    @property
    def endpoint_shown(self) -> str:
        """The endpoint's name in errors."""
        if self.endpoint_url is None:
            return f"AWS S3 ({self.region or 'default region'})"
        parts = urlsplit(self.endpoint_url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _is_url(url: str | None) -> bool:
    """Whether a URL is absent or names a host."""
    try:
        parts = urlsplit(url or "http://none")
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _has_credentials(url: str | None) -> bool:
    return "@" in (url or "").partition("://")[2].partition("/")[0]


def _is_customer_key(key: str | None) -> bool:
    try:
        return key is None or len(base64.b64decode(key, validate=True)) == _CUSTOMER_KEY_BYTES
    except ValueError:
        return False


def _text(name: str, value: object) -> str:
    """Return a value as the shim sends it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise ConfigError(f"S3 settings: {name} must be a text, a whole number, True or False")
    return str(value)


def _parse(name: str, kind: str, text: str) -> object:
    if kind.startswith("bool"):
        if text.lower() not in {"true", "false"}:
            raise ConfigError(f"S3 settings: {name} must be true or false")
        return text.lower() == "true"
    if kind.startswith("int"):
        if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
            raise ConfigError(f"S3 settings: {name} must be a whole number")
        return int(text)
    return text
