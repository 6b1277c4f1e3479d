"""S3: settings are checked as a whole, errors are translated, and no error repeats a secret."""

from __future__ import annotations

import inspect
import itertools
import resource

import pytest
from botocore import exceptions as boto
from botocore.exceptions import BotoCoreError, ClientError

from cairn.errors import (
    AccessError,
    CairnError,
    ConditionalPutUnsupportedError,
    ConfigError,
    CorruptError,
    CredentialsExpiredError,
    MissingError,
    NoSuchBucketError,
    PreconditionFailedError,
    UnavailableError,
)
from cairn.storage.s3.client import SharedClient, acquire, release
from cairn.storage.s3.errors import translate
from cairn.storage.s3.requests import checksum_header
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.transfer import ranges_of

SECRETS = {"access_key": "AKIDEXAMPLE", "secret_key": "sec/ret", "session_token": "tok+en"}


def test_settings_come_from_strings() -> None:
    """The shim sends the strings of Hadoop's configuration."""
    settings = S3Settings.from_mapping(
        {
            **SECRETS,
            "endpoint_url": "http://127.0.0.1:9000",
            "path_style": "True",
            "max_attempts": "7",
            "region": "",
        }
    )

    assert settings.path_style is True
    assert settings.max_attempts == 7
    assert settings.region is None
    assert settings.endpoint_shown == "http://127.0.0.1:9000"


def test_values_of_python_are_taken_as_their_texts() -> None:
    """Who calls `cairn.open_checkpoint` writes True, not "true"."""
    values = {"endpoint_url": "http://host:9000", "path_style": True, "anonymous": False}

    settings = S3Settings.from_mapping({**values, "region": None})

    texts = {"endpoint_url": "http://host:9000", "path_style": "true", "anonymous": "false"}
    assert settings == S3Settings.from_mapping(texts)
    with pytest.raises(ConfigError, match="path_style must be a text"):
        S3Settings.from_mapping({"path_style": 1.5})


def test_too_many_open_files_are_no_fault_of_the_server() -> None:
    """For botocore the server cannot be reached: people would look at the network."""
    settings = S3Settings.from_mapping(
        {**SECRETS, "endpoint_url": "http://127.0.0.1:9", "max_attempts": "1"}
    )
    shared = acquire(settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with pytest.raises(BotoCoreError):  # loads what it needs
            shared.s3.get_object(Bucket="b", Key="k")
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        with pytest.raises(BotoCoreError) as failure:
            shared.s3.get_object(Bucket="b", Key="k")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        release(shared)

    error = translate(failure.value, endpoint="http://127.0.0.1:9", object_name="s3a://b/k")

    assert error.code == "CAIRN_OPEN_FILES"


def test_settings_never_show_secrets() -> None:
    """A repr may appear in a log."""
    shown = repr(S3Settings.from_mapping(SECRETS))

    assert not any(secret in shown for secret in SECRETS.values())


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"endpoint_url": "127.0.0.1:9000"}, "endpoint_url must be http"),
        ({"endpoint_url": "http://me:pass@host"}, "contains credentials"),
        ({"access_key": "a"}, "set both"),
        ({"session_token": "a"}, "belongs to an access_key"),
        ({"anonymous": "true", "access_key": "a", "secret_key": "b"}, "anonymous"),
        ({"anonymous": "yes"}, "true or false"),
        ({"use_fips": "true", "endpoint_url": "https://s3.example.com"}, "use_fips contradicts"),
        ({"sse": "aes"}, "sse must be one of"),
        ({"sse_kms_key": "k"}, "belongs to sse=aws:kms"),
        ({"max_attempts": "many"}, "whole number"),
        ({"max_attempts": "0"}, "at least 1"),
        ({"max_atempts": "3"}, "max_attempts"),
    ],
)
def test_bad_settings_are_refused(mapping: dict[str, str], said: str) -> None:
    """The error says what is wrong and repeats no value."""
    with pytest.raises(ConfigError, match=said) as raised:
        S3Settings.from_mapping(mapping)

    assert "pass" not in str(raised.value)


def test_all_faults_are_reported_at_once() -> None:
    """One start of the job per fault would take too long."""
    with pytest.raises(ConfigError, match=r"sse must be one of.*max_attempts"):
        S3Settings.from_mapping({"sse": "none", "max_attempts": "0"})


def test_equal_settings_share_a_client_and_idle_ones_are_closed(
    closed: list[SharedClient],
) -> None:
    """Hundreds of stores must not open hundreds of pools; clients of old tokens must close."""
    first = acquire(S3Settings(region="eu-central-1", max_attempts=91))
    again = acquire(S3Settings(region="eu-central-1", max_attempts=91))
    other = acquire(S3Settings(region="eu-central-1", max_attempts=92))

    assert first is again
    assert first is not other

    release(first)
    assert not closed
    release(again)  # may close one that an earlier test left
    assert first not in closed
    assert other not in closed
    closed.clear()
    release(other)
    assert closed == [first]
    anew = acquire(S3Settings(region="eu-central-1", max_attempts=91))
    assert anew is not first
    release(anew)
    assert closed == [first, other]


