"""S3 behind Toxiproxy: resets, time-outs, cut and slow connections, and a server that goes away.

``test_s3_faults.py`` has faults of single requests. Here every connection has the same fault.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from cairn.checksum import crc32c_file
from cairn.errors import MissingError, UnavailableError
from cairn.storage.s3.settings import S3Settings
from cairn.storage.s3.store import S3Store
from harness.toxiproxy import Toxiproxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.s3 import S3Bucket, S3Endpoint

SIZE = 300_000
BROKEN: dict[str, tuple[str, dict[str, int]]] = {
    "reset at once": ("reset_peer", {"timeout": 0}),
    "reset after a while": ("reset_peer", {"timeout": 20}),
    "no answer, then closed": ("timeout", {"timeout": 300}),
    "no answer": ("timeout", {"timeout": 0}),
    "cut": ("limit_data", {"bytes": 150}),
}
SLOW: dict[str, tuple[str, dict[str, int]]] = {
    "latency": ("latency", {"latency": 100, "jitter": 50}),
    "narrow": ("bandwidth", {"rate": 400}),
    "small pieces": ("slicer", {"average_size": 2000, "size_variation": 1000, "delay": 100}),
    "slow to close": ("slow_close", {"delay": 200}),
}


@pytest.fixture
def proxy(s3_server: S3Endpoint, tmp_path: Path) -> Iterator[Toxiproxy]:
    """A proxy between store and server."""
    (tmp_path / "proxy").mkdir()
    with Toxiproxy(s3_server.endpoint_url, tmp_path / "proxy") as proxy:
        yield proxy


@pytest.fixture
def store(proxy: Toxiproxy, s3_bucket: S3Bucket) -> Iterator[S3Store]:
    """A store behind the proxy that gives up soon."""
    limits = {"max_attempts": "2", "connect_timeout_ms": "1000", "read_timeout_ms": "750"}
    settings = {**s3_bucket.settings, "endpoint_url": proxy.url, **limits}
    with S3Store(f"{s3_bucket.url}/state", S3Settings.from_mapping(settings)) as store:
        yield store


@pytest.fixture
def direct(s3_bucket: S3Bucket) -> Iterator[S3Store]:
    """The same objects, without the proxy; one of them is there already."""
    url = f"{s3_bucket.url}/state"
    with S3Store(url, S3Settings.from_mapping(s3_bucket.settings)) as store:
        store.put("sst/present.sst", b"p" * SIZE)
        yield store


def calls(store: S3Store, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return one call of each kind; each that writes has a key of its own."""
    source = folder / "source"
    source.write_bytes(b"u" * SIZE)
    present = folder / "present"
    present.write_bytes(b"p" * SIZE)
    checksum = crc32c_file(present)
    target = folder / "target"
    return {
        "put": lambda: store.put("changelog/1.arrow", b"a" * SIZE),
        "create": lambda: store.put_if_absent("changelog/2.arrow", b"b" * SIZE),
        "upload": lambda: store.upload("sst/1.sst", source, crc32c=crc32c_file(source)),
        "get": lambda: store.get("sst/present.sst"),
        "download": lambda: store.download(
            "sst/present.sst", target, size_bytes=SIZE, crc32c=checksum
        ),
        "list": lambda: list(store.list("")),
    }


WRITTEN = {"changelog/1.arrow": b"a", "changelog/2.arrow": b"b", "sst/1.sst": b"u"}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_connection_ends_in_one_error_and_leaves_whole_objects(
    proxy: Toxiproxy,
    store: S3Store,
    direct: S3Store,
    s3_bucket: S3Bucket,
    tmp_path: Path,
    fault: str,
) -> None:
    """Each call ends, within its time limits; afterwards the same store works again."""
    kind, attributes = BROKEN[fault]
    proxy.add_toxic("fault", kind, **attributes)
    errors: dict[str, UnavailableError] = {}
    for name, call in calls(store, tmp_path).items():
        try:
            call()
        except UnavailableError as error:
            errors[name] = error
    proxy.remove_toxic("fault")
    # Connections that were open keep their fault until they end.
    proxy.set_enabled(is_enabled=False)
    proxy.set_enabled(is_enabled=True)

    assert {"get", "download"} <= set(errors)
    for text in map(str, errors.values()):
        assert proxy.url in text
        assert s3_bucket.endpoint.secret_key not in text
    assert not (tmp_path / "target").exists()
    for key, letter in WRITTEN.items():
        try:
            assert direct.get(key).data == letter * SIZE
        except MissingError:
            store.put(key, letter * SIZE)
    assert store.get("sst/present.sst").data == b"p" * SIZE


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_connection_is_only_slow(
    proxy: Toxiproxy, store: S3Store, direct: S3Store, tmp_path: Path, fault: str
) -> None:
    """Time limits are for silence, not for slowness."""
    kind, attributes = SLOW[fault]
    proxy.add_toxic("fault", kind, **attributes)

    for call in calls(store, tmp_path).values():
        call()

    assert {info.key for info in direct.list("")} == {*WRITTEN, "sst/present.sst"}
    assert (tmp_path / "target").read_bytes() == b"p" * SIZE


def test_a_server_that_goes_away_for_a_while(
    proxy: Toxiproxy, store: S3Store, direct: S3Store
) -> None:
    """The connections of the pool are all broken when it comes back."""
    body = os.urandom(SIZE)
    store.put("changelog/1.arrow", body)
    proxy.set_enabled(is_enabled=False)

    with pytest.raises(UnavailableError):
        store.put("changelog/2.arrow", body)
    proxy.set_enabled(is_enabled=True)
    store.put("changelog/2.arrow", body)

    assert direct.get("changelog/2.arrow").data == body
