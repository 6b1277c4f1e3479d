"""An object of 20 GB under a name of Cairn's: refused by its size, before its bytes are read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from s3_stub import Answer, Request, S3Stub

from cairn.checkpoint.recovery import Recovery
from cairn.checkpoint.sst_cache import SstCache
from cairn.checkpoint.transfers import TransferResources
from cairn.errors import ConfigError, CorruptError, PreconditionFailedError, ProtocolError
from cairn.format import changelog, manifest
from cairn.ids import CheckpointId, StoreId, VersionRef
from cairn.protocol import frames
from cairn.storage.base import MAX_GET_BYTES, ObjectStore
from cairn.storage.hadoop.connections import StorageConnections
from cairn.storage.hadoop.store import HadoopStore
from cairn.storage.local import LocalStore
from cairn.storage.open import open_store
from harness.fake_shim import FILE_SYSTEM, FakeShim

HUGE_BYTES = 20 * 10**9
SENT = b"x" * 1000
NAMES = ("changelog/7.arrow", f"snapshot/7_u{'0' * 32}.json")
MAY_GROW_BYTES = 64 << 20
MAY_TAKE_S = 10
DATE = "Mon, 02 Jan 2023 00:00:00 GMT"


class HugeShim(FakeShim):
    """Says that each file has 20 GB, and sends them, byte by byte, if it is asked."""

    def status(self, path: str) -> bytes:
        return HUGE_BYTES.to_bytes(8, "little") + super().status(path)[8:]


def huge(request: Request) -> Answer | None:
    """Announce 20 GB and send a part of them; ignore ranges."""
    if request.method != "GET":
        return None
    length = {"Content-Length": str(HUGE_BYTES), "ETag": '"e"', "Last-Modified": DATE}
    return 200, length, SENT


@pytest.fixture(params=["local", "s3", "hadoop"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """A store with objects of 20 GB; a test must not take memory or time for them."""
    _reset_peak()
    before, began = _of_status("VmRSS"), time.monotonic()
    with ExitStack() as stack:
        if request.param == "s3":
            stub = stack.enter_context(S3Stub(answer=huge))
            yield stack.enter_context(open_store("s3://bucket/state", stub.settings))
        elif request.param == "hadoop":
            shim, connections = HugeShim(), StorageConnections()
            stack.callback(connections.close)
            settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": "5000"}
            opened = HadoopStore("hdfs://host/state", settings, connections)
            for _ in range(6):
                shim.connect(connections)
            for name in NAMES:
                shim.content[f"/state/{name}"], shim.modified_ms[f"/state/{name}"] = b"x", 1
            yield opened
        else:
            for name in NAMES:
                path = tmp_path / "state" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.truncate(HUGE_BYTES)  # a hole: it takes no room
            yield stack.enter_context(LocalStore(str(tmp_path / "state")))
    assert _of_status("VmHWM") - before < MAY_GROW_BYTES
    assert time.monotonic() - began < MAY_TAKE_S


def _reset_peak() -> None:
    """Let ``VmHWM`` count from now on: earlier tests may have needed more."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def _of_status(name: str) -> int:
    """Return a size of this process: resident now, ``VmRSS``, or at its peak, ``VmHWM``."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) << 10


def test_a_huge_object_is_not_read_into_memory(store: ObjectStore) -> None:
    """The worker would be killed, with all its stores, again and again."""
    with pytest.raises(CorruptError) as refused:
        store.get(NAMES[0])

    text = str(refused.value)
    assert store.object_url(NAMES[0]) in text
    assert f"{HUGE_BYTES} bytes, over the limit of {MAX_GET_BYTES}" in text
    assert store.request_counts()["GetObject"] == 1


def test_a_huge_object_is_not_read_to_be_replaced(store: ObjectStore) -> None:
    """A file system that has no etags makes one from the bytes."""
    with pytest.raises((CorruptError, PreconditionFailedError), match=NAMES[0]):
        store.put_if_match(NAMES[0], b"new", "e")


def test_the_start_of_a_huge_object_is_its_first_bytes(store: ObjectStore) -> None:
    """A server that ignores the range would send all of it."""
    start = store.get_start(NAMES[0], 1)

    assert len(start.data) == 1
    assert start.size_bytes == HUGE_BYTES
    assert not start.is_whole


@pytest.mark.parametrize("expected_bytes", [1000, 65 << 20], ids=["whole", "in ranges"])
def test_a_huge_object_does_not_fill_the_disk(
    store: ObjectStore, tmp_path: Path, expected_bytes: int
) -> None:
    """An SST has the size that its manifest says."""
    with pytest.raises(CorruptError, match=f"instead of {expected_bytes}|20000000000") as refused:
        store.download(NAMES[0], tmp_path / "target", size_bytes=expected_bytes, crc32c=0)

    assert store.object_url(NAMES[0]) in str(refused.value)
    assert not (tmp_path / "target").exists()


def test_a_load_names_version_size_and_what_to_do(store: ObjectStore, tmp_path: Path) -> None:
    """A person must find out which object it is, and that it is not Cairn's."""
    cache = SstCache(tmp_path / "cache", 1 << 20)
    recovery = Recovery(store, StoreId(0, 3), 1, TransferResources(cache, None, None))  # type: ignore[arg-type]

    with pytest.raises(CorruptError) as of_changelog:
        recovery.fetch_head(7, None)
    with pytest.raises(CorruptError) as of_manifest:
        recovery.fetch_manifest(VersionRef(7, CheckpointId("u" + "0" * 32)))

    for text, limit in (
        (str(of_changelog.value), changelog.MAX_OBJECT_BYTES),
        (str(of_manifest.value), manifest.MAX_OBJECT_BYTES),
    ):
        assert f"over the limit of {limit}" in text
        assert "version=7" in text
        assert "restore the object" in text


def test_a_server_that_ignores_ranges_is_named(tmp_path: Path) -> None:
    """An object of more than 64 MiB is downloaded in ranges."""
    size = (64 << 20) + 1
    body = b"x" * size

    def ignore(request: Request) -> Answer | None:
        fields = {"ETag": '"e"', "Last-Modified": DATE}
        return (200, fields, body) if request.method == "GET" else None

    with (
        S3Stub(answer=ignore) as stub,
        open_store("s3://bucket/state", stub.settings) as opened,
        pytest.raises(ConfigError, match="ignores ranges"),
    ):
        opened.download("sst/7.sst", tmp_path / "target", size_bytes=size, crc32c=0)

    assert not (tmp_path / "target").exists()


def test_more_bytes_than_a_file_has_are_refused() -> None:
    """A reply without an end must not fill the memory."""

    class Endless(FakeShim):
        def read(self, header: frames.Header, payload: bytes) -> Iterator[bytes]:
            first, *rest = super().read(header, payload)
            yield first
            while True:
                yield rest[0][:6] + b"\1" + rest[0][7:]  # has more

    shim, connections = Endless(), StorageConnections()
    shim.connect(connections)
    shim.content["/state/a"], shim.modified_ms["/state/a"] = b"12", 1
    settings = {"file_system": str(FILE_SYSTEM), "timeout_ms": "5000"}

    with pytest.raises(ProtocolError, match="did not send the 2 bytes"):
        HadoopStore("hdfs://host/state", settings, connections).get("a")

    connections.close()
