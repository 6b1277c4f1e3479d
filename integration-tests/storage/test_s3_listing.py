"""Listings of more than one page, and deletions of more than one request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.store import S3Store
from harness.s3 import S3Bucket


@pytest.fixture
def store(s3_bucket: S3Bucket) -> Iterator[S3Store]:
    """A store whose listings have three keys per page."""
    settings = S3Settings.from_mapping(s3_bucket.settings)
    with S3Store(f"{s3_bucket.url}/state", settings, page_keys=3) as store:
        yield store


def test_a_listing_has_the_keys_of_all_pages(store: S3Store) -> None:
    """A partition may have more objects than a page: a sweep must see them all."""
    keys = [f"sst/{number:02d} +%.sst" for number in range(10)]
    for key in keys:
        store.put(key, b"x")
    before = store.request_counts().get("ListObjectsV2", 0)

    found = [info.key for info in store.list("sst/")]

    assert found == keys
    assert store.request_counts()["ListObjectsV2"] - before == 4


def test_a_page_is_requested_when_it_is_needed(store: S3Store) -> None:
    """A caller that needs only the first object must not pay for all."""
    for number in range(10):
        store.put(f"sst/{number}", b"x")

    first = next(store.list("sst/"))

    assert first.key == "sst/0"
    assert store.request_counts()["ListObjectsV2"] == 1


def test_a_root_does_not_list_its_neighbours(s3_bucket: S3Bucket, store: S3Store) -> None:
    """``state/1`` is not a part of ``state/10``: a sweep must not reach another partition."""
    settings = S3Settings.from_mapping(s3_bucket.settings)
    with (
        S3Store(f"{s3_bucket.url}/state/1", settings) as one,
        S3Store(f"{s3_bucket.url}/state/10", settings) as ten,
    ):
        one.put("x", b"")
        ten.put("y", b"")

        assert [info.key for info in one.list("")] == ["x"]
        assert [info.key for info in store.list("1")] == ["1/x", "10/y"]


def test_more_than_a_thousand_keys_are_deleted(store: S3Store) -> None:
    """S3 deletes up to a thousand keys per request; the others must be deleted too."""
    store.put("sst/last", b"x")

    store.delete([*(f"sst/{number}" for number in range(1_500)), "sst/last"])

    assert list(store.list("")) == []
    assert store.request_counts()["DeleteObjects"] == 2
