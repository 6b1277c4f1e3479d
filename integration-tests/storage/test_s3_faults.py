"""S3 behind a connection that drops, cuts and delays answers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cairn.checksum import crc32c_file
from cairn.clock import FakeClock
from cairn.errors import (
    AlreadyExistsError,
    ConditionalPutUnsupportedError,
    PreconditionFailedError,
    UnavailableError,
)
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.store import S3Store
from harness.tcp_proxy import Fault, TcpProxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.s3 import S3Bucket, S3Endpoint


@pytest.fixture
def proxy(s3_server: S3Endpoint) -> Iterator[TcpProxy]:
    """A proxy between store and server."""
    with TcpProxy(s3_server.endpoint_url) as proxy:
        yield proxy


def store_through(
    proxy: TcpProxy, bucket: S3Bucket, *, max_attempts: int = 3, read_timeout_ms: int = 20_000
) -> S3Store:
    """Return a store that reaches its bucket through the proxy."""
    settings = {
        **bucket.settings,
        "endpoint_url": proxy.url,
        "max_attempts": str(max_attempts),
        "read_timeout_ms": str(read_timeout_ms),
    }
    return S3Store(f"{bucket.url}/state", S3Settings.from_mapping(settings), clock=FakeClock())


@pytest.fixture
def store(proxy: TcpProxy, s3_bucket: S3Bucket) -> Iterator[S3Store]:
    """A store behind the proxy."""
    with store_through(proxy, s3_bucket) as store:
        yield store


@pytest.fixture
def direct(s3_bucket: S3Bucket) -> Iterator[S3Store]:
    """Another writer, with a direct connection."""
    url = f"{s3_bucket.url}/state"
    with S3Store(url, S3Settings.from_mapping(s3_bucket.settings)) as store:
        yield store


def test_a_lost_answer_to_a_create_is_recognised_as_own_success(
    proxy: TcpProxy, store: S3Store, direct: S3Store
) -> None:
    """The object was stored and the retry conflicts with it: this must not fail the batch."""
    fault = proxy.add(Fault(b"PUT ", drops_answer=True))

    store.put_if_absent("changelog/1.arrow", b"ours")

    assert fault.applied == 1
    assert direct.get("changelog/1.arrow").data == b"ours"


def test_a_lost_answer_without_a_retry_is_resolved_too(
    proxy: TcpProxy, s3_bucket: S3Bucket, direct: S3Store
) -> None:
    """The outcome of the last attempt is unknown; the object's id names its writer."""
    proxy.add(Fault(b"PUT ", drops_answer=True))

    with store_through(proxy, s3_bucket, max_attempts=1) as store:
        store.put_if_absent("changelog/1.arrow", b"ours")

    assert direct.get("changelog/1.arrow").data == b"ours"


def test_a_lost_answer_to_a_replacement_is_recognised(
    proxy: TcpProxy, store: S3Store, direct: S3Store
) -> None:
    """The retry finds a changed etag, which this put has changed."""
    direct.put("changelog/1.arrow", b"abandoned")
    old_etag = direct.get("changelog/1.arrow").etag
    proxy.add(Fault(b"PUT ", drops_answer=True))

    store.put_if_match("changelog/1.arrow", b"ours", old_etag)

    assert direct.get("changelog/1.arrow").data == b"ours"


def test_a_lost_answer_to_a_plain_put_is_resolved(
    proxy: TcpProxy, s3_bucket: S3Bucket, direct: S3Store
) -> None:
    """Format 2 commits with a plain put."""
    proxy.add(Fault(b"PUT ", drops_answer=True))

    with store_through(proxy, s3_bucket, max_attempts=1) as store:
        store.put("changelog/1_a.arrow", b"ours")

    assert direct.get("changelog/1_a.arrow").data == b"ours"


def test_the_object_of_another_writer_is_a_conflict(
    proxy: TcpProxy, store: S3Store, direct: S3Store
) -> None:
    """Another attempt was first and our answer was lost: its object must not count as ours."""
    fault = proxy.add(
        Fault(
            b"PUT ",
            drops_answer=True,
            before=lambda: direct.put_if_absent("changelog/1.arrow", b"theirs"),
        )
    )

    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("changelog/1.arrow", b"ours")

    assert fault.applied == 1
    assert direct.get("changelog/1.arrow").data == b"theirs"


def test_the_same_bytes_of_another_writer_are_a_conflict(
    proxy: TcpProxy, store: S3Store, direct: S3Store
) -> None:
    """Equal content has an equal etag; only the id distinguishes two attempts."""
    proxy.add(
        Fault(
            b"PUT ",
            drops_answer=True,
            before=lambda: direct.put_if_absent("changelog/1.arrow", b"same"),
        )
    )

    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("changelog/1.arrow", b"same")


def test_the_replacement_of_another_writer_is_a_conflict(
    proxy: TcpProxy, store: S3Store, direct: S3Store
) -> None:
    """Both writers read the abandoned object; the other one replaced it first."""
    direct.put("changelog/1.arrow", b"abandoned")
    old_etag = direct.get("changelog/1.arrow").etag
    proxy.add(
        Fault(
            b"PUT ",
            drops_answer=True,
            before=lambda: direct.put_if_match("changelog/1.arrow", b"theirs", old_etag),
        )
    )

    with pytest.raises(PreconditionFailedError):
        store.put_if_match("changelog/1.arrow", b"ours", old_etag)

    assert direct.get("changelog/1.arrow").data == b"theirs"


