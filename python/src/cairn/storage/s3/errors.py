"""What botocore's errors and S3's error codes mean to Cairn: the one place that translates them.

Layer: storage. Texts are ours, with the server's code: a server's own text may repeat what was
sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from cairn.errors import (
    AccessError,
    AlreadyExistsError,
    CairnError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CorruptError,
    CredentialsExpiredError,
    InternalError,
    MissingError,
    NoSuchBucketError,
    PreconditionFailedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACCESS_NEXT = "check the credentials, and what they may do in this bucket"
_REGION_NEXT = "set the bucket's region (fs.s3a.endpoint.region)"

_CODES: Mapping[str, tuple[type[CairnError], str, str | None]] = {
    "NoSuchKey": (MissingError, "the object does not exist", None),
    "NoSuchBucket": (
        NoSuchBucketError,
        "the bucket does not exist",
        "make the bucket, or correct the checkpoint location",
    ),
    "NoSuchUpload": (UnavailableError, "the multipart upload is gone", None),
    "PreconditionFailed": (PreconditionFailedError, "another writer's object stands there", None),
    "ConditionalRequestConflict": (
        PreconditionFailedError,
        "another writer is writing this object",
        None,
    ),
    "AccessDenied": (AccessError, "access is denied", _ACCESS_NEXT),
    "AllAccessDisabled": (AccessError, "access is denied", _ACCESS_NEXT),
    "AccountProblem": (AccessError, "the account has a problem", _ACCESS_NEXT),
    "InvalidAccessKeyId": (AccessError, "the access key is unknown", _ACCESS_NEXT),
    "SignatureDoesNotMatch": (AccessError, "the secret key is wrong", _ACCESS_NEXT),
    "InvalidToken": (AccessError, "the session token is not valid", _ACCESS_NEXT),
    "RequestTimeTooSkewed": (AccessError, "this machine's clock is wrong", "set the clock"),
    "ExpiredToken": (CredentialsExpiredError, "the session token has expired", None),
    "ExpiredTokenException": (CredentialsExpiredError, "the session token has expired", None),
    "TokenRefreshRequired": (CredentialsExpiredError, "the session token must be renewed", None),
    "PermanentRedirect": (ConfigError, "the bucket is in another region", _REGION_NEXT),
    "AuthorizationHeaderMalformed": (ConfigError, "the region is wrong", _REGION_NEXT),
    "IllegalLocationConstraintException": (ConfigError, "the region is wrong", _REGION_NEXT),
    "InvalidBucketName": (ConfigError, "the bucket's name is not valid", None),
    "InvalidRange": (CorruptError, "the object is shorter than is named", None),
    "InvalidObjectState": (AccessError, "the object is archived", "restore it from the archive"),
    # What arrived is not what was sent: the same call sends it again.
    "BadDigest": (UnavailableError, "what arrived differs from what was sent", None),
    "XAmzContentChecksumMismatch": (UnavailableError, "what arrived is not what was sent", None),
    "XAmzContentSHA256Mismatch": (UnavailableError, "what arrived is not what was sent", None),
    "IncompleteBody": (UnavailableError, "what arrived is shorter than what was sent", None),
    "RequestTimeout": (UnavailableError, "the server waited too long for the request", None),
    "SlowDown": (UnavailableError, "the server asks to slow down", None),
    "OperationAborted": (UnavailableError, "the server aborted the request", None),
    "NotImplemented": (
        ConditionalPutUnsupportedError,
        "the server does not implement this request",
        "use a store that honours If-None-Match",
    ),
}

_STATUSES: Mapping[int, tuple[type[CairnError], str, str | None]] = {
    301: _CODES["PermanentRedirect"],
    403: _CODES["AccessDenied"],
    404: _CODES["NoSuchKey"],
    408: _CODES["RequestTimeout"],
    409: _CODES["ConditionalRequestConflict"],
    412: _CODES["PreconditionFailed"],
    416: _CODES["InvalidRange"],
    429: _CODES["SlowDown"],
    501: _CODES["NotImplemented"],
    507: (UnavailableError, "the server has no space left", None),
}

# First match wins; subclasses before their bases.
_CLASSES: tuple[tuple[type[Exception], type[CairnError], str, str | None], ...] = (
    (boto.ReadTimeoutError, UnavailableError, "the server did not answer in time", None),
    (boto.ConnectTimeoutError, UnavailableError, "no connection in time", None),
    (boto.SSLError, UnavailableError, "the TLS connection failed", "check the certificates"),
    (boto.ProxyConnectionError, UnavailableError, "the proxy cannot be reached", None),
    (boto.EndpointConnectionError, UnavailableError, "the server cannot be reached", None),
    (boto.HTTPClientError, UnavailableError, "the connection broke", None),
    (boto.ConnectionError, UnavailableError, "the connection broke", None),
    (HTTPError, UnavailableError, "the connection broke", None),
    (boto.IncompleteReadError, UnavailableError, "the answer was cut off", None),
    (ResponseParserError, UnavailableError, "the answer is not S3's", None),
    (boto.ChecksumError, UnavailableError, "what arrived differs from what was sent", None),
    (boto.FlexibleChecksumError, UnavailableError, "what arrived is not what was sent", None),
    (boto.NoCredentialsError, AccessError, "no credentials were found", _ACCESS_NEXT),
    (boto.PartialCredentialsError, AccessError, "the credentials are incomplete", _ACCESS_NEXT),
    (boto.CredentialRetrievalError, AccessError, "credentials could not be had", _ACCESS_NEXT),
    (boto.UnauthorizedSSOTokenError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.SSOTokenLoadError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.TokenRetrievalError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.LoginError, CredentialsExpiredError, "the AWS login has ended", None),
    (boto.MetadataRetrievalError, AccessError, "credentials could not be had", _ACCESS_NEXT),
    (boto.CapacityNotAvailableError, UnavailableError, "the server asks to slow down", None),
    (boto.NoAuthTokenError, AccessError, "no credentials were found", _ACCESS_NEXT),
    (boto.NoRegionError, ConfigError, "no region is set", _REGION_NEXT),
    (boto.ProfileNotFound, ConfigError, "the AWS profile does not exist", None),
    (boto.ConfigParseError, ConfigError, "the AWS configuration file cannot be read", None),
    (boto.ConfigNotFound, ConfigError, "the AWS configuration file does not exist", None),
    (boto.InvalidConfigError, ConfigError, "the AWS configuration is not valid", None),
    (boto.EndpointProviderError, ConfigError, "the endpoint is not valid", None),
    (boto.EndpointVariantError, ConfigError, "the endpoint is not valid", None),
    (boto.InvalidEndpointConfigurationError, ConfigError, "the endpoint is not valid", None),
    (boto.ParamValidationError, InternalError, "the request is not one of S3's", None),
)


def translate(error: Exception, *, endpoint: str, object_name: str) -> CairnError:
    """Return the error of ours that says what to do.

    Args:
        error: of botocore; its text is not repeated.
        endpoint: as ``S3Settings.endpoint_shown``.
        object_name: the object's URL, or the root's.
    """
    if isinstance(error, ClientError):
        return _translate_answer(error, endpoint, object_name)
    kind, text, next_step = next(
        ((meant, said, do) for foreign, meant, said, do in _CLASSES if isinstance(error, foreign)),
        _other_class(error),
    )
    if kind is UnavailableError and next_step is None:
        next_step = f"check that {endpoint} is up and reachable from here"
    return kind(
        f"{text}: {endpoint} ({type(error).__name__})",
        object_name=object_name,
        next_step=next_step,
    )


def _other_class(error: Exception) -> tuple[type[CairnError], str, str | None]:
    """Tell what the many remaining classes mean; each is a fault of set-up or of a program."""
    if isinstance(error, (boto.BotoCoreError, ValueError)):
        return ConfigError, "the S3 client cannot be used as it is set up", "check the S3 settings"
    return InternalError, "the S3 client failed", None


def _translate_answer(error: ClientError, endpoint: str, object_name: str) -> CairnError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = status_of(error)
    known = _CODES.get(code) or _STATUSES.get(status)
    if known is None:
        known = _by_shape(code, status)
    kind, text, next_step = known
    return kind(
        f"{text}: {endpoint} answered {status} {code}".rstrip(),
        object_name=object_name,
        next_step=next_step,
    )


def _by_shape(code: str, status: int) -> tuple[type[CairnError], str, str | None]:
    if code.startswith("KMS"):
        return AccessError, "the encryption key cannot be used", "check sse_kms_key and its policy"
    if code.startswith("SlowDown"):
        return _CODES["SlowDown"]
    if status >= 500 or status == 0:  # noqa: PLR2004
        return UnavailableError, "the server failed", None
    return ConfigError, "the server refuses the request", "check the S3 settings"


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an answer, 0 where there is none."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def translate_delete(failure: Mapping[str, object]) -> CairnError:
    """Return our error for one entry of a bulk delete's answer; the caller names the object."""
    code = str(failure.get("Code", ""))
    kind, text, next_step = _CODES.get(code) or _by_shape(code, 500)
    return kind(f"{text}: the server answered {code}", next_step=next_step)


def already_exists(object_name: str) -> AlreadyExistsError:
    """Return the error of a create that came second."""
    return AlreadyExistsError("another writer's object exists already", object_name=object_name)
