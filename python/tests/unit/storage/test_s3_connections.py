"""When the connections of an S3 client are opened before requests."""

from __future__ import annotations

import boto3.session

from cairn.clock import FakeClock
from cairn.storage.s3.connections import ConnectionKeeper, open_connections


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


def test_a_server_that_cannot_be_reached_is_left_to_the_next_request() -> None:
    """The request reports it, with the object and the next step."""
    client = boto3.session.Session("key", "secret").client(
        "s3", endpoint_url="http://127.0.0.1:1", region_name="us-east-1"
    )

    open_connections(client, "bucket")

    client.close()