def test_an_unknown_outcome_is_unavailable(proxy: TcpProxy, s3_bucket: S3Bucket) -> None:
    """It is neither a success nor a conflict; Spark retries the task."""
    proxy.add(Fault(b"PUT ", drops_answer=True))
    proxy.add(Fault(b"HEAD ", times=10, drops_answer=True))

    with (
        store_through(proxy, s3_bucket, max_attempts=1) as store,
        pytest.raises(UnavailableError, match="changelog/1") as raised,
    ):
        store.put_if_absent("changelog/1.arrow", b"ours")

    assert raised.value.kind == "retry"
    assert s3_bucket.endpoint.secret_key not in str(raised.value)


@pytest.mark.parametrize("cut_at_bytes", [1, 700, 50_000])
def test_a_cut_answer_is_requested_again(
    proxy: TcpProxy, store: S3Store, direct: S3Store, cut_at_bytes: int
) -> None:
    """A truncated changelog may read as a shorter one: only a whole body is valid."""
    body = os.urandom(100_000)
    direct.put("changelog/1.arrow", body)
    fault = proxy.add(Fault(b"GET ", cuts_answer_after_bytes=cut_at_bytes))

    assert store.get("changelog/1.arrow").data == body
    assert fault.applied == 1


def test_an_answer_that_is_always_cut_is_unavailable(
    proxy: TcpProxy, store: S3Store, direct: S3Store, tmp_path: Path
) -> None:
    """An object that never arrives completely leads to an error, and leaves no file."""
    direct.put("sst/1.sst", os.urandom(100_000))
    proxy.add(Fault(b"GET ", times=100, cuts_answer_after_bytes=50_000))

    with pytest.raises(UnavailableError, match=r"sst/1\.sst"):
        store.download("sst/1.sst", tmp_path / "1.sst", size_bytes=100_000, crc32c=0)

    assert list(tmp_path.iterdir()) == []


def test_ranges_survive_cut_answers(
    proxy: TcpProxy, store: S3Store, direct: S3Store, tmp_path: Path
) -> None:
    """A cut range of a very large SST must not affect the other ranges or the whole file."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(68 << 20))
    checksum = crc32c_file(source)
    direct.upload("sst/1.sst", source, crc32c=checksum)
    proxy.add(Fault(b"GET ", times=2, cuts_answer_after_bytes=1_000_000))

    store.download("sst/1.sst", target, size_bytes=68 << 20, crc32c=checksum)

    assert crc32c_file(target) == checksum


@pytest.mark.parametrize(
    ("request_line", "contains"),
    [(b"PUT ", b"partnumber"), (b"POST ", b"?uploads"), (b"POST ", b"if-none-match")],
    ids=["a part", "the start", "the completion"],
)
def test_an_upload_in_parts_survives_a_lost_answer(
    proxy: TcpProxy,
    store: S3Store,
    direct: S3Store,
    tmp_path: Path,
    request_line: bytes,
    contains: bytes,
) -> None:
    """The retry of a completed upload does not find it; the upload has still succeeded."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(65 << 20))
    fault = proxy.add(Fault(request_line, contains=contains, drops_answer=True))

    store.upload("sst/1.sst", source, crc32c=crc32c_file(source))

    assert fault.applied == 1
    assert direct.get("sst/1.sst").data == source.read_bytes()


def test_a_server_that_is_down_is_unavailable_and_named(
    proxy: TcpProxy, s3_bucket: S3Bucket
) -> None:
    """The log must name the endpoint."""
    proxy.is_down = True

    with (
        store_through(proxy, s3_bucket, max_attempts=2) as store,
        pytest.raises(UnavailableError) as raised,
    ):
        store.get("changelog/1.arrow")

    assert proxy.url in str(raised.value)
    assert s3_bucket.endpoint.secret_key not in str(raised.value)
    assert s3_bucket.endpoint.access_key not in str(raised.value)


def test_a_server_that_does_not_answer_in_time_is_unavailable(
    proxy: TcpProxy, s3_bucket: S3Bucket
) -> None:
    """A server that hangs must not block the batch."""
    proxy.latency_ms = 2_000

    with (
        store_through(proxy, s3_bucket, max_attempts=1, read_timeout_ms=300) as store,
        pytest.raises(UnavailableError, match="in time"),
    ):
        store.get("changelog/1.arrow")


def test_a_slow_connection_is_only_slow(proxy: TcpProxy, store: S3Store, tmp_path: Path) -> None:
    """Another zone has a latency of 20 ms."""
    proxy.latency_ms = 20
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000)

    checksum = crc32c_file(source)
    store.upload("sst/1.sst", source, crc32c=checksum)
    store.download("sst/1.sst", tmp_path / "target", size_bytes=100_000, crc32c=checksum)

    assert [info.key for info in store.list("")] == ["sst/1.sst"]
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_a_server_that_ignores_a_condition_is_detected(
    proxy: TcpProxy, s3_bucket: S3Bucket, header: str
) -> None:
    """Such a server would let two attempts overwrite each other silently."""
    _open_to_everyone(s3_bucket)  # a signature would cover the hidden header
    proxy.hidden_header = header.lower().encode()
    settings = S3Settings(endpoint_url=proxy.url, anonymous=True)

    with (
        S3Store(f"{s3_bucket.url}/state", settings) as store,
        pytest.raises(ConditionalPutUnsupportedError, match=f"ignores {header}:"),
    ):
        store.probe_conditional_put()

    client = s3_bucket.endpoint.client()
    assert client.list_objects_v2(Bucket=s3_bucket.name)["KeyCount"] == 0
    client.close()


def _open_to_everyone(bucket: S3Bucket) -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"AWS": ["*"]},
                "Action": ["s3:PutObject", "s3:DeleteObject", "s3:GetObject"],
                "Resource": [f"arn:aws:s3:::{bucket.name}/*"],
            }
        ],
    }
    client = bucket.endpoint.client()
    client.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps(policy))
    client.close()
