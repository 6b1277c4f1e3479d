"""The requests of a store to S3, counted at the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.checksum import crc32c_file
from cairn.storage.open import open_store
from cairn.storage.s3.connections import CONNECTIONS
from harness.processes import wait_until
from harness.tcp_proxy import Fault, TcpProxy

if TYPE_CHECKING:
    from pathlib import Path

    from harness.s3_audit import AuditedS3


def test_a_put_is_one_request_and_a_get_is_one(s3_audited: AuditedS3) -> None:
    """A commit is one PUT and nothing else: no check of the bucket, no HEAD, no LIST."""
    with open_store(f"{s3_audited.url}/state/0/0", s3_audited.settings) as store:
        store.put("warm", b"")
        s3_audited.restart_count()

        for version in range(1, 6):
            store.put_if_absent(f"changelog/{version}.arrow", b"x" * 1000)
        for version in range(1, 4):
            store.get(f"changelog/{version}.arrow")

    s3_audited.assert_only("state/0/0", {"PutObject": 5, "GetObject": 3})


def test_the_first_put_of_a_store_is_its_only_request(s3_audited: AuditedS3) -> None:
    """Each of an executor's hundreds of stores has a first commit."""
    s3_audited.restart_count()

    with open_store(f"{s3_audited.url}/state/0/0", s3_audited.settings) as store:
        store.put("changelog/1.arrow", b"x")

    s3_audited.assert_only("state/", {"PutObject": 1})


def test_the_store_counts_what_the_server_counts(s3_audited: AuditedS3) -> None:
    """The counters that users see must match their bill."""
    s3_audited.restart_count()

    with open_store(f"{s3_audited.url}/state", s3_audited.settings) as store:
        store.put("a", b"x")
        store.get("a")
        list(store.list(""))
        store.delete(["a"])
        counts = store.request_counts()

    reported = s3_audited.counted("state")
    assert counts == {"PutObject": 1, "GetObject": 1, "ListObjectsV2": 1, "DeleteObjects": 1}
    assert reported == {
        "PutObject": 1,
        "GetObject": 1,
        "ListObjectsV2": 1,
        "DeleteMultipleObjects": 1,
    }


def test_the_next_store_of_a_bucket_does_not_probe_again(s3_audited: AuditedS3) -> None:
    """An executor opens hundreds of stores, and opens them again when credentials are renewed."""
    with open_store(f"{s3_audited.url}/state/0/0", s3_audited.settings) as first:
        first.probe_conditional_put()
        s3_audited.restart_count()

        with open_store(f"{s3_audited.url}/state/0/1", s3_audited.settings) as second:
            second.probe_conditional_put()
        with open_store(f"{s3_audited.url}/state/0/0", s3_audited.settings) as again:
            again.probe_conditional_put()

    s3_audited.assert_only("state/", {})


def test_connections_are_open_before_the_first_request(s3_audited: AuditedS3) -> None:
    """Opening a connection costs a commit up to three round trips."""
    with TcpProxy(s3_audited.settings["endpoint_url"]) as proxy:
        settings = {**s3_audited.settings, "endpoint_url": proxy.url}
        s3_audited.restart_count()

        with open_store(f"{s3_audited.url}/state/0/0", settings) as store:
            store.prepare()
            wait_until(lambda: proxy.connection_count == CONNECTIONS, 10, "open connections")
            s3_audited.assert_only("state/", {})
            for number in range(3):
                store.put(f"changelog/{number}.arrow", b"x")

        assert proxy.connection_count == CONNECTIONS
    s3_audited.assert_only("state/", {"PutObject": 3})


def test_a_put_does_not_wait_for_an_interim_answer(s3_audited: AuditedS3, tmp_path: Path) -> None:
    """The interim answer (100 Continue) doubles the time of a commit on a distant server."""
    file = tmp_path / "1.sst"
    file.write_bytes(b"x" * 1000)
    with TcpProxy(s3_audited.settings["endpoint_url"]) as proxy:
        asking = proxy.add(Fault(b"PUT ", contains=b"100-continue", times=100))
        settings = {**s3_audited.settings, "endpoint_url": proxy.url}

        with open_store(f"{s3_audited.url}/state/0/0", settings) as store:
            store.put("changelog/1.arrow", b"x" * 1000)
            store.put_if_absent("changelog/2.arrow", b"x" * 1000)
            store.upload("sst/1.sst", file, crc32c=crc32c_file(file))

    assert asking.applied == 0
