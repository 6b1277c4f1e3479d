"""Translation of botocore's errors and S3's error codes into errors of Cairn.

Layer: storage. The texts are Cairn's, with the server's code: a server's text may repeat a secret
from the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore import exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from cairn.errors import (
    AccessError,
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
    open_files_error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_ACCESS_NEXT = "check the credentials and their permissions in this bucket"
_ROLE_NEXT = "check the role's name, who may assume it, and the keys that assume it"
_SETTINGS_NEXT = "check the S3 settings"
_REGION_NEXT = "set the bucket's region (fs.s3a.endpoint.region)"

_CODES: Mapping[str, tuple[type[CairnError], str, str | None]] = {
    "NoSuchKey": (MissingError, "the object does not exist", None),
    "NoSuchBucket": (
        NoSuchBucketError,
        "the bucket does not exist",
        "create the bucket, or correct the checkpoint location",
    ),
    "NoSuchUpload": (UnavailableError, "the multipart upload does not exist any more", None),
    "PreconditionFailed": (PreconditionFailedError, "another writer's object exists", None),
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
    "InvalidRange": (CorruptError, "the object is shorter than expected", None),
    "InvalidObjectState": (AccessError, "the object is archived", "restore it from the archive"),
    # The data changed in transit: the same call sends it again.
    "BadDigest": (UnavailableError, "the data changed in transit", None),
    "XAmzContentChecksumMismatch": (UnavailableError, "the data changed in transit", None),
    "XAmzContentSHA256Mismatch": (UnavailableError, "the data changed in transit", None),
    "IncompleteBody": (UnavailableError, "the data was cut in transit", None),
    "RequestTimeout": (UnavailableError, "the server waited too long for the request", None),
    "SlowDown": (UnavailableError, "the server asks to slow down", None),
    # STS: with status 400.
    "Throttling": (UnavailableError, "the server asks to slow down", None),
    "ThrottlingException": (UnavailableError, "the server asks to slow down", None),
    "RequestLimitExceeded": (UnavailableError, "the server asks to slow down", None),
    "IDPCommunicationError": (UnavailableError, "the identity provider did not answer", None),
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
    (boto.ChecksumError, UnavailableError, "the data changed in transit", None),
    (boto.FlexibleChecksumError, UnavailableError, "the data changed in transit", None),
    (boto.NoCredentialsError, AccessError, "no credentials were found", _ACCESS_NEXT),
    (boto.PartialCredentialsError, AccessError, "the credentials are incomplete", _ACCESS_NEXT),
    (boto.CredentialRetrievalError, AccessError, "credentials are unavailable", _ACCESS_NEXT),
    (boto.UnauthorizedSSOTokenError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.SSOTokenLoadError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.TokenRetrievalError, CredentialsExpiredError, "the SSO login has ended", None),
    (boto.LoginError, CredentialsExpiredError, "the AWS login has ended", None),
    (boto.MetadataRetrievalError, AccessError, "credentials are unavailable", _ACCESS_NEXT),
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
    (boto.ParamValidationError, InternalError, "the request is not valid", None),
    (boto.BotoCoreError, ConfigError, "the S3 client cannot use its settings", _SETTINGS_NEXT),
    (ValueError, ConfigError, "the S3 client cannot use its settings", _SETTINGS_NEXT),
    (Exception, InternalError, "the S3 client failed", None),
)


class RoleRequestError(boto.BotoCoreError):
    """A request to STS had no answer; ``__cause__`` is botocore's error of it."""

    fmt = "the request to {endpoint} failed"


def translate(error: Exception, *, endpoint: str, object_name: str) -> CairnError:
    """Return ``error`` as an error of Cairn's tree.

    Args:
        error: from botocore; its text is not repeated.
        endpoint: ``S3Settings.endpoint_shown``.
        object_name: the object's URL, or the root's.
    """
    if isinstance(error, RoleRequestError) and isinstance(error.__cause__, Exception):
        endpoint = str(error.kwargs["endpoint"])
        error = error.__cause__
    open_files = open_files_error(error)
    if open_files is not None:
        return open_files.with_context(object_name=object_name)
    if isinstance(error, ClientError):
        return _translate_answer(error, endpoint, object_name)
    kind, text, next_step = next(entry[1:] for entry in _CLASSES if isinstance(error, entry[0]))
    if kind is UnavailableError and next_step is None:
        next_step = f"check that {endpoint} is up and reachable from here"
    return kind(
        f"{text}: {endpoint} ({type(error).__name__})",
        object_name=object_name,
        next_step=next_step,
    )


def _translate_answer(error: ClientError, endpoint: str, object_name: str) -> CairnError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    kind, text, next_step = _CODES.get(code) or _STATUSES.get(status) or _other_code(code, status)
    if error.operation_name.startswith("AssumeRole"):
        endpoint = "STS"
        if not issubclass(kind, UnavailableError):
            kind, text, next_step = AccessError, "the role cannot be assumed", _ROLE_NEXT
    elif kind is MissingError and code != "NoSuchKey" and error.operation_name != "HeadObject":
        # Of S3's answers only that to a HEAD has no code. This is the page of a proxy, perhaps.
        kind, text = UnavailableError, "the server does not know the address"
        next_step = f"check that {endpoint} is up and reachable from here"
    return kind(
        f"{text}: {endpoint} answered {status} {code}".rstrip(),
        object_name=object_name,
        next_step=next_step,
    )


def _other_code(code: str, status: int) -> tuple[type[CairnError], str, str | None]:
    if code.startswith("KMS"):
        return AccessError, "the encryption key cannot be used", "check sse_kms_key and its policy"
    if code.startswith("SlowDown"):
        return _CODES["SlowDown"]
    if status >= 500 or status == 0:  # noqa: PLR2004
        return UnavailableError, "the server failed", None
    return ConfigError, "the server refused the request", _SETTINGS_NEXT


def translate_delete(failure: Mapping[str, object]) -> CairnError:
    """Return the error for one entry of a bulk delete's answer; the caller adds the object."""
    code = str(failure.get("Code", ""))
    kind, text, next_step = _CODES.get(code) or _other_code(code, 500)
    return kind(f"{text}: the server answered {code}", next_step=next_step)
