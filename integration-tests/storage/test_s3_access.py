"""Wrong credentials or a missing bucket on a real server: a clear error, and nothing written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cairn.errors import AccessError, NoSuchBucketError
from cairn.storage.open import open_store
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.store import S3Store
from harness.s3 import S3Bucket


@pytest.mark.parametrize("wrong", ["access_key", "secret_key"])
@pytest.mark.parametrize("operation", ["put", "put_if_absent", "get", "list"])
def test_wrong_credentials_are_refused_and_not_shown(
    s3_bucket: S3Bucket, wrong: str, operation: str
) -> None:
    """A refusal must not look like a missing object, nor like a server that is down."""
    settings = {**s3_bucket.settings, wrong: "not-the-one-of-this-server"}
    with S3Store(f"{s3_bucket.url}/state", S3Settings.from_mapping(settings)) as store:
        operations: dict[str, Callable[[], object]] = {
            "put": lambda: store.put("changelog/1.arrow", b"x"),
            "put_if_absent": lambda: store.put_if_absent("changelog/1.arrow", b"x"),
            "get": lambda: store.get("changelog/1.arrow"),
            "list": lambda: list(store.list("")),
        }
        with pytest.raises(AccessError) as refusal:
            operations[operation]()

    message = str(refusal.value)
    assert s3_bucket.name in message
    assert "Next: " in message
    assert not any(settings[name] in message for name in ("access_key", "secret_key"))
    assert not s3_bucket.endpoint.client().list_objects_v2(Bucket=s3_bucket.name)["KeyCount"]


@pytest.mark.slow
def test_a_put_without_the_encryption_that_the_role_demands_is_refused(
    role_bucket: S3Bucket,
) -> None:
    """A policy that denies unencrypted objects must be met by the settings, and named if not."""
    encrypted = role_bucket.settings
    plain = {name: value for name, value in encrypted.items() if not name.startswith("sse")}

    with open_store(f"{role_bucket.url}/state", encrypted) as store:
        store.probe_conditional_put()
        store.put("changelog/1.arrow", b"x")
    with open_store(f"{role_bucket.url}/state", plain) as store, pytest.raises(AccessError):
        store.put("changelog/2.arrow", b"x")


@pytest.mark.parametrize("operation", ["put", "get"])
def test_a_missing_bucket_is_named(s3_bucket: S3Bucket, operation: str) -> None:
    """A misspelled location must not look like an empty state."""
    absent = f"{s3_bucket.url}-absent"
    settings = S3Settings.from_mapping(s3_bucket.settings)
    with S3Store(f"{absent}/state", settings) as store, pytest.raises(NoSuchBucketError) as refusal:
        store.put("changelog/1.arrow", b"x") if operation == "put" else store.get("sst/1")

    assert absent.removeprefix("s3a://") in str(refusal.value)
