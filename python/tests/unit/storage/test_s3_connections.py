"""When the connections of an S3 client are opened before requests."""

from __future__ import annotations

from typing import Literal

import boto3.session
import pytest
from botocore.awsrequest import AWSRequest
from botocore.config import Config

from cairn.clock import FakeClock
from cairn.storage.s3.connections import ConnectionKeeper, bucket_url, open_connections


def test_a_busy_client_looks_at_its_connections_every_few_seconds() -> None:
    """Each of an executor's hundreds of stores asks at each load; a look takes a moment."""
    clock, opened = FakeClock(), list[str]()
    keeper = ConnectionKeeper(opened.append, clock)

    for _ in range(3):
        keeper.prepare("one")
    keeper.prepare("two")
    clock.advance(4.9)
    keeper.prepare("one")
    clock.advance(0.2)
    keeper.prepare("one")

    assert opened == ["one", "two", "one"]


@pytest.mark.parametrize("style", ["auto", "path", "virtual"])
@pytest.mark.parametrize("endpoint", [None, "https://s3.company.example:9000"])
@pytest.mark.parametrize("bucket", ["lake", "la.ke"])
def test_connections_go_to_the_host_of_the_requests(
    style: Literal["auto", "path", "virtual"], endpoint: str | None, bucket: str
) -> None:
    """Those to another host of AWS would be of no use."""
    client = boto3.session.Session("key", "secret").client(
        "s3",
        endpoint_url=endpoint,
        region_name="eu-west-1",
        config=Config(s3={"addressing_style": style}),
    )
    requested: list[str] = []

    def note(request: AWSRequest, **_: object) -> None:
        requested.append(str(request.url))
        raise InterruptedError("not sent")

    client.meta.events.register("before-send.s3.HeadBucket", note)
    with pytest.raises(InterruptedError):
        client.head_bucket(Bucket=bucket)

    assert [bucket_url(client, bucket)] == [url.removesuffix("/") for url in requested]
    client.close()


def test_a_server_that_cannot_be_reached_is_left_to_the_next_request() -> None:
    """The request reports it, with the object and the next step."""
    client = boto3.session.Session("key", "secret").client(
        "s3", endpoint_url="http://127.0.0.1:1", region_name="us-east-1"
    )

    open_connections(client, "bucket")

    client.close()