def client_error(code: str, status: int, operation: str = "PutObject") -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "you sent sec/ret"},
            "ResponseMetadata": {
                "HTTPStatusCode": status,
                "HTTPHeaders": {},
                "HostId": "",
                "RequestId": "",
                "RetryAttempts": 0,
            },
        },
        operation,
    )


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("NoSuchKey", 404, MissingError),
        ("404", 404, UnavailableError),
        ("", 404, UnavailableError),
        ("NoSuchBucket", 404, NoSuchBucketError),
        ("AccessDenied", 403, AccessError),
        ("403", 403, AccessError),
        ("InvalidAccessKeyId", 403, AccessError),
        ("SignatureDoesNotMatch", 403, AccessError),
        ("RequestTimeTooSkewed", 403, AccessError),
        ("ExpiredToken", 400, CredentialsExpiredError),
        ("PreconditionFailed", 412, PreconditionFailedError),
        ("ConditionalRequestConflict", 409, PreconditionFailedError),
        ("SlowDown", 503, UnavailableError),
        ("SlowDownRead", 503, UnavailableError),
        ("InternalError", 500, UnavailableError),
        ("ServiceUnavailable", 503, UnavailableError),
        ("XMinioStorageFull", 507, UnavailableError),
        ("BadDigest", 400, UnavailableError),
        ("InvalidRange", 416, CorruptError),
        ("PermanentRedirect", 301, ConfigError),
        ("AuthorizationHeaderMalformed", 400, ConfigError),
        ("KMS.DisabledException", 400, AccessError),
        ("NotImplemented", 501, ConditionalPutUnsupportedError),
        ("SomethingNew", 400, ConfigError),
        ("SomethingNew", 502, UnavailableError),
    ],
)
def test_each_answer_has_its_error(code: str, status: int, expected: type[CairnError]) -> None:
    """A wrong password must not be retried, and a 503 must be."""
    error = translate(client_error(code, status), endpoint="http://e:1", object_name="s3://b/x")

    assert type(error) is expected
    assert "http://e:1" in str(error)
    assert error.object_name == "s3://b/x"
    assert "sec/ret" not in str(error)


def test_the_answer_to_a_head_has_no_code() -> None:
    """A HEAD has no body: without this exception no lost answer to a PUT could be resolved."""
    error = translate(client_error("404", 404, "HeadObject"), endpoint="e", object_name="s3://b/x")

    assert type(error) is MissingError


@pytest.mark.parametrize(
    "code", ["Throttling", "ThrottlingException", "RequestLimitExceeded", "IDPCommunicationError"]
)
def test_a_busy_sts_is_asked_again(code: str) -> None:
    """All executors ask for the role at once; the query ended, as if the role were refused."""
    error = translate(client_error(code, 400, "AssumeRole"), endpoint="e", object_name="s3://b/x")

    assert type(error) is UnavailableError
    assert f"STS answered 400 {code}" in str(error)


BOTO_ERRORS = sorted(
    (
        item
        for item in vars(boto).values()
        if inspect.isclass(item) and issubclass(item, boto.BotoCoreError)
    ),
    key=lambda item: item.__name__,
)


@pytest.mark.parametrize("foreign", BOTO_ERRORS, ids=lambda item: item.__name__)
def test_every_error_of_botocore_is_translated(foreign: type[Exception]) -> None:
    """Network errors are retried; all others are errors of the set-up or bugs."""
    error = translate(foreign.__new__(foreign), endpoint="e", object_name="s3://b/x")

    from_network = issubclass(foreign, (boto.HTTPClientError, boto.ConnectionError))
    assert isinstance(error, CairnError)
    assert not from_network or type(error) is UnavailableError
    assert foreign.__name__ in str(error)


def test_parts_cover_the_object_once() -> None:
    """A gap or an overlap would corrupt an SST."""
    for size_bytes in (1, 8 << 20, (8 << 20) + 1, 100 << 30):
        parts = ranges_of(size_bytes)

        assert parts[0][0] == 0
        assert all(a[0] + a[1] == b[0] for a, b in itertools.pairwise(parts))
        assert parts[-1][0] + parts[-1][1] == size_bytes
        assert len(parts) <= 10_000


def test_a_checksum_is_written_as_s3_writes_it() -> None:
    """Base64 of the big-endian bytes; the other byte order would fail every PUT."""
    assert checksum_header(0xE3069283) == "4waSgw=="
