"""The implementations that the contract tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cairn.storage.base import ObjectStore
from cairn.storage.open import open_store

# Of S3: the server of all tests, and others, for which see harness/s3_servers.py.
S3_BUCKETS = {
    "s3": "s3_bucket",
    "versitygw": "versitygw_bucket",
    "moto": "moto_bucket",
    "role": "role_bucket",
    "customer key": "customer_key_bucket",
}
BACKENDS = [
    "memory",
    "local",
    pytest.param("s3", marks=pytest.mark.s3),
    pytest.param("versitygw", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("moto", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("role", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("customer key", marks=[pytest.mark.s3, pytest.mark.slow]),
    pytest.param("hdfs", marks=pytest.mark.hdfs),
    pytest.param("abfs", marks=pytest.mark.abfs),
    pytest.param("gs", marks=pytest.mark.slow),
]


# Parts of the tests' ids, and why they do not run.
LEFT_OUT = [
    ("exactly_one_wins[abfs", "Azurite lets several conditional PUTs win"),
    ("[gs-punctuation", "fake-gcs-server cannot find names with a semicolon"),
    *(
        (f"{test}[gs]", "replacement is refused on gs: test_hadoop_files.py")
        for test in (
            "test_put_if_match_replaces_what_was_read",
            "test_put_if_match_refuses_a_changed_object",
            "test_put_if_match_refuses_a_deleted_object",
            "test_of_eight_concurrent_replacements_exactly_one_wins",
            "test_each_call_costs_one_request",
        )
    ),
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what an emulator or a file system cannot do."""
    for item in items:
        for part, reason in LEFT_OUT:
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The implementation under test."""
    return str(request.param)


@pytest.fixture
def open_again(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], ObjectStore]]:
    """Open one more instance over the same objects, as another executor would."""
    settings: dict[str, str] = {}
    connections = None
    if backend in S3_BUCKETS:
        bucket = request.getfixturevalue(S3_BUCKETS[backend])
        url, settings = f"{bucket.url}/state/0/1/default", bucket.settings
    elif backend in ("hdfs", "abfs", "gs"):
        server = request.getfixturevalue(f"{backend}_files")
        url, settings = f"{server.url}/{uuid.uuid4().hex}/state/0", server.settings
        connections = server.connections
    elif backend == "local":
        url = (tmp_path / "state" / "0").as_uri()
    else:
        url = f"memory://{uuid.uuid4().hex}/state/0"
    opened: list[ObjectStore] = []

    def open_another() -> ObjectStore:
        opened.append(open_store(url, settings, connections))
        return opened[-1]

    yield open_another
    for store in opened:
        store.close()


@pytest.fixture
def store(open_again: Callable[[], ObjectStore]) -> ObjectStore:
    """An empty store."""
    return open_again()
